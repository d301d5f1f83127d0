# SPDX-License-Identifier: Apache-2.0
"""Makes batches by a layout of what the library's threads have collated."""
from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import _core
from .._schema.types import BITS, Column, as_array, numpy_dtype, torch_view, typed_numpy
from ..errors import ArgumentError, DataError
from .batch import Batch
from .layouts import Layout, Pad, Rename, check_name
from .limits import Rule


def _text(item: str, data: memoryview, edges: list[int]) -> list[Any]:
    if item == "bytes":
        return [data[begin:end] for begin, end in zip(edges, edges[1:])]
    texts = [str(data[begin:end], "utf-8") for begin, end in zip(edges, edges[1:])]
    return texts if item == "str" else [json.loads(text) if text else None for text in texts]


class _Widths:
    """How wide a plan's budget lets the padded columns of a batch be.

    If the column that lengths count is not padded beside them (a text, a number, a column left out), that is what lengths say. If it is,
    others may be longer, but no value above the whole budget."""

    def __init__(self, length: str, axes: Mapping[str, int], rule: Rule, multiple: int, counted: bool) -> None:
        self._length, self._axes = length, axes  # the axis of each column's width, by its name in a batch
        self._rule, self._multiple, self._counted = rule, multiple, counted

    @staticmethod
    def of(layout: Layout, rule: Rule, length: str | None, columns: Sequence[Column], rename: Rename) -> _Widths | None:
        """Return what a layout must keep to in a plan's batches; None if it pads nothing, or the plan bounds nothing.

        A plan that cuts or splits samples does so with the columns that are as long as these; the others are whole."""
        if not isinstance(layout, Pad) or not rule.budget or rule.cut or rule.split or length is None:
            return None
        axes = {rename.get(column.name, column.name): 1 + column.dims.index(None) for column in columns
                if column.varies and not column.is_text and not layout._is_concat(column.name)}
        counted = axes.pop(rename.get(length, length), None) is not None
        return _Widths(length, axes, rule, 8 if layout.to_multiple is None else layout.to_multiple, counted) if axes else None

    def check(self, batch: Batch) -> None:
        """Raise ArgumentError if a column is too wide."""
        most, what = self._rule.budget * self._rule.unit, "in all"
        if not self._counted:
            longest = int(batch.lengths.max(initial=0)) * self._rule.unit
            most, what = -(-longest // self._multiple) * self._multiple, "a sample of this batch"
        for name, axis in self._axes.items():
            width = batch[name].shape[axis]
            if width > most:
                raise ArgumentError(f"Pad(): the plan's budget counts {self._length!r}, at most {most:,} {what}, and {name!r} is padded to "
                                    f"{width:,} a sample; build the dataset with length={name!r}, or leave the column out by columns=")


class Collator:
    """A layout over chosen columns of a schema: makes a Batch of what the library collated. Picklable.

    length: the column whose items the dataset's lengths count; None if they are of no single column.
    """

    def __init__(self, layout: Layout, schema: Mapping[str, Column], columns: Sequence[str] | None = None,
                 rename: Rename | None = None, out: str = "torch", length: str | None = None) -> None:
        if isinstance(columns, str):
            raise ArgumentError(f"columns: a list of names, not the str {columns!r}")
        if out not in ("torch", "numpy"):
            raise ArgumentError(f"out: {out!r} is neither 'torch' nor 'numpy'")
        for option, names in (("columns", columns), ("rename", rename)):
            for name in names or ():
                check_name(option, name, schema, {})
        layout = layout.of_tokens(schema, rename or {}, length)
        self.layout, self.out, self.rename, self.length = layout, out, dict(rename or {}), length
        layout.check(schema, self.rename)
        self._schema, self._planned = dict(schema), dict[Rule, Collator]()
        for option in ("mask", "lengths"):
            for name in value if isinstance(value := getattr(layout, option, None), Mapping) else ():
                if columns is not None and name not in columns:
                    raise ArgumentError(f"{option}: column {name!r} is not among columns={list(columns)!r}")
        self.columns = [schema[name] for name in (columns if columns is not None else schema)]
        self.named = {self.rename.get(column.name, column.name): column for column in self.columns}
        self.text = {name: column.item for name, column in self.named.items() if column.is_text}
        self.varying = {name for name, column in self.named.items() if column.varies}
        self.options = layout.options(self.columns, self.rename, length)  # JSON-able
        self.narrowed = {self.rename.get(column.name, column.name): item for column in self.columns
                         if (item := layout.narrowed(column)) is not None}
        self.core = _core.Collate(**self.options)
        self._widths: _Widths | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        names = [column.name for column in self.columns]
        return (Collator, (self.layout, self._schema, names, self.rename, self.out, self.length))

    @functools.cached_property
    def _array(self) -> Any:
        import numpy
        return numpy.ndarray

    @functools.cached_property
    def _to_torch(self) -> Callable[[Any], Any] | None:
        if self.out == "numpy":
            return None
        import torch
        return torch.from_numpy

    @functools.cached_property
    def _marks(self) -> dict[str, tuple[str, str]]:
        """Return the arrays that only describe columns: {"y.missing": ("y", "missing")}."""
        return {f"{name}.{mark}": (name, mark) for name, column in self.named.items() for mark in ("missing", "items")
                if mark == "items" or column.nullable}

    @functools.cached_property
    def _special(self) -> set[str]:
        """Return the names of arrays that need more than a view of their memory, see `_put`."""
        bits = {name for name, column in self.named.items() if column.item in BITS or self.layout.item(column) in BITS}
        return {*self._marks, *self.text, *self.narrowed, *bits}

    @functools.cached_property
    def _int64(self) -> Any:
        return numpy_dtype("int64")

    @functools.cached_property
    def _uint32(self) -> Any:
        return numpy_dtype("uint32")

    def planned(self, rule: Rule) -> Collator:
        """Return the collator for batches of a plan. ArgumentError if the layout contradicts it."""
        if rule in self._planned:
            return self._planned[rule]
        column = self._schema.get(self.length or "")
        counts = column is not None and column.varies and not column.is_text and rule.unit == 1
        length = self.length if counts else None
        names = [one.name for one in self.columns]
        made = Collator(self.layout.planned(rule, length, names), self._schema, names, self.rename, self.out, self.length)
        made._widths = _Widths.of(made.layout, rule, self.length, made.columns, made.rename)
        self._planned[rule] = made
        return made

    @functools.cached_property
    def _cuts_lengths(self) -> bool:
        """Return True if the layout's cut also applies to lengths, because they count items."""
        if self.layout.cut_lengths is not None:
            return self.layout.cut_lengths
        column = self._schema.get(self.length or "")
        return column is not None and column.varies and not column.is_text

    def batch(self, arrays: Any) -> Batch:
        """Return the batch of collated arrays, without a copy.

        This runs for each batch, between two steps of training: whatever can be computed once is."""
        made, array, count = Batch.unfilled(), self._array, (arrays.samples,)
        offsets: dict[str, Any] = {}
        items: dict[str, Any] = {}
        absent: dict[str, Any] = {}
        made.ids = array(count, self._int64, arrays.ids())
        made.lengths = array(count, self._uint32, arrays.lengths())
        if self.layout.cut_to:
            made._cut, made._cuts_lengths = self.layout.cut_to, self._cuts_lengths
            if made._cuts_lengths:
                made.lengths = made.lengths.clip(max=made._cut)
        pieces = arrays.pieces()
        if pieces is not None:
            made._pieces = as_array(pieces, "uint32").reshape(-1, 3)
        to_torch, special, varying = self._to_torch, self._special, self.varying
        for name, item, dims, data, bounds in arrays.arrays():
            if bounds is not None or name in special:
                self._put(made, (name, item, dims, data, bounds), offsets, items, absent)
                continue
            values = array(dims, numpy_dtype(item), data)
            made[name] = values if to_torch is None else to_torch(values)
            if name in varying:
                made._padded = max(made._padded, dims[0] * dims[1])
        for name, flags in absent.items():
            self._missing(made, name, flags)
        if self._widths is not None:
            self._widths.check(made)
        self.layout.finish(made, self.columns, self.rename, offsets, self.out, items, self.length)
        return made

    def _put(self, made: Batch, described: tuple[str, str, tuple[int, ...], Any, Any], offsets: dict[str, Any],
             items: dict[str, Any], absent: dict[str, Any]) -> None:
        """Put an array that is no plain stack of numbers into the batch, or into the dict of what it describes."""
        name, item, dims, data, bounds = described
        if name in self._marks and name not in self.named:
            of, mark = self._marks[name]
            (items if mark == "items" else absent)[of] = self._array(dims, numpy_dtype(item), data)
            return
        edges = None if bounds is None else as_array(bounds, "int64")
        if name in self.text:
            made[name] = _text(self.text[name], memoryview(data), [] if edges is None else edges.tolist())
            return
        values = self._array(dims, numpy_dtype(item), data)
        made[name] = typed_numpy(values, item) if self._to_torch is None else torch_view(self._to_torch(values), item)
        if name in self.narrowed:
            made[name] = self._rounded(made[name], self.narrowed[name])
        if edges is not None:
            offsets[name] = edges
        if name in self.varying and (edges is None or self.layout.layout == "rows" and len(dims) > 1):
            made._padded = max(made._padded, dims[0] * dims[1])

    def _rounded(self, array: Any, item: str) -> Any:
        if self._to_torch is not None:
            import torch
            return array.to(getattr(torch, item))
        if numpy_dtype(item).kind != "f":
            raise ArgumentError(f'dtype: numpy has no {item}; use out="torch"')
        return array.astype(numpy_dtype(item))

    def _missing(self, made: Batch, name: str, flags: Any) -> None:
        """Replace or mark a column's missing values. DataError if neither `missing` nor `fill` is set."""
        layout, column = self.layout, self.named[name]
        if layout.missing == "mask":
            made.missing[name] = flags if self._to_torch is None else self._to_torch(flags)
        if not flags.any():
            return
        has_fill = layout.fill is not None and column.name in layout.fill
        if column.is_text and (has_fill or layout.missing is not None or column.item == "json"):
            value = layout.fill[column.name] if layout.fill is not None and has_fill else None
            made[name] = [value if is_missing else one for one, is_missing in zip(made[name], flags.tolist(), strict=True)]
        elif layout.fill is not None and has_fill:
            if getattr(made[name], "rankstore_type", None):
                raise ArgumentError(f'fill: numpy has no {column.item}, the type of {column.name!r}; use out="torch"')
            made[name][flags if self._to_torch is None else self._to_torch(flags)] = layout.fill[column.name]
        elif layout.missing is None:
            sample = int(made.ids[flags.argmax()])
            kind = type(layout).__name__
            filled = "" if column.varies else f', or {kind}(fill={{"{column.name}": VALUE}})'
            raise DataError(f'sample {sample}: column "{column.name}" ({column.text}) is missing; use {kind}(missing="mask"), '
                            f'which adds batch.missing["{name}"]{filled}, or leave the column out by columns=')
