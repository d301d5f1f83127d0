# SPDX-License-Identifier: Apache-2.0
"""JSONL and text, read in Python: where a map sees each sample, and where a file is compressed.

A plain file is cut into ranges of UNIT_BYTES; a range owns the lines that begin in it. A compressed file is one unit.
"""
from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import IO, Any

from ..errors import UnsupportedError
from .source import Piece, Unit

UNIT_BYTES = 16 << 20
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".xz": "xz", ".bz2": "bz2", ".lz4": "lz4"}
_BOM = b"\xef\xbb\xbf"


def open_file(path: str) -> IO[bytes]:
    """A file for reading, decompressed by its ending."""
    ending = os.path.splitext(path)[1]
    if ending not in COMPRESSIONS:
        return open(path, "rb", buffering=1 << 20)
    if ending == ".gz":
        import gzip
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if ending == ".xz":
        import lzma
        return lzma.open(path, "rb")
    if ending == ".bz2":
        import bz2
        return bz2.open(path, "rb")
    try:
        import pyarrow
    except ImportError as missing:
        raise UnsupportedError(f"{path}: reading {COMPRESSIONS[ending]} needs pyarrow, which cannot be "
                               "imported") from missing
    import io
    return io.BufferedReader(_Readable(pyarrow.input_stream(path, compression=COMPRESSIONS[ending])), 1 << 20)


def _Readable(stream: Any) -> Any:  # noqa: N802
    import io

    class Readable(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, room: Any) -> int:
            data = stream.read(len(room))
            room[:len(data)] = data
            return len(data)
    return Readable()


class Lines(Piece):
    """`kind`: "jsonl" (a JSON object a line; blank lines are passed over) or "text" (column "text")."""

    def __init__(self, path: str, name: str, kind: str) -> None:
        self.path, self.name, self.kind = path, name, kind

    def identity(self) -> list[Any]:
        return [self.kind, self.name, os.path.getsize(self.path)]

    def scan(self) -> tuple[list[Unit], dict[str, str] | None]:
        size = os.path.getsize(self.path)
        schema = {"text": "str"} if self.kind == "text" else None
        if os.path.splitext(self.path)[1] in COMPRESSIONS or size <= UNIT_BYTES:
            return [Unit(self.name, size, (0, -1))], schema
        return [Unit(self.name if start == 0 else f"{self.name}@{start}", min(UNIT_BYTES, size - start),
                     (start, min(start + UNIT_BYTES, size))) for start in range(0, size, UNIT_BYTES)], schema

    def read(self, unit: Unit) -> Iterator[bytes]:
        start, stop = unit.at
        with open_file(self.path) as file:
            at = start
            if start > 0:  # the line that holds the byte before belongs to the range before
                file.seek(start - 1)
                at += len(file.readline()) - 1
            while stop < 0 or at < stop:
                line = file.readline()
                if not line:
                    return
                yield line.removeprefix(_BOM) if at == 0 else line
                at += len(line)

    def decode(self, raw: bytes) -> Any:
        if self.kind == "text":
            return {"text": str(raw.removesuffix(b"\n").removesuffix(b"\r"), "utf-8")}
        if not raw.strip():
            return None
        sample = json.loads(raw)
        if not isinstance(sample, dict):
            raise ValueError(f"a line holds a JSON object, not {type(sample).__name__}")
        return sample

    def label(self, unit: Unit, row: int) -> str:
        before = 0
        if unit.at[0] > 0:
            with open(self.path, "rb") as file:
                left = unit.at[0]
                while left > 0 and (block := file.read(min(left, 1 << 20))):
                    before += block.count(b"\n")
                    left -= len(block)
                file.seek(unit.at[0] - 1)
                before += file.read(1) != b"\n"
        return f"{self.name}:{before + row + 1}"


class Folder(Piece):
    """A folder of files: columns "path" (str) and "data" (bytes); 256 files a unit, in the order of their names."""

    def __init__(self, path: str, name: str) -> None:
        self.path, self.name = path, name
        self.files = sorted(os.path.relpath(os.path.join(top, file), path) for top, _, files in os.walk(path)
                            for file in files)

    def identity(self) -> list[Any]:
        return ["folder", self.name, [[file, os.path.getsize(os.path.join(self.path, file))] for file in self.files]]

    def scan(self) -> tuple[list[Unit], dict[str, str] | None]:
        units = []
        for start in range(0, len(self.files), 256):
            stop = min(start + 256, len(self.files))
            weight = sum(os.path.getsize(os.path.join(self.path, file)) for file in self.files[start:stop])
            units.append(Unit(f"{self.name}@{start}", weight, (start, stop)))
        return units, {"path": "str", "data": "bytes"}

    def read(self, unit: Unit) -> Iterator[str]:
        yield from self.files[unit.at[0]:unit.at[1]]

    def decode(self, raw: str) -> Any:
        with open(os.path.join(self.path, raw), "rb") as file:
            return {"path": raw, "data": file.read()}

    def label(self, unit: Unit, row: int) -> str:
        return os.path.join(self.name, self.files[unit.at[0] + row])
