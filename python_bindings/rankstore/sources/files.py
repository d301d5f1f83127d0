# SPDX-License-Identifier: Apache-2.0
"""Paths: globs are expanded, and the name of a file says how it is read."""
from __future__ import annotations

import glob
import os
from collections.abc import Sequence

from ..errors import ArgumentError, NotFoundError
from .arrow import ArrowFile, Parquet
from .lines import COMPRESSIONS, Folder, Lines, open_file
from .mds import MDS
from .megatron import Megatron
from .source import Piece
from .tar import ENDINGS as TAR_ENDINGS
from .tar import Tar

FORMATS = ("jsonl", "text", "folder", "csv", "tsv", "npy", "parquet", "arrow", "megatron", "mds", "tar", "zip")
_BY_ENDING = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".txt": "text", ".text": "text",
              ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".npy": "npy",
              ".parquet": "parquet",
              ".pq": "parquet", ".arrow": "arrow", ".feather": "arrow", ".idx": "megatron", ".bin": "megatron",
              ".zip": "zip"}
_CORE_FORMATS = ("jsonl", "text", "folder", "csv", "tsv", "npy", "tar", "zip")


def core_reads(path: str, kind: str) -> bool:
    """The C core reads a file of this format itself."""
    if kind in ("csv", "tsv", "npy"):
        return os.path.splitext(path)[1] not in COMPRESSIONS
    return kind in _CORE_FORMATS and (kind == "folder" or os.path.splitext(path)[1] != ".lz4")


def expand(paths: Sequence[str]) -> list[str]:
    """Globs become the sorted paths they match; other paths stay. NotFoundError for what is not there."""
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


def format_of(path: str) -> str:
    """One of FORMATS, by name, else by content. ArgumentError where neither says."""
    if os.path.isdir(path):
        return "mds" if os.path.exists(os.path.join(path, "index.json")) else "folder"
    if path.endswith(TAR_ENDINGS):
        return "tar"
    base, ending = os.path.splitext(path)
    if ending in COMPRESSIONS:
        ending = os.path.splitext(base)[1]
    kind = _BY_ENDING.get(ending)
    if kind is None:
        return _by_content(path)
    if kind == "megatron" and not os.path.exists(base + (".bin" if ending == ".idx" else ".idx")):
        raise NotFoundError(f"{path}: {base}.bin and {base}.idx belong together; one is missing")
    return kind


def _by_content(path: str) -> str:
    with open_file(path) as file:
        head = file.read(65536)
    text = str(head, "utf-8", "ignore")
    if b"\0" in head or len(text.encode()) < len(head) - 3:
        raise ArgumentError(f"{path}: neither its name nor its content says what it is; give format=, one of "
                            f"{', '.join(FORMATS)}")
    return "jsonl" if text.removeprefix("\ufeff").lstrip().startswith("{") else "text"


def with_formats(paths: Sequence[str], given: str | None) -> list[tuple[str, str]]:
    """(path, format) of each. A folder of files of another format than "folder" gives these. The .bin of a .idx is left
    out."""
    each: list[tuple[str, str]] = []
    for path in expand(paths):
        if os.path.isdir(path) and given not in ("folder", "mds"):
            each.extend((file, given) for file in _walk(path)) if given else each.extend(_inside(path))
        else:
            each.append((path, given or format_of(path)))
    stems = set()
    kept = []
    for path, kind in each:
        stem = os.path.splitext(path)[0]
        if kind == "megatron" and stem in stems:
            continue
        if kind == "megatron":
            stems.add(stem)
        kept.append((path, kind))
    return kept


def _walk(path: str) -> list[str]:
    return sorted(os.path.join(top, file) for top, _, names in os.walk(path) for file in names)


def _inside(path: str) -> list[tuple[str, str]]:
    """A folder of nothing but datasets' files (Parquet, tar, ...) gives these; any other is a folder of files."""
    if format_of(path) == "mds":
        return [(path, "mds")]
    known = (*TAR_ENDINGS, ".zip", ".parquet", ".pq", ".arrow", ".feather", ".idx", ".bin")
    files = _walk(path)
    if files and all(file.endswith(known) for file in files):
        return [(file, format_of(file)) for file in files]
    return [(path, "folder")]


def piece(path: str, name: str, kind: str) -> Piece:
    """The piece of a file."""
    if kind in ("csv", "tsv", "npy"):
        raise ArgumentError(f"{path}: {kind} is read by the core alone: uncompressed, not together with other formats, "
                            "and without map or functions for length and key")
    if kind in ("jsonl", "text"):
        return Lines(path, name, kind)
    kinds: dict[str, type[Folder] | type[Parquet] | type[ArrowFile] | type[Megatron] | type[MDS] | type[Tar]] = {
        "folder": Folder, "parquet": Parquet, "arrow": ArrowFile, "megatron": Megatron, "mds": MDS, "tar": Tar}
    if kind == "zip":
        raise ArgumentError(f"{path}: zip is read by the C core alone, so without map and functions for length and key")
    if kind not in kinds:
        raise ArgumentError(f"format: {kind!r} is none of {', '.join(FORMATS)}")
    return kinds[kind](path, name)


def short_names(paths: Sequence[str]) -> list[str]:
    """The base names where they differ, else the paths below what they have in common."""
    bases = [os.path.basename(os.path.normpath(path)) for path in paths]
    if len(set(bases)) == len(bases):
        return bases
    common = os.path.commonpath([os.path.abspath(path) for path in paths])
    names = [os.path.relpath(os.path.abspath(path), common) for path in paths]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ArgumentError(f"source: {twice} is there twice")
    return names
