# SPDX-License-Identifier: Apache-2.0
"""Arrays as samples: an array or tensor of rows, and a dict of arrays of one length."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .._schema.times import is_missing, is_time
from .._schema.types import ITEMS, missing_items
from ..errors import ArgumentError


class Rows:
    """A list of samples: sample i is row i of each column."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        # pandas takes a number as a label; iloc takes it as a place
        self.columns = {name: getattr(column, "iloc", column) for name, column in columns.items()}
        # NaN, which pandas puts for what is missing of anything but floats
        self.holes = {name for name, column in columns.items()
                      if hasattr(column, "iloc") and getattr(column.dtype, "kind", "O") == "O" and bool(column.isna().any())}
        self.count = len(next(iter(columns.values())))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            return [self[i] for i in range(*which.indices(self.count))]
        return {name: None if name in self.holes and _is_nan(value) else _one(value)
                for name, value in ((name, column[which]) for name, column in self.columns.items())}


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and value != value


def is_array(value: Any) -> bool:
    """Return True for a numpy array or a tensor."""
    return hasattr(value, "dtype") and hasattr(value, "shape") and hasattr(value, "__getitem__")


def rows_of(source: Any) -> Rows | None:
    """Return the rows of an array ("data"), or of a dict of arrays; None for anything else. ArgumentError for what is nearly one."""
    if is_array(source):
        if not source.shape:
            raise ArgumentError("source: one number; give an array with one sample per row")
        return Rows({"data": source})
    if not isinstance(source, Mapping):
        return None
    lists = [name for name, value in source.items() if is_array(value) and value.shape or isinstance(value, (list, tuple))]
    if not source or len(lists) < len(source):
        other = next((name for name in source if name not in lists), None)
        raise ArgumentError("source: a dict is taken as a dict of arrays of one length; " + (
            "it is empty" if other is None else f"{other!r} is {type(source[other]).__name__}. One sample is a list of one dict"))
    counts = {name: len(source[name]) for name in lists}
    if len(set(counts.values())) > 1:
        raise ArgumentError(f"source: arrays of a dict must have one length, but have {counts}")
    return Rows(source)


def _one(value: Any) -> Any:
    """Return a row; for one number Python's, if it has the same type, and None if it is masked, NaT or pandas' NA."""
    if type(value).__name__ == "NAType" or is_missing(value) or getattr(value, "shape", None) == () and missing_items(value):
        return None
    if not hasattr(value, "shape") or value.shape:
        return value
    kind = str(value.dtype).removeprefix("torch.")
    return value.item() if kind in ("int64", "float64", "bool") or kind not in ITEMS and not is_time(value) else value
