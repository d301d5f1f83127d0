# SPDX-License-Identifier: Apache-2.0
"""The batches of a plan one by one: a sampler for torch's DataLoader."""
from __future__ import annotations

import array
import sys
import weakref
from collections.abc import Iterator
from typing import Any

from .._batching import torch_checks
from .._batching.limits import Rule
from .._schema.completion import hides
from ..errors import ArgumentError, StateError


def batch_parts(plan: Any, epoch: int, step: int, rank: int) -> tuple[bytes, bytes]:
    """Return pieces (uint32[n, 3]) and edges of bins (uint32[n + 1]) of a batch; empty if the plan has none."""
    pieces = plan.core.pieces(epoch, rank, step, step + 1) if plan.rule.split else b""
    bins = array.array("I", memoryview(plan.core.bins(epoch, step, rank)).cast("q")).tobytes() if plan.rule.row else b""
    return pieces, bins


@hides("fill", "rule", "seed", "token")
class PlanBatch(list[int]):
    """The sample ids of one batch, equal to a plain list, with its place in the plan."""

    epoch: int = -1
    step: int = -1
    rank: int = -1
    token: int = -1
    rule: Rule = Rule()
    pieces: bytes = b""  # uint32[n, 3]: place, start, count
    bins: bytes = b""  # uint32[n + 1], with strategy "pack"
    seed: int = 0  # the plan's

    def fill(self, plan: Any) -> None:
        """Add pieces and bins, for a process that has no plan."""
        self.rule, self.seed = plan.rule, int(plan.options.get("seed", 0))
        self.pieces, self.bins = batch_parts(plan, self.epoch, self.step, self.rank)


@hides("begin_at", "choose_place", "end_iterations", "ended", "place_after_growth")
class PlanSampler:
    """A batch sampler over a plan; give it to DataLoader as `batch_sampler`.

    It has no batch_size, drop_last or generator, so that trainers leave it unchanged. They find `set_epoch` on it, on its `.sampler` and on
    its `.batch_sampler`."""

    def __init__(self, plan: Any, view: str) -> None:
        if view not in ("rank", "global"):
            raise ArgumentError(f"view: {view!r} is neither 'rank' nor 'global'")
        self.plan, self.view = plan, view
        self._epoch, self._step = 0, 0
        self._epoch_set = False  # set_epoch was called since the last iteration began
        self._seen = -1  # the last epoch that was iterated to its end
        self._last: weakref.ref[_SamplerIterator] | None = None
        plan.dataset.follow_epoch(self)

    @property
    def sampler(self) -> PlanSampler:
        """Return this sampler, for trainers that look for one here."""
        return self

    @property
    def batch_sampler(self) -> PlanSampler:
        """Return this sampler, for trainers that look for one here."""
        return self

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration, at least 0 (ArgumentError).

        Without it, an epoch that was seen to its end is followed by the next. Does nothing if a loaded state is in that epoch."""
        if not hasattr(epoch, "__index__"):
            raise ArgumentError(f"epoch: {epoch!r}; it must be an int of at least 0")
        if not 0 <= epoch < 2**64:
            raise ArgumentError(f"epoch: {epoch}; it must be 0 to 2^64 - 1")
        self._epoch_set = True
        if epoch != self._epoch:
            self._epoch, self._step = int(epoch), 0

    def __len__(self) -> int:
        steps: int = self.plan.steps_of(self._epoch) if self.plan.varies else self.plan.steps
        return steps * (self.plan.world if self.view == "global" else 1)

    def __iter__(self) -> _SamplerIterator:
        # the name that DataLoader's iterator has for its loader
        loader = sys._getframe(1).f_locals.get("loader")
        torch_checks.warn_out_of_order(loader)
        if self.plan.dataset.id:
            torch_checks.check_wrapped(loader, self.plan.samples_there)
        iterator = _SamplerIterator(self)
        self._last = weakref.ref(iterator)
        return iterator

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the last iterator: what it yielded counts as done."""
        last = self._last() if self._last is not None else None
        if last is not None:
            return last.state_dict()
        state: dict[str, Any] = self.plan.state(self._epoch, len(self.plan.epoch(self._epoch)) if self._is_seen() else self._step)
        return state

    def __getstate__(self) -> dict[str, Any]:
        """Pickle or copy: what the last iterator yielded counts as done, as for `state_dict`."""
        last = self._last() if self._last is not None else None
        place = {} if last is None or last._epoch < 0 else {"_epoch": last._epoch, "_step": last._step}
        return {**self.__dict__, "_last": None, **place}

    def place_after_growth(self) -> tuple[int, int]:
        """Return where to go on with a larger dataset: at the beginning of an epoch. StateError if a state within one is loaded."""
        last = self._last() if self._last is not None else None
        if last is not None and last._epoch >= 0:
            return last._epoch + last.is_over, 0
        if self._is_seen():
            return self._epoch + 1, 0
        if self._step > 0:
            raise StateError(f"refresh: a state at step {self._step} of epoch {self._epoch} is loaded; go on with that epoch first")
        return self._epoch, 0

    def end_iterations(self, why: str) -> None:
        """End the iteration that is not at its end: its next step raises StateError."""
        last = self._last() if self._last is not None else None
        if last is not None:
            last.end(why)
        self._last = None

    def begin_at(self, epoch: int, step: int) -> None:
        """Begin the next iteration at this place."""
        self._epoch, self._step, self._seen = epoch, step, -1

    def choose_place(self) -> None:
        """Choose the epoch of an iteration that begins: the next one, if this one was seen to its end and none was set."""
        if not self._epoch_set and self._is_seen():
            self._epoch, self._step = self._epoch + 1, 0

    def ended(self, epoch: int) -> None:
        """Note that an iteration has come to the end of an epoch."""
        self._seen = epoch

    def _is_seen(self) -> bool:
        """Return True if the epoch was seen to its end, here or before a state was loaded."""
        return self._seen == self._epoch and self._step == 0 or self._step >= len(self.plan.epoch(self._epoch))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume the next iteration from a state. Raises StateError naming what differs."""
        self._epoch, self._step = self.plan.resume(state)
        self._epoch_set, self._seen = False, -1


class _SamplerIterator(Iterator[PlanBatch]):
    """Binds the epoch at the first next(): trainers call set_epoch between iter() and next()."""

    def __init__(self, sampler: PlanSampler) -> None:
        self._sampler = sampler
        self._epoch, self._step, self._place = -1, 0, 0
        self._state: dict[str, Any] | None = None
        self._ended = ""  # why it ended before its last step

    @property
    def is_over(self) -> bool:
        """Return True if all batches of the epoch were yielded."""
        return self._epoch >= 0 and self._step >= self._steps

    def end(self, why: str) -> None:
        """End it; do nothing if it is over."""
        if not self.is_over:
            self._ended = why

    def _begin(self) -> None:
        sampler = self._sampler
        torch_checks.check_prepared(sampler)
        if self._state is not None:
            sampler._epoch, sampler._step = sampler.plan.resume(self._state)
        else:
            sampler.choose_place()
        sampler._epoch_set = False
        self._epoch, self._step = sampler._epoch, sampler._step
        sampler._step = 0  # the next iteration is a whole epoch
        self._look_at_steps()

    def _look_at_steps(self) -> None:
        plan = self._sampler.plan
        self._steps, self._changes = len(plan.epoch(self._epoch)), plan.changes
        if self._place == 0:
            self._step = plan.core.next_step(self._epoch, self._step)

    def __next__(self) -> PlanBatch:
        if self._ended:
            raise StateError(f"sampler: this iteration was ended: {self._ended}")
        if self._epoch < 0:
            self._begin()
        if self._changes != self._sampler.plan.changes:
            self._look_at_steps()
        if self._step >= self._steps:
            self._sampler.ended(self._epoch)
            raise StopIteration
        plan, is_global = self._sampler.plan, self._sampler.view == "global"
        rank = self._place if is_global else plan.rank
        batch = PlanBatch(plan.core.batch(self._epoch, self._step, rank))
        batch.epoch, batch.step, batch.rank, batch.token = self._epoch, self._step, rank, plan.token
        batch.fill(plan)
        self._place += 1
        if not is_global or self._place == plan.world:
            self._place, self._step = 0, plan.core.next_step(self._epoch, self._step + 1)
        if self._step >= self._steps:  # a loop that counts to len() does not call again
            self._sampler._seen = self._epoch
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Return the state: what was yielded counts as done, but in the global view not a step of which only a part was."""
        if self._epoch < 0:
            return self._state or self._sampler.plan.state(self._sampler._epoch, self._sampler._step)
        state: dict[str, Any] = self._sampler.plan.state(self._epoch, self._step)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._state, self._epoch = state, -1
