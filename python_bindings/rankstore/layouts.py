# SPDX-License-Identifier: Apache-2.0
"""How samples become a batch: Pad, Pack, Nested and Lists. The work is done by the library's threads; here are its
options, and the names that models expect.

Integer columns of variable size become int64 (token ids, labels), but uint8 and int8 stay as they are; so do floats.
`dtype` says otherwise. str columns become lists of str, bytes and json lists of memoryviews and objects.
"""
from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _core
from .batch import Batch
from .errors import ArgumentError
from .types import Column, as_array, numpy_dtype, torch_view

Rename = Mapping[str, str]


class Layout:
    """What all layouts have in common. `dtype`: the item type of all integer columns, or of columns by name."""

    layout = "pad"

    def __init__(self, dtype: str | Mapping[str, str] | None = None) -> None:
        self.dtype = dtype

    def options(self, columns: Sequence[Column], rename: Rename) -> dict[str, Any]:
        """What _core.Collate takes."""
        raise NotImplementedError

    def finish(self, batch: Batch, columns: Sequence[Column], rename: Rename, offsets: dict[str, Any],
               out: str) -> None:
        """Adds what follows from the arrays."""

    def item(self, column: Column) -> str | None:
        if column.is_text:
            return None
        if isinstance(self.dtype, Mapping):
            if column.name in self.dtype:
                return self.dtype[column.name]
        elif self.dtype is not None and column.is_integer:
            return self.dtype
        return "int64" if column.is_integer and column.item not in ("uint8", "int8") else None

    def specs(self, columns: Sequence[Column], rename: Rename, pads: Mapping[str, float],
              default: float) -> list[tuple[str, str | None, str | None, float, float | None]]:
        return [(column.name, rename.get(column.name), self.item(column), pads.get(column.name, default), None)
                for column in columns]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if value is not None)
        return f"{type(self).__name__}({shown})"


class Pad(Layout):
    """One tensor a column, [samples, width, ...], as wide as the longest sample.

    pad_value: what fills, for all columns or by name. to_multiple: the width is rounded up to it (8). side: "right" or
        "left", where the filling is.
    mask: name of an int64 tensor [samples, width], 1 where the first column of variable size has items; None: none.
    labels_pad: what fills columns that are called "labels" (-100, which torch's cross entropy skips). max_length:
        longer samples are cut.
    """

    def __init__(self, pad_value: float | Mapping[str, float] = 0, *, to_multiple: int = 8, side: str = "right",
                 mask: str | None = "attention_mask", labels_pad: float = -100, max_length: int = 0,
                 dtype: str | Mapping[str, str] | None = None) -> None:
        super().__init__(dtype)
        if side not in ("right", "left"):
            raise ArgumentError(f"side: {side!r} is neither 'right' nor 'left'")
        self.pad_value, self.to_multiple, self.side = pad_value, to_multiple, side
        self.mask, self.labels_pad, self.max_length = mask, labels_pad, max_length

    def options(self, columns: Sequence[Column], rename: Rename) -> dict[str, Any]:
        pads = {column.name: self.labels_pad for column in columns if rename.get(column.name, column.name) == "labels"}
        default = 0.0
        if isinstance(self.pad_value, Mapping):
            pads.update(self.pad_value)
        else:
            default = self.pad_value
        padded = any(column.varies for column in columns)
        return {"layout": "pad", "columns": self.specs(columns, rename, pads, default), "to_multiple": self.to_multiple,
                "max_length": self.max_length, "left": self.side == "left", "mask": self.mask if padded else None}


class Pack(Layout):
    """Samples one behind the other, without padding: tensors [1, total, ...].

    style "hf": with position_ids, and labels whose first item of each sample is -100 (made from the first column of
    variable size where there is no column "labels"). "flash": also cu_seq_lens_q, cu_seq_lens_k (int32[samples + 1]),
    max_length_q, max_length_k (int) and seq_idx (int32[1, total]). "titan": `positions` in place of position_ids.
    labels: False for none. max_len: longer samples are cut. pad_to: the total is rounded up to a multiple of it, filled
    with pad_value (a sequence of its own in cu_seq_lens).
    """

    layout = "pack"

    def __init__(self, style: str = "hf", max_len: int | None = None, pad_to: int | None = None, *, labels: bool = True,
                 pad_value: float = 0, labels_pad: float = -100, dtype: str | Mapping[str, str] | None = None) -> None:
        super().__init__(dtype)
        if style not in ("hf", "flash", "titan"):
            raise ArgumentError(f"style: {style!r} is none of 'hf', 'flash', 'titan'")
        self.style, self.max_len, self.pad_to = style, max_len, pad_to
        self.labels, self.pad_value, self.labels_pad = labels, pad_value, labels_pad

    def options(self, columns: Sequence[Column], rename: Rename) -> dict[str, Any]:
        specs = []
        first = next((column for column in columns if column.varies), None)
        named = [rename.get(column.name, column.name) for column in columns]
        for column, name in zip(columns, named):
            is_label = self.labels and name == "labels"
            specs.append((column.name, name, self.item(column), self.labels_pad if is_label else self.pad_value,
                          self.labels_pad if is_label else None))
        if self.labels and "labels" not in named and first is not None:
            specs.append((first.name, "labels", self.item(first), self.labels_pad, self.labels_pad))
        positions = "positions" if self.style == "titan" else "position_ids"
        return {"layout": "pack", "columns": specs, "to_multiple": self.pad_to or 1, "max_length": self.max_len or 0,
                "positions": positions if first is not None else None}

    def finish(self, batch: Batch, columns: Sequence[Column], rename: Rename, offsets: dict[str, Any],
               out: str) -> None:
        for name in offsets:
            batch[name] = batch[name][None]
        first = next((rename.get(column.name, column.name) for column in columns if column.varies), None)
        if self.style == "flash" and first is not None:
            self._flash(batch, offsets[first], batch[first].shape[1], out)

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


class Nested(Layout):
    """torch.nested tensors of jagged layout, one a column of variable size: values and offsets without padding."""

    layout = "pack"

    def options(self, columns: Sequence[Column], rename: Rename) -> dict[str, Any]:
        return {"layout": "pack", "columns": self.specs(columns, rename, {}, 0)}

    def finish(self, batch: Batch, columns: Sequence[Column], rename: Rename, offsets: dict[str, Any],
               out: str) -> None:
        import torch
        if out != "torch":
            raise ArgumentError("Nested gives torch tensors: out='torch'")
        for name, bounds in offsets.items():
            batch[name] = torch.nested.nested_tensor_from_jagged(batch[name], torch.from_numpy(bounds.copy()))


class Lists(Layout):
    """One list a column, a value a sample: tensors of their own sizes, str, memoryviews. Item types as stored."""

    layout = "pack"

    def item(self, column: Column) -> str | None:
        return self.dtype.get(column.name) if isinstance(self.dtype, Mapping) else None

    def options(self, columns: Sequence[Column], rename: Rename) -> dict[str, Any]:
        return {"layout": "pack", "columns": self.specs(columns, rename, {}, 0)}

    def finish(self, batch: Batch, columns: Sequence[Column], rename: Rename, offsets: dict[str, Any],
               out: str) -> None:
        for name, bounds in offsets.items():
            values, edges = batch[name], bounds.tolist()
            batch[name] = [values[begin:end] for begin, end in zip(edges, edges[1:])]


def tensor(array: Any, item: str, out: str) -> Any:
    """A numpy array as what `out` says ("torch" or "numpy"), on the same memory."""
    if out == "numpy":
        return array
    import torch
    return torch_view(torch.from_numpy(array), item)


def _text(item: str, data: memoryview, edges: list[int]) -> list[Any]:
    if item == "bytes":
        return [data[begin:end] for begin, end in zip(edges, edges[1:])]
    texts = [str(data[begin:end], "utf-8") for begin, end in zip(edges, edges[1:])]
    return texts if item == "str" else [json.loads(text) if text else None for text in texts]


class Collator:
    """A layout over chosen columns of a schema: makes a Batch of what the library has collated. Picklable."""

    def __init__(self, layout: Layout, schema: Mapping[str, Column], columns: Sequence[str] | None = None,
                 rename: Rename | None = None, out: str = "torch") -> None:
        if isinstance(columns, str):
            raise ArgumentError(f"columns: a list of names, not the str {columns!r}")
        missing = [name for name in columns or () if name not in schema]
        if missing:
            raise ArgumentError(f"columns: there is no {missing[0]!r}; there are {', '.join(schema)}")
        if out not in ("torch", "numpy"):
            raise ArgumentError(f"out: {out!r} is neither 'torch' nor 'numpy'")
        for name in rename or ():
            if name not in schema:
                raise ArgumentError(f"rename: there is no {name!r}; there are {', '.join(schema)}")
        self.layout, self.out, self.rename = layout, out, dict(rename or {})
        self.columns = [schema[name] for name in (columns if columns is not None else schema)]
        self.text = {self.rename.get(column.name, column.name): column.item for column in self.columns
                     if column.is_text}
        self.varying = {self.rename.get(column.name, column.name) for column in self.columns if column.varies}
        self.options = layout.options(self.columns, self.rename)  # JSON-able
        self.core = _core.Collate(**self.options)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Collator, (self.layout, {column.name: column for column in self.columns}, None, self.rename, self.out))

    @functools.cached_property
    def _array(self) -> Any:
        import numpy
        return numpy.ndarray

    @functools.cached_property
    def _to_torch(self) -> Callable[[Any], Any] | None:
        if self.out == "numpy":
            return None
        import torch
        return torch.from_numpy

    def batch(self, arrays: Any) -> Batch:
        """The tensors of collated arrays; no copy. This is called for each batch, between two steps of training: what
        can be found out once is."""
        made, offsets, count, to_torch = Batch(), {}, (arrays.samples,), self._to_torch
        made.indices = self._array(count, numpy_dtype("int64"), arrays.ids())
        made.lengths = self._array(count, numpy_dtype("uint32"), arrays.lengths())
        for name, item, dims, data, bounds in arrays.arrays():
            edges = None if bounds is None else as_array(bounds, "int64")
            if name in self.text:
                made[name] = _text(self.text[name], memoryview(data), [] if edges is None else edges.tolist())
                continue
            array = self._array(dims, numpy_dtype(item), data)
            made[name] = array if to_torch is None else torch_view(to_torch(array), item)
            if edges is not None:
                offsets[name] = edges
            elif name in self.varying:
                made._padded = max(made._padded, dims[0] * dims[1])
        self.layout.finish(made, self.columns, self.rename, offsets, self.out)
        return made
