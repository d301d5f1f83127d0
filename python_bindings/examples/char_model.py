# SPDX-License-Identifier: Apache-2.0
"""A model of characters from raw text: windows of bytes, drawn by chance, as nanoGPT trains.

    torchrun --nproc-per-node 2 char_model.py input.txt [--out DIR] [--steps N]

The same call reads a tokenizer's file: dtype=numpy.uint16 and its vocabulary.
"""
import argparse
import time

import numpy
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import rankstore

CONTEXT, BATCH = 128, 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--out", default="char.store", help="directory of the dataset")
    parser.add_argument("--steps", type=int, default=50)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Embedding(256, 64), torch.nn.Linear(64, 256)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with rankstore.build(arguments.data, arguments.out, format="raw", dtype=numpy.uint8) as ds:
        windows = ds.windows(CONTEXT + 1, CONTEXT, random=1)
        done, begun = 0, time.monotonic()
        while done < arguments.steps:
            for batch in windows.batches(BATCH):
                logits = model(batch[:, :-1])
                loss = functional.cross_entropy(logits.transpose(1, 2), batch[:, 1:])
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                done += 1
                if done == arguments.steps:
                    break
        if dist.get_rank() == 0:
            rate = done * BATCH * CONTEXT * dist.get_world_size() / (time.monotonic() - begun)
            print(f"{windows.items} characters, {done} steps, {rate:.0f} characters/s, loss {loss.item():.3f}")
    del model, logits, loss  # one that outlives its process group can make torch's gloo hang
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
