# SPDX-License-Identifier: Apache-2.0
"""One job appends every second, another trains on two ranks and refreshes between epochs: python growth.py SECONDS DIRECTORY.

Each epoch of each rank's loader, and of a DataLoader with a persistent worker, has every sample of its generation once. Memory and
descriptors do not grow beyond what the dataset itself needs: its shards stay mapped. Prints a line of figures at the end."""
from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

import rankstore

EVERY, ROWS, KEEP = 1.0, 20, 3  # seconds between appends; samples of one; generations that are kept
PAUSE = 0.1  # seconds between epochs
GIVES_UP = 10  # so many times the given seconds pass before too few refreshes are a failure
WARM = 0.3  # the part of the time after which nothing may grow
MEMORY = 24 << 20  # bytes that the last epochs may have above those before them


def rows(first: int) -> list[dict[str, Any]]:
    return [{"i": i, "x": [i % 1000] * (1 + i % 9)} for i in range(first, first + ROWS)]


def append(directory: str, seconds: float) -> int:
    until, number = time.monotonic() + seconds, 1
    with rankstore.init("solo") as group:
        while time.monotonic() < until:
            began = time.monotonic()
            rankstore.build(rows(ROWS * number), directory, append=True, group=group, progress=False).close()
            number += 1
            if number % 10 == 0:
                rankstore.prune(directory, keep=KEEP, group=group)
            time.sleep(max(0.0, EVERY - (time.monotonic() - began)))
    return number


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def memory() -> int:
    """Return the bytes of this process that are no pages of files."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")))


def check_once(group: Any, ds: Any, mine: list[int], what: str) -> None:
    every = [i for one in group.allgather(what, json.dumps(mine).encode()) for i in json.loads(one)]
    assert sorted(every) == list(range(len(ds))), f"{what}: {len(every)} samples, {len(set(every))} different ones, of {len(ds)}"


def train(group: Any, directory: str, seconds: float) -> None:
    figures: list[tuple[float, int, int]] = []  # the part of the time, memory, descriptors
    began, refreshes, epoch, over = time.monotonic(), 0, 0, False
    wanted = seconds / 4
    with rankstore.open(directory, group=group) as ds:
        plan = ds.plan("random", batch_size=16, seed=1)
        loader = ds.loader(plan, out="numpy")
        sampler = ds.plan("bucket", batch_size=16).sampler()
        worked = torch.utils.data.DataLoader(ds, batch_sampler=sampler, collate_fn=ds.collate, num_workers=1, persistent_workers=True)
        while not over:
            loader.set_epoch(epoch)
            sampler.set_epoch(epoch)
            check_once(group, ds, [int(i) for batch in loader for i in batch["i"]], f"epoch {epoch}")
            check_once(group, ds, [int(i) for batch in worked for i in batch["i"]], f"epoch {epoch} of the worker")
            state = loader.state_dict()
            refreshes += ds.refresh()
            if epoch % 7 == 3:  # as a job that is started again
                loader = ds.loader(plan, out="numpy")
                loader.load_state_dict(state)
            figures.append(((time.monotonic() - began) / seconds, memory(), descriptors()))
            epoch += 1
            time.sleep(PAUSE)
            part = figures[-1][0]  # on a busy machine the other job may take many seconds for an append
            over = group.allgather("over", bytes([part >= (1 if refreshes >= wanted else GIVES_UP)]))[0] == b"\1"
        shards = len(ds.info()["shards"])
    first = [one for one in figures if WARM <= one[0] < (1 + WARM) / 2]
    last = [one for one in figures if one[0] >= (1 + WARM) / 2]
    grown = min(one[1] for one in last) - max(one[1] for one in first)
    held = min(one[2] for one in last) - max(one[2] for one in first)
    if group.rank == 0:
        print(json.dumps({"epochs": epoch, "refreshes": refreshes, "shards": shards, "memory_grown": grown, "memory": figures[-1][1],
                          "descriptors_grown": held, "descriptors": figures[-1][2]}), flush=True)
    assert refreshes >= wanted, f"only {refreshes} refreshes"
    assert grown <= MEMORY, f"{grown} bytes of memory more, of {figures[-1][1]}"
    assert held <= 0, f"{held} descriptors more, of {figures[-1][2]}"


def main() -> int:
    seconds, directory = float(sys.argv[1]), sys.argv[2]
    if len(sys.argv) > 3:
        append(directory, seconds)
        return 0
    with rankstore.init("solo") as group:
        rankstore.build(rows(0), directory, group=group, progress=False).close()
    appending = subprocess.Popen([sys.executable, __file__, str(seconds * GIVES_UP + 60), directory, "append"])
    try:
        code = rankstore.launch(2, functools.partial(train, directory=directory, seconds=seconds))
        assert appending.poll() is None, f"the appending job ended with {appending.returncode}"
        return int(code)
    finally:
        appending.terminate()
        appending.wait(60)


if __name__ == "__main__":
    sys.exit(main())
