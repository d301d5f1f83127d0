# SPDX-License-Identifier: Apache-2.0
"""Arrays of one value a sample, as users give them for an option: checked, as numpy arrays."""
from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._schema.types import BITS, missing_items
from ..errors import ArgumentError

if TYPE_CHECKING:
    import numpy

# kinds of numpy's items that an option takes, and what its errors call them
INTEGERS = ("iu", "integers")
NUMBERS = ("biuf", "numbers")
NAMES = ("biufSUOMm", "names or numbers")


def one_dimension(values: Any, option: str, wanted: tuple[str, str], first: int = 0) -> numpy.ndarray[Any, Any]:
    """Return the values as a numpy array of one dimension, bfloat16 and float8 as float32.

    option: the name in errors. wanted: INTEGERS, NUMBERS or NAMES. first: the place of the first value, in errors.
    ArgumentError for an array of other dimensions or items, with missing items, or without any in memory.
    """
    kinds, words = wanted
    unread = _unreadable(values)
    if unread is not None:
        raise ArgumentError(f"{option}: {unread}")
    missing = missing_items(values)
    if missing is not None:
        raise ArgumentError(f"{option}: an array with {missing} items; give {words} for all samples")
    array = _as_numpy(values, option, words, first)
    if array.dtype.name in BITS or getattr(values, "rankstore_type", None) in BITS:
        from .._schema.bits import as_float32
        item = getattr(values, "rankstore_type", array.dtype.name)
        array = as_float32(array.view(BITS[item]), item)
    if array.size == 0 and array.ndim == 1 and array.dtype.kind not in kinds:
        array = array.astype("uint32")
    if array.ndim != 1:
        raise ArgumentError(f"{option}: an array of {array.ndim} dimensions, of shape {array.shape}; give {words} in one dimension")
    if array.dtype.kind not in kinds:
        refuse_item(values, option, wanted, first)
        raise ArgumentError(f"{option}: an array of {array.dtype}; give {words} in one dimension")
    return array


def refuse_outside(array: numpy.ndarray[Any, Any], good: numpy.ndarray[Any, Any], option: str, rule: str, first: int = 0) -> None:
    """Raise ArgumentError that names the first value which is not good. rule: what values must be."""
    if not good.all():
        place = int((~good).argmax())
        raise ArgumentError(f"{option}[{first + place}]: {array[place].item()}; {rule}")


def _unreadable(values: Any) -> str | None:
    """Return why an object has no plain array of values, and what to do; None if it may have one."""
    if hasattr(values, "get_mask") and hasattr(values, "get_data"):  # torch.masked
        return "a masked tensor; fill it, as with to_tensor(0)"
    if getattr(values, "is_nested", False) is True:
        return "a nested tensor; give one value a sample, in one dimension"
    if getattr(values, "is_quantized", False) is True:
        return "a quantized tensor; give its dequantize()"
    if getattr(getattr(values, "device", None), "type", None) == "meta":
        return "a tensor on the device meta, which has no values; give one in memory"
    layout = str(getattr(values, "layout", "torch.strided"))
    if layout.startswith("torch.") and layout != "torch.strided":
        return f"a sparse tensor ({layout}); give its to_dense()"
    if hasattr(values, "toarray") and hasattr(values, "nnz"):  # scipy
        return f"a sparse array ({type(values).__name__}); give its toarray(), in one dimension"
    return None


def _as_numpy(values: Any, option: str, words: str, first: int) -> numpy.ndarray[Any, Any]:
    """Return what numpy makes of the values. ArgumentError if it makes nothing of them."""
    import numpy
    try:
        if hasattr(values, "detach") and hasattr(values, "numpy"):
            small = values.dtype.is_floating_point and str(values.dtype) not in ("torch.float16", "torch.float32", "torch.float64")
            return numpy.asarray((values.float() if small else values).numpy(force=True))
        if isinstance(values, (set, frozenset)) or hasattr(values, "keys") and not hasattr(values, "dtype"):
            raise TypeError(f"a {type(values).__name__} has no order")
        return numpy.asarray(values)
    except (ValueError, TypeError, RuntimeError, OverflowError, NotImplementedError) as found:
        refuse_item(values, option, (NAMES[0], words), first)
        reason = (str(found).splitlines() or [""])[0]
        raise ArgumentError(f"{option}: {type(values).__name__}: no array of {words} in one dimension: {reason}") from found


def refuse_item(values: Any, option: str, wanted: tuple[str, str], first: int = 0) -> None:
    """Raise ArgumentError that names the first item of a list which is not one value. Do nothing if there is none."""
    if not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
        return
    kinds, words = wanted
    scalar = numbers.Integral if kinds == INTEGERS[0] else numbers.Real if kinds == NUMBERS[0] else (numbers.Real, str, bytes)
    for place, item in enumerate(values):
        if kinds == INTEGERS[0] and isinstance(item, numbers.Integral) and not -2**63 <= int(item) < 2**63:
            raise ArgumentError(f"{option}[{first + place}]: {item}, more than 63 bits; give {words} in one dimension")
        is_scalar = hasattr(item, "dtype") and getattr(item, "shape", None) == ()  # of numpy or torch, whose types have no kind
        if isinstance(item, scalar) or is_scalar and getattr(item.dtype, "kind", kinds[0]) in kinds:
            continue
        size = f" of {len(item)} items" if isinstance(item, (Sequence, set, dict)) and not isinstance(item, (str, bytes)) else ""
        shape = f" of shape {tuple(item.shape)}" if getattr(item, "shape", ()) else ""
        shown = "" if size or shape else f"{str(item)[:40]!r}, "
        raise ArgumentError(f"{option}[{first + place}]: {shown}{type(item).__name__}{size}{shape}; give {words} in one dimension")
