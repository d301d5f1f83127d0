# SPDX-License-Identifier: Apache-2.0
"""Batches without padding: samples one behind the other, with labels, positions and where each sample begins."""
from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy
from ours import COLUMN, make_ours
from workload import BATCH, Array, Digest, Place, Workload

BATCHES = 200  # of a round of the peer

Flat = tuple[Any, Any, Any, Any]
"""Tensors: tokens, labels, positions, each int64[1, total], and int32[samples + 1], where samples begin."""


class Transformers:
    """transformers' DataCollatorWithFlattening over arrays of the source, which it is given without a copy."""

    def __init__(self, workload: Workload) -> None:
        from transformers import DataCollatorWithFlattening
        self.workload = workload
        self.collate = DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)
        self.lists = workload.random_batches(9)[:BATCHES]
        self.ids: list[int] | None = [i for ids in self.lists for i in ids]

    def __iter__(self) -> Iterator[Any]:
        sample = self.workload.sample
        for ids in self.lists:
            yield self.collate([{"input_ids": sample(i)} for i in ids])

    def flat(self, batch: Any) -> Flat:
        return batch["input_ids"], batch["labels"], batch["position_ids"], batch["cu_seq_lens_q"]


class Ours:
    """Rankstore's loader with Pack("flash"), which reads from its dataset and checks what it reads: an epoch."""

    def __init__(self, workload: Workload) -> None:
        import rankstore
        store = make_ours("Rankstore", workload)
        store.open()
        self.ids: list[int] | None = None
        self.loader: Iterable[Any] = store.dataset.loader(store.dataset.plan("random", batch_size=BATCH, tail="split"),
                                                          collate=rankstore.Pack("flash"))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loader)

    def flat(self, batch: Any) -> Flat:
        return batch[COLUMN], batch["labels"], batch["position_ids"], batch["cu_seq_lens_q"]


FLATTENERS: dict[str, Any] = {"transformers": Transformers, "Rankstore, loader": Ours}


class Flattening:
    """Batches of 64 shuffled token samples, collated in this process; work is tokens."""

    def __init__(self, place: Place, name: str) -> None:
        import torch
        torch.set_num_threads(1)
        workload = place.workload("tokens")
        self.batches, found = FLATTENERS[name](workload), Digest()
        self.notes: dict[str, Any] = {}
        for batch in self.batches:
            flat = self.batches.flat(batch)
            if [one.dtype for one in flat] != [torch.int64, torch.int64, torch.int64, torch.int32]:
                raise ValueError(f"{name}: types {[one.dtype for one in flat]}")
            check(name, *(one.reshape(-1).numpy() for one in flat), found)
        found.check(workload.digest(self.batches.ids), name)

    def round(self) -> tuple[float, float]:
        count = 0
        begun = time.perf_counter()
        for batch in self.batches:
            count += int(self.batches.flat(batch)[3][-1])
        return time.perf_counter() - begun, count


def check(name: str, tokens: Array, labels: Array, positions: Array, starts: Array, found: Digest) -> None:
    """ValueError if labels or positions do not follow from tokens and starts; adds the samples to `found`."""
    sizes = numpy.diff(starts)
    wanted = tokens.copy()
    wanted[starts[:-1]] = -100
    if starts[-1] != len(tokens) or (labels != wanted).any():
        raise ValueError(f"{name}: labels are not the tokens with -100 at the beginning of each sample")
    if (positions != numpy.arange(len(tokens)) - numpy.repeat(starts[:-1], sizes)).any():
        raise ValueError(f"{name}: positions do not count from 0 in each sample")
    for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist()):
        found.add(tokens[begin:end].astype(numpy.uint16))
