# SPDX-License-Identifier: Apache-2.0
"""Samples that a user's function returned, as a batch of a layout.

The types of their columns follow from the samples of the batch alone, so that a batch is the same on any rank and after a resume:

- A stored column keeps its type as far as its values allow: Python's numbers take it, arrays bring their own item type, and
  dimensions that are of another size vary.
- A new column has the type that `build` infers of its values. Its first dimension varies, and is not rounded up, unless it has as many
  items as a stored one in each sample, as new labels of stored tokens have.
"""
from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import _core
from .._schema import types, values
from ..errors import DataError
from .batch import Batch
from .collator import Collator
from .layouts import Layout, Lists
from .limits import Rule

Sample = Mapping[str, Any]
_KEPT = 64  # schemas


class MappedCollator:
    """A layout over samples of a user's function.

    schema: the columns that the function gets, by the names that it sees. length: the one whose items lengths count. rule: of the plan,
    whose cut was applied before the function. Raises ArgumentError if the layout contradicts the plan.
    """

    def __init__(self, layout: Layout, schema: Mapping[str, types.Column], length: str | None, out: str, rule: Rule) -> None:
        self._layout, self._schema, self._length, self._out = layout, dict(schema), length, out
        self._cut = rule.cut
        layout.planned(rule, self._counted(self._schema, rule), list(self._schema))
        self._rule = dataclasses.replace(rule, cut=0, split=0, longest=rule.cut or rule.split or rule.longest)
        self._made: dict[tuple[types.Column, ...], Collator] = {}  # one for each schema that batches had

    def batch(self, samples: Sequence[Sample], ids: Sequence[int], lengths: Sequence[int], bins: bytes,
              named: Callable[[int], str]) -> Batch:
        """Return the batch. named: a function of a sample's place, for errors. bins: uint32[n + 1], edges of a plan's bins."""
        columns = self._columns(samples, named)
        shapes = {column.name: [numpy_shape(sample[column.name]) for sample in samples] for column in columns if self._is_flat(column)}
        columns = [dataclasses.replace(column, dims=(None,), text=f"{column.item}[*]{'?' * column.nullable}")
                   if column.name in shapes else column for column in columns]
        added = _core.SampleList(json.dumps({column.name: column.text for column in columns}, ensure_ascii=False))
        for place, sample in enumerate(samples):
            row = [_flat(sample[column.name]) if column.name in shapes else sample[column.name] for column in columns]
            try:
                added.add(row, ids[place], lengths[place])
            except (TypeError, ValueError) as refused:
                raise DataError(f"{getattr(refused, 'text', '') or refused} ({named(place)})") from refused
        collator = self._collator(tuple(columns))
        made = collator.batch(added.collate(collator.core, bins or None))
        for name, each in shapes.items():
            made[name] = [one if shape is None else one.reshape(shape) for one, shape in zip(made[name], each, strict=True)]
        if self._cut and not made._cut:
            made._cut, made._cuts_lengths = self._cut, True
        return made

    def _is_flat(self, column: types.Column) -> bool:
        """Return True if the column's values go through the core as rows of items: Lists give each value its own shape."""
        return isinstance(self._layout, Lists) and None in column.dims[1:]

    def _counted(self, schema: Mapping[str, types.Column], rule: Rule) -> str | None:
        column = schema.get(self._length or "")
        return self._length if column is not None and column.varies and not column.is_text and rule.unit == 1 else None

    def _collator(self, columns: tuple[types.Column, ...]) -> Collator:
        made = self._made.get(columns)
        if made is None:
            if len(self._made) >= _KEPT:  # images of many sizes have many schemas
                self._made.clear()
            schema = {column.name: column for column in columns}
            layout = Collator(self._layout, schema, None, None, self._out, self._length).layout
            layout = layout.planned(self._rule, self._counted(schema, self._rule), list(schema))
            made = self._made[columns] = Collator(layout, schema, None, None, self._out, self._length)
        return made

    # ---- the columns of a batch's samples

    def _columns(self, samples: Sequence[Sample], named: Callable[[int], str]) -> list[types.Column]:
        for place, sample in enumerate(samples):
            if not isinstance(sample, Mapping):
                raise DataError(f"map returned {type(sample).__name__}, and a layout needs a dict of columns ({named(place)}); give "
                                "collate=function, which takes any samples")
            other = next((name for name in (*samples[0], *sample) if name not in sample or name not in samples[0]), None)
            if other is not None:
                raise DataError(f'map: column "{other}" is only in some samples of a batch ({named(0)}; {named(place)}); return the same '
                                "columns for all, with None for a missing value")
        columns = [self._column(name, [sample[name] for sample in samples], named) for name in samples[0]]
        sizes = {column.name: [_size(sample[column.name]) for sample in samples] for column in columns if column.dims[:1] == (None,)}
        followed = [sizes[column.name] for column in columns if column.name in sizes and not column.exact]
        return [dataclasses.replace(column, exact=False) if column.exact and sizes.get(column.name) in followed else column
                for column in columns]

    def _column(self, name: str, found: list[Any], named: Callable[[int], str]) -> types.Column:
        stored = self._schema.get(name)
        there = [value for value in found if value is not None]
        nullable = len(there) < len(found)
        if stored is not None and (not there or stored.item == "json" and not any(map(_is_array, there))):
            return stored if stored.nullable or not nullable or stored.item == "json" else types.parse(name, stored.text + "?")
        if not there:
            raise DataError(f'map: column "{name}" is None in all samples of a batch ({named(0)}), so its type is not known; leave it out')
        kind = _kind_of(name, found, named)
        item = types.describe(kind).item
        if stored is not None and not stored.is_text and not any(map(_is_array, there)) and _same_kind(item, stored.item) and \
                ("(" in stored.text or "(" not in kind):  # "int64(date)"
            kind, item = _undimensioned(stored.text), stored.item
        nullable = nullable or stored is not None and stored.nullable
        dims = () if item in types.TEXT else _dims_of(there)
        of_stored = stored is not None and len(stored.dims) == len(dims) and item not in types.TEXT
        if of_stored and stored is not None:
            exact = any(old is not None and new != old for old, new in zip(stored.dims, dims, strict=True))
            dims = tuple(new if new == old else None for old, new in zip(stored.dims, dims, strict=True))
        else:
            exact = True
            dims = (None, *dims[1:]) if dims else ()
        shown = f"[{','.join('*' if dim is None else str(dim) for dim in dims)}]" if dims else ""
        return types.Column(name, item, dims, nullable, f"{kind}{shown}{'?' * nullable}", exact)


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype")


def _size(value: Any) -> int:
    """Return the items along the first dimension; 0 for a missing value."""
    return 0 if value is None else len(value)


def _kind_of(name: str, found: list[Any], named: Callable[[int], str]) -> str:
    """Return the type that holds the items of all values, without dimensions: "int64(timestamp_us)". DataError if none does."""
    merged = {name: "json?"}  # no type yet
    for place, value in enumerate(found):
        if value is None:
            continue
        if values.is_encoded(value):
            raise DataError(f'map: column "{name}": {type(value).__name__} does not fit into a batch ({named(place)}); return '
                            "numpy.asarray(image), or give collate=function, which takes any samples")
        try:
            kind = values.infer({name: value})
        except (TypeError, ValueError) as refused:
            raise DataError(f"map: {refused} ({named(place)}); or give collate=function, which takes any samples") from refused
        try:
            merged = kind if merged[name] == "json?" else values.merge(merged, kind)
        except ValueError as refused:
            raise DataError(f'map: column "{name}": {merged[name]} in one sample, {kind[name]} in another ({named(place)}): no type holds '
                            "both; return one type, or give collate=function, which takes any samples") from refused
    return "float64" if merged[name] == "json?" else _undimensioned(merged[name])  # [] alone: no items, of any type


def _undimensioned(text: str) -> str:
    """Return a type without dimensions and "?"."""
    return re.split(r"[\[?]", text)[0]


def _same_kind(item: str, stored: str) -> bool:
    """Return True if Python's numbers of this item type are numbers of the stored type."""
    kind, other = types.describe(item).kind, types.describe(stored).kind
    whole = ("int", "uint")
    return kind == other or kind in whole and other in (*whole, "float")


def numpy_shape(value: Any) -> tuple[int, ...] | None:
    import numpy
    return None if value is None else tuple(value.shape) if hasattr(value, "shape") else numpy.shape(value)


def _dims_of(found: list[Any]) -> tuple[int | None, ...]:
    """Return the dimensions that the values have in common; None for one that differs, or is 0."""
    shapes = {shape for value in found if (shape := numpy_shape(value)) is not None}
    count = max(map(len, shapes))
    full = [shape for shape in shapes if len(shape) == count]  # [] has one dimension, whatever the others have
    dims = [sizes[0] if len(set(sizes)) == 1 and sizes[0] else None for sizes in zip(*full)]
    return tuple(dims if len(full) == len(shapes) else [None, *dims[1:]])


def _flat(value: Any) -> Any:
    import numpy
    return value if value is None else value.reshape(-1) if hasattr(value, "reshape") else numpy.asarray(value).reshape(-1)
