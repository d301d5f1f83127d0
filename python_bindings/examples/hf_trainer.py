# SPDX-License-Identifier: Apache-2.0
"""The Trainer of transformers, with gradient accumulation.

    torchrun --nproc-per-node 2 hf_trainer.py [--data FILES] [--out DIR] [--epochs N]
    torchrun ... --stop-after 7                 # the Trainer saves in --out.checkpoints after 7 optimizer steps, and ends
    torchrun ... --resume                       # resumes there

rankstore.hf.TrainerMixin returns the loader from get_train_dataloader. The Trainer gives the model all columns of a batch: name those that
it takes.
"""
from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import rankstore
import rankstore.hf

VOCABULARY = 256


def made_samples(count: int = 600) -> list[dict[str, Any]]:
    """Runs of consecutive tokens of uneven length, which a tiny model learns in no time."""
    return [{"input_ids": (np.arange(2 + i * 37 % 61) + i) % VOCABULARY, "number": i} for i in range(count)]


class Model(torch.nn.Module):
    """What a model of transformers is to the Trainer: columns in, the loss out."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, 32), torch.nn.Linear(32, VOCABULARY))

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, number: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        targets = input_ids[:, 1:].masked_fill(attention_mask[:, 1:] == 0, -100)
        return {"loss": functional.cross_entropy(self.layers(input_ids[:, :-1]).transpose(1, 2), targets)}


class TokenTrainer(rankstore.hf.TrainerMixin, Trainer):
    record: str | None = None

    def training_step(self, model: Any, inputs: dict[str, Any], *more: Any, **options: Any) -> torch.Tensor:
        if self.record:
            with open(f"{self.record}.{self.args.process_index}", "a", encoding="utf-8") as file:
                synced = int(self.accelerator.sync_gradients)
                print(int(self.state.epoch or 0), self.state.global_step, synced, *inputs["number"].tolist(), file=file)
        return super().training_step(model, inputs, *more, **options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="JSON lines with input_ids and number (made data)")
    parser.add_argument("--out", default="hf_trainer.store", help="directory of the dataset")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--stop-after", type=int, default=-1, help="optimizer steps")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--record", help="file (.RANK is added) for the samples of each step, and whether it synced")
    arguments = parser.parse_args()
    checkpoints = arguments.out + ".checkpoints"
    settings = TrainingArguments(checkpoints, num_train_epochs=arguments.epochs, max_steps=arguments.stop_after,
                                 use_cpu=not torch.cuda.is_available(),
                                 gradient_accumulation_steps=4, learning_rate=0.01, lr_scheduler_type="constant", seed=0,
                                 remove_unused_columns=False, report_to=[], disable_tqdm=True, logging_steps=5,
                                 save_steps=max(1, arguments.stop_after), save_strategy="steps" if arguments.stop_after > 0 else "no")
    with rankstore.build(arguments.data or made_samples(), arguments.out, length="input_ids") as dataset:
        trainer = TokenTrainer(Model(), settings, train_dataset=dataset)
        trainer.record = arguments.record
        trainer.plan = dataset.plan("bucket", max_tokens=960, seed=17)
        trainer.loader_options = {"collate": rankstore.Pad(), "columns": ["input_ids", "number"]}
        done = trainer.train(resume_from_checkpoint=get_last_checkpoint(checkpoints) if arguments.resume else None)
    if trainer.is_world_process_zero():
        print(f"{done.global_step} optimizer steps, loss {done.training_loss:.3f}")


if __name__ == "__main__":
    main()
