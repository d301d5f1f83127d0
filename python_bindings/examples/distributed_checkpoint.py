# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint: the loader is saved with the model, and resumed also on another number of ranks.

    torchrun --nproc-per-node 2 distributed_checkpoint.py [--data FILES] [--out DIR] [--epochs N]
    torchrun --nproc-per-node 2 ... --stop-after 7      # saves in DIR.checkpoint after 7 steps, and ends
    torchrun --nproc-per-node 4 ... --resume            # resumes there

The loader's state is small, plain and the same on all ranks: no key for each rank and no pickle is needed.
"""
from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import rankstore

VOCABULARY = 256


def made_samples(count: int = 600) -> list[dict[str, Any]]:
    """Runs of consecutive tokens of uneven length, which a tiny model learns in no time."""
    return [{"input_ids": (np.arange(2 + i * 37 % 61) + i) % VOCABULARY} for i in range(count)]


def learned(sample: dict[str, Any]) -> int:
    return len(sample["input_ids"]) - 1  # the first token is no target


class Training:
    """Model, optimizer and loader as one Stateful object."""

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, loader: rankstore.Loader) -> None:
        self.model, self.optimizer, self.loader = model, optimizer, loader

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optimizer": optimizer, "loader": self.loader.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
        self.loader.load_state_dict(state["loader"])


def train(arguments: argparse.Namespace) -> None:
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, 32), torch.nn.Linear(32, VOCABULARY)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    record = open(f"{arguments.record}.{dist.get_rank()}", "w", encoding="utf-8") if arguments.record else None

    with rankstore.build(arguments.data or made_samples(), arguments.out, length="input_ids", count={"learned": learned}) as dataset:
        plan = dataset.plan("bucket", max_tokens=1024, seed=17)
        loader = dataset.loader(plan, collate=rankstore.Pad(), columns=["input_ids"])
        training, steps = Training(model, optimizer, loader), 0
        if arguments.resume:
            dcp.load({"training": training}, checkpoint_id=arguments.out + ".checkpoint")
        for epoch in range(loader.epoch, arguments.epochs):
            loader.set_epoch(epoch)  # where the loaded state is in this epoch, its position stays
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
                    dcp.save({"training": training}, checkpoint_id=arguments.out + ".checkpoint")
                    break
            if dist.get_rank() == 0:
                print(f"epoch {epoch}: {len(loader)} steps, loss {loss.item() / int(batch.lengths.sum()):.3f}")
            if steps == arguments.stop_after:
                break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="JSON lines with input_ids (made data)")
    parser.add_argument("--out", default="distributed_checkpoint.store", help="directory of the dataset")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--stop-after", type=int, default=-1, help="steps of this run")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--record", help="file (.RANK is added) for the samples of each step")
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    train(arguments)  # a model that outlives its process group can make torch's gloo hang
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
