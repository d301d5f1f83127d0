# SPDX-License-Identifier: Apache-2.0
"""The data that every store is given: made once from a seed, kept as one flat file, and told apart by checksums.

tokens: uint16 arrays, log-normal lengths (median 300, 8 to 8192). blobs: incompressible bytes of about 103 KB. images: JPEG files of
about 100 KB.
"""
from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

Array = numpy.ndarray[Any, Any]
SAMPLES = {"tokens": 300_000, "blobs": 16_000, "images": 640}
QUICK_SAMPLES = {"tokens": 4_000, "blobs": 320, "images": 128}
QUICK_BLOB = 4_000  # bytes, in place of 100,000
VOCABULARY = 50_257
BATCH = 64


def token_lengths(count: int, seed: int) -> Array:
    """int64[count]: what texts of a language model's corpus look like."""
    drawn = numpy.random.default_rng(seed).lognormal(numpy.log(300), 1.0, count)
    return numpy.clip(drawn, 8, 8192).astype(numpy.int64)


@dataclass(frozen=True)
class Place:
    """Where the run keeps its data, and whether it is a quick one."""

    folder: Path
    quick: bool

    def workload(self, kind: str) -> Workload:
        return Workload(self, kind)


class Workload:
    """Samples 0..count-1 of a kind. `values` holds all of them, sample i being values[offsets[i]:offsets[i + 1]]."""

    def __init__(self, place: Place, kind: str) -> None:
        self.place, self.kind = place, kind
        self.count = (QUICK_SAMPLES if place.quick else SAMPLES)[kind]
        self.dtype = numpy.dtype(numpy.uint16 if kind == "tokens" else numpy.uint8)
        self.folder = place.folder / ("quick" if place.quick else "full") / kind
        if kind == "tokens":
            self.lengths = token_lengths(self.count, 20261121)
        elif kind == "images":
            import pictures
            self.lengths = pictures.make(self.folder, self.count)
        else:
            drawn = numpy.random.default_rng(20261122).lognormal(numpy.log(QUICK_BLOB if place.quick else 100_000), 0.25, self.count)
            self.lengths = numpy.clip(drawn, 1000, None).astype(numpy.int64)
        self.offsets = numpy.concatenate([[0], numpy.cumsum(self.lengths)])
        self.bytes = int(self.offsets[-1]) * self.dtype.itemsize
        self.values = self._values()

    def _values(self) -> Array:
        path = self.folder / "source.bin"
        if not path.exists() or path.stat().st_size != self.bytes:
            self.folder.mkdir(parents=True, exist_ok=True)
            random = numpy.random.default_rng(7)
            partial = path.with_suffix(".partial")
            with open(partial, "wb") as file:
                for left in range(int(self.offsets[-1]), 0, -(1 << 24)):
                    size = min(left, 1 << 24)
                    if self.kind == "tokens":
                        file.write(random.integers(0, VOCABULARY, size, dtype=numpy.uint16).tobytes())
                    else:
                        file.write(random.bytes(size))
            os.replace(partial, path)
        return numpy.asarray(numpy.memmap(path, self.dtype, "r"))  # a plain array: memmap's own slicing is slow

    def store(self, name: str) -> Path:
        """The folder of a store's files."""
        return self.folder / name

    def sample(self, i: int) -> Any:
        """uint16[...] without a copy, or bytes."""
        found = self.values[self.offsets[i]:self.offsets[i + 1]]
        return found if self.kind == "tokens" else found.tobytes()

    def samples(self) -> Iterator[Any]:
        """All of them, in order."""
        edges = self.offsets.tolist()
        for begin, end in zip(edges, edges[1:]):
            yield self.values[begin:end] if self.kind == "tokens" else self.values[begin:end].tobytes()

    def key(self, i: int) -> str:
        return f"doc-{i:09d}"

    def random_order(self, seed: int) -> list[int]:
        found: list[int] = numpy.random.default_rng(seed).permutation(self.count).tolist()
        return found

    def sorted_batches(self, seed: int) -> list[list[int]]:
        """Batches of like length, themselves in random order; the last one may be small."""
        order = numpy.argsort(self.lengths, kind="stable").tolist()
        batches = [order[i:i + BATCH] for i in range(0, self.count, BATCH)]
        return [batches[i] for i in numpy.random.default_rng(seed).permutation(len(batches))]

    def random_batches(self, seed: int) -> list[list[int]]:
        order = self.random_order(seed)
        return [order[i:i + BATCH] for i in range(0, self.count, BATCH)]

    def digest(self, ids: Any = None) -> Digest:
        """Of some samples (all), whatever their order."""
        found = Digest()
        for i in range(self.count) if ids is None else ids:
            found.add(self.values[self.offsets[i]:self.offsets[i + 1]])
        return found


class Digest:
    """Tells two sets of samples apart, whatever their order: count, items, and the sum of checksums."""

    def __init__(self) -> None:
        self.samples = self.items = self.sum = 0

    def add(self, sample: Any) -> None:
        """An array or bytes."""
        self.samples += 1
        self.items += len(sample)
        self.sum += zlib.crc32(memoryview(sample).cast("B"))

    def check(self, wanted: Digest, who: str) -> None:
        """ValueError where the sets differ."""
        mine, theirs = vars(self), vars(wanted)
        if mine != theirs:
            raise ValueError(f"{who} gave {mine}, wanted {theirs}: it has lost, doubled or changed samples")
