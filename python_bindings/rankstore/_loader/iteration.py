# SPDX-License-Identifier: Apache-2.0
"""One pass of a loader over an epoch."""
from __future__ import annotations

import dataclasses
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .. import _core
from .._batching.batch import Batch
from .._batching.tensors import each_tensor, pinned
from .._distributed import progress as bars
from .._distributed.collectives import callback_failed
from .._plan.sampler import batch_parts
from ..errors import StateError
from .device import OnDevice, PinnedArenas, is_gpu
from .map_processes import MapProcesses

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


@dataclasses.dataclass(slots=True)
class _Pulled:
    """A batch, or its future, before it is yielded; the bytes of its samples if they are bounded, and what a progress bar counts."""

    step: int
    batch: Any
    size: int
    samples: int = 0
    tokens: int = 0


def _make_own(loader: Any, epoch: int, step: int, samples: Any, parts: tuple[bytes, bytes],
              processes: MapProcesses | None) -> tuple[Any, int, int]:
    """Return (batch, samples, tokens) by the user's functions, in a thread of the loader's."""
    assert loader.own is not None
    made, count, tokens = loader.own.make(samples, epoch, step, *parts, processes)
    if isinstance(made, Batch):
        made.planned(loader.dataset, loader.plan, loader.plan.token, epoch, step)
    return _finished(loader, made), count, tokens


def _finished(loader: Any, batch: Any, arenas: PinnedArenas | None = None) -> Any:
    """Transform and pin a batch, in a thread of the loader's. In an arena only what its layout added still needs pinning."""
    if arenas is not None:
        arenas.lend()
        batch.leave_arena()
    if loader.transform is not None:
        batch = loader.transform(batch)
    return pinned(batch) if loader.pins else batch


class Iteration(Iterator[Any]):
    """One pass over an epoch, which is chosen at the first next(): trainers set it after iter()."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader  # a Loader, whose module imports this one
        self._epoch = -1
        self._owner = _core.pid(), threading.get_ident()
        self._turn = threading.RLock()  # of a thread in __next__
        self._core: _core.Epoch | None = None
        self._arenas: PinnedArenas | None = None  # the arenas of self._core
        self._pool: ThreadPoolExecutor | None = None
        self._processes: MapProcesses | None = None
        self._ahead: deque[_Pulled] = deque()
        self._ahead_bytes = 0
        self._calls = False  # batches are futures
        self._bar: bars.StepBar | None = None
        self._over = False
        self._superseded = ""  # why it ended before its last step
        self._hold: _AccelerateHook | None = None
        self._moving: OnDevice | None = None

    def _begin(self) -> None:
        loader = self._loader
        loader._choose_epoch()
        self._epoch, self._step = loader._epoch, loader._first
        self._after = self._step  # the step after the last batch that was yielded
        loader._step, loader._first = loader._first, 0
        self._steps, self._changes = loader.plan.core.steps(self._epoch), loader.plan.changes
        # Batches that threads work on count as prefetched, so the core gets what remains of the bounds.
        self._calls = calls = loader.own is not None or loader.transform is not None or loader.pins
        self._depth = min(loader.threads + 1, loader.prefetch_batches or loader.threads + 1) if calls else 1
        self._room = max(1, loader.prefetch_bytes // 2) if loader.own is not None and loader.prefetch_bytes else 0
        if loader.processes:
            assert loader.own is not None and loader.own.map is not None
            self._processes = MapProcesses(loader.processes, loader.own.map)
        self._open_source()
        if calls:
            from concurrent.futures import ThreadPoolExecutor
            self._pool = ThreadPoolExecutor(loader.threads, "rankstore-loader")
        self._hold = _AccelerateHook(loader)
        if loader.device is not None and is_gpu(loader.device):
            self._moving = loader._on_device = OnDevice(loader.device, loader.prefetch_device)
        if loader.progress and loader.dataset.group.rank == 0:
            self._bar = bars.step_bar(self._epoch, self._step, self._steps, loader.plan.world)

    def _open_source(self) -> None:
        loader = self._loader
        batches = loader.prefetch_batches and loader.prefetch_batches - self._depth + 1
        if loader._foreign or not isinstance(loader.dataset.store, _core.Store):  # in a worker process
            self._source, self._arenas = self._fetch_lists(), None
        else:
            self._arenas = PinnedArenas() if loader._in_arenas else None
            self._core = _core.Epoch(loader.dataset.store, loader.plan.core, epoch=self._epoch, first_step=self._step,
                                     prefetch_batches=batches, prefetch_bytes=self._room or loader.prefetch_bytes,
                                     collate=None if loader.own is not None else loader.collator.core,
                                     arenas=None if self._arenas is None else self._arenas.core)
            self._source = self._core

    def look_again(self) -> None:
        """Drop the batches that are ahead, because the plan was changed."""
        if self._over or self._epoch < 0:
            return
        if self._core is not None:
            self._core.close()
        while self._ahead:
            gone = self._ahead.popleft()
            if self._calls:
                gone.batch.cancel()
        self._ahead_bytes = 0
        if self._moving is not None:
            self._moving.clear()
        plan = self._loader.plan
        self._step, self._steps, self._changes = self._after, plan.core.steps(self._epoch), plan.changes
        self._open_source()

    def _fetch_lists(self) -> Iterator[tuple[int, Any]]:
        plan, dataset = self._loader.plan, self._loader.dataset
        step = self._step - 1
        while (step := plan.core.next_step(self._epoch, step + 1)) < self._steps:
            ids = plan.core.batch(self._epoch, step, plan.rank)
            if self._loader.own is not None:
                yield step, dataset.store.fetch(ids)
            else:
                yield step, dataset.collate_ids(ids, self._loader.collator, *batch_parts(plan, self._epoch, step, plan.rank))

    def _pull(self) -> _Pulled | None:
        """Return the next batch or its future."""
        found = next(self._source, None)
        if found is None:
            return None
        loader, (step, arrays) = self._loader, found
        if loader.own is not None:
            assert self._pool is not None
            size = arrays.nbytes if self._room else 0
            parts = batch_parts(loader.plan, self._epoch, step, loader.plan.rank)
            return _Pulled(step, self._pool.submit(_make_own, loader, self._epoch, step, arrays, parts, self._processes), size)
        batch = loader.collator.batch(arrays)
        batch.planned(loader.dataset, loader.plan, loader.plan.token, self._epoch, step)
        samples, tokens = (len(batch.ids), int(batch.lengths.sum())) if loader.progress else (0, 0)
        if self._pool is not None:
            return _Pulled(step, self._pool.submit(_finished, loader, batch, self._arenas), 0, samples, tokens)
        return _Pulled(step, batch, 0, samples, tokens)

    def _next(self) -> _Pulled | None:
        if self._pool is None:
            return self._pull()
        while len(self._ahead) < self._depth and (not self._ahead or not self._room or self._ahead_bytes < self._room):
            found = self._pull()
            if found is None:
                break
            self._ahead.append(found)
            self._ahead_bytes += found.size
        if not self._ahead:
            return None
        first = self._ahead.popleft()
        self._ahead_bytes -= first.size
        return first

    def _made(self, step: int, batch: Any) -> Any:
        """Return what a thread makes of a batch. A signal is seen at once, because Python's own waits look for signals."""
        try:
            return batch.result()
        except StopIteration as raised:  # transform raised it: it would end the loop as if the epoch were over
            raise callback_failed(raised, self._loader.dataset.group.rank, "transform", f"epoch {self._epoch}, step {step}") from raised

    def _next_found(self) -> _Pulled | None:
        """Return the next batch as it is to be yielded."""
        if not self._calls and self._moving is None:  # no function and no device: this runs between two steps of training
            return self._pull()
        return self._next_made() if self._moving is None else self._next_moved(self._moving)

    def _next_made(self) -> _Pulled | None:
        """Return the next batch, finished."""
        found = self._next()
        if found is not None and self._calls:
            found.batch = self._made(found.step, found.batch)
        if found is not None and self._loader.own is not None:
            found.batch, found.samples, found.tokens = found.batch
        return found

    def _next_moved(self, moving: OnDevice) -> _Pulled | None:
        """Return the next batch, on the device or on its way there."""
        while not moving.full and (found := self._next_made()) is not None:
            batch, found.batch = found.batch, None
            moving.send(found, batch)
        taken = moving.take()
        if taken is None:
            return None
        taken[0].batch = taken[1]
        moved: _Pulled = taken[0]
        return moved

    def __next__(self) -> Any:
        """Return the next batch. Threads may share an iteration: each batch goes to one of them."""
        if _core.pid() != self._owner[0]:  # before the lock, which a thread of the parent may hold
            self._check_goes_on()
            raise StateError(f"loader: process {self._owner[0]} began this iteration, and this is a fork of that; "
                             "iterate anew here")
        with self._turn:
            self._check_goes_on()
            return self._next_batch()

    def _check_goes_on(self) -> None:
        if self._superseded:
            raise StateError(f"loader: this iteration was ended: {self._superseded}")
        if self._over:
            raise StopIteration

    def _next_batch(self) -> Any:
        loader, begin = self._loader, time.monotonic()
        try:
            if self._epoch < 0:
                self._begin()
            if self._changes != loader.plan.changes:
                self.look_again()
            found = self._next_found()
            if found is None:
                loader._epoch, loader._step = self._epoch, self._steps  # also if all remaining steps are skipped
                self.close()
                raise StopIteration
            step, batch, samples, tokens = found.step, found.batch, found.samples, found.tokens
            loader.reading.gave(self._epoch, step, step + 1 == self._steps)
            if loader.device is not None and self._moving is None:
                batch = each_tensor(batch, lambda tensor: tensor.to(loader.device))
        except StopIteration:
            raise
        except BaseException as raised:
            self.close(wait=isinstance(raised, Exception))  # Ctrl-C does not wait for transform
            raise
        end = time.monotonic()
        loader._waits.append(end - begin)
        self._after = loader.plan.core.next_step(self._epoch, step + 1) if loader.plan.skips else step + 1
        loader._epoch, loader._step = self._epoch, self._after
        if self._bar is not None:
            self._bar.step(samples, tokens, begin, end)
        if self._hold is not None:
            self._hold.about_to_yield(self._after == self._steps)
        return batch

    def is_at(self, epoch: int, step: int) -> bool:
        """Return whether the next batch is that of this step."""
        return not self._over and self._epoch == epoch and self._after == step

    def supersede(self, why: str) -> None:
        """End this iteration in favour of another; do nothing if it is over."""
        if not self._over:
            self._superseded = why
            self.close()

    def close(self, wait: bool = True) -> None:
        if not self._over and self._epoch >= 0:
            self._loader.reading.ends()
        self._over = True
        # Taken out first: threads may close it at once.
        core, processes, pool = self._core, self._processes, self._pool
        self._core = self._processes = self._pool = None
        if core is not None:
            core.close()
        if processes is not None:
            processes.close()
        if pool is not None:
            own = self._owner == (_core.pid(), threading.get_ident())  # another thread may be one of the pool's
            pool.shutdown(wait=wait and own, cancel_futures=True)
        self._ahead.clear()
        if self._moving is not None:
            self._moving.close()
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        if self._hold is not None:
            self._hold.release()
            self._hold = None

    def __del__(self) -> None:
        if _core is not None:  # None when the interpreter ends; the core then closes itself
            self.close()


class _AccelerateHook:
    """Accelerate syncs gradients on the last batch of loaders that it knows: this one makes itself known while it is
    iterated."""

    def __init__(self, loader: Any) -> None:
        self._state: Any = None
        if "accelerate" in sys.modules:
            from accelerate.state import GradientState
            self._state = GradientState()
            self._loader = loader
            loader.__dict__.update(end_of_dataloader=False, remainder=-1)
            self._state._add_dataloader(loader)

    def about_to_yield(self, last: bool) -> None:
        if self._state is not None and last:
            self._loader.end_of_dataloader = True

    def release(self) -> None:
        if self._state is not None:
            self._state._remove_dataloader(self._loader)
            self._state = None
