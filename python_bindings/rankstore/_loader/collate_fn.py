# SPDX-License-Identifier: Apache-2.0
"""A loader's batches through a DataLoader that another library builds of its attributes, as Accelerate's skip_first_batches does."""
from __future__ import annotations

from typing import Any

from .. import _core
from .._batching.batch import Batch
from .._batching.tensors import each_tensor
from .._plan.sampler import PlanBatch
from ..errors import ArgumentError


class CollateFn:
    """The collate_fn of DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn).

    The dataset passes a plan's batch on as it is, and this makes it with all options of the loader: in the loader's own process by an
    iteration of the loader, which fetches ahead and whose state is the loader's; in a worker process, or for another rank, alone."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader  # a Loader, whose module imports this one

    def __call__(self, places: Any) -> Any:
        loader = self._loader
        if not isinstance(places, PlanBatch):
            raise ArgumentError("loader.collate_fn: it makes the batches of loader.batch_sampler, and got something else; use DataLoader("
                                "loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn), or ds.collate for "
                                "other samplers")
        in_worker = not isinstance(loader.dataset.store, _core.Store)
        if not in_worker and places.token != loader.plan.token:
            raise ArgumentError("loader.collate_fn: a batch of another plan; use the batch_sampler of the same loader")
        if in_worker or places.rank != loader.plan.rank:
            return self._alone(places, in_worker)
        return loader.next_at(places.epoch, places.step)

    def _alone(self, places: PlanBatch, in_worker: bool) -> Any:
        loader, dataset = self._loader, self._loader.dataset
        if loader.own is not None:
            made = loader.own.make(dataset.store.fetch(places), places.epoch, places.step, places.pieces, places.bins)[0]
        else:
            made = loader.collator.batch(dataset.collate_ids(places, loader.collator, places.pieces, places.bins))
        if isinstance(made, Batch):
            made.planned(dataset, loader.plan, places.token, places.epoch, places.step)
        if loader.transform is not None:
            made = loader.transform(made)
        if loader.device is not None and not in_worker:
            made = each_tensor(made, lambda tensor: tensor.to(loader.device))
        return made
