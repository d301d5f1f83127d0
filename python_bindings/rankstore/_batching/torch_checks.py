# SPDX-License-Identifier: Apache-2.0
"""Checks on what loaders and trainers do around a plan, if it can be seen. Imports nothing that is not imported already."""
from __future__ import annotations

import sys
import warnings
from types import FrameType
from typing import Any

from ..errors import ArgumentError, StateError
from .batch import Batch
from .protocols import Sampler


def refuse_dealing(accelerator: Any) -> None:
    """Raise ArgumentError if an Accelerator would cut batches up, or deal out those of rank 0."""
    for name in ("split_batches", "dispatch_batches"):
        if getattr(accelerator, name, None):
            raise ArgumentError(f"{name}=True: a plan's batches are each rank's own and of different sizes; leave "
                                f"{name} at False")


def check_prepared(sampler: Sampler) -> None:
    """Raise StateError if the DataLoader that Accelerate iterates right now gives other batches than the plan's."""
    if "accelerate" not in sys.modules:
        return
    from accelerate.state import GradientState
    loader = GradientState().active_dataloader
    around = getattr(loader, "batch_sampler", None)
    inner = getattr(around, "batch_sampler", around)
    if around is None or inner is not sampler or sampler.plan.world == 1:
        return
    if type(loader).__name__ == "DataLoaderDispatcher":
        raise StateError("Accelerate's dispatch_batches=True reads all batches on rank 0, and a plan's are of "
                         "different sizes; pass "
                         "dispatch_batches=False to Accelerator's DataLoaderConfiguration")
    if around is not sampler and sampler.view == "rank":
        raise StateError("Accelerate deals batches out to ranks, and this sampler yields those of one rank only: "
                         'samples would be lost; prepare a DataLoader over plan.sampler("global"), or use '
                         "dataset.loader(plan), which needs no prepare()")


def check_wrapped(loader: Any, planned: int) -> None:
    """Raise ArgumentError if a DataLoader over a plan reads its samples through torch's Subset or a ConcatDataset of others.

    A plan gives sample ids, and these number samples anew. planned: the number of samples of the plan."""
    found = getattr(loader, "dataset", None)
    data = sys.modules.get("torch.utils.data")
    if data is None or not isinstance(found, (data.Subset, data.ConcatDataset)):
        return
    inner = found
    while isinstance(inner, data.ConcatDataset) and inner.datasets:
        inner = inner.datasets[0]
    if isinstance(inner, data.Subset) or len(found) != planned:
        kind = type(found).__name__
        raise ArgumentError(f"DataLoader: a plan gives sample ids, and torch's {kind} numbers samples anew; use part = "
                            f"rankstore.from_torch({kind.lower()}), and its part.plan(...) and part.loader(plan)")


def warn_out_of_order(loader: Any) -> None:
    """Warn if a DataLoader with workers may yield batches in another order on each rank."""
    if getattr(loader, "in_order", True) is False and getattr(loader, "num_workers", 0) > 0:
        warnings.warn("DataLoader(in_order=False): each rank yields its batches in another order, so that a step's "
                      "batches are no longer of like length, and a resumed run repeats or loses samples; leave "
                      "in_order at True",
                      stacklevel=4)


def collate_fn_of(caller: FrameType) -> Any:
    """Return the collate_fn that a DataLoader is about to call with what it asks for; None if the caller is something else."""
    return getattr(caller.f_locals.get("self"), "collate_fn", None)


def is_default_collate(collate: Any) -> bool:
    """Return True for torch's default collate.

    From now on it passes on a Batch that stands alone in a list, as its registry of types allows."""
    if collate is None:
        return False
    from torch.utils.data import default_collate
    if collate is not default_collate:
        return False
    from torch.utils.data._utils.collate import default_collate_fn_map
    default_collate_fn_map.setdefault(Batch, _only)
    return True


def _only(batches: list[Batch], **_: Any) -> Any:
    """Return the Batch that stands alone. Several are stacked, column by column, as other dicts are."""
    if len(batches) == 1:
        return batches[0]
    from torch.utils.data import default_collate
    return default_collate([dict(batch) for batch in batches])
