# SPDX-License-Identifier: Apache-2.0
"""A training loop as torchtitan writes it, over packed rows: torchrun --nproc-per-node 2 packed_titan.py [DIRECTORY]

Each optimizer step has K micro-batches of even cost a rank. Losses are divided by its tokens over all ranks, which the plan knows."""
import sys

import numpy as np
import torch
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import rankstore

OUT, MICRO_BATCHES = sys.argv[1] if len(sys.argv) > 1 else "packed_titan.store", 2


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(128, 32), torch.nn.Embedding(512, 32)
        self.output = torch.nn.Linear(32, 128)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        return self.output(self.tokens(tokens) + self.places(positions))


def main() -> None:
    torch.distributed.init_process_group("gloo")
    samples = [{"input": (np.arange(4 + i * 37 % 90) + i) % 128} for i in range(200)]
    with rankstore.build(samples, OUT, length="input") as dataset:
        plan = dataset.plan("pack", capacity=512, micro_batches=MICRO_BATCHES, mixed=True, seed=17)
        loader = dataset.loader(plan, collate=rankstore.Pack("titan"))
        model = DistributedDataParallel(Model())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for epoch in range(2):
            loader.set_epoch(epoch)
            for batch in loader:
                logits = model(batch["input"], batch["positions"])[:, :-1]
                loss = functional.cross_entropy(logits.flatten(0, 1), batch["labels"][:, 1:].flatten(), reduction="sum")
                (loss * plan.world / batch.global_tokens).backward()
                if batch.micro == MICRO_BATCHES - 1:
                    optimizer.step()
                    optimizer.zero_grad()
            if plan.rank == 0:
                print(f"epoch {epoch}: {len(loader) // MICRO_BATCHES} steps, loss {loss.item() / int(batch.lengths.sum()):.3f}")


if __name__ == "__main__":
    main()
