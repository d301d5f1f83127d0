# SPDX-License-Identifier: Apache-2.0
"""Finds out what kind of source the user gave, and returns it as pieces or a stream."""
from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any

from .._schema.columns import Columns, check_column_names
from ..errors import ArgumentError
from .arrays import rows_of
from .base import Piece, Stream
from .opened import is_opened, samples_of, standard_input
from .paths import pieces
from .sequence import Indexed
from .stored import Stored

Source = Stream | list[Piece]


def resolve(source: Any, *, format: str | None, unit_samples: int | None, each_rank: bool = False,  # noqa: A002
            same_on_all: bool = False, storage: str | None = None) -> Source:
    """Return `source` as `build` reads it: a stream, or a list of pieces.

    each_rank: a list, too, is this rank's own part. same_on_all: an iterable yields the same items on all ranks. storage: what the stores
    of URLs need, as JSON. Raises ArgumentError, NotFoundError.
    """
    if isinstance(source, str) and source == "-":
        source = standard_input()
    if is_opened(source):
        return Stream(samples_of(source, format), os.path.basename(str(getattr(source, "name", "file"))), same_on_all)
    if isinstance(source, (str, os.PathLike)):
        source = [source]
    if isinstance(source, (list, tuple)) and source and all(isinstance(path, (str, os.PathLike)) for path in source):
        if each_rank:
            raise ArgumentError("each_rank: only for samples in memory; files are split between all ranks")
        return pieces([os.fspath(path) for path in source], format, storage)
    if format is not None:
        raise ArgumentError("format: only for paths")
    if isinstance(source, bytes):
        raise ArgumentError("source: bytes are not a dataset; give paths, a dataset, a table or an iterable of samples")
    if isinstance(source, dict) and type(source).__module__.startswith("datasets."):
        raise ArgumentError(f"source: {type(source).__name__} has several splits; give one of them: "
                            + ", ".join(f"source[{name!r}]" for name in source))
    if type(source).__name__ == "DataFrame" and hasattr(source, "columns"):
        check_column_names(map(str, source.columns))
        source = {str(name): source[name] for name in source.columns}
    elif getattr(getattr(source, "dtype", None), "names", None):  # a structured array of numpy
        source = {name: source[name] for name in source.dtype.names}
    rows = rows_of(source)
    source = source if rows is None else rows
    found = _object(source, unit_samples)
    if isinstance(found, Stream):
        return Stream(found.items, found.name, same_on_all)
    if each_rank and not isinstance(found[0], Indexed):
        raise ArgumentError(f"each_rank: only for lists, datasets with __getitem__ and iterables, not for {type(source).__name__}")
    return Stream((source[i] for i in range(len(source))), type(source).__name__) if each_rank else found


def _object(source: Any, unit_samples: int | None) -> Source:
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None and type(source).__module__.startswith("pyarrow."):
        from .arrow import Table, read_table
        source = read_table(source)
        if isinstance(source, (pyarrow.Table, pyarrow.RecordBatch)):
            return [Table(source)]
    if hasattr(source, "with_format") and hasattr(source, "features") and hasattr(source, "data"):
        if source.format["type"] != "custom":
            from .arrow import HuggingFace
            return [HuggingFace(source)]
        return [Indexed(source, unit_samples)]  # a transform of the user's own makes the samples
    if isinstance(source, (list, tuple)) and any(isinstance(sample, Columns) for sample in source):
        return Stream(source, "list")
    torch = sys.modules.get("torch.utils.data")
    if torch is not None and isinstance(source, torch.IterableDataset):  # it inherits a __getitem__ that raises, and may have a length
        return Stream(source, type(source).__name__)
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        if unit_samples is None and Stored.fits(source):
            return [Stored(source)]
        return [Indexed(source, unit_samples)]
    if isinstance(source, Iterable):
        return Stream(source, type(source).__name__)
    raise ArgumentError(f"source: {type(source).__name__} is not supported; give paths, a table, a dataset with "
                        "__len__ and __getitem__, or an iterable")
