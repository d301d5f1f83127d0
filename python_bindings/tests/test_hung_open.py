# SPDX-License-Identifier: Apache-2.0
"""Openings of storage that hangs: whatever request gets no answer, `open` and `refresh` end with an error that names the directory, on all
ranks, and the process ends."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hung import BEGIN, MPIRUN, ended, fuse, start

import rankstore

OPEN = BEGIN + '''
try:
    rankstore.open(sys.argv[1], group=group)
except rankstore.RankStoreError as error:
    say(f"rank {group.rank}: {type(error).__name__}: {error}")
group.close()
say(f"rank {group.rank} ended")
'''
REFRESH = BEGIN + '''
ds = rankstore.open(sys.argv[1], group=group)
before = threads()
assert not ds.refresh() and threads() == before
say("ready")
sys.stdin.readline()
try:
    ds.refresh()
except rankstore.RankStoreError as error:
    say(f"rank {group.rank}: {type(error).__name__}: {error}")
say(ds[7]["key"])
ds.close()
group.close()
say(f"rank {group.rank} ended")
'''

REQUESTS = {
    "the directory's name": (fuse.LOOKUP, "/ds"),
    "a file's name": (fuse.LOOKUP, "dataset.json"),
    "opening dataset.json": (fuse.OPEN, "dataset.json"),
    "reading dataset.json": (fuse.READ, "dataset.json"),
    "attributes": (fuse.GETATTR, "dataset.json"),
    "opening the directory": (fuse.OPENDIR, "/ds"),
    "listing the directory": (fuse.READDIR, "/ds"),
    "a shard's name": (fuse.LOOKUP, ".rks"),
    "opening a manifest": (fuse.OPEN, "MANIFEST"),
    "opening a shard": (fuse.OPEN, ".rks"),
    "reading a shard": (fuse.READ, ".rks"),
    "the file system": (fuse.STATFS, ""),
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [{"key": f"k{i}", "text": "w" * (50 + i * 37 % 900)} for i in range(2000)]
    rankstore.build(rows, tmp_path / "data" / "ds", key="key", length="text").close()
    (tmp_path / "at1").symlink_to(tmp_path / "data")
    return tmp_path


@pytest.fixture
def mount(data: Path) -> Iterator[Any]:
    try:
        with fuse.Mount(str(data / "data"), str(data / "at0"), kept_s=0) as mounted:
            yield mounted
    except fuse.NotHere as why:
        pytest.skip(str(why))


def check(out: str, ranks: int, directory: str) -> None:
    for rank in range(ranks):
        told = [line for line in out.splitlines() if line.startswith(f"rank {rank}: ")]
        assert len(told) == 1 and "storage has not answered for 3.0 s" in told[0] and directory in told[0], out
        assert f"rank {rank} ended" in out, out


@pytest.mark.parametrize("request_of", list(REQUESTS))
def test_an_open_ends(mount: Any, data: Path, request_of: str) -> None:
    at, name = REQUESTS[request_of]
    if name == "MANIFEST":
        name = next((data / "data" / "ds").glob("part-*.json")).name
    mount.hang(name, at=(at,))
    check(ended(start([], OPEN, str(data / "at0" / "ds")), mount), 1, str(data / "at0"))


@pytest.mark.parametrize("request_of", ["a file's name", "reading dataset.json", "opening a shard", "reading a shard"])
def test_an_open_ends_on_all_ranks(mount: Any, data: Path, request_of: str) -> None:
    at, name = REQUESTS[request_of]
    mount.hang(name, at=(at,))
    check(ended(start(MPIRUN, OPEN, str(data / "at{rank}" / "ds")), mount, 2), 2, str(data / "at0"))


@pytest.mark.parametrize("request_of", ["a file's name", "reading dataset.json"])
def test_a_refresh_ends_and_the_dataset_stays_open(mount: Any, data: Path, request_of: str) -> None:
    at, name = REQUESTS[request_of]
    process = start([], REFRESH, str(data / "at0" / "ds"))
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    mount.hang(name, at=(at,))
    out = ended(process, mount)
    check(out, 1, str(data / "at0"))
    assert "k7" in out
