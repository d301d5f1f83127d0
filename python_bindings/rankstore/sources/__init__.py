# SPDX-License-Identifier: Apache-2.0
"""Where samples come from."""
from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError
from .columns import Columns
from .files import core_reads, expand, piece, short_names, with_formats
from .indexed import Indexed
from .source import Piece, Stream, Unit

__all__ = ["Columns", "CoreFiles", "Piece", "Source", "Stream", "Unit", "resolve"]


@dataclass(frozen=True)
class CoreFiles:
    """What the C core reads itself."""

    paths: list[str]
    format: str | None

    def identity(self) -> list[Any]:
        """Names and sizes, folders with what is in them."""
        found: list[Any] = []
        for path in self.paths:
            if not os.path.isdir(path):
                found.append([os.path.basename(path), os.path.getsize(path)])
            for top, folders, files in os.walk(path):
                folders.sort()
                found.extend([os.path.relpath(os.path.join(top, file), path), os.path.getsize(os.path.join(top, file))]
                             for file in sorted(files))
        return found


Source = CoreFiles | Stream | list[Piece]


def resolve(source: Any, *, format: str | None, python: bool, unit_samples: int | None) -> Source:  # noqa: A002
    """What `build` reads `source` as. `python`: samples are to be seen by Python, so the core does not read files
    itself.

    Raises ArgumentError, NotFoundError.
    """
    if isinstance(source, (str, os.PathLike)):
        source = [source]
    if isinstance(source, (list, tuple)) and source and all(isinstance(path, (str, os.PathLike)) for path in source):
        return _files([os.fspath(path) for path in source], format, python)
    if format is not None:
        raise ArgumentError("format: goes with paths only")
    if isinstance(source, (Mapping, bytes)):
        raise ArgumentError(f"source: a {type(source).__name__} is no dataset; give paths, a dataset, a table or an "
                            "iterable of samples")
    return _object(source, unit_samples)


def _files(paths: list[str], format: str | None, python: bool) -> Source:  # noqa: A002
    each = with_formats(paths, format)
    if not each:
        raise ArgumentError("source: no file")
    if not python and all(core_reads(path, kind) for path, kind in each):
        if {kind for _, kind in each} <= {"tar", "zip"}:  # also where a folder of them was given
            return CoreFiles([path for path, _ in each], format or each[0][1])
        return CoreFiles(expand(paths), format)
    names = short_names([path for path, _ in each])
    return [piece(path, name, kind) for (path, kind), name in zip(each, names, strict=True)]


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
