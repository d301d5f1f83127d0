# SPDX-License-Identifier: Apache-2.0
"""Checksums that a source itself has: hashes in the index of MDS shards, and of the pages of Parquet."""
from __future__ import annotations

import gzip
import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
from built import build, command, read

from rankstore.errors import DataError

COUNT = 300
VALUES = numpy.random.default_rng(5).integers(0, 1 << 30, COUNT)


def shard_of() -> bytes:
    samples = [struct.pack("<q", value) for value in VALUES.tolist()]
    begin = 4 * (COUNT + 2)
    places = [begin + 8 * i for i in range(COUNT + 1)]
    return struct.pack(f"<I{COUNT + 1}I", COUNT, *places) + b"".join(samples)


def write(folder: Path, hashes: dict[str, str], data: bytes, packed: bool = False) -> Path:
    folder.mkdir()
    name = "shard.00000.mds"
    raw = {"basename": name, "bytes": len(data), "hashes": hashes}
    stored = gzip.compress(data) if packed else data
    zipped = {"basename": name + ".gz", "bytes": len(stored), "hashes": {}} if packed else None
    (folder / (name + ".gz" if packed else name)).write_bytes(stored)
    shard = {"format": "mds", "version": 2, "samples": COUNT, "column_names": ["x"], "column_encodings": ["int"], "column_sizes": [8],
             "compression": "gz" if packed else None, "hashes": list(hashes), "zip_data": zipped, "size_limit": 1 << 26, "raw_data": raw}
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))
    return folder


def xxh(name: str) -> Callable[[bytes], str]:
    xxhash = pytest.importorskip("xxhash")
    return lambda data: str(getattr(xxhash, name)(data).hexdigest())


def hashes_of(data: bytes, name: str) -> dict[str, str]:
    return {name: xxh(name)(data) if name.startswith("xxh") else hashlib.new(name, data).hexdigest()}


@pytest.mark.parametrize("name", ["sha1", "sha256", "xxh32", "xxh64", "xxh3_64", "xxh128"])
@pytest.mark.parametrize("packed", [False, True])
def test_hashes_of_mds_shards_are_verified(name: str, packed: bool, tmp_path: Path) -> None:
    data = shard_of()
    hashes = hashes_of(data, name)
    build(write(tmp_path / "good", hashes, data, packed), tmp_path / "out")
    assert [sample["x"] for sample in read(tmp_path / "out")] == VALUES.tolist()
    bad = bytearray(data)
    bad[-COUNT] ^= 1
    source = write(tmp_path / "bad", hashes, bytes(bad), packed)
    for given in ({}, {"map": dict}):
        with pytest.raises(DataError, match=f"shard.00000.mds.*: its {name} is not the one in index.json: the shard is damaged"):
            build(source, tmp_path / "refused", **given)
        build(source, tmp_path / f"unchecked{len(given)}", check_source=False, **given)
        assert len(read(tmp_path / f"unchecked{len(given)}")) == COUNT


def test_the_command_line_checks_unless_it_is_told_not_to(tmp_path: Path) -> None:
    data = shard_of()
    source = write(tmp_path / "in", {"sha1": "0" * 40}, data)
    command("build", source, "-o", tmp_path / "out", code=1)
    command("build", source, "-o", tmp_path / "out", "--no-check-source")
    assert len(read(tmp_path / "out")) == COUNT


def test_the_command_line_turns_parquets_checksums_off_too(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet
    path = tmp_path / "in.parquet"
    parquet.write_table(pa.table({"x": numpy.arange(1000)}), path, compression="none", use_dictionary=False, write_page_checksum=True)
    changed = bytearray(path.read_bytes())
    changed[changed.index(numpy.int64(500).tobytes())] ^= 1
    path.write_bytes(changed)
    command("build", path, "-o", tmp_path / "out", code=1)
    command("build", path, "-o", tmp_path / "out", "--no-check-source")
    assert [sample["x"] for sample in read(tmp_path / "out")][500] == 501


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 65, 119, 120, 128, 1000])
@pytest.mark.parametrize("name", ["sha1", "sha256"])
def test_hashes_of_any_size(name: str, size: int, tmp_path: Path) -> None:
    """A trailing column of bytes gives the shard any size."""
    sample = struct.pack("<I", size) + bytes(i % 251 for i in range(size))
    data = struct.pack("<III", 1, 12, 12 + len(sample)) + sample
    folder = write(tmp_path / "in", hashes_of(data, name), data)
    index = json.loads((folder / "index.json").read_text())
    index["shards"][0].update(samples=1, column_encodings=["bytes"], column_sizes=[None])
    (folder / "index.json").write_text(json.dumps(index))
    build(folder, tmp_path / "out")
    assert len(read(tmp_path / "out")[0]["x"]) == size


def test_a_changed_byte_of_parquet_is_found_by_the_checksum_of_its_page(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet
    path = tmp_path / "in.parquet"
    parquet.write_table(pa.table({"x": numpy.arange(1000)}), path, compression="none", use_dictionary=False, write_page_checksum=True)
    build(str(path), tmp_path / "good")
    data = bytearray(path.read_bytes())
    data[data.index(numpy.int64(500).tobytes())] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="in.parquet: .*checksum"):
        build(str(path), tmp_path / "bad")
