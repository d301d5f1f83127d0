# SPDX-License-Identifier: Apache-2.0
"""Digests everything that a source holds in memory, to find whether the source changed after a dataset was built from it.

Equal samples have equal digests in every process: values count, not identities, and sets are put in order. What counts:
    Python's containers, numbers, texts and times   the value
    arrays and tensors in main memory               type, shape and all bytes
    dataclasses                                     the fields
    paths; images of PIL                            path and size of the file; mode and pixels
    other objects, and tensors elsewhere            the type alone
"""
from __future__ import annotations

import dataclasses
import datetime
import hashlib
import os
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

_BY_REPR = frozenset(("datetime", "decimal", "fractions", "pathlib", "uuid"))
_SMALL = 4096  # bytes; arrays up to this size are copied, not hashed one by one
_COPIED = 1 << 24  # bytes; arrays of a column up to this total are copied and hashed at once


def _hash() -> Any:
    """Return a SHA-1: the fastest of hashlib on processors with instructions for it, which most have. It guards against accidents only."""
    return hashlib.sha1(usedforsecurity=False)


class _HasSetError(Exception):
    """Raised on a set, whose order differs from process to process."""


def of_items(items: Callable[[], Sequence[Any]]) -> str:
    """Return a digest of what items() returns, in hexadecimal digits."""
    try:
        values = _without_arrays(list(items()))
        try:
            return of_value(values)
        except _HasSetError:
            return of_value(_ordered(values))
    except Exception as raised:  # the build itself reports a sample that cannot be read
        return type(raised).__qualname__


def _without_arrays(values: list[Any]) -> Any:
    """Return the samples with columns of arrays replaced by one digest each, many times faster than a call per array while pickling."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not values or not all(type(sample) is dict for sample in values):
        return values
    columns = {}
    for name in [name for name, one in values[0].items() if type(one) is numpy.ndarray]:
        arrays = [sample.get(name) for sample in values]
        if set(map(type, arrays)) == {numpy.ndarray} and (seen := _of_arrays(numpy, arrays)) is not None:
            columns[name] = seen
    if not columns:
        return values
    rest = [{name: one for name, one in sample.items() if name not in columns} for sample in values]
    return ["arrays", columns, rest]


def _of_arrays(numpy: Any, arrays: list[Any]) -> Any:
    """Return (type, shapes, digest) of arrays if all have the same type and it is one of numpy's own; else None."""
    kinds = {array.dtype for array in arrays}
    if len(kinds) != 1 or arrays[0].dtype.isbuiltin != 1 or arrays[0].dtype.hasobject:
        return None
    made = _hash()
    if sum(array.nbytes for array in arrays) <= _COPIED:
        made.update(numpy.concatenate(arrays, axis=None).view(numpy.uint8))
    else:
        for array in arrays:
            made.update(_flat(numpy, array))
    return arrays[0].dtype.str, [array.shape for array in arrays], made.hexdigest()


def _flat(numpy: Any, array: Any) -> Any:
    """Return the array's bytes, without a copy if they are contiguous."""
    return numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)


def of_value(value: Any) -> str:
    sink = _Sink()
    pickler = _Pickler(sink, 3)  # later protocols do not call reducer_override for sets
    pickler.fast = True  # no memo: equal values are written alike, as one object or as two
    pickler.dump(value)
    return str(sink.digest.hexdigest())


class _Sink:
    """A file that only hashes what is written to it."""

    def __init__(self) -> None:
        self.digest = _hash()
        self.write = self.digest.update


def _ordered(value: Any) -> Any:
    """Return the value with each set replaced by a list whose order is the same in all processes."""
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if isinstance(value, Set):
        return [type(value).__name__, sorted(of_value(_ordered(one)) for one in value)]
    if type(value) is dict:
        return ["dict", *([_ordered(name), _ordered(one)] for name, one in value.items())]
    parts = value if type(value) in (list, tuple) else _parts(value)
    return [type(value).__name__, *(_ordered(one) for one in parts)]


def _seen(*parts: Any) -> None:
    """Marks, in the pickle, a value that is none of Python's own types. Never called."""


class _Pickler(pickle.Pickler):
    """Writes a pickle that is only hashed, never read."""

    def reducer_override(self, value: Any) -> Any:
        if value is _seen:
            return NotImplemented
        if value is set or value is frozenset:
            raise _HasSetError
        return _seen, _parts(value)


def _parts(value: Any) -> tuple[Any, ...]:
    """Return what counts of a value whose own __reduce__ pickle would have called."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return (name, str(value.dtype), tuple(value.shape), _bytes(value))
    if isinstance(value, (bytearray, memoryview)):
        return name, bytes(value)
    if isinstance(value, Set):
        raise _HasSetError
    if isinstance(value, Mapping):
        return name, dict(value.items())
    bases: tuple[Any, ...] = (tuple, list, str, bytes, int, float)
    for base in bases:
        if isinstance(value, base):
            return name, base(value)
    if isinstance(value, os.PathLike):  # its file is stored
        try:
            return name, repr(value), os.stat(value).st_size
        except OSError:
            return name, repr(value)
    if "PIL.Image" in sys.modules and isinstance(value, sys.modules["PIL.Image"].Image):
        return name, value.mode, value.size, value.getpalette(), value.tobytes()
    if isinstance(value, (complex, datetime.date, datetime.timedelta)) or kind.__module__.partition(".")[0] in _BY_REPR:
        return name, repr(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return name, {one.name: getattr(value, one.name, None) for one in dataclasses.fields(value)}
    return name, getattr(value, "__qualname__", "")


def _bytes(value: Any) -> Any:
    """Return an array's bytes, or their digest if they are many; a list for an array of objects; None if it is not in main memory."""
    import numpy
    if hasattr(value, "detach"):
        if str(value.device) != "cpu":
            return None
        value = value.detach().contiguous()
        if value.dim() == 0:
            value = value.reshape(1)
        import torch
        value = value.view(torch.uint8).numpy()
    elif not isinstance(value, (numpy.ndarray, numpy.generic)):
        return None
    if value.dtype.hasobject:
        return value.tolist()
    if value.nbytes <= _SMALL:
        return value.tobytes()
    made = _hash()
    made.update(_flat(numpy, value))
    return made.hexdigest()
