# SPDX-License-Identifier: Apache-2.0
"""Paths: expands globs, and separates Arrow files from those that the C core reads."""
from __future__ import annotations

import glob
import os
from collections.abc import Sequence

from ..errors import ArgumentError, NotFoundError
from .arrow import ArrowFile, Parquet
from .base import Piece
from .native import CoreFiles

_ARROW = {".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow"}
_PIECES: dict[str, type[Parquet] | type[ArrowFile]] = {"parquet": Parquet, "arrow": ArrowFile}
# A folder with only such files becomes these files. The core reads any other folder.
_DATASETS = (*_ARROW, ".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2", ".zip", ".idx", ".bin")


def pieces(paths: Sequence[str], format: str | None) -> list[Piece]:  # noqa: A002
    """Return one piece for each Arrow file, and one for all files that the core reads, at the place of the first of these."""
    found = [inner for path in _expand(paths) for inner in _inside(path, format)]
    if not found:
        raise ArgumentError("source: no file was found in the given folders")
    kinds = [format or _ARROW.get(os.path.splitext(path)[1]) for path in found]
    names = _short_names([path for path, kind in zip(found, kinds, strict=True) if kind in _PIECES])
    made: list[Piece] = []
    core: list[str] = []
    for path, kind in zip(found, kinds, strict=True):
        if kind in _PIECES:
            made.append(_PIECES[kind](path, names.pop(0)))
            continue
        core.append(path)
        if len(core) == 1:
            made.append(CoreFiles(core, format))
    return [CoreFiles(core, format) if isinstance(piece, CoreFiles) else piece for piece in made]


def _expand(paths: Sequence[str]) -> list[str]:
    """Return the paths, with globs replaced by the sorted paths that they match. NotFoundError for a path that does not exist."""
    found: list[str] = []
    for path in paths:
        path = os.path.expanduser(path)
        if os.path.exists(path):
            found.append(path)
        elif any(mark in path for mark in "*?["):
            matches = sorted(glob.glob(path, recursive=True))
            if not matches:
                raise NotFoundError(f"{path}: matches no file")
            found.extend(matches)
        elif os.path.exists(path + ".idx") and os.path.exists(path + ".bin"):
            found.append(path + ".idx")
        else:
            raise NotFoundError(f"{path}: no such file")
    return found


def _inside(path: str, format: str | None) -> list[str]:  # noqa: A002
    if not os.path.isdir(path) or (format is not None and format not in _PIECES):
        return [path]
    files = sorted(os.path.join(top, file) for top, _, names in os.walk(path) for file in names)
    if format is not None or (files and all(_is_dataset(file) for file in files)):
        return files
    return [path]


def _is_dataset(file: str) -> bool:
    return file.endswith(_DATASETS) and (not file.endswith(".bin") or os.path.exists(file[:-4] + ".idx"))


def _short_names(paths: Sequence[str]) -> list[str]:
    """Return the base names if they differ, else the paths below their common folder."""
    bases = [os.path.basename(os.path.normpath(path)) for path in paths]
    if len(set(bases)) == len(bases):
        return bases
    common = os.path.commonpath([os.path.abspath(path) for path in paths])
    names = [os.path.relpath(os.path.abspath(path), common) for path in paths]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ArgumentError(f"source: {twice} was given twice; give each file once")
    return names
