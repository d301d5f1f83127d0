# SPDX-License-Identifier: Apache-2.0
"""The extension's Plan over lengths: batches, reports, states."""
from __future__ import annotations

import itertools
import json
import math
import threading

import numpy as np
import pytest

from rankstore import _core, errors

COUNT = 3000


@pytest.fixture(scope="module")
def lengths() -> np.ndarray:
    return np.random.default_rng(3).integers(1, 300, COUNT).astype(np.uint32)


@pytest.fixture
def plan(lengths: np.ndarray) -> _core.Plan:
    return _core.Plan(lengths, max_tokens=2000, world=3, seed=5)


def test_every_sample_comes_once_and_within_the_budget(lengths: np.ndarray, plan: _core.Plan) -> None:
    assert plan.world == 3
    for epoch in range(2):
        seen = []
        for step in range(plan.steps(epoch)):
            for rank in range(3):
                batch = plan.batch(epoch, step, rank)
                assert batch and int(lengths[batch].max()) * len(batch) <= 2000
                seen += batch
        assert sorted(seen) == list(range(COUNT))
    assert plan.batch(0, 0, 0) != plan.batch(1, 0, 0)


@pytest.mark.parametrize("rank", [-1, 0, 2])
@pytest.mark.parametrize("part", [(0, None), (0, 0), (3, 9), (5, None)])
def test_batches_are_batch_after_batch(plan: _core.Plan, rank: int, part: tuple[int, int | None]) -> None:
    first, last = part
    indptr, ids = plan.batches(4, rank, first, last)
    offsets, samples = np.frombuffer(indptr, np.int64), np.frombuffer(ids, np.uint32)
    steps = range(first, plan.steps(4) if last is None else last)
    ranks = range(3) if rank == -1 else [rank]
    expected = [plan.batch(4, step, r) for step in steps for r in ranks]
    assert [samples[a:b].tolist() for a, b in zip(offsets, offsets[1:])] == expected
    assert offsets[0] == 0 and offsets[-1] == len(samples) and len(offsets) == len(expected) + 1


def test_out_of_range(plan: _core.Plan) -> None:
    steps = plan.steps()
    for call in (lambda: plan.batch(0, steps, 0), lambda: plan.batch(0, 0, 3), lambda: plan.batch(-1, 0, 0),
                 lambda: plan.batches(0, 3), lambda: plan.batches(0, -2), lambda: plan.batches(0, 0, 0, steps + 1),
                 lambda: plan.batches(0, 0, 5, 4), lambda: plan.state(0, steps + 1)):
        with pytest.raises(ValueError):
            call()


def test_sources(lengths: np.ndarray) -> None:
    expected = _core.Plan(lengths, batch_size=7).batches(1, 0)
    mine = lengths.copy()
    plan = _core.Plan(mine, batch_size=7)
    mine[:] = 1  # the plan has its own
    assert plan.batches(1, 0) == expected
    assert _core.Plan(lengths.tobytes(), batch_size=7).batches(1, 0) == expected
    for wrong in (lengths.astype(np.int64), lengths.reshape(2, -1), b"123", [1, 2, 3], None):
        with pytest.raises(TypeError):
            _core.Plan(wrong, batch_size=7)  # type: ignore[arg-type]
    with pytest.raises(errors.DataError):
        _core.Plan(np.array([5], np.uint32), world=2)


@pytest.mark.parametrize("options, name", [
    ({"strategy": "shortest"}, "strategy"), ({"cost": "free"}, "cost"), ({"tail": "cut"}, "tail"),
    ({"too_long": "hide"}, "too_long"), ({"steps": "many"}, "steps"), ({"batch_multiple": 0}, "batch_multiple"),
    ({"seed": -1}, "seed"), ({"seed": 2**64}, "seed"), ({"batch_size": 2**32}, "batch_size"), ({"dataset": "x"}, "dataset"),
])
def test_wrong_options_are_named(lengths: np.ndarray, options: dict[str, object], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        _core.Plan(lengths, **options)  # type: ignore[arg-type]


def test_too_long(lengths: np.ndarray) -> None:
    with pytest.raises(errors.DataError, match="sample"):
        _core.Plan(lengths, max_length=100)
    report = _core.Plan(lengths, max_length=100, too_long="drop").report()
    assert report["dropped"] == int((lengths > 100).sum())


def test_report(lengths: np.ndarray, plan: _core.Plan) -> None:
    report = plan.report(2)
    assert report["samples"] == COUNT and report["steps"] == plan.steps(2) and report["batches"] == 3 * plan.steps(2)
    assert report["tokens"] == int(lengths.sum()) <= report["padded_tokens"] and report["largest_batch"] <= 2000
    assert report["efficiency"] == pytest.approx(report["tokens"] / report["padded_tokens"])
    assert len(report["digest"]) == 32 and report["digest"] != plan.report(3)["digest"]


def test_the_report_tells_the_largest_batch_and_the_spread(lengths: np.ndarray) -> None:
    for strategy, options in itertools.product(("bucket", "sorted", "random", "sequential"),
                                               ({"max_tokens": 2000}, {"batch_size": 7}, {"batch_size": 1})):
        plan = _core.Plan(lengths, strategy=strategy, world=3, seed=5, tail="repeat", **options)
        padded = []
        for step in range(plan.steps(1)):
            batches = [np.frombuffer(plan.batches(1, rank, step, step + 1)[1], np.uint32) for rank in range(3)]
            padded.append([int(lengths[ids].max()) * len(ids) for ids in batches])
        table, report = np.array(padded), plan.report(1)
        everything = np.sort(table.ravel())
        step, rank = np.unravel_index(table.argmax(), table.shape)  # the first of equal ones
        found = {key: report[key] for key in report if "batch_" in key or "_batch" in key or "largest" in key}
        assert found == {
            "largest_batch": table.max(), "largest_batch_rank": rank, "largest_batch_step": step,
            "smallest_batch": table.min(), "median_batch": everything[math.ceil(len(everything) / 2) - 1],
            "p95_batch": everything[math.ceil(len(everything) * 19 / 20) - 1],
            "least_largest_of_ranks": table.max(axis=0).min(), "least_largest_of_steps": table.max(axis=1).min()}


def test_a_state_is_taken_over(lengths: np.ndarray, plan: _core.Plan) -> None:
    state = plan.state(2, 7)
    assert json.loads(state)["epoch"] == 2
    same = _core.Plan(lengths, max_tokens=2000, world=3, seed=5)
    assert same.resume(state) == (2, 7) and same.batches(2, -1, 7) == plan.batches(2, -1, 7)
    other = _core.Plan(lengths, max_tokens=2000, world=2, seed=5)
    assert other.resume(state) == (2, 0)
    done = np.frombuffer(plan.batches(2, -1, 0, 7)[1], np.uint32)
    rest = np.frombuffer(other.batches(2, -1)[1], np.uint32)
    assert sorted([*done, *rest]) == list(range(COUNT))
    with pytest.raises(errors.StateError, match="seed"):
        _core.Plan(lengths, max_tokens=2000, world=3, seed=6).resume(state)
    with pytest.raises(errors.RankStoreError):
        plan.resume("{}")


def test_close(plan: _core.Plan) -> None:
    plan.close()
    plan.close()
    for call in (plan.steps, plan.report, lambda: plan.batch(0, 0, 0), lambda: plan.batches(0, 0), lambda: plan.state(0, 0)):
        with pytest.raises(errors.StateError, match="closed"):
            call()


def test_threads_ask_for_different_epochs_at_once(plan: _core.Plan) -> None:
    expected = [plan.batches(epoch, -1) for epoch in range(4)]
    wrong: list[object] = []

    def ask(epoch: int) -> None:
        try:
            for _ in range(20):
                if plan.batches(epoch, -1) != expected[epoch]:
                    wrong.append(epoch)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask, args=(epoch,), daemon=True) for epoch in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert not wrong and not any(thread.is_alive() for thread in threads)
