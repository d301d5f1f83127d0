# SPDX-License-Identifier: Apache-2.0
"""Files are as FORMAT.md says: a reader that knows the page alone (by_format.py) finds the samples, and every sum and field is right.

What version 0.2.0 wrote stays readable."""
from __future__ import annotations

import json
import struct
import sys
import tarfile
from pathlib import Path
from typing import Any

import golden
import numpy
import pytest
from by_format import Dataset, framed, reframed

import rankstore
from rankstore import errors

FIXTURE = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "0.2.0.tar.xz"


def check(directory: Path, name: str = "dataset.json") -> Any:
    """Read a dataset by the page, and compare it with what Rankstore reads."""
    found = Dataset(directory, name)
    samples = found.samples()
    found.check_id()
    found.check_index_files(samples)
    found.check_keys_of_lists()
    for shard in found.shards.values():
        shard.check_blocks()
    number = "" if name == "dataset.json" else "@" + name.split(".")[1]
    with rankstore.open(f"{directory}{number}") as ds:
        assert len(ds) == len(samples) and ds.id == found.there["dataset"]
        assert [int(length) for length in ds.lengths] == [length for _, length, _ in samples]
        for i, (key, _, columns) in enumerate(samples):
            assert ds.keys[i] == key
            sample = ds[i]
            for column, value in columns.items():
                same(sample[column], value, f"sample {i}, {column}")
    return found


def same(read: Any, stored: bytes | None, where: str) -> None:
    if stored is None:
        assert read is None, where
    elif isinstance(read, str):
        assert read.encode() == stored, where
    elif isinstance(read, bytes):
        assert read == stored, where
    elif isinstance(read, (dict, list)):
        assert read == json.loads(stored), where
    elif type(read).__module__ == "torch":  # bfloat16, in a process that has torch
        assert read.contiguous().view(sys.modules["torch"].uint8).numpy().tobytes() == stored, where
    elif hasattr(read, "tobytes"):
        assert read.tobytes() == stored, where
    else:
        kind = {bool: "?", float: "<f4", complex: "<c8"}.get(type(read)) or f"<{'u' if read >= 2**63 else 'i'}{len(stored)}"
        assert numpy.frombuffer(stored, kind)[0] == read, where


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = Path(tmp_path_factory.mktemp("format"))
    golden.make(place)
    return place


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = Path(tmp_path_factory.mktemp("golden"))
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(place, filter="data")
    return place


NAMES = ["types", "excluded", "derived", "stored", "files"]


@pytest.mark.parametrize("name", NAMES)
def test_files_are_as_the_page_says(name: str, made: Path) -> None:
    found = check(made / name)
    assert (name == "excluded") == bool(found.left_out) and (name in ("derived", "stored")) == bool(found.lists)
    assert name != "stored" or any(one.keys for one in found.lists)
    assert name != "types" or len(found.shards) > 3


@pytest.mark.parametrize("name", ["derived", "stored"])
def test_older_generations_are_as_the_page_says(name: str, made: Path) -> None:
    for number in (1, 5, 9):
        assert check(made / name, f"dataset.{number}.json").there["samples"] == 20 * number


@pytest.mark.parametrize("name", NAMES)
def test_what_version_0_2_0_wrote_stays_readable(name: str, kept: Path, tmp_path: Path) -> None:
    check(kept / name)
    rankstore.export(kept / name, tmp_path / "again.jsonl", progress=False)
    assert (tmp_path / "again.jsonl").read_bytes() == (kept / f"{name}.jsonl").read_bytes()


def test_a_dataset_of_version_0_2_0_is_added_to(kept: Path) -> None:
    with rankstore.build([{"t": [1, 2], "k": "new"}], kept / "stored", append=True, progress=False) as ds:
        assert len(ds) == 201 and ds.keys[200] == b"new"
    check(kept / "stored")


def test_another_format_is_refused_by_name(kept: Path) -> None:
    for edit, says in (
            (b'"major":1', r"format 2\.0; this build reads format 1"),
            (b'"requires":[', 'needs the feature "colours", which this build lacks')):
        path = kept / "excluded" / "dataset.json"
        text = path.read_bytes()
        other = b'"major":2' if edit == b'"major":1' else b'"requires":["colours",'
        path.write_bytes(reframed(text.replace(edit, other, 1).replace(b",]", b"]")))
        with pytest.raises(errors.RankStoreError, match=says):
            rankstore.open(kept / "excluded")
        path.write_bytes(text)
    assert framed(kept / "excluded" / "dataset.json")


def test_the_reader_finds_what_is_changed(made: Path) -> None:
    """It is no proof unless it does: each kind of place in the files, changed by a byte."""
    shard = next((made / "types").glob("part-*.rks"))
    data = bytearray(shard.read_bytes())
    manifest = framed(shard.with_suffix(".json"))
    record = Dataset(made / "types").shards[shard.stem].places[0]
    places = {"payload": record + 24, "check": record + 8, "index": manifest["segments"][0][3], "head": 40,
              "main": manifest["main"][0] + 20}
    for what, at in places.items():
        data[at] ^= 1
        shard.chmod(0o644)
        shard.write_bytes(data)
        with pytest.raises((AssertionError, struct.error, ValueError)):
            Dataset(made / "types").samples()
            pytest.fail(f"not found: {what}")
        data[at] ^= 1
    shard.write_bytes(data)
    check(made / "types")
