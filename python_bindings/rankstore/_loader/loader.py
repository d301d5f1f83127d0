# SPDX-License-Identifier: Apache-2.0
"""The loader: a plan's batches, fetched and collated ahead by threads of the library, without worker processes."""
from __future__ import annotations

import dataclasses
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .. import _core
from .._batching.batch import Batch
from .._batching.layouts import Collator, Layout, Lists
from .._batching.protocols import Samples
from .._batching.tensors import each_tensor, pinned
from .._distributed import progress as bars
from .._distributed.collectives import callback_failed
from .._distributed.stderr import say
from .._plan.plan import Plan
from .._plan.reading import Reading
from .._plan.sampler import PlanSampler, batch_parts
from .._schema.completion import hides
from .._schema.sizes import parse_bytes
from ..errors import ArgumentError, StateError
from .collate_fn import CollateFn
from .device import OnDevice, PinnedArenas
from .lightning import epoch_of, expect_batches_of, sampler_for_overfit
from .map_processes import MapProcesses
from .options import check_device, check_functions, check_processes, need_torch, pins_batches
from .user_functions import Own

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


Batches = TypeVar("Batches", covariant=True)


@hides("collator", "end_through", "begin_at", "end_iterations", "next_at", "next_place", "own", "place_after_growth", "pins",
       "batch_size", "drop_last", "generator", "in_order", "multiprocessing_context", "num_workers", "persistent_workers", "pin_memory",
       "prefetch_factor", "timeout", "worker_init_fn", "reading")
class Loader(Generic[Batches]):
    """This rank's batches of a plan, epoch by epoch; made by `Dataset.loader`, which describes the options.

    With device= and neither transform nor functions, batches are collated in pinned memory; otherwise threads copy them there.

    It is an iterable with a length, equal on all ranks, and in all epochs unless the plan `varies`. It has one iteration at a time: a
    second iter(), or load_state_dict(), ends the current one, whose next step raises StateError. To iterate twice at a time make two
    loaders. Leaving a loop early ends its threads, and you can iterate the loader again. Trainers that look for DataLoader's attributes
    find them."""

    batch_size = None
    drop_last = False
    num_workers = 0
    pin_memory = False  # by a DataLoader; the loader pins its batches itself
    prefetch_factor = None
    timeout = 0
    worker_init_fn = None
    multiprocessing_context = None
    generator = None
    persistent_workers = False
    in_order = True

    def __init__(self, dataset: Samples, plan: Plan, *, collate: Layout | Callable[[list[Any]], Any] | None = None,
                 map: Callable[..., Any] | None = None, columns: Sequence[str] | None = None,  # noqa: A002
                 rename: Mapping[str, str] | None = None,
                 transform: Callable[[Batch], Any] | None = None, device: Any = None, prefetch_device: int = 2,
                 pin_memory: bool | str = "auto", out: str = "torch", prefetch_batches: int | str = "auto",
                 prefetch_bytes: int | str = "auto", threads: int = 1, processes: int = 0, start: dict[str, Any] | None = None,
                 progress: bool = False, decode: str | Mapping[str, str] | None = None) -> None:
        if not isinstance(plan, Plan):
            raise TypeError(f"plan: a Plan, as Dataset.plan makes it, not {type(plan).__name__}")
        # True for a plan of other ranks than the group's: batches are then fetched by lists of sample ids.
        self._foreign = (plan.world, plan.rank) != (dataset.group.world, dataset.group.rank)
        plan.check_dataset(dataset)
        self._asked: dict[str, Any] = {
            "collate": collate, "map": map, "columns": columns, "rename": rename, "transform": transform, "device": device,
            "pin_memory": pin_memory, "out": out, "prefetch_batches": prefetch_batches, "prefetch_bytes": prefetch_bytes,
            "threads": threads, "processes": processes, "decode": decode, "progress": progress, "prefetch_device": prefetch_device}
        counts: dict[str, Any] = {"threads": threads, "prefetch_device": prefetch_device}
        if prefetch_batches != "auto":
            counts["prefetch_batches"] = prefetch_batches
        for name, number in counts.items():
            if not hasattr(number, "__index__") or number < 1:
                raise ArgumentError(f"{name}: {number!r}; it must be an int of at least 1")
        if not isinstance(progress, bool):
            raise ArgumentError(f"progress: {progress!r}; it is True or False")
        check_functions(collate, map, transform)
        changes = map is not None or decode is not None or bool(dataset.functions)
        check_processes(processes, changes)
        if out == "torch" and (collate is None or isinstance(collate, Layout)):
            need_torch()
        if device is not None and out != "torch":
            raise ArgumentError("device: only tensors go to a device; use out='torch'")
        check_device(device)
        self.dataset, self.plan, self.transform, self.device = dataset, plan, transform, device
        rule = dataclasses.replace(plan.rule, unit=dataset.length_unit)  # a plan over lengths alone has no unit
        self.own: Own | None = None
        chosen = Lists() if collate is None else collate
        has_layout = isinstance(chosen, Layout)
        if isinstance(chosen, Layout) and not changes:
            asked = Collator(chosen, dataset.schema, columns, rename, out, dataset.length_column)
            self.collator = asked.planned(rule)
        else:
            if out not in ("torch", "numpy"):
                raise ArgumentError(f"out: {out!r} is neither 'torch' nor 'numpy'")
            self.own = Own(chosen, map, dataset, columns, rename, rule, int(plan.options.get("seed", 0)), out, decode)
        may_pin = has_layout or device is not None or pin_memory is True or "torch" in sys.modules
        self.pins = pins_batches(pin_memory, device, out if may_pin else "numpy")
        # Collate in pinned memory if only the copies of device.py read it: see its laws.
        self._in_arenas = self.pins and self.own is None and transform is None and device is not None and _is_gpu(device)
        self.prefetch_batches: int | None = counts.get("prefetch_batches")  # None: automatic
        self.prefetch_bytes = None if prefetch_bytes == "auto" else parse_bytes("prefetch_bytes", prefetch_bytes)
        self.threads, self.processes = max(threads, processes), processes  # a thread waits for each process
        self.progress, self.prefetch_device = progress, prefetch_device
        self._on_device: OnDevice | None = None  # of the last iteration
        self._sampler: PlanSampler = _LoaderSampler(plan, self)
        self._epoch, self._step = 0, 0  # the place of training, which state_dict returns
        self._first = 0  # first step of the next iteration: 0 except after load_state_dict
        self._epoch_set = False  # set_epoch was called since the last iteration began
        self._last: weakref.ref[_Iteration] | None = None  # weak: a loop that is left early ends it
        self._through: _Iteration | None = None  # the one that a DataLoader's collate_fn drives
        self._waits: deque[float] = deque(maxlen=100_000)  # seconds
        self.reading = Reading(self, plan, dataset)
        dataset.follow_epoch(self)
        if start is not None:
            self.load_state_dict(start)

    @property
    def sampler(self) -> PlanSampler:
        """Return the loader's sampler, by which trainers set the epoch."""
        shown: PlanSampler | None = sampler_for_overfit()
        return self._sampler if shown is None else shown

    @property
    def batch_sampler(self) -> PlanSampler:
        """Return the loader's sampler, for trainers that look for one here."""
        return self._sampler

    @property
    def collate_fn(self) -> CollateFn:
        """Return the collate_fn that, in a DataLoader over `dataset` with `batch_sampler`, makes this loader's batches."""
        return CollateFn(self)

    @property
    def epoch(self) -> int:
        """Return the epoch to go on in: that of a loaded state or of the last batch, or the next one if that was seen to its end."""
        return self._epoch + (0 < self.plan.core.steps(self._epoch) <= self._step)

    def __len__(self) -> int:
        """Return the number of batches of an epoch without skipped ones; if epochs differ, of the one to go on in."""
        return self.plan.steps_of(self.epoch) if self.plan.varies else self.plan.steps

    def __getitem__(self, place: Any) -> Any:
        """Raise ArgumentError: DataLoader(loader) asks for items, and a loader has none."""
        raise ArgumentError("a Loader yields ready batches, so it needs no DataLoader around it: `for batch in loader`; torch's own "
                            "is DataLoader(ds, batch_sampler=plan.sampler(), collate_fn=ds.collate)")

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration. If ranks read different ones, all raise ArgumentError within a few steps.

        Without it, an epoch that was seen to its end is followed by the next; one whose loop was left early is repeated, and a line says
        so. Does nothing if a loaded state is in that epoch."""
        self._sampler.set_epoch(epoch)

    def _enter(self, epoch: int) -> None:
        self._epoch_set = True
        if epoch != self._epoch:
            self._epoch, self._step, self._first = epoch, 0, 0

    def _choose_epoch(self) -> None:
        """Choose the epoch of an iteration: what set_epoch set, else the next epoch if this one was seen to its end."""
        steps = self.plan.core.steps(self._epoch)
        if not self._epoch_set and 0 < steps <= self._step:
            self._epoch, self._step, self._first = self._epoch + 1, 0, 0
        elif not self._epoch_set and self._step > 0 and self._first == 0 and self.dataset.group.rank == 0:
            say(f"the loop over epoch {self._epoch} was left after {self._step} of {steps} steps; this one begins "
                f"epoch {self._epoch} again: set_epoch({self._epoch + 1}) begins the next, load_state_dict(state) goes on")
        self._epoch_set = False

    def __iter__(self) -> Iterator[Batches]:
        return self._iterate()

    def _iterate(self) -> _Iteration:
        self._end_last("another iteration over this loader began, and it has one at a time; to iterate twice at a time "
                       "(zip, nested loops) make two loaders")
        iteration = _Iteration(self)
        self._last = weakref.ref(iteration)
        return iteration

    def next_at(self, epoch: int, step: int) -> Any:
        """Return the batch of a step, as an iteration from there on yields it; one that is there goes on. For CollateFn."""
        through = self._through
        if through is None or not through.is_at(epoch, step):
            self._epoch, self._step, self._first, self._epoch_set = epoch, step, step, True
            self._through = through = self._iterate()
        return next(through)

    def end_through(self) -> None:
        """End the iteration of next_at: its sampler has come to its end."""
        if self._through is not None:
            self._through.close()
            self._through = None

    def place_after_growth(self) -> tuple[int, int]:
        """Return where to go on with a larger dataset: at the beginning of an epoch. StateError if a state within one is loaded."""
        if 0 < self.plan.core.steps(self._epoch) <= self._step:
            return self._epoch + 1, 0
        if self._first > 0:
            raise StateError(f"refresh: a state at step {self._first} of epoch {self._epoch} is loaded; go on with that epoch first")
        return self._epoch, 0

    def end_iterations(self, why: str) -> None:
        """End the iteration that is not at its end: its next step raises StateError."""
        self._end_last(why)
        self._through = None

    def begin_at(self, epoch: int, step: int) -> None:
        """Begin the next iteration at this place."""
        self._epoch, self._step, self._first = epoch, step, step

    def next_place(self) -> tuple[int, int]:
        """Return the (epoch, step) that the next iteration begins at."""
        epoch = self._epoch if self._epoch_set else self.epoch
        return epoch, self._first if epoch == self._epoch else 0

    def _end_last(self, why: str) -> None:
        last = self._last() if self._last is not None else None
        if last is not None:
            last.supersede(why)

    def state_dict(self) -> dict[str, Any]:
        """Return where training is: batches that were yielded count as done. A few integers and a line of JSON, equal on all ranks."""
        return self.plan.state(self._epoch, self._step)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume the next iteration from a state, also of another number of ranks. StateError names what differs."""
        self._end_last("load_state_dict() was called; iterate the loader anew to go on from that state")
        self._epoch, self._step = self.plan.resume(state)
        self._first, self._epoch_set = self._step, False
        self._sampler.load_state_dict(state)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy the plan, the options, and where training is.

        Another process opens the dataset again by its directory and fetches each batch when it is asked for. Functions must be picklable,
        as torch's."""
        return _remade, (self.dataset, self.plan, self._asked, self._epoch, self._step, self._first, self._epoch_set)

    def remix(self, mix: Mapping[Any, float]) -> None:
        """Change the weights of sources from the next step on, also in the current loop; see Plan.remix (collective).

        mix: dict of name and weight. Names as for Dataset.plan.

        All ranks must call it after the same step, otherwise it is an ArgumentError on all of them. States hold the change.
        """
        epoch = self.epoch
        self.plan.remix(mix, at=(epoch, self._step if epoch == self._epoch else 0))

    def stats(self) -> dict[str, Any]:
        """Return the dataset's figures (`Dataset.stats`) and those of this loader, as a dict.

        - batches; wait_seconds_p50 and wait_seconds_p99: how long next() waited
        - with device="cuda", of the last iteration: device_bytes and device_peak_bytes (of batches on the device that are not yielded yet),
          copies_late (batches that were yielded before their copy ended), copy_wait_seconds (how long the GPU's stream stood still for
          copies, in the steps it has reached), copy_seconds (time of next() spent queueing copies and waiting for them; the rest of its
          wait was for data)"""
        waits = sorted(self._waits)
        found = self.dataset.stats()
        found["batches"] = len(waits)
        for name, part in (("wait_seconds_p50", 0.5), ("wait_seconds_p99", 0.99)):
            found[name] = waits[min(len(waits) - 1, int(part * len(waits)))] if waits else 0.0
        if self._on_device is not None:
            moving = self._on_device
            found |= {"device_bytes": moving.bytes, "device_peak_bytes": moving.peak_bytes, "copies_late": moving.late,
                      "copy_wait_seconds": moving.wait_seconds, "copy_seconds": moving.seconds}
        return found

    def __repr__(self) -> str:
        layout = self.own if self.own is not None else self.collator.layout
        return (f"<rankstore.Loader {layout!r} over {self.plan!r}, at epoch {self._epoch}, "
                f"step {self._step}>")


def _remade(dataset: Samples, plan: Plan, options: dict[str, Any], epoch: int, step: int, first: int, epoch_set: bool) -> Loader[Any]:
    made: Loader[Any] = Loader(dataset, plan, **options)
    # The copy continues at the place of its original: it does not yield the same batches again.
    steps = plan.core.steps(epoch)
    made._epoch, made._step, made._first, made._epoch_set = epoch, step, step if 0 < step < steps else first, epoch_set
    return made


class _LoaderSampler(PlanSampler):
    """The loader's sampler. Through it, trainers that set the epoch of samplers only (Lightning) reach the loader."""

    def __init__(self, plan: Plan, loader: Loader[Any]) -> None:
        super().__init__(plan, "rank")
        self._loader: Callable[[], Loader[Any] | None] = weakref.ref(loader)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle or copy without the loader: a copy drives none."""
        return {**super().__getstate__(), "_loader": _no_loader}

    def set_epoch(self, epoch: int) -> None:
        epoch = epoch_of(epoch)
        super().set_epoch(epoch)
        loader = self._loader()
        if loader is not None:
            loader._enter(int(epoch))
            expect_batches_of(loader, *loader.next_place())

    def place_after_growth(self) -> tuple[int, int]:
        loader = self._loader()
        return super().place_after_growth() if loader is None else loader.place_after_growth()

    def choose_place(self) -> None:
        loader = self._loader()
        if loader is not None:
            self._epoch, self._step = loader.next_place()
        else:
            super().choose_place()

    def ended(self, epoch: int) -> None:
        super().ended(epoch)
        loader = self._loader()
        if loader is not None:
            loader.end_through()


def _no_loader() -> None:
    return None


@dataclasses.dataclass(slots=True)
class _Pulled:
    """A batch, or its future, before it is yielded; the bytes of its samples if they are bounded, and what a progress bar counts."""

    step: int
    batch: Any
    size: int
    samples: int = 0
    tokens: int = 0


def _make_own(loader: Loader[Any], epoch: int, step: int, samples: Any, parts: tuple[bytes, bytes],
              processes: MapProcesses | None) -> tuple[Any, int, int]:
    """Return (batch, samples, tokens) by the user's functions, in a thread of the loader's."""
    assert loader.own is not None
    made, count, tokens = loader.own.make(samples, epoch, step, *parts, processes)
    if isinstance(made, Batch):
        made.planned(loader.dataset, loader.plan, loader.plan.token, epoch, step)
    return _finished(loader, made), count, tokens


def _finished(loader: Loader[Any], batch: Any, arenas: PinnedArenas | None = None) -> Any:
    """Transform and pin a batch, in a thread of the loader's. In an arena only what its layout added still needs pinning."""
    if arenas is not None:
        arenas.lend()
        batch.leave_arena()
    if loader.transform is not None:
        batch = loader.transform(batch)
    return pinned(batch) if loader.pins else batch


def _is_gpu(device: Any) -> bool:
    import torch
    return torch.device(device).type == "cuda"


class _Iteration(Iterator[Any]):
    """One pass over an epoch, which is chosen at the first next(): trainers set it after iter()."""

    def __init__(self, loader: Loader[Any]) -> None:
        self._loader = loader
        self._epoch = -1
        self._owner = _core.pid(), threading.get_ident()
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
        if loader.device is not None and _is_gpu(loader.device):
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
        if self._superseded:
            raise StateError(f"loader: this iteration was ended: {self._superseded}")
        if self._over:
            raise StopIteration
        if _core.pid() != self._owner[0]:
            raise StateError(f"loader: process {self._owner[0]} began this iteration, and this is a fork of that; "
                             "iterate anew here")
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
        if self._core is not None:
            self._core.close()
            self._core = None
        if self._processes is not None:
            self._processes.close()
            self._processes = None
        if self._pool is not None:
            own = self._owner == (_core.pid(), threading.get_ident())  # another thread may be one of the pool's
            self._pool.shutdown(wait=wait and own, cancel_futures=True)
            self._pool = None
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

    def __init__(self, loader: Loader[Any]) -> None:
        self._state: Any = None
        if "accelerate" in sys.modules:
            from accelerate.state import GradientState
            self._state = GradientState()
            self._loader: Any = loader
            loader.__dict__.update(end_of_dataloader=False, remainder=-1)
            self._state._add_dataloader(loader)

    def about_to_yield(self, last: bool) -> None:
        if self._state is not None and last:
            self._loader.end_of_dataloader = True

    def release(self) -> None:
        if self._state is not None:
            self._state._remove_dataloader(self._loader)
            self._state = None
