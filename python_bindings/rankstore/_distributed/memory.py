# SPDX-License-Identifier: Apache-2.0
"""What memory the library holds, by purpose, and what torch's allocator held beside it. `Dataset.memory` says what the kinds are."""
from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypedDict

from .. import _core

if TYPE_CHECKING:
    from .group import Group


class Figure(TypedDict):
    """The memory of one process."""

    current: int
    peak: int


class Extreme(TypedDict):
    """The memory of all ranks: the largest figures, and the lowest rank that has them. If least_peak is far below peak, one rank alone
    pays."""

    current: int
    current_rank: int
    peak: int
    peak_rank: int
    least_peak: int
    ranks: list[Figure]


class TorchMemory(TypedDict):
    """The memory of torch's CUDA allocator, on the current device."""

    allocated: int
    reserved: int
    largest_free_block: int


def of_process() -> dict[str, Figure]:
    """Return this process's memory by kind."""
    return {kind: {"current": current, "peak": peak} for kind, (current, peak) in _core.memory_use().items()}


def of_ranks(group: Group) -> dict[str, Extreme]:
    """Return the memory of all ranks by kind (collective)."""
    ranks, most = _core.memory_use_all(group.core)
    return {kind: {"current": current, "current_rank": current_rank, "peak": peak, "peak_rank": peak_rank,
                   "least_peak": least, "ranks": [{"current": one[kind][0], "peak": one[kind][1]} for one in ranks]}
            for kind, (current, current_rank, peak, peak_rank, least) in most.items()}


def of_torch() -> TorchMemory | None:
    """Return torch's memory; None if torch is not imported or its CUDA not initialised. Neither is done here."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    device = cuda.current_device()
    free = [block["size"] for segment in cuda.memory_snapshot() if segment["device"] == device
            for block in segment["blocks"] if block["state"] == "inactive"]
    return {"allocated": int(cuda.memory_allocated(device)), "reserved": int(cuda.memory_reserved(device)),
            "largest_free_block": max(free, default=0)}
