# SPDX-License-Identifier: Apache-2.0
"""Reads a dataset by FORMAT.md alone, without Rankstore, and checks all that the page says of its files.

An AssertionError names what differs."""
from __future__ import annotations

import json
import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import lmdb
import numpy
import xxhash

ROWS = 4_194_304  # of a segment
MIB = 1 << 20
Sample = tuple[bytes, int, dict[str, "bytes | None"]]  # key, length, columns
SIZES = {"bool": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "str": 1, "bytes": 1, "json": 1, "int16": 2, "uint16": 2,
         "float16": 2, "bfloat16": 2, "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8, "complex64": 8}


def digest(data: Any) -> int:
    return int(xxhash.xxh3_128_intdigest(data))


def short(data: Any) -> int:
    return int(xxhash.xxh3_64_intdigest(data))


def stored(value: int) -> bytes:
    """A digest as files hold it: the low half first."""
    return value.to_bytes(16, "little")


def padded(size: int, to: int) -> int:
    return -(-size // to) * to


def framed(path: Path) -> Any:
    """A JSON file, whose end is the digest of its text."""
    text = path.read_bytes()
    assert re.fullmatch(rb',"digest":"[0-9a-f]{32}"}\n', text[-46:]), path
    assert digest(text[:-35] + b"0" * 32 + text[-3:]) == int(text[-35:-3], 16), path
    found = json.loads(text)
    assert list(found)[:2] == ["format", "requires"] and found["format"] == {"major": 1, "minor": 0}, path
    return found


def reframed(text: bytes) -> bytes:
    """The text of such a file, changed, with the digest that it has now."""
    return text[:-35] + b"%032x" % digest(text[:-35] + b"0" * 32 + text[-3:]) + text[-3:]


@dataclass(frozen=True)
class Column:
    name: str
    item: str
    dims: list[int | None]
    nullable: bool

    @classmethod
    def of(cls, name: str, kind: str) -> Column:
        found = re.fullmatch(r"([a-z0-9_]+)(\([a-z_]+\))?(?:\[([0-9*,]+)\])?(\?)?", kind)
        assert found, kind
        item = found[1]
        given = found[3].split(",") if found[3] else ["*"] * (item in ("str", "bytes", "json"))
        return cls(name, item, [None if one == "*" else int(one) for one in given], found[4] is not None)


def parse(schema: dict[str, str], payload: bytes) -> dict[str, bytes | None]:
    """The bytes of each column of a payload."""
    columns = [Column.of(name, kind) for name, kind in schema.items()]
    at, nullable = 0, sum(column.nullable for column in columns)
    sizes = []
    for column in columns:
        variable = column.dims.count(None)
        given = iter(struct.unpack_from(f"<{variable}I", payload, at))
        at += 4 * variable
        size = SIZES[column.item]
        for dim in column.dims:
            size *= next(given) if dim is None else dim
        sizes.append(size)
    bits = payload[at:at + (nullable + 7) // 8]
    assert nullable % 8 == 0 or bits[-1] >> nullable % 8 == 0, "unused bits of the bitmap"
    at += len(bits)
    found: dict[str, bytes | None] = {}
    bit = 0
    for column, size in zip(columns, sizes, strict=True):
        missing = column.nullable and bits[bit // 8] >> bit % 8 & 1
        bit += column.nullable
        if missing:
            assert column.dims.count(None) == 0 or size == 0, column
            found[column.name] = None
            continue
        start = padded(at, 64 if size >= 4096 else SIZES[column.item])
        assert payload[at:start] == bytes(start - at), "gaps are zeros"
        found[column.name] = payload[start:start + size]
        at = start + size
    assert at == len(payload), "it ends with the last column's last byte"
    return found


@dataclass
class Record:
    payload: bytes
    key: bytes  # b"": derived
    length: int
    source_row: int
    check: int
    end: int  # its place in the file


def record_at(data: Any, at: int) -> Record:
    assert at % 8 == 0
    size, length, check, key_size, flags, row = struct.unpack_from("<IIQHHI", data, at)
    begin = at + 24
    assert 0 < size <= 2_147_418_112 and key_size <= 511 and flags in (0, 1) and begin % (64 if flags else 8) == 0, at
    end = begin + size + key_size
    return Record(bytes(data[begin:begin + size]), bytes(data[begin + size:end]), length, row, check, end)


@dataclass
class Unit:
    unit: int
    row: int
    samples: int
    seen: int
    filtered: int
    bad: int
    size: int
    first_source_row: int
    digest: int
    key_name: bytes

    @classmethod
    def read(cls, data: bytes, at: int) -> tuple[Unit, int, int, int]:
        """A unit, the fields at 80 and 92, and where the next one begins."""
        fields = struct.unpack_from("<8Q", data, at)
        size = struct.unpack_from("<I", data, at + 88)[0]
        end = at + padded(96 + size, 8)
        assert data[at + 96 + size:end] == bytes(end - at - 96 - size)
        last, last32 = struct.unpack_from("<Q", data, at + 80)[0], struct.unpack_from("<I", data, at + 92)[0]
        return cls(*fields, int.from_bytes(data[at + 64:at + 80], "little"), data[at + 96:at + 96 + size]), last, last32, end


class Shard:
    """A sealed shard: `name` without the endings."""

    def __init__(self, path: Path) -> None:
        self.path, self.manifest = path, framed(path.with_suffix(".json"))
        m = self.manifest
        self.id, self.schema = int(m["shard"], 16), m["schema"]
        file = open(path.with_suffix(".rks"), "rb")  # noqa: SIM115
        self.data: mmap.mmap = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        self._check_file()
        self.segments: dict[str, bytes] = {}
        self._read_segments()
        units, at = [], 0
        while at < len(self.segments["units"]):
            unit, zero, zero32, at = Unit.read(self.segments["units"], at)
            assert zero == zero32 == 0
            units.append(unit)
        self.units = units
        assert len(units) == m["units"] and sum(unit.samples for unit in units) == m["samples"]

    def _check_file(self) -> None:
        m, page = self.manifest, self.manifest["page_size"]
        assert set(m["requires"]) == {"shard_in_main", *(["shard_in_blocks"] if m["samples"] else [])}
        assert len(self.data) == m["file_size"]
        assert digest(self.data[:2 * page]) == int(m["head"], 16)
        at, main = m["main"]
        entry = self.data[at:at + page]
        assert digest(entry) == int(main, 16) and b"shard" in entry and stored(self.id) in entry
        sums = self.path.with_suffix(".sums").read_bytes()
        assert digest(sums) == int(m["sums"], 16)
        assert sums == b"".join(stored(digest(self.data[at:at + MIB])) for at in range(0, len(self.data), MIB))

    def _read_segments(self) -> None:
        order = ["lengths", "key_hashes", "locators", "offsets", *(f"column {name}" for name in self.manifest["index"]), "units"]
        last = -1
        for kind, first, rows, at, size, check, *name in self.manifest["segments"]:
            kind = " ".join([kind, *name])
            data = self.data[at:at + size]
            assert short(data) == int(check, 16) and order.index(kind) >= last and rows <= ROWS and first % ROWS == 0, kind
            last = order.index(kind)
            self.segments[kind] = self.segments.get(kind, b"") + data

    @cached_property
    def places(self) -> list[int]:
        """File offsets of the records."""
        count = self.manifest["samples"]
        if "offsets" in self.segments:
            return list(numpy.frombuffer(self.segments["offsets"], "<u8"))
        data, places = self.segments.get("locators", b""), []
        for begin in range(0, count, ROWS):
            rows = min(ROWS, count - begin)
            bases = numpy.frombuffer(data, "<u8", -(-rows // 64))
            deltas = numpy.frombuffer(data, "<u4", rows, 8 * len(bases))
            data = data[8 * len(bases) + 4 * rows:]
            places += [int(bases[i // 64]) + 8 * int(deltas[i]) for i in range(rows)]
        assert data == b""
        return places

    def key(self, unit: Unit, record: Record) -> bytes:
        if not self.manifest["derived_keys"]:
            return record.key
        assert record.key == b""
        return b"%b:%d" % (unit.key_name, unit.first_source_row + record.source_row)

    def samples(self, unit: Unit) -> Iterator[tuple[bytes, Record]]:
        """(key, record) of each sample of a unit, checked against the index and the unit's digest."""
        lengths, hashes = (numpy.frombuffer(self.segments[kind], kind_of) for kind, kind_of in (("lengths", "<u4"), ("key_hashes", "<u8")))
        sums, size = xxhash.xxh3_128(), 0
        for row in range(unit.row, unit.row + unit.samples):
            record = record_at(self.data, self.places[row])
            key = self.key(unit, record)
            check = struct.pack("<Q16sQQII", short(record.payload), stored(self.id), row, short(key), record.length, len(record.payload))
            assert record.check == short(check) and record.length == lengths[row] and short(key) == hashes[row], (unit, row)
            sums.update(struct.pack("<QQII", short(record.payload), short(key), record.length, len(record.payload)))
            size += sum(len(value) for value in parse(self.schema, record.payload).values() if value is not None) + len(record.key)
            yield key, record
        assert sums.intdigest() == unit.digest and size == unit.size, unit

    def check_blocks(self) -> None:
        """By LMDB: its databases hold the same records, block by block, and the units."""
        with lmdb.open(str(self.path.with_suffix(".rks")), subdir=False, readonly=True, lock=False, max_dbs=3) as env, env.begin() as read:
            assert read.get(b"shard") == stored(self.id)
            blocks, units, index = (env.open_db(name, read, create=False) for name in (b"blocks", b"units", b"index"))
            row, numbers = 0, {unit.unit: unit for unit in self.units}
            for number, (key, block) in enumerate(read.cursor(blocks)):
                assert key == struct.pack(">Q", number)
                row = self._check_block(block, numbers, row)
            assert row == self.manifest["samples"]
            for number, (key, value) in enumerate(read.cursor(units)):
                unit, _, check, end = Unit.read(value, 0)
                assert key == struct.pack(">Q", number) and end == len(value) and unit == self.units[number]
                assert check == (short(value[:92] + bytes(4) + value[96:]) & 0xffffffff or 1)
            self._check_build(read.get(b"build", db=index) or b"")

    def _check_block(self, block: bytes, units: dict[int, Unit], row: int) -> int:
        magic, version, codec, flags, count, number, first, size, half, sum_of, check = struct.unpack_from("<4sHHIIQQQQQQ", block)
        assert (magic, version, codec, flags, half) == (b"RKSB", 2, 0, 0, self.id >> 64)
        assert short(block[:56]) == check and short(block[64:64 + size]) == sum_of and block[64 + size:] == bytes(len(block) - 64 - size)
        unit, at = units[number], 64
        assert unit.row + first == row
        for _ in range(count):
            while block[at:at + 8] == bytes(8):
                at += 8
            record = struct.unpack_from("<IIQHHI", block, at)
            end = at + 24 + record[0] + record[3]
            place = self.places[row]
            assert self.data[place:place + end - at] == block[at:end], row
            at, row = padded(end, 8), row + 1
        assert block[at:64 + size] == bytes(max(0, 64 + size - at))
        return row

    def _check_build(self, value: bytes) -> None:
        m = self.manifest
        text = json.dumps(self.schema, ensure_ascii=False, separators=(",", ":")).encode()
        columns = [list(self.schema).index(name) for name in m["index"]]
        head = struct.pack("<4sHH16s16sII", b"RKSP", 1, m["derived_keys"], stored(self.id), stored(int(m["build"], 16)), len(text),
                           len(columns))
        whole = head + struct.pack(f"<{len(columns)}I", *columns) + text
        assert value == whole + struct.pack("<Q", short(whole))


class Listed:
    """What list-DIGITS.units says of shards and units, as dataset.json would, and the hashes of list-DIGITS.keys."""

    def __init__(self, directory: Path, entry: Any) -> None:
        path = directory / entry["name"]
        data = path.read_bytes()
        magic, version, shards, units = struct.unpack_from("<4sIQQ", data)
        assert (magic, shards, units, len(data)) == (b"RKSU", entry["shards"], entry["units"], entry["bytes"]) and version in (1, 2)
        assert digest(data) == int(entry["digest"], 16) and entry["digest"][:16] in entry["name"]
        at, self.shards, self.units = 24, [], []
        for _ in range(shards):
            one, manifest, build, *numbers = struct.unpack_from("<16s16s16s5Q2I", data, at)
            first_unit, samples, size, file_bytes, largest, name, origin = numbers
            text = data[at + 96:at + 96 + name + origin]
            end = at + padded(96 + name + origin, 8)
            assert data[at + 96 + len(text):end] == bytes(end - at - 96 - len(text)) and version == 2 - (origin == 0 and version == 1)
            hexes = {key: f"{int.from_bytes(value, 'little'):032x}" for key, value in
                     (("id", one), ("manifest", manifest), ("build", build))}
            self.shards.append({**hexes, "first_unit": first_unit, "samples": samples, "bytes": size, "file_bytes": file_bytes,
                                "largest": largest, "name": text[:name].decode()})
            at = end
        for _ in range(units):
            unit, place, zero, at = Unit.read(data, at)
            assert zero == 0
            self.units.append({**vars(unit), "bytes": unit.size, "first_row": unit.row, "digest": f"{unit.digest:032x}", "shard": place})
        assert at == len(data)
        self.keys = self._keys(path.with_suffix(".keys"), digest(data)) if path.with_suffix(".keys").exists() else None

    @staticmethod
    def _keys(path: Path, of: int) -> bytes:
        data = path.read_bytes()
        magic, version, units, count = struct.unpack_from("<4sI16sQ", data)
        assert (magic, version, units, len(data)) == (b"RKSK", 1, stored(of), 48 + 8 * count) and data[-16:] == stored(digest(data[:-16]))
        return data[32:-16]


@dataclass
class Dataset:
    """All of a dataset whose shards lie in its directory."""

    directory: Path
    name: str = "dataset.json"
    there: Any = field(init=False)

    def __post_init__(self) -> None:
        self.there = framed(self.directory / self.name)
        assert ("lists" in self.there["requires"]) == ("lists" in self.there)
        self.lists = [Listed(self.directory, one) for one in self.there.get("lists", [])]
        parts = [*((one.shards, one.units) for one in self.lists), (self.there["shards"], self.there["units"])]
        self.entries = [(shards[unit["shard"]], unit) for shards, units in parts for unit in units]
        every = [shard for shards, _ in parts for shard in shards]
        assert all([one["id"] for one in shards] == sorted(one["id"] for one in shards) for shards, _ in parts)
        self.shards = {one["name"]: Shard(self.directory / one["name"]) for one in every}
        for one in every:
            shard = self.shards[one["name"]]
            files = [shard.path.with_suffix(end) for end in (".rks", ".sums", ".json")]
            assert (shard.id, shard.manifest["samples"], shard.manifest["bytes"], shard.manifest["largest"]) == \
                (int(one["id"], 16), one["samples"], one["bytes"], one["largest"])
            assert one["file_bytes"] == sum(file.stat().st_size for file in files)
            assert one["manifest"] == files[2].read_text()[-35:-3] and one.get("build", self.there["build"]) == shard.manifest["build"]
        self.left_out = self._excluded()

    def _excluded(self) -> set[int]:
        if "excluded" not in self.there:
            return set()
        data = (self.directory / self.there["excluded"]["name"]).read_bytes()
        magic, version, count = struct.unpack_from("<4sIQ", data)
        assert (magic, version, len(data)) == (b"RKSX", 1, 16 + 8 * count) and digest(data) == int(self.there["excluded"]["digest"], 16)
        return {at + i for at, size in struct.iter_unpack("<II", data[16:]) for i in range(size)}

    def units(self) -> Iterator[tuple[Shard, Unit]]:
        """The units in the order of samples, as shards have them."""
        for entry, one in self.entries:
            shard = self.shards[entry["name"]]
            unit = next(unit for unit in shard.units if unit.row == one["first_row"] and unit.samples == one["samples"])
            assert unit.unit + entry.get("first_unit", 0) == one["unit"] and unit.digest == int(one["digest"], 16)
            assert (unit.seen, unit.filtered, unit.bad, unit.size, unit.first_source_row) == \
                (one["seen"], one["filtered"], one["bad"], one["bytes"], one["first_source_row"])
            yield shard, unit

    def samples(self) -> list[Sample]:
        """(key, length, columns) of each sample, by its id."""
        every = [(key, record.length, parse(shard.schema, record.payload)) for shard, unit in self.units()
                 for key, record in shard.samples(unit)]
        return [one for at, one in enumerate(every) if at not in self.left_out]

    def check_id(self) -> None:
        text = json.dumps(self.there["schema"], ensure_ascii=False, separators=(",", ":")).encode()
        found = digest(text)
        for _, unit in self.units():
            found = digest(stored(found) + stored(unit.digest) + struct.pack("<Q", unit.samples))
        if self.left_out:
            found = digest(stored(found) + stored(int(self.there["excluded"]["digest"], 16)))
        assert found == int(self.there["dataset"], 16)

    def check_keys_of_lists(self) -> None:
        for one in self.lists:
            if one.keys is not None:
                few = (self.shards[entry["name"]] for entry in one.shards if entry["samples"] <= 4096)
                assert one.keys == b"".join(shard.segments["key_hashes"] for shard in few)

    def check_index_files(self, samples: list[Sample]) -> None:
        kinds = ["<u4", "<u8", *(f"V{SIZES[Column.of(name, self.there['schema'][name]).item]}" for name in self.there["index"])]
        first = 0
        for one in self.there.get("index_files", []):
            data = (self.directory / one["name"]).read_bytes()
            magic, version, count, rows, arrays = struct.unpack_from("<4sIQII", data)
            assert (magic, version, rows, arrays, len(data)) == (b"RKSI", 1, ROWS, len(kinds), one["bytes"]) and count == one["samples"]
            sizes = [numpy.dtype(kind).itemsize for kind in kinds]
            assert list(struct.unpack_from(f"<{arrays}I", data, 24)) == sizes
            sums = padded(24 + 4 * arrays, 8)
            parts = -(-count // rows)
            head = padded(sums + 16 * arrays * parts, 64)
            assert digest(data[:head]) == int(one["digest"], 16) and one["digest"][:16] in one["name"]
            at, columns = head, []
            for size in sizes:
                for part in range(parts):
                    begin = at + part * rows * size
                    assert data[sums:sums + 16] == stored(digest(data[begin:min(begin + rows * size, at + count * size)]))
                    sums += 16
                columns.append(data[at:at + count * size])
                at = padded(at + count * size, 64)
            assert at == len(data)
            mine = samples[first:first + count]
            assert columns[0] == struct.pack(f"<{count}I", *(length for _, length, _ in mine))
            assert columns[1] == struct.pack(f"<{count}Q", *(short(key) for key, _, _ in mine))
            for name, column in zip(self.there["index"], columns[2:], strict=True):
                assert column == b"".join(values[name] or b"" for _, _, values in mine), name
            first += count
        assert first in (0, len(samples))
