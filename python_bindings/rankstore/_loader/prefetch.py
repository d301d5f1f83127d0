# SPDX-License-Identifier: Apache-2.0
"""Prefetch for a foreign loader that asks for a plan's batches one by one."""
from __future__ import annotations

import dataclasses
from typing import Any

from .. import _core
from .._batching.batch import Batch, live
from .._batching.protocols import Samples
from .._plan.sampler import PlanBatch
from .user_functions import Own, own_of


class Ahead:
    """Prefetch for a foreign loader, which asks for the batches of an epoch in step order.

    The first one starts an epoch of the library, and the next ones come from it. In a worker process, or for another rank's batches, each
    batch is fetched alone. uncollated: batches are lists of samples, cut as the plan says, for a user's own collate_fn."""

    def __init__(self, dataset: Samples, first: PlanBatch, uncollated: bool) -> None:
        self._dataset = dataset
        self._epoch, self._rank, self._step, self._token = first.epoch, first.rank, first.step, first.token
        # a plan over lengths alone has no unit, so use the dataset's
        rule = dataclasses.replace(first.rule, unit=dataset.length_unit)
        self._uncollated, self._own, self._collator = uncollated, None, None
        if uncollated:
            self._own = Own(_listed, None, dataset, None, None, rule, first.seed)
        elif dataset.functions:
            self._own = own_of(dataset.collator, dataset, rule, first.seed)
        else:
            self._collator = dataset.collator.planned(rule)
        self._core: _core.Epoch | None = None
        self._pid = _core.pid()
        plan, group = live.get(first.token), dataset.group
        in_process = plan is not None and isinstance(dataset.store, _core.Store)
        if plan is not None and in_process and (plan.world, first.rank) == (group.world, group.rank):
            self._core = _core.Epoch(dataset.store, plan.core, epoch=first.epoch, first_step=first.step,
                                     collate=None if self._collator is None else self._collator.core)

    def fits(self, places: PlanBatch, uncollated: bool) -> bool:
        place = (places.token, places.epoch, places.rank, places.step, _core.pid(), uncollated)
        return place == (self._token, self._epoch, self._rank, self._step, self._pid, self._uncollated)

    def take(self, places: PlanBatch) -> Any:
        """Return the batch, or the list of its samples."""
        self._step += 1
        if self._collator is None:
            assert self._own is not None
            samples = self._dataset.store.fetch(places) if self._core is None else next(self._core)[1]
            return self._own.make(samples, places.epoch, places.step, places.pieces, places.bins)[0]
        arrays = (self._dataset.collate_ids(places, self._collator, places.pieces, places.bins) if self._core is None
                  else next(self._core)[1])
        made: Batch = self._collator.batch(arrays)
        return made

    def close(self) -> None:
        if self._core is not None and self._pid == _core.pid():
            self._core.close()


def _listed(samples: list[Any]) -> list[Any]:
    return samples
