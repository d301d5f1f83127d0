# SPDX-License-Identifier: Apache-2.0
"""Rankstore: a distributed, lazy-loading dataset store behind PyTorch datasets, planned samplers and a loader without worker processes.

    import rankstore
    ds = rankstore.open("store")                       # on every rank: samples 0..len-1, each read where it lies
    plan = ds.plan("bucket", max_tokens=32768)         # the same globally sorted batches, planned by every rank
    for batch in ds.loader(plan, collate=rankstore.Pad()):
        ...
"""
from ._core import version as __version__
from .batch import Batch
from .building import BuildReport, build
from .dataset import Dataset, open  # noqa: A004
from .errors import (ArgumentError, CallbackError, CancelledError, CorruptError, DataError, IOFailedError, NotFoundError, OutOfMemoryError,
                     PeerError, RankStoreError, StateError, TimeoutError, UnsupportedError)  # noqa: A004
from .gathering import GatherReport, gather
from .group import Group, current, init, launch
from .layouts import Layout, Lists, Nested, Pack, Pad
from .loader import Loader
from .plans import Plan, PlanBatch, PlanSampler
from .sources.columns import Columns

__all__ = [
    "ArgumentError", "Batch", "BuildReport", "CallbackError", "CancelledError", "Columns", "CorruptError", "DataError", "Dataset", "Group", "IOFailedError", "Layout", "Lists",
    "Loader", "Nested", "NotFoundError", "OutOfMemoryError", "Pack", "Pad", "PeerError", "Plan", "PlanBatch", "PlanSampler",
    "RankStoreError", "StateError", "TimeoutError", "UnsupportedError", "GatherReport", "__version__", "build", "current", "gather", "init", "launch", "open",
]
