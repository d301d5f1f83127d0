# SPDX-License-Identifier: Apache-2.0
"""Digests a few items of a source in memory, to find quickly whether ranks give different lists of one length. digest.py compares a whole
list with what a dataset was built from.

It reads PLACES items: the first, the last and evenly spaced ones between. Of each item it reads at most SCALARS numbers, texts and names,
in order of nesting:
    text, bytes     size, first and last KiB
    array           type, shape and the first numbers of its first row; of a tensor outside main memory only type and shape
    other objects   type
"""
from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

PLACES, SCALARS = 16, 256
_KIB = 1024


def items(item: Callable[[int], Any], count: int) -> dict[str, str]:
    """Return {place: digest} of a few of item(0) to item(count - 1)."""
    last = min(PLACES, count) - 1
    places = {i * (count - 1) // last if last > 0 else 0 for i in range(last + 1)}
    return {str(place): _digest(item, place) for place in sorted(places)}


def _digest(item: Callable[[int], Any], place: int) -> str:
    seen: list[Any] = []
    try:
        _look(item(place), seen)
    except Exception as raised:  # the build itself reports a sample that cannot be read
        seen.append(type(raised).__qualname__)
    return hashlib.blake2b(json.dumps(seen).encode(), digest_size=8).hexdigest()


def _look(value: Any, seen: list[Any]) -> None:
    if len(seen) >= SCALARS:
        return
    if value is None or isinstance(value, (bool, int, float, complex)):
        seen.append(repr(value))
    elif isinstance(value, (str, bytes, bytearray)):
        seen.append([type(value).__name__, len(value), repr(value[:_KIB]), repr(value[-_KIB:])])
    elif isinstance(value, Mapping):
        seen.append(["mapping", len(value)])
        for name in value:
            if len(seen) >= SCALARS:
                return
            _look(name, seen)
            _look(value[name], seen)
    elif isinstance(value, (list, tuple)):
        seen.append(["list", len(value)])
        for one in value[:SCALARS]:
            _look(one, seen)
    elif hasattr(value, "shape") and hasattr(value, "dtype"):
        _look_array(value, seen)
    else:
        seen.append(type(value).__qualname__)


def _look_array(value: Any, seen: list[Any]) -> None:
    shape = [int(size) for size in value.shape]
    seen.append([str(value.dtype), shape])
    device = getattr(value, "device", None)
    if 0 in shape or (device is not None and str(getattr(device, "type", device)) != "cpu"):
        return
    for _ in shape[1:]:  # not until one dimension is left: a row of numpy.matrix has two
        value = value[0]
    numbers = value[:SCALARS].tolist() if len(shape) else value.item()
    if "object" not in str(value.dtype):
        seen.append(repr(numbers))
