# SPDX-License-Identifier: Apache-2.0
"""What Python knows of NCCL and the C library does not: where its package is, and whether torch captures a graph."""
from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

from .. import _core
from ..errors import IOFailedError, StateError
from .collectives import together
from .group import Group


def package_library() -> str | None:
    """Return the path of libnccl.so.2 in NVIDIA's package (which torch's CUDA builds load), or None. Imports only its folders."""
    try:
        found = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return None
    for folder in found.submodule_search_locations or () if found is not None else ():
        path = os.path.join(folder, "lib", "libnccl.so.2")
        if os.path.exists(path):
            return path
    return None


def prepare(group: Group, exchange: str | None) -> None:
    """COLLECTIVE. Before a dataset is opened, where the exchange may be NCCL's. Nothing is loaded here.

    Raises StateError, on all ranks, if a rank's thread captures a CUDA graph, or another thread of it does on torch's own stream for
    captures: nothing of an exchange may become part of it, and in capture_error_mode="global", torch's default, a call that NCCL makes
    in any thread ends it. A capture of another thread on a stream of the user's is not seen. Raises IOFailedError, on all ranks, if a
    rank's GPU has failed before.
    """
    if exchange is not None and exchange.partition(":")[0] not in ("auto", "nccl"):
        return
    if group.world == 1:
        check_capture()
    else:
        together(group, "open: capture", check_capture)
    _core.nccl_library(package_library())


def _capturing(torch: Any) -> tuple[bool, bool]:
    """Return whether this thread captures a graph, and whether another one does on torch's own stream for captures."""
    if torch.cuda.is_current_stream_capturing():
        return True, False
    stream = getattr(torch.cuda.graph, "default_capture_stream", None)  # None: torch never captured on it
    if stream is None:
        return False, False
    with torch.cuda.stream(stream):
        return False, torch.cuda.is_current_stream_capturing()


def check_capture() -> None:
    """Raise StateError while torch captures a CUDA graph, IOFailedError if the GPU has failed."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    try:
        here, elsewhere = _capturing(torch)
    except RuntimeError as error:  # one of the job's kernels failed: each call of CUDA reports it from then on
        raise IOFailedError(f"open: the GPU of this process has failed before: {str(error).splitlines()[0]}; restart the process, with "
                            "CUDA_LAUNCH_BLOCKING=1 to find the kernel") from None
    if here:
        raise StateError("this thread captures a CUDA graph; open the dataset before the capture")
    if elsewhere:
        raise StateError("another thread captures a CUDA graph; open the dataset before the capture")
