# SPDX-License-Identifier: Apache-2.0
"""The end of a process: it leaves its groups, so that no rank waits for it in a collective call, closes what is still
open, and serves the other ranks until they have closed, too: under `launch`, which knows how a rank has ended, as long as
they live, otherwise at most for the silence limit. After an uncaught exception nobody is waited for: the others' calls
end with that error."""
from __future__ import annotations

import atexit
import contextlib
import os
import sys
import traceback
import weakref
from collections.abc import Callable
from typing import Protocol

from .errors import RankStoreError


class Handle(Protocol):
    """An open store of this process."""

    def before_fork(self) -> None: ...
    def after_fork(self) -> None: ...
    def close(self, timeout_ms: int, /) -> None: ...


class Group(Protocol):
    """The ranks of a job."""

    def leave(self, error: BaseException | None = None) -> None: ...
    def close(self, *, briefly: bool = False) -> None: ...


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


def close_all(error: BaseException | None, *, briefly: bool = False) -> None:
    """Before this process ends, of `error` if it is given. Other ranks that still read are served as long as they live,
    `briefly`: at most for the silence limit."""
    own = [group for group, pid in list(_groups.values()) if pid == os.getpid()]
    for group in own:
        _try(lambda: group.leave(error))
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # builders that its frames hold keep their groups open
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
    for handle in handles():
        _try(lambda: handle.close(1))  # its group goes on serving it
    for group in own:
        _try(lambda: group.close(briefly=briefly))


def _try(close: Callable[[], None]) -> None:
    """Reports what fails; the rest is closed all the same."""
    try:
        close()
    except Exception as error:
        if sys.stderr is not None:
            with contextlib.suppress(OSError, ValueError):
                said = str(error) if isinstance(error, RankStoreError) else repr(error)
                print(f"rankstore: {said}", file=sys.stderr)


def _at_exit() -> None:
    """The code of a sys.exit() is not known here. If it means failure, the others may wait for this rank in a call
    of their own framework, so they are not served without end; whoever wants that closes the group before the end."""
    close_all(getattr(sys, "last_value", None), briefly=True)


atexit.register(_at_exit)
