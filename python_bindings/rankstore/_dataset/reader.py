# SPDX-License-Identifier: Apache-2.0
"""Samples on many ranks: by place, by key, by mask; and what is known of all of them without reading any."""
from __future__ import annotations

import functools
import json
import operator
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from .. import _core
from .._distributed.group import Group
from .._distributed.memory import Extreme, TorchMemory, of_process, of_ranks
from .._schema import types
from .._schema.decode import Readers, reader_of, rows_of, values_of
from ..errors import ArgumentError, StateError
from .indexing import ABSENT, index, is_bool
from .worker_store import Handle

if TYPE_CHECKING:
    import numpy
    from torch.utils.data import Dataset as TorchDataset

    Array = numpy.ndarray[Any, Any]

    class _Items(_core.Indexed, TorchDataset[dict[str, Any]]):
        """What type checkers are to know: torch takes a Dataset as one of its own. It need not be installed."""

        @overload
        def __getitem__(self, place: int | numpy.integer[Any], /) -> dict[str, Any]: ...
        @overload
        def __getitem__(self, place: slice | Sequence[int] | Sequence[bool] | Array, /) -> list[dict[str, Any]]: ...
        @overload
        def __getitem__(self, place: Any, /) -> Any: ...
        def __getitem__(self, place: Any, /) -> Any: ...
else:
    _Items = _core.Indexed


@dataclass(frozen=True)
class WorkerGroup:
    """The rank and world of the process that this worker process reads for."""

    rank: int
    world: int


_PIECE = 64  # samples of a slice per fetch


@dataclass(frozen=True)
class Source:
    """A dataset that was opened, alone or as one of several.

    Attributes: name, directory (this rank's), id, first (its first sample's id in the whole), samples, bytes (of columns and keys).
    """

    name: str
    directory: str
    id: str
    first: int
    samples: int
    bytes: int


class OpenSamples(_Items):
    """Samples 0 to len - 1 of an open dataset or of a selection, the same on every rank."""

    def __init__(self, handle: Handle, directory: str, group: Group | WorkerGroup) -> None:
        self._handle, self.directory, self.group = handle, directory, group
        handle.datasets.add(self)
        _, columns = _core.parse_schema(self.store.schema)
        self.schema = {name: types.parse(name, text) for name, text in columns}
        self.torch_memory: dict[str, TorchMemory] | None = None
        self._columns = list(self.schema.values())
        self._chosen: Array | None = None  # uint32: 4 bytes a sample, even for a permutation

    @property
    def store(self) -> Any:
        """Return the C store, or what replaces it in a worker process."""
        return self._handle.store

    @property
    def id(self) -> str:
        """Return the dataset's id, 32 hexadecimal digits; each generation has its own."""
        found: str = self.store.dataset
        return found

    @property
    def _count(self) -> int:
        found: int = self.store.count
        return found

    # ---- samples

    def __len__(self) -> int:
        return self._count if self._chosen is None else len(self._chosen)

    def sample_id(self, place: Any) -> int:
        """Return the sample id of a place of this dataset or selection. IndexError if the place is out of range."""
        number = place if place.__class__ is int else index(place)
        count = len(self)
        if number < 0:
            number += count
        if not 0 <= number < count:
            raise IndexError(f"sample {place} is out of range: the dataset has {count}")
        return number if self._chosen is None else int(self._chosen[number])

    def place(self, sample_id: int) -> int:
        """Return the first place of a sample id in this selection. KeyError if it is not chosen."""
        if self._chosen is None:
            return sample_id
        import numpy
        if 0 <= sample_id < self._count:
            found = int(numpy.searchsorted(self._chosen, numpy.uint32(sample_id), sorter=self._order))
            if found < len(self._chosen):
                found = found if self._order is None else int(self._order[found])
                if self._chosen[found] == sample_id:
                    return found
        raise KeyError(f"sample {sample_id} is not in the selection")

    def places_of(self, ids: Any) -> Array:
        """Return the first place of each sample id in this dataset or selection: int64[n]. KeyError if one is not chosen."""
        import numpy
        wanted = numpy.asarray(ids, numpy.int64)
        if self._chosen is None:
            return wanted.copy()
        found = numpy.searchsorted(self._chosen, wanted, sorter=self._order).clip(max=max(0, len(self._chosen) - 1))
        places = (found if self._order is None else self._order[found]).astype(numpy.int64)
        other = self._chosen[places] != wanted if len(self._chosen) else numpy.ones(len(wanted), bool)
        if other.any():
            raise KeyError(f"sample {int(wanted[other.argmax()])} is not in the selection")
        made: Array = places
        return made

    @functools.cached_property
    def _order(self) -> Array | None:
        """Return the places of a selection in the order of their sample ids; None if they are in that order."""
        import numpy
        assert self._chosen is not None
        is_sorted = bool((self._chosen[1:] >= self._chosen[:-1]).all())
        return None if is_sorted else numpy.argsort(self._chosen, kind="stable").astype(numpy.uint32)

    @property
    def sorted_ids(self) -> Array:
        """Return the sample ids in ascending order, repeated as in the selection: int64[len], a copy."""
        import numpy
        made: Array = self.ids if self._chosen is None else self._sorted().astype(numpy.int64)
        return made

    def _sorted(self) -> Array:
        """Return the sorted ids of a selection as uint32."""
        import numpy
        assert self._chosen is not None
        made: Array = numpy.sort(self._chosen)
        return made

    def _item(self, which: Any) -> Any:
        """Return `self[which]`, except for an int that `_rows` handles."""
        if which.__class__ is int:
            return self._list([self.sample_id(which)])[0]
        if isinstance(which, slice):
            places = range(*which.indices(len(self)))
            return [sample for first in range(0, len(places), _PIECE)
                    for sample in self._list([self.sample_id(place) for place in places[first:first + _PIECE]])]
        if hasattr(which, "ndim") and which.ndim > 0:  # an array or tensor of places, or a mask
            which = self._masked(which.tolist()) if is_bool(which) else which.tolist()
        if is_bool(which) or hasattr(which, "__index__"):
            return self._list([self.sample_id(which)])[0]
        if isinstance(which, (str, bytes, Mapping)) or not hasattr(which, "__iter__"):
            raise TypeError(f"a dataset's places are ints, slices, lists of ints or a mask of bools, not "
                            f"{type(which).__name__}; get(key) takes keys")
        which = list(which)
        if which and all(map(is_bool, which)):
            which = self._masked(which)
        return self._list([self.sample_id(place) for place in which])

    def _masked(self, mask: list[Any]) -> list[int]:
        """Return the places where a mask is true."""
        if len(mask) != len(self):
            raise IndexError(f"the mask has {len(mask)} entries, the dataset {len(self)} samples")
        if not all(map(is_bool, mask)):
            raise TypeError("a mask of a dataset has one dimension")
        return [place for place, taken in enumerate(mask) if taken]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[place] for place in range(len(self)))

    def __reversed__(self) -> Iterator[dict[str, Any]]:
        return (self[place] for place in range(len(self) - 1, -1, -1))

    def __contains__(self, what: object) -> bool:
        raise TypeError("`in` is not defined for a dataset, whose samples are dicts of arrays; `key in ds.keys` looks a key up, "
                        "and an id is there if it is below len(ds)")

    def get(self, key: str | bytes, source: str | int | None = None) -> dict[str, Any]:
        """Return the sample with this key, as a dict. KeyError if there is none.

        source: str or int. The name or number of the source to search; required (ArgumentError) if several sources have the key. Default:
            all.
        """
        return self._list([self.store.find(key, self.source_number(source))])[0]

    def view(self, place: int) -> dict[str, Any]:
        """Return a sample without a copy, as read-only arrays, and memoryviews for bytes.

        They are in the map of its shard if that is on this node, and stay valid as long as you hold them. Writing to them raises
        ValueError. Tensors of bfloat16 and float8 are copies. The checksum is checked once, here; if the file is cut off later, the lost
        part reads as zeros."""
        return values_of(self._viewers, self.store.view(self.sample_id(place)))

    def _list(self, ids: list[int]) -> list[dict[str, Any]]:
        store = self.store
        if isinstance(store, _core.Store):
            self._rows = self._rows or rows_of(store, self._columns, self._chosen)
            return self._rows.many(ids)
        samples = store.fetch(ids)
        return [values_of(self._readers, samples.values(i)) for i in range(len(ids))]

    @functools.cached_property
    def _readers(self) -> Readers:
        return [(column.name, reader_of(column, copy=True)) for column in self._columns]

    @functools.cached_property
    def _viewers(self) -> Readers:
        return [(column.name, reader_of(column, copy=False)) for column in self._columns]

    # ---- several datasets as one

    @functools.cached_property
    def sources(self) -> tuple[Source, ...]:
        """Return the datasets that were opened, in the order of their samples; one if `open` got one directory."""
        return tuple(Source(*one) for one in self.store.sources())

    def source_number(self, source: str | int | None) -> int | None:
        """Return the number of a source given by name or number. ArgumentError lists the sources if there is no such one."""
        if source is None:
            return None
        names = [one.name for one in self.sources]
        if isinstance(source, str) and source in names:
            return names.index(source)
        if not isinstance(source, str) and 0 <= operator.index(source) < len(names):
            return operator.index(source)
        raise ArgumentError(f"source: there is no {source!r}; the sources are {', '.join(names)}")

    def source_of(self, ids: Any) -> Any:
        """Return each sample id's source as its number in `sources`: uint16[n]. ids: as in `Batch.ids`. IndexError: there is no such id."""
        import numpy
        sources, wanted = self.sources, numpy.asarray(ids, numpy.int64)
        end = sources[-1].first + sources[-1].samples
        outside = wanted[(wanted < 0) | (wanted >= end)]
        if len(outside) > 0:
            raise IndexError(f"source_of: there is no sample id {outside[0]}; ids are 0 to {end - 1}")
        return (numpy.searchsorted([one.first for one in sources], wanted, side="right") - 1).astype(numpy.uint16)

    # ---- what the index holds of all samples

    @property
    def ids(self) -> Any:
        """Return the sample id of each place: int64[len], a copy. That of a selection is read-only."""
        import numpy
        if self._chosen is None:
            return numpy.arange(self._count)
        found = self._chosen.astype(numpy.int64)
        found.flags.writeable = False  # so that writing to it fails: the selection cannot change
        return found

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Return the columns that `open` was asked for; None for all."""
        return self._handle.columns

    @property
    def is_checked(self) -> bool:
        """Return True if samples are compared with their checksums."""
        return not self._handle.no_check

    @property
    def lacks_samples(self) -> bool:
        """Return True if some samples cannot be read: they are in quarantine, or their shards are missing (`missing="partial"`)."""
        return bool((self.lengths == ABSENT).any())

    @property
    def lengths(self) -> Any:
        """Return the lengths: uint32[len], read-only, shared by the ranks of a node.

        4294967295 (0xFFFFFFFF) marks a sample in quarantine or absent (`missing="partial"`). `ds.lengths[ds.lengths != 0xFFFFFFFF]`
        leaves these out."""
        return self.chosen(self.all_lengths)

    @functools.cached_property
    def length_column(self) -> str | None:
        """Return the column whose items lengths count; None if they are of no single column (a function, "chars:x")."""
        found = {one[0] for one in self._handle.counted}
        length = found.pop() if len(found) == 1 else None
        return length if length in self.schema else None

    @property
    def length_unit(self) -> int:
        """Return what lengths were divided by when they were built; 0 if sources differ."""
        found = {one[1] for one in self._handle.counted}
        return 1 if not found else found.pop() if len(found) == 1 else 0

    @property
    def length_shown(self) -> str:
        """Return what lengths count, in the words of `build`, and what they were divided by; "" if sources differ."""
        found = {one[1:] for one in self._handle.counted}
        unit, name = found.pop() if len(found) == 1 else (1, "")
        return name + (f" / {unit}" if unit > 1 else "")

    @functools.cached_property
    def lengths_are_items(self) -> bool:
        """Return True if a length is the number of items of an array."""
        name = self.length_column
        return name is not None and self.schema[name].varies and not self.schema[name].is_text and self.length_unit == 1

    def index_of(self, name: str) -> Any:
        """Return an index column of the whole dataset, by sample id; None if it is not an index column."""
        found = self.store.column(name)
        return None if found is None else types.as_numbers(found[0], types.parse(name, found[1]).item)

    @property
    def all_lengths(self) -> Any:
        """Return the lengths of the whole dataset, by sample id, also for a selection."""
        return types.as_array(self.store.lengths(), "uint32")

    def chosen(self, whole: Any) -> Any:
        """Return the entries of this selection."""
        return whole if self._chosen is None else whole[self._chosen]

    @property
    def nbytes(self) -> int:
        """Return the bytes of columns and keys of the whole dataset."""
        return int(json.loads(self.store.info())["bytes"])

    def owner(self, place: int) -> int:
        """Return the rank that serves a sample; -1 if none does."""
        return int(self.store.owner(self.sample_id(place)))

    def info(self) -> dict[str, Any]:
        """Return what `rankstore info --json` prints, as a dict."""
        found: dict[str, Any] = json.loads(self.store.info())
        return found

    @property
    def generations(self) -> list[dict[str, Any]]:
        """Return the generations of this directory that builds with `append=True` made, oldest first, up to the newest on disk.

        Each is a dict of generation, samples, bytes (of columns and keys) and id (the dataset's). `open("DIR@1")` opens the first."""
        found: list[dict[str, Any]] = self.info()["generations"]
        return found

    def stats(self) -> dict[str, Any]:
        """Return figures of this rank since the dataset was opened, as a dict.

        - samples, bytes, local_bytes, remote_bytes, served_bytes, wait_seconds, peak_inflight_bytes, peak_batch_bytes, index_bytes_node,
          quarantined; shards, and of them missing_shards, with missing_samples (`missing="partial"`)
        - home_bytes, arriving_shards: bytes that this rank has read from home; shards of its local directory that still come
        - exchange (how the index travelled), exchange_why, exchange_bytes; collectives (of the ranks' group so far)
        - disk_bytes, disk_reads: what was read from this node's disk for samples, and in how many requests
        - memory: what this process holds, by kind (current, peak); `help(rankstore.Dataset.memory)` lists the kinds
        - torch_memory: None, or what torch's CUDA allocator held before and after the opening (allocated, reserved, largest_free_block).
          They differ only by what other threads did, since the exchange takes nothing from it."""
        found: dict[str, Any] = self.store.stats()
        found["memory"], found["torch_memory"] = of_process(), self.torch_memory
        return found

    def memory(self) -> dict[str, Extreme]:
        """Return what memory the ranks hold, by kind (collective).

        Each kind has current and peak of the rank that has most, that rank, the least of the ranks' peaks, and `ranks`, the figures of
        each. All figures are in bytes, of the process since its start, of all its datasets together:

        - index: the index, the sorted order and the epochs of plans; one copy a node, of which every rank tells the total
        - index_own: this process's own tables
        - plan: ids and batches of an epoch that ranks do not share, and what making one needs meanwhile
        - staging: chunks of index in transit while a dataset opens
        - batches: batches and arrays that are alive, those fetched ahead, and what is kept for the next ones
        - in_flight: of "batches", replies in transit
        - pinned: host memory pinned for a GPU
        - gpu_slots: GPU memory of the exchange's own slots
        - gpu_nccl: GPU memory that NCCL took, by the driver's free memory
        - resident: what the kernel counts for the process: all memory that was touched, mapped files included"""
        if not isinstance(self.group, Group):
            raise StateError("memory: a worker process has no ranks to ask")
        return of_ranks(self.group)

    def write_quarantine(self, path: str | os.PathLike[str], samples: Iterable[int]) -> None:
        """Write a list of samples for `open(..., quarantine=path)` to leave out; an existing list is replaced.

        It is for samples that are sound but unwanted; `rankstore verify --quarantine` lists damaged ones. Call it on one rank; the
        directory must hold the dataset.

        Raises IndexError for a sample out of range, ArgumentError if several datasets are open as one."""
        place = self._handle.directories[0]
        if isinstance(place, tuple):
            raise ArgumentError("write_quarantine: a list is of one dataset; open that one alone")
        chosen = [int(one) for one in samples]
        for one in chosen:
            if not 0 <= one < self.store.count:
                raise IndexError(f"sample {one} is out of range: the dataset has {self.store.count}")
        _core.write_quarantine(os.fspath(path), place, chosen)

    @property
    def has_repeats(self) -> bool:
        """Return True if a selection has some samples more than once."""
        if self._chosen is None:
            return False
        ids = self._sorted()
        return bool((ids[1:] == ids[:-1]).any())

    @property
    def is_selection(self) -> bool:
        """Return True if `select` made this dataset."""
        return self._chosen is not None
