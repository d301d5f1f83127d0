# SPDX-License-Identifier: Apache-2.0
"""The Trainer of transformers over a plan.

    class MyTrainer(rankstore.hf.TrainerMixin, Trainer): ...

    trainer = MyTrainer(model, TrainingArguments(..., remove_unused_columns=False), train_dataset=dataset)
    trainer.plan = dataset.plan("bucket", max_tokens=16384)
    trainer.loader_options = {"collate": rankstore.Pad(), "columns": ["input_ids", "labels"]}
    trainer.train(resume_from_checkpoint=...)          # goes on exactly there
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._batching.layouts import Pad
from .._batching.torch_checks import refuse_dealing
from ..errors import ArgumentError

if TYPE_CHECKING:
    from .._loader.loader import Loader
    from .._plan.plan import Plan


class TrainerMixin:
    """Mixin, before Trainer among the bases, that trains on the batches of a plan.

    plan: made by `train_dataset.plan`; set it before train(). loader_options: options of `Dataset.loader` (defaults here: collate=Pad(),
        and device, the Trainer's). The Trainer passes all columns of a batch to the model: choose them by columns=[...].
    """

    plan: Plan | None = None
    loader_options: dict[str, Any] | None = None

    def get_train_dataloader(self) -> Loader:
        """Return the plan's loader, unprepared: its batches are already this rank's. ArgumentError if there is no plan."""
        trainer: Any = self
        if self.plan is None:
            raise ArgumentError("trainer.plan is not set; set it to train_dataset.plan(...) before train()")
        refuse_dealing(trainer.accelerator)
        options = {"collate": Pad(), "device": trainer.args.device, **(self.loader_options or {})}
        made: Loader = self.plan.dataset.loader(self.plan, **options)
        return made
