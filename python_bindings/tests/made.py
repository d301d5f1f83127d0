# SPDX-License-Identifier: Apache-2.0
"""Made data: token samples of uneven length whose contents say which they are."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy

import rankstore
from rankstore import _core

SCHEMA = "input_ids:uint16[*],labels:int32[*],text:str,blob:bytes,score:float32,note:json?"


def length_of(i: int) -> int:
    return 1 + (i * 37) % 53


def sample(i: int) -> dict[str, Any]:
    size = length_of(i)
    return {"input_ids": (numpy.arange(size) + i).astype(numpy.uint16), "labels": numpy.full(size, i, numpy.int32),
            "text": f"sample {i}", "blob": bytes([i % 256]) * (i % 5), "score": i / 4,
            "note": None if i % 3 == 0 else {"i": i}}


def build(directory: Path, count: int, group: rankstore.Group | None = None, units: int = 7) -> None:
    """Samples 0..count-1 in `units` units dealt out over the group's ranks; keys "u<unit>:<row>"."""
    chosen = group or rankstore.init("solo")
    builder = _core.Builder(chosen.core, str(directory), SCHEMA, length="input_ids", index=["score"])
    bounds = [count * unit // units for unit in range(units + 1)]
    for unit in range(units):
        if unit % chosen.world != chosen.rank or builder.unit(unit, f"u{unit}"):
            continue
        for i in range(bounds[unit], bounds[unit + 1]):
            one = sample(i)
            builder.add([one["input_ids"], one["labels"], one["text"], one["blob"], one["score"], one["note"]])
    builder.commit()
    builder.close()


def same(found: dict[str, Any], i: int) -> bool:
    """Whether a read sample is sample i."""
    wanted = sample(i)
    return all(numpy.array_equal(found[name], value) if isinstance(value, numpy.ndarray) else found[name] == value
               for name, value in wanted.items())
