# SPDX-License-Identifier: Apache-2.0
"""Batch: what a loader yields."""
from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._schema.completion import hides
from ..errors import ArgumentError, StateError
from .tensors import each_tensor, pinned

if TYPE_CHECKING:
    import numpy

    from .protocols import Planned, Samples


# Plans of this process by token. A batch that a worker process returned finds its plan here; in the worker it finds none.
live: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()

_MOVE_BEFORE = "If a framework moved it to a device, move it before: ds.loader(plan, device=...) or batch.to(device)"

# Batches whose items were asked for, by the id of a tensor in them. DistributedDataParallel and the Trainer move a dict to a device by
# making another of its type from its items. Attributes are not items and would be lost.
_itemized: weakref.WeakValueDictionary[int, Batch] = weakref.WeakValueDictionary()


def _first_of(value: Any) -> Any:
    """Return what comes first in lists, tuples and dicts, however deep: a copy of these holds the same object."""
    while isinstance(value, (list, tuple, dict)) and value:
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
    return value


def _first_tensor(batch: Batch) -> Any:
    """Return a tensor or an array of the batch, or None."""
    return next((one for one in map(_first_of, batch.values()) if hasattr(one, "dtype")), None)


def _is_made_of(batch: Batch, origin: Batch) -> bool:
    """Return whether all columns of the two hold the same objects. One may be in several batches, as a constant mask is."""
    return list(batch) == list(origin) and all(
        one is other or (isinstance(one, (list, tuple, dict)) and one == other)  # two empty ones
        for one, other in zip(map(_first_of, batch.values()), map(_first_of, origin.values()), strict=True))


def _is_parts(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(isinstance(one, memoryview) for one in value)


class _Parts:
    """A list of memoryviews in transit between processes, because pickle cannot store memoryviews."""

    def __init__(self, parts: list[memoryview]) -> None:
        self._parts = parts

    def __reduce__(self) -> tuple[Any, ...]:
        import torch
        whole = torch.frombuffer(bytearray().join(self._parts) or bytearray(1), dtype=torch.uint8)
        return _split, (whole, [len(part) for part in self._parts])


def _split(whole: Any, sizes: list[int]) -> list[memoryview]:
    data = memoryview(whole.numpy())
    edges = [0, *itertools.accumulate(sizes)]
    return [data[begin:end] for begin, end in itertools.pairwise(edges)]


@hides("leave_arena", "map_tensors", "planned", "unfilled")
class Batch(dict[str, Any]):
    """Columns by name: tensors, arrays or lists. Each owns its memory, which lives as long as anyone holds it.

    Only columns are items, so `model(**batch)` works. `Batch(items)` with the tensors of another batch has its attributes too: so they
    survive DistributedDataParallel, Lightning and the Trainer, which rebuild a dict. Only if these copy the tensors to a device are the
    attributes lost: move the batch before, by `ds.loader(device=...)` or `batch.to(device)`.

    Attributes: ids (of the samples in the whole dataset, int64[n]), places (of them in the dataset or selection: `ds[batch.places]`),
        lengths (uint32[n]; of pieces, the piece's length), step and epoch (-1 if no plan made the batch), missing (with missing="mask": for
        each column a bool[n] that marks missing values).
    """

    ids: numpy.ndarray[Any, numpy.dtype[numpy.int64]]
    lengths: numpy.ndarray[Any, numpy.dtype[numpy.uint32]]
    step: int
    epoch: int
    _dataset: Samples | None = None
    _plan: Planned | None = None
    _token: int = -1
    _padded: int = 0
    _cut: int = 0  # the layout's max_length
    _cuts_lengths: bool = False  # the cut applies to lengths too
    _pieces: Any = None  # uint32[n, 3]: place, start, count
    missing: dict[str, Any]

    def __init__(self, *columns: Any, **named: Any) -> None:
        super().__init__(*columns, **named)
        self.missing = {}
        tensor = _first_tensor(self)
        origin = None if tensor is None else _itemized.get(id(tensor))
        if origin is not None and _is_made_of(self, origin):
            self.__dict__.update(origin.__dict__)

    @classmethod
    def unfilled(cls) -> Batch:
        """Return a batch without columns. A collator makes one for each step, and `__init__`, which looks for an origin, takes longer."""
        made = cls.__new__(cls)
        made.missing = {}
        return made

    def items(self) -> Any:
        """Return the columns, as dict.items does. A batch that is made of them knows that this one was its origin."""
        tensor = _first_tensor(self)
        if tensor is not None:
            _itemized[id(tensor)] = self
        return super().items()

    def __getattr__(self, name: str) -> Any:
        """Return step and epoch of a batch that no plan made. Explain a missing attribute: only what made the batch knows its samples."""
        if name in ("step", "epoch") and "ids" in self.__dict__:
            return -1
        if name == "indices":
            raise AttributeError("indices: a batch has ids, those of its samples in the whole dataset, as gather's index and ds.source_of "
                                 "take them, and places, which ds[...] of this dataset or selection takes")
        if name in ("ids", "lengths", "step", "epoch") or hasattr(type(self), name):  # a property that needs one of them
            raise AttributeError(f"{name}: this batch was made of columns alone, so it does not know its samples. {_MOVE_BEFORE}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __missing__(self, name: Any) -> Any:
        """Explain the missing item: torch's default collate asks a batch for its item 0."""
        if isinstance(name, int):
            raise ArgumentError("a batch's columns have names, and this asks for item "
                                f"{name}; a DataLoader over a plan's sampler needs collate_fn=ds.collate, and a function of "
                                "samples goes into ds.loader(plan, collate=function), or a DataLoader over ds, not ds.collating(...)")
        raise KeyError(f"{name!r}: the batch has {', '.join(map(str, self))}")

    def planned(self, dataset: Samples, plan: Planned | None, token: int, epoch: int, step: int) -> None:
        """Record the batch's place in a plan. In a worker process the plan is None, and its token stands for it."""
        self._dataset, self._plan, self._token, self.epoch, self.step = dataset, plan, token, epoch, step

    @property
    def sample_keys(self) -> list[bytes]:
        """Return the keys of the samples (list of bytes). They are read now, from their owners if another rank has them."""
        if self._dataset is None:
            return []
        return [self._dataset.store.key(int(index)) for index in self.ids]

    @property
    def places(self) -> numpy.ndarray[Any, numpy.dtype[numpy.int64]]:
        """Return the places of the samples in their dataset or selection (int64[n]), for `ds[batch.places]`. One that a selection has
        several times is at its first place."""
        if self._dataset is None:
            raise StateError("places: this batch does not know its dataset; use ds.places_of(batch.ids)")
        places: numpy.ndarray[Any, numpy.dtype[numpy.int64]] = self._dataset.places_of(self.ids)
        return places

    @property
    def source(self) -> numpy.ndarray[Any, numpy.dtype[numpy.uint16]]:
        """Return each sample's source as its number in `Dataset.sources` (uint16[n])."""
        if self._dataset is None:
            raise StateError("source: this batch does not know its dataset; use ds.source_of(batch.ids)")
        source: numpy.ndarray[Any, numpy.dtype[numpy.uint16]] = self._dataset.source_of(self.ids)
        return source

    @property
    def global_tokens(self) -> int:
        """Return the sum of lengths of this step's batches on all ranks, over all micro_batches of the plan.

        Divide a loss over all tokens by it. For a loss over some of them, as with labels of -100, use `global_sum`. Without a plan it is
        the sum of this batch alone."""
        if self._plan is None:
            return int(self.lengths.sum())
        return self._plan.step_tokens(self.epoch, self.step, cut=self._cut if self._cuts_lengths else 0)

    @property
    def pieces(self) -> numpy.ndarray[Any, numpy.dtype[numpy.uint32]]:
        """Return which items of each sample the batch has: (start, count), uint32[n, 2].

        These are all items, from 0, unless the plan has too_long="split" and cut the sample. A sample that is cut may be in a batch several
        times."""
        import numpy
        found = numpy.stack([numpy.zeros_like(self.lengths), self.lengths], axis=1)
        if self._pieces is not None:
            found[self._pieces[:, 0], 0] = self._pieces[:, 1]
        return found

    @property
    def micro(self) -> int:
        """Return the number of this batch, from 0, among this rank's batches of its optimizer step; 0 unless the plan has micro_batches."""
        step = self.step
        return 0 if self._plan is None else step % self._plan.micro_batches

    def global_sum(self, column: str, *, accumulate: int | None = None) -> int | float:
        """Return the sum of an index column over this step's batches on all ranks, from the index, without communication.

        Divide a loss over learned labels by it, with `build(count={"learned": ("labels", "!=", -100)})`.

        column: str. The index column, or the one that lengths count: this gives the sum of lengths, of pieces and cut samples too.
        accumulate: int, at least 1. Sum over this many steps, those of one optimizer step. Default: the plan's micro_batches.

        Raises ArgumentError if another column is not in the index; DataError if a sample is cut, unless all its pieces are in these
        batches; StateError if no plan made the batch.
        """
        if self._plan is None:
            raise StateError(f"global_sum: this batch came from no plan, so its step is not known. {_MOVE_BEFORE}")
        return self._plan.step_sum(column, self.epoch, self.step, accumulate=accumulate, cut=self._cut, dataset=self._dataset)

    @property
    def padding_ratio(self) -> float:
        """Return the share of padding in the widest padded column, from 0 (none) to 1."""
        tokens = float(self.lengths.sum())
        return 1 - tokens / self._padded if self._padded else 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle for transport from a worker process.

        Plan and dataset travel as a token only, since the receiving process uses its own. Bytes travel in a tensor, which torch puts into
        shared memory."""
        state = {name: value for name, value in self.__dict__.items() if name not in ("_dataset", "_plan")}
        return Batch, (), state, None, ((name, _Parts(value) if _is_parts(value) else value)
                                        for name, value in self.items())

    def __copy__(self) -> Batch:
        return self.map_tensors(lambda value: value, whole=True)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        plan = live.get(self._token)
        if plan is not None:
            self._plan, self._dataset = plan, plan.dataset if plan.dataset.id else None

    def map_tensors(self, change: Callable[[Any], Any], *, whole: bool = False) -> Batch:
        """Return the batch with every tensor replaced by change(tensor); see each_tensor."""
        made = Batch({name: each_tensor(value, change, whole=whole) for name, value in self.items()})
        made.__dict__.update(self.__dict__)
        made.missing = {name: each_tensor(value, change, whole=whole) for name, value in self.missing.items()}
        return made

    def leave_arena(self) -> None:
        """Copy ids, lengths, pieces and bytes, which stay in main memory while the tensors are copied to a device."""
        self.ids, self.lengths = self.ids.copy(), self.lengths.copy()
        self._pieces = None if self._pieces is None else self._pieces.copy()
        for name, values in self.items():
            if isinstance(values, list) and any(isinstance(one, memoryview) for one in values):
                self[name] = [memoryview(bytearray(one)) if isinstance(one, memoryview) else one for one in values]

    def to(self, *args: Any, **kwargs: Any) -> Batch:
        """Return a batch whose tensors are `tensor.to(...)`, with everything else the same."""
        return self.map_tensors(lambda value: value.to(*args, **kwargs), whole=True)

    def pin_memory(self) -> Batch:
        """Return a batch whose tensors are in pinned memory. Tensors that are already there are not copied."""
        made: Batch = pinned(self)
        return made
