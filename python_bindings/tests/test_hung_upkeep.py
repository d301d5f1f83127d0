# SPDX-License-Identifier: Apache-2.0
"""A publish, and a prune of local copies, whose own disk hangs: whatever request gets no answer, all ranks get an error that names the
directory, and when it answers again the same call does its work."""
from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hung import BEGIN, MPIRUN, ended, fuse, start

import rankstore

CALL = BEGIN + """
try:
    CALL
except rankstore.RankStoreError as error:
    say(f"rank {group.rank}: {type(error).__name__}: {error}")
group.close()
say(f"rank {group.rank} ended")
"""
PUBLISH = CALL.replace("CALL", "rankstore.publish(sys.argv[1], sys.argv[2], group=group)")
PRUNE = CALL.replace("CALL", "rankstore.prune_local(sys.argv[1], group=group)")
SOURCE = {
    "the directory's name": (fuse.LOOKUP, "/ds"),
    "reading dataset.json": (fuse.READ, "dataset.json"),
    "a shard's name": (fuse.LOOKUP, ".rks"),
    "opening a manifest": (fuse.OPEN, "MANIFEST"),
    "opening a shard": (fuse.OPEN, ".rks"),
    "reading a shard": (fuse.READ, ".rks"),
    "reading the sums": (fuse.READ, ".sums"),
    "a file beside the shards": (fuse.LOOKUP, "python.json"),
}
LOCAL = {
    "the directory's name": (fuse.LOOKUP, "/local"),
    "listing the directory": (fuse.READDIR, "/local"),
    "a copy's home": (fuse.OPEN, "home.json"),
    "a shard's name": (fuse.LOOKUP, ".rks"),
    "opening a manifest": (fuse.OPEN, "MANIFEST"),
    "removing a shard": (fuse.UNLINK, ".rks"),
}


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Any]:
    """`ds`, and `local`, where it is staged from a home."""
    rows = [{"key": f"k{i}", "text": "w" * (50 + i * 37 % 900)} for i in range(2000)]
    rankstore.build(rows, tmp_path / "data" / "ds", key="key", length="text").close()
    shutil.copytree(tmp_path / "data" / "ds", tmp_path / "kept")
    rankstore.stage(tmp_path / "kept", tmp_path / "data" / "local")
    (tmp_path / "at1").symlink_to(tmp_path / "data")
    try:
        with fuse.Mount(str(tmp_path / "data"), str(tmp_path / "at0"), kept_s=0) as mounted:
            yield mounted
    except fuse.NotHere as why:
        pytest.skip(str(why))


def hang(mounted: Any, request_of: tuple[int, str], directory: str) -> None:
    at, name = request_of
    if name == "MANIFEST":
        name = next(Path(mounted.source, directory).rglob("part-*.json")).name
    mounted.hang(name, at=(at,))


def check(out: str, ranks: int, directory: str) -> None:
    for rank in range(ranks):
        told = [line for line in out.splitlines() if line.startswith(f"rank {rank}: ")]
        assert len(told) == 1 and "storage has not answered for 3.0 s" in told[0] and "`ls`" in told[0] and directory in told[0], out
        assert f"rank {rank} ended" in out, out


@pytest.mark.parametrize("request_of", list(SOURCE))
def test_a_publish_ends(mount: Any, tmp_path: Path, request_of: str) -> None:
    hang(mount, SOURCE[request_of], "ds")
    source = mount.target + "/ds"
    check(ended(start([], PUBLISH, source, str(tmp_path / "home")), mount), 1, source)
    rankstore.publish(source, tmp_path / "home")
    with rankstore.open(tmp_path / "home") as ds:
        assert [ds[i]["key"] for i in (0, 1000, 1999)] == ["k0", "k1000", "k1999"]
    assert not list((tmp_path / "home").glob("*.claim"))


@pytest.mark.parametrize("request_of", ["reading dataset.json", "reading a shard"])
def test_a_publish_ends_on_all_ranks(mount: Any, tmp_path: Path, request_of: str) -> None:
    hang(mount, SOURCE[request_of], "ds")
    program = start(MPIRUN, PUBLISH, str(tmp_path / "at{rank}" / "ds"), str(tmp_path / "home"))
    check(ended(program, mount, 2), 2, mount.target + "/ds")


@pytest.mark.parametrize("request_of", list(LOCAL))
def test_a_prune_of_copies_ends(mount: Any, request_of: str) -> None:
    hang(mount, LOCAL[request_of], "local")
    local = mount.target + "/local"
    check(ended(start([], PRUNE, local), mount), 1, local)
    rankstore.prune_local(local)
    left = {path.name for path in Path(mount.source, "local").rglob("*") if path.is_file()}
    assert left <= {"home.json", "dataset.json", "open.lock"}, left
