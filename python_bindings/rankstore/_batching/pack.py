# SPDX-License-Identifier: Apache-2.0
"""Pack: samples end to end, in one row or in the bins of a plan."""
from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from .._schema.types import Column
from ..errors import ArgumentError
from .batch import Batch
from .layouts import Layout, Rename, tensor
from .limits import Rule


class Pack(Layout):
    """Samples end to end without padding: tensors [1, total, ...], or rows of a plan's capacity.

    style: str. Default: "hf".
        - "hf": adds position_ids, and labels whose first item of each sample is -100 (made from the first column of variable size if there
          is no column "labels").
        - "flash": also cu_seq_lens_q, cu_seq_lens_k (int32[samples + 1]), max_length_q, max_length_k (int) and seq_idx (int32[1, total]).
        - "titan": `positions` instead of position_ids.
        - "rows": for plans of strategy "pack". Tensors [bins, capacity, ...], a row for each bin, with position_ids and document_ids
          (int32[bins, capacity]: which sample of its row an item belongs to, from 0; -1 for padding).
    max_len: int. Cut longer samples. Default: to what the plan cuts to.
    pad_to: int. Round the total up to a multiple of it, padded with pad_value (a sequence of its own in cu_seq_lens); not for rows.
        Default: 1.
    labels: bool. Add labels. Default: True.
    mask_first: bool. Set the first label of each sample to labels_pad; otherwise, when labels are shifted by one, the last item of the
        sample before would learn it. False for labels that are already shifted. Default: True.
    mask: str. For "rows": add attention_mask, bool[bins, 1, capacity, capacity], in which items see those of their own sample: "full" all
        of them, "causal" no later ones. Padding sees itself. Default: none.
    layouts: dict by column. {"tags": "concat"} lays a column with other numbers of items than the length's column end to end, [total, ...],
        apart from the others. Default: none: a sample whose columns differ in their numbers of items is a DataError.
    pad_value: number. The padding. Default: 0.
    labels_pad: number. The padding of labels. Default: -100.
    first_position: int, at least 0. The position of each sample's first item; padding counts from there, too. Default: 0.
    dtype, missing, fill: as for Layout.

    If the plan has a length_multiple above 1 and bounds sums of lengths, each sample is padded to a multiple of it, and positions count on
    there. "flash" and "rows" then have cu_seqlens (int32[samples + 1], sums of the samples' items) and cu_seqlens_padded (where they begin,
    and the end of all; rows end to end), as context parallelism needs.
    """

    layout = "pack"
    cut_name = "max_len"
    each = 1  # samples are padded to a multiple of it
    row = 0  # items per row; 0: not planned yet

    def __init__(self, style: str = "hf", max_len: int | None = None, pad_to: int | None = None, *, labels: bool = True,
                 pad_value: float = 0, labels_pad: float = -100, dtype: Any = None, missing: str | None = None,
                 fill: Mapping[str, Any] | None = None, mask_first: bool = True, mask: str | None = None,
                 layouts: Mapping[str, str] | None = None, first_position: int = 0) -> None:
        super().__init__(dtype, missing=missing, fill=fill)
        if style not in ("hf", "flash", "titan", "rows"):
            raise ArgumentError(f"style: {style!r} is not 'hf', 'flash', 'titan' or 'rows'")
        if mask not in (None, "full", "causal"):
            raise ArgumentError(f"mask: {mask!r}; it is 'full', 'causal' or None")
        if mask is not None and style != "rows":
            raise ArgumentError("mask: it is for Pack('rows') only")
        for name, value in (layouts or {}).items():
            if value != "concat":
                raise ArgumentError(f"layouts: {value!r} of {name!r} is not 'concat'")
        if isinstance(first_position, bool) or not hasattr(first_position, "__index__") or first_position < 0:
            raise ArgumentError(f"first_position: {first_position!r}; it is an int, at least 0")
        if pad_to and style == "rows":
            raise ArgumentError("pad_to: rows are as wide as the plan's capacity; leave it out")
        self.style, self.max_len, self.pad_to = style, max_len, pad_to
        self.cut_to = max_len or 0
        self.labels, self.pad_value, self.labels_pad = labels, pad_value, labels_pad
        self.mask_first, self.mask, self.first_position = mask_first, mask, first_position
        self.layouts = None if layouts is None else dict(layouts)
        if style == "rows":
            self.layout = "rows"

    def options(self, columns: Sequence[Column], rename: Rename, length: str | None = None) -> dict[str, Any]:
        specs: list[tuple[Any, ...]] = []
        first = self._first(columns, length)
        named = [rename.get(column.name, column.name) for column in columns]
        first_label = self.labels_pad if self.mask_first else None
        for column, name in zip(columns, named):
            is_label = self.labels and name == "labels" and column.varies and not self._is_apart(column)
            pad = self.labels_pad if is_label else self.pad_value if column.varies or column.nullable else 0
            specs.append((column.name, name, self.item_with(column, pad), pad, first_label if is_label else None, column.nullable,
                          self._is_apart(column), column is first and self._has_documents()))
        if self.labels and "labels" not in named and first is not None:
            specs.append((first.name, "labels", self.item_with(first, self.labels_pad), self.labels_pad, first_label))
        rows = {"row_items": self.row, "documents": "document_ids"} if self.style == "rows" else {}
        return {"layout": self.layout, "columns": specs, "to_multiple": self.pad_to or 1, "max_length": self.cut_to,
                "cut_by_length": self.cut_by_length, "each_multiple": self.each,
                "positions": self._positions() if first is not None else None,
                "follows": None if first is None else first.name} | rows

    def finish(self, batch: Batch, columns: Sequence[Column], rename: Rename, offsets: dict[str, Any],
               out: str, items: dict[str, Any], length: str | None = None) -> None:
        first = self._first(columns, length)
        if self.style != "rows":
            apart = {rename.get(column.name, column.name) for column in columns if self._is_apart(column)}
            for name in offsets:
                batch[name] = batch[name] if name in apart else batch[name][None]
        elif self.mask is not None:
            batch["attention_mask"] = self._row_mask(batch["document_ids"], out)
        if first is None:
            return
        if self.first_position:
            batch[self._positions()] += self.first_position
        name = rename.get(first.name, first.name)
        if self.style == "flash":
            self._flash(batch, offsets[name], batch[name].shape[1], out)
        if name in items:
            self._documents(batch, offsets[name], items[name], batch[name].shape[0] * batch[name].shape[1], out)

    def planned(self, rule: Rule, length: str | None, columns: Collection[str]) -> Layout:
        if self.pad_to and length in columns and rule.budget % self.pad_to:
            raise ArgumentError(f"Pack(pad_to={self.pad_to}): a batch may be larger than the plan's budget of {rule.budget}; make that a "
                                f"multiple of {self.pad_to}")
        if self.style == "rows" and rule.row == 0:
            raise ArgumentError("Pack('rows'): rows are a plan's bins, and this plan has none; use plan(\"pack\", capacity=...)")
        if self.style == "rows" and length is None:
            raise ArgumentError("Pack('rows'): lengths of this dataset are not the item counts of a column, so bins are not rows; "
                                "build it with length=COLUMN")
        made = super().planned(rule, length, columns)
        assert isinstance(made, Pack)
        made.row = rule.row if self.style == "rows" else 0
        made.each = rule.multiple if rule.sums and length is not None else 1
        return made

    def check(self, schema: Mapping[str, Column], rename: Rename) -> None:
        super().check(schema, rename)
        for name in self.layouts or ():
            if not schema[name].varies or schema[name].is_text:
                raise ArgumentError(f"layouts: column {name!r} ({schema[name].text}) has no variable dimension")

    def check_unplanned(self) -> None:
        if self.style == "rows" and self.row == 0:
            raise ArgumentError("Pack('rows'): rows are a plan's bins, and these samples come from no plan; use "
                                "ds.loader(ds.plan(\"pack\", capacity=...)), or batch_sampler=plan.sampler()")

    def _positions(self) -> str:
        return "positions" if self.style == "titan" else "position_ids"

    def _is_apart(self, column: Column) -> bool:
        """Return True if the column is laid apart from the rows."""
        return (self.layouts or {}).get(column.name) == "concat"

    def _has_documents(self) -> bool:
        """Return True if batches have cu_seqlens."""
        return self.each > 1 and self.style in ("flash", "rows")

    def _first(self, columns: Sequence[Column], length: str | None) -> Column | None:
        """Return the column that positions, labels and cu_seq_lens follow: the length's, else the first of variable size."""
        varying = [column for column in columns if column.varies and not column.is_text and not self._is_apart(column)]
        return next((column for column in varying if column.name == length), varying[0] if varying else None)

    def _row_mask(self, documents: Any, out: str) -> Any:
        import numpy
        ids = documents if out == "numpy" else documents.numpy()
        seen = ids[:, None, :, None] == ids[:, None, None, :]
        if self.mask == "causal":
            seen &= numpy.tri(ids.shape[1], dtype=bool)
        return tensor(seen, "bool", out)

    @staticmethod
    def _documents(batch: Batch, bounds: Any, items: Any, total: int, out: str) -> None:
        import numpy
        edges = bounds.astype(numpy.int32)
        edges[-1] = total
        sums = numpy.zeros_like(edges)
        numpy.cumsum(items, out=sums[1:], dtype=numpy.int32)
        batch["cu_seqlens"], batch["cu_seqlens_padded"] = tensor(sums, "int32", out), tensor(edges, "int32", out)

    @staticmethod
    def _flash(batch: Batch, bounds: Any, total: int, out: str) -> None:
        import numpy
        if bounds[-1] != total:
            bounds = numpy.append(bounds, total)
        sizes = numpy.diff(bounds)
        edges = bounds.astype(numpy.int32)
        index = numpy.repeat(numpy.arange(len(sizes), dtype=numpy.int32), sizes)[None]
        for side in "qk":
            batch[f"cu_seq_lens_{side}"] = tensor(edges, "int32", out)
            batch[f"max_length_{side}"] = int(sizes.max(initial=0))
        batch["seq_idx"] = tensor(index, "int32", out)
