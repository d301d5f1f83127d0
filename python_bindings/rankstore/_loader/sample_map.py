# SPDX-License-Identifier: Apache-2.0
"""A user's functions of a sample: `map` of a loader and of a dataset."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._distributed.collectives import callback_failed
from ..errors import ArgumentError, CallbackError

Map = Callable[..., Any]


class MapFailed(Exception):
    """A function refused a sample: its place among those of the call, the error without it, and what the function raised, if it did."""

    def __init__(self, place: int, error: CallbackError, raised: Exception | None = None) -> None:
        super().__init__(place, error, raised)
        self.place, self.error, self.raised = place, error, raised


class SampleMap:
    """Functions of one sample, called one after another. Picklable if they are.

    seed: of the random numbers, which depend on nothing but that, the epoch and the sample's id."""

    def __init__(self, functions: Sequence[Map], seed: int) -> None:
        self._functions = [(function, how_to_draw(function)) for function in functions]
        self._draws = any(how for _, how in self._functions)
        self._seed = seed

    def __repr__(self) -> str:
        return ", ".join(getattr(function, "__qualname__", repr(function)) for function, _ in self._functions)

    def __call__(self, samples: Sequence[Any], ids: Sequence[int], epoch: int) -> list[Any]:
        """Return the samples, changed. MapFailed if a function raises or returns None."""
        draw = _Draws(self._seed, epoch) if self._draws else None
        made = []
        for place, sample in enumerate(samples):
            rng = None if draw is None else draw.of(ids[place])
            for function, how in self._functions:
                try:
                    sample = function(sample) if not how else function(sample, rng) if how == "place" else function(sample, rng=rng)
                except Exception as raised:
                    raise MapFailed(place, callback_failed(raised, -1, getattr(function, "what", "map"), ""), raised) from raised
                if sample is None:
                    raise MapFailed(place, CallbackError.of("map returned None; it must return the sample", -1, "", ""))
            made.append(sample)
        return made


class _Draws:
    """A sample's random numbers, from a counter that begins at (epoch, sample id) with the seed as its key.

    So they depend on nothing else: no rank, step or thread. One generator is reset for each sample; making one takes ten times as long."""

    def __init__(self, seed: int, epoch: int) -> None:
        import numpy
        self._bits = numpy.random.Philox(key=numpy.array([seed, 0], numpy.uint64),
                                         counter=numpy.array([0, 0, epoch, 0], numpy.uint64))
        self._rng = numpy.random.Generator(self._bits)
        self._state = self._bits.state

    def of(self, sample_id: int) -> Any:
        self._state["state"]["counter"][3] = sample_id
        self._bits.state = self._state
        return self._rng


def how_to_draw(function: Map) -> str:
    """Return how a map takes its random generator: by "place", by "name", or "" for map(sample)."""
    import inspect
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a C function without a signature
        return ""
    rng = parameters.get("rng")
    if rng is not None and rng.kind is not rng.POSITIONAL_ONLY:
        return "name"
    needed = [one for one in parameters.values() if one.default is one.empty
              and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    if len(needed) > 2 or not (needed or any(one.kind is one.VAR_POSITIONAL or one.default is not one.empty
                                             for one in parameters.values())):
        raise ArgumentError(f"map: it is map(sample) or map(sample, rng), not map{inspect.signature(function)}")
    return "place" if len(needed) == 2 else ""
