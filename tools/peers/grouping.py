# SPDX-License-Identifier: Apache-2.0
"""An epoch of batches of like lengths for the ranks of a job: lengths in, each rank's batches out."""
from __future__ import annotations

import time
from typing import Any

import numpy
from workload import BATCH, Array, Place, token_lengths

WORLD = 8
STEPS, QUICK_STEPS = 200, 8
MAX_TOKENS = 32_768  # about what 64 samples have
QUADRATIC = 0.001  # the cost that transformers balances is L + L^2 / 1,000

Batches = list[Array]
"""Sample ids of each batch, step by step, in a step rank by rank."""


class Grouped:
    """transformers' group_by_length: every rank makes the order of all samples, and takes every 8th batch of 64."""

    def __init__(self, lengths: Array) -> None:
        import torch
        from transformers.trainer_pt_utils import LengthGroupedSampler
        self.sampler = LengthGroupedSampler(BATCH, lengths=lengths.tolist(), generator=torch.Generator().manual_seed(1))

    def make(self) -> Any:
        """What rank 0 does for an epoch."""
        return list(self.sampler)

    def batches(self) -> Batches:
        """All ranks'."""
        return list(numpy.array(self.make()).reshape(-1, BATCH))


class Rebalanced:
    """transformers' batch_rebalance: of 512 shuffled samples at a time, batches of like cost for 8 ranks."""

    def __init__(self, lengths: Array) -> None:
        from transformers.trainer_pt_utils import BatchRebalanceSampler
        self.samplers = [BatchRebalanceSampler(lengths.tolist(), WORLD * BATCH, WORLD, 1, rank=rank) for rank in range(WORLD)]

    def make(self) -> Any:
        return list(self.samplers[0])

    def batches(self) -> Batches:
        return [numpy.array(batch) for step in zip(*self.samplers) for batch in step]


class Ours:
    """Strategy bucket; a plan, and rank 0's batches of an epoch as arrays."""

    options: dict[str, Any] = {"batch_size": BATCH}

    def __init__(self, lengths: Array) -> None:
        self.lengths = lengths.astype(numpy.uint32)

    def make(self, rank: int = 0) -> Any:
        import rankstore
        return rankstore.plan(self.lengths, "bucket", world=WORLD, rank=rank, seed=0, **self.options).epoch(0).batches()

    def batches(self) -> Batches:
        made = [self.make(rank) for rank in range(WORLD)]
        return [batch for step in zip(*(numpy.split(ids, bounds[1:-1]) for bounds, ids in made)) for batch in step]


class Budget(Ours):
    """The same with a budget of tokens, and the ranks even in the cost that batch_rebalance has: batches differ in their number of
    samples, as its batches do."""

    options = {"max_tokens": MAX_TOKENS, "balance": (1, QUADRATIC)}


GROUPERS: dict[str, Any] = {"transformers, group_by_length": Grouped, "transformers, batch_rebalance": Rebalanced, "Rankstore": Ours,
                            "Rankstore, budget": Budget}


class Grouping:
    """What one rank of 8 does for an epoch of about 64 samples a batch; work is 1."""

    def __init__(self, place: Place, name: str) -> None:
        lengths = token_lengths((QUICK_STEPS if place.quick else STEPS) * WORLD * BATCH, 5)
        self.grouper = GROUPERS[name](lengths)
        batches = self.grouper.batches()
        if len(batches) % WORLD != 0 or (numpy.bincount(numpy.concatenate(batches), minlength=len(lengths)) != 1).any():
            raise ValueError(f"{name}: a sample is not in exactly one batch, or ranks have different numbers of batches")
        sizes = numpy.array([len(batch) for batch in batches])
        longest = numpy.array([lengths[batch].max() for batch in batches])
        padded = sizes * longest
        self.notes: dict[str, Any] = {"tokens / padded": float(lengths.sum() / padded.sum()), "balance": _balance(padded),
                                      "balance of cost": _balance(padded * (1 + QUADRATIC * longest)), "largest": int(padded.max())}

    def round(self) -> tuple[float, float]:
        begun = time.perf_counter()
        made = self.grouper.make()
        seconds = time.perf_counter() - begun
        del made
        return seconds, 1


def _balance(costs: Array) -> float:
    """Over steps: the mean of what the ranks' mean is of their largest."""
    steps = costs.reshape(-1, WORLD)
    return float((steps.mean(axis=1) / steps.max(axis=1)).mean())
