# SPDX-License-Identifier: Apache-2.0
"""The side of the process that opened a dataset: it answers its worker processes."""
from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import struct
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import _core
from .._schema.types import as_array
from ..errors import RankStoreError
from .indexing import length_range
from .worker_frames import IDS_MAX, WorkerStoreSpec, head, is_own_user, receive, send

if TYPE_CHECKING:
    import socket

_NAP = 0.05  # seconds, until a connection is accepted again after a failure
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
    """Answers the workers of an open dataset, one thread a connection. Started when the first worker may come."""

    def __init__(self, store: _core.Store, spec: Callable[[], WorkerStoreSpec] | None = None) -> None:
        import mmap
        import secrets
        import socket
        self._store, self._describe = store, spec
        self.refreshes = 0
        self._arriving, self._looked = store.stats()["arriving_shards"], 0.0
        self.counter = _shared_memory(8)
        self._shown = mmap.mmap(self.counter, 8)
        self._ended = threading.Event()
        self._busy: dict[socket.socket, threading.Lock] = {}  # connections whose reply is in progress
        self.name = f"rankstore-workers-{secrets.token_hex(16)}"
        self.token = secrets.token_hex(16)
        self._pid = _core.pid()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._listener.bind("\0" + self.name)
        self._listener.listen(128)
        self._beat_every = store.group.silence_ms / 3000
        for target in (self._accept, self._beat):
            threading.Thread(target=target, name="rankstore-workers", daemon=True).start()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                if error.errno in (errno.EBADF, errno.EINVAL, errno.ENOTSOCK):  # the listener was closed
                    return
                self._ended.wait(_NAP)  # too few descriptors or too little memory now, or the worker gave up: try the next
                continue
            if not is_own_user(connection):  # checked before a thread is started
                connection.close()
                continue
            try:
                threading.Thread(target=self._serve, args=(connection,), name="rankstore-worker", daemon=True).start()
            except RuntimeError:  # no thread can be started: the closed connection ends this worker's wait
                connection.close()
                self._ended.wait(_NAP)

    def _beat(self) -> None:
        import socket
        beat = head({"beat": True}, [])
        while not self._ended.wait(self._beat_every):
            for connection, sending in list(self._busy.items()):
                if sending.acquire(blocking=False):  # else the reply is being sent
                    with contextlib.suppress(OSError):
                        connection.send(beat, socket.MSG_DONTWAIT)
                    sending.release()

    def _serve(self, connection: socket.socket) -> None:
        import hmac
        with connection:
            try:
                while True:
                    header, parts = receive(connection, 8 * IDS_MAX)
                    if not hmac.compare_digest(str(header.get("token", "")), self.token):
                        return
                    self._answer(connection, header, parts[0] if parts else bytearray())
            except (EOFError, OSError, ValueError):
                return

    def _answer(self, connection: socket.socket, header: dict[str, Any], data: bytearray) -> None:
        sending = self._busy[connection] = threading.Lock()
        try:
            reply, parts = self._reply(header, data)
            with sending:
                send(connection, reply, parts)
        finally:
            del self._busy[connection]

    def _reply(self, header: dict[str, Any], data: bytearray) -> tuple[dict[str, Any], list[Any]]:
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

    def _fetch(self, header: dict[str, Any], ids: bytearray) -> tuple[dict[str, Any], list[Any]]:
        self._note_arrivals()
        samples = self._store.fetch(memoryview(ids).cast("q"))
        dims: list[Any] = []
        parts: list[Any] = []
        for i in range(len(samples)):
            for value in samples.values(i):
                dims.append(None if value is None else value[1])
                parts.append(b"" if value is None else value[0])
        return {"dims": dims, "lengths": [samples.length(i) for i in range(len(samples))]}, parts

    def _collate(self, header: dict[str, Any], data: bytearray) -> tuple[dict[str, Any], list[Any]]:
        self._note_arrivals()
        whole, sizes = memoryview(data), header["parts"]
        ids, pieces = whole[:8 * sizes[0]], whole[8 * sizes[0]:8 * sizes[0] + sizes[1]]
        arrays = self._store.collate(ids.cast("q"), _core.Collate(**header["options"]), pieces, whole[8 * sizes[0] + sizes[1]:])
        parts: list[Any] = [arrays.ids(), arrays.lengths(), arrays.pieces() or b""]
        shapes = []
        for name, item, dims, values, offsets in arrays.arrays():
            shapes.append([name, item, dims, offsets is not None])
            parts += [values] if offsets is None else [values, offsets]
        return {"arrays": shapes, "samples": arrays.samples}, parts

    def _key(self, header: dict[str, Any], data: bytearray) -> tuple[dict[str, Any], list[Any]]:
        return {}, [self._store.key(int(header["sample"]))]

    def _find(self, header: dict[str, Any], data: bytearray) -> tuple[dict[str, Any], list[Any]]:
        return {"sample": self._store.find(bytes(data), header.get("source"))}, []

    def _length_range(self, header: dict[str, Any], data: bytearray) -> tuple[dict[str, Any], list[Any]]:
        least, most = length_range(as_array(self._store.lengths(), "uint32"), as_array(data, "uint32") if header["chosen"] else None)
        return {"range": [least, most]}, []

    def _spec(self, header: dict[str, Any], data: bytearray) -> tuple[dict[str, Any], list[Any]]:
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
        """Close the service. A forked child only closes the descriptor.

        The socket and its name are the parent's, and so are locks that its threads held at the fork."""
        if self._pid == _core.pid():
            import socket
            self._ended.set()
            self._listener.shutdown(socket.SHUT_RDWR)  # ends the thread's accept(), which close() alone does not
        self._listener.close()
        self._shown.close()
        os.close(self.counter)
