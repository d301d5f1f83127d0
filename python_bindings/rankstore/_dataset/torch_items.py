# SPDX-License-Identifier: Apache-2.0
"""What torch's DataLoader asks a dataset for: items, and batches of a plan's or of torch's own samplers."""
from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from .._batching import torch_checks
from .._batching.batch import Batch, live
from .._batching.collator import Collator
from .._batching.layouts import Layout, Pad
from .._batching.limits import Rule
from .._distributed.group import Group
from .._loader.collate_fn import CollateFn
from .._loader.prefetch import Ahead
from .._loader.user_functions import own_of
from .._plan.sampler import PlanBatch
from ..errors import ArgumentError
from .indexing import length_range
from .reader import OpenSamples, WorkerGroup

if TYPE_CHECKING:
    from .worker_store import Handle


Items = TypeVar("Items", bound="TorchItems")


class TorchItems(OpenSamples):
    """Samples with the methods that torch's DataLoader calls."""

    def __init__(self, handle: Handle, directory: str, group: Group | WorkerGroup) -> None:
        super().__init__(handle, directory, group)
        self._collator: Collator | None = None
        self._is_collating = False
        self._ahead: Ahead | None = None
        self._followers: weakref.WeakSet[Any] = weakref.WeakSet()
        self.functions: tuple[Callable[..., Any], ...] = ()  # those of `map`
        self._epoch = 0  # of what they draw outside of plans
        self._stacking: tuple[str, bool] | None = None  # the generation, and whether samples of it stack

    def _like(self: Items) -> Items:
        """Return another dataset over the same open store."""
        raise NotImplementedError

    def collating(self: Items, layout: Layout | None = None, *, columns: Sequence[str] | None = None,
                  rename: Mapping[str, str] | None = None, out: str = "torch") -> Items:
        """Return this dataset with a `__getitems__` that makes batches of a layout, for torch's DataLoader with any sampler.

        layout: Layout. Pad(), Pack(), Nested() or Lists(). Default: Pad().
        columns: list of str. The columns of a batch. Default: all.
        rename: dict of str. New names of columns in a batch. Default: their own names.
        out: str. "torch" or "numpy". Default: "torch".
        """
        if layout is not None and not isinstance(layout, Layout):
            raise ArgumentError(f"collating: Pad(), Pack(), Nested() or Lists(), not {layout!r}; a function of a list of samples goes "
                                "into ds.loader(plan, collate=function)")
        made = self._like()
        made._collator, made._is_collating = Collator(layout or Pad(), self.schema, columns, rename, out,
                                                          self.length_column), True
        made._followers = self._followers  # so a trainer that gets `made` sets the epoch of samplers of both
        return made

    @property
    def collator(self) -> Collator:
        """Return the collator of the batches that `__getitems__` makes; Pad() unless `collating` chose another layout."""
        if self._collator is None:
            self._collator = Collator(Pad(), self.schema, length=self.length_column)
        return self._collator

    @property
    def collate(self) -> Callable[[Any], Any]:
        """Return a collate_fn for DataLoader.

        It passes a finished Batch on. Samples of torch's own samplers become one by Pad(to_multiple=1), unless they can be stacked."""
        return _pass_batch

    def __getitems__(self, places: Sequence[int]) -> Any:
        """Return what DataLoader asks for.

        A plan's batch gives a finished Batch, as does any list if the dataset is `collating`; otherwise, or if a function of the user's is
        going to be called with it, the result is a list of samples, which a plan's are cut for. If torch's default collate is going to be
        called and cannot stack them (values of different sizes, json, values that may be missing),
        it is a list of one Batch, made by Pad(to_multiple=1)."""
        collate = torch_checks.collate_fn_of(sys._getframe(1))
        if isinstance(places, PlanBatch):
            if isinstance(collate, CollateFn):
                return places
            own = not (self._is_collating or collate is None or collate is _pass_batch or torch_checks.is_default_collate(collate))
            return self._planned(places, own)
        if len(places) > 0 and isinstance(places[0], PlanBatch):
            raise ArgumentError("DataLoader(sampler=plan.sampler()): a plan's sampler yields whole batches; use DataLoader(ds, "
                                "batch_sampler=plan.sampler(), collate_fn=ds.collate), or ds.loader(plan)")
        if self._is_collating:
            self.collator.layout.check_unplanned()
            return self._collated(places, self.collator)
        if (collate is _pass_batch or torch_checks.is_default_collate(collate)) and not self._stacks:
            return [self._collated(places, self._narrow)]
        return self[places]

    def _collated(self, places: Sequence[int], collator: Collator) -> Batch:
        dataset: Any = self
        ids = [self.sample_id(place) for place in places]
        if self.functions:
            made: Batch = own_of(collator, dataset, Rule(), 0).make(self.store.fetch(ids), self._epoch, -1)[0]
        else:
            made = collator.batch(self.collate_ids(ids, collator))
        made._dataset = dataset
        return made

    @property
    def _stacks(self) -> bool:
        """Return True if torch's default collate can make a batch of any samples: all values of a column have one size."""
        generation = self.store.dataset
        if self._stacking is None or self._stacking[0] != generation:
            self._stacking = generation, self._can_stack()
        return self._stacking[1]

    def _can_stack(self) -> bool:
        if any(column.item == "json" or column.nullable for column in self._columns):
            return False
        varying = [column.name for column in self._columns if column.varies and not column.is_text]
        if varying and not (varying == [self.length_column] and self.lengths_are_items):
            return False
        if not varying:
            return True
        least, most = self.store.length_range(self._chosen) if self._handle.is_worker else length_range(self.all_lengths, self._chosen)
        return bool(least >= most)

    @functools.cached_property
    def _narrow(self) -> Collator:
        """Return the collator that replaces torch's default collate: as wide as the longest sample."""
        return Collator(Pad(to_multiple=1), self.schema, length=self.length_column)

    def _planned(self, places: PlanBatch, uncollated: bool = False) -> Any:
        """Return a plan's batch, or the list of its samples."""
        plan = live.get(places.token)
        if plan is not None:
            plan.check_dataset(self)
        if self._ahead is None or not self._ahead.fits(places, uncollated):
            if self._ahead is not None:
                self._ahead.close()
            dataset: Any = self
            self._ahead = Ahead(dataset, places, uncollated)
        made = self._ahead.take(places)
        if not uncollated:
            made.planned(self, plan, places.token, places.epoch, places.step)
        return made

    def collate_ids(self, ids: Sequence[int], collator: Collator, pieces: bytes = b"", bins: bytes = b"") -> Any:
        """Return the collated arrays of samples by id. pieces: uint32[n, 3], those that are pieces; bins: uint32[n + 1], edges of bins."""
        if self._handle.is_worker:
            return self.store.collate(ids, collator.core, collator.options, pieces, bins)
        return self.store.collate(ids, collator.core, pieces, bins)


def _pass_batch(batch: Any) -> Any:
    if isinstance(batch, Batch):
        return batch
    if len(batch) == 1 and isinstance(batch[0], Batch):
        return batch[0]
    from torch.utils.data import default_collate
    try:
        return default_collate(batch)
    except (RuntimeError, TypeError) as refused:
        raise ArgumentError(f"ds.collate: these samples cannot be stacked ({str(refused).splitlines()[0][:120]}); for a function of a "
                            "whole batch use DataLoader(ds.collating(Pad()), batch_sampler=plan.sampler(), "
                            "collate_fn=function)") from refused
