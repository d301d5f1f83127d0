# SPDX-License-Identifier: Apache-2.0
"""A dataset in worker processes (torch's DataLoader with num_workers > 0: fork, forkserver or spawn).

A worker opens the shards of its node itself, read-only, in the generation that its parent has (a counter in shared memory says when that
changes), and asks its parent for the rest: by the wire of the ranks, over a Unix socket (rankstore/worker.h; worker_messages.py).

The parent's library answers pings also while its Python threads cannot run, since one of them holds the interpreter's lock. So a worker's
wait ends only if the parent's process ends, or is stopped for the silence limit.
"""
from __future__ import annotations

import contextlib
import os
import re
import struct
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import _core
from .._distributed import shutdown
from .._provenance.dataset_json import described
from ..errors import RankStoreError, StateError, TimeoutError, make
from .worker_messages import IDS_MAX, WorkerStoreSpec, pack, unpack
from .worker_service import Service

if TYPE_CHECKING:
    import mmap


class Handle:
    """An open store of this process, shared by a dataset and its selections. In a forked child it becomes a WorkerStore."""

    def __init__(self, store: _core.Store | WorkerStore, directories: tuple[str | tuple[str, ...], ...], rank: int,
                 world: int, no_check: bool, names: tuple[str, ...] | None = None,
                 columns: tuple[str, ...] | None = None, counted: tuple[tuple[str | None, int, str], ...] = (),
                 index_dir: str | None = None, shards: tuple[str, ...] = ()) -> None:
        self._store: Any = store
        self._pid = _core.pid()
        self.directories, self._rank, self._world, self.no_check = directories, rank, world, no_check
        self.names, self.columns, self.counted, self.index_dir = names, columns, counted, index_dir
        self.shards = shards
        self._service: Service | None = None
        self.datasets: weakref.WeakSet[Any] = weakref.WeakSet()  # those over this store
        self.plans: list[weakref.ref[Any]] = []  # those that `Dataset.plan` made, in the order that all ranks have
        self._made = 0  # how many
        self.asked: tuple[str | list[str], dict[str, Any]] = ("", {})  # what `open` asked the core for
        shutdown.remember_handle(self)

    @property
    def store(self) -> Any:
        if _core.pid() != self._pid:
            self._become_worker()
        return self._store

    @property
    def is_worker(self) -> bool:
        return isinstance(self.store, WorkerStore)

    def spec(self) -> WorkerStoreSpec:
        """Return the spec, and start the service. A worker needs it for shards that lie elsewhere, or that it finds no longer: `prune` or a
        replacing build has removed them, and only this process has them open."""
        store = self.store
        if isinstance(store, WorkerStore):
            return store.spec
        if self._service is None and not store.closed:
            self._service = Service(store, self.spec)
        service = self._service
        return WorkerStoreSpec(self.directories, store.dataset, store.schema, store.count, self.no_check,
                               service.name if service else "", service.token if service else "", self._rank, self._world,
                               store.group.silence_ms / 1000, tuple(store.sources()), self.names, self.columns, self.counted,
                               os.getpid(), self.index_dir, self.shards, service.counter if service else -1,
                               service.refreshes if service else 0)

    def note_plan(self, plan: Any, asked: Any) -> None:
        """Remember a plan, which a refresh makes anew. Ranks number alike: they make their plans together."""
        self._made += 1
        plan.asked, plan.number = asked, self._made
        self.plans.append(weakref.ref(plan))

    def swap(self, store: _core.Store) -> None:
        """Use a store of another generation from now on, also for worker processes. The caller closes the one before."""
        self._store = store
        if self._service is not None:
            self._service.refresh(store)

    def before_fork(self) -> None:
        if _core.pid() == self._pid and not self._store.closed:
            self._child_spec = self.spec()

    def after_fork(self) -> None:
        """The child lets go of the socket: it would be there, with nobody to accept, when the parent is gone."""
        if self._service is not None:
            self._service.close()
            self._service = None

    def _become_worker(self) -> None:
        parents = self._store
        _abandoned.append(parents)  # its threads and connections belong to the parent, so it is never freed here
        self._store, self._pid = WorkerStore(self._child_spec), _core.pid()

    def close(self, timeout_ms: int) -> None:
        if self._service is not None:
            self._service.close()
            self._service = None
        if _core.pid() == self._pid:
            self._store.close(timeout_ms)


_abandoned: list[Any] = []


def _before_fork() -> None:
    for handle in shutdown.handles():
        handle.before_fork()


def _after_fork() -> None:
    for handle in shutdown.handles():
        handle.after_fork()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


# ---- the worker's side ----------------------------------------------------------------------------------------------

class ReceivedSamples:
    """The interface of _core.Samples over samples that the parent sent."""

    def __init__(self, columns: int, ids: Sequence[int], reply: dict[str, Any], parts: list[memoryview]) -> None:
        self._columns, self._ids, self._dims, self._lengths, self._parts = columns, ids, reply["dims"], reply["lengths"], parts

    def __len__(self) -> int:
        return len(self._ids)

    def id(self, i: int) -> int:
        return int(self._ids[i])

    def length(self, i: int) -> int:
        return int(self._lengths[i])

    @property
    def nbytes(self) -> int:
        return sum(map(len, self._parts))

    def values(self, i: int) -> list[Any]:
        places = range(i * self._columns, (i + 1) * self._columns)
        return [None if self._dims[k] is None else (self._parts[k], tuple(self._dims[k])) for k in places]


class ReceivedArrays:
    """The interface of _core.Arrays over arrays that the parent sent."""

    def __init__(self, header: dict[str, Any], parts: list[memoryview]) -> None:
        self.samples: int = header["samples"]
        self._shapes, self._parts = header["arrays"], parts

    def ids(self) -> memoryview:
        return self._parts[0]

    def lengths(self) -> memoryview:
        return self._parts[1]

    def pieces(self) -> memoryview | None:
        return self._parts[2] if len(self._parts[2]) else None

    def arrays(self) -> list[Any]:
        found, parts = [], iter(self._parts[3:])
        for name, item, dims, has_offsets in self._shapes:
            values = next(parts)
            found.append((name, item, tuple(dims), values, next(parts) if has_offsets else None))
        return found


def _of_dataset(directory: str, dataset: str) -> str:
    """Return the name of the directory's generation with this id: "DIR", or "DIR@N" after an append; "DIR" if there is none."""
    def holds(name: str) -> bool:
        found = described(name)
        return found is not None and found["dataset"] == dataset

    if holds(directory):
        return directory
    with contextlib.suppress(OSError):
        older = [found.group(1) for name in os.listdir(directory) if (found := re.fullmatch(r"dataset\.([0-9]+)\.json", name))]
        return next((name for name in (f"{directory}@{number}" for number in older) if holds(name)), directory)
    return directory


def _counter_of(spec: WorkerStoreSpec) -> mmap.mmap | None:
    """Map the parent's count of refreshes; None if there is none, or if it cannot be seen here."""
    import mmap
    if spec.counter < 0:
        return None
    try:
        with open(f"/proc/{spec.pid}/fd/{spec.counter}", "rb") as file:
            return mmap.mmap(file.fileno(), 8, prot=mmap.PROT_READ)
    except (OSError, ValueError):
        return None


def _as_tuples(value: Any) -> Any:
    """Return a JSON value with tuples in the place of lists."""
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


class WorkerStore:
    """The interface of _core.Store in a worker process."""

    closed = False

    def __init__(self, spec: WorkerStoreSpec) -> None:
        self.spec, self.schema = spec, spec.schema
        self._refreshes = _counter_of(spec)
        self._columns = len(_core.parse_schema(spec.schema)[1])
        self._lock = threading.Lock()
        self._link: _core.WorkerLink | None = None
        self._group: _core.Group | None = None
        self._stores: list[_core.Store] = []

    def _look(self) -> None:
        """Take over the generation that the parent has now, if it was refreshed."""
        if self._refreshes is None or self._refreshes[:] == struct.pack("<Q", self.spec.refreshes):
            return
        there = self._ask({"op": "spec"})[0]["spec"]
        with self._lock:
            self._close_stores()
            self.spec = WorkerStoreSpec(**{name: _as_tuples(value) for name, value in there.items()})

    @property
    def count(self) -> int:
        self._look()
        return self.spec.count

    @property
    def dataset(self) -> str:
        self._look()
        return self.spec.dataset

    def _open(self) -> list[_core.Store]:
        with self._lock:
            if self._group is None:
                self._group = _core.Group(solo=True)
                for directory in self.spec.directories:
                    self._open_directory(directory)
        return self._stores

    def _open_directory(self, directory: str | tuple[str, ...]) -> None:
        """Open the generation that the parent has. One that cannot be opened is the parent's to serve, which has its files open."""
        ids = [source[2] for source in self.spec.sources]
        given: str | tuple[str, ...] = (_of_dataset(directory, ids[0]) if isinstance(directory, str)
                                        else tuple(map(_of_dataset, directory, ids)))
        try:
            store = _core.Store(self._group, given, missing="partial", no_check=self.spec.no_check,  # type: ignore[arg-type]
                                names=self.spec.names, columns=self.spec.columns, index_dir=self.spec.index_dir,
                                shards=self.spec.shards)
        except RankStoreError:
            return
        if store.dataset == self.spec.dataset:
            self._stores.append(store)

    def _holder(self, ids: Sequence[int]) -> _core.Store | None:
        """Return the store that has all of these samples on this node."""
        count = self.count
        for sample in ids:
            if not 0 <= sample < count:
                raise IndexError(f"sample {sample} is out of range: the dataset has {count}")
        for store in self._open():
            if all(store.owner(sample) >= 0 for sample in ids):
                return store
        return None

    def _linked(self) -> _core.WorkerLink:
        with self._lock:
            if self._link is None:
                self._link = _core.WorkerLink(self.spec.socket, self.spec.token, round(1000 * self.spec.silence))
        return self._link

    def _ask(self, header: dict[str, Any], parts: Sequence[Any] = ()) -> tuple[dict[str, Any], list[memoryview]]:
        if not self.spec.socket:
            raise StateError(f"{self.spec.directories[0]}: a shard cannot be opened in this worker process")
        try:
            reply, data = unpack(self._linked().ask(pack(header, parts)))
        except TimeoutError as silent:
            raise make(-6, self.spec.rank, 0, "", silent.text) from None
        if "error" in reply:
            if len(reply["error"]) == 2:
                kind, text = reply["error"]
                raise {"KeyError": KeyError, "IndexError": IndexError}.get(kind, TypeError)(text)
            raise make(*reply["error"])
        return reply, data

    def fetch(self, ids: Sequence[int]) -> Any:
        store = self._holder(ids)
        if store is not None:
            return store.fetch(ids)
        reply, parts = self._ask({"op": "fetch"}, [_packed(ids)])
        return ReceivedSamples(self._columns, ids, reply, parts)

    def collate(self, ids: Sequence[int], collate: _core.Collate, options: dict[str, Any], pieces: bytes = b"",
                bins: bytes = b"") -> Any:
        store = self._holder(ids)
        if store is not None:
            return store.collate(ids, collate, pieces, bins)
        reply, parts = self._ask({"op": "collate", "options": options, "parts": [len(ids), len(pieces)]},
                                 [_packed(ids) + pieces + bins])
        return ReceivedArrays(reply, parts)

    def view(self, sample: int) -> list[Any]:
        store = self._holder([sample])
        if store is not None:
            return store.view(sample)
        values: list[Any] = self.fetch([sample]).values(0)
        return values

    def key(self, sample: int) -> bytes:
        store = self._holder([sample])
        if store is not None:
            return store.key(sample)
        return bytes(self._ask({"op": "key", "sample": sample})[1][0])

    def find(self, key: str | bytes, source: int | None = None) -> int:
        self._look()
        own = self._open() if self.spec.world == 1 else []
        if own:
            return own[0].find(key, source)
        whole = key.encode() if isinstance(key, str) else bytes(key)
        return int(self._ask({"op": "find", "source": source}, [whole])[0]["sample"])

    def length_range(self, chosen: Any) -> tuple[int, int]:
        """Return the least and the greatest length of samples, which the process that opened the dataset knows. chosen: uint32, ids; None
        for all."""
        self._look()
        parts = [b""] if chosen is None else [chosen[at:at + IDS_MAX] for at in range(0, len(chosen), IDS_MAX)]
        ranges = [self._ask({"op": "length_range", "chosen": chosen is not None}, [part])[0]["range"] for part in parts]
        there = [(least, most) for least, most in ranges if least <= most]
        return (min(least for least, _ in there), max(most for _, most in there)) if there else (1, 0)

    def sources(self) -> list[tuple[str, str, str, int, int, int]]:
        self._look()
        return list(self.spec.sources)

    def close(self, timeout_ms: int = 0) -> None:
        if self._link is not None:
            self._link.close()
        self._close_stores()
        if self._refreshes is not None:
            self._refreshes.close()
            self._refreshes = None
        self.closed = True

    def _close_stores(self) -> None:
        for store in self._stores:
            store.close()
        self._stores = []
        if self._group is not None:
            self._group.close()
            self._group = None

    def __getattr__(self, name: str) -> Any:
        raise StateError(f"{name}: ask for it in the process that opened the dataset; a worker process only reads samples")


def _packed(ids: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(ids)}q", *ids)
