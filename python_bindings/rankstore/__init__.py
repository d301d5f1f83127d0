# SPDX-License-Identifier: Apache-2.0
"""Rankstore: a distributed, lazy-loading dataset store behind PyTorch datasets, planned samplers and a loader without
worker processes.

    import rankstore
    ds = rankstore.open("store")                       # on every rank: samples 0..len-1, each read where it lies
    plan = ds.plan("bucket", max_tokens=32768)         # the same globally sorted batches, planned by every rank
    for batch in ds.loader(plan, collate=rankstore.Pad()):
        ...
"""
TYPE_CHECKING = False  # type checkers treat it as True; importing typing would take longer than the rest
if TYPE_CHECKING:
    from typing import Any

    from ._core import version as __version__
    from .batch import Batch
    from .building import BuildReport, build
    from .dataset import Dataset
    from .errors import (ArgumentError, CallbackError, CancelledError, CorruptError, DataError, IOFailedError,
                         NotFoundError, OutOfMemoryError, PeerError, RankStoreError, StateError, TimeoutError,
                         UnsupportedError)  # noqa: A004
    from .gathering import GatherReport, gather
    from .group import Group, current, init, launch
    from .layouts import Layout, Lists, Nested, Pad
    from .loader import Loader
    from .opening import concat, open  # noqa: A004
    from .packed import Pack
    from .planning import plan, transformer_cost
    from .plans import Plan, PlanBatch, PlanSampler
    from .samples import Source
    from .sources.columns import Columns
    from .subsets import from_torch
    from .upkeep import Difference, DiffReport, ExportReport, MergeReport, PruneReport, diff, export, merge, prune

# Each name is imported on first use: `import rankstore` alone takes a fraction of a millisecond.
_PLACES = {
    "batch": "Batch", "building": "BuildReport build", "dataset": "Dataset",
    "errors": "ArgumentError CallbackError CancelledError CorruptError DataError IOFailedError NotFoundError OutOfMemoryError "
              "PeerError RankStoreError StateError TimeoutError UnsupportedError",
    "gathering": "GatherReport gather", "group": "Group current init launch", "layouts": "Layout Lists Nested Pad",
    "loader": "Loader", "opening": "concat open", "packed": "Pack", "planning": "plan transformer_cost", "plans": "Plan PlanBatch PlanSampler",
    "samples": "Source", "sources.columns": "Columns", "subsets": "from_torch",
    "upkeep": "Difference DiffReport ExportReport MergeReport PruneReport diff export merge prune",
}
_LATER = {name: place for place, names in _PLACES.items() for name in names.split()}


def __getattr__(name: str) -> "Any":
    from importlib import import_module
    if name in _LATER or name == "__version__":
        found = import_module("." + _LATER.get(name, "_core"), __name__)
        globals()[name] = value = getattr(found, "version" if name == "__version__" else name)
        return value
    if not name.startswith("__"):  # a module of the package, such as `rankstore.errors`
        try:
            return import_module("." + name, __name__)
        except ModuleNotFoundError as missing:
            if missing.name != f"{__name__}.{name}":
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


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
