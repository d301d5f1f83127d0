# SPDX-License-Identifier: Apache-2.0
"""A dataset that grows while a job trains on it: ds.refresh(), and states that pass to a later generation."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from built import launched

import rankstore

COUNT, MORE = 120, 30


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"i": i, "x": [i] * (1 + i % 5)} for i in range(first, first + count)]


def grow(directory: Path, first: int = COUNT, count: int = MORE) -> None:
    with rankstore.init("solo") as group:
        rankstore.build(rows(first, count), directory, append=True, group=group).close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    rankstore.build(rows(0, COUNT), tmp_path / "d").close()
    return tmp_path / "d"


def seen(batches: Any) -> list[int]:
    return sorted(int(i) for batch in batches for i in batch["i"])


def test_a_loader_goes_on_with_what_was_added(directory: Path) -> None:
    with rankstore.open(directory) as ds:
        plan = ds.plan(batch_size=8, seed=5)
        loader, other = ds.loader(plan, out="numpy"), ds.loader(plan, out="numpy")
        first = ds.id
        assert not ds.refresh() and ds.id == first
        kept = next(iter(other))
        view, sample, ids, lengths = ds.view(7), ds[7], kept["i"].tolist(), ds.lengths
        for epoch in range(3):
            loader.set_epoch(epoch)
            assert seen(loader) == list(range(COUNT + MORE * epoch))
            grow(directory, COUNT + MORE * epoch)
            assert ds.refresh()
            assert len(ds) == COUNT + MORE * (epoch + 1)
            assert ds.sources[0].samples == len(ds)
        assert ds.id != first and ds.generations[-1]["id"] == ds.id
        assert loader.plan is plan and plan.steps == -(-len(ds) // 8)
        assert seen(loader) == list(range(len(ds)))  # without set_epoch, the next one
        # what was held stays valid
        assert view["x"].tolist() == [7] * 3 and sample["x"].tolist() == [7] * 3 and kept["i"].tolist() == ids and len(lengths) == COUNT
        assert ds[COUNT + 3 * MORE - 1]["i"] == COUNT + 3 * MORE - 1


def test_a_plan_after_a_refresh_is_that_of_an_opening(directory: Path) -> None:
    options: dict[str, Any] = {"max_tokens": 64, "seed": 3}
    with rankstore.open(directory) as ds:
        plan = ds.plan("bucket", **options)
        grow(directory)
        ds.refresh()
        with rankstore.open(directory) as again:
            assert plan.hash == again.plan("bucket", **options).hash
            assert plan.report(2)["digest"] == again.plan("bucket", **options).report(2)["digest"]


def state_after(ds: Any, epoch: int, steps: int | None) -> dict[str, Any]:
    loader = ds.loader(ds.plan("random", batch_size=8, seed=5), out="numpy")
    loader.set_epoch(epoch)
    for number, _ in enumerate(loader, 1):
        if number == steps:
            break
    state: dict[str, Any] = loader.state_dict()
    return state


@pytest.mark.parametrize("pruned", [False, True])
def test_a_state_at_the_end_of_an_epoch_passes_to_a_later_generation(directory: Path, pruned: bool) -> None:
    with rankstore.open(directory) as ds:
        over, within = state_after(ds, 2, None), state_after(ds, 2, 5)
    grow(directory)
    grow(directory, COUNT + MORE)
    if pruned:
        rankstore.prune(directory, keep=1)
    with rankstore.open(directory) as ds:
        loader = ds.loader(ds.plan("random", batch_size=8, seed=5), out="numpy")
        loader.load_state_dict(over)
        assert (loader.epoch, seen(loader)) == (3, list(range(COUNT + 2 * MORE)))
        with pytest.raises(rankstore.StateError, match="the state is of generation 1: open DIR@1"):
            loader.load_state_dict(within)
        sampler = ds.plan("random", batch_size=8, seed=5).sampler()
        sampler.load_state_dict(over)
        assert sorted(i for batch in sampler for i in batch) == list(range(COUNT + 2 * MORE))
    if pruned:
        return
    with rankstore.open(f"{directory}@1") as ds:  # ends the epoch, then goes on with what was added
        loader = ds.loader(ds.plan("random", batch_size=8, seed=5), out="numpy")
        loader.load_state_dict(within)
        with pytest.raises(rankstore.StateError, match="a state at step 5 of epoch 2 is loaded"):
            ds.refresh()
        assert len(ds) == COUNT
        assert len(seen(loader)) == COUNT - 5 * 8
        assert ds.refresh() and (loader.epoch, seen(loader)) == (3, list(range(COUNT + 2 * MORE)))


@pytest.mark.parametrize("pruned", [False, True])
@pytest.mark.parametrize("mix", [None, {"d": 2, "e": 1}])
def test_a_state_of_several_datasets_passes_to_later_generations(directory: Path, tmp_path: Path, pruned: bool,
                                                                 mix: dict[str, float] | None) -> None:
    """Each of them grows on its own."""
    several = [directory, tmp_path / "e", tmp_path / "f"]
    rankstore.build(rows(5000, 40), several[1]).close()
    rankstore.build(rows(9000, 20), several[2]).close()
    grow(directory)
    options: dict[str, Any] = {"batch_size": 8, "seed": 5, "mix": mix, "samples": None if mix is None else 90}

    def left(epoch: int, steps: int | None) -> dict[str, Any]:
        with rankstore.open(several) as ds:
            loader = ds.loader(ds.plan("random", **options), out="numpy")
            loader.set_epoch(epoch)
            if steps != 0:
                for number, _ in enumerate(loader, 1):
                    if number == steps:
                        break
            return loader.state_dict()  # type: ignore[no-any-return]

    states = []
    for first, other in ((COUNT + MORE, 5040), (COUNT + 2 * MORE, 5070)):
        states.append((left(2, None), left(2, 5), left(3, 0)))
        grow(directory, first)
        grow(several[1], other)
    if pruned:
        for one in several:
            rankstore.prune(one, keep=1)
    with rankstore.open(several) as ds:
        assert len(ds) == COUNT + 3 * MORE + 40 + 2 * MORE + 20
        for number, (over, within, begun) in enumerate(states, 1):
            for state in (over, begun):
                loader = ds.loader(ds.plan("random", **options), out="numpy")
                loader.load_state_dict(state)
                assert loader.epoch == 3
                found = seen(loader)
                assert len(found) == 90 if mix else found == sorted(sample["i"] for sample in ds)
            with pytest.raises(rankstore.StateError, match=f"the state is of earlier generations: open d@{number + 1}, e@{number}; it is"):
                loader.load_state_dict(within)
    with rankstore.open([several[1], several[0], several[2]]) as ds:  # another order is another dataset
        loader = ds.loader(ds.plan("random", **options), out="numpy")
        with pytest.raises(rankstore.StateError, match="dataset differs"):
            loader.load_state_dict(states[0][0])


def test_another_dataset_s_state_is_refused(directory: Path, tmp_path: Path) -> None:
    rankstore.build(rows(1000, 40), tmp_path / "other").close()
    with rankstore.open(tmp_path / "other") as ds:
        over = state_after(ds, 0, None)
    grow(directory)
    with rankstore.open(directory) as ds, pytest.raises(rankstore.StateError, match="dataset differs"):
        ds.loader(ds.plan("random", batch_size=8, seed=5), out="numpy").load_state_dict(over)


def test_a_loop_in_the_middle_of_an_epoch_ends(directory: Path) -> None:
    with rankstore.open(directory) as ds:
        loader = ds.loader(ds.plan(batch_size=8), out="numpy")
        batches = iter(loader)
        next(batches)
        sampled = iter(ds.plan(batch_size=8).sampler())
        next(sampled)
        grow(directory)
        assert ds.refresh()
        for ended in (batches, sampled):
            with pytest.raises(rankstore.StateError, match=r"ds.refresh\(\) went on with a later generation"):
                next(ended)
        assert seen(loader) == list(range(COUNT + MORE))


def test_parts_of_a_split_grow_and_selections_stay(directory: Path) -> None:
    with rankstore.open(directory) as ds:
        train, val = ds.split({"train": 0.8, "val": 0.2}, seed=1)
        some = ds.select([5, 2, 2])
        loader = train.loader(train.plan("random", batch_size=8), out="numpy")
        chosen = some.loader(some.plan(batch_size=2), out="numpy")
        before = [set(part.ids.tolist()) for part in (train, val)]
        assert seen(loader) == sorted(before[0])
        over = loader.state_dict()
        grow(directory)
        assert val.refresh()  # of any of them
        after = [set(part.ids.tolist()) for part in (train, val)]
        assert all(one < more for one, more in zip(before, after, strict=True))
        assert len(after[0]) + len(after[1]) == COUNT + MORE
        assert seen(loader) == sorted(after[0])
        assert seen(chosen) == [2, 2, 5] and [sample["i"] for sample in some] == [5, 2, 2]
    with rankstore.open(directory) as ds:
        train, _ = ds.split({"train": 0.8, "val": 0.2}, seed=1)
        loader = train.loader(train.plan("random", batch_size=8), out="numpy")
        loader.load_state_dict(over)
        assert (loader.epoch, seen(loader)) == (1, sorted(after[0]))


def test_maps_and_mixes_go_on(directory: Path, tmp_path: Path) -> None:
    rankstore.build(rows(5000, 40), tmp_path / "e").close()
    with rankstore.open([directory, tmp_path / "e"]) as ds:
        mapped = ds.map(lambda sample: {"i": sample["i"] + 1})
        plan = ds.plan("random", batch_size=8, mix={"d": 1, "e": 1}, samples=200)
        plan.remix({"d": 3, "e": 1}, at=(0, 4))
        loader = mapped.loader(plan, out="numpy")
        assert len(seen(loader)) == 200
        grow(directory)  # the second source's ids move
        assert ds.refresh() and [source.samples for source in ds.sources] == [COUNT + MORE, 40]
        assert [sample["i"] for sample in mapped] == [i + 1 for i in [*range(COUNT + MORE), *range(5000, 5040)]]
        found = seen(loader)
        assert len(found) == 200
        assert abs(sum(i <= COUNT + MORE for i in found) - 150) <= 1  # the remix holds


def test_selections_of_several_datasets_stay(directory: Path, tmp_path: Path) -> None:
    """Ids of the second one move when the first one grows."""
    rankstore.build(rows(5000, 40), tmp_path / "e").close()
    with rankstore.open([directory, tmp_path / "e"]) as ds:
        some = ds.select([3, COUNT + 7, COUNT - 1, COUNT, 3, COUNT + 39])
        wanted = [sample["i"] for sample in some]
        assert wanted == [3, 5007, COUNT - 1, 5000, 3, 5039]
        loader = some.loader(some.plan(batch_size=2), out="numpy")
        grow(directory)
        grow(tmp_path / "e", 5040)
        assert ds.refresh() and [sample["i"] for sample in some] == wanted and seen(loader) == sorted(wanted)


def test_skipped_steps_are_kept(directory: Path) -> None:
    with rankstore.open(directory) as ds:
        plan = ds.plan("random", batch_size=10)
        plan.skip(3, 0, 1)
        loader = ds.loader(plan, out="numpy")
        grow(directory)
        assert ds.refresh()
        for epoch, samples in ((2, COUNT + MORE), (3, COUNT + MORE - 20)):
            loader.set_epoch(epoch)
            assert len(seen(loader)) == samples


def test_a_refresh_that_fails_changes_nothing(directory: Path) -> None:
    with rankstore.open(directory) as ds:
        weights = numpy.ones(COUNT, numpy.int64)
        loader = ds.loader(ds.plan("random", batch_size=8), out="numpy")
        weighted = ds.plan("random", batch_size=8, weights=weights)
        grow(directory)
        first = ds.id
        with pytest.raises(rankstore.ArgumentError, match="weights: 120 numbers, and the dataset has 150 .*a function of the dataset"):
            ds.refresh()
        assert (ds.id, len(ds)) == (first, COUNT) and seen(loader) == list(range(COUNT))
        del weighted
        assert ds.refresh() and seen(loader) == list(range(COUNT + MORE))


@pytest.mark.parametrize("several", [False, True])
def test_numbers_of_samples_may_come_from_a_function(directory: Path, tmp_path: Path, several: bool) -> None:
    rankstore.build(rows(5000, 40), tmp_path / "e").close()

    def twice(ds: rankstore.Dataset) -> Any:
        return numpy.array([1 + sample["i"] % 2 for sample in ds])

    def costs(ds: rankstore.Dataset) -> list[float]:
        return [1.0 + sample["i"] % 7 for sample in ds]

    with rankstore.open([directory, tmp_path / "e"] if several else directory) as ds:
        some = ds.select(list(range(0, len(ds), 3)))
        plans = [ds.plan("random", batch_size=8, weights=twice, balance=costs), some.plan("random", batch_size=8, weights=twice)]
        loaders = [one.loader(plan, out="numpy") for one, plan in zip((ds, some), plans, strict=True)]
        for loader, of in zip(loaders, (ds, some), strict=True):
            assert len(seen(loader)) == sum(twice(of))
        assert plans[0].hash == ds.plan("random", batch_size=8, weights=twice(ds), balance=costs(ds)).hash
        grow(directory)
        assert ds.refresh()
        assert len(seen(loaders[1])) == sum(twice(some)) < len(ds)
        assert len(seen(loaders[0])) == sum(twice(ds)) == (COUNT + MORE + 40 * several) * 3 // 2
        assert plans[0].hash == ds.plan("random", batch_size=8, weights=twice(ds), balance=costs(ds)).hash
        balanced = ds.plan("random", batch_size=8, balance=costs(ds))
        grow(directory, COUNT + MORE)
        with pytest.raises(rankstore.ArgumentError, match=r"balance: \d+ numbers, and the dataset has .* a function of the dataset"):
            ds.refresh()
        del balanced
        assert ds.refresh()


def test_what_did_not_grow_out_of_it_is_refused(directory: Path) -> None:
    with rankstore.open(directory) as ds:
        rankstore.build(rows(1000, 40), directory, replace=True).close()
        with pytest.raises(rankstore.StateError, match="did not grow out of dataset"):
            ds.refresh()
        grow(directory, 2000)
        with pytest.raises(rankstore.StateError, match="did not grow out of dataset"):
            ds.refresh()
        assert [sample["i"] for sample in ds] == list(range(COUNT))


def test_missing_shards_are_as_in_open(directory: Path, capfd: pytest.CaptureFixture[str]) -> None:
    newest = set(directory.glob("part-*"))
    with rankstore.open(directory) as strict, rankstore.open(directory, missing="partial") as ds:
        grow(directory)
        for path in set(directory.glob("part-*")) - newest:
            path.unlink()
        with pytest.raises(rankstore.NotFoundError, match="1 of 2 shards are on no rank's disk"):
            strict.refresh()
        assert len(strict) == COUNT and strict[0]["i"] == 0
        loader = ds.loader(ds.plan(batch_size=8), out="numpy")
        assert ds.refresh() and len(ds) == COUNT + MORE
        assert "1 of 2 shards missing: 30 of 150 samples left out" in capfd.readouterr().err
        assert seen(loader) == list(range(COUNT))


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("several", [False, True])
def test_workers_follow(directory: Path, tmp_path: Path, start: str, several: bool) -> None:
    torch = pytest.importorskip("torch")
    rankstore.build(rows(5000, 40), tmp_path / "e").close()
    rest = list(range(5000, 5040)) if several else []
    with rankstore.open([directory, tmp_path / "e"] if several else directory) as ds:
        planned = torch.utils.data.DataLoader(ds, batch_sampler=ds.plan(batch_size=8).sampler(), collate_fn=ds.collate, num_workers=2,
                                              multiprocessing_context=start, persistent_workers=True)
        padded = ds.collating(rankstore.Pad())
        plain = torch.utils.data.DataLoader(padded, batch_size=8, collate_fn=padded.collate, shuffle=True, num_workers=1,
                                            multiprocessing_context=start, persistent_workers=True)
        assert seen(planned) == seen(plain) == list(range(COUNT)) + rest
        for turn in (1, 2):
            grow(directory, COUNT + MORE * (turn - 1))
            assert ds.refresh()
            if turn == 2:
                rankstore.prune(directory, keep=1)
            assert seen(planned) == list(range(COUNT + MORE * turn)) + rest
            assert set(seen(plain)) <= set(seen(planned))  # DataLoader's own sampler keeps its number of samples


def test_on_ranks(tmp_path: Path) -> None:
    """Each rank has a directory of its own; one rank's plan is garbage on another."""
    lines = launched(3, """
def rows(first, count):
    return [{"i": i, "x": [i] * (1 + i % 5)} for i in range(first, first + count)]

def main(group):
    name = OUT + "/r{rank}"
    with build(rows(0, 120), name, group=group, unit_samples=10) as ds:
        loader = ds.loader(ds.plan("random", batch_size=4), out="numpy")
        forgotten = ds.plan("random", batch_size=5)
        if group.rank == 1:
            del forgotten
        for epoch in range(3):
            loader.set_epoch(epoch)
            mine = [int(i) for batch in loader for i in batch["i"]]
            every = sorted(i for one in group.allgather("seen", json.dumps(mine).encode()) for i in json.loads(one))
            assert every == list(range(120 + 30 * epoch)), every
            build(rows(120 + 30 * epoch, 30), name, group=group, unit_samples=10, append=True).close()
            assert ds.refresh()
        os.write(1, f"{len(ds)} {ds.plan('random', batch_size=4).hash == loader.plan.hash}\\n".encode())
""".replace("main(group):", "main(group):\n    import json", 1), tmp_path)
    assert lines == ["210 True"] * 3


def plain(ds: Any, workers: int, start: str, **options: Any) -> Any:
    torch = pytest.importorskip("torch")
    how = {"num_workers": workers, "multiprocessing_context": start if workers else None}
    return torch.utils.data.DataLoader(ds, batch_size=8, **how, **options)


def as_lists(batch: Any) -> Any:
    batch = batch[0] if isinstance(batch, list) else batch
    return {name: value.tolist() for name, value in batch.items()}


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("own", [True, False])
def test_a_worker_stacks_as_its_parent_does(directory: Path, start: str, own: bool) -> None:
    """torch's own samplers: values of one size are stacked, those of varying size padded."""
    with rankstore.open(directory) as ds:
        equal = ds.select([i for i in range(COUNT) if i % 5 == 3])
        for one in (ds, equal, ds.select([])):
            options = {"collate_fn": one.collate} if own else {}
            wanted, found = list(plain(one, 0, start, **options)), list(plain(one, 1, start, **options))
            assert [type(batch) for batch in wanted] == [type(batch) for batch in found]
            assert [as_lists(batch) for batch in wanted] == [as_lists(batch) for batch in found]
        assert isinstance(next(iter(plain(equal, 1, start, collate_fn=ds.collate))), dict)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_persistent_worker_pads_what_is_longer_after_a_refresh(tmp_path: Path, start: str) -> None:
    rankstore.build([{"x": [i] * 4} for i in range(32)], tmp_path / "d").close()
    with rankstore.open(tmp_path / "d") as ds:
        loader = plain(ds, 1, start, collate_fn=ds.collate, persistent_workers=True)
        assert {tuple(batch["x"].shape) for batch in loader} == {(8, 4)}
        with rankstore.init("solo") as group:
            rankstore.build([{"x": [i] * 6} for i in range(8)], tmp_path / "d", append=True, group=group).close()
        ds.refresh()
        assert [tuple(batch["x"].shape) for batch in loader] == [(8, 4)] * 4 + [(8, 6)]
