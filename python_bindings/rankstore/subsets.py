# SPDX-License-Identifier: Apache-2.0
"""`from_torch`: what torch's Subset, random_split and ConcatDataset make of datasets, as a Dataset."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .dataset import Dataset
from .errors import ArgumentError
from .opening import concat

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


def from_torch(dataset: Any, *, names: Sequence[str] | None = None) -> Dataset:
    """What torch's `Subset`, `random_split` or `ConcatDataset` made of Datasets, as a Dataset with plan, loader, keys and
    states: the same samples in the same order. `train, val = map(rankstore.from_torch, random_split(ds, [0.9, 0.1]))`.

    dataset: Subset or ConcatDataset, also one around others, down to Datasets; or a Dataset.
    names: list of str, one for each open dataset in it, in the order in which they come first. Default: as for `concat`.

    Of one open dataset this is a selection: not collective, and closing either closes both. Of several it is their `concat`:
    COLLECTIVE, opens their directories once more, so close it, too; what a quarantine leaves out stays out. Parts must be the
    same on all ranks: give random_split a generator with a seed, `torch.Generator().manual_seed(0)`.

    Returns the Dataset. Raises TypeError that names what is no Dataset, IndexError for a place that is not there, and what
    `concat` raises."""
    import numpy
    opened: list[Dataset] = []
    sources, ids = _places(dataset, opened)
    if not opened:
        raise ArgumentError("from_torch: there is no dataset in it")
    if len(opened) == 1 and names is None:
        whole, wanted = opened[0]._like(), ids
    else:
        whole = concat([_whole(one) for one in opened], names=names)
        firsts = numpy.cumsum([0, *(len(one.all_lengths) for one in opened)])
        wanted = firsts[sources] + ids
        if whole.is_selection:
            wanted = wanted[numpy.isin(wanted, whole.ids)]
    whole._chosen = None if numpy.array_equal(wanted, numpy.arange(len(whole.all_lengths))) else wanted.astype(numpy.uint32)
    return whole


def _whole(one: Dataset) -> Dataset:
    made = one._like()
    made._chosen = None
    return made


def _places(dataset: Any, opened: list[Dataset]) -> tuple[Array, Array]:
    """For each place of a dataset the number of the open dataset that it is of (which `opened` gets), and its sample id."""
    import numpy
    if isinstance(dataset, Dataset):
        numbers = [i for i, one in enumerate(opened) if one._handle is dataset._handle]
        if not numbers:
            opened.append(dataset)
        number = numbers[0] if numbers else len(opened) - 1
        return numpy.full(len(dataset), number, numpy.int64), numpy.asarray(dataset.ids, numpy.int64)
    from torch.utils.data import ConcatDataset, Subset
    if isinstance(dataset, Subset):
        sources, ids = _places(dataset.dataset, opened)
        which = numpy.asarray(dataset.indices)
        if len(which) and which.dtype.kind not in "iu":
            raise TypeError(f"from_torch: the Subset's indices are {which.dtype}, not ints; of a mask, ds.select(mask) is the part")
        which = which.astype(numpy.int64)
        wrong = (which < -len(ids)) | (which >= len(ids))
        if wrong.any():
            raise IndexError(f"from_torch: the Subset has place {int(which[wrong.argmax()])} of {len(ids)}")
        return sources[which], ids[which]
    if isinstance(dataset, ConcatDataset):
        parts = [_places(one, opened) for one in dataset.datasets]
        return numpy.concatenate([part[0] for part in parts]), numpy.concatenate([part[1] for part in parts])
    raise TypeError(f"from_torch: a {type(dataset).__name__} is neither a rankstore.Dataset nor a Subset or ConcatDataset of some")
