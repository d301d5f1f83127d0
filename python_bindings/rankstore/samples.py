# SPDX-License-Identifier: Apache-2.0
"""Samples that lie on many ranks: by place, by key, by mask, and what is known of all of them without reading any."""
from __future__ import annotations

import functools
import json
import operator
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _core, types
from .errors import ArgumentError, StateError
from .group import Group
from .loader_workers import Handle
from .memory import Extreme, TorchMemory, of_process, of_ranks
from .reading import Readers, reader_of, rows_of, values_of
from .selecting import index, is_bool

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


@dataclass(frozen=True)
class WorkerGroup:
    """Whose worker this process is."""

    rank: int
    world: int


_PIECE = 64  # samples of a slice that are fetched at once
ABSENT = 0xFFFFFFFF  # the length of a sample that cannot be read


@dataclass(frozen=True)
class Source:
    """A dataset that was opened, alone or as one of several: its name, this rank's directory, its own id, its samples, of
    which the first is sample `first` of the whole, and their bytes of columns and keys."""

    name: str
    directory: str
    id: str
    first: int
    samples: int
    bytes: int


class OpenSamples(_core.Indexed):
    """Samples 0..len-1 of an open dataset or of a selection, the same on every rank."""

    def __init__(self, handle: Handle, directory: str, group: Group | WorkerGroup) -> None:
        self._handle, self.directory, self.group = handle, directory, group
        store = self.store
        self.id, self._count = store.dataset, store.count
        _, columns = _core.parse_schema(store.schema)
        self.schema = {name: types.parse(name, text) for name, text in columns}
        self.torch_memory: dict[str, TorchMemory] | None = None
        self._columns = list(self.schema.values())
        self._chosen: Array | None = None  # uint32: 4 bytes a sample, also of a permutation

    @property
    def store(self) -> Any:
        """The C store; in a worker process what stands for it."""
        return self._handle.store

    # ---- samples

    def __len__(self) -> int:
        return self._count if self._chosen is None else len(self._chosen)

    def sample_id(self, place: Any) -> int:
        """The sample id of a place of this dataset or selection; IndexError where there is none."""
        number = place if place.__class__ is int else index(place)
        count = len(self)
        if number < 0:
            number += count
        if not 0 <= number < count:
            raise IndexError(f"sample {place} of {count}")
        return number if self._chosen is None else int(self._chosen[number])

    def place(self, sample_id: int) -> int:
        """Where a sample id is in this selection first; KeyError where it is not chosen."""
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

    @functools.cached_property
    def _order(self) -> Array | None:
        """The places of a selection in the order of their sample ids; None if they are in it."""
        import numpy
        assert self._chosen is not None
        is_sorted = bool((self._chosen[1:] >= self._chosen[:-1]).all())
        return None if is_sorted else numpy.argsort(self._chosen, kind="stable").astype(numpy.uint32)

    @property
    def sorted_ids(self) -> Array:
        """int64[len]: the sample ids, ascending, each as often as it is there. A copy."""
        import numpy
        made: Array = self.ids if self._chosen is None else self._sorted().astype(numpy.int64)
        return made

    def _sorted(self) -> Array:
        """The same as uint32, of a selection."""
        import numpy
        assert self._chosen is not None
        made: Array = numpy.sort(self._chosen)
        return made

    def _item(self, which: Any) -> Any:
        """`self[which]`, but for an int that `_rows` knows."""
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
        """The places where a mask is true."""
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
        """The sample with this key; KeyError where there is none. `source`: the name or number of the source to look in,
        which is needed (ArgumentError) for a key that several sources have."""
        return self._list([self.store.find(key, self.source_number(source))])[0]

    def view(self, place: int) -> dict[str, Any]:
        """A sample without a copy: read-only arrays (and memoryviews for bytes) in the map of its shard where that
        lies on this node. They stay valid as long as they are held. Writing into them raises ValueError. Checked
        once, here: what is cut off the file later reads as zeros."""
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
        """The datasets that were opened, in the order of their samples; one if `open` was given one directory."""
        return tuple(Source(*one) for one in self.store.sources())

    def source_number(self, source: str | int | None) -> int | None:
        """The number of a source that is named; ArgumentError names those that there are."""
        if source is None:
            return None
        names = [one.name for one in self.sources]
        if isinstance(source, str) and source in names:
            return names.index(source)
        if not isinstance(source, str) and 0 <= operator.index(source) < len(names):
            return operator.index(source)
        raise ArgumentError(f"source: there is no {source!r}; the sources are {', '.join(names)}")

    def source_of(self, ids: Any) -> Any:
        """uint16[n]: for each sample id (as `Batch.indices` has them) the number of its source in `sources`."""
        import numpy
        firsts = [one.first for one in self.sources]
        return (numpy.searchsorted(firsts, numpy.asarray(ids, numpy.int64), side="right") - 1).astype(numpy.uint16)

    # ---- what is known of all samples

    @property
    def ids(self) -> Any:
        """int64[len]: the sample id of each place. A copy; that of a selection is not to be written."""
        import numpy
        if self._chosen is None:
            return numpy.arange(self._count)
        found = self._chosen.astype(numpy.int64)
        found.flags.writeable = False  # whoever writes means the selection, which stays as it is
        return found

    @property
    def columns(self) -> tuple[str, ...] | None:
        """Those that `open` was asked for; None for all."""
        return self._handle.columns

    @property
    def is_checked(self) -> bool:
        """Samples are compared with their checksums."""
        return not self._handle.no_check

    @property
    def lacks_samples(self) -> bool:
        """Some cannot be read: they are in quarantine, or their shards are missing (`partial=True`)."""
        return bool((self.lengths == ABSENT).any())

    @property
    def lengths(self) -> Any:
        """uint32[len], read-only, shared by the ranks of a node. 4294967295 (0xFFFFFFFF) is no length: the sample is in
        the quarantine, or absent (`partial=True`). `ds.lengths[ds.lengths != 0xFFFFFFFF]` leaves these out."""
        return self.chosen(self.all_lengths)

    @functools.cached_property
    def length_column(self) -> str | None:
        """The column whose items lengths count; None if they are of no single column (a function, "chars:x")."""
        found = {None if one is None else one[0] for one in self._handle.counted}
        length = found.pop() if len(found) == 1 else None
        return length if length in self.schema else None

    @property
    def length_unit(self) -> int:
        """What lengths were divided by when they were built; 0 if sources differ."""
        found = {one[1] for one in self._handle.counted if one is not None}
        return 1 if not found else found.pop() if len(found) == 1 else 0

    @property
    def length_shown(self) -> str:
        """What lengths are of, as `build` names it, and what they were divided by; "" if sources differ."""
        found = {one[1:] for one in self._handle.counted if one is not None}
        unit, name = found.pop() if len(found) == 1 else (1, "")
        return name + (f" / {unit}" if unit > 1 else "")

    @functools.cached_property
    def lengths_are_items(self) -> bool:
        """A length is the number of items of an array, one for one."""
        name = self.length_column
        return name is not None and self.schema[name].varies and not self.schema[name].is_text and self.length_unit == 1

    def index_of(self, name: str) -> Any:
        """An index column of the whole dataset, by sample id; None if it is none."""
        found = self.store.column(name)
        return None if found is None else types.as_array(found[0], types.parse(name, found[1]).item)

    @property
    def all_lengths(self) -> Any:
        """Those of the whole dataset, by sample id, also in a selection."""
        return types.as_array(self.store.lengths(), "uint32")

    def chosen(self, whole: Any) -> Any:
        """The entries of this selection."""
        return whole if self._chosen is None else whole[self._chosen]

    @property
    def nbytes(self) -> int:
        """Column and key bytes of the whole dataset."""
        return int(json.loads(self.store.info())["bytes"])

    def owner(self, place: int) -> int:
        """The rank that serves the sample; -1 for nobody."""
        return int(self.store.owner(self.sample_id(place)))

    def info(self) -> dict[str, Any]:
        """What `rankstore info --json` prints."""
        found: dict[str, Any] = json.loads(self.store.info())
        return found

    @property
    def generations(self) -> list[dict[str, Any]]:
        """What builds with `append=True` made of this directory, oldest first, up to the newest one there is: a dict of
        generation, samples, bytes (of columns and keys) and id (the dataset's) each. `open("DIR@1")` opens the first."""
        found: list[dict[str, Any]] = self.info()["generations"]
        return found

    def stats(self) -> dict[str, Any]:
        """Figures of this rank since the dataset was opened: samples, bytes, local_bytes, remote_bytes, served_bytes,
        wait_seconds, peak_inflight_bytes, peak_batch_bytes, index_bytes_node, exchange_bytes, exchange (the
        way by which the index came), exchange_why, quarantined, collectives (of the ranks' group so far), disk_bytes and
        disk_reads (read from this node's disk for samples, and in how many requests); memory, by kind what this process holds (current, peak; `rankstore.memory` has the kinds); torch_memory, None or what torch's CUDA
        allocator held before and after the opening (allocated, reserved, largest_free_block): equal but for what other
        threads did, since the exchange takes nothing from it."""
        found: dict[str, Any] = self.store.stats()
        found["memory"], found["torch_memory"] = of_process(), self.torch_memory
        return found

    def memory(self) -> dict[str, Extreme]:
        """COLLECTIVE. What memory the ranks hold, by kind: current and peak of the rank that has most, which rank that
        is, the least of the ranks' peaks, and `ranks`, the figures of each."""
        if not isinstance(self.group, Group):
            raise StateError("memory: a worker process has no ranks to ask")
        return of_ranks(self.group)

    def write_quarantine(self, path: str | os.PathLike[str], samples: Iterable[int]) -> None:
        """Writes a list of samples that `open(..., quarantine=path)` leaves out; an existing list is replaced. For
        samples that are sound and still unwanted; damaged ones are listed by `rankstore verify --quarantine`.

        Raises IndexError for a sample that is not there. On one rank; the directory must hold the dataset."""
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
        """A selection has some samples more than once."""
        if self._chosen is None:
            return False
        ids = self._sorted()
        return bool((ids[1:] == ids[:-1]).any())

    @property
    def is_selection(self) -> bool:
        """`select` made it."""
        return self._chosen is not None
