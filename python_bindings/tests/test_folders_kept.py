# SPDX-License-Identifier: Apache-2.0
"""Archives and folders: what is data in them, and what is not; and a dataset that is replaced after an edit."""
from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from built import build, command, read

from rankstore.errors import ArgumentError, DataError


def arrow() -> Any:
    return pytest.importorskip("pyarrow")


# ---- tar files

def tar_of(*names: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(name)
            archive.addfile(info, io.BytesIO(name.encode()))
    return made.getvalue()


@pytest.mark.parametrize("name", ["two.tar", "two.tar.gz", "members.tar.gz"])
def test_tars_one_after_another_in_one_file_are_read(name: str, tmp_path: Path) -> None:
    first, second = tar_of("a.txt", "b.txt"), tar_of("c.txt")
    whole = {"two.tar": first + second, "two.tar.gz": gzip.compress(first + second),
             "members.tar.gz": gzip.compress(first) + gzip.compress(second)}[name]
    (tmp_path / name).write_bytes(whole)
    build(str(tmp_path / name), tmp_path / "out")
    assert [one["txt"] for one in read(tmp_path / "out")] == ["a.txt", "b.txt", "c.txt"]


@pytest.mark.parametrize("damage", ["cut", "sum"])
def test_damage_after_the_end_of_a_packed_tar_is_found(damage: str, tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(tar_of("a.txt", "b.txt")))
    if damage == "cut":
        del packed[-8:]
    else:
        packed[-6] ^= 1
    (tmp_path / "a.tar.gz").write_bytes(packed)
    with pytest.raises(DataError, match="a.tar.gz: damaged at about byte .* gzip: (cut, the end is missing|incorrect data check)"):
        build(str(tmp_path / "a.tar.gz"), tmp_path / "out")


# ---- a replaced dataset is inferred anew

@pytest.mark.parametrize(("old", "new", "columns"), [
    ('{"y":"cat"}\n', '{"y":12345}\n', {"y": 12345}), ('{"y":1.5}\n', '{"y":123}\n', {"y": 123}), ('{"x":1}\n', '{"z":2}\n', {"z": 2}),
])
@pytest.mark.parametrize("by", ["command", "python"])
def test_a_replacement_infers_its_schema_anew(by: str, old: str, new: str, columns: dict[str, int], tmp_path: Path) -> None:
    for text in (old, new):
        (tmp_path / "a.jsonl").write_text(text)
        if by == "command":
            command("build", tmp_path / "a.jsonl", "-o", tmp_path / "out", "--replace")
        else:
            build(str(tmp_path / "a.jsonl"), tmp_path / "out", replace=True)
    (found,) = read(tmp_path / "out")
    assert found == columns and all(type(found[name]) is int for name in columns)


# ---- folders

def parquet_folder(folder: Path, *names: str) -> Path:
    pa = arrow()
    import pyarrow.parquet as parquet
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table({"a": [1, 2]}), folder / name)
    return folder


@pytest.mark.parametrize("name", [".ipynb_checkpoints/x-checkpoint.parquet", "_temporary/0/x.parquet", ".x.parquet", ".gitattributes",
                                  ".DS_Store", ".x.parquet.crc", "_SUCCESS", "_metadata", "README.md", "x.parquet.sha256", "LICENSE"])
def test_what_tools_leave_beside_data_is_not_read(name: str, tmp_path: Path) -> None:
    folder = parquet_folder(tmp_path / "in", "x.parquet", "sub/Y.PARQUET")
    if name.endswith(".parquet"):
        parquet_folder(folder, name)
    else:
        (folder / name).write_text("{}")
    build(str(folder), tmp_path / "out")
    assert [one["a"] for one in read(tmp_path / "out")] == [1, 2, 1, 2]


def test_a_folder_of_datasets_and_other_files_is_refused(tmp_path: Path) -> None:
    folder = parquet_folder(tmp_path / "in", "x.parquet")
    (folder / "notes.txt").write_text("a")
    with pytest.raises(ArgumentError, match='holds x.parquet, a dataset, and notes.txt, which is none; .* format="folder"'):
        build(str(folder), tmp_path / "out")
    build(str(folder), tmp_path / "out", format="folder")
    assert sorted(one["path"] for one in read(tmp_path / "out")) == ["notes.txt", "x.parquet"]


def test_folders_with_values_of_a_column_are_refused(tmp_path: Path) -> None:
    folder = parquet_folder(tmp_path / "in", "lang=en/x.parquet", "lang=de/x.parquet")
    with pytest.raises(ArgumentError, match=r"have values of a column \(lang=de\), which is not read"):
        build(str(folder), tmp_path / "out")


def test_what_save_to_disk_wrote_is_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    one = datasets.Dataset.from_dict({"a": [1, 2]})
    one.save_to_disk(str(tmp_path / "one"))
    build(str(tmp_path / "one"), tmp_path / "out")
    assert [sample["a"] for sample in read(tmp_path / "out")] == [1, 2]
    datasets.DatasetDict({"train": one, "test": one}).save_to_disk(str(tmp_path / "both"))
    with pytest.raises(ArgumentError, match="DatasetDict; give one of its splits: .*both/test, .*both/train"):
        build(str(tmp_path / "both"), tmp_path / "out2")


def test_a_line_says_that_files_of_a_folder_are_samples(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.jsonl").write_text('{"x": 1}\n')
    (tmp_path / "in/_SUCCESS").write_text("")
    build(tmp_path / "in", tmp_path / "out")
    assert "each file of the folder is a sample" in capfd.readouterr().err
    build(tmp_path / "in", tmp_path / "asked", format="folder")
    build(tmp_path / "in/a.jsonl", tmp_path / "lines")
    assert "each file" not in capfd.readouterr().err
