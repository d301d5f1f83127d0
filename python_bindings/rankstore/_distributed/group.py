# SPDX-License-Identifier: Apache-2.0
"""The ranks of a job: who they are, and how they find each other.

Ranks meet in torch's store: they put addresses and public keys there, at most 4 KiB a rank, and delete them afterwards. Everything else
is sent over Rankstore's own connections.
"""
from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .. import _core
from ..errors import ArgumentError, PeerError, RankStoreError, StateError, UnsupportedError, code_of, make
from . import shutdown
from .stderr import say

if TYPE_CHECKING:
    from types import TracebackType

_DATA = -9
_PEER = -5
_current: Group | None = None
_PATIENCE = 60.0  # seconds, as in the core
_generations = {"store": 0, "job": 0}  # groups opened at stores that the caller gave, and by the job's launcher


class Group:
    """The ranks of a job. `init` and `launch` make it; it is a context manager.

    Attributes: rank (0 to world - 1), world (number of ranks), node (this rank's), nodes (how many), launcher (how the ranks found each
        other).
    """

    def __init__(self, core: _core.Group, launcher: str) -> None:
        self.core = core
        self.launcher = launcher
        self.pid = os.getpid()
        shutdown.remember_group(self)

    @property
    def rank(self) -> int:
        """Return this process's rank, from 0 to world - 1."""
        return self.core.rank

    @property
    def world(self) -> int:
        """Return the number of ranks."""
        return self.core.size

    @property
    def node(self) -> int:
        """Return the number of this rank's node, from 0."""
        return self.core.node

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return self.core.nodes

    @property
    def closed(self) -> bool:
        """Return True once the group is closed."""
        return self.core.closed

    def agree(self, phase: str, error: str | None = None) -> None:
        """End a phase on all ranks (collective). If a rank gives `error`, the text of its failure, all ranks raise DataError with it."""
        self.core.agree(phase, _DATA if error is not None else 0, error or "")

    def allgather(self, phase: str, data: bytes) -> list[bytes]:
        """Return the bytes of all ranks, in rank order (collective). Sizes may differ."""
        return self.core.allgather(phase, data)

    def barrier(self) -> None:
        """Wait until all ranks have called it (collective), however long: others say after `patience` who waits for whom."""
        self.core.allgather("barrier", b"")

    def leave(self, error: BaseException | None = None) -> None:
        """Announce that this rank makes no further collective call, so that those of the other ranks fail.

        With `error`, theirs raise PeerError with its text, or the error itself if it is one of Rankstore's. Never waits. Close datasets and
        the group afterwards. A process that ends does all this by itself, with the exception or exit code that ended it."""
        if self.pid != os.getpid() or self.core.closed:
            return
        if error is None:
            self.core.leave()
        elif isinstance(error, RankStoreError):
            self.core.leave(code_of(error), _line(error.text), error.rank, _line(error.host))
        elif isinstance(error, SystemExit):
            self.core.leave(_PEER, f"ended with exit code {error.code}" if isinstance(error.code, int)
                            else f"ended with exit code 1: {_line(error.code)}")
        else:
            self.core.leave(_PEER, f"ended by {type(error).__name__}: {_line(error)}")

    def close(self, *, briefly: bool = False) -> None:
        """Close the connections to the other ranks.

        First serves ranks that still use a dataset which this rank has closed, as long as they live; with `briefly`, at most for the
        silence limit. May be called twice. Raises StateError if a dataset of the group is open."""
        global _current
        if self.pid == os.getpid():
            self.core.close(briefly)
        if _current is self:
            _current = None
        shutdown.forget_group(self)

    def close_at_exit(self) -> None:
        """Close the group when the exit code of the process is known; for an `atexit` function, as Rankstore's own does.

        If the code is 0, this is `close`. Otherwise the calls of the other ranks fail with that code, and this rank serves nobody. Raises
        StateError if a dataset of the group is open."""
        global _current
        try:
            if self.pid == os.getpid():
                self.core.close_at_exit()
        except RankStoreError:
            self.leave()  # even if something is open: nobody may wait for this rank
            raise
        if _current is self:
            _current = None
        shutdown.forget_group(self)

    def __dir__(self) -> list[str]:
        """Return what completion shows: nothing private, nor what is for other packages of ours."""
        return [name for name in super().__dir__() if name not in ("core", "pid") and (name.startswith("__") or not name.startswith("_"))]

    def __enter__(self) -> Group:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Close the group. After an exception, calls of the other ranks fail with it, and this rank serves nobody any more."""
        if not _ends_well(value):
            self.leave(value)
        try:
            self.close()
        except StateError:  # datasets that the block left open: what ended the block says more
            if value is None:
                raise

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"rank {self.rank} of {self.world} on node {self.node} of {self.nodes}"
        return f"<rankstore.Group {state}, by {self.launcher}>"


def _line(value: Any) -> str:
    """Return a value's text as C accepts it, without lone surrogates and NULs. An exception may raise when asked for its text."""
    try:
        text = str(value)
    except Exception as failed:
        text = f"its text is not available ({type(failed).__name__})"
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _ends_well(error: BaseException | None) -> bool:
    """Return True if nothing was raised, or an exit with code 0."""
    return error is None or isinstance(error, SystemExit) and error.code in (None, 0)


def init(group: Any = None, *, rank: int | None = None, world: int | None = None, arrival: float = 300,
         silence: float | None = None, patience: float | None = None, listen: str | None = None,
         secret_file: str | None = None,
         node: str | None = None) -> Group:
    """Connect the ranks of this job and make them the default group (collective: call it on every rank).

    It looks for a launcher in this order and uses the first one it finds:

    1. its argument: a Group, "solo", an mpi4py communicator, a torch store with rank and world;
    2. a process group of torch.distributed that is initialised;
    3. torchrun's variables (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT);
    4. mpirun's (Open MPI), through the C module;
    5. srun's step (SLURM_STEP_ID, SLURM_PROCID, SLURM_STEP_NUM_TASKS): ranks meet at MASTER_ADDR or else the step's first host;
    6. otherwise this process is alone.

    group: str, Group, mpi4py communicator or torch.distributed Store. "solo" is this process alone, "mpi" uses Open MPI's launcher, "torch"
        uses torch's rendezvous. A Store needs `rank` and `world`. Default: detected, in this order.
    rank: int, at least 0. This process's rank, with a Store. Default: the launcher's.
    world: int, at least 1. The number of ranks, with a Store. Default: the launcher's.
    arrival: float, in seconds. How long to wait for ranks that start later, if ranks meet at a store. Default: 300.
    silence: float, in seconds. How long a rank may be silent before the others consider it lost. They wait for a rank that is slow but
        alive. Default: 15.
    patience: float, in seconds. After waiting this long, also for ranks to arrive, print a line on stderr that names the missing rank.
        Default: 60.
    listen: str. Address or interface to listen on. Default: RKS_LISTEN, else the group's.
    secret_file: path. A file of at least 32 bytes with mode 0600. Default: RKS_SECRET_FILE, else a file that rank 0 makes in RKS_JOB_DIR,
        else none: ranks then trust the keys that they find in the store.
    node: str. Name of this rank's node; ranks with equal names share memory. Containers that share no memory (neither TMPDIR, /tmp nor the
        network namespace) count as nodes of their own, each with its own copy of the index; one line says so. Default: RKS_NODE, else the
        machine, by its boot id.

    Returns the Group.
    Raises ArgumentError, PeerError, TimeoutError or UnsupportedError.
    """
    global _current
    if isinstance(group, Group):
        _current = group
        return group
    options: dict[str, Any] = {"listen": listen, "secret_file": secret_file, "node": node}
    options["silence_ms"] = None if silence is None else _milliseconds("silence", silence)
    options["patience_ms"] = None if patience is None else _milliseconds("patience", patience)
    kind = "store" if hasattr(group, "multi_get") else "job"
    if group != "solo":  # one rank may open such groups, and the others count as it does
        _generations[kind] += 1
    waits = _PATIENCE if patience is None else patience
    made = _open(group, rank, world, _Setting(_generations[kind], _milliseconds("arrival", arrival) / 1000, waits, options))
    _current = made
    return made


def current() -> Group:
    """Return the default group: the one of the last `init`, or else a new one, by detection (then collective).

    Raises StateError in a process that was forked from one with a group."""
    if _current is not None and not _current.closed:
        if _current.pid != os.getpid():
            raise StateError("this process was forked from one that has a group; call rankstore.init() of its own here")
        return _current
    return init()


def ranks_here() -> tuple[int, int]:
    """Return (world, rank) of this process's job, without opening a group: (1, 0) if it is alone."""
    if _current is not None and not _current.closed:
        return _current.world, _current.rank
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_world_size(), distributed.get_rank()
    for world, rank in (("WORLD_SIZE", "RANK"), ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"), ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID")):
        if world in os.environ and rank in os.environ:
            return _number(world, 1), _number(rank, 0)
    return 1, 0


@dataclass(frozen=True)
class _Setting:
    """What every way of opening a group needs: the number of this init call, how late ranks may be, and after how long a line names them
    (seconds), options of _core.Group."""

    generation: int
    arrival: float
    patience: float
    options: dict[str, Any]


def _milliseconds(name: str, seconds: float) -> int:
    if not 0 < seconds < 4e6:
        raise ArgumentError(f"{name}: {seconds} seconds; it must be more than 0 and less than 4,000,000")
    return max(1, int(seconds * 1000))


def _open(group: Any, rank: int | None, world: int | None, setting: _Setting) -> Group:
    options = setting.options
    if (rank is not None or world is not None) and not hasattr(group, "multi_get"):
        raise ArgumentError("rank= and world= are only for a torch store, as in init(store, rank=0, world=2); launchers tell them by "
                            "themselves")
    if group is None:
        return _detect(setting)
    if group == "solo":
        return Group(_core.Group(solo=True, **options), "one process")
    if group == "mpi":
        return Group(_core.Group(**options), "Open MPI")
    if group == "torch":
        return _open_torch(setting)
    if hasattr(group, "Iallgather") and hasattr(group, "Get_rank"):
        bootstrap = _CommBootstrap(group)
        return Group(_core.Group(name="mpi4py", rank=group.Get_rank(), size=group.Get_size(),
                                 allgather=bootstrap.allgather,
                                 **options), "mpi4py")
    if hasattr(group, "multi_get") and hasattr(group, "set"):
        if rank is None or world is None:
            raise ArgumentError("a store needs rank= and world=")
        return _open_store(group, rank, world, "", "a torch store", setting)
    raise ArgumentError(f"group: {group!r} is not supported; give None, 'solo', 'mpi', 'torch', a Group, an mpi4py communicator or "
                        "a torch store")


def _detect(setting: _Setting) -> Group:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        store = distributed.distributed_c10d._get_default_store()
        return _open_store(store, distributed.get_rank(), distributed.get_world_size(), _run_name(),
                           "torch's process group", setting)
    environ = os.environ
    if all(name in environ for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")):
        return _open_torch(setting)
    if "OMPI_COMM_WORLD_SIZE" in environ:
        return Group(_core.Group(**setting.options), "Open MPI")
    for name in ("PMIX_RANK", "PMI_RANK"):
        if name in environ and "SLURM_STEP_ID" not in environ and _number("PMI_SIZE", 2) > 1:  # 2: not said, so perhaps several
            raise UnsupportedError(f"{name} is set by a launcher that is not Open MPI; pass its communicator: "
                                   "rankstore.init(mpi4py.MPI.COMM_WORLD)")
    if "SLURM_STEP_ID" in environ and _number("SLURM_STEP_NUM_TASKS", 1) > 1:
        return Group(_core.Group(arrival_ms=_milliseconds("arrival", setting.arrival), **setting.options), "srun")
    return Group(_core.Group(solo=True, **setting.options), "one process")


def _number(name: str, default: int) -> int:
    """Return an integer variable of a launcher."""
    text = os.environ.get(name, "") or str(default)
    if not text.isdecimal():
        raise ArgumentError(f"{name}={text!r} in the environment is not a number")
    return int(text)


# ---- torch's stores --------------------------------------------------------------------------------------------------

def _run_name() -> str:
    """Return a prefix of keys that differs between attempts of the same job, so that no rank reads the keys of an earlier one."""
    environ = os.environ
    return f"{environ.get('TORCHELASTIC_RUN_ID', '')}.{environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


def _open_torch(setting: _Setting) -> Group:
    rank, world = _number("RANK", 0), _number("WORLD_SIZE", 1)
    if rank >= world:
        raise ArgumentError(f"RANK={rank} in the environment is not below WORLD_SIZE={world}")
    hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"  # torchrun's agent has opened it
    host = os.environ.get("MASTER_ADDR", "127.0.0.1")
    store = _connect(host, _number("MASTER_PORT", 29500), rank, world, rank == 0 and not hosted, setting)
    return _open_store(store, rank, world, _run_name(), "torch's rendezvous", setting)


def _connect(host: str, port: int, rank: int, world: int, is_master: bool, setting: _Setting) -> Any:
    """Return a TCPStore that torch.distributed can share (multi_tenant).

    Torch's rendezvous would wait for all ranks in one call that no signal ends. Here each try is short, and the first all-gather finds out
    who is missing."""
    try:
        from torch.distributed import TCPStore  # type: ignore[attr-defined,unused-ignore]
    except ImportError as missing:
        raise UnsupportedError("ranks that meet without mpirun need torch's TCPStore; torch cannot be imported: "
                               f"{missing}") from missing
    deadline = time.monotonic() + setting.arrival
    while True:
        left = deadline - time.monotonic()
        try:
            store = TCPStore(host, port, world, is_master, timeout=timedelta(seconds=max(0.1, min(left, 2))),
                                         wait_for_workers=False, multi_tenant=True)
            break
        except RuntimeError as error:
            if left <= 2:
                raise make(-6, 0, 0, host, f"rank {rank} cannot reach the store of rank 0 at {host}:{port} after "
                           f"{setting.arrival:g} s: {str(error).splitlines()[0]}") from error
    store.set_timeout(timedelta(seconds=setting.arrival))
    return store


def _open_store(store: Any, rank: int, world: int, run: str, launcher: str, setting: _Setting) -> Group:
    bootstrap = _StoreBootstrap(store, rank, world, f"rankstore/{run}/{setting.generation}", setting)
    try:
        core = _core.Group(name="store", rank=rank, size=world, allgather=bootstrap.allgather, **setting.options)
    except PeerError as error:
        if isinstance(error.__cause__, RankStoreError):  # the all-gather's error names the missing ranks
            raise error.__cause__ from None
        raise
    bootstrap.forget()
    return Group(core, launcher)


class _StoreBootstrap:
    """An all-gather of small records over a key-value store (set, check, multi_get)."""

    def __init__(self, store: Any, rank: int, world: int, prefix: str, setting: _Setting) -> None:
        self._store, self._rank, self._world, self._prefix, self._arrival = store, rank, world, prefix, setting.arrival
        self._patience: float | None = setting.patience  # None: the line was printed
        self._round = 0

    def allgather(self, record: bytes, timeout_ms: int) -> Sequence[bytes]:
        keys = [f"{self._prefix}/{self._round}/{rank}" for rank in range(self._world)]
        limit = self._arrival if self._round == 0 else timeout_ms / 1000
        self._round += 1
        self._store.set(keys[self._rank], record)
        self._wait(keys, limit)
        return [bytes(record) for record in self._store.multi_get(keys)]

    def forget(self) -> None:
        """Delete this rank's records, which every rank has read once the group is open.

        Stores that cannot delete keep them; they are useless to whoever reads them."""
        for number in range(self._round):
            try:
                self._store.delete_key(f"{self._prefix}/{number}/{self._rank}")
            except (RuntimeError, AttributeError, NotImplementedError):
                return

    def _wait(self, keys: list[str], limit: float) -> None:
        """Poll until all keys are there. The store's own wait sees no signal and prints a warning when it ends."""
        begun, nap = time.monotonic(), 0.001
        try:
            while not self._store.check(keys):
                waited = time.monotonic() - begun
                if waited > limit:
                    raise self._who(keys, limit)
                if self._patience is not None and waited > self._patience:
                    self._say_who(keys)
                time.sleep(nap)
                nap = min(nap * 1.5, 0.1)
        except RuntimeError as gone:
            raise make(-5, 0, 0, "", "the rank that holds the store where ranks meet has gone before all had arrived") from gone

    def _missing(self, keys: list[str]) -> list[int]:
        return [rank for rank, key in enumerate(keys) if not self._store.check([key])]

    def _who(self, keys: list[str], limit: float) -> RankStoreError:
        return make(-6, -1, 0, "", f"ranks {self._missing(keys)[:8]} have not arrived after {limit:g} s")

    def _say_who(self, keys: list[str]) -> None:
        """Print one line, on the lowest rank that waits: most often a script builds on rank 0 alone, before a barrier."""
        missing = self._missing(keys)
        here = [rank for rank in range(self._world) if rank not in missing]
        if missing and here[0] == self._rank:
            say(f"ranks {here[:8]} have waited {self._patience:g} s in init for ranks {missing[:8]}. init, build and open are "
                'collective: call them on every rank, or on one alone as `with rankstore.init("solo") as alone: build(..., group=alone)`')
        self._patience = None


# ---- mpi4py --------------------------------------------------------------------------------------------------------

class _CommBootstrap:
    """The same all-gather over an mpi4py communicator: bytes without pickle, with a time limit."""

    def __init__(self, communicator: Any) -> None:
        self._comm = communicator.Dup()

    def allgather(self, record: bytes, timeout_ms: int) -> Sequence[bytes]:
        size = self._comm.Get_size()
        everything = bytearray(len(record) * size)
        request = self._comm.Iallgather(bytearray(record), everything)
        begun, nap = time.monotonic(), 1e-5
        while not request.Test():
            if (time.monotonic() - begun) * 1000 > timeout_ms:
                raise make(-6, -1, 0, "", f"ranks are missing after {timeout_ms / 1000:g} s (MPI does not say which)")
            time.sleep(nap)
            nap = min(nap * 2, 0.01)
        each = len(record)
        return [bytes(everything[rank * each:(rank + 1) * each]) for rank in range(size)]


def launch(ranks: int, main: Callable[[Group], int | None], *, silence: float | None = None) -> int:
    """Run `main(group)` in new processes of this machine and wait for them. Call it before you start threads.

    ranks: int, from 1 to 4096. How many processes.
    main: callable. main(group) returns an exit code, or None for 0.
    silence: float, in seconds. As for `init`. Default: 15.

    When main ends, its process closes the datasets and groups that are still open, and keeps serving datasets that other ranks still use.
    If main raises, or its exit code is not 0, the process ends at once, and calls of other ranks that wait for it raise PeerError with that
    error or code. A process that is still there (for example stopped) 40 s after another has failed is killed; RKS_LAUNCH_GRACE_MS changes
    that time.

    Returns the exit code of the first process that failed (128 + the signal for a killed one, such as 137 for SIGKILL; 130 after Ctrl-C),
    else 0. Raises nothing for it: end a script with `sys.exit(rankstore.launch(2, main))`.
    """
    def run(core: _core.Group) -> int:
        global _current
        _current = Group(core, "fork")
        try:
            code = main(_current) or 0
        except BaseException as error:
            shutdown.close_all(None if _ends_well(error) else error)
            raise
        shutdown.close_all(None if code == 0 else SystemExit(code))
        return code
    return _core.launch(ranks, run, silence_ms=None if silence is None else _milliseconds("silence", silence))
