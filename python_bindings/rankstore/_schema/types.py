# SPDX-License-Identifier: Apache-2.0
"""Column types: "int32[*]", "float16[80,*]", "str", "int64?" and what numpy and torch call them."""
from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

# bfloat16 and float8 have no numpy type: numpy sees their bits.
_NUMPY = {
    "bool": "?", "int8": "<i1", "int16": "<i2", "int32": "<i4", "int64": "<i8", "uint8": "<u1", "uint16": "<u2",
    "uint32": "<u4", "uint64": "<u8", "float16": "<f2", "float32": "<f4", "float64": "<f8", "complex64": "<c8",
    "bfloat16": "<u2", "float8_e4m3fn": "<u1", "float8_e5m2": "<u1",
}
_BITS = {"bfloat16", "float8_e4m3fn", "float8_e5m2"}
TEXT = {"str", "bytes", "json"}
EXTRA = "extra"  # the column of members that a schema lacks
ITEMS = tuple(_NUMPY)  # item types of arrays


_WIDER = {"float8_e4m3fn": ("float16", "bfloat16", "float32", "float64"), "float16": ("float32", "float64"), "float32": ("float64",)}
_WIDER.update(float8_e5m2=_WIDER["float8_e4m3fn"], bfloat16=_WIDER["float16"])
_DIGITS = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}  # exact whole numbers have at most so many bits


def int_range(item: str) -> tuple[int, int]:
    """Return the least and the largest value of an integer type, or of bool."""
    bits = 1 if item == "bool" else int(item.lstrip("uint"))
    return (0, (1 << bits) - 1) if item[0] in "ub" else (-(1 << bits - 1), (1 << bits - 1) - 1)


def holds(item: str, stored: str) -> bool:
    """Return True if every value of `stored` is one of `item`, so that a collate may convert it, by the library's table of pairs."""
    if item == stored:
        return True
    if stored in _WIDER:
        return item in _WIDER[stored]
    if stored == "bool" or "int" in stored:
        low, high = int_range(stored)
        if "int" in item:
            least, most = int_range(item)
            return least <= low and high <= most
        return (max(high, -low - 1)).bit_length() <= _DIGITS.get(item, 0)
    return False


@dataclass(frozen=True)
class Column:
    """One column of a schema: its name, its item type, its dimensions (None: differs from sample to sample), and
    whether a value may be missing."""

    name: str
    item: str
    dims: tuple[int | None, ...]
    nullable: bool
    text: str

    @property
    def is_text(self) -> bool:
        return self.item in TEXT

    @property
    def varies(self) -> bool:
        return None in self.dims

    @property
    def is_scalar(self) -> bool:
        return not self.dims and not self.is_text

    @property
    def is_integer(self) -> bool:
        return self.item.lstrip("u").startswith("int")


def parse(name: str, text: str) -> Column:
    """Return a column for its type's text, which the library has validated."""
    nullable = text.endswith("?")
    item, _, dims = text.rstrip("?").partition("[")
    sizes = tuple(None if size.strip() == "*" else int(size) for size in dims.rstrip("]").split(",")) if dims else ()
    return Column(name, item, sizes, nullable, text)


@functools.cache
def numpy_dtype(item: str) -> Any:
    """Return the numpy dtype of an item type; for bfloat16 and float8, that of the bits."""
    import numpy
    return numpy.dtype(_NUMPY[item])


def as_array(data: Any, item: str) -> Any:
    """Return the items of a buffer without a copy; for bfloat16 and float8, the bits."""
    import numpy
    return numpy.frombuffer(data, numpy_dtype(item))


def torch_view(tensor: Any, item: str) -> Any:
    """Return a tensor of bits as its real type."""
    if item not in _BITS:
        return tensor
    import torch
    return tensor.view(getattr(torch, item))
