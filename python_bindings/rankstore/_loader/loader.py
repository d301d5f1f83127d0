# SPDX-License-Identifier: Apache-2.0
"""The loader: a plan's batches, fetched and collated ahead by threads of the library, without worker processes."""
from __future__ import annotations

import dataclasses
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

from .._batching.batch import Batch
from .._batching.collator import Collator
from .._batching.layouts import Layout, Lists
from .._batching.protocols import Samples
from .._distributed.stderr import say
from .._plan.plan import Plan
from .._plan.reading import Reading
from .._plan.sampler import PlanSampler
from .._schema.completion import hides
from .._schema.sizes import parse_bytes
from ..errors import ArgumentError, StateError
from .collate_fn import CollateFn
from .device import OnDevice, is_gpu
from .iteration import Iteration
from .lightning import epoch_of, expect_batches_of, sampler_for_overfit
from .options import check_device, check_functions, check_processes, need_torch, pins_batches
from .user_functions import Own

Batches = TypeVar("Batches", covariant=True)


@hides("collator", "end_through", "begin_at", "end_iterations", "next_at", "next_place", "own", "place_after_growth", "pins",
       "batch_size", "drop_last", "generator", "in_order", "multiprocessing_context", "num_workers", "persistent_workers", "pin_memory",
       "prefetch_factor", "timeout", "worker_init_fn", "reading")
class Loader(Generic[Batches]):
    """This rank's batches of a plan, epoch by epoch; made by `Dataset.loader`, which describes the options.

    With device= and neither transform nor functions, batches are collated in pinned memory; otherwise threads copy them there.

    It is an iterable with a length, equal on all ranks, and in all epochs unless the plan `varies`. It has one iteration at a time: a
    second iter(), or load_state_dict(), ends the current one, whose next step raises StateError. To iterate twice at a time make two
    loaders. Threads may share an iteration: each batch goes to the thread that asks first. Leaving a loop early ends its threads, and
    you can iterate the loader again. Trainers that look for DataLoader's attributes find them."""

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
        self._in_arenas = self.pins and self.own is None and transform is None and device is not None and is_gpu(device)
        self.prefetch_batches: int | None = counts.get("prefetch_batches")  # None: automatic
        self.prefetch_bytes = None if prefetch_bytes == "auto" else parse_bytes("prefetch_bytes", prefetch_bytes)
        self.threads, self.processes = max(threads, processes), processes  # a thread waits for each process
        self.progress, self.prefetch_device = progress, prefetch_device
        self._on_device: OnDevice | None = None  # of the last iteration
        self._sampler: PlanSampler = _LoaderSampler(plan, self)
        self._epoch, self._step = 0, 0  # the place of training, which state_dict returns
        self._first = 0  # first step of the next iteration: 0 except after load_state_dict
        self._epoch_set = False  # set_epoch was called since the last iteration began
        self._last: weakref.ref[Iteration] | None = None  # weak: a loop that is left early ends it
        self._through: Iteration | None = None  # the one that a DataLoader's collate_fn drives
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
        """Return the epoch that the next iteration continues, or starts if the last one was finished."""
        return self._epoch + (0 < self.plan.core.steps(self._epoch) <= self._step)

    def __len__(self) -> int:
        """Return the number of batches of an epoch without skipped ones; if epochs differ, of the one that `epoch` names."""
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

    def _iterate(self) -> Iteration:
        self._end_last("another iteration over this loader began, and it has one at a time; to iterate twice at a time "
                       "(zip, nested loops) make two loaders")
        iteration = Iteration(self)
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
