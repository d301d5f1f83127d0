# SPDX-License-Identifier: Apache-2.0
"""Pickles and copies of plans, layouts and loaders: in this process, in a fork, and in a new one."""
from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

import rankstore
from rankstore import Lists, Nested, Pack, Pad

COUNT = 157
COPIES: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]


def drawn(sample: dict[str, Any], rng: numpy.random.Generator) -> dict[str, Any]:
    return {**sample, "drawn": int(rng.integers(2**60))}


def texts(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {"text": [one["text"] for one in samples], "drawn": [one.get("drawn") for one in samples]}


@pytest.mark.parametrize("made_of", COPIES)
@pytest.mark.parametrize("options", [
    {"strategy": "bucket", "max_tokens": 300, "seed": 3}, {"strategy": "pack", "capacity": 128, "micro_batches": 2},
    {"strategy": "random", "batch_size": 8, "shuffle": False}, {"batch_size": 8, "world": 4, "rank": 2, "tail": "drop"},
    {"strategy": "sorted", "batch_size": 8, "cost": (3.0, 0.5), "max_length": 20, "too_long": "truncate"}])
def test_a_copy_of_a_plan_has_the_same_batches(ds: rankstore.Dataset, options: dict[str, Any], made_of: Callable[[Any], Any]) -> None:
    for whole in (ds, ds.select(numpy.arange(COUNT) % 2 == 0)):
        plan = whole.plan(**options)
        other = made_of(plan)
        assert other is not plan and (other.hash, other.steps, other.world, other.rank) == (plan.hash, plan.steps, plan.world, plan.rank)
        assert other.options == plan.options and other.rule == plan.rule
        for epoch in (0, 5):
            found, again = plan.core.batches(epoch, -1)[1:], other.core.batches(epoch, -1)[1:]
            assert [list(batch) for batch in found] == [list(batch) for batch in again]
            assert plan.step_tokens(epoch, 1) == other.step_tokens(epoch, 1)
            assert other.resume(plan.state(1, 0)) == (1, 0)
            again = made_of(other)
            assert again.resume(other.state(1, 2)) == (1, 2) and again.hash == plan.hash


@pytest.mark.parametrize("made_of", COPIES)
def test_a_copy_of_a_plan_over_lengths_and_of_a_resumed_one(ds: rankstore.Dataset, made_of: Callable[[Any], Any]) -> None:
    alone = rankstore.plan([5, 3, 8, 1, 9, 4] * 10, "bucket", batch_size=4, world=2, rank=1)
    assert [list(one) for one in made_of(alone).sampler()] == [list(one) for one in alone.sampler()]
    state = ds.plan(batch_size=4, world=3, rank=0).state(2, 5)
    plan = ds.plan(batch_size=4)
    plan.resume(state)  # the rest of an epoch of three ranks, by one
    other = made_of(plan)
    assert other.steps_of(2) == plan.steps_of(2) != plan.steps
    assert [other.core.batch(2, step, 0) for step in range(5, 9)] == [plan.core.batch(2, step, 0) for step in range(5, 9)]


@pytest.mark.parametrize("made_of", COPIES)
@pytest.mark.parametrize("layout",
                         [Pad(labels_pad=-1, lengths=["labels"]), Pack("flash", pad_to=8), Nested(), Lists(dtype={"labels": "int16"})])
def test_a_copy_of_a_layout_is_equal(layout: rankstore.Layout, made_of: Callable[[Any], Any]) -> None:
    other = made_of(layout)
    assert type(other) is type(layout) and vars(other) == vars(layout) and repr(other) == repr(layout)


@pytest.mark.parametrize("made_of", COPIES)
@pytest.mark.parametrize("options", [{"collate": Pad(), "columns": ["text", "score"]}, {"collate": texts, "map": drawn, "threads": 2}])
def test_a_copy_of_a_loader_goes_on_where_it_is(ds: rankstore.Dataset, options: dict[str, Any], made_of: Callable[[Any], Any]) -> None:
    loader = ds.loader(ds.plan(batch_size=8, seed=3), **options)
    fresh = made_of(loader)
    whole = [batch["text"] for batch in loader]
    assert [batch["text"] for batch in fresh] == whole
    seen = made_of(loader)  # of a whole epoch: the next one
    second = [batch["text"] for batch in loader]
    assert [batch["text"] for batch in seen] == second != whole
    loader.set_epoch(4)
    for batch in loader:
        if batch.step == 2:
            break
    other = made_of(loader)
    assert other.state_dict() == loader.state_dict() and other.epoch == 4
    rest = [batch for batch in other]
    again = [batch for batch in ds.loader(ds.plan(batch_size=8, seed=3), start=loader.state_dict(), **options)]
    assert [one.step for one in rest] == list(range(3, 20))
    assert [dict(one) for one in map(plain, rest)] == [dict(one) for one in map(plain, again)]
    assert [one.global_tokens for one in rest] == [one.global_tokens for one in again]


def plain(batch: rankstore.Batch) -> dict[str, Any]:
    return {name: value.tolist() if hasattr(value, "tolist") else value for name, value in batch.items()}


@pytest.mark.parametrize("made_of", COPIES)
def test_a_copy_of_a_sampler_goes_on_where_it_is(ds: rankstore.Dataset, made_of: Callable[[Any], Any]) -> None:
    sampler = ds.plan(batch_size=8, seed=3).sampler()
    whole = [list(batch) for batch in made_of(sampler)]
    assert [list(batch) for batch in sampler] == whole and len(whole) == 20
    second = [list(batch) for batch in made_of(sampler)]  # of one that has seen its epoch
    batches = iter(sampler)
    assert [list(next(batches)) for _ in range(4)] == second[:4] != whole[:4]
    assert [list(batch) for batch in made_of(sampler)] == second[4:]


@pytest.mark.parametrize("made_of", COPIES)
def test_a_copy_of_a_loaders_sampler_drives_no_loader(ds: rankstore.Dataset, made_of: Callable[[Any], Any]) -> None:
    loader = ds.loader(ds.plan(batch_size=8, seed=3), collate=Lists())
    other = made_of(loader.sampler)
    other.set_epoch(4)
    assert loader.epoch == 0 and [list(batch) for batch in other] == [batch.ids.tolist() for batch in of_epoch(loader, 4)]
    loader.sampler.set_epoch(5)
    assert loader.epoch == 5 and other.state_dict()["plan"] != loader.sampler.state_dict()["plan"]


def of_epoch(loader: Any, epoch: int) -> Any:
    loader = copy.copy(loader)
    loader.set_epoch(epoch)
    return loader


SCRIPT = """
import os, pickle, sys
sys.path.insert(0, os.environ["TESTS"])
import test_copies
if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        loader = pickle.load(file)
    for batch in loader:
        print(batch.step, batch["text"], batch["drawn"], batch.global_tokens, batch.lengths.tolist(), batch.sample_keys[0])
"""


def test_a_loader_in_a_new_process_and_in_a_fork(ds: rankstore.Dataset, tmp_path: Path) -> None:
    import test_copies  # type: ignore[import-not-found]
    loader = ds.loader(ds.plan(batch_size=8, seed=3), collate=test_copies.texts, map=test_copies.drawn)
    for batch in loader:
        if batch.step == 14:
            break
    wanted = [f"{one.step} {one['text']} {one['drawn']} {one.global_tokens} {one.lengths.tolist()} {one.sample_keys[0]!r}"
              for one in copy.copy(loader)]
    (tmp_path / "loader").write_bytes(pickle.dumps(loader))
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path / "loader")], capture_output=True, text=True, timeout=400,
                          env={**os.environ, "TESTS": str(Path(__file__).parent)})
    assert done.returncode == 0 and done.stdout.splitlines() == wanted and len(wanted) == 5, done.stdout + done.stderr
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            mine = pickle.loads((tmp_path / "loader").read_bytes())
            code = 0 if [one["text"] for one in mine] == [eval(line.split(" ", 1)[1].split("]")[0] + "]") for line in wanted] else 2
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def test_what_cannot_be_pickled_says_so(ds: rankstore.Dataset) -> None:
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(ds.loader(ds.plan(batch_size=8), collate=lambda samples: samples))
