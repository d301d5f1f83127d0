# SPDX-License-Identifier: Apache-2.0
"""The extension's Store, Samples and Buffer: what was built comes back, and stays as long as somebody looks at it."""
from __future__ import annotations

import gc
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from rankstore import _core, errors

COUNT = 500
IDS, SCORE, NUMBER, TEXT, MAYBE = range(5)
SCHEMA = '{"ids": "int32[*]", "score": "float64", "number": "int64", "text": "str", "maybe": "int16?"}'


def sample(i: int) -> dict[str, object]:
    return {"key": f"key {i}", "ids": [i + j for j in range(i % 23)], "score": i / 8, "number": i * i, "text": "ä" * (i % 5)}


def build(directory: Path) -> str:
    source = directory / "samples.jsonl"
    with source.open("w") as file:
        for i in range(COUNT):
            row = {**sample(i), "maybe": i % 100} if i % 3 else sample(i)
            file.write(json.dumps(row) + "\n")
    group = _core.Group(solo=True)
    out = str(directory / "data")
    schema = json.dumps({**json.loads(SCHEMA), "key": "str"})
    _core.build(group, [str(source)], out, schema=schema, key="key", length="ids", index=["number", "score"])
    group.close()
    return out


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build(tmp_path_factory.mktemp("store"))


@pytest.fixture
def store(dataset: str) -> Iterator[_core.Store]:
    group = _core.Group(solo=True)
    opened = _core.Store(group, dataset)
    yield opened
    opened.close()
    group.close()


def check(values: list[tuple[_core.Buffer, tuple[int, ...]] | None], i: int) -> None:
    expected = sample(i)
    ids, score, number, text, maybe = values[:5]
    assert ids and score and number and text
    assert ids[1] == (i % 23,) and np.frombuffer(ids[0], np.int32).tolist() == expected["ids"]
    assert score[1] == () and np.frombuffer(score[0], np.float64)[0] == expected["score"]
    assert np.frombuffer(number[0], np.int64)[0] == expected["number"]
    assert text[1] == () and bytes(text[0]).decode() == expected["text"]
    assert (maybe is None) == (i % 3 == 0)
    if maybe:
        assert np.frombuffer(maybe[0], np.int16)[0] == i % 100


def in_child(work: object) -> str:
    """What `work()` returns (or raises) in a fork, which must end within 200 s."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            text = str(work())  # type: ignore[operator]
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)
    os.close(write)
    until = time.monotonic() + 200
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
    with os.fdopen(read) as file:
        return file.read()


# ---- what was built ------------------------------------------------------------------------------


def test_facts(store: _core.Store) -> None:
    assert store.count == COUNT and len(store.dataset) == 32 and not store.closed
    assert list(json.loads(store.schema)) == ["ids", "score", "number", "text", "maybe", "key"]
    assert json.loads(store.info())["samples"] == COUNT
    lengths = np.frombuffer(store.lengths(), np.uint32)
    assert lengths.tolist() == [i % 23 for i in range(COUNT)] and not lengths.flags.writeable
    found = store.column("number")
    assert found is not None and found[1] == "int64"
    assert np.frombuffer(found[0], np.int64).tolist() == [i * i for i in range(COUNT)]
    assert not found[0].writable and len(found[0]) == 8 * COUNT
    assert store.column("text") is None and store.column("no such") is None
    assert store.owner(7) == 0


def test_keys(store: _core.Store) -> None:
    assert store.key(17) == b"key 17" and store.find("key 17") == 17 and store.find(b"key 17") == 17
    with pytest.raises(KeyError, match="no such"):
        store.find("no such")
    with pytest.raises(TypeError):
        store.find(17)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [-1, COUNT, 2**64, -(2**70)])
def test_numbers_out_of_range(store: _core.Store, wrong: int) -> None:
    for call in (store.key, store.owner, store.view, lambda i: store.fetch([0, i])):
        with pytest.raises(IndexError, match="out of range"):
            call(wrong)


def test_lists_of_samples(store: _core.Store) -> None:
    wanted = [3, 499, 3, 0]
    lists = [wanted, tuple(wanted), iter(wanted), np.array([3, 9, 499, 9, 3, 9, 0])[::2]]
    for kind in (np.int32, np.uint32, np.int64, np.uint64):
        lists.append(np.array(wanted, kind))
    for one in lists:
        samples = store.fetch(one)  # type: ignore[arg-type]
        assert [samples.id(i) for i in range(len(samples))] == wanted
        for i, number in enumerate(wanted):
            check(samples.values(i), number)
    assert len(store.fetch([])) == 0 and len(store.fetch(np.array([], np.int64))) == 0
    for wrong in (np.array([-1]), np.array([-1], np.int32), np.array([COUNT], np.uint32)):
        with pytest.raises(IndexError):
            store.fetch(wrong)
    for bad in (np.array([1.0]), np.array([[1]]), ["1"], b"12345678", 5):
        with pytest.raises(TypeError):
            store.fetch(bad)  # type: ignore[arg-type]


def test_samples(store: _core.Store) -> None:
    samples = store.fetch(range(COUNT))
    for i in range(COUNT):
        assert samples.length(i) == i % 23 and samples.key(i) == f"key {i}".encode()
        check(samples.values(i), i)
        assert samples.value(i, MAYBE) is None if i % 3 == 0 else samples.value(i, MAYBE) is not None
    for wrong in (-1, COUNT):
        for call in (samples.id, samples.length, samples.key, samples.values, lambda i: samples.value(i, 0)):
            with pytest.raises(IndexError):
                call(wrong)
    for wrong in (-1, 6):
        with pytest.raises(IndexError):
            samples.value(0, wrong)


def test_samples_are_writable_copies(store: _core.Store) -> None:
    samples = store.fetch([22])
    value = samples.value(0, IDS)
    assert value is not None and value[0].writable
    array = np.frombuffer(value[0], np.int32)
    array[:] = -1
    check(store.fetch([22]).values(0), 22)


def test_the_digest_does_not_depend_on_order(store: _core.Store) -> None:
    whole = store.fetch(range(COUNT)).digest()
    assert 2**64 < whole < 2**128
    parts = [store.fetch(range(499, 99, -1)).digest(), store.fetch(range(100)).digest()]
    assert sum(parts) % 2**128 == whole != store.fetch(range(1, COUNT)).digest()


def test_stats(store: _core.Store) -> None:
    before = store.stats()
    store.fetch(range(10))
    after = store.stats()
    assert after["samples"] - before["samples"] == 10 and after["bytes"] > before["bytes"]
    assert isinstance(after["exchange"], str)


def test_wrong_arguments(dataset: str, store: _core.Store) -> None:
    with pytest.raises(TypeError):
        _core.Store("group", dataset)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="inflight_bytes"):
        _core.Store(store.group, dataset, inflight_bytes=-1)
    with pytest.raises(errors.ArgumentError, match="pigeon"):
        _core.Store(store.group, dataset, exchange="pigeon")
    with pytest.raises(errors.NotFoundError):
        _core.Store(store.group, dataset + "/nothing")
    for kind in (_core.Buffer, _core.Samples):
        with pytest.raises(TypeError):
            kind()


# ---- how long it stays ---------------------------------------------------------------------------


def test_buffers_outlive_everything(dataset: str) -> None:
    group = _core.Group(solo=True)
    store = _core.Store(group, dataset)
    column = store.column("score")
    assert column is not None
    lengths, scores = memoryview(store.lengths()), np.frombuffer(column[0], np.float64)
    samples = store.fetch([22, 21])
    value = samples.value(0, IDS)
    assert value is not None
    ids = np.frombuffer(value[0], np.int32)
    store.close()
    group.close()
    check(samples.values(1), 21)
    assert samples.key(0) == b"key 22"
    del store, group, samples, value, column
    gc.collect()
    assert np.frombuffer(lengths, np.uint32).tolist() == [i % 23 for i in range(COUNT)]
    assert scores.tolist() == [i / 8 for i in range(COUNT)]
    assert ids.tolist() == list(range(22, 44))


def test_closed(dataset: str) -> None:
    group = _core.Group(solo=True)
    store = _core.Store(group, dataset)
    with pytest.raises(errors.StateError, match="in use"):
        group.close()
    plan = _core.Plan(store, batch_size=10)
    epochs = [_core.Epoch(store, plan) for _ in range(3)]
    for epoch in epochs[:2]:
        next(epoch)
    store.close()
    store.close()
    assert store.closed and store.count == COUNT
    calls = [store.lengths, store.info, store.stats, lambda: store.key(0), lambda: store.find("key 0"),
             lambda: store.owner(0), lambda: store.column("number"), lambda: store.fetch([0]), lambda: store.view(0),
             lambda: _core.Plan(store), lambda: _core.Epoch(store, plan)] + [e.__next__ for e in epochs]
    for call in calls:
        with pytest.raises(errors.StateError, match="closed"):
            call()
    for epoch in epochs:
        epoch.close()
    assert len(plan.batch(1, 0, 0)) == 10  # it stands on the index, which it keeps
    group.close()


def test_without_close(dataset: str) -> None:
    group = _core.Group(solo=True)
    store = _core.Store(group, dataset)
    epoch = _core.Epoch(store, _core.Plan(store))
    next(epoch)
    del store
    assert len(next(epoch)[1]) > 0
    del epoch
    gc.collect()
    group.close()


def test_threads_read_at_once_and_one_closes(dataset: str) -> None:
    group = _core.Group(solo=True)
    store = _core.Store(group, dataset)
    seen: list[int] = []
    problems: list[BaseException] = []

    def read(seed: int) -> None:
        random = np.random.default_rng(seed)
        try:
            while True:
                wanted = random.integers(0, COUNT, 40)
                samples = store.fetch(wanted)
                for i, number in enumerate(wanted):
                    check(samples.values(i), int(number))
                assert store.find(f"key {seed}") == seed and store.key(seed) == f"key {seed}".encode()
                seen.append(seed)
        except errors.StateError as error:
            assert "closed" in str(error)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=read, args=(seed,), daemon=True) for seed in range(4)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 200
    while len(set(seen)) < 4 and time.monotonic() < until:
        time.sleep(0.01)
    store.close()
    for thread in threads:
        thread.join(200)
    assert not problems and set(seen) == set(range(4)) and not any(t.is_alive() for t in threads)
    group.close()


def test_reference_counts(dataset: str) -> None:
    def work() -> None:
        group = _core.Group(solo=True)
        store = _core.Store(group, dataset)
        plan = _core.Plan(store, batch_size=50)
        for _, samples in _core.Epoch(store, plan):
            for i in range(len(samples)):
                samples.values(i)
                samples.key(i)
        for wrong in ([COUNT], ["a"], np.array([1.0])):
            with pytest.raises((IndexError, TypeError)):
                store.fetch(wrong)  # type: ignore[arg-type]
        with pytest.raises(KeyError):
            store.find("none")
        plan.batches(0, -1)
        store.column("number"), store.lengths(), store.stats(), store.info(), store.dataset, store.schema
        store.close()
        group.close()

    def blocks() -> int:
        gc.collect()
        return sys.getallocatedblocks()

    for _ in range(3):
        work()
    before, references = blocks(), sys.getrefcount(None)
    for _ in range(20):
        work()
    assert blocks() - before < 100
    if sys.version_info < (3, 12):  # later ones do not count None's
        assert abs(sys.getrefcount(None) - references) < 20


# ---- forks ---------------------------------------------------------------------------------------


def test_a_fork_is_told_to_open_its_own(dataset: str) -> None:
    group = _core.Group(solo=True)
    store = _core.Store(group, dataset)
    plan = _core.Plan(store)
    epoch = _core.Epoch(store, plan)
    samples = next(epoch)[1]
    for work in (lambda: store.fetch([1]), lambda: store.key(1), lambda: plan.steps(), lambda: next(epoch),
                 lambda: _core.Plan(store), samples.digest):
        told = in_child(work)
        assert told.startswith("StateError") and "open it again" in told, told

    def free_all() -> str:
        nonlocal store, plan, epoch, samples, group
        epoch.close()
        store.close()
        plan.close()
        del epoch, samples, plan, store
        gc.collect()
        own = _core.Group(solo=True)
        again = _core.Store(own, dataset)
        text = f"fresh {again.fetch([5]).id(0)}"
        again.close()
        own.close()
        return text

    assert in_child(free_all) == "fresh 5"
    check(store.fetch([9]).values(0), 9)
    assert len(next(epoch)[1]) > 0
    epoch.close()
    store.close()
    group.close()
