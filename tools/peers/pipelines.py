# SPDX-License-Identifier: Apache-2.0
"""Peers that bring a loader of their own: as stores where they have files of their own, else over a memmap's files."""
from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from stores import ENDINGS, STORES, Memmap, OfColumn, Store, WebDataset
from workload import BATCH

AHEAD = 8  # batches that a loader of threads makes ahead


class Maker:
    """Makes a batch of given samples, in whatever thread calls it."""

    def __init__(self, store: Store, collate: Any) -> None:
        store.open()
        self.store, self.collate = store, collate

    def __call__(self, ids: Any) -> Any:
        return self.collate(self.store.read_many(ids))


class Epochs:
    """Iterating calls `begin`, which gives an epoch's iterator."""

    def __init__(self, begin: Callable[[], Iterator[Any]]) -> None:
        self.begin = begin

    def __iter__(self) -> Iterator[Any]:
        return self.begin()


class Spdl(Memmap):
    """SPDL: a pipeline of threads; reads a memmap's files."""

    module = "spdl.pipeline"
    files_of = "memmap"

    def pipeline(self, batches: list[list[int]], workers: int, collate: Any) -> Any:
        make = Maker(self, collate)
        return Epochs(lambda: self._epoch(batches, make, workers))

    @staticmethod
    def _epoch(batches: list[Any], make: Callable[[Any], Any], workers: int) -> Iterator[Any]:
        from spdl.pipeline import PipelineBuilder
        builder = PipelineBuilder().add_source(batches).pipe(make, concurrency=workers, output_order="input").add_sink(AHEAD)
        pipeline = builder.build(num_threads=workers)
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()


class TorchdataNodes(Memmap):
    """torchdata.nodes: a ParallelMapper of threads; reads a memmap's files."""

    module = "torchdata.nodes"
    files_of = "memmap"

    def pipeline(self, batches: list[list[int]], workers: int, collate: Any) -> Any:
        from torchdata.nodes import IterableWrapper, Loader, ParallelMapper, Prefetcher
        mapped = ParallelMapper(IterableWrapper(batches), Maker(self, collate), num_workers=workers, method="thread")
        return Loader(Prefetcher(mapped, prefetch_factor=AHEAD))


class Grain(Store):
    """Grain: an ArrayRecord file, read by threads."""

    module = "grain"

    def _file(self) -> str:
        return str(self.path / "data.array_record")

    def write(self) -> None:
        from array_record.python.array_record_module import ArrayRecordWriter
        writer = ArrayRecordWriter(self._file(), "group_size:1")
        for sample in self.workload.samples():
            writer.write(self.encode(sample))
        writer.close()

    def open(self) -> None:
        from array_record.python.array_record_data_source import ArrayRecordDataSource
        self._source = ArrayRecordDataSource([self._file()])

    def read(self, i: int) -> Any:
        return self.decode(self._source[i])

    def read_many(self, ids: Any) -> list[Any]:
        return [self.decode(found) for found in self._source.__getitems__(list(ids))]

    def pipeline(self, batches: list[list[int]], workers: int, collate: Any) -> Any:
        import grain
        options = grain.ReadOptions(num_threads=workers, prefetch_buffer_size=AHEAD)
        return grain.MapDataset.source(batches).map(Maker(self, collate)).to_iter_dataset(options)


class Lance(Store):
    """Lance, LanceDB's files: rows are taken by number; its loader is SafeLanceDataset in worker processes that are spawned."""

    module = "lance"

    def _uri(self) -> str:
        return str(self.path / "data.lance")

    def write(self) -> None:
        import lance
        import pyarrow
        kind = pyarrow.list_(pyarrow.uint16()) if self.is_tokens else pyarrow.large_binary()
        schema = pyarrow.schema([("x", kind)])

        def chunks() -> Iterator[Any]:
            edges, values = self.workload.offsets, self.workload.values
            each = 8192 if self.is_tokens else BATCH
            for first in range(0, self.workload.count, each):
                some = edges[first:first + each + 1]
                part = values[some[0]:some[-1]]
                if self.is_tokens:
                    column = pyarrow.ListArray.from_arrays((some - some[0]).astype("int32"), pyarrow.array(part))
                else:
                    column = pyarrow.Array.from_buffers(kind, len(some) - 1, [None, pyarrow.py_buffer(some - some[0]),
                                                                              pyarrow.py_buffer(part)])
                yield pyarrow.record_batch([column], schema=schema)

        lance.write_dataset(chunks(), self._uri(), schema=schema)

    def open(self) -> None:
        import lance
        self._dataset = lance.dataset(self._uri())

    def read(self, i: int) -> Any:
        return self.read_many([i])[0]

    def read_many(self, ids: list[int]) -> list[Any]:
        column = self._dataset.take(list(ids), columns=["x"]).column("x")
        return [value.values.to_numpy() for value in column] if self.is_tokens else column.to_pylist()

    def pipeline(self, batches: list[list[int]], workers: int, collate: Any) -> Any:
        import torch
        from lance.torch.data import SafeLanceDataset
        spawned = {"multiprocessing_context": "spawn", "persistent_workers": True} if workers else {}
        return torch.utils.data.DataLoader(SafeLanceDataset(self._uri()), batch_sampler=batches, num_workers=workers,  # type: ignore[arg-type]
                                           collate_fn=OfColumn(collate), **spawned)  # type: ignore[arg-type]


class Ray(Store):
    """Ray Data: Parquet files, its own tasks on two processors, and a shuffle buffer of 1,000."""

    module = "ray"
    random = False

    def write(self) -> None:
        import pyarrow
        import pyarrow.parquet
        each = max(1, self.workload.count // 16)
        samples = self.workload.samples()
        for number, first in enumerate(range(0, self.workload.count, each)):
            some = [self.encode(sample) for _, sample in zip(range(min(each, self.workload.count - first)), samples)]
            pyarrow.parquet.write_table(pyarrow.table({"x": pyarrow.array(some, pyarrow.binary())}),
                                        self.path / f"{number:04d}.parquet", row_group_size=BATCH, compression="none",
                                        use_dictionary=False)

    def _rows(self) -> Any:
        import logging

        import ray
        if not ray.is_initialized():
            os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_DATA_DISABLE_PROGRESS_BARS="1")
            folder = tempfile.mkdtemp(prefix="ray-")
            ENDINGS.append(lambda: shutil.rmtree(folder, ignore_errors=True))
            ENDINGS.append(ray.shutdown)
            ray.init(num_cpus=2, include_dashboard=False, object_store_memory=1 << 30, log_to_driver=False,
                     logging_level=logging.ERROR, _temp_dir=folder)
            ray.data.DataContext.get_current().enable_progress_bars = False
        return ray.data.read_parquet(str(self.path))

    def open(self) -> None:
        self._samples = iter(self._rows().iter_rows())

    def read(self, i: int) -> Any:
        """The next one, whatever the number."""
        return self.decode(next(self._samples)["x"])

    def loader(self, workers: int, collate: Any) -> Any:
        rows = self._rows()

        def begin() -> Iterator[Any]:
            for batch in rows.iter_batches(batch_size=BATCH, batch_format="pyarrow", local_shuffle_buffer_size=1000, prefetch_batches=4):
                yield collate([self.decode(value) for value in batch["x"].to_pylist()])
        return Epochs(begin)


class Energon(WebDataset):
    """NVIDIA Energon: WebDataset's tar files with its own index, a shuffle buffer of 1,000, worker processes."""

    module = "megatron.energon"

    def write(self) -> None:
        super().write()
        from megatron.energon.flavors.webdataset.base_webdataset import BaseWebdatasetFactory
        names = [Path(path).name for path in self._shards()]
        BaseWebdatasetFactory.prepare_dataset(self.path, names, split_parts_ratio=[("train", 1.0)], shuffle_seed=None, workers=1)
        (self.path / ".nv-meta" / "dataset.yaml").write_text(
            "__module__: megatron.energon\n__class__: CrudeWebdataset\n", encoding="utf-8")

    def loader(self, workers: int, collate: Any) -> Any:
        from megatron.energon import Cooker, DefaultTaskEncoder, WorkerConfig, get_loader, get_train_dataset, stateless
        decode = self.decode

        @stateless
        def cook(sample: dict[str, Any]) -> Any:
            return sample

        class Encoder(DefaultTaskEncoder):  # type: ignore[misc]
            cookers = [Cooker(cook)]
            decoder = None

            def encode_sample(self, sample: Any) -> Any:
                return sample

            def batch(self, samples: list[Any]) -> Any:
                return collate([decode(sample["bin"]) for sample in samples])

            def encode_batch(self, batch: Any) -> Any:
                return batch

        def begin() -> Iterator[Any]:
            config = WorkerConfig(rank=0, world_size=1, num_workers=workers)
            dataset = get_train_dataset(self.path, worker_config=config, batch_size=BATCH, shuffle_buffer_size=1000,
                                        max_samples_per_sequence=None, task_encoder=Encoder(), repeat=False)
            yield from get_loader(dataset)
        return Epochs(begin)


STORES.update({"SPDL": Spdl, "torchdata nodes": TorchdataNodes, "Grain": Grain, "Lance": Lance, "Ray Data": Ray, "Energon": Energon})
