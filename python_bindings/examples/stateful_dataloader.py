# SPDX-License-Identifier: Apache-2.0
"""torchdata's StatefulDataLoader: stop anywhere, go on exactly there.

    torchrun --nproc-per-node 2 stateful_dataloader.py [--data FILES] [--out DIR] [--epochs N] [--workers N]
    torchrun ... --stop-after 7                 # saves state.RANK in --out after 7 steps, and ends
    torchrun ... --resume                       # resumes there

The position is the sampler's iterator's; StatefulDataLoader saves it beside its own counters, also with worker processes.
"""
from __future__ import annotations

import argparse
import json
import os
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torchdata.stateful_dataloader import StatefulDataLoader

import rankstore

VOCABULARY = 256


def made_samples(count: int = 600) -> list[dict[str, Any]]:
    """Runs of consecutive tokens of uneven length, which a tiny model learns in no time."""
    return [{"input_ids": (np.arange(2 + i * 37 % 61) + i) % VOCABULARY} for i in range(count)]


def learned(sample: dict[str, Any]) -> int:
    return len(sample["input_ids"]) - 1  # the first token is no target


def train(arguments: argparse.Namespace) -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, 32), torch.nn.Linear(32, VOCABULARY)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    record = open(f"{arguments.record}.{dist.get_rank()}", "w", encoding="utf-8") if arguments.record else None

    with rankstore.build(arguments.data or made_samples(), arguments.out, length="input_ids", count={"learned": learned}) as dataset:
        sampler = dataset.plan("bucket", max_tokens=1024, seed=17).sampler()
        batches = dataset.collating(rankstore.Pad(), columns=["input_ids"])
        loader = StatefulDataLoader(batches, batch_sampler=sampler, collate_fn=batches.collate, num_workers=arguments.workers)
        checkpoint, first, steps = os.path.join(arguments.out, f"state.{dist.get_rank()}"), 0, 0
        if arguments.resume:
            with open(checkpoint, encoding="utf-8") as file:
                saved = json.load(file)
            loader.load_state_dict(saved["loader"])
            first = saved["epoch"]
        for epoch in range(first, arguments.epochs):
            sampler.set_epoch(epoch)
            for batch in loader:
                logits = model(batch["input_ids"][:, :-1])
                targets = batch["input_ids"][:, 1:].masked_fill(batch["attention_mask"][:, 1:] == 0, -100)
                loss = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="sum")
                (loss * dist.get_world_size() / batch.global_sum("learned")).backward()  # the mean of the step, over all ranks
                optimizer.step()
                optimizer.zero_grad()
                steps += 1
                if record:
                    print(epoch, batch.step, *batch.ids.tolist(), file=record, flush=True)
                if steps == arguments.stop_after:
                    with open(checkpoint, "w", encoding="utf-8") as file:
                        json.dump({"epoch": epoch, "loader": loader.state_dict()}, file)
                    break
            if dist.get_rank() == 0:
                print(f"epoch {epoch}: {len(loader)} steps, loss {loss.item() / int(batch.lengths.sum()):.3f}")
            if steps == arguments.stop_after:
                break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="JSON lines with input_ids (made data)")
    parser.add_argument("--out", default="stateful_dataloader.store", help="directory of the dataset")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--stop-after", type=int, default=-1, help="steps of this run")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--record", help="file (.RANK is added) for the samples of each step")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    train(arguments)  # a model that outlives its process group can make torch's gloo hang
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
