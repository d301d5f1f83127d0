# SPDX-License-Identifier: Apache-2.0
"""Progress of a long call: one bar a phase on rank 0, or a callable of the user's."""
from __future__ import annotations

import contextlib
import sys
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
        if total > 0 and samples > 0 and done > 0:  # the total number of samples, estimated from the bytes so far
            self._bar.total = max(samples, round(samples * total / done))
        self._bar.n = samples
        self._bar.refresh()

    def close(self) -> None:
        bar, self._bar = self._bar, None
        if bar is not None:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                bar.close()


class StepBar:
    """A loader's epoch as a bar: its steps, and of the last second or more samples/s, tokens/s and the share of the time that
    the loop waited for batches. These are this rank's."""

    EVERY = 1.0

    def __init__(self, epoch: int, first: int, steps: int, world: int) -> None:
        import tqdm
        # A notebook's stderr is not a terminal, but can show bars.
        self._bar: Any = tqdm.tqdm(desc=f"epoch {epoch}", total=steps, initial=first, unit="step",
                                   disable=False if "ipykernel" in sys.modules else None)
        self._whose = ", rank 0" if world > 1 else ""
        self._since = time.monotonic()
        self._samples, self._tokens, self._waited = 0, 0, 0.0

    def step(self, samples: int, tokens: int, begin: float, end: float) -> None:
        """Add a batch, for which the loop waited from `begin` to `end`."""
        self._samples, self._tokens, self._waited = self._samples + samples, self._tokens + tokens, self._waited + end - begin
        if self._bar is None:
            return
        try:
            if end - self._since >= self.EVERY:
                self._bar.set_postfix_str(self.text(end - self._since), refresh=False)
                self._since, self._samples, self._tokens, self._waited = end, 0, 0, 0.0
            self._bar.update()
        except (OSError, ValueError, AttributeError):  # stderr is closed, or None: a bar must not end the work
            self._bar = None

    def text(self, seconds: float) -> str:
        """Return "1.2k samples/s, 340k tokens/s, waiting 3%"."""
        return (f"{_short(self._samples / seconds)} samples/s, {_short(self._tokens / seconds)} tokens/s, "
                f"waiting {min(1.0, self._waited / seconds):.0%}{self._whose}")

    def close(self) -> None:
        bar, self._bar = self._bar, None
        if bar is not None:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                bar.close()


def _short(number: float) -> str:
    """Return 1,234,567 as "1.23M"."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def step_bar(epoch: int, first: int, steps: int, world: int) -> StepBar | None:
    """Return the bar of a loader with progress=True; None without tqdm, or if there is nothing to write to."""
    try:
        return StepBar(epoch, first, steps, world)
    except (ImportError, OSError, ValueError, AttributeError):
        return None


def make(progress: Report | bool | None, rank: int) -> Report | None:
    """Return what a `progress` argument means on this rank.

    None and True make bars, on rank 0 and only if tqdm is installed; False makes none; a callable is used as it is."""
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
