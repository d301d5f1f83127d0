# SPDX-License-Identifier: Apache-2.0
"""Shows how far the run is: a line that is rewritten on a terminal, a line a minute elsewhere."""
import shutil
import sys
import time

EVERY_S = {True: 1, False: 60}  # on a terminal, elsewhere


def minutes(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class Progress:
    def __init__(self):
        self.begun, self.terminal = time.monotonic(), sys.stdout.isatty()
        self.shown = time.monotonic()

    def show(self, pool, totals):
        if time.monotonic() - self.shown < EVERY_S[self.terminal]:
            return
        self.shown = time.monotonic()
        names = list(dict.fromkeys(one.job.step for one in pool.running))
        failed = f", {len(totals.failed)} failed" if totals.failed else ""
        text = (f"[{minutes(self.shown - self.begun)}, about {minutes(pool.left())} left] {', '.join(names)}: "
                f"{pool.tests()} tests done{failed}")
        if self.terminal:
            print("\r\033[K" + text[:shutil.get_terminal_size().columns - 1], end="", flush=True)
        else:
            print(text, flush=True)

    def clear(self):
        if self.terminal:
            print("\r\033[K", end="", flush=True)
