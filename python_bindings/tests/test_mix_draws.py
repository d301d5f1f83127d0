# SPDX-License-Identifier: Apache-2.0
"""Mixes over any sources, weights, strategies, worlds and interruptions: every draw is accounted for."""
from __future__ import annotations

import os
from collections import Counter
from typing import Any

import numpy
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import rankstore
from rankstore.errors import ArgumentError, DataError

EXAMPLES = int(os.environ.get("RANKSTORE_MIX_EXAMPLES", "40"))  # a sweep by hand takes some thousands
STRATEGIES: list[dict[str, Any]] = [
    {"strategy": "random", "batch_size": 4}, {"strategy": "random", "max_tokens": 96, "length_multiple": 1},
    {"strategy": "bucket", "max_tokens": 96}, {"strategy": "sorted", "batch_size": 3}, {"strategy": "sequential", "batch_size": 4},
    {"strategy": "pack", "capacity": 64}, {"strategy": "pack", "capacity": 64, "batch_size": 2, "mixed": True}]


@st.composite
def mixes(draw: st.DrawFn) -> dict[str, Any]:
    sizes = draw(st.lists(st.integers(0, 60), min_size=1, max_size=5))
    sizes[draw(st.integers(0, len(sizes) - 1))] = draw(st.integers(20, 80))  # else there is hardly anything to plan
    weights = [0.0 if size == 0 else draw(st.one_of(st.just(0.0), st.floats(0.01, 100.0))) for size in sizes]
    if not any(weights):
        weights[sizes.index(max(sizes))] = 1.0
    count = sum(sizes)
    lengths = numpy.array(draw(st.lists(st.integers(1, 32), min_size=count, max_size=count)))
    sources = numpy.repeat(numpy.arange(len(sizes)), sizes)
    if draw(st.booleans()):  # sources need not lie together
        sources = numpy.random.default_rng(draw(st.integers(0, 99))).permutation(sources)
    mix = {str(i): weight for i, weight in enumerate(weights) if (sources == i).any()}
    return {"lengths": lengths, "sources": sources, "mix": mix, "seed": draw(st.integers(0, 2**63)),
            "samples": draw(st.integers(40, 600)), "options": draw(st.sampled_from(STRATEGIES))}


def plan_of(case: dict[str, Any], world: int) -> rankstore.Plan:
    """A plan that there is. (DataError: what is left cannot be dealt out evenly.)"""
    return rankstore.plan(case["lengths"], sources=case["sources"], mix=case["mix"], samples=case["samples"], seed=case["seed"],
                          world=world, **case["options"])


def steps_of(plan: rankstore.Plan, epoch: int) -> list[list[list[int]]]:
    return [plan.samples(epoch, step) for step in range(plan.steps_of(epoch))]


def drawn(steps: list[list[list[int]]]) -> Counter[int]:
    return Counter(one for step in steps for batch in step for one in batch)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=mixes(), world=st.integers(1, 4), epoch=st.integers(0, 3))
def test_every_draw_is_accounted_for(case: dict[str, Any], world: int, epoch: int) -> None:
    plan = plan_of(case, world)
    steps = steps_of(plan, epoch)
    assert all(len(step) == world and all(step) for step in steps)  # equal steps, no empty batch
    times, report = drawn(steps), plan.report(epoch)
    total = sum(case["mix"].values())
    assert times.total() == report["samples"] == case["samples"]
    for name, weight in case["mix"].items():
        own = numpy.flatnonzero(case["sources"] == int(name)).tolist()
        each = [times[one] for one in own]
        assert abs(sum(each) - case["samples"] * weight / total) < 1 + 1e-6  # exact to one draw
        assert max(each) - min(each) <= 1 and min(each) == sum(each) // len(own)
        told = report["sources"][name]
        assert told["draws"] == sum(each) and told["distinct"] == sum(1 for count in each if count)
        assert told["repeats"] == sum(each) - told["distinct"] and told["samples"] == len(own)
        assert told["tokens"] == sum(times[one] * int(case["lengths"][one]) for one in own)
    assert plan.report(epoch)["digest"] == plan_of(case, world).report(epoch)["digest"]


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(case=mixes(), worlds=st.lists(st.integers(1, 4), min_size=2, max_size=3), where=st.floats(0, 1), epoch=st.integers(0, 2))
def test_an_interrupted_run_draws_what_the_whole_one_draws(case: dict[str, Any], worlds: list[int], where: float, epoch: int) -> None:
    """Bit for bit on as many ranks; each draw once on other ones, also if the job stops twice."""
    plan = plan_of(case, worlds[0])
    whole = steps_of(plan, epoch)
    stop = int(where * len(whole))
    state = plan.state(epoch, stop)
    same = plan_of(case, worlds[0])
    at = same.resume(state)
    assert at == ((epoch, stop) if stop < len(whole) else at)
    if stop < len(whole):
        assert [same.samples(epoch, step) for step in range(stop, len(whole))] == whole[stop:]
    assert steps_of(same, epoch + 1) == steps_of(plan, epoch + 1)
    seen = drawn(whole[:stop])
    for world in worlds[1:]:
        after = plan_of(case, world)
        try:
            number, step = after.resume(state)
        except DataError:  # fewer draws are left than ranks
            assert case["samples"] - seen.total() < world * 8
            return
        if number != epoch:
            break
        rest = steps_of(after, epoch)[step:]
        half = len(rest) // 2
        state = after.state(epoch, step + half)
        seen += drawn(rest[:half])
        last = rest[half:]
    else:
        seen += drawn(last)
    assert seen == drawn(whole)


def test_ratios_hold_in_windows_of_100_steps() -> None:
    sizes = [50000, 3000, 400]
    lengths = numpy.random.default_rng(0).integers(1, 200, sum(sizes))
    sources = numpy.repeat(["web", "code", "math"], sizes)
    mix = {"web": 0.7, "code": 0.2, "math": 0.1}
    for options, most in (({"strategy": "random", "batch_size": 8}, 0.01), ({"strategy": "bucket", "max_tokens": 4096}, 0.02),
                          ({"strategy": "pack", "capacity": 2048}, 0.02)):
        report = rankstore.plan(lengths, sources=sources, mix=mix, samples=60000, world=2, **options).report(1)
        assert [report["sources"][name]["draws"] for name in mix] == [42000, 12000, 6000]
        assert report["deviation"] <= most, (options, report["deviation"])


def test_ratios_hold_in_windows_beside_rare_sources() -> None:
    """100 sources of one draw in 10,000, at two draws a step."""
    sizes = [400] * 101
    plan = rankstore.plan([9] * sum(sizes), "random", batch_size=2, sources=numpy.repeat(numpy.arange(101), sizes), samples=60000,
                          mix={str(i): 0.99 if i == 0 else 0.0001 for i in range(101)})
    assert plan.report(1)["deviation"] <= 0.01


def test_the_last_steps_are_even_too() -> None:
    """They are where steps of all kinds run short."""
    draws = numpy.random.default_rng(1).lognormal(5, .8, 40000)
    plan = rankstore.plan(draws.clip(8, 2000).astype(int), "pack", capacity=2048, seed=3, sources=numpy.repeat(numpy.arange(16), 2500),
                          samples=60000, mix={str(i): 1 / (i + 1) for i in range(16)})
    assert plan.report(1)["deviation"] <= 0.02


@pytest.mark.parametrize("mix, message", [
    ({"web": -1.0}, r'mix: "web" has the weight -1; weights are finite numbers from 0'),
    ({"web": float("nan")}, r'mix: "web" has the weight nan; weights are finite numbers from 0'),
    ({"web": float("inf")}, r'mix: "web" has the weight inf; weights are finite numbers from 0'),
    ({"web": 0.0, "code": 0.0}, r"mix: all weights are 0; one must be above"),
    ({"web": 1.0, "cod": 1.0}, r"mix: there is no 'cod'; did you mean 'code'\? the sources are code, web"),
    ({"wiki": 1.0}, r"mix: there is no 'wiki'; the sources are code, web"),
    ({}, r"mix: it is empty; name a source, as \{'code': 1.0\}"),
    ({"web": 1.0, "code": 1e-30}, r'mix: the weight 1e-30 of "code" is too small beside 1; give it 0, or at least 3.55271e-15')])
def test_what_no_mix_is(mix: dict[str, float], message: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{message}$"):
        rankstore.plan([5] * 20, sources=["web"] * 10 + ["code"] * 10, mix=mix)


def test_a_source_with_one_sample_and_one_without(tmp_path: Any) -> None:
    for name, count in (("many", 40), ("one", 1), ("none", 0)):
        rankstore.build([{"text": "x" * (1 + i % 7)} for i in range(max(count, 1))], tmp_path / name, length="text",
                        schema='{"text": "str"}', filter=(lambda sample: False) if count == 0 else None).close()
    with rankstore.open([tmp_path / name for name in ("many", "one", "none")]) as ds:
        plan = ds.plan("random", batch_size=4, mix={"many": 1, "one": 1}, samples=80)
        seen = Counter(i for batch in ds.loader(plan) for i in batch.ids.tolist())
        assert seen[40] == 40 and all(seen[i] == 1 for i in range(40)) and seen.total() == 80
        sources = Counter(int(one) for batch in ds.loader(plan) for one in batch.source)
        assert sources == {0: 40, 1: 40}
        with pytest.raises(ArgumentError, match='"none" has the weight 1 and no samples to draw; give it 0, or leave it out'):
            ds.plan(mix={"many": 1, "none": 1})
        assert ds.plan(mix={"many": 1, "none": 0}).report()["sources"]["none"]["draws"] == 0


def test_a_selection_with_repeats_has_them_in_its_plan(tmp_path: Any) -> None:
    rankstore.build([{"id": i, "text": "x" * (1 + i % 7)} for i in range(30)], tmp_path / "store", length="text").close()
    with rankstore.open(tmp_path / "store") as ds:
        some = ds.select([7, 2, 2, 9, 7, 2, *range(10, 20)])
        plan = some.plan("random", batch_size=2)
        seen = [i for batch in some.loader(plan) for i in batch.ids.tolist()]
        assert sorted(seen) == some.sorted_ids.tolist() and Counter(seen)[2] == 3
        assert plan.hash == ds.select(sorted(some.ids)).plan("random", batch_size=2).hash
        loader = some.loader(plan)
        first = [next(iterator).ids.tolist() for iterator in [iter(loader)] for _ in range(3)]
        again = some.loader(some.plan("random", batch_size=2), start=loader.state_dict())
        assert sorted(sum(first, []) + [i for batch in again for i in batch.ids.tolist()]) == some.sorted_ids.tolist()
