# SPDX-License-Identifier: Apache-2.0
"""What the process that opened a dataset and its workers tell each other, by the library's wire (rankstore/worker.h). A message has parts,
each at a multiple of 64 bytes: u32 size of the header and the header (JSON), whose `sizes` are those of the other parts.

    request   {"op": "fetch" | "collate" | "key" | "find" | "spec" | "length_range", "sizes": [...], ...}   ids: int64
    reply     {"error": [status, rank, cause, host, text]} or {"sizes": [...], ...}
"""
from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_ALIGN = 64
IDS_MAX = 1 << 24
REQUEST_MAX = 8 * IDS_MAX + (1 << 20)


@dataclass(frozen=True)
class WorkerStoreSpec:
    """What a worker needs to know. Picklable, without handles."""

    directories: tuple[str | tuple[str, ...], ...]  # one entry per rank of this node: a directory, or several
    dataset: str
    schema: str
    count: int
    no_check: bool
    socket: str  # its name; "": the dataset was closed
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


def pack(header: dict[str, Any], parts: Sequence[Any] = ()) -> list[Any]:
    """Return the parts of a message, which the extension puts together."""
    text = json.dumps({**header, "sizes": [memoryview(part).nbytes for part in parts]}).encode()
    return [struct.pack("<I", len(text)) + text, *parts]


def unpack(message: Any) -> tuple[dict[str, Any], list[memoryview]]:
    """Return header and parts, which are views of the message. ValueError or struct.error if it is malformed."""
    whole = memoryview(message)
    (size,) = struct.unpack_from("<I", whole)
    header = json.loads(bytes(whole[4:4 + size]))
    at, parts = 4 + size, []
    for part in header.get("sizes", []):
        begin = -(-at // _ALIGN) * _ALIGN
        at = begin + part
        if part < 0 or at > len(whole):
            raise ValueError("a part lies outside of its message")
        parts.append(whole[begin:at])
    return header, parts
