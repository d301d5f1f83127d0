# SPDX-License-Identifier: Apache-2.0
"""Planning one epoch of length-bucketed batches with a token budget: lengths in, all batches out."""
from __future__ import annotations

import time
from typing import Any

import numpy
from workload import Array, Place, token_lengths

LENGTHS, QUICK_LENGTHS = 10_000_000, 200_000
MAX_TOKENS = 16_384

Made = tuple[Array, Array]
"""(bounds of batches, sample ids)."""


def by_numpy(lengths: Array) -> Made:
    """A stable argsort of shuffled lengths; batches are cut by arithmetic, since within a run of equal lengths all have the same size.
    Batches are not shuffled: a caller would do that by index."""
    shuffled = numpy.random.default_rng(1).permutation(len(lengths)).astype(numpy.uint32)
    picked = lengths[shuffled].astype(numpy.uint16)
    order = shuffled[numpy.argsort(picked, kind="stable")[::-1]]
    counts = numpy.bincount(picked)
    at, end, bounds = 0, 0, []
    for length in numpy.flatnonzero(counts)[::-1].tolist():
        end += int(counts[length])
        if at < end:
            size = MAX_TOKENS // length
            bounds.append(numpy.arange(at, end, size))
            at = int(bounds[-1][-1]) + size
    return numpy.append(numpy.concatenate(bounds), len(lengths)), order


def by_argsort(lengths: Array) -> Made:
    """The floor: numpy's sort alone, which makes no batch."""
    return numpy.array([0, len(lengths)]), numpy.argsort(lengths, kind="stable")


def by_torch(lengths: Array) -> Made:
    """torch.sort, and a loop over all samples: what is often written."""
    import torch
    values, order = torch.sort(torch.from_numpy(lengths.astype(numpy.int64)))
    bounds, begin = [0], 0
    for i, length in enumerate(values.tolist()):
        if length * (i + 1 - begin) > MAX_TOKENS:
            bounds.append(i)
            begin = i
    return numpy.array([*bounds, len(lengths)]), order.numpy()


def by_rankstore(lengths: Array) -> Made:
    """Strategy bucket, and all its batches as arrays."""
    from rankstore import _core
    plan = _core.Plan(lengths, dataset="0" * 32, strategy="bucket", max_tokens=MAX_TOKENS, world=1)
    bounds, ids = plan.batches(0, 0)
    return numpy.frombuffer(bounds, numpy.int64), numpy.frombuffer(ids, numpy.uint32)


PLANNERS = {"numpy argsort alone": by_argsort, "numpy": by_numpy, "torch.sort + loop": by_torch, "Rankstore": by_rankstore}


class Planning:
    """A plan of all lengths; work is 1."""

    def __init__(self, place: Place, name: str, kind: str) -> None:
        self.name, self.plan = name, PLANNERS[name]
        self.lengths = token_lengths(QUICK_LENGTHS if place.quick else LENGTHS, 5).astype(numpy.uint32)
        self.notes: dict[str, Any] = {"lengths": len(self.lengths)}
        self._check(*self.plan(self.lengths))

    def _check(self, bounds: Array, ids: Array) -> None:
        """Each sample once; no batch is above the budget."""
        if (numpy.bincount(ids, minlength=len(self.lengths)) != 1).any():
            raise ValueError(f"{self.name}: a sample is not in exactly one batch")
        if self.name == "numpy argsort alone":
            return
        longest = numpy.maximum.reduceat(self.lengths[ids].astype(numpy.int64), bounds[:-1])
        padded = longest * numpy.diff(bounds)
        if padded.max() > MAX_TOKENS:
            raise ValueError(f"{self.name}: a batch of {padded.max()} tokens, {MAX_TOKENS} are allowed")
        self.notes["tokens / padded"] = float(self.lengths.sum(dtype=numpy.int64) / padded.sum())

    def round(self) -> tuple[float, float]:
        begun = time.perf_counter()
        made = self.plan(self.lengths)
        seconds = time.perf_counter() - begun
        del made
        return seconds, 1
