# SPDX-License-Identifier: Apache-2.0
"""Mosaic's MDS shards, as index.json lists them. A shard is a unit. `pkl` columns are refused: reading one runs what it
holds.

    u32 samples n | u32[n + 1] offsets | JSON | samples: u32 sizes of the columns without a fixed one, then the columns
"""
from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import CorruptError, UnsupportedError
from .source import Piece, Unit

_SCALARS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
_ARRAY_DTYPES = {8: "uint8", 9: "int8", 16: "uint16", 17: "int16", 18: "float16", 32: "uint32", 33: "int32",
                 34: "float32", 64: "uint64",
                 65: "int64", 66: "float64"}


def _decoder(path: str, name: str, encoding: str) -> tuple[str | None, Callable[[bytes], Any]]:
    """(type or None where samples say it, the value of its bytes)."""
    kind, *rest = encoding.split(":")
    if kind == "pkl":
        raise UnsupportedError(f'{path}: column "{name}" is pkl: reading a pickle runs what it holds; write it as '
                               'another encoding')
    if kind in ("bytes", "jpeg", "png"):
        return "bytes", bytes
    if kind == "str":
        return "str", lambda data: str(data, "utf-8")
    if kind == "json":
        return "json", _json
    if kind == "int":
        return "int64", lambda data: int.from_bytes(_exactly(data, 8), "little", signed=True)
    if kind in _SCALARS:
        import numpy
        dtype = numpy.dtype(kind)
        return kind, lambda data: numpy.frombuffer(_exactly(data, dtype.itemsize), dtype)[0].item()
    if kind == "str_int":
        return "int64", int
    if kind == "str_float":
        return "float64", float
    if kind == "ndarray":
        return _array_type(rest), lambda data: _array(data, rest)
    raise UnsupportedError(f'{path}: column "{name}": encoding {encoding} is not known')


def _json(data: bytes) -> Any:
    """The value; of a string its JSON text, which is what a json column takes a str for."""
    value = json.loads(data)
    return str(data, "utf-8") if isinstance(value, str) else value


def _exactly(data: bytes, size: int) -> bytes:
    if len(data) != size:
        raise ValueError(f"{len(data)} bytes where {size} belong")
    return data


def _array_type(rest: list[str]) -> str | None:
    if not rest:
        return None
    return f"{rest[0]}[{rest[1]}]" if len(rest) > 1 else None


def _array(data: bytes, rest: list[str]) -> Any:
    """u8 dtype (where the encoding has none), u8 rank and width of sizes, sizes (where the encoding has none),
    items."""
    import numpy
    at = 0
    if rest:
        dtype = rest[0]
    else:
        dtype, at = _ARRAY_DTYPES[data[0]], 1
    if len(rest) > 1:
        shape = [int(size) for size in rest[1].split(",")]
    else:
        rank, width = data[at] >> 2, ("u1", "<u2", "<u4", "<u8")[data[at] & 3]
        sizes = numpy.frombuffer(data, width, rank, at + 1)
        shape, at = [int(size) for size in sizes], at + 1 + sizes.nbytes
    return numpy.frombuffer(data, dtype, offset=at).reshape(shape).copy()


class MDS(Piece):
    """A directory with index.json. Shards may be raw or compressed (zstd through pyarrow, gz, bz2)."""

    def __init__(self, path: str, name: str) -> None:
        self.path, self.name = path, name
        with open(os.path.join(path, "index.json"), encoding="utf-8") as file:
            index = json.load(file)
        try:
            if index["version"] != 2:
                raise UnsupportedError(f"{path}: index.json has version {index['version']}; only 2 is known")
            self.shards = list(index["shards"])
            for shard in self.shards:
                if shard["format"] != "mds":
                    raise UnsupportedError(f"{path}: shards of format {shard['format']}; only mds is known")
                for file_name in (shard["raw_data"], shard.get("zip_data") or shard["raw_data"]):
                    if os.path.basename(file_name["basename"]) != file_name["basename"]:
                        raise CorruptError(f"{path}: index.json names {file_name['basename']!r}, which is no file of "
                                           "the directory")
        except (KeyError, TypeError) as bad:
            raise CorruptError(f"{path}: index.json lacks {bad}") from bad
        self._columns: dict[str, list[tuple[str, int | None, Callable[[bytes], Any]]]] = {}

    def identity(self) -> list[Any]:
        return ["mds", self.name, [[shard["raw_data"]["basename"], shard["samples"], shard["raw_data"]["bytes"]]
                                   for shard in self.shards]]

    def scan(self) -> tuple[list[Unit], dict[str, str] | None]:
        units = [Unit(f"{self.name}/{shard['raw_data']['basename']}", shard["raw_data"]["bytes"], (i,))
                 for i, shard in enumerate(self.shards)]
        schema: dict[str, str] | None = {}
        for shard in self.shards:
            for name, encoding in zip(shard["column_names"], shard["column_encodings"], strict=True):
                kind, _ = _decoder(self.path, name, encoding)
                if kind is None or schema is None or schema.get(name, kind) != kind:
                    schema = None
                else:
                    schema[name] = kind
        return units, schema

    def _load(self, shard: dict[str, Any]) -> bytes:
        """A shard's raw bytes."""
        raw = shard["raw_data"]
        path = os.path.join(self.path, raw["basename"])
        if os.path.exists(path):
            with open(path, "rb") as file:
                data = file.read()
        else:
            data = self._decompress(shard)
        if len(data) != raw["bytes"]:
            raise CorruptError(f"{path}: {len(data)} bytes, index.json says {raw['bytes']}")
        return data

    def _decompress(self, shard: dict[str, Any]) -> bytes:
        zipped = shard.get("zip_data")
        if not zipped:
            raise CorruptError(f"{self.path}: {shard['raw_data']['basename']} is missing")
        path, how = os.path.join(self.path, zipped["basename"]), str(shard.get("compression")).partition(":")[0]
        limit = int(shard["raw_data"]["bytes"])
        with open(path, "rb") as file:
            data = file.read()
        if how == "gz":
            import zlib
            return zlib.decompressobj(31).decompress(data, limit + 1)
        if how == "bz2":
            import bz2
            return bz2.BZ2Decompressor().decompress(data, limit + 1)
        if how == "zstd":
            from .arrow import import_pyarrow
            return bytes(import_pyarrow(path).decompress(data, decompressed_size=limit, codec="zstd", asbytes=True))
        raise UnsupportedError(f"{path}: compression {how} is not known; decompress it, or use zstd or gz")

    def read(self, unit: Unit) -> Iterator[Any]:
        shard = self.shards[unit.at[0]]
        data = self._load(shard)
        columns = [(name, size, _decoder(self.path, name, encoding)[1]) for name, encoding, size in
                   zip(shard["column_names"], shard["column_encodings"], shard["column_sizes"], strict=True)]
        count = struct.unpack_from("<I", data)[0] if len(data) >= 4 else -1
        if count != shard["samples"] or 8 + 4 * count > len(data):
            raise CorruptError(f"{unit.name}: {count} samples, index.json says {shard['samples']}")
        offsets = struct.unpack_from(f"<{count + 1}I", data, 4)
        for start, stop in zip(offsets, offsets[1:], strict=False):
            yield columns, data[start:stop]

    def decode(self, raw: Any) -> dict[str, Any]:
        columns, data = raw
        open_sizes = sum(size is None for _, size, _ in columns)
        sizes = iter(struct.unpack_from(f"<{open_sizes}I", data))
        at, sample = 4 * open_sizes, {}
        for name, size, decode in columns:
            stop = at + (next(sizes) if size is None else size)
            if stop > len(data):
                raise ValueError(f'column "{name}" ends behind the sample')
            sample[name] = decode(data[at:stop])
            at = stop
        return sample
