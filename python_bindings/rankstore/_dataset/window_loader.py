# SPDX-License-Identifier: Apache-2.0
"""Batches of windows, read ahead, with a state that any number of ranks goes on from."""
from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterator
from typing import Any, Protocol

from ..errors import ArgumentError, StateError

STATE_VERSION = 1


class Windows(Protocol):
    """What a loader needs of windows (windows.py)."""

    dataset: Any

    def __len__(self) -> int: ...
    def check_step(self, batch_size: int) -> None: ...
    def identity(self) -> dict[str, Any]: ...
    def read(self, which: range, epoch: int) -> Any: ...


class WindowLoader:
    """This rank's batches of windows, tensors [batch_size, length], epoch by epoch; made by `Windows.loader`.

    Step i of an epoch has the next ranks x batch_size windows, so all ranks have as many steps; windows that fill no step are dropped. A
    state says how many windows of the epoch were used: on other ranks, or with another batch_size, the rest comes as it would have. One
    iteration at a time; an epoch that was seen to its end is followed by the next, one whose loop was left is begun again."""

    def __init__(self, windows: Windows, batch_size: int, prefetch_batches: int, device: Any, start: dict[str, Any] | None) -> None:
        for option, value in (("batch_size", batch_size), ("prefetch_batches", prefetch_batches)):
            if operator.index(value) < 1:
                raise ArgumentError(f"windows: {option} is {value}; it must be at least 1")
        self.windows, self.batch_size, self.prefetch_batches, self.device = windows, int(batch_size), int(prefetch_batches), device
        group = windows.dataset.group
        self._rank, self._each_step = group.rank, group.world * self.batch_size
        windows.check_step(self.batch_size)
        self._epoch, self._done = 0, 0  # the place of training: windows of all ranks that were yielded
        self._first = 0  # the first window of the next iteration: 0 except after load_state_dict
        self._epoch_set = False
        self._iteration = 0
        if start is not None:
            self.load_state_dict(start)

    def __len__(self) -> int:
        """Return the number of batches of a whole epoch."""
        steps: int = len(self.windows) // self._each_step
        return steps

    @property
    def epoch(self) -> int:
        """Return the epoch that the next iteration continues or starts."""
        return self._epoch + self._is_over(self._done)

    def _is_over(self, done: int) -> bool:
        return done > 0 and len(self.windows) - done < self._each_step

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration. Does nothing if a loaded state is in that epoch."""
        self._epoch_set = True
        if epoch != self._epoch:
            self._epoch, self._done, self._first = operator.index(epoch), 0, 0

    def state_dict(self) -> dict[str, Any]:
        """Return where training is, JSON-able and equal on all ranks: windows that were yielded count as done."""
        return {"version": STATE_VERSION, "epoch": self._epoch, "window": self._done, "windows": self.windows.identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume the next iteration from a state, also of another number of ranks. StateError names what differs."""
        if not isinstance(state, dict) or state.get("version") != STATE_VERSION or "windows" not in state:
            raise StateError("windows: that is not a state of a loader of windows")
        for name, value in self.windows.identity().items():
            was = state["windows"].get(name)
            if was != value:
                raise StateError(f"windows: the state is of others: {name} was {was!r}, and is {value!r}")
        self._iteration += 1
        self._epoch, self._done, self._first, self._epoch_set = state["epoch"], state["window"], state["window"], False

    def __iter__(self) -> Iterator[Any]:
        self._iteration += 1
        return self._run(self._iteration)

    def _run(self, iteration: int) -> Iterator[Any]:
        from concurrent.futures import Future, ThreadPoolExecutor
        self._check(iteration)
        if not self._epoch_set and self._is_over(self._done):
            self._epoch, self._first = self._epoch + 1, 0
        epoch, step, self._done = self._epoch, self._first, self._first
        self._first, self._epoch_set = 0, False
        ahead: deque[Future[Any]] = deque()
        pool = ThreadPoolExecutor(1, "rankstore-windows")
        try:
            while True:
                while len(ahead) < self.prefetch_batches and len(self.windows) - step >= self._each_step:
                    ahead.append(pool.submit(self._read, epoch, step + self._rank * self.batch_size))
                    step += self._each_step
                if not ahead:
                    return
                batch = ahead.popleft().result()
                self._check(iteration)
                self._done += self._each_step
                yield batch if self.device is None else batch.to(self.device, non_blocking=True)
                self._check(iteration)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _check(self, iteration: int) -> None:
        if iteration != self._iteration:
            raise StateError("windows: this iteration was ended by another one, or by load_state_dict(); iterate anew")

    def _read(self, epoch: int, first: int) -> Any:
        """Return a batch, in a thread of the loader's."""
        import torch
        made = torch.as_tensor(self.windows.read(range(first, first + self.batch_size), epoch))
        return made.pin_memory() if self.device is not None and torch.device(self.device).type == "cuda" else made

    def __repr__(self) -> str:
        return f"<rankstore.WindowLoader of {self.batch_size} a rank over {self.windows!r}, at epoch {self._epoch}, window {self._done}>"
