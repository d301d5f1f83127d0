# SPDX-License-Identifier: Apache-2.0
"""bfloat16 and float8 in numpy, which lacks them: as bits that name their type, and as float32."""
from __future__ import annotations

from typing import Any

import numpy


class Bits(numpy.ndarray[Any, Any]):
    """Items of a type that numpy lacks: their bits, as unsigned integers. `rankstore_type` names the type.

    `numpy.asarray(x)` gives plain integers. Arithmetic is a TypeError, because it would take the bits as numbers. A build stores the array
    with its type."""

    rankstore_type = ""
    __array_ufunc__ = None  # type: ignore[assignment]


class BFloat16(Bits):
    rankstore_type = "bfloat16"


class Float8E4M3FN(Bits):
    rankstore_type = "float8_e4m3fn"


class Float8E5M2(Bits):
    rankstore_type = "float8_e5m2"


CLASSES: dict[str, type[Bits]] = {one.rankstore_type: one for one in (BFloat16, Float8E4M3FN, Float8E5M2)}


def _float8(exponent_bits: int, has_infinity: bool) -> Any:
    """Return the float32 of each of the 256 float8 of a type."""
    bits = numpy.arange(256)
    mantissa_bits = 7 - exponent_bits
    exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1)
    mantissa = bits & ((1 << mantissa_bits) - 1)
    bias, most = (1 << (exponent_bits - 1)) - 1, (1 << exponent_bits) - 1
    normal = (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)
    values = numpy.where(exponent == 0, mantissa / (1 << mantissa_bits) * 2.0 ** (1 - bias), normal)
    if has_infinity:
        values[exponent == most] = numpy.where(mantissa[exponent == most] == 0, numpy.inf, numpy.nan)
    else:
        values[(bits & 0x7F) == 0x7F] = numpy.nan
    return numpy.where(bits >= 128, -values, values).astype(numpy.float32)


_TABLES = {"float8_e4m3fn": _float8(4, False), "float8_e5m2": _float8(5, True)}


def as_float32(bits: Any, item: str) -> Any:
    """Return the numbers that an array of bits holds, exactly."""
    plain = numpy.asarray(bits)
    return (plain.astype(numpy.uint32) << 16).view(numpy.float32) if item == "bfloat16" else _TABLES[item][plain]
