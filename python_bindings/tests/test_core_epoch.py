# SPDX-License-Identifier: Apache-2.0
"""The extension's Epoch: the plan's batches in step order, over ranks, threads and interrupts."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rankstore import _core, errors

COUNT = 400
LIMIT_S = 400


def row(i: int) -> dict[str, object]:
    return {"ids": [i + j for j in range(1 + i * 7 % 30)], "number": i}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("epoch")
    for part in range(4):
        lines = [json.dumps(row(i)) for i in range(part * 100, part * 100 + 100)]
        (directory / f"part{part}.jsonl").write_text("\n".join(lines) + "\n")
    return str(directory)


@pytest.fixture(scope="module")
def built(dataset: str) -> str:
    group = _core.Group(solo=True)
    build(group, dataset, dataset + "/data")
    group.close()
    return dataset + "/data"


def build(group: _core.Group, source: str, out: str) -> None:
    files = [f"{source}/part{part}.jsonl" for part in range(4)]
    _core.build(group, files, out, schema='{"ids": "int32[*]", "number": "int64"}', length="ids", index=["number"])


@pytest.fixture
def store(built: str) -> Iterator[_core.Store]:
    group = _core.Group(solo=True)
    opened = _core.Store(group, built)
    yield opened
    opened.close()
    group.close()


def check(samples: _core.Samples, expected: list[int]) -> None:
    assert [samples.id(i) for i in range(len(samples))] == expected
    for i, number in enumerate(expected):
        value = samples.value(i, 0)
        assert value is not None and np.frombuffer(value[0], np.int32).tolist() == row(number)["ids"]


# ---- one rank ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [1, 4, 100])
def test_all_batches_in_step_order(store: _core.Store, ahead: int) -> None:
    plan = _core.Plan(store, max_tokens=300, seed=1)
    for epoch in range(2):
        steps = 0
        for step, samples in _core.Epoch(store, plan, epoch=epoch, prefetch_batches=ahead):
            assert step == steps and isinstance(samples, _core.Samples)
            check(samples, plan.batch(epoch, step, 0))
            steps += 1
        assert steps == plan.steps(epoch)


def test_from_a_step_on_and_past_the_end(store: _core.Store) -> None:
    plan = _core.Plan(store, batch_size=30)
    steps = plan.steps()
    epoch = _core.Epoch(store, plan, first_step=steps - 2)
    assert iter(epoch) is epoch
    assert [step for step, _ in epoch] == [steps - 2, steps - 1]
    assert next(epoch, None) is None and next(epoch, None) is None
    assert next(_core.Epoch(store, plan, first_step=steps), None) is None
    with pytest.raises(errors.ArgumentError, match="first_step"):
        _core.Epoch(store, plan, first_step=steps + 1)


def test_close_and_wrong_arguments(store: _core.Store) -> None:
    plan = _core.Plan(store, batch_size=30)
    epoch = _core.Epoch(store, plan)
    kept = next(epoch)[1]
    epoch.close()
    epoch.close()
    with pytest.raises(errors.StateError, match="closed"):
        next(epoch)
    check(kept, plan.batch(0, 0, 0))
    for wrong in ({"prefetch_batches": 0}, {"prefetch_bytes": -1}, {"epoch": -1}, {"first_step": 2**64}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            _core.Epoch(store, plan, **wrong)  # type: ignore[arg-type]
    for pair in ((plan, plan), (store, store)):
        with pytest.raises(TypeError):
            _core.Epoch(*pair)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="collate"):
        _core.Epoch(store, plan, collate="pad")  # type: ignore[arg-type]
    with pytest.raises(errors.ArgumentError, match="ranks"):
        _core.Epoch(store, _core.Plan(store, world=2, batch_size=30))
    open_one = _core.Epoch(store, plan)
    plan.close()
    with pytest.raises(errors.StateError, match="plan is closed"):
        next(open_one)


def arrays_of(arrays: _core.Arrays) -> list[bytes]:
    return [bytes(arrays.ids()), bytes(arrays.lengths()), *(bytes(data) for _, _, _, data, _ in arrays.arrays())]


def test_arrays_in_arenas(store: _core.Store) -> None:
    """They equal those elsewhere, stay as they are while they are held, and give the arenas back."""
    plan, arenas = _core.Plan(store, batch_size=7, seed=2), _core.Arenas()
    options = {"collate": _core.Collate(), "prefetch_batches": 2}
    inside = _core.Epoch(store, plan, arenas=arenas, **options)
    made: list[weakref.ref[Any]] = []
    held: list[tuple[_core.Arrays, list[bytes]]] = []
    for (step, expected), (other, arrays) in zip(_core.Epoch(store, plan, **options), inside, strict=True):
        assert step == other
        held = [*held[-2:], (arrays, arrays_of(expected))]
        assert all(arrays_of(one) == known for one, known in held)
        if size := arenas.wanted():
            buffer = np.zeros(size, np.uint8)
            made.append(weakref.ref(buffer))
            arenas.add(buffer)
            del buffer
        del arrays
    assert 1 <= len(made) <= 8 and any(one() is not None for one in made)
    assert _core.memory_use()["pinned"][0] > 0
    inside.close()
    assert all(arrays_of(one) == known for one, known in held)
    held.clear()
    assert not any(one() for one in made) and _core.memory_use()["pinned"][0] == 0
    assert arenas.wanted() == 0
    arenas.add(late := np.zeros(1 << 16, np.uint8))
    gone = weakref.ref(late)
    del late
    assert gone() is None, "arenas whose epoch is closed keep nothing"


def test_arenas_refuse_what_cannot_be(store: _core.Store) -> None:
    plan, arenas = _core.Plan(store, batch_size=7), _core.Arenas()
    with pytest.raises(errors.ArgumentError, match="arenas: arrays alone lie there"):
        _core.Epoch(store, plan, arenas=arenas)
    with pytest.raises(TypeError, match="arenas: Arenas, not"):
        _core.Epoch(store, plan, collate=_core.Collate(), arenas=bytearray())  # type: ignore[arg-type]
    with pytest.raises(errors.ArgumentError, match="an arena of 100 bytes"):
        arenas.add(bytearray(100))
    with pytest.raises(BufferError):
        arenas.add(bytes(1 << 16))
    child = os.fork()
    if child == 0:
        try:
            arenas.wanted()
        except errors.StateError:
            os._exit(3)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


ENDS = """
import atexit, sys, threading
from rankstore import _core
group = _core.Group(solo=True)
store = _core.Store(group, sys.argv[1])
plan = _core.Plan(store, batch_size=2)
def steps(stay):
    arenas = _core.Arenas()
    epoch = _core.Epoch(store, plan, collate=_core.Collate(), prefetch_batches=16, arenas=arenas)
    kept = []
    for step, arrays in epoch:
        kept = [*kept[-2:], arrays]
        if size := arenas.wanted():
            arenas.add(bytearray(size))
        if step == stay:
            return arenas, epoch, kept
def die():
    steps(90)
    raise SystemExit(5)
if sys.argv[2] == "held":
    held = steps(50)
elif sys.argv[2] == "exit":
    die()
elif sys.argv[2] == "thread":
    begun = threading.Event()
    def run():
        while True:
            steps(30)
            begun.set()
    threading.Thread(target=run, daemon=True).start()
    begun.wait()
elif sys.argv[2] == "cycle":
    cycle = [steps(70)]
    cycle.append(cycle)
    atexit.register(cycle.clear)
"""


@pytest.mark.parametrize(("way", "code"), [("held", 0), ("exit", 5), ("thread", 0), ("cycle", 0)])
def test_the_interpreter_ends_beside_threads_that_have_arenas(built: str, way: str, code: int) -> None:
    """No thread of the library's calls Python, so none waits for its end."""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", ENDS, built, way], capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == code, done.stderr


def test_two_epochs_of_one_plan_by_two_threads(store: _core.Store) -> None:
    plan = _core.Plan(store, max_tokens=200)
    expected = [[plan.batch(epoch, step, 0) for step in range(plan.steps(epoch))] for epoch in range(2)]
    seen: list[list[list[int]]] = [[], []]

    def read(epoch: int) -> None:
        for _, samples in _core.Epoch(store, plan, epoch=epoch):
            seen[epoch].append([samples.id(i) for i in range(len(samples))])

    threads = [threading.Thread(target=read, args=(epoch,), daemon=True) for epoch in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert seen == expected


def test_threads_share_one_epoch(store: _core.Store) -> None:
    plan = _core.Plan(store, batch_size=3)
    epoch = _core.Epoch(store, plan)
    seen: list[int] = []

    def read() -> None:
        for step, samples in epoch:
            check(samples, expected[step])
            seen.append(step)

    expected = [plan.batch(0, step, 0) for step in range(plan.steps())]
    threads = [threading.Thread(target=read, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    assert sorted(seen) == list(range(len(expected)))


def test_the_state_of_a_plan_goes_on_in_an_epoch(store: _core.Store) -> None:
    plan = _core.Plan(store, max_tokens=300, seed=9)
    epoch = _core.Epoch(store, plan, epoch=1)
    for _ in range(3):
        step, _samples = next(epoch)
    state = plan.state(1, step + 1)
    rest = [[samples.id(i) for i in range(len(samples))] for _, samples in epoch]
    other = _core.Plan(store, max_tokens=300, seed=9)
    number, first = other.resume(state)
    again = _core.Epoch(store, other, epoch=number, first_step=first)
    assert [[samples.id(i) for i in range(len(samples))] for _, samples in again] == rest


# ---- several ranks -------------------------------------------------------------------------------


def over_ranks(group: _core.Group, source: str) -> None:
    out = source + f"/ranks{group.size}"
    build(group, source, out)
    for no_share in (False, True):
        store = _core.Store(group, out, no_share=no_share)
        plan = _core.Plan(store, max_tokens=300)
        seen = []
        for step, samples in _core.Epoch(store, plan):
            check(samples, plan.batch(0, step, group.rank))
            seen += [samples.id(i) for i in range(len(samples))]
        everybody = group.allgather("seen", np.array(seen, np.uint32).tobytes())
        assert sorted(np.concatenate([np.frombuffer(one, np.uint32) for one in everybody])) == list(range(COUNT))
        assert not no_share or store.stats()["remote_bytes"] > 0
        store.close()


def stop(pid: int) -> None:
    """Returns when all its threads stand: until then one of them may still answer."""
    os.kill(pid, signal.SIGSTOP)
    while not all(Path(task, "stat").read_text().rpartition(")")[2].split()[0] == "T" for task in Path(f"/proc/{pid}/task").iterdir()):
        time.sleep(0.001)


def interrupted(group: _core.Group, source: str) -> None:
    """Rank 0 stands still while rank 1 waits for its samples, and is interrupted."""
    out = source + "/stopped"
    build(group, source, out)
    store = _core.Store(group, out, no_share=True)
    plan = _core.Plan(store, batch_size=50, strategy="random")
    pids = [int.from_bytes(one, "little") for one in group.allgather("pids", os.getpid().to_bytes(8, "little"))]
    if group.rank == 1:
        theirs = [i for i in range(COUNT) if store.owner(i) == 0]
        assert len(theirs) > 10
        assert all(set(theirs) & set(plan.batch(0, step, 1)) for step in range(plan.steps()))
        epoch = _core.Epoch(store, plan)
        stop(pids[0])
        try:
            assert interrupt(lambda: store.fetch(theirs)) == "KeyboardInterrupt"
            steps = []
            assert interrupt(lambda: [steps.append(step) for step, _ in epoch]) == "KeyboardInterrupt"
        finally:
            os.kill(pids[0], signal.SIGCONT)
        check(store.fetch(theirs), theirs)
        for step, samples in epoch:  # the batch that was waited for comes again
            check(samples, plan.batch(0, step, 1))
            steps.append(step)
        assert steps == list(range(plan.steps()))
    store.close()


def interrupt(call: Callable[[], object]) -> str:
    """How it ends when a SIGINT comes after 0.3 s; only that can end it before the silence of a rank counts."""
    try:
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        call()
    except BaseException as error:
        return type(error).__name__
    return "no exception"


@pytest.mark.parametrize("ranks, body", [(2, "over_ranks"), (3, "over_ranks"), (2, "interrupted")])
def test_ranks(dataset: str, ranks: int, body: str) -> None:
    code = subprocess.run([sys.executable, __file__, str(ranks), body, dataset], timeout=LIMIT_S).returncode
    assert code == 0


if __name__ == "__main__":
    work = {"over_ranks": over_ranks, "interrupted": interrupted}[sys.argv[2]]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    where = str(Path(sys.argv[3]))

    def main(group: _core.Group) -> int:
        work(group, where)
        return 0

    sys.exit(_core.launch(int(sys.argv[1]), main, silence_ms=100_000))
