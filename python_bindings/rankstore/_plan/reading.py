# SPDX-License-Identifier: Apache-2.0
"""What this rank reads, for the group: all ranks fail, without a wait, if they read different epochs or if one alone changes a plan."""
from __future__ import annotations

import hashlib
import json
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import _core


def digests_of(plan: Any) -> tuple[int, int]:
    """Return (digest of a plan without its changes, digest of its changes), 64 bits each."""
    if plan.digests is None or plan.digests[0] != plan.changes or plan.digests[1] is not plan._resumed:
        whole = json.loads(plan.core.state(0, 0))
        whole.pop("epoch", None), whole.pop("segments", None)
        parts = whole, [whole.pop(name, None) for name in ("changes", "skip")]
        made = [int(hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()[:16], 16) for part in parts]
        plan.digests = plan.changes, plan._resumed, (made[0], made[1])
    found: tuple[int, int] = plan.digests[2]
    return found


class Reading:
    """A loader, as the group sees it. It is compared if its plan is of the group's ranks."""

    def __init__(self, loader: Any, plan: Any, dataset: Any) -> None:
        group = dataset.group
        compared = group.world > 1 and (plan.world, plan.rank) == (group.world, group.rank) and isinstance(dataset.store, _core.Store)
        self._core: _core.Group | None = group.core if compared else None
        self._plan = plan
        self._reader = int.from_bytes(os.urandom(8), "little") | 1
        if self._core is not None:
            weakref.finalize(loader, self._core.reading_ends, self._reader, True).atexit = False

    def gave(self, epoch: int, step: int, is_last: bool) -> None:
        """Note a batch. ArgumentError if ranks read different ones."""
        if self._core is not None:
            self._core.reading(self._reader, *digests_of(self._plan), epoch, step, is_last)

    def ends(self) -> None:
        """Note that an iteration ended."""
        if self._core is not None:
            self._core.reading_ends(self._reader, False)


@contextmanager
def changing(plan: Any, group: Any, call: str, at: Any) -> Iterator[None]:
    """While this rank waits for the others in a call that changes the plan: they fail if they read on without it. at: (epoch, step)."""
    digest, changes = digests_of(plan)
    try:
        epoch, step = (number.__index__() for number in at)
        group.core.change_begins(digest, changes, epoch % 2**64, step % 2**64, call)
    except (AttributeError, TypeError, ValueError):  # the call itself refuses it, on all ranks
        yield
        return
    try:
        yield
    finally:
        group.core.change_ends(digest)
