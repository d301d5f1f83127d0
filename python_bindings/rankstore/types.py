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
EXTRA = "extra"  # the column of what a schema lacks
ITEMS = tuple(_NUMPY)  # what an array can have


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
    """A column from its type's text, which the library has found valid."""
    nullable = text.endswith("?")
    item, _, dims = text.rstrip("?").partition("[")
    sizes = tuple(None if size.strip() == "*" else int(size) for size in dims.rstrip("]").split(",")) if dims else ()
    return Column(name, item, sizes, nullable, text)


@functools.cache
def numpy_dtype(item: str) -> Any:
    """The numpy dtype of an item type; of the bits for bfloat16 and float8."""
    import numpy
    return numpy.dtype(_NUMPY[item])


def as_array(data: Any, item: str) -> Any:
    """The items of a buffer, without a copy; of bfloat16 and float8 the bits."""
    import numpy
    return numpy.frombuffer(data, numpy_dtype(item))


def torch_view(tensor: Any, item: str) -> Any:
    """A tensor of bits as the type that it is."""
    if item not in _BITS:
        return tensor
    import torch
    return tensor.view(getattr(torch, item))
