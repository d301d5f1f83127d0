# SPDX-License-Identifier: Apache-2.0
"""What a build reads: pieces (a file, a dataset object), each in units.

A build splits units between ranks, and resumes unit by unit. Units are numbered by piece and by their place in it, and so are samples. The
number of ranks does not change these numbers.
"""
from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Unit:
    """A part of a piece.

    name: unique, the beginning of derived keys ("name:row"). weight: bytes or samples, by which units are split between ranks. at: JSON
    values by which the piece finds the unit.
    """

    name: str
    weight: int
    at: tuple[Any, ...] = ()


class Piece(ABC):
    """A file or a dataset object."""

    name: str
    in_memory = False  # True: the names of its units do not say where it comes from
    brings_keys = brings_lengths = False  # see `own`
    is_known = True  # identity and sampled distinguish it from others of its kind

    @abstractmethod
    def identity(self) -> list[Any]:
        """Return what distinguishes this input from another and is cheap to find (names, sizes, counts), as JSON values."""

    def sampled(self) -> dict[str, str]:
        """Return {place: what is there} of a few items, if they are in memory and reading them changes nothing; else {}."""
        return {}

    def blocks(self) -> int:
        """Return how many parts of equal size `contents` has; 0 if it is not in memory, or if identity() identifies it."""
        return 0

    def contents(self, block: int) -> str:
        """Return a digest of all that this part holds, the same in every process."""
        raise NotImplementedError

    def choose(self, schema: Mapping[str, str] | None, *, only: bool, functions: bool, rows: bool, checked: bool) -> None:
        """Say what `read` is for, before `scan`. Sources that read columns one by one override it.

        schema: what is stored, if the user said it. only: other columns need not be read. functions: the user's own get each sample. rows:
        and what they return is stored, so columns that no type stores are no error. checked: verify checksums of the source."""

    @abstractmethod
    def scan(self) -> tuple[list[Unit], dict[str, str] | None]:
        """Return the units, and the schema if it is known without looking at samples. Called on one rank for all."""

    @abstractmethod
    def read(self, unit: Unit) -> Iterator[Any]:
        """Yield the raw items of a unit; `decode` makes samples of them."""

    def decode(self, raw: Any) -> Any:
        """Return a sample (dict) or Columns. If it raises, the item is bad."""
        return raw

    def own(self, unit: Unit, row: int) -> tuple[bytes | None, int | None]:
        """Return the key and the length that item number `row` of a unit brings; None where it brings none."""
        return None, None

    def label(self, unit: Unit, row: int) -> str:
        """Return the name of item number `row` (from 0) of a unit for messages."""
        return f"{unit.name}: sample {row}"


@dataclass(frozen=True)
class Stream:
    """An iterable: each rank brings its own part, or all ranks the same items (`same`)."""

    items: Any
    name: str
    same: bool = False
