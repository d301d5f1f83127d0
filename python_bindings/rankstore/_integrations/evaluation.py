# SPDX-License-Identifier: Apache-2.0
"""A dataset's samples in order, in batches made with a loader's options, for loops that deal batches to ranks themselves."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .._batching.batch import Batch
from .._batching.collator import Collator
from .._batching.layouts import Layout, Pad
from .._batching.limits import Rule
from .._loader.options import check_functions
from .._loader.user_functions import Own


class EvaluatedSamples:
    """A map-style dataset whose `__getitems__` makes a batch; give DataLoader `pass_on` as its collate_fn.

    options: of Dataset.loader. Those that fetch ahead or copy to a device do nothing here."""

    def __init__(self, dataset: Any, options: Mapping[str, Any]) -> None:
        collate, mapped, self._transform = options.get("collate"), options.get("map"), options.get("transform")
        decode = options.get("decode")
        columns, rename, out = options.get("columns"), options.get("rename"), options.get("out", "torch")
        check_functions(collate, mapped, self._transform)
        self._dataset, self._own = dataset, None
        if isinstance(layout := Pad() if collate is None else collate, Layout):
            layout.check_unplanned()
        if isinstance(layout, Layout) and mapped is None and decode is None and not dataset.functions:
            self._collator = Collator(layout, dataset.schema, columns, rename, out, dataset.length_column)
        else:
            self._own = Own(layout, mapped, dataset, columns, rename, Rule(), 0, out, decode)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitems__(self, places: Sequence[int]) -> Any:
        dataset = self._dataset
        ids = [dataset.sample_id(place) for place in places]
        if self._own is not None:
            made = self._own.make(dataset.store.fetch(ids), 0, -1)[0]
        else:
            made = self._collator.batch(dataset.collate_ids(ids, self._collator))
        if isinstance(made, Batch):
            made.planned(dataset, None, -1, -1, -1)
        return made if self._transform is None else self._transform(made)


def pass_on(batch: Any) -> Any:
    """Return the batch as it is."""
    return batch
