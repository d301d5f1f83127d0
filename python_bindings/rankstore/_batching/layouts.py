# SPDX-License-Identifier: Apache-2.0
"""Layouts: how samples become a batch. Pad, Nested and Lists are here, Pack is in `pack`; `collator` applies them.

The library's threads do the work; these classes hold options and the names that models expect.

Integer columns become int64 (token ids, labels), but uint64 keeps its type. So do uint8 and int8, unless lengths count the column, whose
one dimension varies (bytes as tokens), or it is "labels". Floats keep theirs. `dtype` overrides this. str columns become lists of str,
bytes columns lists of memoryviews, and json columns lists of objects.
"""
from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from .. import _core
from .._schema.completion import hides
from .._schema.types import ITEMS, Column, describe, int_range, is_integer, torch_view
from ..errors import ArgumentError
from .batch import Batch
from .limits import Rule

Rename = Mapping[str, str]


@hides("by_column", "check", "check_unplanned", "cut_by_length", "cut_lengths", "cut_name", "cut_to", "each", "finish", "item", "item_with",
       "layout", "narrowed", "of_tokens", "options", "planned", "row", "specs", "tokens")
class Layout:
    """What all layouts have in common.

    dtype: str, torch or numpy dtype, or a dict of them by column. The item type of all integer columns, or of columns by name. Only a float
        column that a dict names may get a type that does not hold all its values: {"audio": torch.float32}. Default: int64 for integer
        columns; but uint64 keeps its type, and so do uint8 and int8 unless they are "labels", or the tokens that lengths count; else as
        stored.
    missing: "mask". Accept missing values (None); `batch.missing["y"]` (bool[samples]) marks them. Missing texts and bytes are None then.
        json has a null of its own and always gives None. Default: none, and a missing value is a DataError that names the sample, unless
        `fill` has the column.
    fill: dict of numbers or texts by column. What replaces a missing value. Default: none.
    """

    layout = "pad"
    cut_name = "max_length"  # the option that sets cut_to
    cut_to = 0  # longer samples are cut to this many items; 0: no cut
    cut_by_length = False  # cut only values with as many items as the index says: for the plan's cut, not for one of the layout's own
    tokens: frozenset[str] = frozenset()  # columns of uint8 and int8 that become int64
    cut_lengths: bool | None = None  # the cut applies to lengths too, because they count items; None: the length's column decides

    def __init__(self, dtype: Any = None, *, missing: str | None = None,
                 fill: Mapping[str, Any] | None = None) -> None:
        if missing not in (None, "mask"):
            raise ArgumentError(f'missing: {missing!r}; it is "mask" or None')
        if fill is not None and not isinstance(fill, Mapping):
            raise ArgumentError(f'fill: a dict of values by column, {{"y": -1}}, not {fill!r}')
        self.dtype = {name: item_name(one) for name, one in dtype.items()} if isinstance(dtype, Mapping) else item_name(dtype)
        self.missing, self.fill = missing, None if fill is None else dict(fill)

    def options(self, columns: Sequence[Column], rename: Rename, length: str | None = None) -> dict[str, Any]:
        """Return the options of _core.Collate. length: the column whose items lengths count, if it is one."""
        raise NotImplementedError

    def finish(self, batch: Batch, columns: Sequence[Column], rename: Rename, offsets: dict[str, Any],
               out: str, items: dict[str, Any], length: str | None = None) -> None:
        """Add what follows from the arrays. items: how many items samples have, for columns that need it."""

    def planned(self, rule: Rule, length: str | None, columns: Collection[str]) -> Layout:
        """Return the layout for a plan's batches.

        length: the column whose items lengths count. columns: those of a batch. Raises ArgumentError, which says what to change, if batches
            would not be as planned.
        """
        if rule.cut and length is None:
            raise ArgumentError('too_long="truncate": lengths of this dataset are not the item counts of a column, so batches '
                                'cannot be cut by them; use too_long="drop", or cut in build(map=...)')
        if rule.split and length is None:
            raise ArgumentError('too_long="split": lengths of this dataset are not the item counts of a column (str, bytes and json '
                                'are not cut), so samples cannot be cut by them; use too_long="drop", or cut in build(map=...)')
        made, own = copy.copy(self), self.cut_to
        name = self.cut_name
        shown = f"{type(self).__name__}({name}={own})"
        if own and length is not None and rule.cut and own != rule.cut:
            raise ArgumentError(f"{shown}: the plan cuts samples to {rule.cut}; leave {name} out, or give max_length={own} to plan()")
        if own and length is not None and rule.split and own < rule.split:
            raise ArgumentError(f"{shown}: the plan splits samples into pieces of {rule.split}; leave {name} out, or give "
                                f"max_length={own} to plan()")
        if own and length in columns and not rule.cut and not 0 < rule.longest <= own:
            raise ArgumentError(f'{shown}: the plan counts whole samples; give max_length={own}, too_long="truncate" to plan()')
        made.cut_to = rule.cut or own
        made.cut_by_length = bool(rule.cut) and not own
        made.cut_lengths = length is not None
        return made

    def check_unplanned(self) -> None:
        """Raise ArgumentError if the layout only makes batches of plans."""

    def by_column(self) -> dict[str, Mapping[str, Any]]:
        """Return the options that are dicts by column."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Mapping)}

    def check(self, schema: Mapping[str, Column], rename: Rename) -> None:
        """Raise ArgumentError if an option names an unknown column."""
        for option, value in self.by_column().items():
            for name in value:
                check_name(option, name, schema, rename)
        for name in self.fill or ():
            if schema[name].varies:
                raise ArgumentError(f"fill: column {name!r} ({schema[name].text}) has no items where it is missing; use "
                                    'missing="mask"')
            self._check_fill(schema[name], (self.fill or {})[name])

    def _check_fill(self, column: Column, value: Any) -> None:
        """Raise ArgumentError if the column, as it is delivered, cannot hold the value."""
        item = column.item if column.is_text else self.item(column) or column.item
        if column.is_text:
            good = column.item == "json" or isinstance(value, str if column.item == "str" else bytes)
        elif not hasattr(value, "__float__") or isinstance(value, (str, bytes)):
            good = False
        elif "int" in item:
            good = _fits(value, item)
        else:
            good = item != "bool" or value in (0, 1)
        if not good:
            raise ArgumentError(f"fill: {value!r} does not fit into {item}, the type of column {column.name!r} ({column.text})")

    def item(self, column: Column) -> str | None:
        """Return the item type that a column is converted to; None to keep it."""
        if column.is_text:
            return None
        if isinstance(self.dtype, Mapping):
            if column.name in self.dtype:
                return self.dtype[column.name]
        elif self.dtype is not None and column.is_integer:
            return self.dtype
        keeps = column.item == "uint64" or column.item in ("uint8", "int8") and column.name not in self.tokens
        return "int64" if column.is_integer and not keeps else None

    def of_tokens(self, schema: Mapping[str, Column], rename: Rename, length: str | None) -> Layout:
        """Return the layout for columns of which lengths count `length`."""
        made = copy.copy(self)
        counted = schema.get(length or "")
        tokens = {counted.name} if counted is not None and counted.varies and len(counted.dims) == 1 else set()
        made.tokens = frozenset(tokens | {name for name in schema if rename.get(name, name) == "labels"})
        return made

    def narrowed(self, column: Column) -> str | None:
        """Return the type to round a float column to after collating, if `dtype` names the column and that type; else None."""
        item = self.dtype.get(column.name) if isinstance(self.dtype, Mapping) else None
        is_float = item is not None and describe(item).kind == describe(column.item).kind == "float"
        return item if item is not None and is_float and not _core.converts(column.item, item) else None

    def item_with(self, column: Column, *pads: float) -> str | None:
        """Return the item type of a column that is padded with these values. uint8 and int8 widen for a padding such as -100.

        Raises ArgumentError if a type that the user chose does not hold the padding."""
        item = None if self.narrowed(column) is not None else self.item(column)
        if not column.is_text and item is not None and not _core.converts(column.item, item):
            raise ArgumentError(f"{type(self).__name__}(dtype=...): {item} does not hold every value of {column.item}, "
                                f"column {column.name!r}; "
                                + ("leave it out of dtype=" if isinstance(self.dtype, Mapping) else
                                   f'dtype={item!r} is for all integer columns, and dtype={{"COLUMN": {item!r}}} for one'))
        if column.is_text or not (column.varies or column.nullable):
            return item
        bad = next((pad for pad in pads if not _fits(pad, item or column.item)), None)
        if bad is None:
            return item
        if item is None and _fits(bad, "int64"):
            return "int64"
        kind = type(self).__name__
        asked = self.dtype if isinstance(self.dtype, str) else self.dtype and self.dtype.get(column.name)
        hint = f"leave {item} out of dtype=, which gives int64, or give another {{}}" if asked else "give another {}"
        option = "labels_pad" if bad == getattr(self, "labels_pad", None) else "pad_value"
        raise ArgumentError(f"{kind}: column {column.name!r} is filled with {bad!r}, which does not fit into {item or column.item}; "
                            f"{hint.format(option)}")

    def specs(self, columns: Sequence[Column], rename: Rename, pads: Mapping[str, float], default: float,
              packed: Collection[str] = (), items: Collection[str] = ()) -> list[tuple[Any, ...]]:
        """Return the specification of each column for _core.Collate."""
        found: list[tuple[Any, ...]] = []
        for column in columns:
            pad = pads.get(column.name, default) if column.varies or column.nullable else 0.0
            found.append((column.name, rename.get(column.name), self.item_with(column, pad), pad, None, column.nullable,
                          column.name in packed,
                          column.name in items, column.exact))
        return found

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in vars(self).items() if value is not None and not name.startswith("cut_")
                          and name not in ("layout", "row", "each", "tokens"))
        return f"{type(self).__name__}({shown})"


def _fits(pad: float, item: str) -> bool:
    """Return True if an item type holds the number. Only integer types refuse any."""
    if not hasattr(pad, "__float__") or isinstance(pad, str):
        return False
    low, high = int_range(item) if is_integer(item) else (None, None)
    return low is None or high is None or float(pad).is_integer() and low <= int(pad) <= high


def _is_named(dtype: str | Mapping[str, Any], column: Column) -> bool:
    """Return True if a layout's dtype applies to this column."""
    return column.name in dtype if isinstance(dtype, Mapping) else column.is_integer


def item_name(dtype: Any) -> str | None:
    """Return the name of an item type: "int64" for itself, torch.int64, numpy.int64, numpy.dtype("int64") or int.

    Raises ArgumentError if no column has that type."""
    if dtype is None or isinstance(dtype, str) and dtype in ITEMS:
        return dtype
    if dtype is int or dtype is float:  # as numpy and torch take them
        return f"{dtype.__name__}64"
    name = str(dtype).removeprefix("torch.")
    if name not in ITEMS and not isinstance(dtype, str):
        name = getattr(dtype, "__name__", "")  # numpy.int64 is a class
    if name not in ITEMS:
        raise ArgumentError(f"dtype: {dtype!r} is not an item type; {nearest(str(dtype), ITEMS)}")
    return name


def nearest(name: str, there: Collection[str]) -> str:
    """Return a hint: "did you mean 'x'? there are a, b, c"."""
    import difflib
    close = difflib.get_close_matches(name, list(there), 1, 0.5)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{hint}there are {', '.join(there)}"


def check_name(option: str, name: Any, schema: Mapping[str, Column], rename: Rename) -> None:
    """Raise ArgumentError if the schema has no column of this name."""
    if name in schema:
        return
    stored = next((one for one, shown in rename.items() if shown == name), None)
    hint = f"{stored!r} is renamed to it; give {stored!r}" if stored is not None else nearest(str(name), schema)
    raise ArgumentError(f"{option}: there is no column {name!r}; {hint}")


class Pad(Layout):
    """One tensor a column, [samples, width, ...], as wide as the longest sample.

    pad_value: number, or dict of numbers by column. The padding. Default: 0.
    to_multiple: int, at least 1. Round the width up to it. Default: the plan's length_multiple; 8 without a plan.
    side: str. Where the padding is, "right" or "left". Default: "right".
    mask: str, or dict of names by column. Name of an int64 tensor [samples, width] that is 1 where the length's column has items (or the
        first column of variable size, if the length has no such column). A dict names a mask for each of its columns, {"frames":
        "frames_mask"}; None makes no mask. A column of that name is the mask, padded with 0. Default: "attention_mask".
    labels_pad: number. The padding of columns called "labels". Default: -100, which torch's cross entropy ignores.
    max_length: int. Cut longer values of all columns to this many items. Default: what the plan cuts to, only for values that have as many
        items as the sample is long; 0, no cut, without a plan.
    layouts: dict by column. {"targets": "concat"} lays this column's samples end to end, [total, ...], without padding, as CTC losses need.
        Default: all columns are "pad".
    lengths: list of columns, or dict of names by column. Add int64[samples] with each sample's number of items, as "COLUMN_lengths" or
        under the dict's name. Default: none.
    dtype, missing, fill: as for Layout.
    """

    def __init__(self, pad_value: float | Mapping[str, float] = 0, *, to_multiple: int | None = None, side: str = "right",
                 mask: str | Mapping[str, str] | None = "attention_mask", labels_pad: float = -100, max_length: int = 0,
                 dtype: Any = None, missing: str | None = None, fill: Mapping[str, Any] | None = None,
                 layouts: Mapping[str, str] | None = None,
                 lengths: Sequence[str] | Mapping[str, str] | None = None) -> None:
        super().__init__(dtype, missing=missing, fill=fill)
        if side not in ("right", "left"):
            raise ArgumentError(f"side: {side!r} is neither 'right' nor 'left'")
        for name, layout in (layouts or {}).items():
            if layout not in ("pad", "concat"):
                raise ArgumentError(f"layouts: {layout!r} of {name!r} is neither 'pad' nor 'concat'")
        if isinstance(lengths, str):
            raise ArgumentError(f"lengths: a list of columns or a dict, not the str {lengths!r}")
        self.pad_value, self.to_multiple, self.side = pad_value, to_multiple, side
        self.mask, self.labels_pad, self.max_length = mask, labels_pad, max_length
        self.cut_to = max_length
        self.layouts = None if layouts is None else dict(layouts)
        self.lengths = lengths if lengths is None or isinstance(lengths, Mapping) else \
            {name: f"{name}_lengths" for name in lengths}

    def check(self, schema: Mapping[str, Column], rename: Rename) -> None:
        super().check(schema, rename)
        for option in ("mask", "lengths", "layouts"):
            given = getattr(self, option)
            for name in given if isinstance(given, Mapping) else ():
                if not schema[name].varies or schema[name].is_text:
                    raise ArgumentError(f"{option}: column {name!r} ({schema[name].text}) has no variable dimension")
                if option == "mask" and self._is_concat(name):
                    raise ArgumentError(f"mask: column {name!r} is concatenated, and has no padding; give lengths=[{name!r}]")

    def planned(self, rule: Rule, length: str | None, columns: Collection[str]) -> Layout:
        made = super().planned(rule, length, columns)
        assert isinstance(made, Pad)
        made.to_multiple = rule.multiple if self.to_multiple is None else self.to_multiple
        if rule.budget == 0 or length is None or length not in columns or self._is_concat(length):
            return made
        if rule.sums:
            raise ArgumentError("Pad(): the plan bounds sums of lengths, and a padded batch may be larger; use Pack(), or a plan "
                                'with another cost than "tokens" and another strategy than "pack"')
        if rule.multiple % made.to_multiple:
            raise ArgumentError(f"Pad(to_multiple={made.to_multiple}): the plan's budget counts widths in multiples of {rule.multiple}; "
                                f"give length_multiple={made.to_multiple} to plan(), or leave to_multiple out")
        return made

    def _is_concat(self, name: str) -> bool:
        return (self.layouts or {}).get(name) == "concat"

    def options(self, columns: Sequence[Column], rename: Rename, length: str | None = None) -> dict[str, Any]:
        pads = {column.name: self.labels_pad for column in columns if rename.get(column.name, column.name) == "labels"}
        default = 0.0
        if isinstance(self.pad_value, Mapping):
            pads.update(self.pad_value)
        else:
            default = self.pad_value
        padded = [column.name for column in columns if column.varies and not column.is_text and not self._is_concat(column.name)]
        mask, follows = None, None
        masked = [column.name for column in columns if column.name in padded and not (column.exact and len(column.dims) > 1)]  # no images
        if isinstance(self.mask, str) and masked:
            mask, follows = self.mask, length if length in masked else masked[0]
            given = next((column for column in columns if rename.get(column.name, column.name) == mask), None)
            if given is not None and (given.name not in padded or len(given.dims) != 1):
                raise ArgumentError(f"Pad(): the samples have a column {mask!r} ({given.text}), which is the mask's name and cannot be "
                                    "one; Pad(mask=None) delivers the column, columns= leaves it out, "
                                    "Pad(mask=NAME) calls the mask otherwise")
            if given is not None:
                mask, follows = None, None
                pads.setdefault(given.name, 0)  # padding is no item
        asked = {*(self.lengths or ()), *(self.mask if isinstance(self.mask, Mapping) else ())}
        packed = [column.name for column in columns if self._is_concat(column.name)]
        return {"layout": "pad", "columns": self.specs(columns, rename, pads, default, packed, asked),
                "to_multiple": 8 if self.to_multiple is None else self.to_multiple, "max_length": self.cut_to,
                "cut_by_length": self.cut_by_length, "left": self.side == "left", "mask": mask, "follows": follows}

    def finish(self, batch: Batch, columns: Sequence[Column], rename: Rename, offsets: dict[str, Any],
               out: str, items: dict[str, Any], length: str | None = None) -> None:
        for name, counts in items.items():
            column = next(column for column in columns if rename.get(column.name, column.name) == name)
            stored = column.name
            if isinstance(self.mask, Mapping) and stored in self.mask:
                width = batch[name].shape[1 + column.dims.index(None) if column.dims else 1]
                batch[self.mask[stored]] = tensor(self._mask(counts, width), "int64", out)
            if self.lengths is not None and stored in self.lengths:
                batch[self.lengths[stored]] = tensor(counts, "int64", out)

    def _mask(self, counts: Any, width: int) -> Any:
        import numpy
        places = numpy.arange(width)[None]
        is_item = places < counts[:, None] if self.side == "right" else places >= width - counts[:, None]
        return is_item.astype(numpy.int64)


class Nested(Layout):
    """torch.nested tensors of jagged layout, one a column of variable size: values and offsets without padding.

    dtype, missing, fill: as for Layout.
    """

    layout = "pack"

    def options(self, columns: Sequence[Column], rename: Rename, length: str | None = None) -> dict[str, Any]:
        return {"layout": "pack", "columns": self.specs(columns, rename, {}, 0), "max_length": self.cut_to,
                "cut_by_length": self.cut_by_length}

    def finish(self, batch: Batch, columns: Sequence[Column], rename: Rename, offsets: dict[str, Any],
               out: str, items: dict[str, Any], length: str | None = None) -> None:
        import torch
        if out != "torch":
            raise ArgumentError("Nested gives torch tensors: out='torch'")
        for name, bounds in offsets.items():
            batch[name] = torch.nested.nested_tensor_from_jagged(batch[name], torch.from_numpy(bounds.copy()))


class Lists(Layout):
    """One list a column with one value a sample: tensors of their own sizes, str, memoryviews.

    Item types are as stored, unless `dtype` changes them.

    dtype, missing, fill: as for Layout.
    """

    layout = "pack"

    def item(self, column: Column) -> str | None:
        return None if self.dtype is None else super().item(column) if _is_named(self.dtype, column) else None

    def options(self, columns: Sequence[Column], rename: Rename, length: str | None = None) -> dict[str, Any]:
        return {"layout": "pack", "columns": self.specs(columns, rename, {}, 0), "max_length": self.cut_to,
                "cut_by_length": self.cut_by_length}

    def finish(self, batch: Batch, columns: Sequence[Column], rename: Rename, offsets: dict[str, Any],
               out: str, items: dict[str, Any], length: str | None = None) -> None:
        for name, bounds in offsets.items():
            values, edges = batch[name], bounds.tolist()
            batch[name] = [values[begin:end] for begin, end in zip(edges, edges[1:])]


def tensor(array: Any, item: str, out: str) -> Any:
    """Return a numpy array as `out` says ("torch" or "numpy"), on the same memory."""
    if out == "numpy":
        return array
    import torch
    return torch_view(torch.from_numpy(array), item)
