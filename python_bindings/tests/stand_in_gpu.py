# SPDX-License-Identifier: Apache-2.0
"""A GPU and pinned memory of threads, for machines without one: they show at once if memory is used anew too early."""
from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from rankstore._batching import tensors

POISON = 77
LIMIT_S = 100


class Stream:
    """Work in order, on a thread."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()  # finalizers put, wherever they run
        self.failed: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            try:
                work()
            except BaseException as raised:
                self.failed.append(raised)

    def put(self, work: Callable[[], Any]) -> None:
        self._queue.put(work)

    def end(self) -> None:
        self._queue.put(None)
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive() and not self.failed, self.failed


class StandIn:
    """A GPU: a stream of copies, each of which takes a while, and the consumer's. A tensor that nobody holds is written over at
    once, as an allocator hands out its memory; one that the consumer's stream has recorded, after that stream's work."""

    def __init__(self, device: Any) -> None:
        self.copies, self.compute, self.sent = Stream(), Stream(), 0
        self.stood_still = 0.0  # seconds that the consumer's stream did, for copies
        self.recorded: set[int] = set()
        self.places: set[int] = set()  # where tensors on it lie
        self.sources: list[tuple[int, int]] = []  # address and bytes of what was copied
        self.lost = False  # as a GPU that has failed
        made.append(self)

    def send(self, tensors: list[Any]) -> tuple[list[Any], Any]:
        there = []
        for source in tensors:
            tensor = torch.full_like(source, POISON)
            read, write = source.detach(), tensor.detach()
            self.sources.append((source.data_ptr(), source.numel() * source.element_size()))
            arena = made_arenas[-1].find(*self.sources[-1]) if made_arenas else None
            if arena is not None:  # read by its address, as a GPU does: that holds nothing
                read = torch.from_numpy(arena).view(source.dtype).view(source.shape)
            else:
                weakref.finalize(source, read.fill_, POISON)
            weakref.finalize(tensor, self._freed, id(tensor), write)
            self.copies.put(lambda read=read, write=write: self._copy(read, write))
            there.append(tensor)
            self.places.add(tensor.data_ptr())
        event = threading.Event()
        self.copies.put(event.set)
        self.sent += 1
        return there, event

    @staticmethod
    def _copy(read: Any, write: Any) -> None:
        time.sleep(0.002)
        gone = read.numel() > 0 and bool((read == POISON).all() or (read.contiguous().view(torch.uint8) == POISON).all())
        assert not gone, "a copy reads memory that was let go"  # also one that nobody waits for
        write.copy_(read)

    def _freed(self, number: int, memory: Any) -> None:
        if number in self.recorded:
            self.compute.put(lambda: memory.fill_(POISON))
        else:
            memory.fill_(POISON)

    def done(self, event: Any) -> bool:
        return bool(event.is_set())

    def finish(self, event: Any) -> None:
        if self.lost:
            raise RuntimeError("CUDA error: the GPU is lost")
        assert event.wait(LIMIT_S)

    def take(self, tensors: list[Any], event: Any) -> list[float]:
        wait: list[float] = []

        def stand_still() -> None:
            begin = time.monotonic()
            assert event.wait(LIMIT_S)
            wait.append(time.monotonic() - begin)
            self.stood_still += wait[0]

        self.compute.put(stand_still)
        self.recorded.update(id(tensor) for tensor in tensors)
        return wait

    def waited(self, wait: list[float]) -> float | None:
        return wait[0] if wait else None


made: list[StandIn] = []


class Pinned:
    """Pinned memory: arenas, which are written over as soon as the library lets go of one, as torch hands out its memory anew; and
    the tensors that threads copy."""

    def __init__(self) -> None:
        self.arenas: list[np.ndarray[Any, Any]] = []  # all that were ever made
        self.back = 0  # of them, those that the library is done with
        self.copies: list[Any] = []
        self.threads: set[int] = set()  # that made copies
        made_arenas.append(self)

    def make(self, size: int) -> Any:
        memory = np.full(size, POISON, np.uint8)
        given = memory[:]
        weakref.finalize(given, self._is_back, memory).atexit = False  # then the library may still have it
        self.arenas.append(memory)
        return given

    def _is_back(self, memory: Any) -> None:
        self.back += 1
        memory.fill(POISON)

    def find(self, address: int, size: int) -> Any:
        """The bytes in an arena, or None."""
        for one in self.arenas:
            at = address - one.ctypes.data
            if 0 <= at and at + size <= one.nbytes:
                return one[at:at + size]
        return None

    def pin(self, value: Any) -> Any:
        def copy(tensor: Any) -> Any:
            if self.find(tensor.data_ptr(), tensor.numel() * tensor.element_size()) is not None:
                return tensor
            self.threads.add(threading.get_ident())
            self.copies.append(tensor.clone())
            return self.copies[-1]
        return tensors.each_tensor(value, copy)

    def has(self, address: int, size: int) -> bool:
        spans = [(one.data_ptr(), one.numel() * one.element_size()) for one in self.copies]
        return size == 0 or self.find(address, size) is not None or any(
            begin <= address and address + size <= begin + bytes_ for begin, bytes_ in spans)


made_arenas: list[Pinned] = []
