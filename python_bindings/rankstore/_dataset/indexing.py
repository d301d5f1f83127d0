# SPDX-License-Identifier: Apache-2.0
"""Places of a dataset: what may name them."""
from __future__ import annotations

import json
import operator
from typing import TYPE_CHECKING, Any

from .._distributed.group import Group
from ..errors import ArgumentError

ABSENT = 0xFFFFFFFF  # the length of a sample that cannot be read

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


def places_of(which: Any, count: int) -> Array:
    """Return the places that a mask or list names, of `count` samples: uint32, a new array.

    Raises ArgumentError for anything else, IndexError for a place out of range."""
    import numpy
    if isinstance(which, (list, tuple)) and len({is_bool(one) for one in which}) > 1:
        raise ArgumentError("select: a list mixes bools and places; give one or the other")
    which = numpy.asarray(which)
    if which.dtype == bool:
        if which.shape != (count,):
            raise ArgumentError(f"select: the mask has {which.shape}, the dataset {count} samples")
        which = numpy.flatnonzero(which)
    if which.ndim != 1 or (len(which) and which.dtype.kind not in "iu"):
        raise ArgumentError("select: a boolean mask or a list of places")
    if len(which) and (which.min() < 0 or which.max() >= count):
        place = int(which[((which < 0) | (which >= count)).argmax()])
        raise IndexError(f"select: place {place} is out of range: there are {count} samples")
    made: Array = which.astype(numpy.uint32)  # samples of a dataset are fewer than 2^32
    return made


def agree_on(group: Group, selection: str, count: int, options: dict[str, Any]) -> None:
    """Raise ArgumentError on all ranks if one plans another selection or other options, which would lose samples (collective)."""
    if group.world == 1:
        return
    gathered = [json.loads(one)
                for one in group.allgather("plan: selection", json.dumps([selection, count, options], default=_plain).encode())]
    for rank, (there, size, asked) in enumerate(gathered):
        if there != gathered[0][0]:
            raise ArgumentError(f"plan: rank 0 plans a selection of {gathered[0][1]} samples, rank {rank} another one, of {size}; select "
                                "the same on all ranks (random_split needs a generator with a seed)")
        for name in sorted({*asked, *gathered[0][2]}):
            if asked.get(name) != gathered[0][2].get(name):
                raise ArgumentError(f"the plan's options differ: rank 0 has {name} {gathered[0][2].get(name)}, rank {rank} has {name} "
                                    f"{asked.get(name)}")


def _plain(value: Any) -> Any:
    """Return a number of numpy or torch as Python's, for JSON."""
    return value.item() if hasattr(value, "item") else operator.index(value)


def is_bool(value: Any) -> bool:
    """Return True for a bool of Python, numpy or torch, and for arrays of them."""
    return value.__class__ is bool or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def index(place: Any) -> int:
    """Return a place as an int. TypeError for anything else, also for a bool, which would be read as 0 or 1."""
    if is_bool(place):
        raise TypeError(f"{place} is not a place: places are ints; a mask has one bool for each sample")
    return operator.index(place)


def length_range(lengths: Any, chosen: Any = None) -> tuple[int, int]:
    """Return the least and the greatest of the lengths of samples that are there; (1, 0) if none is. chosen: ids; None for all."""
    lengths = lengths if chosen is None else lengths[chosen]
    there = lengths[lengths != ABSENT]
    return (int(there.min()), int(there.max())) if len(there) else (1, 0)
