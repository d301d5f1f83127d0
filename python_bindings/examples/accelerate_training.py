# SPDX-License-Identifier: Apache-2.0
"""Hugging Face Accelerate, with gradient accumulation.

    torchrun --nproc-per-node 2 accelerate_training.py [--data FILES] [--out DIR] [--epochs N] [--prepared]
    torchrun ... --stop-after 7                 # saves state.json in --out after 7 steps, and ends
    torchrun ... --resume                       # resumes there

The loader already gives each rank its own batches: it is used as it is, and `accelerator.prepare` is for the model and the optimizer.
--prepared shows the other way: a DataLoader over the global view of the plan, whose batch i Accelerate deals to rank i % world. After a
restart Accelerate counts epochs of prepared loaders from 0 again; so resume with the loader.
"""
from __future__ import annotations

import argparse
import json
import os
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch.nn import functional
from torch.utils.data import DataLoader

import rankstore

VOCABULARY = 256


def made_samples(count: int = 600) -> list[dict[str, Any]]:
    """Runs of consecutive tokens of uneven length, which a tiny model learns in no time."""
    return [{"input_ids": (np.arange(2 + i * 37 % 61) + i) % VOCABULARY} for i in range(count)]


def learned(sample: dict[str, Any]) -> int:
    return len(sample["input_ids"]) - 1  # the first token is no target


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="JSON lines with input_ids (made data)")
    parser.add_argument("--out", default="accelerate_training.store", help="directory of the dataset")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--prepared", action="store_true", help="a DataLoader that Accelerate prepares, in place of the loader")
    parser.add_argument("--stop-after", type=int, default=-1, help="steps of this run")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--record", help="file (.RANK is added) for the samples of each step, and whether it synced")
    arguments = parser.parse_args()
    accelerator = Accelerator(cpu=not torch.cuda.is_available(), gradient_accumulation_steps=4)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, 32), torch.nn.Linear(32, VOCABULARY))
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    record = open(f"{arguments.record}.{accelerator.process_index}", "w", encoding="utf-8") if arguments.record else None

    with rankstore.build(arguments.data or made_samples(), arguments.out, length="input_ids", count={"learned": learned}) as dataset:
        plan = dataset.plan("bucket", max_tokens=960, seed=17)
        loader: Any = dataset.loader(plan, collate=rankstore.Pad(), columns=["input_ids"], device=accelerator.device)
        if arguments.prepared:
            batches = dataset.collating(rankstore.Pad(), columns=["input_ids"])
            loader = accelerator.prepare(DataLoader(batches, batch_sampler=plan.sampler("global"), collate_fn=batches.collate))
        checkpoint, first, steps = os.path.join(arguments.out, "state.json"), 0, 0
        if arguments.resume:
            with open(checkpoint, encoding="utf-8") as file:
                loader.load_state_dict(json.load(file))
            first = loader.epoch
        for epoch in range(first, arguments.epochs):
            loader.set_epoch(epoch)
            for batch in loader:
                with accelerator.accumulate(model):
                    logits = model(batch["input_ids"][:, :-1])
                    targets = batch["input_ids"][:, 1:].masked_fill(batch["attention_mask"][:, 1:] == 0, -100)
                    loss = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="sum")
                    accelerator.backward(loss * accelerator.num_processes / batch.global_sum("learned"))
                    optimizer.step()
                    optimizer.zero_grad()
                steps += 1
                if record:
                    print(epoch, batch.step, int(accelerator.sync_gradients), *batch.ids.tolist(), file=record, flush=True)
                if steps == arguments.stop_after:
                    if accelerator.is_main_process:
                        with open(checkpoint, "w", encoding="utf-8") as file:
                            json.dump(loader.state_dict(), file)
                    break
            accelerator.print(f"epoch {epoch}: {len(loader)} steps, loss {loss.item() / int(batch.lengths.sum()):.3f}")
            if steps == arguments.stop_after:
                break
    accelerator.end_training()


if __name__ == "__main__":
    main()
