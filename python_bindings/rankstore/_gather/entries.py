# SPDX-License-Identifier: Apache-2.0
"""What `gather` moves: results, and the entries of a file that they become."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .._schema.types import BITS
from ..errors import DataError


@dataclass(frozen=True)
class Result:
    """A result without its data: `torch` says that it was a tensor, `raw` that its name was bytes; `size` is bytes. In a name,
    bytes that are not UTF-8 are surrogates, as in paths."""

    name: str
    index: int
    dtype: str
    shape: tuple[int, ...]
    torch: bool
    raw: bool = False

    @property
    def key(self) -> str | bytes:
        """Return the name as it was given."""
        return name_bytes(self.name) if self.raw else self.name

    @property
    def size(self) -> int:
        count = item_size(self.dtype)
        for dim in self.shape:
            count *= dim
        return count


def name_bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def name_text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def item_size(dtype: str) -> int:
    import numpy
    return numpy.dtype(BITS.get(dtype, dtype)).itemsize


@dataclass(frozen=True)
class Entry:
    """A tensor of a file: `parts` results end to end."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size: int
    parts: int
    torch: bool
    raw: bool = False


def plan_entries(heads: list[Result], stack: bool) -> list[Entry]:
    """Return what results become in a file, in order. DataError names the first that differs, or a name that is taken."""
    entries: list[Entry] = []
    for same in _by_name(heads):
        first = same[0]
        if not stack:
            entries.extend(Entry(one.name if len(same) == 1 else f"{one.name}/{one.index}", one.dtype, one.shape,
                                 one.size, 1, one.torch, one.raw)
                           for one in same)
            continue
        for one in same:
            if (one.dtype, one.shape) != (first.dtype, first.shape):
                raise DataError(f'results["{one.name}"]: index {one.index} is {one.dtype}{list(one.shape)}, index '
                                f"{first.index} is {first.dtype}{list(first.shape)}; stack needs equal ones")
        entries.append(Entry(first.name, first.dtype, (len(same), *first.shape), first.size * len(same), len(same),
                             all(one.torch for one in same), first.raw))
    names: set[str] = set()
    for entry in entries:
        if entry.name in names:
            raise DataError(f'results: tensor name "{entry.name}" is used twice: by a single result and by an item of another name; '
                            "rename one")
        names.add(entry.name)
    return entries


def _by_name(heads: list[Result]) -> Iterator[list[Result]]:
    same: list[Result] = []
    for head in heads:
        if same and head.name != same[0].name:
            yield same
            same = []
        same.append(head)
    if same:
        yield same
