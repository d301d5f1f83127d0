# SPDX-License-Identifier: Apache-2.0
"""One of the ranks that exchange an index, or all samples, over gloo on this machine; rank 0 prints a JSON line a way and round.

Usage: ranks.py ROW FOLDER QUICK ROUNDS, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set.
"""
from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
import torch.distributed
from memory import peak_rss
from workload import Array, Place, token_lengths

INDEX, QUICK_INDEX = 1_000_000, 20_000  # entries, all ranks together
COLUMN = "length"


class Ranks:
    """This rank's part of an index: keys and lengths, and of Rankstore's dataset with the same lengths."""

    def __init__(self, place: Place) -> None:
        self.rank, self.world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self.count = (QUICK_INDEX if place.quick else INDEX) // self.world
        self.lengths = token_lengths(self.count, 100 + self.rank).astype(numpy.int32)
        self.keys = [f"doc-{self.rank * self.count + i:09d}" for i in range(self.count)]
        self.total = self._sum(int(self.lengths.sum()))
        self.folder = place.folder / ("quick" if place.quick else "full") / "index" / "rankstore"

    def _sum(self, number: int) -> int:
        """Of all ranks."""
        tensor = torch.tensor(number)
        torch.distributed.all_reduce(tensor)
        return int(tensor)

    def by_object(self) -> int:
        """Lists of (key, length), pickled; the sum of all lengths, as proof."""
        mine = list(zip(self.keys, self.lengths.tolist()))
        found: list[Any] = [None] * self.world
        torch.distributed.all_gather_object(found, mine)
        return sum(length for part in found for _, length in part)

    def by_tensors(self) -> int:
        """Lengths, and keys as bytes with their sizes: three all-gathers of tensors, padded to the largest rank's."""
        coded = [key.encode() for key in self.keys]
        keys, sizes = numpy.frombuffer(b"".join(coded), numpy.uint8), numpy.fromiter(map(len, coded), numpy.uint8, len(coded))
        lengths = self._gather(self.lengths)
        self._gather(sizes), self._gather(keys)
        return sum(int(part.sum(dtype=torch.int64)) for part in lengths)

    def _gather(self, array: Array) -> list[torch.Tensor]:
        counts = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world)]
        torch.distributed.all_gather(counts, torch.tensor([len(array)]))
        most = max(int(count) for count in counts)
        kind = torch.from_numpy(array[:0].copy()).dtype
        mine = torch.zeros(most, dtype=kind)
        mine[:len(array)] = torch.from_numpy(array.copy())
        found = [torch.empty(most, dtype=kind) for _ in range(self.world)]
        torch.distributed.all_gather(found, mine)
        return [part[:int(count)] for part, count in zip(found, counts)]

    def build(self) -> None:
        """COLLECTIVE. Rankstore's dataset: one number a sample, which is its length."""
        import rankstore
        column = self.lengths.astype(numpy.uint32)
        items = [rankstore.Columns({COLUMN: column[i:i + 8192]}) for i in range(0, self.count, 8192)]
        rankstore.build(items, self.folder, length=COLUMN, replace=True, progress=False).close()

    def by_rankstore(self, exchange: str | None) -> int:
        """Opens the dataset: ranks agree, and hold the index. `exchange`: how it travels; None: as Rankstore chooses."""
        import rankstore
        dataset = rankstore.open(self.folder, exchange=exchange)
        found = int(dataset.lengths.sum(dtype=numpy.int64))
        self.last = dataset
        return found

    def end(self) -> None:
        """COLLECTIVE. Closes what by_rankstore opened: no part of the exchange."""
        last = self.__dict__.pop("last", None)
        if last is not None:
            last.close()

    def check(self, found: int) -> None:
        if found != self.total:
            raise ValueError(f"the lengths add up to {found}, wanted {self.total}")


class Samples:
    """This rank's part of the token samples: until every rank can read any of them."""

    def __init__(self, place: Place) -> None:
        self.rank, self.world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        self.workload = place.workload("tokens")
        bounds = [self.workload.count * rank // self.world for rank in range(self.world + 1)]
        self.mine = range(bounds[self.rank], bounds[self.rank + 1])
        self.folder = place.folder / ("quick" if place.quick else "full") / "gathered" / "rankstore"
        self.probes = self.workload.random_order(11)[:64]

    def by_object(self) -> int:
        """all_gather_object of lists of (key, tensor). int16: torch cannot unpickle uint16 tensors that came this way."""
        mine = [(self.workload.key(i), torch.from_numpy(self.workload.sample(i).view(numpy.int16).copy())) for i in self.mine]
        found: list[Any] = [None] * self.world
        torch.distributed.all_gather_object(found, mine)
        every = [tensor for part in found for _, tensor in part]
        return sum(int(every[i].numpy().view(numpy.uint16).sum(dtype=numpy.int64)) for i in self.probes)

    def build(self) -> None:
        """COLLECTIVE."""
        import rankstore
        offsets = self.workload.offsets
        items = []
        for first in range(self.mine.start, self.mine.stop, 8192):
            edges = offsets[first:min(first + 8192, self.mine.stop) + 1]
            items.append(rankstore.Columns({COLUMN: (self.workload.values[edges[0]:edges[-1]], edges - edges[0])}))
        rankstore.build(items, self.folder, length=COLUMN, replace=True, progress=False).close()

    def by_rankstore(self) -> int:
        """Builds, opens, and reads samples of all ranks."""
        import rankstore
        self.build()
        self.last = rankstore.open(self.folder)
        order = self._order()
        return sum(int(sample[COLUMN].sum(dtype=numpy.int64)) for sample in self.last[[order[i] for i in self.probes]])

    def _order(self) -> dict[int, int]:
        """Source number to sample id: ids go by unit, and units are dealt out to ranks in turn."""
        units = [(k * self.world + rank, range(first, min(first + 8192, stop)))
                 for rank in range(self.world)
                 for start, stop in [(self.workload.count * rank // self.world, self.workload.count * (rank + 1) // self.world)]
                 for k, first in enumerate(range(start, stop, 8192))]
        return {source: number for number, source in enumerate(i for _, unit in sorted(units, key=lambda one: one[0]) for i in unit)}

    def end(self) -> None:
        last = self.__dict__.pop("last", None)
        if last is not None:
            last.close()

    def check(self, found: int) -> None:
        wanted = sum(int(self.workload.sample(i).sum(dtype=numpy.int64)) for i in self.probes)
        if found != wanted:
            raise ValueError(f"the samples add up to {found}, wanted {wanted}")


def ways_of(row: str, place: Place) -> tuple[Ranks | Samples, dict[str, Callable[[], int]]]:
    """The part, and its ways in the order of a round."""
    if row == "gather":
        samples = Samples(place)
        return samples, {"all_gather_object": samples.by_object, "Rankstore": samples.by_rankstore}
    part = Ranks(place)
    part.build()
    return part, {"all_gather_object": part.by_object, "tensors": part.by_tensors, "Rankstore, pull": lambda: part.by_rankstore("pull"),
                  "Rankstore": lambda: part.by_rankstore(None)}


def main() -> None:
    row, folder, quick, rounds = sys.argv[1:5]
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    import rankstore
    rankstore.init()
    part, ways = ways_of(row, Place(Path(folder), quick == "1"))
    for number in range(int(rounds) + (row != "gather")):  # the first round of an exchange makes connections: a warm-up
        for name, way in ways.items():
            with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
                file.write("5")  # the peak begins anew
            torch.distributed.barrier()
            begun = time.perf_counter()
            found = way()
            torch.distributed.barrier()
            seconds = time.perf_counter() - begun
            peak = torch.tensor(peak_rss())
            torch.distributed.all_reduce(peak, torch.distributed.ReduceOp.MAX)
            part.check(found)
            part.end()
            if part.rank == 0 and (number or row == "gather"):
                print(json.dumps({"name": name, "seconds": seconds, "work": 1, "peak_rss": int(peak)}), flush=True)
    torch.distributed.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
