# SPDX-License-Identifier: Apache-2.0
"""Column types: "int32[*]", "float16[80,*]", "str", "int64?" and what numpy and torch call them."""
from __future__ import annotations

import functools
import sys
from dataclasses import dataclass
from typing import Any, NamedTuple

from .. import _core

EXTRA = "extra"  # the column of members that a schema lacks


class TypeInfo(NamedTuple):
    """A type as the library describes it (rks_type_describe): its item, the class of that ("int", "uint", "float", ...), an item's bytes,
    its dimensions (None: differs from sample to sample; str, bytes and json have none), what numpy calls the items, and what integers stand
    for ("timestamp_us", see times.py; None: numbers)."""

    item: str
    kind: str
    size: int
    dims: tuple[int | None, ...]
    nullable: bool
    numpy: str
    meaning: str | None


@functools.lru_cache(maxsize=4096)
def describe(text: str) -> TypeInfo:
    """Return what a type is: "float16[80,*]?". ArgumentError (a ValueError) if it is none."""
    return TypeInfo(*_core.describe_type(text))


TEXT = frozenset(item for item in _core.item_types() if describe(item).kind in ("str", "bytes", "json"))
ITEMS = tuple(item for item in _core.item_types() if item not in TEXT)  # item types of arrays
# bfloat16 and float8 have no numpy type: numpy sees their bits, as these unsigned integers.
BITS = {item: f"uint{8 * describe(item).size}" for item in ITEMS if describe(item).kind == "float" and describe(item).numpy[1] == "u"}


def is_integer(item: str) -> bool:
    return describe(item).kind in ("int", "uint")


def int_range(item: str) -> tuple[int, int]:
    """Return the least and the largest value of an integer type."""
    bits = 8 * describe(item).size
    return (0, (1 << bits) - 1) if describe(item).kind == "uint" else (-(1 << bits - 1), (1 << bits - 1) - 1)


@dataclass(frozen=True)
class Column:
    """One column of a schema: its name, its item type, its dimensions (None: differs from sample to sample), whether a value may be
    missing, and whether its width in a batch is that of the widest value, not rounded up."""

    name: str
    item: str
    dims: tuple[int | None, ...]
    nullable: bool
    text: str
    exact: bool = False

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
        return is_integer(self.item)


def parse(name: str, text: str) -> Column:
    """Return a column for its type's text."""
    found = describe(text)
    return Column(name, found.item, found.dims, found.nullable, text)


@functools.cache
def numpy_dtype(item: str) -> Any:
    """Return the numpy dtype of an item type; for bfloat16 and float8, that of the bits."""
    import numpy
    return numpy.dtype(describe(item).numpy)


def missing_items(value: Any) -> str | None:
    """Return what a numpy, pandas or Arrow array calls its missing items, "masked", "NA", "NaT" or "null", if it has some; else None.

    Converted to a plain array, these items would become numbers: what stands below the mask, 0 or NaN."""
    if hasattr(value, "mask") and hasattr(value, "filled"):  # numpy.ma
        import numpy
        return "masked" if numpy.ma.is_masked(value) else None
    if getattr(value, "null_count", 0):  # Arrow
        return "null"
    if getattr(getattr(value, "dtype", None), "kind", "") in ("M", "m"):
        import numpy
        return "NaT" if bool(numpy.isnat(numpy.asarray(value)).any()) else None
    na = getattr(getattr(value, "dtype", None), "na_value", None)  # pandas' own types have one; the NaN of floats is a value
    return "NA" if type(na).__name__ == "NAType" and bool(value.isna().any()) else None


def as_array(data: Any, item: str) -> Any:
    """Return the items of a buffer without a copy; for bfloat16 and float8, the bits."""
    import numpy
    return numpy.frombuffer(data, numpy_dtype(item))


def typed(array: Any, item: str) -> Any:
    """Return a numpy array of a column's items as users get it: bfloat16 and float8, which numpy lacks, as a torch tensor if torch is
    loaded; else as `typed_numpy` does. A tensor of read-only memory is a copy."""
    torch = sys.modules.get("torch") if item in BITS else None
    if torch is None:
        return typed_numpy(array, item)
    return torch_view(torch.from_numpy(array if array.flags.writeable else array.copy()), item)


def typed_numpy(array: Any, item: str) -> Any:
    """Return an array of bfloat16 or float8 as one of ml_dtypes if that is loaded, else of bits that name their type (bits.py)."""
    if item not in BITS:
        return array
    if "ml_dtypes" in sys.modules:
        return array.view(getattr(sys.modules["ml_dtypes"], item))
    from .bits import CLASSES
    return array.view(CLASSES[item])


def as_numbers(data: Any, item: str) -> Any:
    """Return the items of a buffer as an array of numbers: bfloat16 and float8 as float32, all others without a copy."""
    array = as_array(data, item)
    if item not in BITS:
        return array
    from .bits import as_float32
    return as_float32(array, item)


def torch_view(tensor: Any, item: str) -> Any:
    """Return a tensor of bits as its real type."""
    if item not in BITS:
        return tensor
    import torch
    return tensor.view(getattr(torch, item))
