# SPDX-License-Identifier: Apache-2.0
"""`from_torch`: turn torch's Subset, random_split and ConcatDataset over datasets back into a Dataset."""
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError
from .dataset import Dataset
from .open import concat

if TYPE_CHECKING:
    import numpy

    Array = numpy.ndarray[Any, Any]


def from_torch(dataset: Any, *, names: Sequence[str] | None = None) -> Dataset:
    """Return a Dataset with the samples of a torch `Subset`, `random_split` part or `ConcatDataset` of Datasets, in the same order.

    Unlike torch's objects it has plans, loaders, keys and states: `train, val = map(rankstore.from_torch, random_split(ds, [0.9, 0.1]))`.

    dataset: Subset or ConcatDataset, also nested, over Datasets; or a Dataset.
    names: list of str, one for each open dataset in it, in order of first appearance. Default: as for `concat`.

    Over one open dataset the result is a selection: the call is not collective, and closing either closes both. Over several it is their
    `concat`: collective, and it opens their directories again, so close it too; quarantined samples stay out. Parts must be the same on all
    ranks: give random_split a seeded generator, `torch.Generator().manual_seed(0)`.

    Returns the Dataset.
    Raises TypeError naming an object that is not a Dataset, IndexError for a place out of range, and what `concat` raises.
    """
    import numpy
    opened: list[Dataset] = []
    sources, ids = _places(dataset, opened)
    if not opened:
        raise ArgumentError("from_torch: a ConcatDataset without datasets")
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
    """Return, for each place of a dataset, the number of its open dataset (which is appended to `opened`) and its sample id."""
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
