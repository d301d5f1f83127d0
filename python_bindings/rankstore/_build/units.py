# SPDX-License-Identifier: Apache-2.0
"""Building from units: pieces (Parquet, lists, files that `map` sees) are dealt to ranks; iterables are each rank's own."""
from __future__ import annotations

import functools
import heapq
import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .. import _core
from .._distributed import progress
from .._distributed.collectives import callback_failed, together
from .._distributed.group import Group
from .._provenance import fingerprint
from .._schema import infer
from .._schema.columns import Columns
from .._sources import digest
from .._sources.base import Piece, Stream, Unit
from .._sources.native import CoreFiles
from ..errors import ArgumentError, RankStoreError
from .options import Options
from .pipeline import Feeder, Steps, first_rows

PROBES, PROBE = 16, 25  # places that are sampled to infer a schema, and samples at each
STREAM_UNIT = 8192  # samples per unit of an iterable
_END = object()


@dataclass(frozen=True)
class Task:
    """A unit of a piece, and its number."""

    number: int
    piece: Piece
    unit: Unit


def build_python(group: Group, source: Stream | list[Piece], directory: str, options: Options,
                  base: dict[str, Any] | None, made_from: dict[str, Any], note: str | None,
                  report: progress.Report | None, behind_wait: Callable[[], None] | None) -> dict[str, Any]:
    """Build from units that Python reads (collective).

    base: the dataset that is appended to. Units of a source in memory are named after its generation, so that their derived keys are new.
        note: what the commit writes into dataset.json. behind_wait: called when the lock is held, if another build was waited for.
    """
    # If the dataset derives its keys, those of appended files are derived too, from unit and place.
    named = "" if base is None else f"{base['generation'] + 1}/"
    origin = made_from if base is None else {**made_from, "base": base["dataset"]}
    steps = Steps(group, options.map, options.filter, options.skip_bad)
    stream: Iterator[Any] | None = None
    tasks: list[Task] = []
    derives = False  # True: use the keys that the core derives
    unit_size: int | None = None  # bytes, if the core reads the files
    text: str | None
    if isinstance(source, Stream):
        text, stream, own_keys = _stream_schema(group, source, options)
    else:
        for piece in source:
            if isinstance(piece, CoreFiles):
                piece.open(group.core, mapped=options.map is not None, schema=options.asked_schema,
                           key="" if options.key == "" else None, **options.for_reading())
                unit_size = piece.reader.unit_size()
                derives = not options.key and not (base is not None and base["shape"]["derived_keys"])
        tasks, known = _scan(group, source)
        known = known if options.map is None else None
        text, own_keys = options.schema or infer.text_of(known or _probe(group, tasks, options)), derives
    assert text is not None
    if options.extra == "json":
        text = infer.with_extra(text)
    canonical, columns = together_parse(group, text)
    key: Any = options.key if callable(options.key) else None
    core = options.for_core()
    core["key"] = core["key"] or None
    builder = _core.Builder(group.core, directory, canonical, own_keys=own_keys or key is not None,
                            own_lengths=callable(options.length),
                            source=fingerprint.digest(origin), progress=report, unit_size=unit_size, made_from=note,
                            **core)
    try:
        if behind_wait is not None:
            behind_wait()
        feeder = Feeder(builder, columns, steps, loose=options.drops_extra, rest=options.extra == "json",
                        given=options.given_schema is not None, key=key,
                        length=options.length if callable(options.length) else None, derives=derives)
        tick = progress.Ticker(report)

        watched = _Watched(stream or iter(()))

        def read() -> list[Any]:
            if isinstance(source, Stream):
                _feed_stream(builder, feeder, watched, group, options.unit_samples or STREAM_UNIT, named, tick, source.same)
            else:
                _feed_tasks(builder, feeder, deal(tasks, group.world)[group.rank], named, tick)
            return [steps.bad_first, watched.seen()]

        done = together(group, "build: samples", read)
        if isinstance(source, Stream) and not (options.each_rank or source.same):
            _check_different([seen for _, seen in done])
        made = builder.commit()
    finally:
        builder.close()
    made["bad_first"] = "\n".join(itertools.chain.from_iterable(bad for bad, _ in done))
    return made


def together_parse(group: Group, text: str) -> tuple[str, infer.Schema]:
    """Parse a schema; its errors are raised on all ranks (collective)."""
    parsed: list[tuple[str, infer.Schema]] = []
    together(group, "build: schema", lambda: parsed.append(infer.parse(text)))
    return parsed[0]


def _scan(group: Group, pieces: list[Piece]) -> tuple[list[Task], dict[str, str] | None]:
    """Return all units, numbered in the order of pieces, and the schema if all pieces know it (collective). One rank opens each piece."""
    def scan() -> list[Any]:
        found = []
        for i in range(group.rank, len(pieces), group.world):
            units, schema = pieces[i].scan()
            found.append([i, [[unit.name, unit.weight, unit.at] for unit in units], schema])
        return found

    each = sorted(itertools.chain.from_iterable(
        ([*one, rank] for one in found) for rank, found in enumerate(together(group, "build: units", scan))),
                  key=lambda one: int(one[0]))
    tasks = [Task(number, pieces[i], Unit(name, weight, tuple(at)))
             for number, (i, (name, weight, at)) in enumerate((i, unit) for i, units, _, _ in each for unit in units)]
    known = all(schema is not None for _, _, schema, _ in each)
    return tasks, infer.merge([(rank, schema) for _, _, schema, rank in each]) if known else None


def _probe(group: Group, tasks: list[Task], options: Options) -> dict[str, str]:
    """Return the schema of the first samples of PROBES equal spans of units, the same for any number of ranks (collective)."""
    spans = [tasks[len(tasks) * i // PROBES:len(tasks) * (i + 1) // PROBES] for i in range(PROBES)]

    steps = Steps(group, options.map, options.filter, options.skip_bad)

    def probe() -> list[Any]:
        most = sys.maxsize if options.infer_all else PROBE
        found = [[i, infer.infer(itertools.chain.from_iterable(_first(steps, task, most) for task in spans[i]), most)]
                 for i in range(group.rank, PROBES, group.world)]
        return [found, steps.filtered, steps.bad]

    looks = together(group, "build: first samples", probe)
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


def deal(tasks: Sequence[Task], world: int) -> list[list[Task]]:
    """Deal units to ranks: the largest first, each to the rank that has least. A rank's units stay in order."""
    dealt: list[list[Task]] = [[] for _ in range(world)]
    heap = [(0, rank) for rank in range(world)]
    for task in sorted(tasks, key=lambda task: (-task.unit.weight, task.number)):
        load, rank = heapq.heappop(heap)
        dealt[rank].append(task)
        heapq.heappush(heap, (load + max(1, task.unit.weight), rank))
    return [sorted(mine, key=lambda task: task.number) for mine in dealt]


def _feed_tasks(builder: _core.Builder, feeder: Feeder, tasks: Sequence[Task], named: str,
                tick: progress.Ticker) -> None:
    total, done = sum(task.unit.weight for task in tasks), 0
    for task in tasks:
        name = named * task.piece.in_memory + task.unit.name
        if builder.unit(task.number, name):
            pass
        elif isinstance(task.piece, CoreFiles):
            feeder.feed_rows(task.piece, task.unit, functools.partial(tick, "reading", done, total))
        else:
            feeder.steps.label = functools.partial(task.piece.label, task.unit)
            for samples in feeder.feed(task.piece.read(task.unit), task.piece.decode, name):
                tick("reading", done, total, samples)
        done += task.unit.weight
    tick("reading", done, total, feeder.samples, last=True)


def _stream_schema(group: Group, source: Stream, options: Options) -> tuple[str, Iterator[Any], bool]:
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


def _feed_stream(builder: _core.Builder, feeder: Feeder, items: Iterator[Any], group: Group, unit_samples: int,
                 named: str, tick: progress.Ticker, same: bool) -> None:
    """Add the items of an iterable, unit by unit.

    A unit ends after the item that fills it, also if it is skipped as finished; so a resumed build has the same units. same: all ranks have
    the same items, and take turns."""
    seen = 0
    for k in itertools.count():
        try:
            first = next(items, _END)
        except RankStoreError:
            raise
        except Exception as raised:
            raise callback_failed(raised, group.rank, "the source", f"sample {seen}") from raised
        if first is _END:
            break
        number = k if same else group.rank + group.world * k
        unit = _StreamUnit(itertools.chain([first], items), unit_samples)
        start = seen
        feeder.steps.label = lambda row, start=start: f"sample {start + row}"  # type: ignore[misc]
        if same and k % group.world != group.rank or builder.unit(number, f"{named}part {number}"):
            feeder.steps.unseen(unit)
        else:
            for samples in feeder.feed(unit, None):
                tick("reading", 0, 0, samples)
        seen += unit.taken
    tick("reading", 0, 0, feeder.samples, last=True)


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

    def seen(self) -> list[Any]:
        """Return [count, digest]."""
        ends = [dict(one.columns) if isinstance(one, Columns) else one for one in (*self._first, *self._last)]
        return [self._count, digest.of_items(lambda: ends)]


def _check_different(seen: Sequence[list[Any]]) -> None:
    """Raise ArgumentError, on all ranks, if two ranks brought equal iterables: their samples would be stored twice."""
    first: dict[str, int] = {}
    for rank, (count, ends) in enumerate(seen):
        other = first.setdefault(f"{count} {ends}", rank)
        if count > 0 and other != rank:
            raise ArgumentError(f"source: the iterables of rank {other} and rank {rank} are equal ({count:,} samples; the first "
                                f"and last {_Watched.ENDS} items were compared), and each sample would be there twice; "
                                "same_on_all=True splits them between ranks, each_rank=True adds them all the same")


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
