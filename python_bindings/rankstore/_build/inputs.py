# SPDX-License-Identifier: Apache-2.0
"""Inputs of the core's build (rks_input_ops) that Python reads: units of pieces, and a stream.

    scan(base, generation)   lists the units: [(name, weight), ...], the kind of stream, what distinguishes a rank's stream
    read(number, sink)       passes a unit's samples through map and filter to the sink

Both run while the core builds, so they make no collective call. What they raise is kept in `failure`; the driver raises it on all ranks."""
from __future__ import annotations

import functools
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from .. import _core
from .._distributed.collectives import Stopped, callback_failed
from .._distributed.group import Group
from .._schema.columns import Columns
from .._sources import digest
from .._sources.native import CoreFiles
from ..errors import PeerError, RankStoreError
from .pipeline import Feeder
from .scan import Task

STREAM_UNIT = 8192  # samples per unit of an iterable
_END = object()

Units = list[tuple[str, int]]
Made = TypeVar("Made")


class BaseChanged(Exception):
    """Another build changed the dataset after this one looked at it."""


class Input(ABC):
    """What both have: the check of the dataset, and the failure.

    base: id of the dataset that the samples are appended to, as the build saw it; None if there was none."""

    def __init__(self, group: Group, feeder: Feeder, base: str | None) -> None:
        self.group, self.feeder, self.base = group, feeder, base
        self.failure: BaseException | None = None
        self.stopped = False  # another rank failed, and this one ended for it
        self.named = ""  # units of a source in memory are named after the generation, so that their derived keys are new

    def scan(self, base: str | None, generation: int) -> tuple[Units, int, str | None]:
        def scanned() -> tuple[Units, int, str | None]:
            if base != self.base:
                raise BaseChanged
            self.named = f"{generation}/" if base is not None else ""
            return self._scan()
        return self._kept(scanned)

    def read(self, number: int, sink: _core.Sink) -> None:
        self._kept(lambda: self._read(number, sink))

    def _kept(self, work: Callable[[], Made]) -> Made:
        try:
            return work()
        except (Stopped, PeerError):
            self.stopped = True
            raise
        except BaseException as raised:
            self.failure = raised
            self.group.core.stop()
            raise

    @abstractmethod
    def _scan(self) -> tuple[Units, int, str | None]: ...

    @abstractmethod
    def _read(self, number: int, sink: _core.Sink) -> None: ...


class Pieces(Input):
    """Units of pieces, the same on all ranks; the core deals them."""

    def __init__(self, group: Group, feeder: Feeder, base: str | None, tasks: Sequence[Task]) -> None:
        super().__init__(group, feeder, base)
        self.tasks = tasks

    def _name(self, task: Task) -> str:
        return self.named * task.piece.in_memory + task.unit.name

    def _scan(self) -> tuple[Units, int, str | None]:
        return [(self._name(task), task.unit.weight) for task in self.tasks], _core.STREAM_NONE, None

    def _read(self, number: int, sink: _core.Sink) -> None:
        task = self.tasks[number]
        if isinstance(task.piece, CoreFiles):
            self.feeder.feed_rows(sink, task.piece, task.unit)
            return
        self.feeder.steps.label = lambda row: task.piece.label(task.unit, row)
        brings = task.piece.brings_keys or task.piece.brings_lengths
        self.feeder.own = functools.partial(task.piece.own, task.unit) if brings else None
        self.feeder.feed(sink, task.piece.read(task.unit), task.piece.decode, self._name(task))


class Items(Input):
    """The items of an iterable. A unit ends after the item that fills it, so a resumed build has the same units.

    same: all ranks have the same items, and take turns. compared: equal items of two ranks are refused."""

    def __init__(self, group: Group, feeder: Feeder, base: str | None, items: Iterator[Any], unit_samples: int | None,
                 same: bool, compared: bool) -> None:
        super().__init__(group, feeder, base)
        self.items, self.unit_samples, self.same = _Watched(items), unit_samples or STREAM_UNIT, same
        self.compared = compared and not same
        self.first: Any = _END
        self.name = ""
        self.units = self.seen = 0

    def _scan(self) -> tuple[Units, int, str | None]:
        kind = _core.STREAM_SAME if self.same else _core.STREAM_OWN
        try:
            self.first = next(self.items, _END)
        except RankStoreError:
            raise
        except Exception as raised:
            raise callback_failed(raised, self.group.rank, "the source", f"sample {self.seen}") from raised
        if self.first is _END:
            return [], kind, self.items.identity() if self.compared else None
        number = self.units if self.same else self.group.rank + self.group.world * self.units
        self.name = f"{self.named}part {number}"
        self.units += 1
        return [(self.name, 1)], kind, None

    def _read(self, number: int, sink: _core.Sink) -> None:
        unit = _StreamUnit(itertools.chain([self.first], self.items), self.unit_samples)
        start = self.seen
        self.feeder.steps.label = lambda row: f"sample {start + row}"
        if sink.drops:
            self.feeder.steps.unseen(unit)
        else:
            self.feeder.feed(sink, unit, None, self.name)
        self.seen += unit.taken


class _Watched(Iterator[Any]):
    """An iterable's items; it remembers count, first and last."""

    ENDS = 4

    def __init__(self, items: Iterator[Any]) -> None:
        self._items = items
        self._count = 0
        self._first: list[Any] = []
        self._last: deque[Any] = deque(maxlen=self.ENDS)

    def __next__(self) -> Any:
        item = next(self._items)
        self._count += len(item) if isinstance(item, Columns) else 1
        if len(self._first) < self.ENDS:
            self._first.append(item)
        self._last.append(item)
        return item

    def identity(self) -> str | None:
        """Return count and digest as text; None if there was no item."""
        if self._count == 0:
            return None
        ends = [dict(one.columns) if isinstance(one, Columns) else one for one in (*self._first, *self._last)]
        return f"{self._count:,} samples; the first and last {self.ENDS} items are equal, digest {digest.of_items(lambda: ends)}"


class _StreamUnit:
    """The items of one unit."""

    def __init__(self, items: Iterable[Any], size: int) -> None:
        self.items, self.size, self.taken = items, size, 0

    def __iter__(self) -> Iterator[Any]:
        for item in self.items:
            self.taken += len(item) if isinstance(item, Columns) else 1
            yield item
            if self.taken >= self.size:
                return
