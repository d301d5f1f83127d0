# SPDX-License-Identifier: Apache-2.0
"""Lightning counts an epoch's batches itself: so many are done by its checkpoint, and each epoch has as many as the first.

Neither holds after a resume on another number of ranks, nor if epochs differ in steps. So at the begin of each epoch, when Lightning sets
the epoch of the loader's sampler, the loader sets how many batches Lightning expects in that epoch to those that the plan has in it.

Trainer(overfit_batches=...) wants the same batches in each epoch, and puts a SequentialSampler into any loader that has another one. The
loader shows it one, and stays in its first epoch.
"""
from __future__ import annotations

import sys
from typing import Any

from ..errors import StateError

LOOPS = ("lightning.pytorch.loops.fit_loop", "pytorch_lightning.loops.fit_loop")
CALLS = 6  # from such a loop to here


def expect_batches_of(loader: Any, epoch: int, step: int) -> None:  # a Loader, whose module imports this one
    """If Lightning sets the loader's epoch, set how many batches it expects there to those that are left from a step on."""
    loop = _calling_loop()
    if loop is None:
        return
    plan = loader.plan
    left = plan.steps_of(epoch) - (step - plan.core.skipped(epoch, step))
    try:
        _expect(loop, left)
    except AttributeError as other:
        if left != plan.steps:
            raise StateError(f"loader: this version of Lightning counts batches in a way that Rankstore does not know ({other}), so it "
                             "cannot go on in mid-epoch; resume from a checkpoint at an epoch's end, or use Lightning 2.6") from other


def epoch_of(epoch: int) -> int:
    """Return the epoch that Lightning means when it sets one: with overfit_batches always the first."""
    loop = _calling_loop()
    return 0 if loop is not None and loop.trainer.overfit_batches > 0 else epoch


def sampler_for_overfit() -> Any | None:
    """Return a sampler in order if Lightning looks for one because of overfit_batches."""
    frame = sys._getframe(2) if any(name in sys.modules for name in LOOPS) else None
    for _ in range(2):  # it looks in an expression of its own
        if frame is not None and frame.f_code.co_name == "_resolve_overfit_batches":
            from torch.utils.data import SequentialSampler
            return SequentialSampler(range(0))
        frame = frame and frame.f_back
    return None


def _calling_loop() -> Any | None:
    """Return the fit loop among the callers: Lightning passes it to none of the functions that it calls."""
    frame = sys._getframe(1) if any(name in sys.modules for name in LOOPS) else None
    for _ in range(CALLS):
        frame = frame and frame.f_back
        if frame is not None and frame.f_globals.get("__name__") in LOOPS:
            return frame.f_locals.get("self")
    return None


def _expect(loop: Any, left: int) -> None:
    trainer, batches, combined = loop.trainer, loop.epoch_loop, loop._combined_loader
    done, at_end = _done_before(batches)
    expected = _within(trainer.limit_train_batches, done + left)
    if len(combined.flattened) > 1:
        if done and expected != loop.max_batches:
            raise StateError(f"loader: Lightning counts the batches of {len(combined.flattened)} loaders together, so it cannot go on in "
                             "mid-epoch on another number of devices; resume from a checkpoint at an epoch's end")
        return
    if at_end:  # Lightning begins the next epoch if it has counted as many as it expects
        batches.batch_progress.current.completed = max(batches.batch_progress.current.completed, expected)
    loop.max_batches = loop._data_fetcher.length = expected
    combined.limits = [expected]
    if isinstance(trainer.val_check_interval, float) and trainer.val_check_batch is not None:
        trainer.val_check_batch = max(1, int(expected * trainer.val_check_interval))


def _done_before(batches: Any) -> tuple[int, bool]:
    """Return how many batches Lightning will have counted when it goes on in the epoch, and whether it was saved at an epoch's last."""
    if not batches.restarting:
        return 0, False
    # A checkpoint that a callback saved at a batch's end is counted up by one, by versions that know that.
    in_callback = getattr(batches, "restarted_on_train_batch_end", False)
    at_end = batches.batch_progress.is_last_batch
    return 0 if at_end else int(batches.batch_progress.current.completed + in_callback), at_end and in_callback


def _within(limit: int | float, batches: int) -> int:
    """Return how many batches Trainer(limit_train_batches=...) leaves."""
    return min(batches, limit) if isinstance(limit, int) else int(batches * limit)
