# SPDX-License-Identifier: Apache-2.0
"""Sizes in bytes, as numbers or in words."""
from __future__ import annotations

import operator
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
