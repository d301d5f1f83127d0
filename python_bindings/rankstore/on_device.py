# SPDX-License-Identifier: Apache-2.0
"""Batches on their way to a GPU, copied beside the work of the consumer.

    main memory, pinned ──copies, a stream of its own──► GPU ──event──► the consumer's stream waits when the batch is taken
    step n + ahead                                                      step n

Laws. When step n is yielded, the copies of the `ahead` steps behind it are queued. The stream of copies waits for nothing that
the consumer does. A batch's memory on the GPU is used again only when the consumer's stream, too, is done with it
(`record_stream`). What a copy reads is held until the copy has ended. At most `ahead` + 1 batches are held on the GPU.
"""
from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from .batch import Batch


def each_tensor(value: Any, change: Callable[[Any], Any]) -> Any:
    """The same with other tensors: of a Batch, of dicts, lists and tuples, and inside each other. A nested tensor of torch is
    made anew of its parts, since its own copies would wait."""
    if isinstance(value, Batch):
        made = Batch({name: each_tensor(one, change) for name, one in value.items()})
        made.__dict__.update(value.__dict__)
        made.missing = {name: each_tensor(one, change) for name, one in value.missing.items()}
        return made
    if type(value) is dict:
        return {name: each_tensor(one, change) for name, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(each_tensor(one, change) for one in value) if _holds_tensors(value) else value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(each_tensor(one, change) for one in value))
    if not hasattr(value, "is_pinned"):
        return value
    if getattr(value, "is_nested", False):
        import torch
        if value.layout is torch.jagged:
            lengths = value.lengths()  # None where its rows lie one behind the other
            return torch.nested.nested_tensor_from_jagged(change(value.values()), change(value.offsets()),
                                                          None if lengths is None else change(lengths), value._ragged_idx)
    return change(value)


def _holds_tensors(values: Any) -> bool:
    """False for lists of text, bytes or numbers, which are long and hold none."""
    return not all(isinstance(one, (str, bytes, int, float, type(None))) for one in values)


def pinned(value: Any) -> Any:
    """The same, its tensors in pinned memory; those that lie there already stay, and so do those that cannot, since a transform
    moved them elsewhere or made them sparse."""
    def pin(tensor: Any) -> Any:
        import torch
        can = tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_pinned()
        return tensor.pin_memory() if can else tensor

    return each_tensor(value, pin)


class Copies:
    """What is needed of torch.cuda: a stream for copies, and the consumer's."""

    def __init__(self, device: Any) -> None:
        import torch
        make: Any = torch.cuda.Stream
        self._cuda, self._device = torch.cuda, torch.device(device)
        self._stream = make(self._device)

    def send(self, tensors: list[Any]) -> tuple[list[Any], Any]:
        """(the tensors on the device, an event behind their copies). Returns before they are done."""
        with self._cuda.stream(self._stream):  # allocated on it, too: no wait for the consumer
            there = [tensor.to(self._device, non_blocking=True) for tensor in tensors]
            return there, self._stream.record_event()

    def done(self, event: Any) -> bool:
        """Without waiting: have the copies before it ended?"""
        return bool(event.query())

    def take(self, tensors: list[Any], event: Any) -> None:
        """From now on the consumer's stream uses them, when the event has come."""
        consumer = self._cuda.current_stream(self._device)
        consumer.wait_event(event)
        for tensor in tensors:
            tensor.record_stream(consumer)


class OnDevice:
    """A queue of batches that are being copied; one consumer.

    device: where to. ahead: batches that are copied before they are asked for. figures of it: `bytes` on the device and
    `peak_bytes` (int), `late` (batches whose copy had not ended when they were taken), `seconds` (that the consumer spent
    on queueing copies).
    """

    def __init__(self, device: Any, ahead: int) -> None:
        self._copies, self._ahead = Copies(device), ahead
        self._moving: deque[tuple[Any, Any, list[Any], Any, list[Any]]] = deque()
        self._sent: deque[tuple[Any, list[Any]]] = deque()
        self.bytes = self.peak_bytes = self.late = 0
        self.seconds = 0.0

    @property
    def full(self) -> bool:
        return len(self._moving) > self._ahead

    def send(self, item: Any, batch: Any) -> None:
        """Queues the copy of a batch; `item` comes back with it."""
        begin = time.monotonic()
        sources: list[Any] = []

        def found(tensor: Any) -> Any:
            sources.append(tensor)
            return tensor

        each_tensor(batch, found)
        there, event = self._copies.send(sources)
        tensors = iter(there)
        self._moving.append((item, each_tensor(batch, lambda _: next(tensors)), there, event, sources))
        self.bytes += _size(there)
        self.peak_bytes = max(self.peak_bytes, self.bytes)
        self.seconds += time.monotonic() - begin

    def take(self) -> tuple[Any, Any] | None:
        """(item, batch) of the first one; None: there is none."""
        while self._sent and self._copies.done(self._sent[0][0]):
            self._sent.popleft()
        if not self._moving:
            return None
        item, batch, there, event, sources = self._moving.popleft()
        self.late += not self._copies.done(event)
        self._copies.take(there, event)
        self._sent.append((event, sources))
        self.bytes -= _size(there)
        return item, batch

    def clear(self) -> None:
        """Lets go of what was not taken. Its copies may be on their way: their sources are held until they have ended."""
        self._sent.extend((event, sources) for _, _, _, event, sources in self._moving)
        self._moving.clear()
        self.bytes = 0


def _size(tensors: list[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
