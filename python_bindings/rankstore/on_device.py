# SPDX-License-Identifier: Apache-2.0
"""Batches on their way to a GPU, copied beside the work of the consumer.

    main memory, pinned ──copies, a stream of its own──► GPU ──event──► the consumer's stream waits when the batch is taken
    step n + ahead                                                      step n

Laws. When step n is yielded, the copies of the `ahead` steps behind it are queued. The stream of copies waits for nothing that
the consumer does. A batch's memory on the GPU is used again only when the consumer's stream, too, is done with it
(`record_stream`). What a copy reads is held until the copy has ended. At most `ahead` + 1 batches are held on the GPU, and as
many that were taken wait for the end of their copies in main memory.
"""
from __future__ import annotations

import time
from collections import deque
from typing import Any

from .tensors import each_tensor


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

    def finish(self, event: Any) -> None:
        """Waits until they have."""
        event.synchronize()

    def take(self, tensors: list[Any], event: Any) -> Any:
        """From now on the consumer's stream uses them, when the event has come. Returns what waited() is asked with."""
        consumer = self._cuda.current_stream(self._device)
        make: Any = self._cuda.Event
        begin, end = make(enable_timing=True), make(enable_timing=True)
        begin.record(consumer)
        consumer.wait_event(event)
        end.record(consumer)
        for tensor in tensors:
            tensor.record_stream(consumer)
        return begin, end

    def waited(self, wait: Any) -> float | None:
        """Seconds that the consumer's stream stood still for a copy; None: it has not come there yet."""
        begin, end = wait
        return begin.elapsed_time(end) / 1e3 if end.query() else None


class OnDevice:
    """A queue of batches that are being copied; one consumer.

    device: where to. ahead: batches that are copied before they are asked for. figures of it: `bytes` on the device and
    `peak_bytes` (int), `late` (batches whose copy had not ended when they were taken), `seconds` (that the consumer spent
    on queueing copies), `wait_seconds` (that its stream stood still for them, so far).
    """

    def __init__(self, device: Any, ahead: int) -> None:
        self._copies, self._ahead = Copies(device), ahead
        self._moving: deque[tuple[Any, Any, list[Any], Any, list[Any]]] = deque()
        self._sent: deque[tuple[Any, list[Any]]] = deque()
        self._waits: deque[Any] = deque()
        self._waited = 0.0
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
        while self._sent and (len(self._sent) > self._ahead or self._copies.done(self._sent[0][0])):
            self._copies.finish(self._sent[0][0])
            self._sent.popleft()
        _ = self.wait_seconds  # what is known needs no marks any more
        if not self._moving:
            return None
        item, batch, there, event, sources = self._moving.popleft()
        self.late += not self._copies.done(event)
        self._waits.append(self._copies.take(there, event))
        self._sent.append((event, sources))
        self.bytes -= _size(there)
        return item, batch

    @property
    def wait_seconds(self) -> float:
        while self._waits and (seconds := self._copies.waited(self._waits[0])) is not None:
            self._waited += seconds
            self._waits.popleft()
        return self._waited

    def clear(self) -> None:
        """Lets go of what was not taken. Its copies may be on their way: their sources are held until they have ended."""
        self._sent.extend((event, sources) for _, _, _, event, sources in self._moving)
        self._moving.clear()
        self.bytes = 0


def _size(tensors: list[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
