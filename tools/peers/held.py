# SPDX-License-Identifier: Apache-2.0
"""Samples that the ranks of a job hold together: under mpirun, every rank reads random ones of all ranks.

Usage, by this module itself: mpirun -n 4 held.py NAME FOLDER QUICK
"""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
from memory import peak_rss

RANKS, BATCH = 4, 64
ITEMS = 512  # int32, of a sample
LIMIT_S = 300
Array = numpy.ndarray[Any, Any]


def made(first: int, stop: int) -> Array:
    """Return int32[stop - first, ITEMS]: the samples of these numbers."""
    return (numpy.arange(first, stop, dtype=numpy.int32)[:, None] + numpy.arange(ITEMS, dtype=numpy.int32)).astype(numpy.int32)


def check(sample: Array, number: int) -> None:
    if len(sample) != ITEMS or sample[0] != number or sample[-1] != number + ITEMS - 1:
        raise ValueError(f"sample {number} has other values than were stored")


class Rank:
    """A rank of the job: its share of the samples, and the numbers that it reads."""

    def __init__(self, folder: Path, quick: bool) -> None:
        from mpi4py import MPI
        self.comm = MPI.COMM_WORLD
        self.rank, self.world = self.comm.Get_rank(), self.comm.Get_size()
        self.each, reads = (2_000, 640) if quick else (50_000, 20_480)
        self.ids = numpy.random.default_rng(self.rank).integers(0, self.each * self.world, reads)
        self.folder = folder

    def mine(self) -> Array:
        return made(self.rank * self.each, (self.rank + 1) * self.each)

    def timed(self, read: Callable[[], int]) -> dict[str, Any]:
        """COLLECTIVE. Return seconds until every rank has read, and how many samples they read together."""
        self.comm.barrier()
        begun = time.perf_counter()
        count = read()
        self.comm.barrier()
        seconds = time.perf_counter() - begun
        return {"seconds": seconds, "work": self.comm.allreduce(count), "rss": max(self.comm.allgather(peak_rss()))}


def by_ddstore(rank: Rank) -> dict[str, Any]:
    """One-sided reads (MPI RMA), one sample a call: it has no call for several that are not neighbours."""
    import pyddstore
    store = pyddstore.PyDDStore(rank.comm)
    store.add("x", rank.mine())

    def read() -> int:
        out = numpy.zeros((1, ITEMS), numpy.int32)
        for number in rank.ids.tolist():
            store.get("x", out, number)
            check(out[0], number)
        return len(rank.ids)
    found = rank.timed(read)
    store.free()
    return found


def dataset_of(rank: Rank) -> Any:
    """COLLECTIVE. Return the open dataset; sample ids are the numbers, a unit being a rank's share."""
    import rankstore
    rankstore.init()
    folder = rank.folder / f"part{rank.rank}"
    shutil.rmtree(folder, ignore_errors=True)
    rankstore.build([rankstore.Columns({"x": rank.mine()})], folder, progress=False, unit_samples=rank.each).close()
    return rankstore.open(folder)


def by_calls(rank: Rank) -> dict[str, Any]:
    """A call for each 64 numbers."""
    with dataset_of(rank) as ds:
        def read() -> int:
            for first in range(0, len(rank.ids), BATCH):
                numbers = rank.ids[first:first + BATCH].tolist()
                for number, sample in zip(numbers, ds[numbers]):
                    check(sample["x"], number)
            return len(rank.ids)
        return rank.timed(read)


def by_loader(rank: Rank) -> dict[str, Any]:
    """An epoch of a random plan."""
    with dataset_of(rank) as ds:
        loader = ds.loader(ds.plan("random", batch_size=BATCH))

        def read() -> int:
            count = 0
            for batch in loader:
                samples = numpy.asarray(batch["x"])
                if samples.shape[1] != ITEMS or not (samples[:, -1] == samples[:, 0] + ITEMS - 1).all():
                    raise ValueError("a batch has other values than were stored")
                count += len(samples)
            return count
        return rank.timed(read)


READERS = {"DDStore": by_ddstore, "Rankstore": by_calls, "Rankstore, loader": by_loader}
APART = ", a node each"  # at the end of a name: ranks share no memory, as on machines of their own


class Held:
    """A job of four ranks; `round` gives its seconds and the samples that it read."""

    def __init__(self, place: Any, name: str) -> None:
        self.name, self.notes = name, dict[str, Any]()
        self.quick = place.quick
        self.folder = place.folder / ("quick" if place.quick else "full") / "held"
        self.folder.mkdir(parents=True, exist_ok=True)

    def round(self) -> tuple[float, float]:
        environ = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}
        command = ["mpirun", "-n", str(RANKS), "--bind-to", "none", "--oversubscribe", sys.executable, __file__, self.name,
                   str(self.folder), "1" if self.quick else "0"]
        done = subprocess.run(command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=LIMIT_S)
        if done.returncode != 0:
            raise RuntimeError(f"a rank ended with {done.returncode}; see log.txt")
        found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith(b"{")))
        self.notes["peak RSS of a rank, MiB"] = found["rss"] >> 20
        return found["seconds"], found["work"]


def main() -> None:
    import mpi4py
    mpi4py.rc.thread_level = "serialized"  # as DDStore's manual asks
    name, folder, quick = sys.argv[1:4]
    rank = Rank(Path(folder), quick == "1")
    if name.endswith(APART):
        os.environ["RKS_NODE"] = str(rank.rank)
    found = READERS[name.removesuffix(APART)](rank)
    if rank.rank == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
