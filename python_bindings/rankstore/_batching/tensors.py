# SPDX-License-Identifier: Apache-2.0
"""Tensors inside of values: of batches, of mappings, lists and tuples of any type, and inside each other."""
from __future__ import annotations

import copy
from collections.abc import Callable, MutableMapping
from typing import Any


def each_tensor(value: Any, change: Callable[[Any], Any], *, whole: bool = False) -> Any:
    """Return `value` with every tensor replaced by change(tensor).

    whole: change() also gets whatever can be moved as a whole, such as torch's nested tensors. Otherwise those are made anew of their
        parts, because their own copies would wait.
    """
    if hasattr(value, "map_tensors"):
        return value.map_tensors(change, whole=whole)
    if isinstance(value, MutableMapping):
        made = {} if type(value) is dict else copy.copy(value)  # a copy keeps the mapping's own type and attributes
        made.update({name: each_tensor(one, change, whole=whole) for name, one in value.items()})
        return made
    if isinstance(value, (list, tuple)):
        if not _holds_tensors(value):
            return value
        made_of: Any = type(value)
        # The sizes of a PackedSequence stay on the CPU.
        stays = getattr(value, "batch_sizes", None) if made_of.__module__ == "torch.nn.utils.rnn" else None
        parts = [one if one is stays else each_tensor(one, change, whole=whole) for one in value]
        return made_of(*parts) if hasattr(value, "_fields") else made_of(parts)
    if not hasattr(value, "to" if whole else "is_pinned"):
        return value
    if not whole and getattr(value, "is_nested", False):
        import torch
        if value.layout is torch.jagged:
            lengths = value.lengths()  # None if its rows are contiguous
            return torch.nested.nested_tensor_from_jagged(change(value.values()), change(value.offsets()),
                                                          None if lengths is None else change(lengths), value._ragged_idx)
    return change(value)


def _holds_tensors(values: Any) -> bool:
    """Return False for lists of text, bytes or numbers, which are long and hold no tensors."""
    return not all(isinstance(one, (str, bytes, int, float, type(None))) for one in values)


def pinned(value: Any) -> Any:
    """Return the value with its tensors in pinned memory.

    Tensors that are there already stay, and so do those that cannot be pinned, because a transform moved them elsewhere or made them
    sparse."""
    def pin(tensor: Any) -> Any:
        import torch
        can = tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_pinned()
        return tensor.pin_memory() if can else tensor

    return each_tensor(value, pin)
