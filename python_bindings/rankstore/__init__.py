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

    from ._batching.batch import Batch
    from ._batching.layouts import Layout, Lists, Nested, Pad
    from ._batching.pack import Pack
    from ._build.build import build
    from ._build.options import BuildReport
    from ._core import version as __version__
    from ._dataset.dataset import Dataset
    from ._dataset.maintenance import (
        Difference,
        DiffReport,
        ExportReport,
        MergeReport,
        PruneLocalReport,
        PruneReport,
        PublishReport,
        StageReport,
        diff,
        export,
        merge,
        prune,
        prune_local,
        publish,
        stage,
    )
    from ._dataset.open import concat, open  # noqa: A004
    from ._dataset.reader import Source
    from ._dataset.torch_subset import from_torch
    from ._distributed.group import Group, current, init, launch
    from ._gather.gather import GatherReport, gather
    from ._loader.loader import Loader
    from ._plan.lengths import plan, transformer_cost
    from ._plan.plan import Plan
    from ._plan.sampler import PlanBatch, PlanSampler
    from ._schema.columns import Columns
    from .errors import (
        ArgumentError,
        CallbackError,
        CancelledError,
        CorruptError,
        DataError,
        IOFailedError,
        NotFoundError,
        OutOfMemoryError,
        PeerError,
        RankStoreError,
        StateError,
        TimeoutError,
        UnsupportedError,  # noqa: A004
    )

# Each name is imported on first use: `import rankstore` alone takes a fraction of a millisecond.
_PLACES = {
    "_batching.batch": "Batch", "_batching.layouts": "Layout Lists Nested Pad", "_batching.pack": "Pack",
    "_build.build": "build", "_build.options": "BuildReport",
    "_dataset.dataset": "Dataset", "_dataset.open": "concat open", "_dataset.reader": "Source", "_dataset.torch_subset": "from_torch",
    "_dataset.maintenance": "Difference DiffReport ExportReport MergeReport PruneLocalReport PruneReport PublishReport StageReport "
                            "diff export merge prune prune_local publish stage",
    "_distributed.group": "Group current init launch", "_gather.gather": "GatherReport gather", "_loader.loader": "Loader",
    "_plan.lengths": "plan transformer_cost", "_plan.plan": "Plan", "_plan.sampler": "PlanBatch PlanSampler", "_schema.columns": "Columns",
    "errors": "ArgumentError CallbackError CancelledError CorruptError DataError IOFailedError NotFoundError OutOfMemoryError "
              "PeerError RankStoreError StateError TimeoutError UnsupportedError",
}
_LATER = {name: place for place, names in _PLACES.items() for name in names.split()}


def __getattr__(name: str) -> "Any":
    from importlib import import_module
    if name in _LATER or name == "__version__":
        import_module("._core", __name__).check_interpreter()
        found = import_module("." + _LATER.get(name, "_core"), __name__)
        globals()[name] = value = getattr(found, "version" if name == "__version__" else name)
        return value
    if not name.startswith("__"):  # a module: `rankstore.errors`, `rankstore.hf`
        try:
            return import_module("." + name, __name__)
        except ModuleNotFoundError as missing:
            if missing.name != f"{__name__}.{name}":
                raise
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*(name for name in globals() if name.startswith("__")), *__all__, "errors", "hf"})


__all__ = [
    "ArgumentError", "Batch", "BuildReport", "CallbackError", "CancelledError", "Columns", "CorruptError", "DataError", "Dataset",
    "DiffReport", "Difference", "ExportReport", "GatherReport", "Group", "IOFailedError", "Layout", "Lists", "Loader", "MergeReport",
    "Nested", "NotFoundError", "OutOfMemoryError", "Pack", "Pad", "PeerError", "Plan", "PlanBatch", "PlanSampler", "PruneLocalReport",
    "PruneReport", "PublishReport", "RankStoreError", "Source", "StageReport", "StateError", "TimeoutError", "UnsupportedError",
    "__version__", "build", "concat", "current", "diff", "export", "from_torch", "gather", "init", "launch", "merge", "open", "plan",
    "prune", "prune_local", "publish", "stage", "transformer_cost",
]
