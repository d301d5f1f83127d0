# SPDX-License-Identifier: Apache-2.0
"""Megatron's indexed dataset: NAME.bin holds tokens, NAME.idx says where sequences lie.

    9 bytes "MMIDIDX\\0\\0" | u64 version 1 | u8 dtype | u64 sequences n | u64 documents m | i32[n] sizes | i64[n] byte
    offsets | i64[m]

A sample is a sequence; its column is "tokens". Sizes and offsets are checked against both files before anything is
read.
"""
from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Any

from ..errors import CorruptError, UnsupportedError
from .columns import Columns
from .source import Piece, Unit

_MAGIC = b"MMIDIDX\0\0"
_DTYPES = {1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float64", 7: "float32", 8: "uint16"}
_HEAD = 34
_PIECE = 4096  # sequences taken over at once


class Megatron(Piece):
    """`path`: of the .bin or the .idx file."""

    UNIT_BYTES = 16 << 20

    def __init__(self, path: str, name: str) -> None:
        self.base = os.path.splitext(path)[0]
        self.name = os.path.splitext(name)[0]
        self._index: tuple[str, Any, Any] | None = None

    def identity(self) -> list[Any]:
        return ["megatron", self.name, *(os.path.getsize(self.base + ending) for ending in (".idx", ".bin"))]

    def _open(self) -> tuple[str, Any, Any]:
        """(dtype, sizes in items, offsets in bytes)."""
        if self._index is None:
            self._index = _read_index(self.base + ".idx", self.base + ".bin")
        return self._index

    def scan(self) -> tuple[list[Unit], dict[str, str] | None]:
        import numpy
        dtype, sizes, _ = self._open()
        ends = numpy.cumsum(sizes, dtype=numpy.int64) * numpy.dtype(dtype).itemsize
        units, start = [], 0
        while start < len(sizes):
            before = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(numpy.searchsorted(ends, before + self.UNIT_BYTES, "right")))
            units.append(Unit(f"{self.name}@{start}", int(ends[stop - 1]) - before, (start, stop)))
            start = stop
        return units, {"tokens": f"{dtype}[*]"}

    def read(self, unit: Unit) -> Iterator[tuple[int, int]]:
        first, last = unit.at
        for start in range(first, last, _PIECE):
            yield start, min(start + _PIECE, last)

    def decode(self, raw: tuple[int, int]) -> Columns:
        import numpy
        dtype, all_sizes, all_offsets = self._open()
        sizes, offsets = all_sizes[raw[0]:raw[1]], all_offsets[raw[0]:raw[1]]
        item = numpy.dtype(dtype).itemsize
        ends = numpy.zeros(len(sizes) + 1, dtype=numpy.int64)
        numpy.cumsum(sizes, out=ends[1:])
        data = numpy.memmap(self.base + ".bin", dtype="uint8", mode="r") if os.path.getsize(self.base + ".bin") else \
            numpy.empty(0, dtype="uint8")
        if numpy.array_equal(offsets, offsets[0] + ends[:-1] * item):
            values = data[offsets[0]:offsets[0] + ends[-1] * item]
        else:
            values = numpy.concatenate([data[at:at + size * item]
                                        for at, size in zip(offsets.tolist(), sizes.tolist(), strict=True)])
        return Columns({"tokens": (numpy.frombuffer(values.tobytes(), dtype=dtype), ends)})


def _read_index(index_path: str, data_path: str) -> tuple[str, Any, Any]:
    import numpy
    size = os.path.getsize(index_path)
    with open(index_path, "rb") as file:
        head = file.read(_HEAD)
    if len(head) < _HEAD or not head.startswith(_MAGIC):
        raise CorruptError(f"{index_path}: no index of Megatron's (MMIDIDX)")
    version, code, count, documents = struct.unpack("<QBQQ", head[9:])
    if version != 1:
        raise UnsupportedError(f"{index_path}: version {version}; only 1 is known")
    if code not in _DTYPES:
        raise CorruptError(f"{index_path}: dtype code {code}; 1 to 8 are known")
    if _HEAD + count * 12 + documents * 8 > size:
        raise CorruptError(f"{index_path}: {count} sequences and {documents} documents do not fit into its {size} "
                           "bytes")
    dtype = _DTYPES[code]
    sizes = numpy.fromfile(index_path, dtype="<i4", count=count, offset=_HEAD).astype(numpy.int64)
    offsets = numpy.fromfile(index_path, dtype="<i8", count=count, offset=_HEAD + 4 * count)
    bytes_there = os.path.getsize(data_path)
    room = (bytes_there - offsets) // numpy.dtype(dtype).itemsize
    bad = numpy.flatnonzero((sizes < 0) | (offsets < 0) | (offsets > bytes_there) | (sizes > room))
    if len(bad):
        at = int(bad[0])
        raise CorruptError(f"{index_path}: sequence {at} lies outside {data_path} (byte {int(offsets[at])}, "
                           f"{int(sizes[at])} items, "
                           f"the file has {bytes_there} bytes)")
    return dtype, sizes, offsets
