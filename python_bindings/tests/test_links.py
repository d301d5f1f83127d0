# SPDX-License-Identifier: Apache-2.0
"""Files that are symbolic links, as in a snapshot of a hub or with DVC: as sources, and as a dataset's own."""
from __future__ import annotations

import io
import json
import os
import shutil
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy
import pytest
from built import build, command, read

import rankstore


def snapshot(folder: Path, blobs: Path) -> None:
    """Move a folder's files into `blobs`, and leave links to them, relative as a hub writes them."""
    blobs.mkdir(exist_ok=True)
    for i, file in enumerate(sorted(folder.rglob("*"))):
        if file.is_file():
            blob = blobs / f"{folder.name}-{i}"
            file.rename(blob)
            file.symlink_to(os.path.relpath(blob, file.parent))


def lines(path: Path) -> None:
    path.write_text("".join(json.dumps({"x": i, "key": str(i)}) + "\n" for i in range(40)))


def table(path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet
    parquet.write_table(pa.table({"x": range(40)}), path)


def arrow(path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    made = pa.table({"x": range(40)})
    with pa.ipc.new_file(str(path), made.schema) as file:
        file.write_table(made)


def tar(path: Path) -> None:
    with tarfile.open(path, "w") as archive:
        for i in range(40):
            member = tarfile.TarInfo(f"{i:03}.cls")
            member.size = len(str(i))
            archive.addfile(member, io.BytesIO(str(i).encode()))


def packed(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(40):
            archive.writestr(f"{i:03}.cls", str(i))


MAKERS: dict[str, Any] = {
    "a.jsonl": lines, "a.csv": lambda path: path.write_text("x\n" + "".join(f"{i}\n" for i in range(40))),
    "a.json": lambda path: path.write_text(json.dumps([{"x": i} for i in range(40)])),
    "a.npy": lambda path: numpy.save(path, numpy.arange(40)), "a.parquet": table, "a.arrow": arrow, "a.tar": tar, "a.zip": packed}


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("how", ["file", "folder", "glob"])
def test_sources_that_are_links_are_read(name: str, how: str, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    MAKERS[name](folder / name)
    source = {"file": folder / name, "folder": folder, "glob": f"{folder}/*"}[how]
    build(source, tmp_path / "plain")
    snapshot(folder, tmp_path / "blobs")
    build(source, tmp_path / "linked")
    with rankstore.open(tmp_path / "plain") as plain, rankstore.open(tmp_path / "linked") as linked:
        assert plain.id == linked.id and len(plain) > 0


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    lines(tmp_path / "in.jsonl")
    build(tmp_path / "in.jsonl", tmp_path / "store", key="key")
    snapshot(tmp_path / "store", tmp_path / "blobs")
    assert all(file.is_symlink() for file in (tmp_path / "store").iterdir())
    return tmp_path / "store"


def test_a_dataset_of_links_is_read_and_verified(linked: Path, tmp_path: Path) -> None:
    assert [sample["x"] for sample in read(linked)] == list(range(40))
    for level in ((), ("--full",), ("--deep",)):
        command("verify", *level, linked)
    command("info", linked)
    command("export", linked, "-o", tmp_path / "out.jsonl")
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 40


def test_a_finished_dataset_of_links_opens_again_by_build(linked: Path, tmp_path: Path) -> None:
    with rankstore.build(tmp_path / "in.jsonl", linked, key="key") as ds:
        assert ds.report.kept and len(ds) == 40


def test_writing_replaces_links_and_leaves_what_they_lead_to(linked: Path, tmp_path: Path) -> None:
    before = {file.name: file.read_bytes() for file in (tmp_path / "blobs").iterdir()}
    (tmp_path / "more.jsonl").write_text('{"x": 40, "key": "40"}\n')
    build(tmp_path / "more.jsonl", linked, append=True)
    assert [sample["x"] for sample in read(linked)] == list(range(41))
    command("verify", "--full", linked)
    assert {file.name: file.read_bytes() for file in (tmp_path / "blobs").iterdir()} == before
    build(tmp_path / "more.jsonl", linked, replace=True)
    assert [sample["x"] for sample in read(linked)] == [40]
    assert {file.name: file.read_bytes() for file in (tmp_path / "blobs").iterdir()} == before


def test_a_merge_of_links_does_not_depend_on_them(linked: Path, tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"x": 99, "key": "other"}\n')
    build(tmp_path / "other.jsonl", tmp_path / "other", key="key")
    rankstore.merge([str(linked), str(tmp_path / "other")], str(tmp_path / "deeper/all"))
    shutil.rmtree(linked)
    assert not any(file.is_symlink() for file in (tmp_path / "deeper/all").iterdir())
    assert len(read(tmp_path / "deeper/all")) == 41


def test_a_link_that_leads_nowhere_is_named(linked: Path) -> None:
    file = next(linked.glob("*.rks"))
    file.unlink()
    file.symlink_to("nowhere")
    with pytest.raises(rankstore.CorruptError, match=f"{file.name}: a symbolic link that leads nowhere"):
        rankstore.open(linked)
