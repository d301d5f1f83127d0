# SPDX-License-Identifier: Apache-2.0
"""The whole job on a GPU, under torchrun: a build, an exchange by NCCL, a plan that all ranks share, `device="cuda"`, a model in
DistributedDataParallel under bfloat16, and results on the GPU gathered on rank 0. The process group has NCCL alone.

Usage: torchrun --nproc-per-node N tests/gpu/job.py DATASET      ranks share a GPU, each a node of its own; rank 0 prints a sentence
"""
import os
import sys

RANK = int(os.environ["RANK"])
os.environ.update(NCCL_HOSTID=f"rank-{RANK}", RKS_NODE=f"rank-{RANK}")  # before torch loads NCCL

import numpy  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import rankstore  # noqa: E402

SAMPLES, VOCABULARY, EPOCHS = 3000, 1000, 2


def learned(sample):
    return len(sample["input_ids"]) - 1


def of_this_rank(world):
    for i in range(RANK, SAMPLES, world):
        yield {"input_ids": (numpy.arange(2 + i * 37 % 300) + i) % VOCABULARY, "number": i}


def train(loader, model, optimizer, world):
    """{number of a sample: its loss}, on the GPU, and the loss of each step."""
    each, of_steps = {}, []
    for batch in loader:
        ids, mask = batch["input_ids"], batch["attention_mask"]
        assert ids.device.type == "cuda" and mask.device.type == "cuda"
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(ids[:, :-1])
            targets = ids[:, 1:].masked_fill(mask[:, 1:] == 0, -100)
            losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none").sum(1)
        loss = losses.sum() * world / batch.global_sum("learned")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        each.update(zip(batch["number"].tolist(), losses.detach().to(torch.bfloat16)))
        of_steps.append(float(loss.detach()))
    return each, of_steps


def main():
    dist.init_process_group("nccl")
    torch.cuda.set_device(0)
    torch.manual_seed(0)
    world = dist.get_world_size()
    model = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, 256), torch.nn.Linear(256, VOCABULARY)).cuda()
    model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    with rankstore.build(of_this_rank(world), sys.argv[1], length="input_ids", count={"learned": learned}, progress=False) as built:
        assert len(built) == SAMPLES
    with rankstore.open(sys.argv[1], exchange="nccl") as ds:
        assert ds.stats()["exchange"] == "nccl", ds.stats()
        loader = ds.loader(ds.plan("bucket", max_tokens=4096, seed=1), collate=rankstore.Pad(), device="cuda")
        steps = []
        for epoch in range(EPOCHS):
            loader.set_epoch(epoch)
            each, of_steps = train(loader, model, optimizer, world)
            steps += of_steps
            whole = rankstore.gather({"losses": list(each.items())}, dst=0)
            if RANK == 0:
                assert [index for index, _ in whole["losses"]] == list(range(SAMPLES)), "a sample was lost, or came twice"
                assert all(one.dtype == torch.bfloat16 and bool(one.isfinite()) for _, one in whole["losses"])
                assert whole["losses"][next(iter(each))][1] == each[next(iter(each))].cpu()
        weights = [torch.zeros_like(model.module[1].bias) for _ in range(world)]
        dist.all_gather(weights, model.module[1].bias.detach())
        assert all(torch.equal(one, weights[0]) for one in weights)
        assert steps[-1] < steps[0] / 2, (steps[0], steps[-1])
        if RANK == 0:
            print(f"{world} ranks, {EPOCHS} epochs of {SAMPLES} samples, each once; loss {steps[0]:.2f} to {steps[-1]:.2f}; gathered from "
                  f"the GPU: {len(whole['losses'])} results; at most {loader.stats()['device_peak_bytes']} bytes on the device ahead")
    rankstore.current().close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
