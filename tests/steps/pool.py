# SPDX-License-Identifier: Apache-2.0
"""Runs jobs side by side: those that mostly wait beside those that compute, so that the cores are busy and no busier."""
import dataclasses
import os
import signal
import subprocess
import time

from steps import costs, load
from steps.builds import CORES
from steps.job import TEST_DONE, Job

SLOTS = 4 * CORES  # at most so many at a time, however much they wait
MORE = 0.2         # cores that jobs may be expected to use beyond those there are: each has pauses
MEMORY = 2 << 30   # a job begins beside others only while the machine has as much left


def choose(waiting, running, done):
    """The first of `waiting` that may begin beside `running`; None: wait for one of those to end."""
    if len(running) >= SLOTS or any(job.alone for job in running):
        return None
    busy = sum(job.load if job.measured is None else job.measured for job in running)
    for job in waiting:
        if job.after and f"{job.step}/{job.after}" not in done:
            continue
        if not running:
            return job
        if job.alone or busy + job.load > CORES + MORE:
            continue
        if not any(other.step in job.apart or job.step in other.apart for other in running):
            return job
    return None


def in_order(jobs):
    """Those that run alone, then what others wait for, then the longest first."""
    awaited = {f"{job.step}/{job.after}" for job in jobs if job.after}
    return sorted(jobs, key=lambda job: (not job.alone, job.key not in awaited, -job.seconds))


def seconds_left(waiting, running, done):
    """`running`: (job, seconds since it began). How long all would take by what they took before."""
    now, ends, done = 0.0, [(max(job.seconds - since, 1), job) for job, since in running], set(done)
    waiting = list(waiting)
    while waiting or ends:
        job = choose(waiting, [job for _, job in ends], done)
        if job is not None:
            waiting.remove(job)
            ends.append((now + job.seconds, job))
        elif ends:
            first = min(ends, key=lambda end: end[0])
            ends.remove(first)
            now = first[0]
            done.add(first[1].key)
        else:  # what remains waits for a job that failed
            break
    return now


@dataclasses.dataclass
class Running:
    job: Job
    process: subprocess.Popen
    begun: float
    read: int = 0   # bytes of its log that were looked at
    tests: int = 0  # that it has done so far


class Pool:
    def __init__(self, jobs):
        keys, steps = {job.key for job in jobs}, {job.step for job in jobs}
        self.recorded = {key: cost for key, cost in costs.load().items() if key in keys or key.split("/")[0] not in steps}
        for job in jobs:
            if job.key in self.recorded:
                job.seconds, job.load = self.recorded[job.key].seconds, self.recorded[job.key].load
        self.waiting, self.running, self.done = in_order(jobs), [], set()
        self.tests_done, self.meter = 0, load.Meter()

    def left(self):
        now = time.monotonic()
        return seconds_left(self.waiting, [(one.job, now - one.begun) for one in self.running], self.done)

    def tests(self):
        """How many tests have ended, also of jobs that still run."""
        return self.tests_done + sum(count_tests(one) for one in self.running)

    def start(self):
        self.measure()
        while self.may_begin() and (job := choose(self.waiting, [one.job for one in self.running], self.done)) is not None:
            self.waiting.remove(job)
            os.makedirs(os.path.dirname(job.log), exist_ok=True)
            with open(job.log, "wb") as log:
                process = subprocess.Popen(job.command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                           env={**os.environ, **job.environment}, cwd=job.directory, start_new_session=True)
            self.running.append(Running(job, process, time.monotonic()))

    def may_begin(self):
        return not self.running or load.memory_left() >= MEMORY

    def measure(self):
        """How many cores each running job keeps busy: one that waits leaves room for others. What was before counts for half."""
        cores = self.meter.look([one.process.pid for one in self.running])
        for one in self.running:
            if one.process.pid in cores:
                before = one.job.load if one.job.measured is None else one.job.measured
                one.job.measured = (before + cores[one.process.pid]) / 2

    def poll(self):
        """(job, output, exit code or a word for what ended it) of each job that has ended."""
        ended = []
        for one in list(self.running):
            seconds = time.monotonic() - one.begun
            pid, status, usage = os.wait4(one.process.pid, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status)
            if pid == 0 and seconds > one.job.limit_s:
                code = f"its limit of {one.job.limit_s:.0f} s"
                os.killpg(one.process.pid, signal.SIGKILL)
                os.waitpid(one.process.pid, 0)
            elif pid == 0:
                continue
            one.process.returncode = 0  # waited for
            self.running.remove(one)
            self.tests_done += count_tests(one)
            if code == 0:
                self.done.add(one.job.key)
                self.recorded[one.job.key] = costs.Cost(round(seconds, 1), round(usage.ru_utime + usage.ru_stime, 1))
            with open(one.job.log, encoding="utf-8", errors="replace") as log:
                ended.append((one.job, log.read(), code))
        return ended

    def give_up(self):
        """Jobs that can no longer begin, as what they wait for has failed."""
        left = [] if self.running else list(self.waiting)
        self.waiting = [] if left else self.waiting
        return left

    def kill(self):
        for one in self.running:
            os.killpg(one.process.pid, signal.SIGKILL)
            one.process.wait()

    def save(self):
        costs.save(self.recorded)


def count_tests(one):
    with open(one.job.log, "rb") as log:
        log.seek(one.read)
        text = log.read()
    whole = text[:text.rfind(b"\n") + 1]
    one.read += len(whole)
    one.tests += len(TEST_DONE.findall(whole))
    return one.tests
