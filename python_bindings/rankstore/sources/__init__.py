# SPDX-License-Identifier: Apache-2.0
"""Where samples come from."""
from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import ArgumentError
from .columns import Columns
from .core_files import CoreFiles
from .files import pieces
from .indexed import Indexed
from .source import Piece, Stream, Unit

__all__ = ["Columns", "CoreFiles", "Piece", "Source", "Stream", "Unit", "resolve"]


Source = Stream | list[Piece]


def resolve(source: Any, *, format: str | None, unit_samples: int | None) -> Source:  # noqa: A002
    """What `build` reads `source` as.

    Raises ArgumentError, NotFoundError.
    """
    if isinstance(source, (str, os.PathLike)):
        source = [source]
    if isinstance(source, (list, tuple)) and source and all(isinstance(path, (str, os.PathLike)) for path in source):
        return pieces([os.fspath(path) for path in source], format)
    if format is not None:
        raise ArgumentError("format: goes with paths only")
    if isinstance(source, (Mapping, bytes)):
        raise ArgumentError(f"source: a {type(source).__name__} is no dataset; give paths, a dataset, a table or an "
                            "iterable of samples")
    return _object(source, unit_samples)


def _object(source: Any, unit_samples: int | None) -> Source:
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None and isinstance(source, (pyarrow.Table, pyarrow.RecordBatch)):
        from .arrow import Table
        return [Table(source)]
    if hasattr(source, "with_format") and hasattr(source, "features") and hasattr(source, "data"):
        if source.format["type"] in (None, "arrow", "python", "numpy", "torch"):
            from .arrow import HuggingFace
            return [HuggingFace(source)]
        return [Indexed(source, unit_samples)]  # a transform of the user's own makes the samples
    if isinstance(source, (list, tuple)) and any(isinstance(sample, Columns) for sample in source):
        return Stream(source, "list")
    if hasattr(source, "__getitem__") and hasattr(source, "__len__"):
        return [Indexed(source, unit_samples)]
    if isinstance(source, Iterable):
        return Stream(source, type(source).__name__)
    raise ArgumentError(f"source: {type(source).__name__} is none of paths, a table, a dataset with __len__ and "
                        "__getitem__, an iterable")
