# SPDX-License-Identifier: Apache-2.0
"""Samples of input_ids, labels and loss_mask, sorted by length over all ranks; those that no token is learned from are dropped.

    torchrun --nproc-per-node 2 gpt_loss_mask.py [--how before|after] [--samples N] [--out DIR] [--epochs N]

before: each rank loads its part, and all_gather_object gives each rank all samples, so that all can sort them alike. Every rank holds the
whole dataset in memory, several times over while it is gathered.
after: rankstore.build keeps samples on disk and shares no more than their lengths; a plan makes the batches, a loader reads them ahead.
"""
from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional

import rankstore

VOCABULARY = 1024


def samples(rank: int, world: int, count: int) -> Iterator[dict[str, Any]]:
    """This rank's part of what a tokenizer leaves: made data, 200 to 4,000 tokens each. In every seventh sample nothing is learned."""
    for number in range(rank, count, world):
        made = np.random.default_rng(number)
        tokens = made.integers(0, VOCABULARY, made.integers(200, 4000))
        learned = np.arange(len(tokens) - 1) >= (len(tokens) if number % 7 == 0 else 50)
        yield {"number": number, "input_ids": tokens[:-1], "labels": tokens[1:], "loss_mask": learned}


def is_learned_from(sample: dict[str, Any]) -> bool:
    return bool(sample["loss_mask"].any())


def batches_before(arguments: argparse.Namespace, rank: int, world: int) -> list[list[dict[str, Any]]]:
    """All samples in the memory of all ranks."""
    mine = [sample for sample in samples(rank, world, arguments.samples) if is_learned_from(sample)]
    parts: list[Any] = [None] * world
    dist.all_gather_object(parts, mine)
    ordered = sorted(itertools.chain.from_iterable(parts), key=lambda sample: len(sample["input_ids"]))
    batches = [ordered[start:start + 8] for start in range(0, len(ordered), 8)]
    batches += batches[-1:] * (-len(batches) % world)  # equal steps, or the job hangs
    return batches[rank::world]


def train_before(arguments: argparse.Namespace, step: Step, rank: int, world: int) -> None:
    batches = batches_before(arguments, rank, world)
    for epoch in range(arguments.epochs):
        for batch in batches:
            width = max(len(sample["input_ids"]) for sample in batch)
            padded = {name: torch.zeros(len(batch), width, dtype=torch.int64) for name in ("input_ids", "labels", "loss_mask")}
            for name, column in padded.items():
                for row, sample in enumerate(batch):
                    column[row, :len(sample[name])] = torch.from_numpy(sample[name])
            step(epoch, padded, [sample["number"] for sample in batch])


def train_after(arguments: argparse.Namespace, step: Step, rank: int, world: int) -> None:
    with rankstore.build(samples(rank, world, arguments.samples), arguments.out, filter=is_learned_from, length="input_ids",
                         reuse=True) as dataset:
        plan = dataset.plan("bucket", batch_size=8)
        loader = dataset.loader(plan, collate=rankstore.Pad(mask=None))
        for epoch in range(arguments.epochs):
            loader.set_epoch(epoch)
            for batch in loader:
                step(epoch, batch, batch["number"].tolist())


class Step:
    """A training step of a tiny model."""

    def __init__(self, rank: int, record: str | None) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.parallel.DistributedDataParallel(
            torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, 8), torch.nn.Linear(8, VOCABULARY)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.steps, self.loss = 0, 0.0
        self.record = open(f"{record}.{rank}", "w", encoding="utf-8") if record else None

    def __call__(self, epoch: int, batch: dict[str, Any], numbers: list[int]) -> None:
        columns = slice(0, 64)  # a tiny model learns from the first tokens; a real one takes them all
        logits = self.model(batch["input_ids"][:, columns])
        losses = functional.cross_entropy(logits.transpose(1, 2), batch["labels"][:, columns].clamp(min=0), reduction="none")
        weights = batch["loss_mask"][:, columns].float()
        loss = (losses * weights).sum() / weights.sum().clamp(min=1)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps, self.loss = self.steps + 1, loss.item()
        if self.record:
            print(epoch, self.steps - 1, *numbers, file=self.record, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--how", choices=["before", "after"], default="after")
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--out", default="gpt_loss_mask.store", help="directory of the dataset")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--record", help="file (.RANK is added) for the samples of each step")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    step = Step(rank, arguments.record)
    (train_before if arguments.how == "before" else train_after)(arguments, step, rank, world)
    if rank == 0:
        print(f"{arguments.how}: {step.steps} steps, loss {step.loss:.3f}")
    del step  # its model: one that outlives its process group can make torch's gloo hang
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
