# SPDX-License-Identifier: Apache-2.0
"""Lookup in a dataset by key or column: `Dataset.keys` and `Dataset.index`."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._batching.protocols import Samples
from .._schema import types

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


class Keys(Sequence[bytes]):
    """The keys of a dataset, each read when you ask for it. `find` looks a key up by its hash."""

    def __init__(self, dataset: Samples) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        return self._dataset.store.key(self._dataset.sample_id(place))

    def find(self, key: str | bytes, source: str | int | None = None) -> int:
        """Return the place of the sample with this key. KeyError if there is none. source: as for `Dataset.get`."""
        return self._dataset.place(self._dataset.store.find(key, self._dataset.source_number(source)))

    def __contains__(self, key: object) -> bool:
        try:
            self.find(key)  # type: ignore[arg-type]
        except (KeyError, TypeError, ValueError):  # ValueError: no key can have this value
            return False
        return True


class Index(Mapping[str, "Array"]):
    """The index columns that travelled with the lengths: numpy arrays in sample order, read-only, shared by the ranks of a node."""

    def __init__(self, dataset: Samples) -> None:
        self._dataset = dataset
        self._names: list[str] = [name for name, column in dataset.schema.items()
                                  if column.is_scalar and dataset.store.column(name) is not None]

    def __getitem__(self, name: str) -> Any:
        found = self._dataset.store.column(name)
        if found is None:
            there = ", ".join(self._names) or "none"
            raise KeyError(f'"{name}" is not an index column (there are: {there}); build with index=["{name}"]')
        return self._dataset.chosen(types.as_numbers(found[0], types.parse(name, found[1]).item))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
