# SPDX-License-Identifier: Apache-2.0
"""The schema of a build: given, known from the source, or inferred from first samples, and the same on all ranks."""
from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from .. import _core
from ..errors import ArgumentError, DataError
from . import values
from .columns import Columns
from .types import EXTRA, is_integer

Schema = list[tuple[str, str]]


def text_of(schema: Any) -> str | None:
    """Return a schema argument as text for the core. ArgumentError if it is not a schema."""
    if schema is None or isinstance(schema, str):
        return schema
    if isinstance(schema, Mapping) and all(isinstance(name, str) and isinstance(kind, str)
                                           for name, kind in schema.items()):
        return json.dumps(dict(schema), ensure_ascii=False)
    raise ArgumentError('schema: a dict {"name": "type"} or a text "name:type,name:type"')


def names_of(option: str, names: Any) -> tuple[str, ...]:
    """Return the column names of an option; none for None. ArgumentError for a str, whose items are letters."""
    if names is None:
        return ()
    if isinstance(names, (str, bytes)) or not hasattr(names, "__iter__"):
        raise ArgumentError(f"{option}: a list of columns' names or None, not {names!r}")
    return tuple(names)


def parse(text: str) -> tuple[str, Schema]:
    """Return (canonical text, columns)."""
    canonical, columns = _core.parse_schema(text)
    return canonical, list(columns)


def with_counts(text: str, names: list[str]) -> str:
    """Return a schema with the columns that functions count."""
    columns = dict(parse(text)[1])
    return json.dumps({**columns, **{name: "int64" for name in names if name not in columns}}, ensure_ascii=False)


def with_extra(text: str) -> str:
    """Return a schema with the column for what it lacks (extra="json")."""
    columns = dict(parse(text)[1])
    if columns.setdefault(EXTRA, "json?") != "json?":
        raise ArgumentError(f'extra: "json" needs the column "{EXTRA}", which is {columns[EXTRA]} here; it is json?')
    return json.dumps(columns, ensure_ascii=False)


def _widen(ranges: dict[str, tuple[int, int]], sample: Mapping[str, Any]) -> None:
    """Note the sample's ints."""
    for name, value in sample.items():
        if isinstance(value, int):
            least, most = ranges.get(name, (0, 0))
            ranges[name] = min(least, value), max(most, value)


def infer(samples: Iterable[Any], first: int) -> dict[str, str] | None:
    """Return the schema of the first samples (dicts and Columns), `first` of them; None if there are none. Raises DataError."""
    found: list[Mapping[str, str]] = []
    ranges: dict[str, tuple[int, int]] = {}  # the least and the largest int of each column
    try:
        for sample in itertools.islice(samples, first):
            if isinstance(sample, Columns):
                found.append({name: kind + ("?" if name in sample.missing and not kind.startswith("json") else "")
                              for name, kind in sample.types.items()})
            else:
                found.append(values.infer(sample))
                _widen(ranges, sample)
        if not found:
            return None
        merged = values.merge(*found)
        for name, (least, most) in ranges.items():
            if is_integer(values.parse(merged[name])[0]):
                values.check_signs(name, least, most)
        return merged
    except (TypeError, ValueError) as refused:
        text = getattr(refused, "text", "") or refused
        raise DataError(str(text) if "map=" in str(text) else f"{text}; give schema=, or leave it out in map=") from refused


def merge(found: Iterable[tuple[int, Mapping[str, str] | None]],
          nothing: str = "the source is empty") -> dict[str, str]:
    """Return one schema of those that ranks found, in this order.

    DataError names the column and two ranks, or says `nothing` if no rank found a sample."""
    every = [(rank, schema) for rank, schema in found if schema is not None]
    try:
        if every:
            return values.merge(*(schema for _, schema in every))
    except ValueError:
        pass  # parse them one by one, to find which rank differs
    merged: dict[str, str] | None = None
    came_from: dict[str, int] = {}
    for rank, schema in every:
        try:
            merged = dict(schema) if merged is None else values.merge(merged, schema)
        except ValueError as conflict:
            text = str(conflict)
            column = re.search(r'column "(.*?)":', text)
            first = came_from.get(column.group(1), rank) if column else rank
            raise DataError(f"{text} (rank {first} and rank {rank}); give schema=") from conflict
        for name in schema:
            came_from.setdefault(name, rank)
    if merged is None:
        raise DataError(f"no sample to infer a schema from: {nothing}; give schema=")
    return merged
