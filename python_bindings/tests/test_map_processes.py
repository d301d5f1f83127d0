# SPDX-License-Identifier: Apache-2.0
"""Processes that call a loader's map: they end with the iteration, however that ends, and what fails in them is named here."""
from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch

import rankstore
from rankstore import Lists, Pad

COUNT = 157
Sample = dict[str, Any]


def children() -> set[int]:
    return {process.pid or 0 for process in multiprocessing.active_children()}


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ended(pids: set[int]) -> bool:
    until = time.monotonic() + 60
    while any(map(is_there, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(is_there, pids))


def who(sample: Sample) -> Sample:
    return {"pid": os.getpid(), "text": sample["text"]}


def test_samples_are_mapped_in_other_processes_and_come_in_order(ds: rankstore.Dataset) -> None:
    def slow(sample: Sample) -> Sample:
        time.sleep(0.002 if len(sample["text"]) % 2 else 0)
        return who(sample)

    loader = ds.loader(ds.plan(batch_size=4), collate=Pad(), map=slow, processes=3)
    pids: set[int] = set()
    for step, batch in enumerate(loader):
        pids.update(batch["pid"].tolist())
        assert batch.step == step and batch["text"] == [f"sample {i}" for i in batch.ids]
        assert len(children()) == 3
    assert len(pids) == 3 and os.getpid() not in pids and not children() and ended(pids)
    assert {pid for batch in loader for pid in batch["pid"].tolist()}.isdisjoint(pids)  # the next epoch has its own


def test_large_values_and_tensors_come_as_they_are(ds: rankstore.Dataset) -> None:
    def large(sample: Sample, rng: numpy.random.Generator) -> Sample:
        return {"a": rng.random((300, 200)), "b": torch.from_numpy(rng.random(70000)), "c": torch.ones(3, dtype=torch.bfloat16),
                "d": bytes(sample["blob"]), "e": numpy.asfortranarray(rng.random((4, 5))), "f": torch.zeros(0), "g": torch.ones(2, 2).T}

    plan = ds.plan(batch_size=4)
    for here, there in zip(ds.loader(plan, collate=list, map=large), ds.loader(plan, collate=list, map=large, processes=2), strict=True):
        for one, other in zip(here, there, strict=True):
            assert list(one) == list(other) and all(type(one[name]) is type(other[name]) for name in one)
            assert all(torch.equal(one[name], other[name]) and one[name].dtype == other[name].dtype for name in "bcfg")
            assert numpy.array_equal(one["a"], other["a"]) and numpy.array_equal(one["e"], other["e"]) and one["d"] == other["d"]
            other["a"][0] = 1  # writable, as here
            other["b"].add_(1)


class Odd(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


def test_an_exception_names_the_sample_and_leaves_no_process(ds: rankstore.Dataset) -> None:
    def fails(sample: Sample) -> Sample:
        if sample["text"] == "sample 20":
            raise KeyError("nothing")
        return who(sample)

    def oddly(sample: Sample) -> Sample:
        raise Odd(1, 2)

    plan, keys = ds.plan("sequential", batch_size=8), [key.decode() for key in ds.keys]
    loader, steps = ds.loader(plan, collate=Pad(), map=fails, processes=2), []
    with pytest.raises(rankstore.CallbackError) as caught:
        for batch in loader:
            steps.append(batch.step)
    assert str(caught.value) == f"rank 0: map raised KeyError: 'nothing' (epoch 0, step 2, sample {keys[20]!r})" and steps == [0, 1]
    assert "in fails" in caught.value.traceback and isinstance(caught.value.__cause__, KeyError) and not children()
    with pytest.raises(rankstore.CallbackError) as caught:  # what cannot be unpickled
        list(ds.loader(plan, map=oddly, processes=2))
    assert str(caught.value) == f"rank 0: map raised Odd: 1 and 2 (epoch 0, step 0, sample {keys[0]!r})" and caught.value.__cause__ is None
    assert "in oddly" in caught.value.traceback and not children()
    with pytest.raises(rankstore.CallbackError) as caught:
        list(ds.loader(plan, collate=list, map=lambda sample: {"f": lambda: 0} if sample["text"] == "sample 3" else sample, processes=2))
    assert "map returned what cannot be pickled (" in str(caught.value) and "as processes= needs; use threads=" in str(caught.value)
    assert str(caught.value).endswith(f"(epoch 0, step 0, sample {keys[3]!r})") and not children()


def test_a_process_that_dies_is_an_error(ds: rankstore.Dataset) -> None:
    def dies(sample: Sample) -> Sample:
        if sample["text"] == "sample 20":
            os.kill(os.getpid(), signal.SIGKILL)
        return who(sample)

    with pytest.raises(rankstore.CallbackError) as caught:
        list(ds.loader(ds.plan("sequential", batch_size=2), collate=Pad(), map=dies, processes=2))
    keys = ", ".join(repr(ds.keys[i].decode()) for i in (20, 21))
    assert f"ended with exit code -9 (epoch 0, step 10, samples {keys})" in str(caught.value) and not children()


def test_a_process_that_dies_ends_also_those_that_wait_for_one(ds: rankstore.Dataset) -> None:
    def dies(sample: Sample) -> Sample:
        if sample["text"] == "sample 5":
            time.sleep(1)  # other threads wait for the only process meanwhile
            os.kill(os.getpid(), signal.SIGKILL)
        return who(sample)

    with pytest.raises(rankstore.CallbackError, match="ended with exit code -9"):
        list(ds.loader(ds.plan("sequential", batch_size=1), collate=Pad(), map=dies, threads=3, processes=1))
    assert not children()


def test_a_loop_that_is_left_early_ends_them_at_once(ds: rankstore.Dataset) -> None:
    def hangs(sample: Sample) -> Sample:
        if sample["text"] == "sample 30":
            time.sleep(600)
        return who(sample)

    ds._handle.spec()  # starts the threads that serve DataLoader workers, as the first fork does
    before = threading.active_count()
    for batch in ds.loader(ds.plan("sequential", batch_size=4), collate=Pad(), map=hangs, processes=2):
        if batch.step == 4:
            pids = children()
            break
    assert len(pids) == 2 and ended(pids) and not children()
    until = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.02)
    assert threading.active_count() == before
    loader = ds.loader(ds.plan(batch_size=4), collate=Pad(), map=who, processes=2)
    first = iter(loader)
    next(first)
    pids = children()
    next(iter(loader))  # another iteration ends the first one
    assert ended(pids)


SCRIPT = """
import multiprocessing, os, sys, time
import rankstore

def slow(sample):
    time.sleep(0.05)
    return sample

ds = rankstore.open(sys.argv[1])
loader = ds.loader(ds.plan(batch_size=2), collate=rankstore.Lists(missing="mask"), map=slow, processes=2)
for batch in loader:
    if batch.step == 1:
        print(*[child.pid for child in multiprocessing.active_children()], flush=True)
        if sys.argv[2] == "raise":
            raise ValueError("of the loop")
        if sys.argv[2] == "exit":
            sys.exit(5)
"""


@pytest.mark.parametrize(("how", "code"), [("interrupt", -signal.SIGINT), ("kill", -signal.SIGKILL), ("raise", 1), ("exit", 5)])
def test_no_process_outlives_its_program(ds: rankstore.Dataset, tmp_path: Path, how: str, code: int) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    program = subprocess.Popen([sys.executable, str(tmp_path / "script.py"), ds.directory, how], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert program.stdout is not None and program.stderr is not None
    pids = {int(pid) for pid in program.stdout.readline().split()}
    assert len(pids) == 2
    if how == "interrupt":
        os.killpg(program.pid, signal.SIGINT)  # as a terminal does: to all processes
    elif how == "kill":
        program.kill()
    assert program.wait(60) == code and ended(pids)
    said = program.stderr.read()
    assert said.count("Traceback") == (how in ("interrupt", "raise")), said


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_other_start_methods_need_functions_of_a_module(ds: rankstore.Dataset, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    plan = ds.plan(batch_size=8)
    monkeypatch.setattr(multiprocessing, "get_context", lambda: multiprocessing.context._concrete_contexts[method])  # type: ignore[attr-defined]
    with pytest.raises(rankstore.ArgumentError, match=f"map: processes of the start method '{method}' need functions of a module"):
        list(ds.loader(plan, map=lambda sample: sample, processes=2))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *sys.path]))
    import test_map_processes
    found = list(ds.loader(plan, collate=Lists(), map=test_map_processes.who, processes=2))
    assert sum(len(batch.ids) for batch in found) == COUNT and os.getpid() not in {pid for batch in found for pid in batch["pid"].tolist()}
    assert not children()


def in_a_worker(directory: str, said: Any) -> None:
    with rankstore.init("solo"), rankstore.open(directory) as ds:
        loader = ds.loader(ds.plan(batch_size=8), collate=Lists(missing="mask"), map=who, processes=2)
        try:
            next(iter(loader))
        except rankstore.ArgumentError as refused:
            said.send(str(refused))


def test_a_worker_process_starts_no_others(ds: rankstore.Dataset) -> None:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=in_a_worker, args=(ds.directory, theirs), daemon=True)
    process.start()
    process.join(60)
    assert ours.poll(1) and ours.recv() == "processes: this is a worker process itself, and those start no others; leave processes out"
