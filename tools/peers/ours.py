# SPDX-License-Identifier: Apache-2.0
"""Rankstore as a store of the comparison. What it writes is synced and sealed; what it reads is checked, as by default."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stores import STORES, Store
from workload import BATCH, Workload

COLUMN = "x"


class Rankstore(Store):
    """Built from an iterable of dicts, a sample each; read as dicts of arrays of their own."""

    module = "rankstore"

    def items(self) -> Iterator[Any]:
        for sample in self.workload.samples():
            yield {COLUMN: sample}

    def write(self) -> None:
        import rankstore
        kind = "uint16[*]" if self.is_tokens else "bytes"
        rankstore.build(self.items(), self.path, length=COLUMN, schema={COLUMN: kind}, progress=False).close()

    def open(self) -> None:
        import rankstore
        self.dataset = rankstore.open(self.path)

    def read(self, i: int) -> Any:
        return self.dataset[i][COLUMN]

    def read_many(self, ids: list[int]) -> list[Any]:
        return [sample[COLUMN] for sample in self.dataset[ids]]


class Arrays(Rankstore):
    """Built from batches of arrays: no Python object a sample."""

    def items(self) -> Iterator[Any]:
        import rankstore
        workload = self.workload
        each = 8192 if self.is_tokens else BATCH
        for first in range(0, workload.count, each):
            edges = workload.offsets[first:first + each + 1]
            values = workload.values[edges[0]:edges[-1]]
            yield rankstore.Columns({COLUMN: (values if self.is_tokens else memoryview(values), edges - edges[0])})


class View(Rankstore):
    """Read by `Dataset.view`: without a copy, checked."""

    def read(self, i: int) -> Any:
        return self.dataset.view(i)[COLUMN]


# Rankstore's ways to read and write share one folder of files.
WAYS: dict[str, type[Rankstore]] = {"Rankstore": Rankstore, "Rankstore dicts": Rankstore, "Rankstore arrays": Arrays,
                                    "Rankstore view": View}
STORES.update(WAYS)


def make_ours(name: str, workload: Workload) -> Rankstore:
    return WAYS[name](workload, workload.store("rankstore-dicts" if name == "Rankstore dicts" else "rankstore"))
