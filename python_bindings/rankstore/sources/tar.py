# SPDX-License-Identifier: Apache-2.0
"""Tar files as WebDataset writes them, where Python is to see the samples (map=, a function for length or key); else the C
core reads them, by the same rules: members that follow each other and share their name up to its first dot (behind
the last slash) are one sample, its columns the endings. A file is a unit, read as a stream. Names are keys ("__key__")
and column names only; nothing is ever written under them. Links, devices and names
that lead elsewhere are refused by name.
"""
from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Iterator
from typing import Any

from ..errors import CorruptError, DataError
from .lines import open_file
from .source import Piece, Unit

ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2")


class Tar(Piece):
    """Columns: "__key__" (str), and for each ending: json of .json, str of .txt, int64 of .cls, the array of .npy, else
    bytes."""

    MEMBER_BYTES = 1 << 30  # a larger member is refused before it is read

    def __init__(self, path: str, name: str) -> None:
        self.path, self.name = path, name

    def identity(self) -> list[Any]:
        return ["tar", self.name, os.path.getsize(self.path)]

    def scan(self) -> tuple[list[Unit], dict[str, str] | None]:
        return [Unit(self.name, os.path.getsize(self.path))], None

    def read(self, unit: Unit) -> Iterator[dict[str, bytes]]:
        key: str | None = None
        sample: dict[str, Any] = {}
        try:
            with self._open() as stream, tarfile.open(fileobj=stream, mode="r|") as tar:
                for member in tar:
                    tar.members.clear()  # type: ignore[attr-defined]  # it keeps all headers otherwise
                    if member.isdir():
                        continue
                    self._check(member)
                    base, column = _split(member.name)
                    if not column:
                        raise DataError(f"{self.name}: member {member.name!r} has no ending, which would be its column")
                    if base != key and sample:
                        yield sample
                        sample = {}
                    key = base
                    if column in sample:
                        raise DataError(f"{self.name}: member {member.name!r} is there twice")
                    file = tar.extractfile(member)
                    sample.setdefault("__key__", base)
                    sample[column] = b"" if file is None else file.read()
        except (tarfile.TarError, EOFError) as bad:
            raise CorruptError(f"{self.name}: {bad}") from bad
        if sample:
            yield sample

    def _open(self) -> Any:
        if self.path.endswith(".tgz"):
            import gzip
            return gzip.open(self.path, "rb")
        return open_file(self.path)

    def _check(self, member: tarfile.TarInfo) -> None:
        if not member.isreg():
            raise DataError(f"{self.name}: member {member.name!r} is a link or a device, not a file; write the tar "
                            "with its contents")
        if member.name.startswith("/") or ".." in member.name.split("/"):
            raise DataError(f"{self.name}: member {member.name!r}: its name is absolute or goes up by \"..\"")
        if member.size > self.MEMBER_BYTES:
            raise DataError(f"{self.name}: member {member.name!r} has {member.size} bytes, at most {self.MEMBER_BYTES} "
                            "are taken")

    def decode(self, raw: dict[str, Any]) -> dict[str, Any]:
        return {column: value if column == "__key__" else _value(column, value) for column, value in raw.items()}


def _split(name: str) -> tuple[str, str]:
    """ "a/b.seg.png" gives ("a/b", "seg.png")."""
    folder, slash, file = name.rpartition("/")
    base, _, ending = file.partition(".")
    return folder + slash + base, ending.lower()


def _value(column: str, data: bytes) -> Any:
    ending = column.rpartition(".")[2]
    if ending == "json":
        value = json.loads(data)
        return str(data, "utf-8") if isinstance(value, str) else value
    if ending in ("txt", "text"):
        return str(data, "utf-8")
    if ending in ("cls", "cls2"):
        return int(data)
    if ending == "npy":
        import numpy
        return numpy.load(io.BytesIO(data), allow_pickle=False)
    return data
