# SPDX-License-Identifier: Apache-2.0
"""Paths: expands globs, and separates Arrow files from those that the C core reads."""
from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from typing import Any

from .._stores.address import is_url, local_path
from ..errors import ArgumentError, NotFoundError
from .arrow import ArrowFile, Parquet
from .base import Piece
from .native import CoreFiles

_ARROW = {".parquet": "parquet", ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow"}
_PIECES: dict[str, type[Parquet] | type[ArrowFile]] = {"parquet": Parquet, "arrow": ArrowFile}
# A folder of such files becomes these files. The core reads any other folder.
_DATASETS = (*_ARROW, ".tar", ".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2", ".zip", ".idx", ".bin")
# Files that tools leave beside data: checksums, descriptions, and what Hugging Face's save_to_disk writes.
_BESIDE_ENDINGS = (".md", ".crc", ".md5", ".sha1", ".sha256", ".sha512")
_BESIDE = {"readme", "readme.txt", "license", "license.txt", "dataset_info.json", "dataset_infos.json", "state.json"}


def has_urls(source: Any) -> bool:
    """Return True if a source of `build` is a URL, or a list with one."""
    paths = source if isinstance(source, (list, tuple)) else [source]
    return any(is_url(os.fspath(path)) for path in paths if isinstance(path, (str, os.PathLike)))


def pieces(paths: Sequence[str], format: str | None, storage: str | None = None) -> list[Piece]:  # noqa: A002
    """Return one piece for each Arrow file, and one for all files that the core reads, at the place of the first of these.

    storage: what the stores of URLs need, as JSON.
    """
    found = [inner for path in _expand(paths) for inner in _inside(path, format)]
    if not found:
        raise ArgumentError("source: no file was found in the given folders")
    for path in filter(is_url, found):
        if (format or _ARROW.get(os.path.splitext(path)[1].lower())) in _PIECES:
            raise ArgumentError(f"source: {path}: Parquet and Arrow files in a store are read by pyarrow: "
                                "build(pyarrow.dataset.dataset(URL), ...)")
    kinds = [format or _ARROW.get(os.path.splitext(path)[1].lower()) for path in found]
    names = _short_names([path for path, kind in zip(found, kinds, strict=True) if kind in _PIECES])
    made: list[Piece] = []
    core: list[str] = []
    for path, kind in zip(found, kinds, strict=True):
        if kind in _PIECES:
            made.append(_PIECES[kind](path, names.pop(0)))
            continue
        core.append(path)
        if len(core) == 1:
            made.append(CoreFiles(core, format, storage))
    return [CoreFiles(core, format, storage) if isinstance(piece, CoreFiles) else piece for piece in made]


def _expand(paths: Sequence[str]) -> list[str]:
    """Return the paths, with globs replaced by the sorted paths that they match. NotFoundError for a path that does not exist."""
    found: list[str] = []
    for path in paths:
        path = os.path.expanduser(local_path(path))
        if is_url(path):  # the core asks the store
            found.append(path)
        elif os.path.exists(path):
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
    if os.path.exists(os.path.join(path, "dataset_dict.json")):
        splits = sorted(one.name for one in os.scandir(path) if one.is_dir())
        raise ArgumentError(f"source: {path} holds a Hugging Face DatasetDict; give one of its splits: "
                            + ", ".join(os.path.join(path, split) for split in splits))
    files = sorted(os.path.relpath(os.path.join(top, file), path) for top, _, names in os.walk(path) for file in names)
    data = [file for file in files if not _is_beside(file)]
    datasets = [file for file in data if format is not None or _is_dataset(os.path.join(path, file))]
    if not datasets:
        return [path]
    if len(datasets) < len(data):
        other = next(file for file in data if file not in datasets)
        raise ArgumentError(f'source: {path} holds {datasets[0]}, a dataset, and {other}, which is none; give the files to read, or '
                            'format="folder" to make a sample of each file')
    partition = next((part for file in datasets for part in file.split(os.sep)[:-1] if "=" in part), None)
    if partition is not None:
        raise ArgumentError(f"source: the folders of {path} have values of a column ({partition}), which is not read; read it as "
                            "pyarrow.dataset.dataset(..., partitioning=\"hive\").to_table(), or give the files of one folder")
    return [os.path.join(path, file) for file in datasets]


def _is_beside(file: str) -> bool:
    """Return True for what is no data of its folder: hidden and temporary files (a name with `.` or `_` first), and those about data."""
    parts = file.lower().split(os.sep)
    return any(part[0] in "._" for part in parts) or parts[-1] in _BESIDE or parts[-1].endswith(_BESIDE_ENDINGS)


def _is_dataset(file: str) -> bool:
    name = file.lower()
    return name.endswith(_DATASETS) and (not name.endswith(".bin") or os.path.exists(file[:-4] + ".idx"))


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
