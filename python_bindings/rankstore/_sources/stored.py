# SPDX-License-Identifier: Apache-2.0
"""An open dataset of Rankstore, as a source: its units, keys and lengths are taken over, so that the same samples are the same dataset."""
from __future__ import annotations

from array import array
from typing import Any

from .. import _core
from .base import Unit
from .sequence import Indexed

_ABSENT = 0xFFFFFFFF


class Stored(Indexed):
    """A whole dataset: no selection, no functions, all samples there, and opened alone.

    A dataset id follows from the samples, their keys and lengths, and from how units were cut. Keys that were derived are stored."""

    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset, None)
        self.is_known = True
        self.built = dataset.info()["build"]
        self.starts = array("Q", dataset.store.units())
        self._key, self._lengths = dataset.store.key, memoryview(dataset.lengths)
        self.keyed: str | None = self.built.get("key") or None

    @staticmethod
    def fits(source: Any) -> bool:
        """Return True if it is such a dataset."""
        store = getattr(source, "store", None)
        return isinstance(store, _core.Store) and source.functions == () and len(source) == store.count and \
            source.planned_lengths()[1] == source.id and len(store.sources()) == 1 and not bool((source.lengths == _ABSENT).any())

    def identity(self) -> list[Any]:
        return ["rankstore", self.dataset.id]

    def sampled(self) -> dict[str, str]:
        return {}

    def blocks(self) -> int:
        return 0

    def scan(self) -> tuple[list[Unit], dict[str, str] | None]:
        ends = [*self.starts[1:], self.count] if self.starts else []
        return [Unit(f"{self.name}@{number}", max(1, end - start), (start, end))
                for number, (start, end) in enumerate(zip(self.starts, ends, strict=True))], self._schema()

    def own(self, unit: Unit, row: int) -> tuple[bytes | None, int | None]:
        place = unit.at[0] + row
        return (self._key(place) if self.brings_keys else None, self._lengths[place] if self.brings_lengths else None)
