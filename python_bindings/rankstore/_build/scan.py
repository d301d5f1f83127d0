# SPDX-License-Identifier: Apache-2.0
"""What a source holds, before it is built: its units, and the schema of its first samples, the same on all ranks."""
from __future__ import annotations

import functools
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .. import _core
from .._distributed.collectives import callback_failed, together
from .._distributed.group import Group
from .._schema import infer
from .._schema.columns import Columns
from .._sources.base import Piece, Stream, Unit
from .._sources.native import CoreFiles
from ..errors import ArgumentError
from .options import Options
from .pipeline import Steps, first_rows

PROBES, PROBE = 16, 25  # places that are sampled to infer a schema, and samples at each


@dataclass(frozen=True)
class Task:
    """A unit of a piece."""

    piece: Piece
    unit: Unit


def together_parse(group: Group, text: str, counts: Sequence[str], inferred: bool) -> tuple[str, infer.Schema]:
    """Parse the schema of the samples, without the columns that the library counts; its errors are raised on all ranks (collective)."""
    parsed: list[tuple[str, infer.Schema]] = []
    together(group, "build: schema", lambda: parsed.append(infer.parse(_core.row_schema(text, counts, inferred))))
    return parsed[0]


def scan(group: Group, pieces: list[Piece]) -> tuple[list[Task], dict[str, str] | None]:
    """Return all units, in the order of pieces, and the schema if all pieces know it (collective). One rank opens each piece."""
    def look() -> list[Any]:
        found = []
        for i in range(group.rank, len(pieces), group.world):
            units, schema = pieces[i].scan()
            found.append([i, [[unit.name, unit.weight, unit.at] for unit in units], schema])
        return found

    each = sorted(itertools.chain.from_iterable(
        ([*one, rank] for one in found) for rank, found in enumerate(together(group, "build: units", look))),
                  key=lambda one: int(one[0]))
    tasks = [Task(pieces[i], Unit(name, weight, tuple(at))) for i, units, _, _ in each for name, weight, at in units]
    known = all(schema is not None for _, _, schema, _ in each)
    return tasks, infer.merge([(rank, schema) for _, _, schema, rank in each]) if known else None


def probe(group: Group, tasks: list[Task], options: Options) -> dict[str, str]:
    """Return the schema of the first samples of PROBES equal spans of units, the same for any number of ranks (collective)."""
    spans = [tasks[len(tasks) * i // PROBES:len(tasks) * (i + 1) // PROBES] for i in range(PROBES)]

    steps = Steps(group, options.map, options.filter, options.skip_bad)

    def look() -> list[Any]:
        most = sys.maxsize if options.infer_all else PROBE
        found = [[i, infer.infer(itertools.chain.from_iterable(_first(steps, task, most) for task in spans[i]), most)]
                 for i in range(group.rank, PROBES, group.world)]
        return [found, steps.filtered, steps.bad]

    looks = together(group, "build: first samples", look)
    found = sorted(((i, rank, schema) for rank, (each, _, _) in enumerate(looks) for i, schema in each),
                   key=lambda one: int(one[0]))
    return infer.merge(((rank, schema) for _, rank, schema in found),
                         _why_nothing(options, sum(look[1] for look in looks), sum(look[2] for look in looks)))


def _why_nothing(options: Options, filtered: int, bad: int) -> str:
    """Return why no sample is left to infer a schema from. If none is, all samples were looked at."""
    functions = " and ".join(name for name in ("map", "filter") if getattr(options, name) is not None)
    if filtered:
        forgot = " (None drops a sample: does map return one?)" if functions == "map" else ""
        return f"{functions} dropped all {filtered} samples" + (f" but {bad} bad ones" if bad else "") + forgot
    return f"all {bad} samples are bad" if bad else "the source is empty"


def _first(steps: Steps, task: Task, count: int) -> Iterable[Any]:
    """Return the first samples of a unit, `count` or a few more."""
    if isinstance(task.piece, CoreFiles):
        return first_rows(steps, task.piece, task.unit, count)
    steps.label = functools.partial(task.piece.label, task.unit)
    return steps.samples(task.piece.read(task.unit), task.piece.decode)


def stream_schema(group: Group, source: Stream, options: Options) -> tuple[str, Iterator[Any], bool]:
    """Return the schema, an iterator over all items (also those that were looked at), and whether samples bring keys (collective)."""
    if options.infer_all:
        raise ArgumentError('schema="auto:all" reads the source twice, which an iterable cannot be; give the schema, or a '
                            "list")
    held: list[Iterator[Any]] = []
    steps = Steps(group, options.map, options.filter, options.skip_bad)

    def look() -> list[Any]:
        first: list[Any] = []

        def taken(items: Iterator[Any]) -> Iterator[Any]:
            for item in items:
                first.append(item)
                yield item

        try:
            items = iter(source.items)
        except Exception as raised:
            raise callback_failed(raised, group.rank, "the source", "") from raised
        found = None
        if options.schema is None:
            found = infer.infer(steps.samples(taken(items), None), PROBE * 4)
        else:
            next(steps.samples(taken(items), None), None)
        held.append(itertools.chain(first, items))
        return [found, any(isinstance(item, Columns) and item.keys is not None for item in first), steps.filtered,
                steps.bad]

    looks = together(group, "build: first samples", look)
    nothing = _why_nothing(options, sum(look[2] for look in looks), sum(look[3] for look in looks))
    found = ((rank, look[0]) for rank, look in enumerate(looks))
    text = options.schema or infer.text_of(infer.merge(found, nothing))
    assert text is not None
    return text, held[0], any(look[1] for look in looks)
