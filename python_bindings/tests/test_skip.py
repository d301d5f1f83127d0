# SPDX-License-Identifier: Apache-2.0
"""Steps that a plan skips: nothing else moves, and what is delivered, what is skipped and what other ranks have later is every
item once."""
from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rankstore
from rankstore import Pack, Pad

numpy = pytest.importorskip("numpy")
hypothesis = pytest.importorskip("hypothesis")
strategies = hypothesis.strategies

LENGTHS = [1 + (i * 7919) % (9 if i % 3 else 90) for i in range(150)]


@pytest.fixture(scope="module")
def ds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    rows = [{"key": f"s{i}", "ids": 1000 * i + 1 + numpy.arange(n, dtype="int32")} for i, n in enumerate(LENGTHS)]
    with rankstore.build(rows, Path(tmp_path_factory.mktemp("skip")) / "store", key="key", length="ids", count={
            "here": ("ids", ">", 0)}) as opened:
        yield opened


@strategies.composite
def plans(draw: Any) -> dict[str, Any]:
    strategy = draw(strategies.sampled_from(["pack", "pack", "bucket", "sorted", "random", "sequential"]))
    made: dict[str, Any] = {"strategy": strategy, "seed": draw(strategies.integers(0, 99)), "too_long": "split"}
    if strategy == "pack":
        return made | {"capacity": draw(strategies.integers(8, 60)), "batch_size": draw(strategies.integers(1, 3)),
                       "micro_batches": draw(strategies.integers(1, 2))}
    return made | {"max_tokens": draw(strategies.integers(40, 400))}


def items(plan: rankstore.Plan, batches: list[Any]) -> Counter[tuple[int, int]]:
    """(id, item) of batches, pieces by their bounds."""
    found: Counter[tuple[int, int]] = Counter()
    for batch in batches:
        pieces = {place: (start, count) for place, start, count in numpy.frombuffer(batch.pieces, "uint32").reshape(-1, 3).tolist()}
        for place, number in enumerate(batch):
            start, count = pieces.get(place, (0, LENGTHS[number]))
            found.update((number, one) for one in range(start, start + count))
    return found


@hypothesis.given(options=plans(), worlds=strategies.lists(strategies.integers(1, 4), min_size=2, max_size=3), data=strategies.data())
@hypothesis.settings(max_examples=60, deadline=None)
def test_every_item_once_or_skipped(options: dict[str, Any], worlds: list[int], data: Any) -> None:
    """An epoch that several numbers of ranks do in turn, each of which skips some of it."""
    state, seen, micro, ended = None, Counter[tuple[int, int]](), options.get("micro_batches", 1), False
    for place, world in enumerate(worlds):
        if place and worlds[place - 1] == world:
            continue
        try:
            plan = rankstore.plan(LENGTHS, world=world, **options)
            sampler = plan.sampler("global")
            if state is not None:
                sampler.load_state_dict(state)
        except rankstore.DataError:
            hypothesis.assume(False)
        steps = len(plan.epoch(0))
        if sampler._epoch == 1:  # the ranks before have skipped what was left
            ended = True
            break
        first = data.draw(strategies.integers(0, steps // micro - 1)) * micro
        last = min(steps, first + data.draw(strategies.integers(1, 6)) * micro)
        plan.skip(0, first, last - 1)
        skipped = [one for step in range(first, last) for one in plan.samples(0, step, pieces=True)]
        seen.update((number, one) for rank in skipped for number, start, count in rank for one in range(start, start + count))
        kept = [step for step in range(steps) if not first <= step < last]
        assert plan.steps_of(0) == len(kept) and len(sampler) == len(kept) * world
        stop = len(kept) if place + 1 == len(worlds) else data.draw(strategies.integers(0, len(kept) // micro)) * micro
        hypothesis.assume(stop > 0 or place + 1 == len(worlds))
        iterator = iter(sampler)
        batches = [next(iterator) for _ in range(stop * world)]
        assert [batch.step for batch in batches] == [step for step in kept[:stop] for _ in range(world)]
        indptr, ids = plan.epoch(0).batches(-1)
        assert len(indptr) == len(kept) * world + 1
        assert ids[:indptr[stop * world]].tolist() == [number for batch in batches for number in batch]
        seen.update(items(plan, batches))
        state = iterator.state_dict()
        if stop == len(kept):
            assert next(iterator, None) is None
            ended = True
            break
    if ended:
        assert seen == Counter((number, one) for number, count in enumerate(LENGTHS) for one in range(count))


def test_a_loader_passes_skipped_steps(ds: Any) -> None:
    plan = ds.plan("pack", capacity=64, too_long="split", seed=3, skip=[(0, 2, 4), (0, 9, 9), (1, 0, 0)])
    whole = ds.plan("pack", capacity=64, too_long="split", seed=3)
    steps = whole.steps
    kept = [step for step in range(steps) if step not in (2, 3, 4, 9)]
    loader = ds.loader(plan, collate=Pack("rows"))
    assert (len(loader), plan.steps, plan.steps_of(1), plan.steps_of(2)) == (steps - 4, steps - 4, steps - 1, steps)
    batches = list(loader)
    assert [batch.step for batch in batches] == kept
    for batch, other in zip(batches, (one for one in ds.loader(whole, collate=Pack("rows")) if one.step in kept), strict=True):
        assert batch.step == other.step and (batch["ids"] == other["ids"]).all()
    assert [batch.step for batch in loader][:2] == [1, 2]  # epoch 1
    assert plan.report(0)["skipped"] == 4 and plan.report(0)["steps"] == len(kept)
    assert plan.report(0)["tokens"] == sum(int((batch["ids"] != 0).sum()) for batch in batches)
    # a state in the middle, into a plan that skips nothing of its own
    loader = ds.loader(plan, collate=Pack("rows"))
    loader.set_epoch(0)
    for _, batch in zip(range(5), loader):
        last = batch.step
    assert last == 7
    again = ds.loader(ds.plan("pack", capacity=64, too_long="split", seed=3), collate=Pack("rows"), start=loader.state_dict())
    assert [batch.step for batch in again] == [step for step in kept if step > 7]
    assert again.plan.steps_of(1) == steps - 1
    assert [batch.step for batch in again][0] == 1


@pytest.mark.parametrize("options", [{"collate": Pad()}, {"collate": Pad(), "transform": lambda batch: batch, "threads": 3},
                                     {"collate": lambda samples: [one["ids"].tolist() for one in samples]}])
def test_a_loader_in_the_epoch_sees_steps_that_are_skipped_now(ds: Any, options: dict[str, Any]) -> None:
    """Also those that are fetched ahead, those at the end, and again."""
    plan, whole = (ds.plan("bucket", batch_size=8, seed=5) for _ in range(2))
    steps = plan.steps
    loader, seen, sampled, samples = ds.loader(plan, **options), [], [], iter(plan.sampler())
    for batch in loader:
        seen.append(batch)
        sampled.append(next(samples).step)
        if len(seen) == 3:
            plan.skip(0, 1, 5)  # two of them were yielded
        if len(seen) == 5:
            plan.skip(0, steps - 2, steps - 1)
    kept = [0, 1, 2, *range(6, steps - 2)]
    assert sampled == kept and next(samples, None) is None
    every = list(ds.loader(whole, **options))
    if isinstance(seen[0], list):
        assert seen == [every[step] for step in kept]
    else:
        assert [batch.step for batch in seen] == kept and all(batch["ids"].equal(every[batch.step]["ids"]) for batch in seen)
    assert loader.epoch == 1 and len(list(loader)) == steps


def test_an_epoch_may_end_with_skipped_steps(ds: Any) -> None:
    plan = ds.plan("bucket", batch_size=8, seed=1)
    steps = plan.steps
    plan.skip(0, 5, steps - 1)
    loader = ds.loader(plan, collate=Pad())
    assert ([batch.step for batch in loader], len(loader), loader.epoch) == ([0, 1, 2, 3, 4], steps, 1)
    assert [batch.epoch for batch in loader] == [1] * steps
    plan = ds.plan("bucket", batch_size=8, seed=1, skip=[(0, 0, steps - 1)])
    loader, sampler = ds.loader(plan, collate=Pad()), plan.sampler()
    assert (list(loader), list(sampler), len(list(loader)), len(list(sampler))) == ([], [], steps, steps)
    with pytest.raises(rankstore.DataError, match=f"report: all {steps} steps of epoch 0 are skipped"):
        plan.report()


def test_worker_processes_and_copies_skip_the_same(ds: Any) -> None:
    torch = pytest.importorskip("torch")
    plan = ds.plan("pack", capacity=64, too_long="split", skip=[(0, 1, 3)])
    shown = ds.collating(Pack("rows"))
    loader = torch.utils.data.DataLoader(shown, batch_sampler=plan.sampler(), collate_fn=ds.collate, num_workers=2)
    found = [(batch.step, batch.pieces.tolist()) for batch in loader]
    assert found == [(batch.step, batch.pieces.tolist()) for batch in ds.loader(plan, collate=Pack("rows"))]
    assert [step for step, _ in found] == [0, *range(4, 4 + len(found) - 1)]
    plan.skip(0, 6, 6)
    for copied in (copy.deepcopy(plan), copy.copy(plan)):
        assert copied.steps == plan.steps and [batch.step for batch in copied.sampler()][:4] == [0, 4, 5, 7]


def test_sums_of_a_step_count_what_is_delivered(ds: Any) -> None:
    plan = ds.plan("bucket", batch_size=8, seed=2, skip=[(0, 1, 2)])
    batches = list(ds.loader(plan, collate=Pad()))
    four = [int((batch["ids"] != 0).sum()) for batch in batches[:4]]
    assert [batch.step for batch in batches[:4]] == [0, 3, 4, 5]
    assert all(plan.step_sum("here", 0, step, accumulate=4) == sum(four) for step in (0, 3, 4, 5))
    assert plan.step_sum("here", 0, 6, accumulate=4) == sum(int((batch["ids"] != 0).sum()) for batch in batches[4:8])


def test_sums_of_a_skipped_step_are_what_it_would_have(ds: Any) -> None:
    """Also of the last step, and of a batch that was delivered before the step was skipped."""
    plan = ds.plan("bucket", batch_size=8, seed=2)
    last = plan.steps - 1
    batches = list(ds.loader(plan, collate=Pad()))
    before = [(batch.global_sum("here"), batch.global_tokens) for batch in batches]
    name = plan.hash
    plan.skip(0, 1, 2)
    plan.skip(0, last, last)
    assert plan.hash != name and plan.hash == ds.plan("bucket", batch_size=8, seed=2, skip=[(0, 1, 2), (0, last, last)]).hash
    assert [(batch.global_sum("here"), batch.global_tokens) for batch in batches] == before
    assert plan.step_sum("here", 0, last, accumulate=4) == sum(here for here, _ in before[last // 4 * 4:])
    pieces = ds.plan("pack", capacity=64, too_long="split", seed=3, skip=[(0, 0, 0)])
    with pytest.raises(rankstore.DataError, match="of them are in these batches"):
        for step in range(pieces.steps):
            pieces.step_sum("here", 0, step)


@pytest.mark.parametrize(("skip", "text"), [
    ([(0, 1)], r"skip: \(0, 1\); give a list of \(epoch, first step, last step\)"),
    ([(0, 3, 2)], "skip: steps 3 to 2 of epoch 0, which has steps 0 to 18"),
    ([(0, 0, 19)], "skip: steps 0 to 19 of epoch 0, which has steps 0 to 18"),
])
def test_wrong_skips_are_named(skip: Any, text: str) -> None:
    with pytest.raises(rankstore.ArgumentError, match=text):
        rankstore.plan(LENGTHS, batch_size=8, skip=skip)


def test_states_have_room_for_so_many() -> None:
    plan = rankstore.plan(LENGTHS, batch_size=8)
    for epoch in range(256):
        plan.skip(epoch, 2, 3)
    with pytest.raises(rankstore.StateError, match="skip: states have room for 256 ranges of steps, and for 6144 bytes"):
        plan.skip(0, 9, 9)
    assert plan.steps_of(0) == 17
    rankstore.plan(LENGTHS, batch_size=8).resume(plan.state(3, 5))


def test_ranks_skip_the_same(tmp_path: Path, ranks: Any) -> None:
    rankstore.build([{"ids": list(range(1 + n % 9))} for n in range(64)], tmp_path / "d", length="ids").close()
    done = ranks(2, """
import sys
import rankstore
from rankstore.errors import ArgumentError

with rankstore.open(sys.argv[1]) as ds:
    rank = ds.group.rank
    for chosen in (ds, ds.select(range(60))):
        try:
            chosen.plan(batch_size=4, skip=[(0, 1, 2 + rank)])
        except ArgumentError as refused:
            print(refused)
    plan = ds.plan(batch_size=4)
    try:
        plan.skip(0, rank, 2)
    except ArgumentError as refused:
        print(refused)
    plan.skip(0, 2, 3)
    print([batch.step for batch in ds.loader(plan)])
""", str(tmp_path / "d"))
    for one in done:
        lines = one.stdout.splitlines()
        assert "differ: rank 0 has skip 1 ranges of steps (" in lines[0], lines
        assert "skip" in lines[1] and "rank 1 has" in lines[1], lines
        assert lines[2:] == ["skip differs: rank 0 has (0, 0, 2), rank 1 has (0, 1, 2); give all ranks the same",
                             "[0, 1, 4, 5, 6, 7]"], lines
