# SPDX-License-Identifier: Apache-2.0
"""A user's own functions in a loader: collate of a list of samples, map of one with its random numbers, and the bar."""
from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import made
import numpy
import pytest
import torch

import rankstore
from rankstore import Pad
from rankstore._distributed.progress import StepBar

COUNT = 157


def tokens(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {"ids": [sample["input_ids"].tolist() for sample in samples], "text": [sample["text"] for sample in samples]}


# ---- collate ---------------------------------------------------------------------------------------------------------

def test_a_function_gets_samples_as_the_dataset_gives_them(ds: rankstore.Dataset) -> None:
    seen: list[int] = []
    batches = list(ds.loader(ds.plan(batch_size=8, seed=5), collate=lambda samples: list(samples), threads=3))
    for batch in batches:
        assert isinstance(batch, list)
        for sample in batch:
            i = int(sample["text"].split()[1])
            assert made.same(sample, i) and sample["note"] == ds[i]["note"] and type(sample["blob"]) is bytes
            assert sample["input_ids"].flags.writeable and sample["input_ids"].dtype == numpy.uint16
            seen.append(i)
    assert sorted(seen) == list(range(COUNT)) and len(batches) == len(ds.plan(batch_size=8, seed=5).sampler())


def test_a_dict_becomes_a_batch_of_the_plan(ds: rankstore.Dataset) -> None:
    plan = ds.plan(batch_size=8, seed=5)
    wanted = [batch.ids.tolist() for batch in ds.loader(plan, collate=Pad())]
    for step, batch in enumerate(ds.loader(plan, collate=tokens, threads=4)):
        assert isinstance(batch, rankstore.Batch) and (batch.epoch, batch.step) == (0, step)
        assert batch.ids.tolist() == wanted[step] and batch.lengths.tolist() == [made.length_of(i) for i in wanted[step]]
        assert batch["text"] == [f"sample {i}" for i in wanted[step]]
        assert batch.global_tokens == batch.lengths.sum() and batch.sample_keys == [ds.keys[i] for i in wanted[step]]


def test_columns_and_names_and_torchs_own_collate(ds: rankstore.Dataset) -> None:
    from torch.utils.data import default_collate
    loader = ds.loader(ds.plan(batch_size=8), collate=default_collate, columns=["score"], rename={"score": "y"})
    for batch in loader:
        assert list(batch) == ["y"] and torch.equal(batch["y"], torch.tensor([i / 4 for i in batch.ids], dtype=batch["y"].dtype))


def test_two_columns_of_one_name_are_refused(ds: rankstore.Dataset) -> None:
    """One of them would be lost."""
    plan = ds.plan(batch_size=8)
    for how in ({"rename": {"score": "text"}}, {"rename": {"score": "y", "text": "y"}}, {"columns": ["score", "score"]}):
        twice = next(iter([*how.get("rename", {}).values(), "score"]))
        with pytest.raises(rankstore.ArgumentError) as raised:
            ds.loader(plan, collate=list, **how)
        assert str(raised.value) == (f'collate: two columns are named "{twice}"; give rename= other names, or columns= without one of '
                                     "them")
    swapped = next(iter(ds.loader(plan, collate=list, rename={"score": "text", "text": "score"})))
    assert str(swapped[0]["score"]).startswith("sample ") and isinstance(swapped[0]["text"], float)


def test_samples_are_cut_as_the_plan_says(ds: rankstore.Dataset) -> None:
    plan = ds.plan(batch_size=8, max_length=20, too_long="truncate")
    for batch in ds.loader(plan, collate=tokens):
        assert [len(ids) for ids in batch["ids"]] == [min(20, made.length_of(i)) for i in batch.ids.tolist()]
        assert batch.lengths.tolist() == [len(ids) for ids in batch["ids"]]


def test_slow_batches_come_in_order(ds: rankstore.Dataset) -> None:
    def slow(samples: list[dict[str, Any]]) -> dict[str, Any]:
        time.sleep(0.02 if len(samples[0]["text"]) % 2 else 0)
        return tokens(samples)

    assert [batch.step for batch in ds.loader(ds.plan(batch_size=8), collate=slow, threads=6)] == list(range(20))


def test_an_error_names_step_and_samples(ds: rankstore.Dataset) -> None:
    def fail(samples: list[dict[str, Any]]) -> None:
        if samples[0]["text"] == "sample 16":
            raise ValueError("no luck")

    loader, steps = ds.loader(ds.plan("sequential", batch_size=8), collate=fail, threads=3), []
    with pytest.raises(rankstore.CallbackError) as caught:
        for _ in loader:
            steps.append(loader.state_dict()["step"])
    keys = ", ".join(repr(ds.keys[i].decode()) for i in range(16, 19))
    assert str(caught.value) == f"rank 0: collate raised ValueError: no luck (epoch 0, step 2, samples {keys} and 5 more)"
    assert isinstance(caught.value.__cause__, ValueError) and steps == [1, 2]
    assert "in fail" in caught.value.traceback


@pytest.mark.parametrize(("bounds", "most"), [({"prefetch_batches": 1}, 1), ({"prefetch_batches": 2}, 2),
                                              ({"prefetch_bytes": 1}, 1), ({}, 5)])
def test_no_more_batches_are_made_ahead_than_the_bounds_allow(ds: rankstore.Dataset, bounds: dict[str, Any], most: int) -> None:
    begun, lock = [0], threading.Lock()

    def count(samples: list[dict[str, Any]]) -> None:
        with lock:
            begun[0] += 1

    for taken, _ in enumerate(ds.loader(ds.plan(batch_size=4), collate=count, threads=4, **bounds)):
        time.sleep(0.005)
        assert begun[0] - taken - 1 < most + (not bounds)


def test_an_interrupt_ends_the_loop_while_a_function_runs(ds: rankstore.Dataset) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hang(samples: list[dict[str, Any]]) -> None:
        begun.set()
        go_on.wait()

    def interrupt() -> None:
        begun.wait()
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    loader = ds.loader(ds.plan(batch_size=4), collate=hang, threads=2)
    with pytest.raises(KeyboardInterrupt):
        threading.Thread(target=interrupt).start()
        next(iter(loader))
    go_on.set()
    assert sum(1 for _ in ds.loader(ds.plan(batch_size=4), collate=tokens)) == 40


def test_leaving_early_ends_the_threads(ds: rankstore.Dataset) -> None:
    before = threading.active_count()
    for _batch in ds.loader(ds.plan(batch_size=8), collate=tokens, threads=3):
        break
    del _batch
    deadline = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_transform_comes_after_collate(ds: rankstore.Dataset) -> None:
    loader = ds.loader(ds.plan(batch_size=8), collate=tokens, transform=lambda batch: (batch.step, len(batch["ids"])))
    assert [step for step, _ in loader] == list(range(20))


@pytest.mark.parametrize(("options", "text"), [
    ({"collate": Pad}, "collate: Pad is the class; call it, collate=Pad()"),
    ({"collate": 3}, "collate: Pad(), Pack(), Nested(), Lists(), a function of a list of samples, or None, not 3"),
    ({"collate": tokens, "map": 3}, "map: a function of a sample, or of a sample and rng, not int"),
    ({"collate": tokens, "map": lambda a, b, c: a}, "map: it is map(sample) or map(sample, rng), not map(a, b, c)"),
    ({"collate": tokens, "map": lambda: 0}, "map: it is map(sample) or map(sample, rng), not map()"),
    ({"collate": tokens, "columns": ["txt"]}, "columns: there is no column 'txt'; did you mean 'text'? there are input_ids, labels, "
     "text, blob, score, note"),
    ({"collate": tokens, "progress": 1}, "progress: 1; it is True or False")])
def test_what_cannot_be_asked(ds: rankstore.Dataset, options: dict[str, Any], text: str) -> None:
    with pytest.raises(rankstore.ArgumentError) as refused:
        ds.loader(ds.plan(batch_size=8), **options)
    assert str(refused.value) == text


@pytest.mark.parametrize("option", ["transform", "collate", "map"])
def test_a_stop_iteration_does_not_end_the_epoch_in_silence(ds: rankstore.Dataset, option: str) -> None:
    def empty(*_: Any) -> Any:
        return next(iter([]))

    options: dict[str, Any] = {"collate": tokens, option: empty}
    with pytest.raises(rankstore.CallbackError, match=rf"{option} raised StopIteration:  \(epoch 0, step 0"):
        list(ds.loader(ds.plan(batch_size=8), **options))


def test_a_loop_that_the_end_of_the_process_ends_says_nothing(ds: rankstore.Dataset) -> None:
    script = f"""
import rankstore
ds = rankstore.open({ds.directory!r})
batches = iter(ds.loader(ds.plan(batch_size=8), collate=len, threads=2))
print(next(batches))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=400)
    assert (done.returncode, done.stdout, done.stderr) == (0, "8\n", "")


def test_where_a_function_does_not_belong(ds: rankstore.Dataset) -> None:
    with pytest.raises(rankstore.ArgumentError) as refused:
        ds.collating(len)  # type: ignore[arg-type]
    assert str(refused.value) == ("collating: Pad(), Pack(), Nested() or Lists(), not <built-in function len>; a function of a list of "
                                  "samples goes into ds.loader(plan, collate=function)")
    foreign: Any = torch.utils.data.DataLoader(ds.collating(Pad()), batch_sampler=ds.plan(batch_size=8).sampler(),  # type: ignore[arg-type]
                                               collate_fn=lambda samples: samples[0]["text"])
    with pytest.raises(rankstore.ArgumentError) as refused:
        next(iter(foreign))
    assert str(refused.value) == ("a batch's columns have names, and this asks for item 0; a DataLoader over a plan's sampler needs "
                                  "collate_fn=ds.collate, and a function of samples goes into ds.loader(plan, collate=function), or a "
                                  "DataLoader over ds, not ds.collating(...)")


# ---- map -------------------------------------------------------------------------------------------------------------

def drawn(sample: dict[str, Any], rng: numpy.random.Generator) -> dict[str, Any]:
    return {"text": sample["text"], "drawn": [*rng.integers(2**62, size=2).tolist(), float(rng.normal()), rng.random(dtype=numpy.float32)]}


def draws(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {sample["text"]: sample["drawn"] for sample in samples}


def epoch_of(loader: rankstore.Loader) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for batch in loader:
        found.update(batch)
    return found


def test_draws_depend_on_seed_epoch_and_sample_alone(ds: rankstore.Dataset) -> None:
    plan = ds.plan("bucket", max_tokens=300, seed=7)
    loader = ds.loader(plan, collate=draws, map=drawn)
    first, second = epoch_of(loader), epoch_of(loader)
    assert len(first) == COUNT and len({repr(one) for one in (*first.values(), *second.values())}) == 2 * COUNT
    ranks: dict[str, Any] = {}
    for rank in range(3):  # other batches, on other ranks, by other threads
        other = ds.plan("random", batch_size=5, seed=7, world=3, rank=rank)
        ranks.update(epoch_of(ds.loader(other, collate=draws, map=drawn, threads=3)))
    assert ranks == first
    assert epoch_of(ds.loader(ds.plan("bucket", max_tokens=300, seed=8), collate=draws, map=drawn)) != first
    again = ds.loader(plan, collate=draws, map=drawn)
    again.set_epoch(1)
    head: dict[str, Any] = {}
    for batch in again:
        head.update(batch)
        if batch.step == 3:
            break
    state = json.loads(json.dumps(again.state_dict()))
    rest = epoch_of(ds.loader(plan, collate=draws, map=drawn, start=state))
    assert {**head, **rest} == second and len(rest) < COUNT


def test_the_drawn_numbers_stay_the_same_over_versions(ds: rankstore.Dataset) -> None:
    """What a run drew is part of its result: key (seed, 0), counter (0, 0, epoch, sample id) of Philox."""
    bits = numpy.random.Philox(key=numpy.array([7, 0], numpy.uint64), counter=numpy.array([0, 0, 0, 11], numpy.uint64))
    wanted = drawn({"text": ""}, numpy.random.Generator(bits))["drawn"]
    assert epoch_of(ds.loader(ds.plan(batch_size=8, seed=7), collate=draws, map=drawn))["sample 11"] == wanted


def by_name(sample: dict[str, Any], strength: float = 0.5, *, rng: Any = None) -> Any:
    assert strength == 0.5 and isinstance(rng, numpy.random.Generator)
    return sample


def without(sample: dict[str, Any], strength: float = 0.5) -> Any:
    assert strength == 0.5
    return sample


@pytest.mark.parametrize("function", [by_name, without, dict, lambda sample, generator: {**sample, "g": generator.random()}])
def test_ways_to_write_a_map(ds: rankstore.Dataset, function: Callable[..., Any]) -> None:
    assert sum(len(batch["ids"]) for batch in ds.loader(ds.plan(batch_size=8), collate=tokens, map=function)) == COUNT


def test_an_error_of_a_map_names_its_sample(ds: rankstore.Dataset) -> None:
    def fail(sample: dict[str, Any]) -> dict[str, Any]:
        return sample if sample["text"] != "sample 20" else sample["nothing"]

    def forgets(sample: dict[str, Any]) -> None:
        sample["score"] = 0

    plan, key = ds.plan("sequential", batch_size=8), ds.keys[20].decode()
    with pytest.raises(rankstore.CallbackError) as caught:
        list(ds.loader(plan, collate=tokens, map=fail))
    assert str(caught.value) == f"rank 0: map raised KeyError: 'nothing' (epoch 0, step 2, sample {key!r})"
    with pytest.raises(rankstore.CallbackError) as caught:
        list(ds.loader(plan, collate=tokens, map=forgets))
    assert str(caught.value) == f"rank 0: map returned None; it must return the sample (epoch 0, step 0, sample {ds.keys[0].decode()!r})"


# ---- the bar ---------------------------------------------------------------------------------------------------------

class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_shows_steps_rates_and_waiting(ds: rankstore.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StepBar, "EVERY", 0.0)
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)  # a notebook's bar is drawn without a terminal
    for options in ({"collate": Pad()}, {"collate": tokens}, {"collate": len}):
        monkeypatch.setattr(sys, "stderr", shown := Terminal())
        loader = ds.loader(ds.plan(batch_size=8), progress=True, **options)  # type: ignore[arg-type]
        loader.set_epoch(3)
        for batch in loader:
            if batch is not None:
                time.sleep(0.01)
        text = shown.getvalue()
        assert "epoch 3" in text and "20/20" in text and "samples/s" in text and "tokens/s" in text and "waiting" in text
        monkeypatch.setattr(sys, "stderr", piped := io.StringIO())
        list(loader)
        assert piped.getvalue() == ""


def test_rates_are_of_the_time_since_the_last_ones() -> None:
    bar = StepBar(0, 0, 10, 4)
    bar._bar, bar._since = None, 10.0
    bar.step(500, 1_200_000, 10.0, 10.5)
    bar.step(500, 1_200_000, 11.0, 11.5)
    assert bar.text(2.0) == "500 samples/s, 1.2M tokens/s, waiting 50%, rank 0"


@pytest.mark.parametrize("why", ["no tqdm", "no stderr"])
def test_a_bar_that_cannot_be_drawn_is_left_out(ds: rankstore.Dataset, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    if why == "no tqdm":
        monkeypatch.setitem(sys.modules, "tqdm", None)
    else:
        monkeypatch.setattr(sys, "stderr", None)
    assert len(list(ds.loader(ds.plan(batch_size=8), collate=Pad(), progress=True))) == 20
