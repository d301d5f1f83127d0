# SPDX-License-Identifier: Apache-2.0
"""The end of a process: close what is still open and leave its groups, so that no rank waits for it in a collective call.

The process serves the other ranks as long as they live, until they have closed too. If it ends by an uncaught exception or with an exit
code other than 0, it waits for nobody: the others' calls fail with that error."""
from __future__ import annotations

import atexit
import os
import sys
import traceback
import weakref
from collections.abc import Callable
from typing import Protocol

from ..errors import RankStoreError
from .stderr import say


class Handle(Protocol):
    """An open store of this process."""

    def before_fork(self) -> None: ...
    def after_fork(self) -> None: ...
    def close(self, timeout_ms: int, /) -> None: ...


class Group(Protocol):
    """The ranks of a job."""

    def leave(self, error: BaseException | None = None) -> None: ...
    def close(self, *, briefly: bool = False) -> None: ...
    def close_at_exit(self) -> None: ...


_handles: dict[int, weakref.ref[Handle]] = {}
_groups: dict[int, tuple[Group, int]] = {}


def remember_handle(handle: Handle) -> None:
    """Close this handle at the end of the process if it still exists then."""
    place = id(handle)
    _handles[place] = weakref.ref(handle, lambda _: _handles.pop(place, None))


def remember_group(group: Group) -> None:
    """Keep a group until it is closed, because its ranks count on it."""
    _groups[id(group)] = group, os.getpid()


def forget_group(group: Group) -> None:
    _groups.pop(id(group), None)


def handles() -> list[Handle]:
    """Return the handles that are alive, the oldest first."""
    found = (reference() for reference in list(_handles.values()))
    return [handle for handle in found if handle is not None]


def close_all(error: BaseException | None) -> None:
    """Close everything before this process ends, because of `error` if that is given.

    Without an error, other ranks that still read are served as long as they live."""
    own = _own_groups()
    for group in own:
        _try(lambda: group.leave(error))
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # its frames may hold builders, which keep their groups open
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
    _close_handles()
    for group in own:
        _try(group.close)


def _own_groups() -> list[Group]:
    return [group for group, pid in list(_groups.values()) if pid == os.getpid()]


def _close_handles() -> None:
    for handle in handles():
        _try(lambda: handle.close(1))  # its group continues to serve it


def _try(close: Callable[[], None]) -> None:
    """Call close() and report a failure, so that the rest is closed all the same."""
    try:
        close()
    except Exception as error:
        say(str(error) if isinstance(error, RankStoreError) else repr(error))


def _mpi_waits() -> bool:
    """Return True if mpi4py will finalize MPI after the atexit functions and before the exit code is known; that waits for all ranks."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or sys.modules["mpi4py"].rc.finalize is False:
        return False
    return bool(mpi.Is_initialized() and not mpi.Is_finalized())


def _at_exit() -> None:
    """Close handles and groups. The code of a sys.exit() is not known here, so the groups end when it is (at_exit.c)."""
    error = getattr(sys, "last_value", None)
    if error is not None:
        close_all(error)
        return
    _close_handles()
    for group in _own_groups():
        if _mpi_waits():
            _try(group.leave)
        _try(group.close_at_exit)


atexit.register(_at_exit)
