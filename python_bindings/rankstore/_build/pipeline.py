# SPDX-License-Identifier: Apache-2.0
"""From the items of a source to the samples of a sink: decode, map, filter, key, length, add."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from .. import _core
from .._distributed.collectives import Stopped, callback_failed, check_others
from .._distributed.group import Group
from .._schema import values
from .._schema.columns import Columns
from .._schema.types import EXTRA
from .._sources.base import Unit
from .._sources.native import CoreFiles
from ..errors import DataError, RankStoreError

BAD_SHOWN = 16


class Steps:
    """What happens to each sample before it is added.

    The user's functions may raise anything: see `failed`. If another rank has failed, the next item raises Stopped."""

    def __init__(self, group: Group, map: Callable[[Any], Any] | None, filter: Callable[[Any], Any] | None,
                 skip_bad: bool) -> None:  # noqa: A002
        self.group, self.map, self.filter, self.skip_bad = group, map, filter, skip_bad
        self.filtered = self.bad = self.row = 0
        self.bad_first: list[str] = []
        self.label: Callable[[int], str] = lambda row: f"sample {row}"

    def begin(self) -> None:
        """Begin to count for another unit."""
        self.filtered = self.bad = 0
        self.bad_first = []

    def samples(self, items: Iterable[Any], decode: Callable[[Any], Any] | None) -> Iterator[Any]:
        """Yield samples (dicts) after map and filter, and Columns if there is neither."""
        plain = self.map is None and self.filter is None
        self.row = -1
        try:
            for item in items:
                check_others(self.group)
                self.row += 1
                if decode is not None:
                    try:
                        item = decode(item)
                    except Exception as raised:
                        self.failed("reading it", raised)
                        continue
                    if item is None:
                        continue
                if isinstance(item, Columns):
                    yield from self._columns(item, plain)
                elif plain:
                    yield item
                else:
                    yield from self.each(item)
        except (RankStoreError, Stopped):
            raise
        except Exception as raised:
            raise callback_failed(raised, self.group.rank, "the source", self.label(self.row + 1)) from raised

    def unseen(self, items: Iterable[Any]) -> None:
        """Consume the items of a unit that is already finished."""
        self.row = -1
        try:
            for _ in items:
                check_others(self.group)
                self.row += 1
        except Stopped:
            raise
        except Exception as raised:
            raise callback_failed(raised, self.group.rank, "the source", self.label(self.row + 1)) from raised

    def _columns(self, columns: Columns, plain: bool) -> Iterator[Any]:
        if plain:
            yield columns
            self.row += max(0, len(columns) - 1)
            return
        for i, sample in enumerate(columns.rows(functions=True)):
            check_others(self.group)
            self.row += i > 0
            yield from self.each(sample)

    def each(self, sample: Any) -> Iterator[Any]:
        """Yield what map and filter make of one sample."""
        if self.map is None:
            each: Any = (sample,)
        else:
            try:
                each = self.map(sample)
            except Exception as raised:
                self.failed("map", raised)
                return
            if each is None:
                self.filtered += 1
                return
            if not isinstance(each, list):
                each = (each,)
        for made in each:
            if self.filter is None or self.call("filter", self.filter, made):
                yield made
            else:
                self.filtered += 1

    def of(self, files: CoreFiles, unit: Unit) -> Callable[[dict[str, Any], bytes, int], Iterable[Any]]:
        """Return the function that makes samples of a row that the core reads (values, key, row of the file)."""
        at = b""

        def samples(values: dict[str, Any], key: bytes, row: int) -> Iterable[Any]:
            nonlocal at
            check_others(self.group)
            at, self.row = key, row
            try:
                sample = files.decode(values)
            except Exception as raised:
                self.failed("reading it", raised)
                return ()
            return () if sample is None else self.each(sample)

        self.label = lambda row: files.place(unit, at, row)
        return samples

    def passed_over(self, left_out: dict[str, Any]) -> None:
        """Count what the core itself left out of a unit."""
        self.filtered += left_out["filtered"]
        self.bad += left_out["bad"]
        self.bad_first += left_out["bad_first"].splitlines()[:BAD_SHOWN - len(self.bad_first)]

    def call(self, what: str, function: Callable[[Any], Any], sample: Any) -> Any:
        """Return function(sample). CallbackError if it raises."""
        try:
            return function(sample)
        except DataError:  # length_of raised it
            raise
        except Exception as raised:
            raise callback_failed(raised, self.group.rank, what, self.label(self.row)) from raised

    def failed(self, what: str, raised: Exception) -> None:
        """Count a bad sample (skip_bad), or raise: Rankstore's own errors unchanged, others as CallbackError."""
        if self.skip_bad:
            self.note(str(raised) if isinstance(raised, RankStoreError)
                      else f"{what} raised {type(raised).__name__}: {raised}")
        elif isinstance(raised, RankStoreError):
            raise raised
        else:
            raise callback_failed(raised, self.group.rank, what, self.label(self.row)) from raised

    def note(self, why: str) -> None:
        self.bad += 1
        if len(self.bad_first) < BAD_SHOWN:
            self.bad_first.append(f"{self.label(self.row)}: {why}"[:500])


class _Enough(Exception):
    pass


def first_rows(steps: Steps, files: CoreFiles, unit: Unit, count: int) -> list[Any]:
    """Return the first samples of a unit after map and filter, `count` or a few more."""
    found: list[Any] = []
    decode = steps.of(files, unit)

    def take(values: dict[str, Any], key: bytes, row: int) -> None:
        found.extend(decode(values, key, row))
        if len(found) >= count:
            raise _Enough

    try:
        steps.passed_over(files.hand_over(unit, take))
    except _Enough:
        pass
    return found


def length_of(function: Callable[[Any], Any]) -> Callable[[Any], int]:
    """Return the function with a check of its result. DataError if that is not a length."""
    def call(sample: Any) -> int:
        length = function(sample)
        if not hasattr(length, "__index__") or not 0 <= length.__index__() < 1 << 64:
            raise DataError(f"length returned {str(length)[:40]}; it must return an int, 0 to 2^64 - 1")
        return int(length.__index__())
    return call


class Feeder:
    """Adds samples to a sink in the schema's order.

    `loose`: columns that the schema lacks are passed over, as the user gave it; else they are an error. `rest`: they go to
    the column EXTRA, as an object. `given`: the user gave the schema; else a json column takes null for what is missing.
    `derives`: each
    sample brings the key that the core would derive for its row; of several that a map makes of one, all but the first
    have ":1", ":2" after it.
    """

    def __init__(self, schema: Sequence[tuple[str, str]], steps: Steps, *, loose: bool,
                 key: Callable[[Any], Any] | None, length: Callable[[Any], Any] | None, derives: bool = False,
                 rest: bool = False, given: bool = True) -> None:
        self.schema, self.steps, self.loose, self.key = schema, steps, loose, key
        self.rest, self.given = rest, given
        self.length = None if length is None else length_of(length)
        self.derives = derives
        self._row_key: bytes | None = None  # key of the current row, if the core reads the files
        self._unit, self._given = "", 0  # how many keys were made from the row's key, or from the unit
        self.sink: _core.Sink  # of the unit that is read
        self.own: Callable[[int], tuple[bytes | None, int | None]] | None = None  # key and length that the unit's items bring
        self._names = {name for name, _ in schema}
        # an inferred complex64 must not round, so these columns are checked
        self._complex = [] if loose else [name for name, kind in schema if kind.rstrip("?") == "complex64"]
        first = schema[0][0]
        self._row: Callable[[Any], Sequence[Any]] = itemgetter(*[name for name, _ in schema]) if len(schema) > 1 else \
            lambda sample: (sample[first],)

    def feed_rows(self, sink: _core.Sink, files: CoreFiles, unit: Unit) -> None:
        """Add the samples that the core reads in a unit."""
        self.sink, steps = sink, self.steps
        steps.begin()
        decode = steps.of(files, unit)

        def take_each(values: dict[str, Any], key: bytes, row: int) -> None:
            self._row_key, self._given = key, 0
            for sample in decode(values, key, row):
                try:
                    self._add_one(sample)
                except (TypeError, ValueError) as refused:
                    self._refused(refused)

        take: Callable[[dict[str, Any], bytes, int], None] = take_each
        if steps.map is not None and steps.filter is None and self.key is None and self.length is None and \
                not self.rest and not self._complex:
            take = self._take_mapped(files, unit, steps.map)
        steps.passed_over(files.hand_over(unit, take))
        self._end()

    def _take_mapped(self, files: CoreFiles, unit: Unit, mapped: Callable[[Any], Any]) -> Callable[[dict[str, Any], bytes, int], None]:
        """Do what `take_each` does, in one function: calls and generators took as long as a small map."""
        steps, add, row_of, count = self.steps, self.sink.add, self._row, len(self.schema)
        decode, must_stop, derives = files.decode, steps.group.core.must_stop, self.derives
        steps.label = lambda row: files.place(unit, self._row_key or b"", row)

        def take(values: dict[str, Any], key: bytes, row: int) -> None:
            if must_stop():
                raise Stopped
            self._row_key, self._given, steps.row = key, 0, row
            try:
                sample = decode(values)
            except Exception as raised:
                steps.failed("reading it", raised)
                return
            if sample is None:
                return
            try:
                made = mapped(sample)
            except Exception as raised:
                steps.failed("map", raised)
                return
            if made is None:
                steps.filtered += 1
                return
            for one in made if isinstance(made, list) else (made,):
                try:
                    fields = row_of(one) if one.__class__ is dict and len(one) == count and not self._given else None
                except KeyError:
                    fields = None
                try:
                    if fields is None:
                        self._add_one(one)
                    else:
                        self._given = 1
                        add(fields, key if derives else None, None)
                except (TypeError, ValueError) as refused:
                    self._refused(refused)

        return take

    def feed(self, sink: _core.Sink, items: Iterable[Any], decode: Callable[[Any], Any] | None, name: str = "") -> None:
        """Add the samples of a unit's items."""
        self.sink, self._row_key, self._unit, self._given = sink, None, name, 0
        self.steps.begin()
        add, row_of, count, columns = self.sink.add, self._row, len(self.schema), Columns
        simple = self.key is None and self.length is None and not self.derives and not self.rest and \
            not self._complex
        own, steps = self.own, self.steps
        for sample in steps.samples(items, decode):
            if isinstance(sample, columns):
                self._add_columns(sample)
                continue
            try:
                if simple and sample.__class__ is dict and len(sample) == count:
                    try:
                        row = row_of(sample)
                    except KeyError:
                        row = self._slow_row(sample)
                    if own is None:
                        add(row)
                    else:
                        add(row, *own(steps.row))
                else:
                    self._add_one(sample)
            except (TypeError, ValueError) as refused:  # DataError is a ValueError
                self._refused(refused)
        self._end()

    def _end(self) -> None:
        steps = self.steps
        self.sink.left_out(steps.filtered, steps.bad, "\n".join(steps.bad_first))

    def _refused(self, refused: Exception) -> None:
        text = getattr(refused, "text", "") or str(refused)
        if isinstance(refused, RankStoreError) and not isinstance(refused, DataError):
            raise refused
        if not self.steps.skip_bad:
            raise DataError(f"{self.steps.label(self.steps.row)}: {text}") from refused
        self.steps.note(text)

    def _slow_row(self, sample: Any) -> list[Any]:
        if not isinstance(sample, Mapping):
            raise DataError(f"a sample is a dict, not {type(sample).__name__} (map gives a dict, None or a list of "
                            "dicts)")
        if self.rest:
            known, given = self._names - {EXTRA}, sample
            left = {name: value for name, value in given.items() if name not in known}
            sample = {name: value for name, value in given.items() if name in known} | ({EXTRA: left} if left else {})
        elif not self.loose:
            for name in sample:
                if name not in self._names:
                    raise DataError(f'column "{name}" is not in the schema, which was inferred from the first samples '
                                    'or is the dataset\'s; give schema=, schema="auto:all", or extra="drop" or "json"')
        row = []
        for name, kind in self.schema:
            if name not in sample and not kind.endswith("?") and (self.given or kind != "json"):
                raise DataError(f'column "{name}" ({kind}) is missing; type "{kind}?" in schema= allows that')
            row.append(sample.get(name))
        return row

    def _add_one(self, sample: Any) -> None:
        row: Sequence[Any] | None = None
        if sample.__class__ is dict and len(sample) == len(self.schema) and not self.rest:
            try:
                row = self._row(sample)
            except KeyError:
                pass
        if row is None:
            row = self._slow_row(sample)
        for name in self._complex:
            values.check_complex(name, sample.get(name))
        key: str | bytes | None = None
        length: int | None = None
        if self.own is not None:
            key, length = self.own(self.steps.row)
        if callable(self.key):
            key = self.steps.call("key", self.key, sample)
            if isinstance(key, int):
                key = str(key)
            if not isinstance(key, (str, bytes)):
                raise DataError(f"key returned {type(key).__name__}, not str or bytes")
        elif self.derives:
            key = self._derived()
        if self.length is not None:
            length = self.steps.call("length", self.length, sample)
        self.sink.add(row, key, length)

    def _derived(self) -> bytes:
        place, self._given = self._given, self._given + 1
        if self._row_key is None:
            return f"{self._unit}:{place}".encode()
        return b"%b:%d" % (self._row_key, place) if place else self._row_key

    def _add_columns(self, columns: Columns) -> None:
        arrays = None
        if not callable(self.key) and self.length is None and not self.derives and not self.rest:
            try:
                arrays = columns.arrays(self.schema, self.loose)
            except (TypeError, ValueError) as refused:
                if not self.steps.skip_bad or columns.keys is not None:
                    self._refused_columns(refused)
        if arrays is None:
            self._add_rows(columns)
            return
        try:
            self.sink.add_arrays(arrays, columns.count, columns.keys)
        except (TypeError, ValueError) as refused:  # no retry by rows: some samples may have been added already
            self._refused_columns(refused)

    def _add_rows(self, columns: Columns) -> None:
        functions = callable(self.key) or self.length is not None or self.rest
        try:
            columns.in_units(() if functions else self.schema)
        except ValueError as refused:
            self._refused_columns(refused)
        for i, sample in enumerate(columns.rows(functions)):
            check_others(self.steps.group)
            self.steps.row += i > 0
            try:
                if columns.keys is not None and not callable(self.key):
                    self.sink.add(self._slow_row(sample), columns.keys[i])
                else:
                    self._add_one(sample)
            except (TypeError, ValueError) as refused:
                self._refused(refused)
        self.steps.row -= max(0, len(columns) - 1)  # the caller's samples() counts the rows

    def _refused_columns(self, refused: Exception) -> None:
        if isinstance(refused, RankStoreError) and not isinstance(refused, DataError):
            raise refused
        text = getattr(refused, "text", "") or str(refused)
        raise DataError(f"{self.steps.label(self.steps.row)} and those after it: {text}") from refused
