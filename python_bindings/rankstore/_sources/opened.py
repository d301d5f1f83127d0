# SPDX-License-Identifier: Apache-2.0
"""Files that are open already, as sources: their lines are samples. And fsspec's OpenFiles, which are paths or URLs."""
from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from .._stores.address import is_url, local_path
from ..errors import ArgumentError, DataError
from .native import LINES, parse_line

_ENDINGS = {"gzip": (".gz", ".tgz"), "zstd": (".zst",), "xz": (".xz",), "bz2": (".bz2",)}  # which show the core a compression


def is_opened(source: Any) -> bool:
    """Say whether a source is a file object: something with `readline` and `read`."""
    return callable(getattr(source, "readline", None)) and callable(getattr(source, "read", None)) and hasattr(source, "__iter__")


def standard_input() -> Any:
    """Return the source that "-" stands for."""
    return getattr(sys.stdin, "buffer", sys.stdin)


def samples_of(file: Any, format: str | None) -> Iterator[dict[str, Any]]:  # noqa: A002
    """Yield a sample for each line of an open file, of text or of bytes. format: "jsonl" (the default) or "text"."""
    if format not in (None, *LINES):
        raise ArgumentError(f"format: an open file is read as lines, jsonl or text; for {format} give its path")
    return _lines(file, format == "text")


def _lines(file: Any, is_text: bool) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(file, 1):
        place = f"{getattr(file, 'name', 'source')}:{number}"
        try:
            text = line if isinstance(line, str) else bytes(line).decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{place}: not UTF-8: {error.reason}") from None
        text = text.removesuffix("\n").removesuffix("\r")
        if is_text:
            yield {"text": text}
        elif text and not text.isspace():
            try:
                sample = parse_line(text)
            except ValueError as error:
                raise DataError(f"{place}: invalid JSON: {error}") from None
            if not isinstance(sample, dict):
                raise DataError(f"{place}: not a JSON object")
            yield sample


def _is_open_file(one: Any) -> bool:
    return type(one).__module__ == "fsspec.core" and type(one).__name__ == "OpenFile"


def as_paths(source: Any, options: Mapping[str, Any] | None) -> tuple[Any, Mapping[str, Any] | None]:
    """Return paths or URLs, and storage_options, for fsspec's OpenFiles or one of them; anything else as it is.

    Raises ArgumentError for files that only this process reaches, or of several file systems.
    """
    files = [source] if _is_open_file(source) else list(source) if isinstance(source, (list, tuple)) else []
    if not files or not all(map(_is_open_file, files)):
        return source, options
    system = files[0].fs
    other = next((one for one in files if one.fs != system), None)
    if other is not None:
        raise ArgumentError(f"source: {files[0].path} and {other.path} are of different file systems; build from one, append the other")
    names = [local_path(str(one.full_name)) for one in files]
    for one, name in zip(files, names, strict=True):
        if one.compression is not None and not name.endswith(_ENDINGS.get(one.compression, ())):
            raise ArgumentError(f"source: {name} is compressed by {one.compression}, which its name does not show")
    if not any(map(is_url, names)):
        return names, options
    protocol = system.protocol if isinstance(system.protocol, str) else system.protocol[0]
    if protocol == "memory" or "::" in names[0] or "fo" in system.storage_options or "target_protocol" in system.storage_options:
        raise ArgumentError(f"source: files of {protocol} are read in a process of its own, which cannot reach them; open one and give the "
                            "file object, whose lines are samples")
    if options is not None:
        raise ArgumentError("storage_options: fsspec's files have those of their file system; leave the option out")
    try:
        json.dumps(system.storage_options)
    except TypeError as error:
        raise ArgumentError(f"source: the options of {protocol}'s file system cannot be written as JSON ({error})") from None
    return names, {"fsspec": dict(system.storage_options)}
