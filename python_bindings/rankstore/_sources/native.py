# SPDX-License-Identifier: Apache-2.0
"""Files that the C core reads: JSON lines, text, CSV, folders, NumPy files, Megatron, MDS, tar, zip.

Without `map` and without a function for keys, the core builds from them by itself. Otherwise it passes each sample to Python in one call,
typed as it would be stored. The exception is JSON with a `map`: the map gets the objects exactly as the file has them, because a map may
be there to join rows that have no common schema.
"""
from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import _core
from .._schema.types import BITS, EXTRA, as_array, describe, typed
from .._stores.address import is_url
from .base import Piece, Unit

Value = tuple[bytes, tuple[int, ...], str] | None
LINES = ("jsonl", "text")  # formats whose rows are lines
_decoder: Any = json.JSONDecoder()  # not json.loads, which guesses the encoding of each text first
_scan = _decoder.scan_once


def parse_line(text: str) -> Any:
    """Return the value of a line of JSON; ValueError if it is none."""
    if text[:1] == "{":  # no space to skip before the object, and rarely any after it
        try:
            sample, end = _scan(text, 0)
        except StopIteration:  # a value is missing; the decoder's error says where
            end = -1
        if end == len(text):
            return sample
    return _decoder.decode(text)
ITEM = "__item__"  # the column that asks the core for the unparsed items of a JSON array


class CoreFiles(Piece):
    """All of a build's files that the core reads, in the user's order, with the core's units and keys."""

    def __init__(self, paths: Sequence[str], format: str | None, storage: str | None = None) -> None:  # noqa: A002
        self.paths, self.format, self.name = list(paths), format, "files"
        self._storage, self.in_store = storage, any(map(is_url, self.paths))
        self.listing: str | None = None  # what the stores hold
        self._looked: tuple[str, list[tuple[str, int, str]]] | None = None
        self._files: _core.Files | None = None
        self._units: list[tuple[str, int]] = []
        self._raw = self._has_lines = self._has_extra = False

    def list_stores(self, core: _core.Group) -> None:
        """Ask what the stores hold, on rank 0 (collective)."""
        self.listing = _core.source_list(core, self.paths, self.format, self._storage)

    def identity(self) -> list[Any]:
        """Return names and sizes of the files, and of all files inside folders; and versions, if any are in a store."""
        if self.in_store:
            return [list(one) for one in self._look()[1]]
        found: list[Any] = []
        for path in self.paths:
            if not os.path.isdir(path):
                found.append([os.path.basename(path), os.path.getsize(path)])
            for top, folders, files in os.walk(path):
                folders.sort()
                found.extend([os.path.relpath(os.path.join(top, file), path), os.path.getsize(os.path.join(top, file))]
                             for file in sorted(files))
        return found

    def is_folder(self) -> bool:
        """Return True if the files of a folder become samples, and nobody asked for that by format=."""
        if self.in_store:
            return self.format is None and self._look()[0] == "folder"
        return self.format is None and any(map(os.path.isdir, self.paths)) and _core.source_format(self.paths, None) == "folder"

    def size(self) -> int:
        """Return the bytes of all files together."""
        return sum(one[1] for one in self.identity())

    def _look(self) -> tuple[str, list[tuple[str, int, str]]]:
        """Return format and (name, size, version) of all files. list_stores() comes first."""
        if self._looked is None:
            self._looked = _core.source_look(self.paths, self.format, self._storage, self.listing)
        return self._looked

    def open(self, core: _core.Group, *, mapped: bool, schema: str | None, **options: Any) -> None:
        """Open the files (collective).

        mapped: a map gets the samples. If not, `schema` sets the columns to read; None infers them.
        """
        asked = self.format or ("json" if options.get("json_path") else None)
        kind = asked or self._look()[0] if self.in_store else _core.source_format(self.paths, asked)
        self._raw, self._has_lines = mapped and kind in ("jsonl", "json"), kind in LINES
        items = self._raw and kind == "json"
        if self._raw:
            options.pop("extra", None)  # a map gets objects with all their members
        self._has_extra = options.get("extra") == "json"
        self._files = _core.Files(core, self.paths, format="text" if self._raw and not items else kind,
                                    schema=f"{ITEM}:str" if items else None if mapped else schema, listing=self.listing, **options)
        self._units = self._files.units()

    def close(self) -> None:
        """End what reads the files: of those in a store a process of its own, which would stay until Python collects its garbage."""
        self._files = None

    @property
    def files(self) -> _core.Files:
        assert self._files is not None, "open() comes first"
        return self._files

    def scan(self) -> tuple[list[Unit], dict[str, str] | None]:
        units = [Unit(f"{name}#{i}", bytes_, (i,)) for i, (name, bytes_) in enumerate(self._units)]
        return units, None if self._raw else dict(_core.parse_schema(self.files.schema())[1])

    def read(self, unit: Unit) -> Iterator[Any]:
        raise NotImplementedError("the core passes samples on: use hand_over()")

    def hand_over(self, unit: Unit, take: Callable[[dict[str, Value], bytes, int], None]) -> dict[str, Any]:
        """Call take(values, key, row of the file) for each sample of the unit. `decode` makes a sample of the values.

        Return what the core itself skipped (filtered, bad, bad_first).
        """
        return self.files.read(unit.at[0], take)

    def decode(self, raw: dict[str, Value]) -> Any:
        """Return a sample; None for a blank line."""
        if not self._raw:
            sample = {name: plain(value) for name, value in raw.items()}
            if self._has_extra:  # a map gets them as members; the feeder collects them again
                sample.update(sample.pop(EXTRA, None) or {})
            return sample
        value = raw[ITEM] if ITEM in raw else raw["text"]
        if value is None:
            return None
        text = str(value[0], "utf-8")
        if text[:1] != "{":
            text = text.removeprefix("\ufeff")
            if not value[0].strip():
                return None
        sample = parse_line(text)
        if not isinstance(sample, dict):
            raise ValueError(f"{'an item' if ITEM in raw else 'a line'} must hold a JSON object, not {type(sample).__name__}")
        return sample

    def place(self, unit: Unit, key: bytes, row: int) -> str:
        """Return the name of a sample for messages: its file and line, or else its key."""
        if self._has_lines:
            return f"{self._units[unit.at[0]][0]}:{row + 1}"
        return str(key, "utf-8", "backslashreplace")


def plain(value: Value) -> Any:
    """Return a column's value from the core as a value of Python or numpy."""
    if value is None:
        return None
    data, dims, kind = value
    item = describe(kind).item
    if item == "bytes":
        return data
    if item in ("str", "json"):
        return str(data, "utf-8") if item == "str" else json.loads(data)
    array = as_array(data, item)
    if item in BITS:
        return typed(array.reshape(dims).copy(), item)
    return array.reshape(dims) if "[" in kind else array[0].item()
