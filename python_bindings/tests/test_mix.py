# SPDX-License-Identifier: Apache-2.0
"""How many times each sample occurs in an epoch: `mix`, `samples` and `weights` of a plan."""
from __future__ import annotations

import collections
import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
from built import command

import rankstore
from rankstore.errors import ArgumentError, StateError

STRATEGIES: list[tuple[str, dict[str, Any]]] = [
    ("random", {"batch_size": 4}), ("bucket", {"max_tokens": 64}), ("sorted", {"batch_size": 4}), ("sequential", {}),
    ("pack", {"capacity": 64})]


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    made = []
    for name, count in (("web", 60), ("code", 20), ("math", 10)):
        source = tmp_path / f"{name}.jsonl"
        source.write_text("".join(json.dumps({"id": f"{name}{i}", "text": "x" * (1 + i % 9), "level": i % 2}) + "\n" for i in range(count)))
        rankstore.build(source, tmp_path / name, key="id", index=["level"], length="text").close()
        made.append(tmp_path / name)
    return made


def draws_of(plan: rankstore.Plan, epoch: int) -> collections.Counter[int]:
    return collections.Counter(plan.epoch(epoch).batches(-1)[1].tolist())


@pytest.mark.parametrize("strategy, options", STRATEGIES)
def test_sources_have_their_shares(three: list[Path], strategy: str, options: dict[str, Any]) -> None:
    with rankstore.open(three) as ds:
        plan = ds.plan(strategy, mix={"web": 0.5, "code": 0.3, "math": 0.2}, samples=200, world=2, **options)
        for epoch in (0, 1):
            seen = draws_of(plan, epoch)
            shares = [sum(seen[i] for i in range(*ends)) for ends in ((0, 60), (60, 80), (80, 90))]
            assert shares == [100, 60, 40]
            assert {seen[i] for i in range(60)} == {1, 2} and {seen[i] for i in range(60, 80)} == {3} and seen[85] == 4
        report = plan.report(0)
        assert report["samples"] == 200 and report["repeated"] == 110
        assert report["sources"]["code"] == {**report["sources"]["code"], "draws": 60, "distinct": 20, "repeats": 40, "samples": 20,
                                             "share": 0.3}
        assert report["deviation"] == max(one["deviation"] for one in report["sources"].values())
        assert "mix={'web': 0.5" in repr(plan)


def test_a_loader_delivers_the_draws_and_goes_on(three: list[Path]) -> None:
    with rankstore.open(three) as ds:
        plan = ds.plan("random", batch_size=4, mix={"math": 3, "web": 1}, seed=5)
        assert 236 < plan.report(0)["samples"] <= 240  # 60 of web, a quarter of all, rounded
        loader = ds.loader(plan, collate=rankstore.Lists(), out="numpy")
        first, state = [], {}
        for step, batch in enumerate(loader):
            first.append(batch.ids.tolist())
            if step == 20:
                state = loader.state_dict()
        assert len(first) == len(loader) == plan.steps_of(0)
        other = ds.plan("random", batch_size=4, mix={"math": 3, "web": 1}, seed=5)
        rest = [batch.ids.tolist() for batch in ds.loader(other, collate=rankstore.Lists(), out="numpy", start=state)]
        assert first[21:] == rest
        with pytest.raises(StateError, match="mix differs: it was saved with another one, and this plan has one; make the plan with"):
            ds.plan("random", batch_size=4, mix={"math": 3, "web": 2}, seed=5).resume(state)


def test_values_of_a_column_are_sources(three: list[Path]) -> None:
    with rankstore.open(three[0]) as ds:
        plan = ds.plan(mix={0: 1, 1: 3}, mix_by="level", samples=120)
        assert {name: one["draws"] for name, one in plan.report()["sources"].items()} == {"0": 30, "1": 90}
        with pytest.raises(ArgumentError, match='mix_by: "url" is not an index column; build it with'):
            ds.plan(mix={0: 1}, mix_by="url")
        with pytest.raises(ArgumentError, match="mix_by: names the column whose values are the sources of mix="):
            ds.plan(mix_by="level")


def test_samples_have_weights(three: list[Path]) -> None:
    with rankstore.open(three[2]) as ds:
        assert draws_of(ds.plan(weights=[0, 1, 2, 3, 0, 0, 0, 0, 0, 9]), 0) == {1: 1, 2: 2, 3: 3, 9: 9}
        odds = ds.plan(weights=numpy.array([0.5, 0.25] + [0.03125] * 8), samples=100)
        seen = draws_of(odds, 3)
        assert seen[0] == 50 and seen[1] == 25 and {seen[i] for i in range(2, 10)} <= {3, 4} and seen.total() == 100
        assert draws_of(ds.plan(samples=25), 0).total() == 25
        twice = ds.select([4, 4, 4, 1])
        assert draws_of(twice.plan(), 0) == {4: 3, 1: 1} and draws_of(twice.plan(weights=[1, 0, 1, 5]), 0) == {4: 2, 1: 5}
        batches = ds.select([4, 4, 4, 1]).loader(twice.plan(batch_size=4), collate=rankstore.Lists(), out="numpy")
        assert sorted(batch.ids.tolist() for batch in batches)[0].count(4) == 3


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"mix": {"wep": 1}}, "mix: there is no 'wep'; did you mean 'web'? the sources are web, code, math"),
    ({"mix": {"web": -1}}, 'mix: "web" has the weight -1; weights are finite numbers from 0'),
    ({"mix": {"web": float("nan")}}, 'mix: "web" has the weight nan; weights are finite numbers from 0'),
    ({"mix": {"web": 0}}, "mix: all weights are 0; one must be above"),
    ({"mix": {}}, "mix: it is empty; name a source, as {'web': 1.0}"),
    ({"mix": {"web": 1}, "samples": 0}, "samples: 0; it must be an int of at least 1, the draws of an epoch"),
    ({"mix": {"web": 1}, "mix_unit": "bytes"}, "mix_unit: 'bytes' is neither 'samples' nor 'tokens'"),
    ({"mix_unit": "tokens"}, "mix_unit: says what the weights of mix= count; give mix= too"),
    ({"mix": {"web": 1}, "weights": [1] * 90}, "mix and weights: give one of them; weights are of samples, a mix is of sources"),
    ({"weights": [1] * 3}, "weights: int64 of shape (3,); give a number for each of the 90 samples"),
    ({"weights": [0.5] * 90}, "weights: floats are probabilities, and need samples=, the draws of an epoch; integers are counts"),
    ({"weights": [1] * 90, "samples": 5}, "weights: integers are counts, whose sum is the epoch's draws; leave samples out, or give "
                                          "floats"),
]


@pytest.mark.parametrize("options, text", WRONG)
def test_what_is_wrong_is_said(three: list[Path], options: dict[str, Any], text: str) -> None:
    with rankstore.open(three) as ds:
        with pytest.raises(ArgumentError) as raised:
            ds.plan(**options)
        assert raised.value.text == text or str(raised.value).endswith(text)


def test_lengths_alone_have_sources() -> None:
    plan = rankstore.plan([5] * 100, batch_size=10, sources=["a"] * 90 + ["b"] * 10, mix={"a": 1, "b": 1})
    assert {name: one["draws"] for name, one in plan.report()["sources"].items()} == {"a": 90, "b": 89}  # b's 10 occur
    with pytest.raises(ArgumentError, match="sources: 3 names for 100 lengths; give one for each length"):
        rankstore.plan([5] * 100, sources=["a"] * 3)
    copy = pickle.loads(pickle.dumps(plan))
    assert copy.report() == plan.report() and copy.varies


def test_a_remix_holds_from_the_next_step_on(three: list[Path]) -> None:
    with rankstore.open(three) as ds:
        def made() -> rankstore.Plan:
            return ds.plan("random", batch_size=5, mix={"web": 1, "code": 1}, samples=200)
        plan = made()
        loader = ds.loader(plan, collate=rankstore.Lists(), out="numpy")
        seen, states = [], []
        for step, batch in enumerate(loader):
            seen.append(batch.ids.tolist())
            if step == 9:
                loader.remix({"math": 1})
            states.append(loader.state_dict())
        assert len(seen) == 40 and [min(ids) >= 80 for ids in seen] == [step > 9 for step in range(40)]
        assert collections.Counter(sum(seen[10:], [])) == {i: 15 for i in range(80, 90)}
        assert seen[:10] == [made().core.batch(0, step, 0) for step in range(10)]
        for stop in (3, 9, 25):
            other = made()
            rest = [batch.ids.tolist() for batch in ds.loader(other, collate=rankstore.Lists(), out="numpy", start=states[stop])]
            if stop < 9:  # before the change was made
                other.remix({"math": 1}, at=(0, 10))
                rest = [other.core.batch(0, step, 0) for step in range(stop + 1, other.steps_of(0))]
            assert rest == seen[stop + 1:]
        assert other.report(1)["sources"]["math"]["draws"] == 200  # later epochs too
        sampler = made().sampler()
        batches = iter(sampler)
        next(batches)
        sampler.plan.remix({"math": 1}, at=(0, 1))
        assert all(min(ids) >= 80 for ids in batches)
        with pytest.raises(ArgumentError, match="remix: there is no 'maths'; did you mean 'math'"):
            plan.remix({"maths": 1}, at=(0, 0))
        with pytest.raises(StateError, match="remix: the plan has no sources; make it with mix="):
            ds.plan().remix({"math": 1}, at=(0, 0))
        with pytest.raises(StateError, match="changes differ: it has not the plan's change at step 10 of epoch 0; make that change after"):
            plan.resume(made().state(0, 3))
        with pytest.raises(StateError, match="states have room for 64 changes"):
            for step in range(65):
                plan.remix({"math": 1, "web": 1}, at=(1 + step, 0))


def test_a_remix_behind_the_end_of_its_epoch_is_refused(three: list[Path]) -> None:
    with rankstore.open(three) as ds:
        plan = ds.plan("random", batch_size=5, mix={"web": 1, "math": 1}, samples=100)
        digest = plan.hash
        with pytest.raises(ArgumentError, match="change at step 21 of epoch 3: it has 20 steps; for the epochs after it, give epoch 4, "
                                                "step 0"):
            plan.remix({"math": 1}, at=(3, 21))
        assert plan.hash == digest
        with pytest.raises(ArgumentError, match="change at step 21 of epoch 0: it has 20 steps"):
            ds.plan("random", batch_size=5, mix={"web": 1, "math": 1}, samples=100, curriculum=[((0, 21), {"math": 1}, None)])
        loader = ds.loader(plan, collate=rankstore.Lists(), out="numpy")
        assert len(list(loader)) == 20
        loader.remix({"math": 1})  # after the last step: of the next epoch
        assert plan.report(0)["sources"]["web"]["draws"] == 50 and plan.report(1)["sources"]["math"]["draws"] == 100


def of_sources(count: int, **options: Any) -> rankstore.Plan:
    return rankstore.plan([7] * (4 * count), "random", batch_size=8, sources=numpy.arange(4 * count) % count, samples=8 * count, **options)


def test_a_number_and_its_text_are_one_source() -> None:
    for mix in ({1: 1.0, "1": 3.0}, {"1": 1, 1: 1}):
        with pytest.raises(ArgumentError, match="^mix: '1' has two weights, as a number and as a text; give one$"):
            of_sources(3, mix=mix)
        with pytest.raises(ArgumentError, match="^curriculum: '1' has two weights"):
            of_sources(3, mix={1: 1}, curriculum=[(2, mix, None)])
        with pytest.raises(ArgumentError, match="^remix: '1' has two weights"):
            of_sources(3, mix={1: 1}).remix(mix, at=(0, 2))
    assert draws_of(of_sources(3, mix={1: 1, "2": 1}), 0) == draws_of(of_sources(3, mix={"1": 1, 2: 1}), 0)


@pytest.mark.parametrize("large", [1.7e308, sys.float_info.max, 10**308])
def test_all_finite_weights_are_weights(large: float) -> None:
    plan = of_sources(4, mix={0: large, 1: large, 2: large / 2})
    assert {name: one["draws"] for name, one in plan.report()["sources"].items()} == {"0": 13, "1": 13, "2": 6, "3": 0}
    assert draws_of(plan, 0) == draws_of(of_sources(4, mix={0: 2, 1: 2, 2: 1}), 0)
    odds = [large, large / 2, large, large]
    draws = draws_of(rankstore.plan([5] * 4, weights=numpy.array(odds, float), samples=14), 0)
    assert draws == {0: 4, 1: 2, 2: 4, 3: 4}
    with pytest.raises(ArgumentError, match='mix: "1" has the weight inf; weights are finite numbers from 0'):
        of_sources(4, mix={1: 10**309})


def test_the_limit_of_changes_and_sources_says_what_to_do() -> None:
    plan = of_sources(1000, mix={name: 1 + name % 7 for name in range(1000)})
    with pytest.raises(StateError, match=r"states have room for 64 changes and 6144 bytes; 1 of 1000 sources take \d+; give sources that "
                                         "change alike one name, or make a new plan for the next epoch"):
        plan.remix({name: 1 + name % 5 for name in range(1000)}, at=(0, 3))
    plan = of_sources(100, mix={name: 1 + name % 7 for name in range(100)})
    with pytest.raises(StateError, match=r"; \d of 100 sources take \d+; change less often, or make a new plan for the next epoch"):
        for step in range(20):
            plan.remix({name: 1 + name % 5 for name in range(100)}, at=(0, step))
    with pytest.raises(ArgumentError, match="sources: 65536 different values; a mix has at most 65535 sources; give rare ones one name"):
        rankstore.plan([7] * 65536, sources=numpy.arange(65536), mix={0: 1})


def test_a_stage_too_far_away_is_refused() -> None:
    with pytest.raises(ArgumentError, match="change after 1000000000 steps: about .* name the epoch and its step"):
        rankstore.plan(list(range(1, 101)), max_tokens=200, samples=100, mix={"a": 1}, sources=["a"] * 100,
                       curriculum=[(10**9, {"a": 1}, None)])


def test_a_stage_far_away_is_counted() -> None:
    """In a process of its own, which a walk over 10^8 epochs would keep for hours."""
    done = subprocess.run([sys.executable, "-c", """
import json, pickle
import rankstore
def made():
    return rankstore.plan([5] * 40, "random", batch_size=8, sources=["a", "b"] * 20, mix={"a": 1, "b": 1}, samples=40,
                          curriculum=[(2, {"a": 1}, None), (10**9 + 3, {"b": 1}, None)])
plan = made()
there = json.loads(plan.core.state(0, 0))["changes"]
assert [change[:2] for change in there] == [[0, 2], [200_000_000, 3]], there
before, after = plan.samples(200_000_000, 2), plan.samples(200_000_000, 3)
assert all(i % 2 == 0 for ids in before for i in ids) and all(i % 2 == 1 for ids in after for i in ids)
copied = pickle.loads(pickle.dumps(plan))
assert copied.hash == plan.hash and copied.samples(200_000_000, 3) == after
for one in (plan, copied):
    one.remix({"a": 1}, at=(200_000_000, 3))
copied = pickle.loads(pickle.dumps(copied))
assert plan.samples(200_000_000, 3) == copied.samples(200_000_000, 3) != after
"""], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_curriculum_changes_what_is_drawn(three: list[Path]) -> None:
    with rankstore.open(three) as ds:
        stages = [(0, None, 3), (4, {"code": 1}, None), ((1, 2), {"web": 1, "math": 1}, None)]
        plan = ds.plan("random", batch_size=10, samples=120, curriculum=stages)
        seen = [[plan.core.batch(epoch, step, 0) for step in range(plan.steps_of(epoch))] for epoch in (0, 1, 2)]
        assert all(ds.all_lengths[ids].max() <= 3 for ids in seen[0][:4])
        assert all(60 <= i < 80 for ids in seen[0][4:] + seen[1][:2] for i in ids)
        assert all(not 60 <= i < 80 for ids in seen[1][2:] + seen[2] for i in ids)
        assert [sum(map(len, epoch)) for epoch in seen] == [120, 120, 120]
        other = ds.plan("random", batch_size=10, samples=120, curriculum=stages)
        assert other.resume(plan.state(1, 5)) == (1, 5) and other.report(1) == plan.report(1)
        assert pickle.loads(pickle.dumps(rankstore.plan([5] * 50, samples=40, curriculum=[(0, None, None)]))).report(3)
        plan = ds.plan("random", batch_size=10, samples=120, curriculum=[(0, None, 3), (8, None, None)])
        plan.remix({"web": 1}, at=(0, 2))  # long samples still wait
        seen = [plan.core.batch(0, step, 0) for step in range(plan.steps_of(0))]
        assert all(max(ids) < 60 and ds.all_lengths[ids].max() <= 3 for ids in seen[2:8])
        assert max(ds.all_lengths[sum(seen[8:], [])]) == 9
        for wrong, text in (((0, None), "a stage is"), ((0, None, 0), "max_length 0; it must be at least 1, or None"),
                            ((0, {"mats": 1}, None), "curriculum: there is no 'mats'; did you mean 'math'")):
            with pytest.raises(ArgumentError, match=text):
                ds.plan(curriculum=[wrong])  # type: ignore[list-item]


def test_stages_that_are_counted_from_the_beginning_go_on_on_other_ranks() -> None:
    """The place that a stage has in the state holds, though this world's epochs have other numbers of steps."""
    def made(world: int) -> rankstore.Plan:
        return rankstore.plan([1 + i % 9 for i in range(400)], "random", batch_size=5, world=world, sources=["a", "b"] * 200,
                              curriculum=[(0, {"a": 1}, 4), (30, None, None), (70, {"b": 1}, None)])

    one, two = made(2), made(4)
    assert (one.steps_of(0), two.steps_of(0)) == (40, 20)  # 70 is step 30 of epoch 1 there, step 10 of epoch 3 here
    assert two.resume(one.state(0, 10)) == (0, 0)
    left = two.samples(0, 0)
    assert two.steps_of(0) == 15 and all(i % 2 == 0 for ids in left for i in ids)
    changes = [json.loads(plan.core.state(*at))["changes"] for plan, at in ((one, (0, 10)), (two, (0, 0)))]
    assert changes[0] == changes[1] and [change[:3] for change in changes[0]] == [[0, 0, 4], [0, 30, 2**32 - 1], [1, 30, 2**32 - 1]]
    back = made(2)
    assert back.resume(two.state(1, 0)) == (1, 0) and back.samples(1, 5) == one.samples(1, 5)
    other = rankstore.plan([1 + i % 9 for i in range(400)], "random", batch_size=5, world=4, sources=["a", "b"] * 200,
                           curriculum=[(0, {"a": 1}, 4), (30, None, None), (70, {"a": 1}, None)])
    with pytest.raises(StateError, match="changes differ: it has not the plan's change at step 10 of epoch 3"):
        other.resume(one.state(0, 10))


def test_the_command_goes_on_from_a_state_with_changes(three: list[Path], tmp_path: Path) -> None:
    with rankstore.open(three) as ds:
        plan = ds.plan("random", batch_size=8, mix={"web": 1, "code": 1}, samples=160)
        plan.remix({"code": 1}, at=(0, 12))
        (tmp_path / "state").write_text(json.dumps(plan.state(0, 5)))
    asked = ["plan", *three, "--mix", "web=1,code=1", "--samples", 160, "--strategy", "random", "--batch-size", 8, "--step", 15, "--json"]
    resumed = command(*asked, "--state", tmp_path / "state")
    assert resumed == command(*asked, "--remix", "0:12:code=1") == command(*asked, "--remix", "0:12:code=1", "--state", tmp_path / "state")
    assert all(json.loads(line)["key"].startswith("code") for line in resumed.splitlines())
    command(*asked, "--remix", "0:12:web=1", "--state", tmp_path / "state", code=3)


def test_a_copy_knows_which_stages_keep_the_weights_before_them(three: list[Path]) -> None:
    with rankstore.open(three) as ds:
        stages = [(0, None, 3), (4, {"code": 1, "web": 1}, None), (8, None, 7), ((1, 2), None, None)]

        def made() -> rankstore.Plan:
            return ds.plan("random", batch_size=10, samples=120, curriculum=stages)

        for first in ({"web": 1}, None):
            plan, copied = made(), pickle.loads(pickle.dumps(made()))
            if first is not None:  # in the place of a stage: that one is gone in the copy, too
                for one in (plan, copied):
                    one.remix(first, at=(0, 8))
                copied = pickle.loads(pickle.dumps(copied))
            for one in (plan, copied, copy.copy(copied)):
                one.remix({"math": 1, "web": 3}, at=(0, 6))
                assert one.hash == plan.hash and one.report(0) == plan.report(0) and one.report(1) == plan.report(1)


def test_a_copy_has_the_steps_of_the_changed_plan() -> None:
    plan = rankstore.plan([1] * 50 + [60] * 50, "bucket", max_tokens=128, sources=["a"] * 50 + ["b"] * 50, mix={"a": 1, "b": 1})
    before = plan.steps
    plan.remix({"b": 1}, at=(0, 1))
    assert before < plan.steps == pickle.loads(pickle.dumps(plan)).steps == plan.steps_of(0)


def test_ranks_make_the_same_changes(three: list[Path], ranks: Any) -> None:
    done = ranks(2, """
import sys
import rankstore
from rankstore.errors import ArgumentError

with rankstore.open(sys.argv[1:]) as ds:
    is_first = ds.group.rank == 0
    other = [(3, {"code": 1} if is_first else {"web": 1}, None)]
    for chosen in (ds, ds.select(range(70))):
        for stages in (other, [(3, {"web": 1}, 5 if is_first else None)], other if is_first else None,
                       [(3, {"wb" if is_first else "web": 1}, None)]):
            try:
                chosen.plan("random", batch_size=5, mix={"web": 1, "code": 1}, samples=100, curriculum=stages)
                print("-")
            except ArgumentError as refused:
                print(refused)
    plan = ds.plan("random", batch_size=5, mix={"web": 1, "code": 1}, samples=100)
    for mix in ({"cod" if is_first else "code": 1}, {"code" if is_first else "web": 1}):
        try:
            plan.remix(mix, at=(0, 2))
            print("-")
        except ArgumentError as refused:
            print(refused)
""", *map(str, three))
    told = [one.stdout.splitlines() for one in done]
    assert [len(lines) for lines in told] == [10, 10]
    for first, second in zip(*told):
        assert "differ" in first and first.split("rank 0 has")[1] == second.split("rank 0 has")[1] or \
            "did you mean" in first and first.split(": there")[1] == second.split(": there")[1], (first, second)
