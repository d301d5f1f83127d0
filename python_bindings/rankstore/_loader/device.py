# SPDX-License-Identifier: Apache-2.0
"""Batches on their way to a GPU, copied beside the work of the consumer.

    pinned arena, collated into ──copies, a stream of its own──► GPU ──event──► the consumer's stream waits when the batch is taken
    step n + ahead                                                              step n

Laws. When step n is yielded, the copies of the `ahead` steps after it are queued. The stream of copies waits for nothing that
the consumer does. A batch's memory on the GPU is used again only when the consumer's stream, too, is done with it
(`record_stream`). What a copy reads is held until the copy has ended, at the end of an iteration too: then its arena takes another
batch. At most `ahead` + 1 batches are held on the GPU, and as many that were taken wait for the end of their copies in main memory.
Nobody but the copies here reads an arena on a GPU's behalf: what a user may copy lies in memory of torch's, which knows of such copies.
"""
from __future__ import annotations

import time
from collections import deque
from typing import Any

from .. import _core
from .._batching.tensors import each_tensor

_lost: list[Any] = []  # sources of copies whose end is unknown: the GPU failed, or the parent process sent them


def is_gpu(device: Any) -> bool:
    import torch
    return torch.device(device).type == "cuda"


def pinned_memory(size: int) -> Any:
    """Return a writable, pinned buffer of `size` bytes."""
    import torch
    return torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()


class PinnedArenas:
    """What one epoch of the library's collates into. Any thread; `lend` is called in those that may take their time."""

    def __init__(self) -> None:
        self.core = _core.Arenas()
        self._refused = False

    def lend(self) -> None:
        """Allocate the arena that a batch lacked, if one did. If the driver pins no more, batches are copied, as without arenas."""
        size = 0 if self._refused else self.core.wanted()
        if size == 0:
            return
        try:
            memory = pinned_memory(size)
        except RuntimeError:
            self._refused = True
            return
        self.core.add(memory)


class Copies:
    """What is needed of torch.cuda: a stream for copies, and the consumer's."""

    def __init__(self, device: Any) -> None:
        import torch
        make: Any = torch.cuda.Stream
        self._cuda, self._stream = torch.cuda, make(torch.device(device))
        self._device = self._stream.device  # with its number: "cuda" alone means the current device, which may change

    def send(self, tensors: list[Any]) -> tuple[list[Any], Any]:
        """Return (the tensors on the device, an event after their copies), before the copies are done."""
        with self._cuda.stream(self._stream):  # tensors are allocated on this stream too, so they need no wait for the consumer
            there = [tensor.to(self._device, non_blocking=True) for tensor in tensors]
            return there, self._stream.record_event()

    def done(self, event: Any) -> bool:
        """Return whether the copies before the event have ended, without waiting."""
        return bool(event.query())

    def finish(self, event: Any) -> None:
        """Wait until the copies before the event have ended."""
        event.synchronize()

    def take(self, tensors: list[Any], event: Any) -> Any:
        """Let the consumer's stream use the tensors once the event has come. Return the argument for waited()."""
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
        """Return how many seconds the consumer's stream stood still for a copy; None if it has not reached it yet."""
        begin, end = wait
        return begin.elapsed_time(end) / 1e3 if end.query() else None


class OnDevice:
    """A queue of batches that are being copied; one consumer.

    device: where to. ahead: batches that are copied before they are asked for. figures of it: `bytes` on the device and
    `peak_bytes` (int), `late` (batches whose copy had not ended when they were taken), `seconds` (that the consumer spent
    on queueing copies, and on waiting for one where more must not lie in main memory), `wait_seconds` (that its stream stood still
    for them, so far).
    """

    def __init__(self, device: Any, ahead: int) -> None:
        self._copies, self._ahead, self._process = Copies(device), ahead, _core.pid()
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
        """Queue the copy of a batch; `take` returns `item` with it."""
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
        """Return (item, batch) of the first one; None if there is none."""
        begin = time.monotonic()
        while self._sent and (len(self._sent) > self._ahead or self._copies.done(self._sent[0][0])):
            self._copies.finish(self._sent[0][0])
            self._sent.popleft()
        self.seconds += time.monotonic() - begin
        _ = self.wait_seconds  # adds up the waits that are known, so that their events are freed
        if not self._moving:
            return None
        item, batch, there, event, sources = self._moving.popleft()
        self._sent.append((event, sources))
        self.late += not self._copies.done(event)
        self._waits.append(self._copies.take(there, event))
        self.bytes -= _size(there)
        return item, batch

    @property
    def wait_seconds(self) -> float:
        while self._waits and (seconds := self._copies.waited(self._waits[0])) is not None:
            self._waited += seconds
            self._waits.popleft()
        return self._waited

    def clear(self) -> None:
        """Drop what was not taken. Its copies may be in progress: their sources are held until they have ended."""
        self._sent.extend((event, sources) for _, _, _, event, sources in self._moving)
        self._moving.clear()
        self.bytes = 0

    def close(self) -> None:
        """Drop everything, after the end of all copies, because what they read is then used again."""
        self.clear()
        if _core.pid() != self._process:
            _lost.append(self._sent)
            self._sent = deque()
        while self._sent:
            event, sources = self._sent[0]
            try:
                self._copies.finish(event)
            except Exception:  # a GPU error: it is unknown whether the GPU still reads
                _lost.append(sources)
            self._sent.popleft()

    def __del__(self) -> None:
        if _core is not None:  # None when the interpreter ends: nothing is used again then
            self.close()


def _size(tensors: list[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
