# SPDX-License-Identifier: Apache-2.0
"""Where a run of DLIO finds its records: in memory, on the disk, or in a store behind a link."""
from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from dlio_names import FOLDER, HOME, LOCAL

BENCH = Path(__file__).resolve().parents[2] / "tests" / "bench"
PIECE = 1 << 20  # bytes, of a read from the disk
RANGE = 4 << 20  # of a request to a store


class Limit:
    """A control group whose memory is a fifth of the data, but enough for the processes; both versions of control groups. `told`
    says what holds; `wrap` puts a command into it."""

    ROOTS = (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max"))
    LEAST = 3 << 30

    def __init__(self, data_bytes: int) -> None:
        self.bytes = max(data_bytes // 5, self.LEAST)
        self.folder: Path | None = None
        self.told = ""

    def __enter__(self) -> Limit:
        for root, file in self.ROOTS:
            folder = Path(root) / f"rankstore-dlio-{os.getpid()}"
            try:
                folder.mkdir()
            except OSError:
                continue
            with contextlib.suppress(OSError):
                (folder / file).write_text(str(self.bytes))
                self.folder = folder
                self.told = f"A control group had {self.bytes / 2**30:.1f} GiB for processes and page cache, a fifth of the data or 3 GiB."
                return self
            folder.rmdir()
        self.told = "No control group could be made: memory had no limit."
        return self

    def wrap(self, command: list[str]) -> list[str]:
        if self.folder is None:
            return command
        return ["sh", "-c", 'echo $$ >"$0"; exec "$@"', str(self.folder / "cgroup.procs"), *command]

    def __exit__(self, *_: object) -> None:
        if self.folder is not None:
            for _ in range(50):  # the last process may still be ending
                with contextlib.suppress(OSError):
                    self.folder.rmdir()
                    return
                time.sleep(0.1)


def forget(folder: Path) -> None:
    """Drop the files of a folder from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            file = os.open(path, os.O_RDONLY)
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)


def recall(folder: Path) -> None:
    """Read the files of a folder into the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb", buffering=0) as file:
                while file.read(1 << 24):
                    pass


def rate_of(pieces: Iterable[Any], read: Callable[[Any], int]) -> float:
    """Bytes/s of 16 threads; `read` returns the bytes of a piece."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(16) as pool:
        count = sum(pool.map(read, pieces))
    return count / (time.perf_counter() - begun)


def disk_rate(folder: Path) -> float:
    """Bytes/s of 16 threads that read the files of a folder, which nothing holds in memory, in pieces of 1 MiB."""
    forget(folder)
    files = [os.open(path, os.O_RDONLY) for path in sorted(folder.rglob("*")) if path.is_file()]
    pieces = [(file, at) for file in files for at in range(0, os.fstat(file).st_size, PIECE)]
    found = rate_of(pieces, lambda piece: len(os.pread(piece[0], PIECE, piece[1])))
    for file in files:
        os.close(file)
    return found


class Memory:
    """`stem` names the results; `told` describes the place; `floor` says what plain reads are, in `floor_told`."""

    stem, told, floor_told = "dlio", "Files are in memory.", ""
    loaders: tuple[str, ...] = ("nothing", "pytorch", "Rankstore")
    once = False  # a second epoch would find records elsewhere
    whole = False  # an epoch runs to its end: what comes late is part of the figure

    def __init__(self, data: Path, data_bytes: int) -> None:
        self.data, self.bytes = data, data_bytes

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing was made."""

    def ready(self, loader: str) -> None:
        """Put the files of a loader where they belong."""
        if loader != "nothing":
            recall(self.data / ("train" if loader == "pytorch" else FOLDER))

    def wrap(self, command: list[str]) -> list[str]:
        return command

    def environment(self) -> dict[str, str]:
        return {}

    def floor(self) -> float | None:
        """Bytes/s of plain reads of the dataset's files."""
        return None

    def moved(self) -> int:
        """Bytes that came over the link since it was made."""
        return 0


class Disk(Memory):
    stem, floor_told, once = "dlio-cold", "16 threads of `pread`", True

    def __enter__(self) -> Disk:
        self.limit = Limit(self.bytes)
        self.limit.__enter__()
        self.told = "Files were dropped from memory before each run. " + self.limit.told
        return self

    def __exit__(self, *_: object) -> None:
        self.limit.__exit__()

    def ready(self, loader: str) -> None:
        if loader != "nothing":
            forget(self.data / ("train" if loader == "pytorch" else FOLDER))

    def wrap(self, command: list[str]) -> list[str]:
        return self.limit.wrap(command)

    def floor(self) -> float | None:
        return disk_rate(self.data / FOLDER)


class Store(Memory):
    """`rclone serve http` in a network namespace, behind a link of `link` MB/s (tc's tbf; needs root). The local folder is empty before
    each run. DLIO's own loader does not read from it."""

    stem, floor_told, once = "dlio-store", "16 requests of 4 MiB at a time, by obstore", True
    loaders, whole = ("nothing", "Rankstore"), True

    def __init__(self, data: Path, data_bytes: int, link: float) -> None:
        super().__init__(data, data_bytes)
        self.link, self.local = link, data / "local"
        self.told = f"The dataset lies behind a link of {link:g} MB/s (rclone's HTTP server); the local folder is empty before each run."

    def __enter__(self) -> Store:
        sys.path.insert(0, str(BENCH))
        import stage_rate
        self.made = contextlib.ExitStack()
        before, host = self.made.enter_context(stage_rate.link(self.link))
        self.address = self.made.enter_context(stage_rate.server(before, host, self.data))
        return self

    def __exit__(self, *_: object) -> None:
        self.made.close()
        shutil.rmtree(self.local, ignore_errors=True)

    def ready(self, loader: str) -> None:
        shutil.rmtree(self.local, ignore_errors=True)
        recall(self.data / FOLDER)  # the server's disk is no part of it

    def environment(self) -> dict[str, str]:
        return {HOME: f"{self.address}/{FOLDER}", LOCAL: str(self.local)}

    def moved(self) -> int:
        return int(Path(f"/sys/class/net/sa{os.getpid()}/statistics/rx_bytes").read_text())

    def floor(self) -> float | None:
        import obstore
        import obstore.store
        store = obstore.store.HTTPStore.from_url(f"{self.address}/{FOLDER}", client_options={"allow_http": True})
        recall(self.data / FOLDER)
        sizes = {path.name: path.stat().st_size for path in (self.data / FOLDER).glob("*.rks")}
        pieces = [(name, at, min(at + RANGE, size)) for name, size in sizes.items() for at in range(0, size, RANGE)]
        return rate_of(pieces, lambda piece: len(obstore.get_range(store, piece[0], start=piece[1], end=piece[2])))
