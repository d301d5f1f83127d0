# SPDX-License-Identifier: Apache-2.0
"""Windows of equal length over all items of a dataset, laid end to end."""
from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .._schema.types import BITS, Column, typed
from ..errors import ArgumentError
from .window_loader import WindowLoader

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


class Windows:
    """A map-style dataset of arrays [length], made by `Dataset.windows`; integers are int64.

    windows[i] is one array, windows[[...]] an array [n, length], len(windows) their number. Give it to a DataLoader, or use `loader`
    without one. set_epoch draws other random windows, also in a DataLoader's workers, even persistent ones: they share the memory of the
    epoch."""

    def __init__(self, dataset: Any, length: int, stride: int | None, random: int | None) -> None:
        if random is not None and (isinstance(random, bool) or not hasattr(random, "__index__")):
            raise ArgumentError(f"windows: random is {random!r}; it is a seed, an int, or None for windows in order")
        for option, value in (("length", length), ("stride", stride)):
            if value is not None and operator.index(value) < 1:
                raise ArgumentError(f"windows: {option} is {value}; it must be at least 1")
        if dataset.functions:
            raise ArgumentError("windows: they are of the stored items, and ds.map and ds.decode change samples; take the "
                                "windows of the dataset before them")
        self.dataset, self.length, self.stride, self.random = dataset, int(length), int(stride or length), random
        self.column = _column_of(dataset)
        self._epoch = _shared_number() if random is not None else [0]
        import numpy
        lengths = numpy.asarray(dataset.lengths)
        if (lengths == 0xFFFFFFFF).any():
            raise ArgumentError("windows: some samples are in the quarantine or absent; take dataset.select(dataset.lengths != "
                                "0xFFFFFFFF)")
        self._ends = numpy.cumsum(lengths, dtype=numpy.int64)
        self.items = int(self._ends[-1]) if len(self._ends) else 0
        if self.items < self.length:
            raise ArgumentError(f"windows: length is {length}, and the dataset has {self.items} items")

    @property
    def epoch(self) -> int:
        """Return the epoch whose random windows are drawn."""
        return int(self._epoch[0])

    @epoch.setter
    def epoch(self, number: int) -> None:
        self._epoch[0] = number

    def __len__(self) -> int:
        return (self.items - self.length) // self.stride + 1

    def set_epoch(self, epoch: int) -> None:
        """Draw other random windows, the same on all ranks. Call it between two loops over a DataLoader."""
        self.epoch = int(epoch)

    def starts(self, which: Any, epoch: int | None = None) -> Array:
        """Return the first item of each window: int64[n]. epoch: of random ones. Default: the one that is set."""
        import numpy
        places = numpy.atleast_1d(numpy.asarray(which, numpy.int64))
        count = len(self)
        places = numpy.where(places < 0, places + count, places)
        if ((places < 0) | (places >= count)).any():
            raise IndexError(f"window {which} is out of range: there are {count}")
        if self.random is None:
            return numpy.asarray(places * self.stride)
        epoch = self.epoch if epoch is None else epoch
        drawn = _mixed(_mixed(_mixed(numpy.uint64(self.random & (2**64 - 1))) ^ numpy.uint64(epoch)) ^ places.astype(numpy.uint64))
        return numpy.asarray((drawn % numpy.uint64(self.items - self.length + 1)).astype(numpy.int64))

    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            which = range(*which.indices(len(self)))
        if hasattr(which, "__index__") and not getattr(which, "ndim", 0):  # every array has the method
            return self._read(self.starts(operator.index(which)))[0]
        return self._read(self.starts(list(which)))

    def __getitems__(self, which: list[int]) -> list[Any]:
        """Return what DataLoader asks for."""
        return list(self[which])

    def loader(self, batch_size: int, *, prefetch_batches: int = 4, device: Any = None,
               start: dict[str, Any] | None = None) -> WindowLoader:
        """Return a loader of this rank's batches, tensors [batch_size, length], which reads ahead and has a state.

        batch_size: int, at least 1. Windows of a batch, of each rank.
        prefetch_batches: int, at least 1. Batches that a thread reads ahead. Default: 4.
        device: str or torch.device. Where batches go. Default: none, they stay in main memory.
        start: dict. A state to resume from, as by `load_state_dict`, also of another number of ranks or batch_size. Default: none.

        Raises ArgumentError if the windows do not fill one step; StateError if the state is of other windows.
        """
        return WindowLoader(self, batch_size, prefetch_batches, device, start)

    def identity(self) -> dict[str, Any]:
        """Return what makes windows the same, as JSON values."""
        import hashlib
        return {"dataset": self.dataset.id, "lengths": hashlib.blake2b(self._ends.tobytes(), digest_size=8).hexdigest(),
                "length": self.length, "stride": self.stride, "random": None if self.random is None else int(self.random)}

    def read(self, which: range, epoch: int) -> Any:
        """Return windows of an epoch as an array [n, length], whichever epoch is set."""
        return self._read(self.starts(which, epoch))

    def check_step(self, batch_size: int) -> None:
        """Raise ArgumentError if the windows do not fill a step of batches of this size."""
        world = self.dataset.group.world
        if len(self) < world * batch_size:
            raise ArgumentError(f"windows: {len(self)} windows do not fill one step of {world} x {batch_size} (ranks x "
                                "batch_size); use a smaller batch_size, length or stride")

    def batches(self, batch_size: int) -> Iterator[Any]:
        """Yield this rank's share of an epoch's windows, as tensors [batch_size, length].

        Every rank has the same number of steps; left-over windows are dropped. If this epoch was seen to its end, the next call draws the
        next epoch. Raises ArgumentError if the windows do not fill one step."""
        import torch
        if operator.index(batch_size) < 1:
            raise ArgumentError(f"windows: batch_size is {batch_size}; it must be at least 1")
        self.check_step(batch_size)
        group = self.dataset.group
        for first in range(group.rank * batch_size, len(self) - group.world * batch_size + group.rank * batch_size + 1,
                           group.world * batch_size):
            yield torch.as_tensor(self[range(first, first + batch_size)])
        self.epoch += 1

    def _read(self, starts: Array) -> Any:
        import numpy
        first = numpy.searchsorted(self._ends, starts, "right")
        last = numpy.searchsorted(self._ends, starts + self.length - 1, "right")
        needed = numpy.unique(numpy.concatenate([numpy.arange(a, b + 1) for a, b in zip(first, last, strict=True)])) \
            if len(starts) else numpy.zeros(0, numpy.int64)
        samples = self.dataset[needed.tolist()]
        name = self.column.name
        values = {place: numpy.zeros(0) if sample[name] is None else self._plain(sample[name])
                  for place, sample in zip(needed.tolist(), samples, strict=True)}
        kind = numpy.int64 if self.column.is_integer else values[int(first[0])].dtype if len(starts) else numpy.int64
        made = numpy.empty((len(starts), self.length), kind)
        for row, start, a, b in zip(made, starts.tolist(), first.tolist(), last.tolist(), strict=True):
            at = 0
            for place in range(a, b + 1):
                begin = max(0, start - (int(self._ends[place]) - len(values[place])))
                part = values[place][begin:begin + self.length - at]
                row[at:at + len(part)] = part
                at += len(part)
        return typed(made, self.column.item)

    def _plain(self, value: Any) -> Any:
        """Return a sample's items as a numpy array; bfloat16 and float8 as their bits."""
        bits = BITS.get(self.column.item)
        if bits is None:
            return value
        import numpy
        return (value.view(getattr(sys.modules["torch"], bits)).numpy() if hasattr(value, "detach") else numpy.asarray(value)).view(bits)

    def __repr__(self) -> str:
        how = "" if self.random is None else f", random={self.random}"
        return f"<rankstore.Windows of {self.length} of {self.items} {self.column.name}, stride {self.stride}{how}: {len(self)}>"


def _column_of(dataset: Any) -> Column:
    """Return the column to read: one of numbers, whose items lengths count."""
    name = dataset.length_column
    column: Column | None = None if name is None else dataset.schema[name]
    if column is None or not dataset.lengths_are_items or len(column.dims) != 1:
        raise ArgumentError("windows: goes over the items of the column that lengths count, one of numbers such as int32[*]; "
                            f"lengths here count {'something else' if column is None else f'{name} ({column.text})'}; build "
                            'with length="COLUMN"')
    return column


def _shared_number() -> Any:
    """Return a zero at [0] that a DataLoader's workers, forked or spawned, share with this process: torch pickles it so.

    Without torch there are no such workers."""
    try:
        import torch
    except ImportError:
        return [0]
    made: Any = torch.zeros(1, dtype=torch.int64)
    return made.share_memory_()


def _mixed(number: Any) -> Any:
    """splitmix64's finalizer: uint64 to uint64."""
    import numpy
    with numpy.errstate(over="ignore"):
        number = numpy.asarray(number, numpy.uint64) + numpy.uint64(0x9E3779B97F4A7C15)
        number = (number ^ (number >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
        number = (number ^ (number >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
        return number ^ (number >> numpy.uint64(31))
