# SPDX-License-Identifier: Apache-2.0
"""What the process that opened a dataset and its workers tell each other. Frames, both ways: u32 size of the header, header (JSON), then as
many bytes as the header's `sizes` add up to.

    request   {"token", "op": "fetch" | "collate" | "key" | "find" | "spec" | "length_range", "sizes": [...], ...}   ids: int64
    reply     {"error": [status, rank, cause, host, text]} or {"sizes": [...], ...}
    beat      {"beat": true, "sizes": []}, three times in the silence limit while a reply is being made
"""
from __future__ import annotations

import json
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import socket

_HEADER_MAX = 64 << 20
IDS_MAX = 1 << 24


class Connection(Protocol):
    """What frames need of a socket."""

    def recv_into(self, view: memoryview, /) -> int: ...
    def sendall(self, data: bytes | memoryview, /) -> None: ...


@dataclass(frozen=True)
class WorkerStoreSpec:
    """What a worker needs to know. Picklable, without handles."""

    directories: tuple[str | tuple[str, ...], ...]  # one entry per rank of this node: a directory, or several
    dataset: str
    schema: str
    count: int
    no_check: bool
    socket: str  # its abstract name; "": the dataset was closed
    token: str
    rank: int
    world: int
    silence: float  # seconds
    sources: tuple[tuple[str, str, str, int, int, int], ...] = ()  # as returned by `store.sources()`
    names: tuple[str, ...] | None = None  # names of several datasets
    columns: tuple[str, ...] | None = None
    counted: tuple[tuple[str | None, int, str], ...] = ()  # for each source, what its lengths count
    pid: int = 0  # the process that made the spec; 0: not known
    index_dir: str | None = None
    shards: tuple[str, ...] = ()  # patterns of folders that may hold more shards, of all ranks of this node
    counter: int = -1  # descriptor, of process `pid`, of the memory that counts refreshes; -1: none
    refreshes: int = 0  # its value for this spec


def is_own_user(connection: socket.socket) -> bool:
    """Return True if the peer's user is this process's. Anybody can connect to an abstract name."""
    import socket
    seen = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return bool(struct.unpack("3i", seen)[1] == os.geteuid())


def head(header: dict[str, Any], sizes: list[int]) -> bytes:
    text = json.dumps({**header, "sizes": sizes}).encode()
    return struct.pack("<I", len(text)) + text


def send(connection: Connection, header: dict[str, Any], parts: Sequence[Any] = ()) -> None:
    views = [memoryview(part).cast("B") for part in parts]
    connection.sendall(head(header, [len(view) for view in views]))
    for view in views:
        connection.sendall(view)


def _receive_exactly(connection: Connection, size: int) -> bytearray:
    data = bytearray(size)
    view, have = memoryview(data), 0
    while have < size:
        count = connection.recv_into(view[have:])
        if count == 0:
            raise EOFError
        have += count
    return data


def receive(connection: Connection, limit: int | None) -> tuple[dict[str, Any], list[bytearray]]:
    """`limit` bounds what a stranger may make us allocate; None for the parent's own replies."""
    (size,) = struct.unpack("<I", _receive_exactly(connection, 4))
    if size > (_HEADER_MAX if limit is None else 1 << 20):
        raise EOFError
    header = json.loads(_receive_exactly(connection, size))
    sizes = header.get("sizes", [])
    if limit is not None and (len(sizes) > 1 or sum(sizes) > limit or min(sizes, default=0) < 0):
        raise EOFError
    return header, [_receive_exactly(connection, part) for part in sizes]
