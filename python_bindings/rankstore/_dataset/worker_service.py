# SPDX-License-Identifier: Apache-2.0
"""The side of the process that opened a dataset: it answers its worker processes."""
from __future__ import annotations

import dataclasses
import errno
import os
import struct
from collections.abc import Callable
from typing import Any

from .. import _core
from .._schema.types import as_array
from ..errors import RankStoreError
from .indexing import length_range
from .worker_messages import REQUEST_MAX, WorkerStoreSpec, pack, unpack

_LOOK_EVERY = 0.5  # seconds


def _shared_memory(size: int) -> int:
    """Return the descriptor of `size` bytes of zeros: a memfd or, if that is forbidden, a temporary file without a name."""
    import tempfile
    try:
        made = os.memfd_create("rankstore-refreshes")
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS, errno.EACCES):
            raise
        with tempfile.TemporaryFile() as file:
            made = os.dup(file.fileno())
    os.write(made, bytes(size))
    return made


class Service:
    """Answers the workers of an open dataset, on threads of the library. Started when the first worker may come."""

    def __init__(self, store: _core.Store, spec: Callable[[], WorkerStoreSpec] | None = None) -> None:
        import mmap
        self._store, self._describe = store, spec
        self.refreshes = 0
        self._arriving, self._looked = store.stats()["arriving_shards"], 0.0
        self._core = _core.WorkerService(self._answer, store.group.silence_ms, REQUEST_MAX)
        self.name, self.token = self._core.name, self._core.token
        self.counter = _shared_memory(8)
        self._shown = mmap.mmap(self.counter, 8)

    def _answer(self, request: bytes) -> list[Any]:
        header, parts = unpack(request)
        return pack(*self._reply(header, parts[0] if parts else memoryview(b"")))

    def _reply(self, header: dict[str, Any], data: memoryview) -> tuple[dict[str, Any], list[Any]]:
        reply: dict[str, Any]
        parts: list[Any]
        try:
            reply, parts = getattr(self, "_" + header["op"])(header, data)
        except RankStoreError as error:
            reply, parts = {"error": [error.code, error.rank, error.cause, error.host, error.text]}, []
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            reply, parts = {"error": [type(error).__name__, str(error)]}, []
        return reply, parts

    def _note_arrivals(self) -> None:
        """Once all shards have come from home, let the workers open them."""
        import time
        now = time.monotonic()
        if self._arriving == 0 or now < self._looked + _LOOK_EVERY:
            return
        self._looked = now
        self._arriving = self._store.stats()["arriving_shards"]
        if self._arriving == 0:
            self._tell_workers()

    def _fetch(self, header: dict[str, Any], ids: memoryview) -> tuple[dict[str, Any], list[Any]]:
        self._note_arrivals()
        samples = self._store.fetch(ids.cast("q"))
        dims: list[Any] = []
        parts: list[Any] = []
        for i in range(len(samples)):
            for value in samples.values(i):
                dims.append(None if value is None else value[1])
                parts.append(b"" if value is None else value[0])
        return {"dims": dims, "lengths": [samples.length(i) for i in range(len(samples))]}, parts

    def _collate(self, header: dict[str, Any], data: memoryview) -> tuple[dict[str, Any], list[Any]]:
        self._note_arrivals()
        sizes = header["parts"]
        ids, pieces = data[:8 * sizes[0]], data[8 * sizes[0]:8 * sizes[0] + sizes[1]]
        arrays = self._store.collate(ids.cast("q"), _core.Collate(**header["options"]), pieces, data[8 * sizes[0] + sizes[1]:])
        parts: list[Any] = [arrays.ids(), arrays.lengths(), arrays.pieces() or b""]
        shapes = []
        for name, item, dims, values, offsets in arrays.arrays():
            shapes.append([name, item, dims, offsets is not None])
            parts += [values] if offsets is None else [values, offsets]
        return {"arrays": shapes, "samples": arrays.samples}, parts

    def _key(self, header: dict[str, Any], data: memoryview) -> tuple[dict[str, Any], list[Any]]:
        return {}, [self._store.key(int(header["sample"]))]

    def _find(self, header: dict[str, Any], data: memoryview) -> tuple[dict[str, Any], list[Any]]:
        return {"sample": self._store.find(bytes(data), header.get("source"))}, []

    def _length_range(self, header: dict[str, Any], data: memoryview) -> tuple[dict[str, Any], list[Any]]:
        least, most = length_range(as_array(self._store.lengths(), "uint32"), as_array(data, "uint32") if header["chosen"] else None)
        return {"range": [least, most]}, []

    def _spec(self, header: dict[str, Any], data: memoryview) -> tuple[dict[str, Any], list[Any]]:
        if self._describe is None:
            raise KeyError("spec")
        return {"spec": dataclasses.asdict(self._describe())}, []

    def refresh(self, store: _core.Store) -> None:
        """Serve another generation."""
        self._store = store
        self._arriving = store.stats()["arriving_shards"]
        self._tell_workers()

    def _tell_workers(self) -> None:
        """Let the workers see that there is something new: they ask for what they need to know of it, and open their shards anew."""
        self.refreshes += 1
        self._shown[:] = struct.pack("<Q", self.refreshes)

    def close(self) -> None:
        """Close the service. A forked child only closes the descriptors: all else is its parent's."""
        self._core.close()
        self._shown.close()
        os.close(self.counter)
        # This object and the core's service hold each other until the collector comes: the store's descriptors must not.
        del self._store, self._describe
