# SPDX-License-Identifier: Apache-2.0
"""A folder of images with random crops: torchrun --nproc-per-node 2 images.py [DIRECTORY]

The loader's threads decode and crop stored files, and an epoch's crops are the same on any number of ranks. The folder is made here."""
import sys
from pathlib import Path
from typing import Any

import numpy
import torch
from PIL import Image
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

import rankstore

OUT = Path(sys.argv[1] if len(sys.argv) > 1 else "images.store")
FOLDER, CLASSES, SIDE = OUT.with_suffix(".images"), ("blue", "red"), 24  # pixels of a crop


def make_folder() -> None:
    random = numpy.random.default_rng(0)
    for i in range(200):
        (FOLDER / CLASSES[i % 2]).mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 90, (*random.integers(32, 48, 2), 3), numpy.uint8)
        pixels[8:28, 8:28, 2 * (i % 2 == 0)] = 250
        Image.fromarray(pixels).save(FOLDER / CLASSES[i % 2] / f"{i:03}.png")


def cropped(sample: dict[str, Any], rng: numpy.random.Generator) -> dict[str, Any]:
    top, left = (rng.integers(size - SIDE + 1) for size in sample["data"].shape[:2])
    return {"image": sample["data"][top:top + SIDE, left:left + SIDE], "label": CLASSES.index(sample["path"].split("/")[0])}


def main() -> None:
    distributed.init_process_group("gloo")
    if distributed.get_rank() == 0:
        make_folder()
    distributed.barrier()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)))
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    with rankstore.build(FOLDER, OUT) as ds:
        loader = ds.loader(ds.plan(batch_size=20), collate=rankstore.Pad(), decode={"data": "image"}, map=cropped, threads=2)
        for epoch in range(3):
            seen = torch.zeros(2, dtype=torch.int64)
            for batch in loader:
                scores = model(batch["image"].permute(0, 3, 1, 2) / 255)
                nn.functional.cross_entropy(scores, batch["label"]).backward()
                optimizer.step()
                optimizer.zero_grad()
                seen += torch.stack([(scores.argmax(1) == batch["label"]).sum(), batch["image"].sum(dtype=torch.int64)])
            distributed.all_reduce(seen)
            if ds.group.rank == 0:
                print(f"epoch {epoch}: {int(seen[0])} of {len(ds)} right, sum of all crops {int(seen[1])}")


if __name__ == "__main__":
    main()
