# SPDX-License-Identifier: Apache-2.0
"""torch's own DataLoader, with or without worker processes.

    torchrun --nproc-per-node 2 torch_dataloader.py [--data FILES] [--out DIR] [--epochs N] [--workers N]

The sampler yields this rank's batches of the plan, the dataset makes each batch ready, so that `collate` has nothing to do. Without
workers the library's threads prefetch; workers are needed for Python code of your own that is slow (dataset.loader(transform=...) runs it
in threads). in_order=False would give each rank another order: leave it alone.
"""
from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

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
        batches = dataset.collating(rankstore.Pad(labels_pad=-100), columns=["input_ids"])
        loader = DataLoader(batches, batch_sampler=sampler, collate_fn=batches.collate, num_workers=arguments.workers,
                            persistent_workers=arguments.workers > 0,
                            multiprocessing_context=arguments.start if arguments.workers else None)
        for epoch in range(arguments.epochs):
            sampler.set_epoch(epoch)
            for batch in loader:
                logits = model(batch["input_ids"][:, :-1])
                targets = batch["input_ids"][:, 1:].masked_fill(batch["attention_mask"][:, 1:] == 0, -100)
                loss = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="sum")
                (loss * dist.get_world_size() / batch.global_sum("learned")).backward()  # the mean of the step, over all ranks
                optimizer.step()
                optimizer.zero_grad()
                if record:
                    print(epoch, batch.step, *batch.ids.tolist(), file=record, flush=True)
            if dist.get_rank() == 0:
                print(f"epoch {epoch}: {len(loader)} steps, loss {loss.item() / int(batch.lengths.sum()):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="JSON lines with input_ids (made data)")
    parser.add_argument("--out", default="torch_dataloader.store", help="directory of the dataset")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--start", choices=["fork", "forkserver", "spawn"], default="fork", help="how workers start")
    parser.add_argument("--record", help="file (.RANK is added) for the samples of each step")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    train(arguments)  # a model that outlives its process group can make torch's gloo hang
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
