# SPDX-License-Identifier: Apache-2.0
"""Sizes in bytes, and counts, as numbers or in words."""
from __future__ import annotations

import operator
import re
from typing import Any

from ..errors import ArgumentError

_MOST = 2**64 - 1


def parse_bytes(name: str, size: Any, least: int = 1) -> int:
    """Return 1048576, "512MiB" or "1.5 GB" as bytes. ArgumentError, naming the option, for anything else or below `least`."""
    found = _in_words(name, size) if isinstance(size, str) else _number(name, size)
    if not least <= found <= _MOST:
        raise ArgumentError(f"{name}: {size!r}; it must be from {least} byte{'' if least == 1 else 's'} to 2^64 - 1")
    return found


def optional_bytes(name: str, size: Any) -> int | None:
    """Return the same, and None for None, the default."""
    return None if size is None else parse_bytes(name, size)


def parse_count(name: str, count: Any) -> Any:
    """Return "16k" as 16384, "1.5M" as 1572864 and "4096" as 4096, as the command line reads them; anything but a str unchanged.

    ArgumentError, naming the option, for any other text."""
    if not isinstance(count, str):
        return count
    units = {"k": 1024, "K": 1024, "M": 1024**2, "G": 1024**3}
    found = re.fullmatch(r"([0-9]+)(?:\.([0-9]{1,3}))?([kKMG]?)", count)
    if found is not None:
        whole, part, unit = found.groups()
        number, rest = divmod(int(whole + (part or "")) * units.get(unit, 1), 10 ** len(part or ""))
        if not rest:
            return number
    raise ArgumentError(f"{name}: {count!r} is not a whole number such as 16384, '16k' or '1.5M' (k, M, G: times 1024, 1024^2, 1024^3)")


def _number(name: str, size: Any) -> int:
    if isinstance(size, bool) or not hasattr(size, "__index__"):
        raise ArgumentError(f"{name}: an int or a str such as '512MiB', not {type(size).__name__}")
    return operator.index(size)


def _in_words(name: str, size: str) -> int:
    units = {"": 1, "B": 1}
    for power, letter in enumerate("KMGT", 1):
        units |= {letter + "B": 1000**power, letter + "iB": 1024**power, letter: 1024**power}
    number = size.strip().rstrip("BKMGTi")
    try:
        return int(float(number) * units[size.strip()[len(number):].strip()])
    except (ValueError, KeyError, OverflowError):
        raise ArgumentError(f"{name}: {size!r} is not a size such as 1048576, '512MiB' or '1.5GB'") from None
