# SPDX-License-Identifier: Apache-2.0
"""Map-style datasets: objects with __len__ and __getitem__, the same on all ranks."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .._schema.types import Column
from . import digest, sample_digest
from .arrays import Rows
from .base import Piece, Unit


class Indexed(Piece):
    """A dataset in units whose size depends only on the number of samples, so that sample ids do not depend on the number of ranks."""

    in_memory = True
    BLOCKS, BLOCK = 1024, 1024  # most parts of `contents`, least samples in one

    def __init__(self, dataset: Any, unit_samples: int | None, name: str = "dataset") -> None:
        self.dataset, self.name = dataset, name
        self.count, self.is_known = len(dataset), type(dataset) in (list, tuple, Rows)
        self.size = unit_samples or min(16384, max(16, -(-self.count // 1024)))

    def identity(self) -> list[Any]:
        kind = type(self.dataset)
        return ["indexed", f"{kind.__module__}.{kind.__qualname__}", self.count, self.size]

    def sampled(self) -> dict[str, str]:
        """Return samples of lists, tuples and arrays only: reading another dataset may use the disk, or draw random numbers."""
        if not self.is_known:
            return {}
        return sample_digest.items(self.dataset.__getitem__, self.count)

    def _block(self) -> int:
        return max(self.BLOCK, -(-self.count // self.BLOCKS))

    def blocks(self) -> int:
        """Return the number of parts of a list, tuple or array; 0 for another dataset, as in sampled()."""
        return -(-self.count // self._block()) if self.is_known else 0

    def contents(self, block: int) -> str:
        size = self._block()
        return digest.of_items(lambda: self.dataset[block * size:(block + 1) * size])

    def scan(self) -> tuple[list[Unit], dict[str, str] | None]:
        return [Unit(f"{self.name}@{start}", min(self.size, self.count - start),
                     (start, min(start + self.size, self.count)))
                for start in range(0, self.count, self.size)], self._schema()

    def _schema(self) -> dict[str, str] | None:
        """Return the types of an open Rankstore dataset: its values alone do not tell int32 from int64, nor a time from a number."""
        schema, functions = getattr(self.dataset, "schema", None), getattr(self.dataset, "functions", None)
        if functions != () or not isinstance(schema, dict) or not all(isinstance(one, Column) for one in schema.values()):
            return None  # another kind of dataset, or one whose functions change its samples
        return {name: column.text for name, column in schema.items()}

    def read(self, unit: Unit) -> Iterator[int]:
        yield from range(*unit.at)

    def decode(self, raw: int) -> Any:
        return self.dataset[raw]

    def label(self, unit: Unit, row: int) -> str:
        return f"sample {unit.at[0] + row}"
