# SPDX-License-Identifier: Apache-2.0
"""A sample's columns as Python's values."""
from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import _core
from . import types

Reader = Callable[[Any, tuple[int, ...]], Any]  # takes a Buffer and its dimensions
Readers = list[tuple[str, Reader]]


_NUMBERS = {"bool": "?", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i", "uint32": "I", "int64": "q",
            "uint64": "Q", "float32": "f", "float64": "d"}


def rows_of(store: _core.Store, columns: Sequence[types.Column], ids: Any) -> _core.Rows:
    """Return what makes dicts of a store's samples, as `values_of` with copies does. ids: uint32, the sample id of each place; None for
    all."""
    return _core.Rows(store, tuple((column.name, *_how(column), len(column.dims)) for column in columns), ids)


def _how(column: types.Column) -> tuple[str, Callable[..., Any] | None, Any]:
    """Return kind, function and dtype of a column for _core.Rows."""
    if column.item in ("bytes", "str"):
        return column.item.replace("bytes", "y")[0], None, None
    if column.item == "json":
        return "j", json.loads, None
    if column.item in types.BITS:
        return "O", reader_of(column, copy=True), None
    if column.is_scalar:
        kind = _NUMBERS.get(column.item)
        return ("O", reader_of(column, copy=True), None) if kind is None else (kind, None, None)
    import numpy
    dtype = types.numpy_dtype(column.item)
    return ("V", numpy.frombuffer, dtype) if len(column.dims) == 1 else ("A", numpy.ndarray, dtype)


def values_of(readers: Readers, values: Sequence[tuple[_core.Buffer, tuple[int, ...]] | None]) -> dict[str, Any]:
    """Return a sample's columns as Python values; None for a missing one."""
    return {name: None if found is None else read(*found) for (name, read), found in zip(readers, values)}


def reader_of(column: types.Column, copy: bool) -> Reader:
    """Return the function that makes Python's value of a column's bytes and dimensions. Chosen once, because it runs for each sample."""
    if column.item == "bytes":
        return (lambda data, dims: bytes(data)) if copy else (lambda data, dims: memoryview(data))
    if column.item == "str":
        return lambda data, dims: str(data, "utf-8")
    if column.item == "json":
        return lambda data, dims: json.loads(str(data, "utf-8"))
    import numpy
    array: Any = numpy.frombuffer
    dtype, item = types.numpy_dtype(column.item), column.item
    if item in types.BITS:
        if copy:
            return lambda data, dims: types.typed(array(data, dtype).reshape(dims).copy(), item)
        return lambda data, dims: types.typed(array(data, dtype).reshape(dims), item)
    if column.is_scalar:
        return lambda data, dims: array(data, dtype).item()
    if len(column.dims) == 1:
        return (lambda data, dims: array(data, dtype).copy()) if copy else (lambda data, dims: array(data, dtype))
    if copy:
        return lambda data, dims: array(data, dtype).reshape(dims).copy()
    return lambda data, dims: array(data, dtype).reshape(dims)


def cutting_reader(schema: Mapping[str, types.Column], chosen: Sequence[str], rename: Mapping[str, str],
                   cuts: bool) -> Callable[[Sequence[Any], int, int, int], dict[str, Any]]:
    """Return a function from (values of all columns, length, start, count) to a sample's chosen columns under their new names.

    Arrays are in the batch's own memory. With `cuts`, a value that has as many items as the sample is long keeps `count` of them from
    `start` on, along its first variable dimension, as in the layouts."""
    places = {name: place for place, name in enumerate(schema)}
    plan = [(places[name], rename.get(name, name), reader_of(schema[name], copy=schema[name].is_text),
             schema[name].dims.index(None) if cuts and schema[name].varies and not schema[name].is_text else -1) for name in chosen]

    def read(values: Sequence[Any], length: int, start: int, count: int) -> dict[str, Any]:
        sample = {}
        for place, name, reader, axis in plan:
            found = values[place]
            value = None if found is None else reader(*found)
            if axis >= 0 and count < length and value is not None and value.shape[axis] == length:
                value = value[(slice(None),) * axis + (slice(start, start + count),)]
            sample[name] = value
        return sample

    return read
