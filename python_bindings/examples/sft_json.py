# SPDX-License-Identifier: Apache-2.0
"""Supervised fine-tuning from a JSON array [{"instruction", "output"}, ...]: the loss counts the answers' bytes alone.

    torchrun --nproc-per-node 2 sft_json.py alpaca.json [--out DIR] [--steps N]
"""
import argparse

import numpy
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import rankstore


def tokenize(row):
    """Bytes are tokens here; a real job has its tokenizer."""
    prompt, answer = row["instruction"].encode() + b"\n", row["output"].encode() + b"\0"
    tokens = numpy.frombuffer(prompt + answer, numpy.uint8).astype(numpy.int32)
    return {"input_ids": tokens[:-1], "labels": numpy.where(numpy.arange(1, len(tokens)) < len(prompt), -100, tokens[1:])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--out", default="sft.store", help="directory of the dataset")
    parser.add_argument("--steps", type=int, default=50)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Embedding(256, 64), torch.nn.Linear(64, 256)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    with rankstore.build(arguments.data, arguments.out, map=tokenize, length="input_ids",
                         count={"learned": ("labels", "!=", -100)}) as ds:
        loader = ds.loader(ds.plan("bucket", max_tokens=8192, seed=1), collate=rankstore.Pad())
        done, padding = 0, 0.0
        while done < arguments.steps:
            for batch in loader:
                logits = model(batch["input_ids"])
                loss = functional.cross_entropy(logits.transpose(1, 2), batch["labels"], reduction="sum")
                (loss * dist.get_world_size() / batch.global_sum("learned")).backward()  # the mean of the step, over all ranks
                optimizer.step()
                optimizer.zero_grad()
                done, padding = done + 1, padding + batch.padding_ratio
                if done == arguments.steps:
                    break
        if dist.get_rank() == 0:
            print(f"{len(ds)} samples, {done} steps, padding {padding / done:.3f}, "
                  f"loss {loss.item() / int((batch['labels'] != -100).sum()):.3f}")
    del model, logits, loss  # one that outlives its process group can make torch's gloo hang
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
