# SPDX-License-Identifier: Apache-2.0
"""The files that `gather` writes: under a temporary name beside the target, renamed when they are complete."""
from __future__ import annotations

import hashlib
import json
import os
import queue
import re
import secrets
import shutil
import threading
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import IO, Any
from urllib.parse import quote

from .. import _core
from ..errors import ArgumentError, DataError
from .entries import Entry, Result
from .safetensors import SafetensorsWriter, Tensor

_KEY_MOST = 511  # bytes of a dataset's key
_BATCH = 1 << 20  # bytes of results that are passed on at once, or one result


class File(ABC):
    """A file that results are added to, in the order of the entries."""

    def __init__(self, path: str, entries: Sequence[Entry]) -> None:
        self.path = path
        self.temporary = ""
        self.escapes = any(not _is_text(entry.name) for entry in entries)

    def text(self, name: str) -> str:
        """Return a name as UTF-8, with %XX if it is not UTF-8 or if it contains %XX itself."""
        return _quoted(name) if self.escapes and (not _is_text(name) or _ESCAPED.search(name)) else name

    @abstractmethod
    def add(self, head: Result, data: bytes) -> None: ...

    @abstractmethod
    def end(self) -> None:
        """Complete the file on disk and give it its name."""

    @abstractmethod
    def close(self) -> None:
        """Remove a file that was not completed. May be called twice."""


class _OneFile(File):
    def __init__(self, path: str, entries: Sequence[Entry]) -> None:
        super().__init__(path, entries)
        folder = os.path.dirname(os.path.abspath(path))
        self.temporary = _temporary(folder, path)
        handle = os.open(self.temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        self.file: IO[bytes] = os.fdopen(handle, "wb", 1 << 20)
        try:
            self.begin(entries)
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def begin(self, entries: Sequence[Entry]) -> None: ...

    def end(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        os.replace(self.temporary, self.path)
        self.temporary = ""
        _sync(os.path.dirname(os.path.abspath(self.path)))

    def close(self) -> None:
        self.file.close()
        if self.temporary:
            os.unlink(self.temporary)
            self.temporary = ""


class Safetensors(_OneFile):
    def begin(self, entries: Sequence[Entry]) -> None:
        self.writer = SafetensorsWriter(self.file,
                                        [Tensor(self.text(entry.name), entry.dtype, entry.shape, entry.size) for entry in entries])

    def add(self, head: Result, data: bytes) -> None:
        self.writer.write(data)

    def end(self) -> None:
        self.writer.end()
        super().end()


def member_name(name: str) -> str:
    """Return the name of a zip's member for a name.

    It is the same if it is UTF-8 without NULs and stays inside the folder that the archive is unpacked into. Otherwise all characters but
    letters and digits become %XX. `urllib.parse.unquote` decodes it; with errors="surrogateescape" also a name that is not UTF-8.
    """
    leads = any(part in ("", ".", "..") for part in name.split("/")) or "\\" in name or _DRIVE.match(name)
    return _quoted(name) if leads or "\0" in name or not _is_text(name) or _ESCAPED.search(name) else name


def _quoted(name: str) -> str:
    return quote(name, safe="", errors="surrogateescape")


def _is_text(name: str) -> bool:
    """Return True for UTF-8. Surrogates stand for bytes that are not."""
    return not _SURROGATE.search(name)


_SURROGATE = re.compile("[\ud800-\udfff]")
_DRIVE = re.compile(r"[A-Za-z]:")
_ESCAPED = re.compile(r"%[0-9A-Fa-f]{2}")


class Npz(_OneFile):
    """A file as numpy.savez writes it: a zip of stored .npy members."""

    def begin(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            if entry.dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
                raise DataError(f"{entry.name}: numpy has no {entry.dtype}; write .safetensors, or convert it")
        self.zip = zipfile.ZipFile(self.file, "w", zipfile.ZIP_STORED, allowZip64=True)
        self.entries = iter(entries)
        self.member: Any = None
        self.left = 0

    def add(self, head: Result, data: bytes) -> None:
        if self.left == 0:
            self._next()
        self.member.write(data)
        self.left -= 1
        if self.left == 0:
            self.member.close()
            self.member = None

    def _next(self) -> None:
        import numpy
        entry = next(self.entries)
        self.member = self.zip.open(zipfile.ZipInfo(member_name(entry.name) + ".npy"), "w", force_zip64=True)
        self.left = entry.parts
        numpy.lib.format.write_array_header_1_0(
            self.member, {"descr": numpy.lib.format.dtype_to_descr(numpy.dtype(entry.dtype)), "fortran_order": False,
                          "shape": entry.shape})

    def end(self) -> None:
        self.zip.close()
        super().end()

    def close(self) -> None:
        if self.temporary and getattr(self, "zip", None) is not None:
            if self.member is not None:
                self.member.close()
                self.member = None
            self.zip.close()
        super().close()


class Directory(File):
    """A Rankstore dataset of one rank: each result is a sample, with columns name, index, dtype, shape, and data as bytes."""

    given_up = ended = False
    SCHEMA = json.dumps({"name": "str", "index": "uint64", "dtype": "str", "shape": "int64[*]", "data": "bytes"})

    def __init__(self, path: str, entries: Sequence[Entry]) -> None:
        super().__init__(path, entries)
        if any(entry.parts > 1 for entry in entries):
            raise ArgumentError("stack: a dataset holds each result on its own; write .safetensors or .npz")
        if os.path.lexists(path) and (not os.path.isdir(path) or os.listdir(path)):
            raise ArgumentError(f"{path}: exists and is not an empty directory; give another name")
        folder = os.path.dirname(os.path.abspath(path))
        self.temporary = _temporary(folder, os.path.normpath(path))
        os.mkdir(self.temporary, 0o777)
        self.failure: BaseException | None = None
        self.queue: queue.Queue[list[tuple[Any, str]] | None] = queue.Queue(1)
        self.batch: list[tuple[Any, str]] = []
        self.bytes = 0
        self.thread: threading.Thread | None = threading.Thread(target=self._build, name="rankstore-gather", daemon=True)
        self.thread.start()

    def _build(self) -> None:
        """Build in a thread of its own: the core asks for rows, and results come when they come."""
        group = _core.Group(solo=True)
        try:
            _core.build_input(group, self, self.temporary, schema=self.SCHEMA, own_keys=True, length="data", index=("index",))
        except BaseException as raised:
            self.failure = self.failure or raised
        finally:
            group.close()
            for _ in self._batches():
                pass  # the other thread must not wait for room

    def _batches(self) -> Iterator[list[tuple[Any, str]]]:
        while not self.ended:
            batch = self.queue.get()
            if batch is None:
                self.ended = True
            else:
                yield batch

    def scan(self, base: str | None, generation: int) -> tuple[list[tuple[str, int]], int, str | None]:
        return [("results", 1)], _core.STREAM_NONE, None

    def read(self, unit: int, sink: _core.Sink) -> None:
        try:
            for batch in self._batches():
                for row, key in batch:
                    sink.add(row, key)
            if self.given_up:
                raise RuntimeError("given up")
        except BaseException as raised:
            self.failure = raised
            raise

    def add(self, head: Result, data: bytes) -> None:
        import numpy
        shape = numpy.array(head.shape, dtype=numpy.int64)
        name = self.text(head.name)
        key = f"{name}/{head.index}"
        if len(key.encode()) > _KEY_MOST:
            key = f"{hashlib.sha256(name.encode()).hexdigest()}/{head.index}"
        self.batch.append(((name, head.index, head.dtype, shape, data), key))
        self.bytes += len(data)
        if self.bytes > _BATCH or len(self.batch) == 256:
            self._pass_on()

    def _pass_on(self) -> None:
        if self.failure is not None:
            raise self.failure
        self.queue.put(self.batch)
        self.batch, self.bytes = [], 0

    def end(self) -> None:
        self._pass_on()
        self._stop()
        if self.failure is not None:
            raise self.failure
        if os.path.isdir(self.path):
            os.rmdir(self.path)
        os.rename(self.temporary, self.path)
        try:
            _sync(os.path.dirname(os.path.abspath(self.path)))
        except OSError:
            os.rename(self.path, self.temporary)  # to be removed: the same call, made again, must not meet it
            raise
        self.temporary = ""

    def _stop(self) -> None:
        thread, self.thread = self.thread, None
        if thread is not None:
            self.queue.put(None)
            thread.join()

    def close(self) -> None:
        self.given_up = True
        self._stop()
        if self.temporary:
            shutil.rmtree(self.temporary, ignore_errors=True)
            self.temporary = ""


def _temporary(folder: str, path: str) -> str:
    """Return a new name beside `path`.

    What is created under it gets its mode from the umask, as any file does. The umask is not read, because reading changes it for other
    threads.
    """
    return os.path.join(folder, f".{os.path.basename(path)}.{secrets.token_hex(8)}")


def _sync(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
