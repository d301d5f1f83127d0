# SPDX-License-Identifier: Apache-2.0
"""How many cores running jobs keep busy, and how much memory is left: from /proc."""
import glob
import os
import time

TICKS = os.sysconf("SC_CLK_TCK")
EVERY_S = 1.0  # a figure is the mean of at least so long


def processes():
    """{pid: (parent, session, seconds of processor time, with those of children it has waited for)}"""
    found = {}
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                pid, rest = file.read().split(" ", 1)
        except OSError:  # it has ended
            continue
        fields = rest[rest.rindex(")") + 2:].split()
        found[int(pid)] = int(fields[1]), int(fields[3]), sum(map(int, fields[11:15])) / TICKS
    return found


def belongs_to(pid, jobs, found):
    """The job that has started a process: by its session, or by the session or id of one it descends from. None: no job."""
    while pid in found:
        parent, session, _ = found[pid]
        for one in (pid, session):
            if one in jobs:
                return one
        pid = parent
    return None


class Meter:
    """Looks at jobs by the ids of their first processes."""

    def __init__(self):
        self.at, self.before = time.monotonic(), {}

    def look(self, jobs):
        """{job: cores}, of those that were there when this was last asked; nothing if that was a moment ago."""
        now = time.monotonic()
        passed = now - self.at
        if passed < EVERY_S:
            return {}
        used, found, jobs = dict.fromkeys(jobs, 0.0), processes(), set(jobs)
        for pid, (_, _, seconds) in found.items():
            job = belongs_to(pid, jobs, found)
            if job is not None:
                used[job] += seconds
        # A process that nobody has waited for takes its time along, so a sum may fall.
        cores = {job: max(0.0, used[job] - self.before[job]) / passed for job in jobs if job in self.before}
        self.at, self.before = now, used
        return cores


def memory_left():
    """Bytes that the machine can still give, without its page cache; very much where it does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return 1 << 60
