# SPDX-License-Identifier: Apache-2.0
"""Packing all samples of an epoch into bins of one capacity: lengths in, the ids of each bin out."""
from __future__ import annotations

import bisect
import time
from typing import Any

import numpy

from workload import Array, Place

SHAPES = {"gamma": (100_000, 2_048), "uniform": (10_000, 512)}
"""Samples and capacity."""
QUICK = 4_000

Made = tuple[Array, Array]
"""(bounds of bins, sample ids)."""


def drawn(shape: str, count: int) -> Array:
    """uint32[count]."""
    random = numpy.random.default_rng(7)
    values = random.gamma(5, 20, count) if shape == "gamma" else random.integers(1, 513, count)
    return numpy.clip(values, 1, SHAPES[shape][1]).astype(numpy.uint32)


class Loop:
    """Best-fit decreasing in Python over numpy's sort: bins by room in a sorted list."""

    def __init__(self, lengths: Array, capacity: int) -> None:
        self.lengths, self.capacity = lengths, capacity

    def pack(self) -> Made:
        order = numpy.argsort(self.lengths, kind="stable")[::-1]
        rooms: list[tuple[int, int]] = []  # what is left, and of which bin
        bins: list[list[int]] = []
        for number, length in zip(order.tolist(), self.lengths[order].tolist()):
            at = bisect.bisect_left(rooms, (length, 0))
            room, chosen = rooms.pop(at) if at < len(rooms) else (self.capacity, len(bins))
            if chosen == len(bins):
                bins.append([])
            bins[chosen].append(number)
            bisect.insort(rooms, (room - length, chosen))
        bounds = numpy.cumsum([0, *map(len, bins)])
        return bounds, numpy.fromiter((one for each in bins for one in each), numpy.uint32, len(order))


class Trl:
    """trl.pack_dataset, best-fit decreasing. It packs contents, not ids, so a sample is its id, repeated."""

    def __init__(self, lengths: Array, capacity: int) -> None:
        import datasets
        import pyarrow
        datasets.disable_progress_bars()
        datasets.disable_caching()
        offsets = numpy.concatenate([numpy.zeros(1, numpy.int64), numpy.cumsum(lengths, dtype=numpy.int64)])
        ids = numpy.repeat(numpy.arange(len(lengths), dtype=numpy.int32), lengths)
        column = pyarrow.LargeListArray.from_arrays(pyarrow.array(offsets), pyarrow.array(ids))
        self.dataset = datasets.Dataset(pyarrow.table({"input_ids": column}))
        self.capacity, self.count = capacity, len(lengths)

    def pack(self) -> Made:
        import trl
        packed = trl.pack_dataset(self.dataset, self.capacity, "bfd", {"batch_size": self.count})
        rows = packed.data.column("input_ids").combine_chunks()
        items, ends = rows.values.to_numpy(), rows.offsets.to_numpy()
        sizes = [len(each) for each in packed.data.column("seq_lengths").to_pylist()]
        starts = numpy.concatenate([numpy.zeros(1, numpy.int64), numpy.cumsum(
            [one for each in packed.data.column("seq_lengths").to_pylist() for one in each])])[:-1]
        assert len(items) == ends[-1] - ends[0]
        return numpy.cumsum([0, *sizes]), items[starts].astype(numpy.uint32)


class Ours:
    """Strategy pack, and all its bins as arrays, in the order of an epoch."""

    def __init__(self, lengths: Array, capacity: int) -> None:
        self.lengths, self.capacity = lengths, capacity

    def pack(self) -> Made:
        from rankstore import _core
        plan = _core.Plan(self.lengths, strategy="pack", capacity=self.capacity, world=1)
        bounds, ids = plan.batches(0, 0)
        return numpy.frombuffer(bounds, numpy.int64), numpy.frombuffer(ids, numpy.uint32)


PACKERS: dict[str, Any] = {"numpy + loop": Loop, "TRL": Trl, "Rankstore": Ours}


class Packing:
    """A pack of all lengths; work is 1."""

    def __init__(self, place: Place, name: str, shape: str) -> None:
        count, capacity = SHAPES[shape]
        lengths = drawn(shape, QUICK if place.quick else count)
        self.packer = PACKERS[name](lengths, capacity)
        bounds, ids = self.packer.pack()
        if (numpy.bincount(ids, minlength=len(lengths)) != 1).any():
            raise ValueError(f"{name}: a sample is not in exactly one bin")
        tokens = numpy.add.reduceat(lengths[ids].astype(numpy.int64), bounds[:-1])
        if tokens.max() > capacity:
            raise ValueError(f"{name}: a bin of {tokens.max()} tokens, {capacity} are allowed")
        self.notes: dict[str, Any] = {"bins": len(tokens), "fill": float(tokens.sum() / len(tokens) / capacity)}

    def round(self) -> tuple[float, float]:
        begun = time.perf_counter()
        made = self.packer.pack()
        seconds = time.perf_counter() - begun
        del made
        return seconds, 1
