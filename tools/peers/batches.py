# SPDX-License-Identifier: Apache-2.0
"""Batches for a training loop: samples padded into one int64 tensor, or bytes one behind the other, in this process or through
torch's DataLoader."""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import numpy
import torch
from ours import COLUMN, Rankstore
from stores import Store
from workload import BATCH, Digest, Workload

Made = tuple[torch.Tensor, torch.Tensor]
WORKERS = 2


def pad(samples: list[Any]) -> Made:
    """(int64[n, longest], int64[n] of lengths), padded with 0."""
    lengths = [len(sample) for sample in samples]
    made = torch.zeros((len(lengths), max(lengths)), dtype=torch.int64)
    for row, sample, length in zip(made.numpy(), samples, lengths):
        row[:length] = sample
    return made, torch.tensor(lengths)


def join(samples: list[Any]) -> Made:
    """(uint8[total], int64[n] of lengths): one copy."""
    arrays = [numpy.frombuffer(sample, numpy.uint8) for sample in samples]
    return torch.from_numpy(numpy.concatenate(arrays)), torch.tensor([len(array) for array in arrays])


def padded_rows(batch: Made) -> Iterator[Any]:
    """The samples of a padded batch, as they were stored."""
    for row, length in zip(batch[0].numpy(), batch[1].tolist()):
        yield row[:length].astype(numpy.uint16)


def joined_parts(batch: Made) -> Iterator[Any]:
    values, at = batch[0].numpy(), 0
    for length in batch[1].tolist():
        yield values[at:at + length]
        at += length


class MapStyle:
    """A map-style dataset over a store, which is opened in the process that reads, or before where it must be."""

    def __init__(self, store: Store) -> None:
        self.store, self.opened = store, store.before_fork
        if self.opened:
            store.open()

    def __len__(self) -> int:
        return self.store.workload.count

    def __getitems__(self, ids: list[int]) -> list[Any]:
        if not self.opened:
            self.store.open()
            self.opened = True
        return self.store.read_many(ids)


class Some:
    """The first batches of a batch sampler."""

    def __init__(self, sampler: Iterable[Any], count: int) -> None:
        self.sampler, self.count = sampler, count

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.sampler), self.count)

    def __len__(self) -> int:
        return self.count


class Source:
    """Where a contestant's batches come from. Iterating gives an epoch's batches; `sizes` and `samples` look into one."""

    batches: Iterable[Any]
    ids: Any = None  # the samples of an epoch; None: all

    def __init__(self, is_tokens: bool) -> None:
        self.is_tokens = is_tokens

    def items(self, batch: Any) -> int:
        """Real tokens or bytes."""
        return int(batch[1].sum())

    def samples(self, batch: Any) -> Iterator[Any]:
        return padded_rows(batch) if self.is_tokens else joined_parts(batch)

    def digest(self) -> Digest:
        """Of all samples of an epoch."""
        found = Digest()
        for batch in self.batches:
            for sample in self.samples(batch):
                found.add(sample)
        return found


class InProcess(Source):
    """A peer's samples, read and collated by the loop itself."""

    def __init__(self, store: Store, batches: list[list[int]]) -> None:
        super().__init__(store.is_tokens)
        self.store, self.lists, self.batches = store, batches, self
        self.collate = pad if store.is_tokens else join
        store.open()

    def __iter__(self) -> Iterator[Made]:
        for ids in self.lists:
            yield self.collate(self.store.read_many(ids))


class Loaded(Source):
    """A peer's samples through torch's DataLoader, or its own loader where it has one for shuffled samples."""

    def __init__(self, store: Store, batches: list[list[int]], workers: int, collate: Any = None) -> None:
        super().__init__(store.is_tokens)
        collate = collate or (pad if store.is_tokens else join)
        own = None if store.is_tokens else store.loader(workers, collate)
        if own is not None:
            self.batches = own
            return
        self.ids = numpy.concatenate(batches)
        own = store.pipeline(batches, workers, collate) if workers else None
        if own is not None:
            self.batches = own
            return
        from torch.utils.data import DataLoader
        self.batches = DataLoader(MapStyle(store), batch_sampler=batches, num_workers=workers, collate_fn=collate,  # type: ignore[arg-type]
                                  persistent_workers=workers > 0)


class Ours(Source):
    """Rankstore's batches: `workers` None is its own loader, else torch's DataLoader over its sampler."""

    def __init__(self, store: Rankstore, workers: int | None, count: int | None) -> None:
        super().__init__(store.is_tokens)
        import rankstore
        store.open()
        # As the peers' collates make them: no mask, no rounding of widths.
        layout: Any = rankstore.Pad(mask=None, to_multiple=1) if self.is_tokens else rankstore.Lists()
        plan = store.dataset.plan("bucket" if self.is_tokens else "random", batch_size=BATCH, tail="split")
        if workers is None:
            self.batches = store.dataset.loader(plan, collate=layout)
            return
        from torch.utils.data import DataLoader
        sampler: Any = plan.sampler("rank")
        if count is not None and count < len(sampler):
            sampler, self.ids = Some(sampler, count), plan.epoch(0).batches(last=count)[1]
        dataset = store.dataset.collating(layout)
        self.batches = DataLoader(dataset, batch_sampler=sampler, num_workers=workers, collate_fn=dataset.collate,  # type: ignore[arg-type]
                                  persistent_workers=workers > 0)

    def items(self, batch: Any) -> int:
        return int(batch.lengths.sum())

    def samples(self, batch: Any) -> Iterator[Any]:
        if self.is_tokens:
            return padded_rows((batch[COLUMN], batch.lengths))
        return iter(batch[COLUMN])


def check(source: Source, workload: Workload, who: str) -> None:
    """ValueError where an epoch of the source has other samples than it should."""
    source.digest().check(workload.digest(source.ids), who)
