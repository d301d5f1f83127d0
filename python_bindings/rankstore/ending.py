# SPDX-License-Identifier: Apache-2.0
"""The interpreter's end: what is still open is closed, in the order in which it was opened, so that all ranks close
alike. After an uncaught exception nobody is waited for: the others see this rank go and end with an error that names
it."""
from __future__ import annotations

import atexit
import os
import sys
import weakref
from typing import Protocol

from .errors import RankStoreError


class Handle(Protocol):
    """An open store of this process."""

    def before_fork(self) -> None: ...
    def after_fork(self) -> None: ...
    def close(self, timeout_ms: int, /) -> None: ...


class Group(Protocol):
    """The ranks of a job."""

    def close(self) -> None: ...


_handles: dict[int, weakref.ref[Handle]] = {}
_groups: dict[int, tuple[Group, int]] = {}


def remember_handle(handle: Handle) -> None:
    """A handle is closed at the end if it still is there then."""
    place = id(handle)
    _handles[place] = weakref.ref(handle, lambda _: _handles.pop(place, None))


def remember_group(group: Group) -> None:
    """A group is kept until it is closed: its ranks count on it."""
    _groups[id(group)] = group, os.getpid()


def forget_group(group: Group) -> None:
    _groups.pop(id(group), None)


def handles() -> list[Handle]:
    """Those that are alive, the oldest first."""
    found = (reference() for reference in list(_handles.values()))
    return [handle for handle in found if handle is not None]


def _close_all() -> None:
    crashed = getattr(sys, "last_type", None) is not None
    for handle in handles():
        try:
            handle.close(1 if crashed else 0)
        except RankStoreError as error:
            print(f"rankstore: {error}", file=sys.stderr)
    for group, pid in list(_groups.values()):
        if pid == os.getpid():
            try:
                group.close()
            except RankStoreError as error:
                print(f"rankstore: {error}", file=sys.stderr)


atexit.register(_close_all)
