# SPDX-License-Identifier: Apache-2.0
"""The Trainer of transformers over a plan.

    class MyTrainer(rankstore.hf.TrainerMixin, Trainer): ...

    trainer = MyTrainer(model, TrainingArguments(..., remove_unused_columns=False), train_dataset=dataset)
    trainer.plan = dataset.plan("bucket", max_tokens=16384)
    trainer.loader_options = {"collate": rankstore.Pad(), "columns": ["input_ids", "labels"]}
    trainer.train(resume_from_checkpoint=...)          # goes on exactly there, on any number of ranks

The Trainer counts: an epoch has as many steps as its first one, and a checkpoint's place is its steps modulo those. Both are wrong once
epochs differ, or other ranks resume. So the mixin saves the loader's state in the checkpoint, and gives the Trainer the place and the
steps of each epoch by the plan.
"""
from __future__ import annotations

import dataclasses
import json
import math
import os
import warnings
from typing import TYPE_CHECKING, Any

from .._batching.layouts import Pad
from .._batching.torch_checks import refuse_dealing
from .._loader.loader import Loader
from ..errors import ArgumentError, StateError, UnsupportedError
from .evaluation import EvaluatedSamples, pass_on

if TYPE_CHECKING:
    from .._plan.plan import Plan

STATE_FILE = "rankstore.json"  # in a checkpoint's directory


@dataclasses.dataclass
class _Place:
    """Where a resumed training goes on: a step of an epoch, and the optimizer steps before it."""

    epoch: int
    step: int
    done: int


class TrainerMixin:
    """Mixin, before Trainer among the bases, that trains on the batches of a plan.

    plan: made by `train_dataset.plan`; set it before train(). loader_options: options of `Dataset.loader` (defaults here: collate=Pad(),
        and device, the Trainer's). The Trainer passes all columns of a batch to the model: choose them by columns=[...].

    Checkpoints hold the loader's state, so train(resume_from_checkpoint=...) goes on exactly there, on any number of ranks. evaluate() and
    predict() make batches of per_device_eval_batch_size samples of a Dataset, in order. eval_options: what these use of loader_options
        (collate, map, columns, rename, transform), if it differs; rows of a packing plan need it. Default: loader_options.
    """

    plan: Plan | None = None
    loader_options: dict[str, Any] | None = None
    eval_options: dict[str, Any] | None = None
    _loader: Loader[Any] | None = None
    _checkpoint: str | None = None
    _place: _Place | None = None

    def train(self, resume_from_checkpoint: str | bool | None = None, *more: Any, **options: Any) -> Any:
        """Train as the Trainer does. Raises StateError if the checkpoint is of another plan."""
        trainer: Any = super()
        self._checkpoint, self._place = _checkpoint_of(self, resume_from_checkpoint), None
        return trainer.train(resume_from_checkpoint, *more, **options)

    def get_train_dataloader(self) -> Any:
        """Return the plan's Loader, unprepared: its batches are already this rank's. ArgumentError if there is no plan."""
        trainer: Any = self
        if self.plan is None:
            raise ArgumentError("trainer.plan is not set; set it to train_dataset.plan(...) before train()")
        refuse_dealing(trainer.accelerator)
        options = {"collate": Pad(), "device": trainer.args.device, **(self.loader_options or {})}
        made: Loader[Any] = self.plan.dataset.loader(self.plan, **options)
        self._loader = made
        if self._checkpoint is not None and not trainer.args.ignore_data_skip:
            self._place = self._resume(made, self._checkpoint)
        return made

    def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
        """Return the DataLoader of evaluate(). A Dataset's batches are made with loader_options; others as the Trainer makes them."""
        trainer: Any = self
        found = trainer.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(found, str):
            found = trainer.eval_dataset[found]
        if not hasattr(found, "collate_ids"):
            made: Any = super()
            return made.get_eval_dataloader(eval_dataset)
        return self._evaluated(found)

    def get_test_dataloader(self, test_dataset: Any) -> Any:
        """Return the DataLoader of predict(); see get_eval_dataloader."""
        if not hasattr(test_dataset, "collate_ids"):
            made: Any = super()
            return made.get_test_dataloader(test_dataset)
        return self._evaluated(test_dataset)

    def _evaluated(self, dataset: Any) -> Any:
        """Return a DataLoader over a dataset's samples in order, prepared: Accelerate gives batch i to rank i % world."""
        from torch.utils.data import DataLoader, SequentialSampler
        trainer: Any = self
        samples: Any = EvaluatedSamples(dataset, self.loader_options or {} if self.eval_options is None else self.eval_options)
        return trainer.accelerator.prepare(DataLoader(samples, batch_size=trainer.args.eval_batch_size, sampler=SequentialSampler(samples),
                                                      collate_fn=pass_on, drop_last=trainer.args.dataloader_drop_last))

    # ---- checkpoints

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model as the Trainer does. In a checkpoint, save the loader's state before it."""
        trainer: Any = self
        if _internal_call and output_dir is not None and self._loader is not None and trainer.args.should_save:
            os.makedirs(output_dir, exist_ok=True)
            with open(os.path.join(output_dir, STATE_FILE), "w", encoding="utf-8") as file:
                json.dump(self._loader.state_dict(), file)
        made: Any = super()
        made.save_model(output_dir, _internal_call)

    def _resume(self, loader: Loader[Any], checkpoint: str) -> _Place | None:
        """Give the plan a checkpoint's state, and return where it goes on. The Trainer itself lets the loader skip the steps before."""
        path = os.path.join(checkpoint, STATE_FILE)
        if not os.path.exists(path):
            warnings.warn(f"{checkpoint}: it has no {STATE_FILE}, the state of the loader, so this goes on right only on as many ranks as "
                          "saved it; save checkpoints with rankstore.hf.TrainerMixin", stacklevel=4)
            return None
        try:
            with open(path, encoding="utf-8") as file:
                state = json.load(file)
            with open(os.path.join(checkpoint, "trainer_state.json"), encoding="utf-8") as file:
                done = json.load(file)["global_step"]
        except (OSError, ValueError, KeyError) as bad:
            raise StateError(f"{checkpoint}: {STATE_FILE} or trainer_state.json cannot be read ({bad}); resume from another checkpoint") \
                from bad
        plan = loader.plan
        epoch, step = plan.resume(state)
        if step >= plan.core.steps(epoch):
            epoch, step = epoch + 1, 0
        loader.set_epoch(epoch)
        if (epoch, step) != (state["epoch"], state["step"]) and not hasattr(super(), "_run_epoch"):
            raise UnsupportedError("resume_from_checkpoint: this version of transformers cannot go on with another number of steps in an "
                                   "epoch; update it, or resume on as many ranks as saved the checkpoint")
        return _Place(epoch, step - plan.core.skipped(epoch, step), done)

    # ---- what the Trainer counts

    def set_initial_training_values(self, args: Any, dataloader: Any, *more: Any) -> tuple[Any, ...]:
        """Return what the Trainer counts, with the epochs and optimizer steps that the plan has from the checkpoint on."""
        counts: Any = super()
        values: list[Any] = list(counts.set_initial_training_values(args, dataloader, *more))
        if self._counts_itself(dataloader):
            place = self._place or _Place(0, 0, 0)
            if args.max_steps > 0:
                values[0] = self._epochs_until(args, place)
            else:
                values[-1] = place.done + self._updates_left(args, place)
        return tuple(values)

    def _counts_itself(self, dataloader: Any) -> bool:
        """Return True if epochs of this training may differ in steps."""
        return isinstance(dataloader, Loader) and (self._place is not None or dataloader.plan.varies)

    def _updates(self, epoch: int) -> int:
        """Return the optimizer steps of an epoch."""
        trainer: Any = self
        assert self.plan is not None
        return max(1, math.ceil(self.plan.steps_of(epoch) / int(trainer.args.gradient_accumulation_steps)))

    def _begun(self, place: _Place) -> int:
        """Return the optimizer steps of a place's epoch that were done."""
        trainer: Any = self
        return place.step // int(trainer.args.gradient_accumulation_steps)

    def _updates_left(self, args: Any, place: _Place) -> int:
        """Return the optimizer steps from a place to the end of num_train_epochs, the last of which may be a part of one."""
        left = -self._begun(place)
        for epoch in range(place.epoch, math.ceil(args.num_train_epochs)):
            left += math.ceil(min(1.0, args.num_train_epochs - epoch) * self._updates(epoch))
        return max(0, left)

    def _epochs_until(self, args: Any, place: _Place) -> int:
        """Return how many epochs have max_steps optimizer steps."""
        epoch, done = place.epoch, place.done - self._begun(place)
        while done < args.max_steps:
            done += self._updates(epoch)
            epoch += 1
        return epoch

    def _init_training_state(self, *given: Any, **named: Any) -> tuple[int, int]:
        """Return the epoch to continue, and how many of its batches were seen."""
        starts: Any = super()
        epoch, steps = starts._init_training_state(*given, **named)
        return (epoch, steps) if self._place is None else (self._place.epoch, self._place.step)

    def _run_epoch(self, *given: Any, **named: Any) -> None:
        """Run an epoch of as many steps as the plan has in it."""
        if self.plan is not None and self._counts_itself(named.get("train_dataloader")):
            named["steps_in_epoch"] = self.plan.steps_of(named["epoch"])
            named["num_update_steps_per_epoch"] = self._updates(named["epoch"])
        runs: Any = super()
        runs._run_epoch(*given, **named)


def _checkpoint_of(trainer: Any, asked: str | bool | None) -> str | None:
    """Return the directory of a checkpoint to resume from, or None. The Trainer refuses True if there is none."""
    if asked is True:
        from transformers import trainer_utils
        last_of: Any = trainer_utils.get_last_checkpoint
        found: str | None = last_of(trainer.args.output_dir)
        return found
    return asked or None
