# SPDX-License-Identifier: Apache-2.0
"""A digest of all that lies in memory, so that a source that was changed is told from what a dataset was made of.

Equal samples have equal digests in every process: it is by value, not by identity, and sets are put in order. Of arrays
and tensors in main memory the type, shape and all bytes count; of dataclasses the fields; of objects that are none of
Python's own containers, numbers, texts and times, and of tensors elsewhere, the type alone.
"""
from __future__ import annotations

import dataclasses
import hashlib
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

_BY_REPR = frozenset(("datetime", "decimal", "fractions", "pathlib", "uuid"))
_SMALL = 4096  # bytes of an array that are copied rather than hashed by themselves
_COPIED = 1 << 24  # bytes of arrays that are copied to be hashed at once


def _hash() -> Any:
    """The fastest of hashlib where processors help, as most do: it is against accidents, not against somebody."""
    return hashlib.sha1(usedforsecurity=False)


class _HasSetError(Exception):
    """Sets have an order of their own in each process."""


def of_items(items: Callable[[], Sequence[Any]]) -> str:
    """Hexadecimal digits of what items() gives."""
    try:
        values = _without_arrays(list(items()))
        try:
            return of_value(values)
        except _HasSetError:
            return of_value(_ordered(values))
    except Exception as raised:  # a sample that cannot be read is an error of the build, not of a look at it
        return type(raised).__qualname__


def _without_arrays(values: list[Any]) -> Any:
    """The same with columns that are arrays apart, a digest each, which is many times faster than asking for each array
    in the midst of pickling."""
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
    """(type, shapes, digest) of arrays of one of numpy's own types; else None."""
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
    """Its bytes, without a copy where they lie side by side."""
    return numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)


def of_value(value: Any) -> str:
    sink = _Sink()
    pickler = _Pickler(sink, 3)  # later protocols do not ask reducer_override about sets
    pickler.fast = True  # no memo: what is equal is written alike, whether it is one object or two
    pickler.dump(value)
    return str(sink.digest.hexdigest())


class _Sink:
    """A file that only hashes."""

    def __init__(self) -> None:
        self.digest = _hash()
        self.write = self.digest.update


def _ordered(value: Any) -> Any:
    """The same with what sets hold in an order that all processes come to."""
    if value is None or type(value) in (bool, int, float, str, bytes):
        return value
    if isinstance(value, Set):
        return [type(value).__name__, sorted(of_value(_ordered(one)) for one in value)]
    if type(value) is dict:
        return ["dict", *([_ordered(name), _ordered(one)] for name, one in value.items())]
    parts = value if type(value) in (list, tuple) else _parts(value)
    return [type(value).__name__, *(_ordered(one) for one in parts)]


def _seen(*parts: Any) -> None:
    """The name under which what is not Python's own is written."""


class _Pickler(pickle.Pickler):
    """Writes what is only hashed, never read."""

    def reducer_override(self, value: Any) -> Any:
        if value is _seen:
            return NotImplemented
        if value is set or value is frozenset:
            raise _HasSetError
        return _seen, _parts(value)


def _parts(value: Any) -> tuple[Any, ...]:
    """Of a value that pickle would have asked about itself."""
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
    if isinstance(value, complex) or kind.__module__.partition(".")[0] in _BY_REPR:
        return name, repr(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return name, {one.name: getattr(value, one.name, None) for one in dataclasses.fields(value)}
    return name, getattr(value, "__qualname__", "")


def _bytes(value: Any) -> Any:
    """All of an array; of an array of objects its list; None where it is not in main memory."""
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
