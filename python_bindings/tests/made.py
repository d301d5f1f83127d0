# SPDX-License-Identifier: Apache-2.0
"""Made data: token samples of uneven length whose contents say which they are."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy

import rankstore
from rankstore import _core

SCHEMA = "input_ids:uint16[*],labels:int32[*],text:str,blob:bytes,score:float32,note:json?"


def length_of(i: int) -> int:
    return 1 + (i * 37) % 53


def sample(i: int) -> dict[str, Any]:
    size = length_of(i)
    return {"input_ids": (numpy.arange(size) + i).astype(numpy.uint16), "labels": numpy.full(size, i, numpy.int32),
            "text": f"sample {i}", "blob": bytes([i % 256]) * (i % 5), "score": i / 4,
            "note": None if i % 3 == 0 else {"i": i}}


Unit = Sequence[Sequence[Any]] | Callable[[_core.Sink], Any]


class Units:
    """An input for the core: units by name, each a list of rows or a function of the sink.

    It remembers the units that were read, and what one of them raised."""

    def __init__(self, units: dict[str, Unit]) -> None:
        self.units = units
        self.read_units: list[int] = []
        self.failure: BaseException | None = None

    def scan(self, base: str | None, generation: int) -> tuple[list[tuple[str, int]], int, str | None]:
        return [(name, 1) for name in self.units], _core.STREAM_NONE, None

    def read(self, number: int, sink: _core.Sink) -> None:
        self.read_units.append(number)
        unit = list(self.units.values())[number]
        try:
            if callable(unit):
                unit(sink)
            else:
                for row in unit:
                    sink.add(row)
        except BaseException as raised:
            self.failure = raised
            raise


def build_units(group: _core.Group, directory: Path, schema: str, units: dict[str, Unit], **options: Any) -> dict[str, Any]:
    """Build a dataset of units; raise what one of them raised."""
    source = Units(units)
    try:
        return _core.build_input(group, source, str(directory), schema=schema, **options)
    except rankstore.RankStoreError:
        if source.failure is not None:
            raise source.failure from None
        raise


def build(directory: Path, count: int, group: rankstore.Group | None = None, units: int = 7) -> None:
    """Samples 0..count-1 in `units` units dealt out over the group's ranks; keys "u<unit>:<row>"."""
    chosen = group or rankstore.init("solo")
    bounds = [count * unit // units for unit in range(units + 1)]

    def rows(unit: int) -> Callable[[_core.Sink], Any]:
        def add(sink: _core.Sink) -> None:
            for i in range(bounds[unit], bounds[unit + 1]):
                one = sample(i)
                sink.add([one["input_ids"], one["labels"], one["text"], one["blob"], one["score"], one["note"]])
        return add

    build_units(chosen.core, directory, SCHEMA, {f"u{unit}": rows(unit) for unit in range(units)}, length="input_ids", index=["score"])


def same(found: dict[str, Any], i: int) -> bool:
    """Whether a read sample is sample i."""
    wanted = sample(i)
    return all(numpy.array_equal(found[name], value) if isinstance(value, numpy.ndarray) else found[name] == value
               for name, value in wanted.items())
