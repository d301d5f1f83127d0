# SPDX-License-Identifier: Apache-2.0
"""A user's own functions in a loader: `map` of one sample, and `collate` of a batch's samples, or a layout of what `map` returned."""
from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._batching.batch import Batch
from .._batching.layouts import Layout, check_name
from .._batching.limits import Rule
from .._batching.mapped import MappedCollator
from .._batching.protocols import Samples
from .._distributed.collectives import callback_failed
from .._schema.decode import cutting_reader
from ..errors import ArgumentError, CallbackError, RankStoreError
from .decoding import Decoder, decoder_of
from .map_processes import MapProcesses
from .sample_map import Map, MapFailed, SampleMap

_NAMED = 3  # an error names at most so many samples


class Own:
    """Makes a batch with the user's functions, in threads.

    Samples are dicts as `ds[i]` returns them, cut as the plan says. Each goes through the dataset's functions and `mapped`, in processes if
    there are some, and all of them go through `collate`: a function, or a layout."""

    def __init__(self, collate: Layout | Callable[[list[Any]], Any], mapped: Map | None, dataset: Samples,
                 columns: Sequence[str] | None, rename: Mapping[str, str] | None, rule: Rule, seed: int, out: str = "torch",
                 decode: str | Mapping[str, str] | None = None) -> None:
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
        self._collate, self._dataset = collate, dataset
        decoders = [one for one in dataset.functions if isinstance(one, Decoder)]
        if decode is not None:
            decoders.append(decoder_of(decode, dataset.schema, dataset.functions))
        functions: list[Map] = [one.renamed(rename or {}, chosen) for one in decoders]
        functions += [one for one in dataset.functions if not isinstance(one, Decoder)]
        functions += [] if mapped is None else [mapped]
        self.map = SampleMap(functions, seed) if functions else None
        length = dataset.length_column if dataset.lengths_are_items else None
        self._layout: MappedCollator | None = None
        if isinstance(collate, Layout):
            schema = {new: dataclasses.replace(dataset.schema[old], name=new) for old, new in zip(chosen, named, strict=True)}
            counted = (rename or {}).get(dataset.length_column or "", dataset.length_column)
            self._layout = MappedCollator(collate, schema, counted, out, rule)
        self.cut = Layout().planned(rule, length, chosen).cut_to
        self._read = cutting_reader(dataset.schema, chosen, rename or {}, bool(self.cut or rule.split))

    def __repr__(self) -> str:
        shown = [] if self.map is None else [f"map={self.map!r}"]
        return ", ".join([*shown, f"collate={getattr(self._collate, '__qualname__', self._collate)}"])

    def make(self, samples: Any, epoch: int, step: int, pieces: bytes = b"", bins: bytes = b"",
             processes: MapProcesses | None = None) -> tuple[Any, int, int]:
        """Return the batch, the number of its samples and the sum of their lengths.

        pieces: uint32[n, 3] (place, start, count), the samples that are pieces. bins: uint32[n + 1], edges of bins. CallbackError says step
        and samples if a function raises.
        """
        ids = [samples.id(i) for i in range(len(samples))]
        lengths = [samples.length(i) for i in range(len(samples))]
        parts = [(0, min(length, self.cut or length)) for length in lengths]
        listed = memoryview(pieces).cast("I").tolist() if pieces else []
        for place, start, count in zip(listed[::3], listed[1::3], listed[2::3], strict=True):
            parts[place] = (start, count)
        found = [self._read(samples.values(i), length, *part) for i, (length, part) in enumerate(zip(lengths, parts, strict=True))]
        if self.map is not None:
            found = self.mapped(found, ids, epoch, step, processes)
        counts = [count for _, count in parts] if self.cut or listed else lengths
        if self._layout is not None:
            made: Any = self._layout.batch(found, ids, counts, bins, lambda place: self._where([ids[place]], epoch, step))
            made._pieces = _pieces(listed)
            return made, len(ids), sum(counts)
        assert not isinstance(self._collate, Layout)
        try:
            made = self._collate(found)
        except Exception as raised:
            raise self._failed(raised, "collate", ids, epoch, step) from raised
        return self._labelled(made, ids, counts, listed), len(ids), sum(counts)

    def mapped(self, found: list[Any], ids: list[int], epoch: int, step: int, processes: MapProcesses | None = None) -> list[Any]:
        """Return the samples, changed. step: -1 outside of a plan. CallbackError names the sample."""
        assert self.map is not None
        try:
            return (self.map if processes is None else processes)(found, ids, epoch)
        except MapFailed as failed:
            where = self._where(ids if failed.place < 0 else [ids[failed.place]], epoch, step)
            raise CallbackError.of(failed.error.text, self._dataset.group.rank, where, failed.error.traceback) from failed.raised

    def _labelled(self, made: Any, ids: list[int], counts: list[int], pieces: list[int]) -> Any:
        """Return a dict as a Batch with its sample ids and lengths; anything else unchanged."""
        if type(made) is dict:
            made = Batch(made)
        if isinstance(made, Batch):
            import numpy
            made.ids, made.lengths = numpy.array(ids, numpy.int64), numpy.array(counts, numpy.uint32)
            made._cut = self.cut
            made._pieces = _pieces(pieces)
        return made

    def _failed(self, raised: Exception, what: str, ids: list[int], epoch: int, step: int) -> CallbackError:
        return callback_failed(raised, self._dataset.group.rank, what, self._where(ids, epoch, step))

    def _where(self, ids: list[int], epoch: int, step: int) -> str:
        keys = ", ".join(self._name(one) for one in ids[:_NAMED])
        more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
        place = f"epoch {epoch}, step {step}, " if step >= 0 else ""
        return f"{place}sample{'s' if len(ids) > 1 else ''} {keys}{more}"

    def _name(self, sample_id: int) -> str:
        """Return a sample's key, or its id if the key cannot be read."""
        try:
            return repr(self._dataset.store.key(sample_id).decode("utf-8", "replace"))
        except RankStoreError:
            return str(sample_id)


def own_of(collator: Any, dataset: Samples, rule: Rule, seed: int) -> Own:
    """Return what makes the batches of a Collator of samples that the dataset's functions change."""
    return Own(collator.layout, None, dataset, [column.name for column in collator.columns], collator.rename, rule, seed, collator.out)


def _pieces(listed: list[int]) -> Any:
    import numpy
    return numpy.array(listed, numpy.uint32).reshape(-1, 3) if listed else None
