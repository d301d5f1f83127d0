# SPDX-License-Identifier: Apache-2.0
"""Rankstore: a distributed, lazy-loading dataset store behind PyTorch datasets, planned samplers and a loader without
worker processes.

    import rankstore
    ds = rankstore.open("store")                       # on every rank: samples 0..len-1, each read where it lies
    plan = ds.plan("bucket", max_tokens=32768)         # the same globally sorted batches, planned by every rank
    for batch in ds.loader(plan, collate=rankstore.Pad()):
        ...
"""
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._core import version as __version__
from .batch import Batch
from .dataset import Dataset, Source
from .errors import (ArgumentError, CallbackError, CancelledError, CorruptError, DataError, IOFailedError,
                     NotFoundError, OutOfMemoryError, PeerError, RankStoreError, StateError, TimeoutError,
                     UnsupportedError)  # noqa: A004
from .group import Group, current, init, launch
from .layouts import Layout, Lists, Nested, Pack, Pad
from .loader import Loader
from .opening import concat, open  # noqa: A004
from .planning import plan, transformer_cost
from .plans import Plan, PlanBatch, PlanSampler

if TYPE_CHECKING:
    from .building import BuildReport, build
    from .gathering import GatherReport, gather
    from .sources.columns import Columns
    from .subsets import from_torch
    from .upkeep import Difference, DiffReport, ExportReport, MergeReport, PruneReport, diff, export, merge, prune

# A job that only reads has no use for these, which are most of what there is to import.
_LATER = {"BuildReport": ".building", "build": ".building", "Columns": ".sources.columns", "GatherReport": ".gathering",
          "from_torch": ".subsets", "gather": ".gathering",
          **dict.fromkeys(("Difference", "DiffReport", "ExportReport", "MergeReport", "PruneReport", "diff", "export", "merge",
                           "prune"), ".upkeep")}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(import_module(_LATER[name], __name__), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "ArgumentError", "Batch", "BuildReport", "CallbackError", "CancelledError", "Columns", "CorruptError",
    "DataError", "Dataset", "DiffReport", "Difference", "ExportReport", "GatherReport", "Group", "IOFailedError", "Layout",
    "Lists", "Loader", "MergeReport", "Nested", "NotFoundError", "OutOfMemoryError", "Pack", "Pad", "PeerError", "Plan",
    "PlanBatch", "PlanSampler", "PruneReport", "RankStoreError", "Source", "StateError", "TimeoutError", "UnsupportedError",
    "__version__", "build", "concat", "current", "diff", "export", "from_torch", "gather", "init", "launch", "merge", "open", "plan", "prune",
    "transformer_cost",
]
