# SPDX-License-Identifier: Apache-2.0
"""The peers, each as its own manual has it: a class writes samples, opens what it wrote, and reads samples by number.

What is written is not synced to disk, as these libraries do by default. Where one needs a setting to do well, it has it.
"""
from __future__ import annotations

import contextlib
import importlib.machinery
import os
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
from workload import BATCH, Place, Workload


class Store:
    """A peer. `module` is what it imports; `random`: it can read any sample; `before_fork`: workers inherit it open."""

    module = "numpy"
    random = True
    before_fork = False
    files_of: str | None = None  # the peer whose files it reads, if it has none of its own

    def __init__(self, workload: Workload, path: Path) -> None:
        self.workload, self.path = workload, path
        self.is_tokens = workload.kind == "tokens"

    def write(self) -> None:
        """Writes all samples into the empty folder `path`."""
        raise NotImplementedError

    def open(self) -> None:
        raise NotImplementedError

    def read(self, i: int) -> Any:
        """uint16[...] or bytes: sample i, which may be a view."""
        raise NotImplementedError

    def read_many(self, ids: list[int]) -> list[Any]:
        return [self.read(i) for i in ids]

    def loader(self, workers: int, collate: Any) -> Any:
        """The peer's own shuffling loader of batches, or None."""
        return None

    def pipeline(self, batches: list[list[int]], workers: int, collate: Any) -> Any:
        """The peer's own way to make these batches ahead, or None: a DataLoader over read_many then."""
        return None

    def decode(self, data: Any) -> Any:
        return numpy.frombuffer(data, numpy.uint16) if self.is_tokens else data

    def encode(self, sample: Any) -> bytes:
        return bytes(sample.tobytes()) if self.is_tokens else sample


class Memmap(Store):
    """A flat file and an array of offsets, as Megatron's: no keys, no checks, no names of columns."""

    synced = False

    def write(self) -> None:
        with open(self.path / "values.bin", "wb") as file:
            for sample in self.workload.samples():
                file.write(sample)
            if self.synced:
                file.flush()
                os.fdatasync(file.fileno())
        numpy.save(self.path / "offsets.npy", self.workload.offsets)

    def open(self) -> None:
        self._edges = memoryview(numpy.load(self.path / "offsets.npy"))  # its items are ints at once, an array's are not
        mapped = numpy.memmap(self.path / "values.bin", self.workload.dtype, "r")
        self._values = numpy.asarray(mapped)  # slicing a plain array is several times faster

    def read(self, i: int) -> Any:
        found = self._values[self._edges[i]:self._edges[i + 1]]
        return found if self.is_tokens else found.tobytes()


class MemmapSynced(Memmap):
    """The same, on disk when it is done: what the disk allows."""

    synced = True


class Lmdb(Store):
    """py-lmdb: a record a sample, 1,000 a transaction; read in one long transaction, without a copy for tokens."""

    module = "lmdb"
    synced = False

    def write(self) -> None:
        import lmdb
        with lmdb.open(str(self.path), map_size=1 << 36, sync=self.synced, metasync=self.synced) as env:
            txn = env.begin(write=True)
            for i, sample in enumerate(self.workload.samples()):
                txn.put(self.workload.key(i).encode(), self.encode(sample), append=True)
                if i % 1000 == 999:
                    txn.commit()
                    txn = env.begin(write=True)
            txn.commit()

    def open(self) -> None:
        import lmdb
        self._env = lmdb.open(str(self.path), readonly=True, lock=False, readahead=False, meminit=False)
        self._txn = self._env.begin(buffers=True)

    def read(self, i: int) -> Any:
        found = self._txn.get(b"doc-%09d" % i)
        return numpy.frombuffer(found, numpy.uint16) if self.is_tokens else bytes(found)


class LmdbSynced(Lmdb):
    """The same with its default, a sync a transaction."""

    synced = True


class Streaming(Store):
    """MosaicML streaming, MDS shards in a local folder."""

    module = "streaming"
    before_fork = True

    @staticmethod
    def prepare() -> None:
        """Its vision datasets import torchvision, which nothing here uses: empty modules stand in."""
        with contextlib.suppress(ImportError):
            import torchvision  # noqa: F401
            return
        for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.functional", "torchvision.datasets"):
            module: Any = types.ModuleType(name)
            module.__spec__, module.__path__ = importlib.machinery.ModuleSpec(name, None), []
            sys.modules[name] = module
        sys.modules["torchvision.datasets"].VisionDataset = object  # type: ignore[attr-defined]
        sys.modules["torchvision.transforms.functional"].to_tensor = None  # type: ignore[attr-defined]

    def write(self) -> None:
        self.prepare()
        from streaming import MDSWriter
        columns = {"key": "str", "x": "ndarray:uint16" if self.is_tokens else "bytes"}
        with MDSWriter(out=str(self.path), columns=columns) as writer:
            for i, sample in enumerate(self.workload.samples()):
                writer.write({"key": self.workload.key(i), "x": sample})

    def _dataset(self, shuffle: bool) -> Any:
        self.prepare()
        from streaming import StreamingDataset
        from streaming.base.util import clean_stale_shared_memory
        clean_stale_shared_memory()
        return StreamingDataset(local=str(self.path), shuffle=shuffle, batch_size=BATCH)

    def open(self) -> None:
        self._samples = self._dataset(shuffle=False)

    def read(self, i: int) -> Any:
        return self._samples[i]["x"]

    def loader(self, workers: int, collate: Any) -> Any:
        from torch.utils.data import DataLoader
        return DataLoader(self._dataset(shuffle=True), batch_size=BATCH, num_workers=workers, persistent_workers=workers > 0,
                          collate_fn=OfColumn(collate))


class OfColumn:
    """A collate of samples, given dicts."""

    def __init__(self, collate: Any) -> None:
        self.collate = collate

    def __call__(self, rows: list[dict[str, Any]]) -> Any:
        return self.collate([row["x"] for row in rows])


class LitData(Store):
    """LitData: optimize with one worker, chunks of 64 MB in a local folder."""

    module = "litdata"

    def write(self) -> None:
        import litdata
        litdata.optimize(fn=LitSamples(self.workload.place, self.workload.kind), inputs=[0], output_dir=str(self.path),
                         chunk_bytes="64MB", num_workers=1, mode="overwrite", verbose=False)

    def open(self) -> None:
        from litdata import StreamingDataset
        # By default a random read decodes a window of neighbours, too.
        self._samples = StreamingDataset(str(self.path), batch_decode=False)

    def read(self, i: int) -> Any:
        return self._samples[i]["x"]

    def loader(self, workers: int, collate: Any) -> Any:
        from litdata import StreamingDataLoader, StreamingDataset
        return StreamingDataLoader(StreamingDataset(str(self.path), shuffle=True), batch_size=BATCH, num_workers=workers,
                                   persistent_workers=workers > 0, collate_fn=OfColumn(collate))


class LitSamples:
    """What LitData's worker process calls: it makes the samples there, since a closure cannot be pickled."""

    def __init__(self, place: Place, kind: str) -> None:
        self.place, self.kind = place, kind

    def __call__(self, _: Any) -> Iterator[dict[str, Any]]:
        workload = self.place.workload(self.kind)
        for i, sample in enumerate(workload.samples()):
            yield {"key": workload.key(i), "x": sample}


class WebDataset(Store):
    """WebDataset: 16 tar files, read in sequence through a shuffle buffer of 1,000; it has no access by number."""

    module = "webdataset"
    random = False

    def write(self) -> None:
        import webdataset
        each = max(1, self.workload.count // 16)
        with webdataset.ShardWriter(f"{self.path}/%04d.tar", maxcount=each, maxsize=1 << 40, verbose=0) as writer:
            for i, sample in enumerate(self.workload.samples()):
                writer.write({"__key__": self.workload.key(i), "bin": self.encode(sample)})

    def _shards(self) -> list[str]:
        return sorted(str(path) for path in self.path.glob("*.tar"))

    def open(self) -> None:
        import webdataset
        self._samples = iter(webdataset.WebDataset(self._shards(), shardshuffle=False))

    def read(self, i: int) -> Any:
        """The next one, whatever the number."""
        found = next(self._samples, None)
        if found is None:
            self.open()
            found = next(self._samples)
        return self.decode(found["bin"])

    def loader(self, workers: int, collate: Any) -> Any:
        import webdataset
        samples = webdataset.WebDataset(self._shards(), shardshuffle=16).shuffle(1000).map(self._one)
        return webdataset.WebLoader(samples.batched(BATCH, collation_fn=collate), batch_size=None, num_workers=workers,
                                    persistent_workers=workers > 0)

    def _one(self, row: dict[str, Any]) -> Any:
        return self.decode(row["bin"])


class HuggingFace(Store):
    """Hugging Face datasets: an Arrow file, mapped."""

    module = "datasets"

    def write(self) -> None:
        from datasets import Features, List, Value
        from datasets.arrow_writer import ArrowWriter
        features = Features({"key": Value("string"), "x": List(Value("uint16")) if self.is_tokens else Value("binary")})
        with ArrowWriter(features=features, path=str(self.path / "data.arrow")) as writer:
            for i, sample in enumerate(self.workload.samples()):
                writer.write({"key": self.workload.key(i), "x": sample})
            writer.finalize()

    def open(self) -> None:
        from datasets import Dataset
        samples = Dataset.from_file(str(self.path / "data.arrow")).select_columns(["x"])
        self._samples = samples.with_format("numpy", dtype=numpy.uint16) if self.is_tokens else samples

    def read(self, i: int) -> Any:
        return self._samples[i]["x"]

    def read_many(self, ids: list[int]) -> list[Any]:
        return list(self._samples[ids]["x"])


# Their names in tables.
STORES: dict[str, type[Store]] = {
    "memmap": Memmap, "memmap synced": MemmapSynced, "py-lmdb": Lmdb, "py-lmdb synced": LmdbSynced, "streaming": Streaming,
    "LitData": LitData,
    "WebDataset": WebDataset, "HF datasets": HuggingFace,
}


# What must end before the process does: of a peer that has left processes or files behind.
ENDINGS: list[Callable[[], None]] = []


def end() -> None:
    while ENDINGS:
        with contextlib.suppress(Exception):
            ENDINGS.pop()()


def make(name: str, workload: Workload) -> Store:
    path = workload.store((STORES[name].files_of or name).replace(" ", "-").lower())
    return STORES[name](workload, path)


def size_on_disk(path: Path) -> int:
    return sum(os.stat(os.path.join(top, file)).st_blocks * 512 for top, _, files in os.walk(path) for file in files)
