# SPDX-License-Identifier: Apache-2.0
"""A user's own functions in a loader: `map` of one sample, and `collate` of a batch's samples."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._batching.batch import Batch
from .._batching.layouts import Layout, check_name
from .._batching.limits import Rule
from .._batching.protocols import Samples
from .._distributed.collectives import callback_failed
from .._schema.decode import cutting_reader
from ..errors import ArgumentError, CallbackError, RankStoreError

_NAMED = 3  # an error names at most so many samples


class Own:
    """Makes a batch with the user's functions, in threads.

    Samples are dicts as `ds[i]` returns them, cut as the plan says. Each goes through `map`, and all of them through `collate`."""

    def __init__(self, collate: Callable[[list[Any]], Any], mapped: Callable[..., Any] | None, dataset: Samples,
                 columns: Sequence[str] | None, rename: Mapping[str, str] | None, rule: Rule, seed: int) -> None:
        if isinstance(columns, str):
            raise ArgumentError(f"columns: a list of names, not the str {columns!r}")
        for option, names in (("columns", columns), ("rename", rename)):
            for name in names or ():
                check_name(option, name, dataset.schema, {})
        chosen = list(dataset.schema if columns is None else columns)
        named = [(rename or {}).get(name, name) for name in chosen]
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice is not None:
            raise ArgumentError(f'collate: two columns are named "{twice}"; give rename= other names, or columns= without one of them')
        self._collate, self._map, self._dataset, self._seed = collate, mapped, dataset, seed
        self._draws = "" if mapped is None else _how_to_draw(mapped)
        length = dataset.length_column if dataset.lengths_are_items else None
        self.cut = Layout().planned(rule, length, chosen).cut_to
        self._read = cutting_reader(dataset.schema, chosen, rename or {}, bool(self.cut or rule.split))

    def __repr__(self) -> str:
        named = (("map", self._map), ("collate", self._collate))
        return ", ".join(f"{what}={getattr(function, '__qualname__', function)}" for what, function in named if function is not None)

    def make(self, samples: Any, epoch: int, step: int, pieces: bytes = b"") -> tuple[Any, int, int]:
        """Return the batch, the number of its samples and the sum of their lengths.

        pieces: uint32[n, 3] (place, start, count), the samples that are pieces. CallbackError says step and samples if a function raises.
        """
        ids = [samples.id(i) for i in range(len(samples))]
        lengths = [samples.length(i) for i in range(len(samples))]
        parts = [(0, min(length, self.cut or length)) for length in lengths]
        listed = memoryview(pieces).cast("I").tolist() if pieces else []
        for place, start, count in zip(listed[::3], listed[1::3], listed[2::3], strict=True):
            parts[place] = (start, count)
        found = [self._read(samples.values(i), length, *part) for i, (length, part) in enumerate(zip(lengths, parts, strict=True))]
        if self._map is not None:
            found = self._mapped(found, ids, epoch, step)
        try:
            made = self._collate(found)
        except Exception as raised:
            raise self._failed(raised, "collate", ids, epoch, step) from raised
        return self._labelled(made, ids, lengths, parts, listed), len(ids), sum(count for _, count in parts)

    def _mapped(self, found: list[Any], ids: list[int], epoch: int, step: int) -> list[Any]:
        draw = _Draws(self._seed, epoch) if self._draws else None
        made = []
        for sample, sample_id in zip(found, ids, strict=True):
            try:
                one = self._call_map(sample, None if draw is None else draw.of(sample_id))
            except Exception as raised:
                raise self._failed(raised, "map", [sample_id], epoch, step) from raised
            if one is None:
                raise CallbackError.of("map returned None; it must return the sample", self._dataset.group.rank,
                                       self._where([sample_id], epoch, step), "")
            made.append(one)
        return made

    def _call_map(self, sample: Any, rng: Any) -> Any:
        assert self._map is not None
        if rng is None:
            return self._map(sample)
        return self._map(sample, rng) if self._draws == "place" else self._map(sample, rng=rng)

    def _labelled(self, made: Any, ids: list[int], lengths: list[int], parts: list[tuple[int, int]], pieces: list[int]) -> Any:
        """Return a dict as a Batch with its sample ids and lengths; anything else unchanged."""
        if type(made) is dict:
            made = Batch(made)
        if isinstance(made, Batch):
            import numpy
            counts = lengths if not (self.cut or pieces) else [count for _, count in parts]
            made.ids, made.lengths = numpy.array(ids, numpy.int64), numpy.array(counts, numpy.uint32)
            made._cut = self.cut
            made._pieces = numpy.array(pieces, numpy.uint32).reshape(-1, 3) if pieces else None
        return made

    def _failed(self, raised: Exception, what: str, ids: list[int], epoch: int, step: int) -> CallbackError:
        return callback_failed(raised, self._dataset.group.rank, what, self._where(ids, epoch, step))

    def _where(self, ids: list[int], epoch: int, step: int) -> str:
        keys = ", ".join(self._name(one) for one in ids[:_NAMED])
        more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
        return f"epoch {epoch}, step {step}, sample{'s' if len(ids) > 1 else ''} {keys}{more}"

    def _name(self, sample_id: int) -> str:
        """Return a sample's key, or its id if the key cannot be read."""
        try:
            return repr(self._dataset.store.key(sample_id).decode("utf-8", "replace"))
        except RankStoreError:
            return str(sample_id)


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


def _how_to_draw(function: Callable[..., Any]) -> str:
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
