# SPDX-License-Identifier: Apache-2.0
"""Pictures: JPEG files of about 100 KB, and batches of them, decoded."""
from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import torch
from batches import Loaded, Source
from ours import COLUMN, Rankstore
from stores import Store
from workload import BATCH, Workload

HEIGHT, WIDTH = 384, 512
FAR = 0.5  # so much may the mean of a picture's values be off


def make(folder: Path, count: int) -> Any:
    """int64[count]: sizes of pictures, which lie one behind the other in the folder's source.bin. The means of their values, decoded, are
    in means.npy."""
    sizes = folder / "sizes.npy"
    if not sizes.exists():
        from PIL import Image
        folder.mkdir(parents=True, exist_ok=True)
        random, found, means = numpy.random.default_rng(31), [], []
        with open(folder / "source.partial", "wb") as file:
            for _ in range(count):
                coarse = Image.fromarray(random.integers(0, 256, (12, 16, 3), numpy.uint8))
                smooth = numpy.asarray(coarse.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC))
                values = numpy.clip(smooth + random.normal(0, 24, (HEIGHT, WIDTH, 1)), 0, 255).astype(numpy.uint8)
                encoded = io.BytesIO()
                Image.fromarray(values).save(encoded, "JPEG", quality=88)
                found.append(file.write(encoded.getvalue()))
                means.append(float(stack([encoded.getvalue()]).float().mean()))
        os.replace(folder / "source.partial", folder / "source.bin")
        numpy.save(folder / "means.npy", means)
        numpy.save(sizes, numpy.array(found, numpy.int64))
    return numpy.load(sizes)


def stack(samples: list[Any]) -> torch.Tensor:
    """uint8[n, HEIGHT, WIDTH, 3] of JPEG files, by Pillow."""
    from PIL import Image
    made = torch.empty((len(samples), HEIGHT, WIDTH, 3), dtype=torch.uint8)
    for row, sample in zip(made.numpy(), samples):
        row[:] = numpy.asarray(Image.open(io.BytesIO(sample)).convert("RGB"))
    return made


def stack_decoded(samples: list[dict[str, Any]]) -> torch.Tensor:
    """Of what Rankstore has decoded, by Pillow, too."""
    return torch.from_numpy(numpy.stack([sample[COLUMN] for sample in samples]))


class Decoded(Source):
    """Batches are uint8[n, HEIGHT, WIDTH, 3]."""

    def __init__(self, batches: Any) -> None:
        super().__init__(is_tokens=False)
        self.batches = batches

    def items(self, batch: Any) -> int:
        """Pictures; one value of each is read."""
        return int((batch[:, 0, 0, 0] >= 0).sum())

    def means(self) -> Iterator[float]:
        for batch in self.batches:
            yield from batch.float().mean((1, 2, 3)).tolist()


def source_of(store: Store, workers: int) -> Decoded:
    batches = store.workload.random_batches(9)
    if isinstance(store, Rankstore):
        store.open()
        plan = store.dataset.plan("random", batch_size=BATCH, tail="split")
        return Decoded(store.dataset.loader(plan, collate=stack_decoded, decode="image", threads=workers))
    return Decoded(Loaded(store, batches, workers, stack).batches)


def check(source: Decoded, workload: Workload, who: str) -> None:
    """ValueError if an epoch has other pictures than it should, by the means of their values."""
    wanted = sorted(numpy.load(workload.folder / "means.npy").tolist())
    found = sorted(source.means())
    if len(found) != len(wanted) or not numpy.allclose(found, wanted, rtol=0, atol=FAR):
        raise ValueError(f"{who} gave {len(found)} pictures, wanted {len(wanted)}, or they differ: it has lost, doubled or changed some")
