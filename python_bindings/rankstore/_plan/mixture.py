# SPDX-License-Identifier: Apache-2.0
"""How many times each sample occurs in an epoch: weights of sources, of an index column's values, or of samples."""
from __future__ import annotations

import dataclasses
import difflib
import hashlib
import math
import operator
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from .numbers import NAMES, NUMBERS, one_dimension, refuse_item, refuse_outside

if TYPE_CHECKING:
    import numpy

MOST = 65535  # sources of a mix


@dataclasses.dataclass
class Groups:
    """Sources by name: consecutive samples (bounds, one more than names), or a number for each sample (source_of)."""

    names: list[str]
    bounds: list[int] | None = None
    source_of: bytes | None = None


def groups_of(values: Any, what: str) -> Groups:
    """Return the distinct values of an array, one value a sample, as sources. ArgumentError if there are too many."""
    import numpy
    array = one_dimension(values, what, NAMES)
    try:
        found, numbers = numpy.unique(array, return_inverse=True)
    except TypeError as raised:
        refuse_item(values, what, NAMES)
        raise ArgumentError(f"{what}: names and numbers are mixed ({raised}); give one kind") from raised
    if len(found) > MOST:
        raise ArgumentError(f"{what}: {len(found)} different values; a mix has at most {MOST} sources; give rare ones one name")
    return Groups([str(value) for value in found.tolist()], source_of=numbers.reshape(-1).astype(numpy.uint16).tobytes())


def _double(weight: Any) -> float:
    """Return a number as a float, one that is too large for it as infinity."""
    try:
        return float(weight)
    except OverflowError:
        return math.inf


def weights_of(mix: Mapping[Any, float], names: list[str], option: str = "mix") -> list[float]:
    """Return a weight for each name, 0 for one that the mix does not name. ArgumentError for an unknown name."""
    if not isinstance(mix, Mapping):
        raise TypeError(f"{option}: a dict of names and weights, not {type(mix).__name__}")
    if not mix:
        raise ArgumentError(f"{option}: it is empty; name a source, as {{{names[0]!r}: 1.0}}")
    given: dict[str, Any] = {}
    for name, weight in mix.items():
        if str(name) in given:
            raise ArgumentError(f"{option}: {str(name)!r} has two weights, as a number and as a text; give one")
        given[str(name)] = weight
    for name, weight in given.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            shown = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
            raise ArgumentError(f"{option}: there is no {name!r}" + (f"; did you mean {near[0]!r}?" if near else ";") +
                                f" the sources are {shown}")
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) and not hasattr(weight, "__float__"):
            raise TypeError(f"{option}: the weight of {name!r} is {weight!r}, not a number")
        if not math.isfinite(_double(weight)) or weight < 0:
            raise ArgumentError(f'{option}: "{name}" has the weight {_double(weight):g}; weights are finite numbers from 0')
    return [float(given.get(name, 0.0)) for name in names]


def _of_samples(weights: Any, count: int, samples: int) -> tuple[numpy.ndarray[Any, Any], bool]:
    """Return weights of samples, and whether they are counts."""
    import numpy
    array = one_dimension(weights, "weights", NUMBERS)
    if array.shape != (count,):
        raise ArgumentError(f"weights: {array.dtype} of shape {array.shape}; give a number for each of the {count} samples")
    if array.dtype.kind == "f":
        if not samples:
            raise ArgumentError("weights: floats are probabilities, and need samples=, the draws of an epoch; integers are counts")
        refuse_outside(array, numpy.isfinite(array) & (array >= 0), "weights", "weights are finite numbers from 0")
        return array.astype(numpy.float64), False
    if samples:
        raise ArgumentError("weights: integers are counts, whose sum is the epoch's draws; leave samples out, or give floats")
    refuse_outside(array, (array >= 0) & (array <= 0xFFFFFFFF), "weights", "counts are from 0 to 2^32 - 1")
    return array.astype(numpy.uint32), True


def _spread(array: numpy.ndarray[Any, Any], chosen: numpy.ndarray[Any, Any] | None, whole: int) -> bytes:
    """Return the bytes of an array over all samples: values of the chosen ones, 0 for the others."""
    import numpy
    if chosen is None:
        return array.tobytes()
    made = numpy.zeros(whole, array.dtype)
    numpy.add.at(made, chosen, array)
    return made.tobytes()


def core_mix(groups: Groups, *, mix: Mapping[Any, float] | None, samples: int | None, mix_unit: str, weights: Any,
             count: int, whole: int, chosen: numpy.ndarray[Any, Any] | None = None, changes: bool = False) -> tuple[Any, ...] | None:
    """Return the `mix` of _core.Plan; None if each sample occurs once.

    count: samples that `weights` are of. whole: those of the plan, of which `chosen` are its own (None: all). changes: the weights will
        change.
    """
    if mix_unit not in ("samples", "tokens"):
        raise ArgumentError(f"mix_unit: {mix_unit!r} is neither 'samples' nor 'tokens'")
    if samples is not None and (isinstance(samples, bool) or not hasattr(samples, "__index__") or samples < 1):
        raise ArgumentError(f"samples: {samples!r}; it must be an int of at least 1, the draws of an epoch")
    if mix is None and mix_unit == "tokens":
        raise ArgumentError("mix_unit: says what the weights of mix= count; give mix= too")
    if mix is not None and weights is not None:
        raise ArgumentError("mix and weights: give one of them; weights are of samples, a mix is of sources")
    if mix is None and weights is None and samples is None and not changes:
        return None
    draws, counts, odds = samples or 0, None, None
    if weights is not None:
        array, whole_numbers = _of_samples(weights, count, draws)
        spread = _spread(array, chosen, whole)
        counts, odds = (spread, None) if whole_numbers else (None, spread)
    by_source = None if mix is None else weights_of(mix, groups.names)
    return (groups.names, by_source, groups.bounds, groups.source_of, draws, mix_unit == "tokens", counts, odds)


def stages_of(curriculum: Sequence[tuple[Any, Any, Any]], names: list[str]) -> list[list[Any]]:
    """Return the stages of a curriculum as lists of epoch, step, weights and longest.

    epoch is None if steps count since epoch 0 began, weights are None to keep those before, and longest is 0 if no sample waits.
    ArgumentError for a stage that is not (from_step, mix, max_length)."""
    made: list[list[Any]] = []
    for stage in curriculum:
        if not isinstance(stage, (tuple, list)) or len(stage) != 3:
            raise ArgumentError(f"curriculum: {stage!r}; a stage is (from_step, mix, max_length)")
        start, mix, longest = stage
        if longest is not None and longest < 1:
            raise ArgumentError(f"curriculum: max_length {longest}; it must be at least 1, or None")
        place = list(start) if isinstance(start, (tuple, list)) else [None, start]
        if len(place) != 2:
            raise ArgumentError(f"curriculum: from_step {start!r}; it is (epoch, step), or an int")
        epoch, step = place
        made.append([None if epoch is None else operator.index(epoch), operator.index(step),
                     None if mix is None else weights_of(mix, names, "curriculum"), operator.index(longest or 0)])
    return made


def shown_options(mix: Mapping[Any, float] | None, samples: int | None, mix_by: str | None, mix_unit: str,
                  weights: Any) -> dict[str, Any]:
    """Return the options that were given, as repr shows them and ranks compare them."""
    shown: dict[str, Any] = {}
    if mix is not None:
        shown["mix"] = {str(name): float(weight) for name, weight in mix.items()}
    if weights is not None:
        array = one_dimension(weights, "weights", NUMBERS)
        shown["weights"] = f"{array.dtype}[{len(array)}] {hashlib.sha256(array.tobytes()).hexdigest()[:8]}"
    for name, value in (("samples", samples), ("mix_by", mix_by), ("mix_unit", mix_unit if mix_unit != "samples" else None)):
        if value is not None:
            shown[name] = value
    return shown
