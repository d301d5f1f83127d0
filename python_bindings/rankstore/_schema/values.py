# SPDX-License-Identifier: Apache-2.0
"""Converts Python objects to column values, and infers a schema from samples.

The extension calls `convert` for a value whose bytes do not already have the column's item type: a list, a numpy array of another type or
layout, a torch tensor, JSON. Conversions lose nothing: a value that does not fit raises TypeError or ValueError naming the column. The only
exception is rounding of Python's float and complex, if the user asked for a column type that is shorter. Importing this module needs
neither numpy nor torch.
"""

from __future__ import annotations

import decimal
import functools
import io
import json
import math
import os
import re
import struct
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from .. import _core
from . import times
from .types import BITS, ITEMS, describe, missing_items

# Every integer from -N to N is exact in the float type.
_EXACT = {"float16": 2**11, "float32": 2**24, "float64": 2**53, "bfloat16": 2**8, "complex64": 2**24}
_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")
_ACCEPTED = (
    "bool, int, float, complex, str, bytes, None, times, decimals, lists of numbers, numpy arrays, torch tensors, "
    "images of PIL, paths of files, and lists and dicts of JSON values"
)


def _numpy() -> ModuleType:
    try:
        import numpy
    except ImportError as error:
        raise ImportError("numpy is needed for arrays: pip install numpy") from error
    return numpy


@functools.lru_cache(maxsize=4096)
def parse(type: str) -> tuple[str, tuple[int | None, ...] | None, bool]:
    """Return (item, dims, nullable) of a type: ("float16", (80, None), True) for "float16[80,*]?".

    dims is None for a scalar, str, bytes and json. Raises ValueError if the text is not a type.
    """
    found = describe(type)
    return found.item, found.dims or None, found.nullable


# ---- one value into a column -------------------------------------------------------------------


def convert(name: str, type: str, value: Any) -> Any:
    """Return `value` converted for column `name` of `type` ("int32[*]").

    The result is a str for json, else a C-contiguous object with the buffer protocol and the column's item type (bfloat16 and float8 as
    unsigned integers). Its shape is not checked. Accepted are:
    - integers of another width, if all are in range; whole numbers for a float column, if they are exact
    - shorter floats for a longer type. Longer floats are refused, except Python's own (also in lists), which are rounded
    - whole numbers among Python's floats, if float64 holds them exactly: numpy makes the list float64
    - bool for bool only; complex for complex64, with Python's rounded (`check_complex` guards an inferred type)
    - torch tensors, also on a GPU (copied here), also of bfloat16 and float8
    - for bytes images of PIL, which become PNG, and paths (os.PathLike), whose files are read
    - for JSON any value that json.dumps takes, also with numpy and torch inside. A str is a JSON string, and no JSON text
    - times for a type that says what its integers stand for ("int64(timestamp_us)"), or as text for str and json; decimals for these two

    Raises TypeError for another kind of value, ValueError for a value out of range. Both name the column.
    """
    item, dims, _ = parse(type)
    if item == "json":
        return json_text(name, value)
    first = value[0] if isinstance(value, (list, tuple)) and value else value
    if item == "str" and (times.is_time(first) or isinstance(value, decimal.Decimal)) and not isinstance(value, (list, tuple)):
        return _text(name, value)
    if times.is_time(first):
        return times.numbers(name, type, _numpy().asarray(value) if first is not value and hasattr(first, "dtype") else value)
    if item == "str":
        raise _refused(name, type, value, "a str")
    if item == "bytes" and is_encoded(value):
        return _encoded(name, value)
    if item == "bytes" and not _is_array(value):
        raise _refused(name, type, value, "bytes")
    if isinstance(value, (str, bytes, Mapping, set, frozenset)) or not (_is_array(value) or _is_numbers(value)):
        raise _refused(name, type, value, "numbers, as a list, a numpy array or a torch tensor" if dims else "a number")
    array, of, rounded = _array(name, type, value)
    if dims and array.size == 0 and rounded:  # [] has no type, and always one dimension
        array = array.reshape((0, *(dim or 0 for dim in dims[1:]))) if dims[0] is None else array
        return array.astype(BITS.get(item, item))
    return _cast(name, type, array, of, rounded, "uint8" if item == "bytes" else item)


def _text(name: str, value: Any) -> str:
    if isinstance(value, decimal.Decimal):
        return str(value)
    try:
        text = times.as_text(value)
    except ValueError as missing:
        raise ValueError(f'column "{name}": {missing}') from None
    if not isinstance(text, str):
        raise _refused(name, "str", value, "one time, not an array")
    return text


def _refused(name: str, type: str, value: Any, wanted: str) -> TypeError:
    kind = value.__class__
    text = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return TypeError(f'column "{name}": {text} is not a value of {type}: give {wanted}')


def is_encoded(value: Any) -> bool:
    """Return True for what a column of bytes takes beside bytes: an image of PIL, or the path of a file."""
    return isinstance(value, os.PathLike) or "PIL.Image" in sys.modules and isinstance(value, sys.modules["PIL.Image"].Image)


def _encoded(name: str, value: Any) -> bytes:
    """Return a file's bytes, or an image as PNG, which loses nothing."""
    if isinstance(value, os.PathLike):
        try:
            with open(value, "rb") as file:
                return file.read()
        except OSError as refused:
            raise ValueError(f'column "{name}": {os.fspath(value)!r} cannot be read: {refused.strerror}') from None
    if value.mode not in _PNG_MODES:
        raise TypeError(f'column "{name}": PNG has no images of mode {value.mode}: give image.convert("RGB"), or the path of its file')
    made = io.BytesIO()
    value.save(made, "PNG")
    return made.getvalue()


def _is_tensor(value: Any) -> bool:
    """Return True for a torch tensor, without importing torch."""
    return "torch" in sys.modules and isinstance(value, sys.modules["torch"].Tensor)


def _is_array(value: Any) -> bool:
    return (
        _is_tensor(value)
        or hasattr(value, "__array__")
        or isinstance(value, (memoryview, bytearray))
        or (hasattr(value, "typecode") and hasattr(value, "buffer_info"))
    )


def _is_numbers(value: Any) -> bool:
    return isinstance(value, (list, tuple, range, int, float, complex)) or hasattr(value, "__index__")


def _from_torch(name: str, tensor: Any) -> tuple[Any, str]:
    """Return a numpy array of the tensor's items, and the name of their type."""
    torch = sys.modules["torch"]
    of = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout != torch.strided:
        raise TypeError(f'column "{name}": a tensor of layout {tensor.layout}: give a dense one (tensor.to_dense())')
    if tensor.is_quantized:
        raise TypeError(f'column "{name}": a quantized tensor: give tensor.int_repr() or tensor.dequantize()')
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    if of in BITS:
        signed = torch.int16 if BITS[of] == "uint16" else torch.uint8
        return tensor.view(signed).numpy().view(BITS[of]), of
    try:
        return tensor.numpy(), of
    except TypeError:
        raise TypeError(f'column "{name}": tensors of {of} cannot be stored in a column') from None


def _array(name: str, type: str, value: Any) -> tuple[Any, str, bool]:
    """Return (numpy array, name of its item type, whether it was made of Python's numbers)."""
    if _is_tensor(value):
        return *_from_torch(name, value), False
    numpy = _numpy()
    refuse_missing(f'column "{name}"', value)
    python = not _is_array(value)
    if python and not isinstance(value, (list, tuple, range, int, float, complex)):
        value = value.__index__()
    try:
        array = numpy.asarray(value)
    except (ValueError, OverflowError, TypeError, RuntimeError) as error:
        raise ValueError(f'column "{name}": no array of {type} can be made of it: {error}') from None
    if array.dtype.kind not in "biufc" and array.dtype.name not in BITS:
        detail = " (numbers beyond 64 bits, or mixed with other things)" if array.dtype.kind == "O" else ""
        kind = ValueError if array.dtype.kind == "O" and python and _whole(array) else TypeError
        raise kind(f'column "{name}": an array of {array.dtype}{detail} is not a value of {type}')
    if python and array.dtype.kind in "fc" and not isinstance(value, (float, complex)):
        if "int" in parse(type)[0] and _whole(numpy.asarray(value, dtype=object)):  # numpy makes floats of [2**64 - 1, 5]
            return _integers(name, type, value), "uint64", True
        _check_whole(name, value, array)
    if array.dtype.name in BITS:  # a package such as ml_dtypes adds them to numpy
        return array.view(BITS[array.dtype.name]), array.dtype.name, False
    if getattr(value, "rankstore_type", None) in BITS:  # bits that name their type
        return array, value.rankstore_type, False
    return array, array.dtype.name, python


def refuse_missing(what: str, value: Any) -> None:
    """Raise ValueError if an array has missing items, which no array of a column holds."""
    kind = missing_items(value)
    if kind is not None:
        raise ValueError(f"{what}: an array with {kind} items, and a column's arrays have none; fill them, or give None for the "
                         "whole value")


def _check_whole(name: str, value: Any, array: Any) -> None:
    """Raise ValueError if numpy rounded a whole number of a list when it made floats of the list."""
    if array.size == 0 or not bool((abs(array) >= _EXACT["float64"]).any()):
        return
    numpy = _numpy()
    for one in numpy.asarray(value, dtype=object).flat:
        if isinstance(one, (int, numpy.integer)) and int(float(one)) != int(one):
            raise ValueError(f'column "{name}": {one} stands among floats, and float64 does not hold it exactly; give '
                             "it as a float, or leave the floats out")


def check_complex(name: str, value: Any) -> None:
    """Raise ValueError if complex64 would round a complex of Python's, which has 64 bits a part."""
    if not isinstance(value, complex) or hasattr(value, "dtype"):
        return
    for part in (value.real, value.imag):
        try:
            (kept,) = struct.unpack("<f", struct.pack("<f", part))
        except OverflowError:
            kept = math.inf
        if kept != part and part == part:
            raise ValueError(f'column "{name}": {value} is not exact in complex64, the only complex type; give its '
                             f'parts as float64[2], or schema={{"{name}": "complex64", ...}} to have it rounded')


def _integers(name: str, type: str, value: Any) -> Any:
    """Return an array of Python's integers, of which one is 2^63 or more."""
    try:
        return _numpy().asarray(value, dtype="uint64")
    except OverflowError:
        raise ValueError(f'column "{name}": numbers below 0 stand beside numbers of 2^63 and more, which no value of {type} '
                         'holds') from None


def _whole(array: Any) -> bool:
    return all(isinstance(one, int) for one in array.flat)


def _cast(name: str, type: str, array: Any, of: str, rounded: bool, item: str) -> Any:
    """Return the array with items of the column's type, C-contiguous."""
    numpy = _numpy()
    kind = "f" if of in BITS else array.dtype.kind
    if of == item or BITS.get(item) == of and not rounded:
        return numpy.asarray(array, dtype=array.dtype.newbyteorder("="), order="C")
    target = BITS.get(item, item)
    if kind in "iu" and item in _EXACT or kind in "iu" and numpy.dtype(target).kind in "iu" and item not in BITS:
        _check_range(name, type, array, item)
    elif kind == "f" and of not in BITS and _widens(of, item, rounded):
        pass
    elif of in BITS and item in ("float32", "float64"):
        from .bits import as_float32
        array = as_float32(array, of)
    elif not (kind == "c" and item == "complex64" and rounded):
        hint = (
            f': it would lose digits; convert it yourself, as with .astype("{item}")'
            if kind == "f" and item in _EXACT
            else ""
        )
        raise TypeError(f'column "{name}": items of {of} are not values of {type}{hint}')
    return _round(name, type, array, item) if item in _EXACT else numpy.asarray(array.astype(target), order="C")


def _widens(of: str, item: str, rounded: bool) -> bool:
    """Return True if `item` holds every float of type `of`, or if these may be rounded to it."""
    wider = {"float16": ("float32", "float64", "complex64"), "float32": ("float64", "complex64")}
    return item in wider.get(of, ()) or rounded and item in _EXACT


def _check_range(name: str, type: str, array: Any, item: str) -> None:
    if array.size == 0:
        return
    least, most = int(array.min()), int(array.max())
    if item in _EXACT:
        low, high = -_EXACT[item], _EXACT[item]
    else:
        info = _numpy().iinfo(item)
        low, high = int(info.min), int(info.max)
    if least < low or most > high:
        raise ValueError(f'column "{name}": {least if least < low else most} does not fit {type}')


def _round(name: str, type: str, array: Any, item: str) -> Any:
    """Round to the nearest number of the type. Raise ValueError if a finite number would become infinity."""
    numpy = _numpy()
    with numpy.errstate(over="ignore", invalid="ignore"):
        if item == "bfloat16":
            bits = array.astype("float32").view("uint32").astype("uint64")
            nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("uint16")
            quiet = ((bits >> 16) | 0x40).astype("uint16")
            made = numpy.where(numpy.isnan(array), quiet, nearest).astype("uint16")
            back = (made.astype("uint32") << 16).view("float32")
        else:
            made = back = array.astype(item)
    if bool((numpy.isinf(back) & ~numpy.isinf(array)).any()):
        worst = array[numpy.isinf(back) & ~numpy.isinf(array)].flat[0]
        raise ValueError(f'column "{name}": {worst} does not fit {type}')
    return numpy.asarray(made, order="C")


def _json_plain(other: Any) -> Any:
    if _is_tensor(other):
        other = other.detach().cpu()
    if times.is_time(other):
        return times.as_text(other)
    if isinstance(other, decimal.Decimal):
        return str(other)
    if hasattr(other, "tolist"):  # numpy, torch, array
        return other.tolist()
    raise TypeError(f"{other.__class__.__qualname__} cannot be stored as JSON")


# One encoder for all values: json.dumps would make one for each.
_json_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_json_plain).encode


def _quick_encoder() -> Callable[[Any], str]:
    """Return an encoder equal to _json_encode that creates nothing per value, if the interpreter has that part of json; else _json_encode.

    The caller gives what it refuses to _json_encode, whose errors say why.
    """
    part: Any = getattr(json.encoder, "c_make_encoder", None)
    strings = getattr(json.encoder, "c_encode_basestring", None)
    probe = {"a": [1, 0.5, None, True, "\u00e9\n"], "b": {}}
    try:
        pieces = part(None, _json_plain, strings, None, ":", ",", False, False, False)
        if strings is not None and "".join(pieces(probe, 0)) == _json_encode(probe):
            return lambda value: "".join(pieces(value, 0))
    except TypeError:  # another interpreter, or another version
        pass
    return _json_encode


_json_quick = _quick_encoder()


def _check_names(value: Any) -> None:
    """Raise ValueError if two names of a dict are the same in JSON, as 1 and "1" are: one of the values would be lost."""
    if isinstance(value, dict):
        if len({_json_encode({one: None}) for one in value}) < len(value):
            raise ValueError(f"names of a dict are the same in JSON: {', '.join(map(repr, list(value)[:8]))}")
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return
    for one in value:
        if isinstance(one, (dict, list, tuple)):
            _check_names(one)


def _check_nul(value: Any) -> None:
    """Raise ValueError if a name of a dict has a NUL, which the library's names have not."""
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ():
        _check_nul(one)
    if isinstance(value, dict) and any(isinstance(one, str) and "\0" in one for one in value):
        raise ValueError(f"a name of a dict has a NUL: {next(one for one in value if chr(0) in str(one))!r}")


def json_text(name: str, value: Any) -> str:
    """Return a value of a json column as JSON. TypeError or ValueError, which name the column, if it is no JSON value, as NaN is none."""
    try:
        try:
            text = _json_quick(value)
        except (TypeError, ValueError, RecursionError):
            text = _json_encode(value)
        if _core.has_other_names(value):  # after the encoder, which refuses a value in itself
            _check_names(value)
        if "\\u0000" in text:
            _check_nul(value)
        return text
    except (TypeError, ValueError, RecursionError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        why = "NaN and infinity, which JSON lacks" if "JSON compliant" in str(error) else error
        raise kind(f'column "{name}": not a JSON value: {why}') from None


# ---- a schema from samples ---------------------------------------------------------------------


def infer(sample: Mapping[str, Any]) -> dict[str, str]:
    """Return the type of each column of one sample, a dict.

    - bool, str, bytes: the same; int: int64, or uint64 above its range; float: float64; complex: complex64, if that holds it exactly
    - lists of numbers: int64[*], uint64[*], float64[*] or bool[*], with more dimensions if they are rectangular
    - numpy arrays and torch tensors: by their dtype
    - images of PIL, and paths of files: bytes
    - times, and lists of times of one kind: integers that say what they stand for (times.py); decimals: str
    - other lists, and dicts, if they are JSON: json
    - None and []: "json?", which no other value gives, because their type is not known yet

    The first dimension is `*`. The others keep their size, and `merge` finds which of them differ between samples. Raises TypeError for
    another kind of value, ValueError for an int beyond 64 bits. Both name the column.
    """
    if not isinstance(sample, Mapping):
        raise TypeError(f"a sample is a dict of columns, not {sample.__class__.__qualname__}{_advice(sample)}")
    for name in sample:
        if not isinstance(name, str):
            raise TypeError(f"a column's name is a str, not {name!r}")
    return {name: _infer(name, value) for name, value in sample.items()}


def _advice(sample: Any) -> str:
    """Return advice for a sample that is not a dict: "; name it: map=lambda sample: {...}"."""
    if isinstance(sample, (list, tuple)) and not all(isinstance(one, (int, float)) for one in sample):
        fields = ", ".join(f'"{name}": sample[{i}]' for i, name in enumerate("abcdefgh"[:len(sample)]))
        return f"; name its parts: map=lambda sample: {{{fields}{', ...' * (len(sample) > 8)}}}"
    return '; name it: map=lambda sample: {"data": sample}'


def _infer(name: str, value: Any) -> str:
    if value is None or isinstance(value, (list, tuple)) and not value:
        return "json?"
    if is_encoded(value):
        return "bytes"
    if _is_tensor(value):
        return _typed(name, str(value.dtype).removeprefix("torch."), tuple(value.shape))
    for kind, type in (
        (bool, "bool"),
        (float, "float64"),
        (complex, "complex64"),
        (str, "str"),
        (bytes, "bytes"),
        (bytearray, "bytes"),
    ):
        if isinstance(value, kind):
            check_complex(name, value)
            return "float64" if kind is float and not hasattr(value, "dtype") else _scalar(name, value, type)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise ValueError(f'column "{name}": {value} is beyond 64 bits')
        return "int64" if value < 2**63 else "uint64"
    if times.is_time(value) and not hasattr(value, "dtype"):
        if times.is_missing(value):
            raise ValueError(f'column "{name}": NaT, a missing time; give None')
        return times.type_of(value)
    if isinstance(value, decimal.Decimal):
        return "str"
    if _is_array(value):
        array = _numpy().asarray(value)
        return _typed(name, getattr(value, "rankstore_type", None) or array.dtype.name, array.shape)
    if isinstance(value, (list, tuple)):
        return _infer_list(name, value)
    if isinstance(value, dict):
        json_text(name, value)
        return "json"
    kind_name = f"{value.__class__.__module__}.{value.__class__.__qualname__}"
    raise TypeError(f'column "{name}": {kind_name} cannot be stored; accepted are {_ACCEPTED}')


def check_signs(name: str, least: int, most: int) -> None:
    """Raise ValueError if no integer type holds both numbers."""
    if least < 0 and most >= 2**63:
        raise ValueError(f'column "{name}" has {least} and {most}, which no integer type holds together')


def _scalar(name: str, value: Any, type: str) -> str:
    """Return the type of a scalar. numpy's scalars may be Python's, too (numpy.float64 is a float): their dtype decides."""
    dtype = getattr(value, "dtype", None)
    return type if dtype is None or type in ("str", "bytes") else _typed(name, dtype.name, ())


def _infer_list(name: str, value: Any) -> str:
    if all(hasattr(one, "dtype") and hasattr(one, "shape") and one.shape == () and not _is_tensor(one) for one in value):
        array = _numpy().asarray(value)  # numpy's scalars: their types are known
        if array.dtype.name in ITEMS or times.type_of_dtype(array.dtype.name):
            return _typed(name, array.dtype.name, array.shape)
    shape: list[int] = []
    level: list[Any] = [value]
    while len(shape) <= 8 and all(isinstance(one, (list, tuple)) for one in level) and len({len(one) for one in level}) == 1:
        shape.append(len(level[0]))
        level = [item for one in level for item in one]
        if not level:
            break
    kinds = {item.__class__ for item in level}
    for item, of in (("bool", {bool}), ("int64", {int}), ("float64", {int, float})):
        if kinds and kinds <= of and len(shape) <= 8:
            whole = [one for one in level if isinstance(one, int)]
            if item != "bool" and whole and not -(2**63) <= min(whole) <= max(whole) < 2**64:
                raise ValueError(f'column "{name}": {min(whole) if min(whole) < -(2**63) else max(whole)} is beyond 64 bits')
            if item == "int64" and max(whole) >= 2**63:
                check_signs(name, min(whole), max(whole))
                item = "uint64"
            return _typed(name, item, tuple(shape))
    of_times = times.type_of_list(value)
    if of_times is not None:
        return f"{of_times}[*]"
    json_text(name, value)
    return "json"


def _typed(name: str, item: str, shape: tuple[int, ...]) -> str:
    item = times.type_of_dtype(item) or item
    if item.partition("(")[0] not in ITEMS or len(shape) > 8:
        what = f"an array of {item} with {len(shape)} dimensions"
        raise TypeError(f'column "{name}": {what} cannot be stored; accepted are {_ACCEPTED}')
    if not shape:
        return item
    return f"{item}[{','.join(['*', *(str(size) if size else '*' for size in shape[1:])])}]"


def merge(*schemas: Mapping[str, str]) -> dict[str, str]:
    """Return one schema for several that `infer` returned, with columns in the order of their first appearance.

    - A dimension that differs becomes `*`.
    - Integers and floats of several widths become the narrowest type that holds them all: int32 and int64 become int64, int64 and float64
      become float64. Signed integers and uint64 become uint64, which holds all but those below 0. Times of two units become the finer one.
    - Lists of numbers and json become json. Arrays with different numbers of dimensions do not.
    - A column that some schemas lack becomes nullable (`?`).

    Raises ValueError naming the column and both types if no type holds both.
    """
    merged: dict[str, str] = {}
    seen: dict[str, list[str]] = {}
    for schema in schemas:
        for name, type in schema.items():
            seen.setdefault(name, []).append(type)
    for name, types in seen.items():
        each = list(dict.fromkeys(types))
        if len(each) > 2:  # the widest type comes first, so that the order of samples does not matter
            each.sort(key=_takes)
        merged[name] = functools.reduce(lambda a, b, name=name: _join(name, a, b), each)  # type: ignore[misc]
        if len(types) < len(schemas):
            merged[name] = _nullable(merged[name])
    return merged


def _takes(type: str) -> tuple[int, str]:
    item = parse(type)[0]
    return (0 if item == "json" else 1 if item == "float64" else 2 if "float" in item else 3), type


def _nullable(type: str) -> str:
    """Return the type with `?`. json holds null itself and so stays json: "json?" stands for an unknown type."""
    return type if type == "json" or type.endswith("?") else type + "?"


def _join(name: str, a: str, b: str) -> str:
    if a == b:
        return a
    if "json?" in (a, b):
        return _nullable(b if a == "json?" else a)
    (item, dims, null), (other, other_dims, other_null) = parse(a), parse(b)
    have, others = describe(a).meaning, describe(b).meaning
    if "json" in (item, other) and _listed(item, dims) and _listed(other, other_dims) and not have and not others:
        return "json"
    joined = _wider(item, other)
    if joined is None:
        raise ValueError(f'column "{name}": {a} in one sample, {b} in another: no type holds both; convert one of them in '
                         "map=")
    if len(dims or ()) != len(other_dims or ()):
        raise ValueError(f'column "{name}": {a} in one sample, {b} in another: a column has one number of dimensions; '
                         f'reshape in map=, or give schema={{"{name}": "json"}}')
    meaning = times.join(name, have, others)
    return joined + (f"({meaning})" if meaning else "") + _join_dims(dims, other_dims) + ("?" if null or other_null else "")


def _wider(a: str, b: str) -> str | None:
    """Return the narrowest item type that holds both; None if there is none. Whole numbers beyond 2^53 are refused later, when a sample
    adds them to float64."""
    if a == b:
        return a
    floats = {"float16": 1, "bfloat16": 1, "float32": 2, "float64": 3}
    kinds = [re.fullmatch(r"(u?)int(8|16|32|64)", one) for one in (a, b)]
    if a in floats and b in floats:
        return max(a, b, key=floats.__getitem__) if floats[a] != floats[b] else "float32"
    if kinds[0] and kinds[1]:
        bits = [int(one[2]) * (2 if one[1] and kinds[0][1] != kinds[1][1] else 1) for one in kinds if one]
        if max(bits) > 64:  # int64 and uint64: a number below 0 is refused later, by its value
            return "uint64"
        return f"{kinds[0][1] and kinds[1][1]}int{max(bits)}"
    whole = kinds[0] or kinds[1]
    other = b if kinds[0] else a
    if whole is None or other not in floats:
        return None
    return "float32" if int(whole[2]) <= 16 and other != "float64" else "float64"


def _listed(item: str, dims: tuple[int | None, ...] | None) -> bool:
    """Return True if a JSON list or object may have been inferred as this type."""
    return item == "json" or item in ("int64", "uint64", "float64", "bool") and dims is not None


def _join_dims(a: tuple[int | None, ...] | None, b: tuple[int | None, ...] | None) -> str:
    if a is None or b is None:
        return ""
    return f"[{','.join(str(one) if one is not None and one == other else '*' for one, other in zip(a, b))}]"
