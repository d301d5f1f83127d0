# SPDX-License-Identifier: Apache-2.0
"""Python's values of a sample's columns."""
from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from . import _core, types

Reader = Callable[[Any, tuple[int, ...]], Any]  # of a Buffer and its dimensions
Readers = list[tuple[str, Reader]]


def values_of(readers: Readers, values: Sequence[tuple[_core.Buffer, tuple[int, ...]] | None]) -> dict[str, Any]:
    """A sample's columns as Python has them; None for what is missing."""
    return {name: None if found is None else read(*found) for (name, read), found in zip(readers, values)}


def reader_of(column: types.Column, copy: bool) -> Reader:
    """What makes Python's value of a column's bytes and dimensions. Chosen once: it is called for each sample."""
    if column.item == "bytes":
        return (lambda data, dims: bytes(data)) if copy else (lambda data, dims: memoryview(data))
    if column.item == "str":
        return lambda data, dims: str(data, "utf-8")
    if column.item == "json":
        return lambda data, dims: json.loads(str(data, "utf-8"))
    import numpy
    array: Any = numpy.frombuffer
    dtype = types.numpy_dtype(column.item)
    if column.is_scalar:
        return lambda data, dims: array(data, dtype).item()
    if len(column.dims) == 1:
        return (lambda data, dims: array(data, dtype).copy()) if copy else (lambda data, dims: array(data, dtype))
    if copy:
        return lambda data, dims: array(data, dtype).reshape(dims).copy()
    return lambda data, dims: array(data, dtype).reshape(dims)
