# SPDX-License-Identifier: Apache-2.0
"""Checks of a loader's options."""
from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypedDict, TypeVar

from .._batching.layouts import Layout
from ..errors import ArgumentError, UnsupportedError

# DataLoader's arguments that a loader lacks, and what to use instead.
OF_DATALOADER = {"batch_size": "a plan decides it: ds.plan(batch_size=...)", "shuffle": "a plan decides it: ds.plan(shuffle=...)",
                 "drop_last": 'a plan decides it: ds.plan(tail="drop")', "sampler": "ds.loader(plan) has the plan's own",
                 "batch_sampler": "ds.loader(plan) has the plan's own",
                 "num_workers": "threads of the library fetch and collate; worker processes, which call map=, are processes=",
                 "collate_fn": "collate=, a layout such as Pad(), or a function of a list of samples",
                 "prefetch_factor": "prefetch_batches= or prefetch_bytes="}

Given = ParamSpec("Given")
Made = TypeVar("Made")


class LoaderOptions(TypedDict, total=False):
    """The options of `Dataset.loader` that do not decide the type of its batches."""

    map: Callable[..., Any] | None
    decode: str | Mapping[str, str] | None
    columns: Sequence[str] | None
    rename: Mapping[str, str] | None
    device: Any
    prefetch_device: int
    pin_memory: bool | str
    out: str
    prefetch_batches: int | str
    prefetch_bytes: int | str
    threads: int
    processes: int
    start: dict[str, Any] | None
    progress: bool


def names_dataloaders(make: Callable[Given, Made]) -> Callable[Given, Made]:
    """Return a function that makes a loader, and whose ArgumentError for an argument of DataLoader's says what to use instead."""
    @functools.wraps(make)
    def loader(*given: Given.args, **named: Given.kwargs) -> Made:
        for name in named:
            if name in OF_DATALOADER:
                raise ArgumentError(f"loader({name}=...): {OF_DATALOADER[name]}")
        return make(*given, **named)

    return loader


def check_functions(collate: Any, mapped: Any, transform: Any) -> None:
    if isinstance(collate, type) and issubclass(collate, Layout):
        raise ArgumentError(f"collate: {collate.__name__} is the class; call it, collate={collate.__name__}()")
    is_own = collate is not None and not isinstance(collate, Layout)
    if is_own and not callable(collate):
        raise ArgumentError(f"collate: Pad(), Pack(), Nested(), Lists(), a function of a list of samples, or None, not {collate!r}")
    if mapped is not None and not callable(mapped):
        raise ArgumentError(f"map: a function of a sample, or of a sample and rng, not {type(mapped).__name__}")
    if transform is not None and not callable(transform):
        raise ArgumentError(f"transform: a function of a batch, not {type(transform).__name__}")


def check_processes(processes: Any, has_map: bool) -> None:
    if isinstance(processes, bool) or not hasattr(processes, "__index__") or processes < 0:
        raise ArgumentError(f"processes: {processes!r}; it must be an int of at least 0")
    if processes and not has_map:
        raise ArgumentError("processes: they call map= and decode=, and there is neither; threads= call collate and transform")


def check_device(device: Any) -> None:
    """Raise ArgumentError if `device` is not a device, or one that this process does not have."""
    if device is None:
        return
    import torch
    try:
        chosen = torch.device(device)
    except (RuntimeError, TypeError) as refused:
        raise ArgumentError(f"device: {device!r}: {str(refused).splitlines()[0][:120]}") from refused
    if chosen.type == "cuda":
        there = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (chosen.index or 0) >= there:
            raise ArgumentError(f"device: {device!r}: torch sees {there} CUDA devices here; leave device out for tensors of "
                                "main memory")


def need_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as missing:
        raise UnsupportedError(f'out="torch" needs torch ({missing}): pip install torch, or ask for out="numpy"') from None


def pins_batches(pin_memory: bool | str, device: Any, out: str) -> bool:
    if pin_memory not in (True, False, "auto"):
        raise ArgumentError(f"pin_memory: {pin_memory!r} is not True, False or 'auto'")
    if out != "torch" or pin_memory is False:
        return False
    import torch
    if not torch.cuda.is_available():
        if pin_memory is True:
            raise ArgumentError("pin_memory: there is no GPU; leave it at 'auto'")
        return False
    return True
