# SPDX-License-Identifier: Apache-2.0
"""How far a long call is: one bar a phase on rank 0, or a callable of the user's."""
from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

Report = Callable[[str, int, int, int], Any]


class Bars:
    """(phase, done, total, samples) as tqdm bars on stderr, where that is a terminal; counts are this rank's."""

    def __init__(self) -> None:
        import tqdm
        self._make = tqdm.tqdm
        self._bar: Any = None
        self._phase = ""
        self._off = False

    def __call__(self, phase: str, done: int, total: int, samples: int) -> None:
        if self._off:
            return
        try:
            self._show(phase, done, total, samples)
        except (OSError, ValueError, AttributeError):  # stderr is closed, or None: a bar must not end the work
            self._bar, self._off = None, True

    def _show(self, phase: str, done: int, total: int, samples: int) -> None:
        if phase != self._phase or self._bar is None:
            self.close()
            self._phase = phase
            self._bar = self._make(desc=phase, unit="sample", unit_scale=True, disable=None, leave=False)
        if total > 0 and samples > 0 and done > 0:  # as many samples as the bytes so far let expect
            self._bar.total = max(samples, round(samples * total / done))
        self._bar.n = samples
        self._bar.refresh()

    def close(self) -> None:
        bar, self._bar = self._bar, None
        if bar is not None:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                bar.close()


class Ticker:
    """Calls `report` at most each 100 ms."""

    def __init__(self, report: Report | None) -> None:
        self._report = report
        self._next = 0.0

    def __call__(self, phase: str, done: int, total: int, samples: int, last: bool = False) -> None:
        if self._report is None:
            return
        now = time.monotonic()
        if last or now >= self._next:
            self._next = now + 0.1
            self._report(phase, done, total, samples)


def make(progress: Report | bool | None, rank: int) -> Report | None:
    """What a `progress` argument means on this rank: None or True bars (rank 0, and only where tqdm is installed),
    False none."""
    if progress is False:
        return None
    if callable(progress):
        return progress
    if rank != 0:
        return None
    try:
        return Bars()
    except ImportError:
        return None


def close(report: Report | None) -> None:
    if isinstance(report, Bars):
        report.close()
