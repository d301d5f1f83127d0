# SPDX-License-Identifier: Apache-2.0
"""What is measured of one contestant: made once (opened, warmed, its contents checked), then asked for a round at a time."""
from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy
import pipelines  # noqa: F401  adds its peers to STORES
from far import Far
from flattening import Flattening
from grouping import Grouping
from held import Held
from ours import WAYS, make_ours
from packers import Packing, Resuming
from planners import Planning
from stores import Store, make, size_on_disk
from workload import BATCH, Place, Workload

# A measure is a class: made once, its `round` gives (seconds, work done); `notes` are figures beside.
WINDOW_S = 0.5  # of a round of reads
QUICK_WINDOW_S = 0.05
LOADER_BATCHES = 800  # of a round through worker processes

__all__ = ["Beside", "Build", "Epoch", "Far", "FirstBatch", "Flattening", "Grouping", "Held", "Opening", "Packing", "Pictures",
           "Planning", "Reading", "Resuming"]


def make_store(name: str, workload: Workload) -> Store:
    return make_ours(name, workload) if name in WAYS else make(name, workload)


def warm(path: Path) -> None:
    """Reads files into the page cache."""
    for file in path.rglob("*"):
        if file.is_file():
            with open(file, "rb") as opened:
                while opened.read(1 << 24):
                    pass


def check_reads(store: Store) -> None:
    """ValueError where some samples, read one by one or together, are not what was written."""
    workload = store.workload
    ids = list(range(BATCH)) if not store.random else workload.random_order(3)[:BATCH]
    for found in ([store.read(i) for i in ids],) + ((store.read_many(ids),) if store.random else ()):
        for i, sample in zip(ids, found):
            if bytes(sample) != bytes(workload.sample(i)):
                raise ValueError(f"sample {i} is not what was written")


class Build:
    """Writes all samples into an empty folder; work is samples. The files stay for the rows that read."""

    def __init__(self, place: Place, name: str, kind: str) -> None:
        self.store = make_store(name, place.workload(kind))
        self.checked = False
        self.notes: dict[str, Any] = {}
        if not place.quick:  # imports and first touches are no part of a build
            self.round()

    def round(self) -> tuple[float, float]:
        store = self.store
        shutil.rmtree(store.path, ignore_errors=True)
        store.path.mkdir(parents=True)
        os.sync()  # nobody pays for what others have left unwritten
        begun = time.perf_counter()
        store.write()
        seconds = time.perf_counter() - begun
        os.sync()
        if not self.checked:
            store.open()
            check_reads(store)
            self.notes["disk / payload"] = size_on_disk(store.path) / store.workload.bytes
            self.checked = True
            self.store = type(store)(store.workload, store.path)
        return seconds, store.workload.count


class Opening:
    """Import, open, and the first sample, in a new process that has torch; one round. Work is 1."""

    def __init__(self, place: Place, name: str, kind: str) -> None:
        import torch  # noqa: F401  every user has it
        self.store = make_store(name, place.workload(kind))
        warm(self.store.path)
        self.notes: dict[str, Any] = {}

    def round(self) -> tuple[float, float]:
        store = self.store
        begun = time.perf_counter()
        if store.module != "numpy":
            getattr(store, "prepare", lambda: None)()
            __import__(store.module)
        imported = time.perf_counter()
        store.open()
        first = store.read(0)
        seconds = time.perf_counter() - begun
        if bytes(first) != bytes(store.workload.sample(0)):
            raise ValueError("the first sample is not what was written")
        self.notes["import s, last round"] = imported - begun
        return seconds, 1


class Reading:
    """Samples in random order, `each` a call, for a window of time; work is samples. A token sample is copied to a reused buffer, so
    that its bytes are read; a blob arrives as bytes."""

    def __init__(self, place: Place, name: str, kind: str, each: int) -> None:
        workload = place.workload(kind)
        self.store, self.each, self.window = make_store(name, workload), each, QUICK_WINDOW_S if place.quick else WINDOW_S
        warm(self.store.path)
        self.store.open()
        check_reads(self.store)
        self.order, self.at = workload.random_order(5), 0
        self.buffer = numpy.empty(8192, workload.dtype) if kind == "tokens" else None
        self.notes: dict[str, Any] = {} if self.store.random else {"order": "sequential"}
        self.round()

    def round(self) -> tuple[float, float]:
        store, buffer, order, count = self.store, self.buffer, self.order, 0
        step = max(32, self.each)
        begun = time.perf_counter()
        while (seconds := time.perf_counter() - begun) < self.window:
            ids = order[self.at:self.at + step]
            self.at = self.at + step if self.at + 2 * step <= len(order) else 0
            found = store.read_many(ids) if self.each > 1 else map(store.read, ids)
            for sample in found:
                if buffer is not None:
                    buffer[:len(sample)] = sample
            count += len(ids)
        return seconds, count


def source_of(workload: Workload, name: str, workers: int | None) -> Any:
    """Where a contestant's batches of 64 come from, opened. `workers`: of torch's DataLoader; None: no DataLoader."""
    from batches import InProcess, Loaded, Ours
    kind = workload.kind
    name, _, own_workers = name.partition(", ")
    store = make_store(name, workload)
    if name in WAYS:
        return Ours(store, OWN_WORKERS[own_workers], LOADER_BATCHES)  # type: ignore[arg-type]
    made = workload.sorted_batches(9) if kind == "tokens" else workload.random_batches(9)
    if workers:
        made = made[:LOADER_BATCHES]
    if workers or (kind == "blobs" and type(store).loader is not Store.loader):
        return Loaded(store, made, workers or 0)
    return InProcess(store, made)


class Epoch:
    """An epoch of batches of 64; work is tokens or bytes."""

    def __init__(self, place: Place, name: str, kind: str, workers: int | None) -> None:
        import torch
        from batches import check
        torch.set_num_threads(1)
        workload = place.workload(kind)
        warm(make_store(name.partition(", ")[0], workload).path)
        self.source = source_of(workload, name, workers)
        self.notes: dict[str, Any] = {}
        check(self.source, workload, name)

    def round(self) -> tuple[float, float]:
        items, count = self.source.items, 0
        begun = time.perf_counter()
        for batch in self.source.batches:
            count += items(batch)
        return time.perf_counter() - begun, count


class FirstBatch:
    """Import, open, and the first batch of 64 of a shuffled epoch, in a new process that has torch; one round. Work is 1."""

    def __init__(self, place: Place, name: str, kind: str, workers: int) -> None:
        import torch
        torch.set_num_threads(1)
        self.workload, self.name, self.workers = place.workload(kind), name, workers
        warm(make_store(name.partition(", ")[0], self.workload).path)
        self.notes: dict[str, Any] = {}

    def round(self) -> tuple[float, float]:
        begun = time.perf_counter()
        source = source_of(self.workload, self.name, self.workers)
        first = next(iter(source.batches))
        seconds = time.perf_counter() - begun
        count = sum(1 for _ in source.samples(first))
        if count != BATCH:
            raise ValueError(f"the first batch has {count} samples")
        return seconds, 1


class Beside(Epoch):
    """The same epochs beside a thread that computes without end, as training on a processor does."""

    def __init__(self, place: Place, name: str, kind: str, workers: int) -> None:
        super().__init__(place, name, kind, workers)
        self.alone = self._steps(lambda: time.sleep(0.1 if place.quick else 1))

    def _steps(self, run: Any) -> float:
        """Steps/s of the computing thread while `run` runs."""
        import torch
        values, steps, ended = torch.rand(384, 384), 0, threading.Event()

        def compute() -> None:
            nonlocal steps
            while not ended.is_set():
                torch.mm(values, values)
                steps += 1

        thread = threading.Thread(target=compute)
        begun = time.perf_counter()
        thread.start()
        try:
            run()
        finally:
            seconds = time.perf_counter() - begun
            ended.set()
            thread.join()
        return steps / seconds

    def round(self) -> tuple[float, float]:
        found: list[tuple[float, float]] = []
        steps = self._steps(lambda: found.append(super(Beside, self).round()))
        self.notes["training's part of its speed alone"] = steps / self.alone
        return found[0]


class Pictures:
    """An epoch of batches of 64 decoded pictures; work is pictures."""

    def __init__(self, place: Place, name: str, workers: int) -> None:
        import pictures
        import torch
        torch.set_num_threads(1)
        workload = place.workload("images")
        store = make_store(name.partition(", ")[0], workload)
        warm(store.path)
        self.source = pictures.source_of(store, workers)
        self.notes: dict[str, Any] = {}
        pictures.check(self.source, workload, name)

    round = Epoch.round


# What stands behind "Rankstore, " in the rows of epochs.
OWN_WORKERS = {"loader": None, "DataLoader 0": 0, "DataLoader 2": 2}
