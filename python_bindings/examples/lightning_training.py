# SPDX-License-Identifier: Apache-2.0
"""Lightning: the loader is returned from train_dataloader; nothing need be said to the Trainer.

    torchrun --nproc-per-node 2 lightning_training.py [--data FILES] [--out DIR] [--epochs N]
    torchrun ... --stop-after 7                 # ModelCheckpoint saves last.ckpt in --out.checkpoint after 7 steps, and ends
    torchrun ... --resume                       # resumes there

Lightning saves the loader's state in its checkpoints and brings it back.
"""
from __future__ import annotations

import argparse
import os
from typing import Any

import lightning
import numpy as np
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn import functional

import rankstore

VOCABULARY = 256


def made_samples(count: int = 600) -> list[dict[str, Any]]:
    """Runs of consecutive tokens of uneven length, which a tiny model learns in no time."""
    return [{"input_ids": (np.arange(2 + i * 37 % 61) + i) % VOCABULARY} for i in range(count)]


def learned(sample: dict[str, Any]) -> int:
    return len(sample["input_ids"]) - 1  # the first token is no target


class Tokens(lightning.LightningDataModule):
    def __init__(self, data: str | None, out: str) -> None:
        super().__init__()
        self.data, self.out = data, out

    def setup(self, stage: str) -> None:  # the process group is there
        self.dataset = rankstore.build(self.data or made_samples(), self.out, length="input_ids", count={"learned": learned})

    def train_dataloader(self) -> rankstore.Loader:
        plan = self.dataset.plan("bucket", max_tokens=1024, seed=17)
        return self.dataset.loader(plan, collate=rankstore.Pad(), columns=["input_ids"])

    def teardown(self, stage: str) -> None:
        self.dataset.close()


class Model(lightning.LightningModule):
    def __init__(self, record: str | None) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, 32), torch.nn.Linear(32, VOCABULARY))
        self.record = record

    def training_step(self, batch: rankstore.Batch, place: int) -> torch.Tensor:
        logits = self.layers(batch["input_ids"][:, :-1])
        targets = batch["input_ids"][:, 1:].masked_fill(batch["attention_mask"][:, 1:] == 0, -100)
        loss = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="sum")
        if self.record:
            with open(f"{self.record}.{self.global_rank}", "a", encoding="utf-8") as file:
                print(batch.epoch, batch.step, *batch.ids.tolist(), file=file)
        self.log("loss", loss.item() / int(batch.lengths.sum()))
        return loss * self.trainer.world_size / batch.global_sum("learned")  # the mean of the step, over all ranks

    def on_train_epoch_end(self) -> None:
        if self.global_rank == 0:
            print(f"epoch {self.current_epoch}: {self.trainer.num_training_batches} steps, "
                  f"loss {self.trainer.callback_metrics['loss']:.3f}")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="JSON lines with input_ids (made data)")
    parser.add_argument("--out", default="lightning_training.store", help="directory of the dataset")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--stop-after", type=int, default=-1, help="steps of this run")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--record", help="file (.RANK is added) for the samples of each step")
    arguments = parser.parse_args()
    lightning.seed_everything(0, verbose=False)
    checkpoints = arguments.out + ".checkpoint"
    saving = ModelCheckpoint(checkpoints, "last", every_n_train_steps=max(1, arguments.stop_after), enable_version_counter=False)
    trainer = lightning.Trainer(devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")), strategy="ddp",
                                max_epochs=arguments.epochs, max_steps=arguments.stop_after, logger=False,
                                callbacks=[saving] if arguments.stop_after > 0 else [],
                                enable_checkpointing=arguments.stop_after > 0, enable_progress_bar=False,
                                enable_model_summary=False)
    trainer.fit(Model(arguments.record), Tokens(arguments.data, arguments.out),
                ckpt_path=os.path.join(checkpoints, "last.ckpt") if arguments.resume else None)


if __name__ == "__main__":
    main()
