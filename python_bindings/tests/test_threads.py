# SPDX-License-Identifier: Apache-2.0
"""Threads of one process share a dataset, a plan and a loader. Needs numpy alone, and runs without a GIL, too."""
from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import build_units

import rankstore
from rankstore import _core

SAMPLES, THREADS, LIMIT_S = 4000, 6, 120
LENGTHS = np.random.default_rng(1).integers(1, 300, SAMPLES)


def sample(i: int) -> dict[str, Any]:
    return {"input_ids": np.full(LENGTHS[i], i, np.int32), "number": i, "text": f"t{i}"}


def is_sample(row: dict[str, Any], i: int) -> bool:
    return bool(row["number"] == i and row["text"] == f"t{i}" and len(row["input_ids"]) == LENGTHS[i] and (row["input_ids"] == i).all())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("threads") / "dataset"
    rankstore.build((sample(i) for i in range(SAMPLES)), str(place), progress=False, length="input_ids").close()
    return place


@pytest.fixture
def ds(folder: Path) -> Iterator[rankstore.Dataset]:
    had_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    with rankstore.open(str(folder)) as opened:
        yield opened
    assert getattr(sys, "_is_gil_enabled", lambda: True)() == had_gil  # an extension that needs it turns it on


def in_threads(work: Callable[[int], None]) -> None:
    """Run work(0), work(1), ... at once; raise what one of them raised."""
    raised: list[BaseException] = []
    begin = threading.Barrier(THREADS)

    def run(number: int) -> None:
        try:
            begin.wait(LIMIT_S)
            work(number)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert not any(thread.is_alive() for thread in threads), "a thread did not end"
    if raised:
        raise raised[0]


def test_threads_read_samples(ds: rankstore.Dataset) -> None:
    def read(number: int) -> None:
        draw = np.random.default_rng(number)
        for i in map(int, draw.integers(0, SAMPLES, 1500)):
            assert is_sample(ds[i], i), i
        for _ in range(20):
            ids = [int(i) for i in draw.integers(0, SAMPLES, 50)]
            assert all(map(is_sample, ds.__getitems__(ids), ids))

    in_threads(read)


def test_threads_ask_one_plan(ds: rankstore.Dataset) -> None:
    plan = ds.plan("bucket", max_tokens=8192)

    def batches(epoch: int) -> list[Any]:
        return [plan.samples(epoch, step) for step in range(plan.steps_of(epoch))]

    expected = [batches(epoch) for epoch in range(THREADS)]

    def ask(number: int) -> None:
        for epoch in range(THREADS):  # each thread another one: the plan keeps one at a time
            epoch = (epoch + number) % THREADS
            assert batches(epoch) == expected[epoch]

    in_threads(ask)


@pytest.mark.parametrize("options", [{}, {"transform": lambda batch: batch, "threads": 2}], ids=["plain", "transform"])
def test_threads_share_an_iteration(ds: rankstore.Dataset, options: dict[str, Any]) -> None:
    """Each batch goes to one thread; the end comes to all."""
    loader = ds.loader(ds.plan("bucket", max_tokens=4096), collate=rankstore.Pad(), out="numpy", **options)
    for _ in range(3):
        taken: list[list[int]] = [[] for _ in range(THREADS)]
        shared = iter(loader)

        def take(number: int, shared: Iterator[Any] = shared, taken: list[list[int]] = taken) -> None:
            for batch in shared:
                assert (batch["input_ids"][:, 0] == batch.ids).all()
                taken[number] += map(int, batch.ids)

        in_threads(take)
        assert sorted(sum(taken, [])) == list(range(SAMPLES))


def test_threads_have_loaders_of_one_dataset(ds: rankstore.Dataset) -> None:
    plan = ds.plan("sorted", batch_size=32)

    def iterate(number: int) -> None:
        loader = ds.loader(plan, collate=rankstore.Pad(), out="numpy")
        assert sorted(int(i) for batch in loader for i in batch.ids) == list(range(SAMPLES))

    in_threads(iterate)


def test_a_dataset_is_closed_while_threads_read(folder: Path) -> None:
    for _ in range(10):
        ds = rankstore.open(str(folder))
        loader = ds.loader(ds.plan("bucket", max_tokens=4096), collate=rankstore.Pad(), out="numpy")

        def read_until_closed(number: int, ds: rankstore.Dataset = ds, loader: Any = loader) -> None:
            if number == 0:
                ds.close()
                return
            try:
                if number == 1:
                    for batch in loader:
                        assert (batch["input_ids"][:, 0] == batch.ids).all()
                while True:
                    assert is_sample(ds[number], number)
            except rankstore.StateError:
                pass

        in_threads(read_until_closed)
        assert ds.closed


def test_a_sink_that_a_thread_still_uses(tmp_path: Path) -> None:
    """A unit ends after the row that another thread is adding; later rows are refused."""
    kept: list[_core.Sink] = []
    threads: list[threading.Thread] = []
    refused = []

    def add_until_refused(sink: _core.Sink) -> None:
        while True:
            try:
                sink.add([np.full(100_000, 7, np.int32)])
            except rankstore.StateError as ended:
                refused.append(str(ended))
                return

    def unit(sink: _core.Sink) -> None:
        kept.append(sink)
        threads.append(threading.Thread(target=add_until_refused, args=(sink,), daemon=True))
        threads[-1].start()
        threads[-1].join(0.05)

    group = rankstore.init("solo")
    build_units(group.core, tmp_path / "dataset", "x:int32[*]", {f"u{i}": unit for i in range(20)})
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    assert len(refused) == 20 and all("unit has ended" in text for text in refused)
    with rankstore.open(str(tmp_path / "dataset")) as ds:
        assert len(ds) >= 20 and all((ds[i]["x"] == 7).all() for i in range(len(ds)))
