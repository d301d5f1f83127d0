# SPDX-License-Identifier: Apache-2.0
"""Columns: many samples at once, an array a column, without a Python object for each sample."""
from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from ..errors import DataError
from . import times
from .types import BITS, ITEMS, describe, missing_items

_BLOBS = ("str", "bytes", "json")


class Columns:
    """Many samples as one item of an iterable: the fast way to build from memory.

    columns: dict. For each name one of
        - (values, offsets): samples of different sizes. Sample i is values[offsets[i]:offsets[i + 1]] along the first dimension. values is
          an array, or bytes for a str or bytes column; offsets holds count + 1 integers.
        - an array whose first dimension is the sample: scalars (count,) or a fixed shape (count, 80).
        - a list of str or of bytes.
        Arrays are numpy arrays or torch tensors.
    keys: list of str or bytes, one a sample. Default: none.

    Raises DataError naming the column if counts differ or a value has another type.
    """

    __slots__ = ("columns", "count", "keys", "types", "missing")

    def __init__(self, columns: Mapping[str, Any], keys: Sequence[bytes | str] | None = None) -> None:
        self.columns: dict[str, tuple[Any, Any]] = {}
        self.types: dict[str, str] = {}
        self.missing: dict[str, Any] = {}
        self.keys = keys
        self.count = -1 if keys is None else len(keys)
        for name, value in columns.items():
            missing = missing_items(value[0] if isinstance(value, tuple) else value)
            if missing is not None:
                raise DataError(f'column "{name}": an array with {missing} items; fill them, or give each sample as a dict, with None')
            values, offsets, kind, count = _take(name, value)
            if self.count >= 0 and count != self.count:
                raise DataError(f'column "{name}": {count} samples, others have {self.count}')
            self.count = count
            self.columns[name] = (values, offsets)
            self.types[name] = kind
        if self.count < 0:
            raise DataError("Columns: no column was given")

    def __len__(self) -> int:
        return self.count

    def rows(self, functions: bool = False) -> Iterator[dict[str, Any]]:
        """Yield the samples as dicts: arrays are views, scalars are Python's, blobs are str, bytes or decoded JSON.

        functions: for the user's own functions, to whom times are times, not their numbers."""
        each = [_each(self.types[name], times.as_numpy(self.types[name], values) if functions else values, offsets, self.missing.get(name))
                for name, (values, offsets) in self.columns.items()]
        names = list(self.columns)
        for row in zip(*each, strict=True):
            yield dict(zip(names, row, strict=True))

    def arrays(self, schema: Sequence[tuple[str, str]], loose: bool = False) -> list[tuple[Any, Any]] | None:
        """Return the columns as Sink.add_arrays takes them; None if a column is absent, has missing values, or must become JSON (use
        rows() then).

        loose: ignore columns that the schema lacks. Raises DataError if a type differs from the schema's.
        """
        if any(name not in self.columns or name in self.missing or self._becomes_json(name, kind) for name, kind in schema):
            return None
        if not loose:
            check_names(self.columns, schema)
        return [_fit(name, kind, self.types[name], *self.columns[name]) for name, kind in schema]

    def in_units(self, schema: Sequence[tuple[str, str]]) -> None:
        """Make times those of the schema's units. Raises ValueError naming the column if one does not fit."""
        for name, kind in schema:
            if name in self.columns and describe(kind).item not in _BLOBS and describe(self.types[name]).meaning != describe(kind).meaning:
                values, offsets = self.columns[name]
                self.columns[name], self.types[name] = (times.scaled(name, self.types[name], kind, values), offsets), kind

    def _becomes_json(self, name: str, kind: str) -> bool:
        """Return True if values become JSON, or numbers that are JSON here: empty lists whose type other files know."""
        item, own = describe(kind).item, describe(self.types[name]).item
        return own != "json" if item == "json" else own == "json" and item not in _BLOBS


def check_column_names(names: Iterable[str]) -> None:
    """Raise DataError if two columns of a table have one name: one of them would be lost."""
    known: set[str] = set()
    for name in names:
        if name in known:
            raise DataError(f'two columns are called "{name}"')
        known.add(name)


def check_names(given: Mapping[str, Any], schema: Sequence[tuple[str, str]]) -> None:
    """Raise DataError if a column is not in the schema."""
    known = {name for name, _ in schema}
    for name in given:
        if name not in known:
            raise DataError(f'column "{name}" is not in the schema; add it to schema=, or leave it out in map=')


def _array(name: str, value: Any) -> Any:
    """Return a numpy array of a tensor or array, and the name of its item type."""
    import numpy
    if hasattr(value, "detach") and hasattr(value, "numpy"):
        kind = str(value.dtype).removeprefix("torch.")
        tensor = value.detach().cpu().contiguous()
        if kind in BITS:
            import torch
            return tensor.view(getattr(torch, BITS[kind])).numpy(), kind
        return tensor.numpy(), kind
    if getattr(value, "rankstore_type", None) in BITS:  # bits that name their type
        return numpy.ascontiguousarray(numpy.asarray(value)), value.rankstore_type
    array = numpy.ascontiguousarray(value) if getattr(value, "ndim", 1) else numpy.asarray(value)
    of_times = times.type_of_dtype(array.dtype.name)
    if of_times is not None:
        try:
            return times.fitting(name, of_times, array.astype("int64")), of_times
        except ValueError as wrong:
            raise DataError(str(wrong)) from None
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return array, array.dtype.name


def _take(name: str, value: Any) -> tuple[Any, Any, str, int]:
    """Return (values, offsets, type, count) of a user's column."""
    import numpy
    if isinstance(value, tuple) and len(value) == 2:
        offsets = numpy.ascontiguousarray(value[1], dtype=numpy.int64)
        if offsets.ndim != 1 or len(offsets) == 0:
            raise DataError(f'column "{name}": offsets must be one array of count + 1 integers')
        if isinstance(value[0], (bytes, bytearray, memoryview)):
            return value[0], offsets, "bytes", len(offsets) - 1
        values, kind = _array(name, value[0])
        if kind.partition("(")[0] not in ITEMS:
            raise DataError(f'column "{name}": values of {kind} cannot be stored; convert them')
        shape = "".join(f",{size}" for size in values.shape[1:])
        return values, offsets, f"{kind}[*{shape}]", len(offsets) - 1
    if isinstance(value, (list, tuple)):
        return (*_join(name, value), len(value))
    values, kind = _array(name, value)
    if kind.partition("(")[0] not in ITEMS:
        raise DataError(f'column "{name}": an array of {kind} cannot be stored; a list of str or bytes can')
    if values.ndim == 0:
        raise DataError(f'column "{name}": one value; give an array with one value per sample')
    shape = ",".join(str(size) for size in values.shape[1:])
    return values, None, f"{kind}[{shape}]" if shape else kind, len(values)


def _join(name: str, values: Sequence[Any]) -> tuple[bytes, Any, str]:
    """Return a list of str or bytes as (bytes, offsets, type)."""
    import numpy
    if all(isinstance(value, str) for value in values):
        parts, kind = [value.encode() for value in values], "str"
    elif all(isinstance(value, (bytes, bytearray, memoryview)) for value in values):
        parts, kind = [bytes(value) for value in values], "bytes"
    else:
        odd = next(value for value in values if not isinstance(value, (str, bytes, bytearray, memoryview)))
        raise DataError(f'column "{name}": a list holds str or bytes, not {type(odd).__name__}; give an array for numbers')
    offsets = numpy.zeros(len(parts) + 1, dtype=numpy.int64)
    numpy.cumsum([len(part) for part in parts], out=offsets[1:])
    return b"".join(parts), offsets, kind


def _fit(name: str, kind: str, own: str, values: Any, offsets: Any) -> tuple[Any, Any]:
    """Return a column of type `own` converted to the schema's, with its values beginning at its first offset."""
    import numpy
    if describe(own).meaning != describe(kind).meaning:
        values = times.scaled(name, own, kind, values)
    base = describe(kind).item
    if base in _BLOBS:
        if offsets is None or getattr(values, "dtype", numpy.uint8) != numpy.uint8:
            raise DataError(f'column "{name}" is {kind}; give a list of str or bytes, or (bytes, offsets)')
        values = values if hasattr(values, "dtype") else memoryview(values).cast("B")
    else:
        if isinstance(values, (bytes, bytearray, memoryview)):
            raise DataError(f'column "{name}" is {kind}; give an array of numbers, not bytes')
        wanted = numpy.dtype(BITS.get(base, base))
        if values.dtype != wanted:
            if base in BITS or not _holds_all(name, kind, values, wanted):
                raise DataError(f'column "{name}" is {kind}; converting {values.dtype.name} to it would lose digits: '
                                'cast it')
            values = values.astype(wanted)
        if offsets is None and values.ndim > 1 and describe(kind).dims[0] is None:  # equal sizes in a column of variable size
            offsets = numpy.arange(len(values) + 1, dtype=numpy.int64) * values.shape[1]
            values = values.reshape(-1, *values.shape[2:])
    if offsets is not None and offsets[0] != 0:
        values = values[offsets[0]:]
        offsets = offsets - offsets[0]
    if offsets is not None and 0 <= offsets[-1] < len(values):
        values = values[:offsets[-1]]
    return values, offsets


def _holds_all(name: str, kind: str, values: Any, wanted: Any) -> bool:
    """Return True if a dtype holds what another one may hold, or if an integer type or float64 holds the integers that there are.

    DataError names an integer that they don't hold."""
    import numpy
    if numpy.can_cast(values.dtype, wanted, "safe") and wanted.kind != "f":
        return True
    if values.dtype.kind not in "iu" or wanted.kind not in "iu" and wanted.name != "float64":
        return bool(numpy.can_cast(values.dtype, wanted, "safe"))
    if wanted.kind == "f":
        least, most = -(2**53), 2**53
    else:
        least, most = int(numpy.iinfo(wanted).min), int(numpy.iinfo(wanted).max)
    if values.size and not least <= int(values.min()) <= int(values.max()) <= most:
        for one in values.flat:
            if not least <= int(one) <= most and (wanted.kind != "f" or int(float(one)) != int(one)):
                raise DataError(f'column "{name}": {one} does not fit {kind}; give schema= with a type that holds it')
    return True


def _each(kind: str, values: Any, offsets: Any, missing: Any) -> Iterator[Any]:
    """Return an iterator over the values of a column, one per sample."""
    base = describe(kind).item
    if offsets is None:
        each: Iterator[Any] = iter(values.tolist() if values.ndim == 1 and base not in BITS and values.dtype.kind not in "Mm" else values)
    elif base in _BLOBS:
        data = memoryview(values).cast("B")
        each = (_blob(base, data[start:stop]) for start, stop in pairwise(offsets.tolist()))
    else:
        each = (values[start:stop] for start, stop in pairwise(offsets.tolist()))
    if missing is None:
        return each
    return (None if absent else value for value, absent in zip(each, missing.tolist(), strict=True))


def _blob(base: str, data: memoryview) -> Any:
    if base == "bytes":
        return bytes(data)
    return json.loads(bytes(data)) if base == "json" else str(data, "utf-8")
