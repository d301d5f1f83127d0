# SPDX-License-Identifier: Apache-2.0
"""Builds and runs every test, and adds up what they report. Called by tools/test.

tests/steps/ holds the steps and how each becomes jobs; jobs that mostly wait run beside others. While it runs, it shows the steps at
work, how many tests are done and the time left, by what each job took in earlier runs (build/test-durations.json).

Random tests draw the same in each run, so that a run fails for what has changed. SEED=N in the environment draws others, SEED=$RANDOM
any; a test program that is run by itself draws others each time, and prints its seed.
"""
import argparse
import contextlib
import os
import signal
import socket
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from steps import costs, scripts, suites, table  # noqa: E402
from steps.builds import build  # noqa: E402
from steps.job import Totals  # noqa: E402
from steps.pool import Pool  # noqa: E402
from steps.progress import Progress  # noqa: E402


def arguments():
    names = [step.name for step in table.STEPS]
    parser = argparse.ArgumentParser(prog="tools/test", description="Builds and runs every test. The last line is "
                                     '"N passed, N failed, N skipped"; the exit code is 0 if none failed.')
    parser.add_argument("steps", nargs="*", metavar="STEP", help="only these steps; without any: all of them but "
                        + ", ".join(step.name for step in table.STEPS if step.named))
    parser.add_argument("--quick", action="store_true",
                        help="all steps but " + ", ".join(step.name for step in table.STEPS if not step.quick)
                        + "; of " + ", ".join(step.name for step in table.STEPS if step.long) + " what takes seconds a file")
    parser.add_argument("--list", action="store_true", help="print the names of the steps and end")
    parser.add_argument("--costs", action="store_true", help="print which builds, steps and jobs took most processor time, and end")
    given = parser.parse_args()
    unknown = [name for name in given.steps if name not in names]
    if unknown:
        parser.error(f"there is no step {unknown[0]!r}; --list names them")
    return given


def make_builds(steps, totals):
    """The steps whose build is there."""
    built = {"": True}
    for name in dict.fromkeys(step.build for step in steps if step.build):
        begun, processor = time.monotonic(), costs.of_children()
        print(f"building {name} ...", flush=True)
        built[name] = build(name)
        cost = costs.Cost(round(time.monotonic() - begun, 1), round(costs.of_children() - processor, 1))
        print(f"built {name}, {cost.seconds:.0f} s" if built[name] else f"the {name} build failed", flush=True)
        if built[name]:
            costs.save({**costs.load(), f"build {name}": cost})
    totals.failed += [f"{step.name}: the {step.build} build failed" for step in steps if not built[step.build]]
    return [step for step in steps if built[step.build]]


def jobs_of(steps, totals):
    jobs = []
    for step in steps:
        of_step = (suites if step.kind == "suite" else scripts).jobs(step)
        for job in of_step:
            if step.kind == "suite":
                job.seconds, job.load = table.LONG.get(job.name, (step.seconds / len(of_step) / 3, step.load))
        if not of_step:
            totals.failed.append(f"{step.name}: it has no tests")
        jobs += of_step
    return jobs


class StepEnds:
    """Says what came of a step when the last of its jobs has ended."""

    def __init__(self, jobs):
        self.left = {}
        for job in jobs:
            self.left[job.step] = self.left.get(job.step, 0) + 1
        self.passed, self.begun = dict.fromkeys(self.left, 0), {}

    def began(self, running):
        for one in running:
            self.begun.setdefault(one.job.step, one.begun)

    def ended(self, job, passed):
        self.left[job.step] -= 1
        self.passed[job.step] += passed
        if self.left[job.step] == 0:
            print(f"{job.step}: {self.passed[job.step]} passed, {time.monotonic() - self.begun[job.step]:.0f} s", flush=True)


@contextlib.contextmanager
def sessions_of_open_mpi():
    """Keep the directory in which Open MPI's programs have theirs. The last one to end removes it, and one that starts at that instant
    fails: it finds the directory, and then finds it gone."""
    shared = os.path.join(tempfile.gettempdir(), f"ompi.{socket.gethostname().partition('.')[0]}.{os.geteuid()}")
    kept = os.path.join(shared, f"kept.{os.getpid()}")
    os.makedirs(shared, mode=0o700, exist_ok=True)
    os.makedirs(kept, exist_ok=True)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # the shared one may have others' in it
            os.rmdir(kept)
            os.rmdir(shared)


def run(jobs, totals):
    pool, progress, ends = Pool(jobs), Progress(), StepEnds(jobs)
    try:
        while pool.waiting or pool.running:
            pool.start()
            ends.began(pool.running)
            ended = pool.poll()
            if ended:
                progress.clear()
            for job, text, code in ended:
                before = totals.passed
                job.read(job, text, code, totals)
                ends.ended(job, totals.passed - before)
            if not ended:
                totals.failed += [f"{job.key}: not run, as {job.step}/{job.after} failed" for job in pool.give_up()]
                progress.show(pool, totals)
                time.sleep(0.05)
    finally:
        pool.kill()
        progress.clear()
        pool.save()


def stop(number, frame):
    raise KeyboardInterrupt


def main():
    given = arguments()
    if given.list or given.costs:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it without a word
    if given.list:
        print("\n".join(step.name for step in table.STEPS))
        return 0
    chosen = [step for step in table.STEPS
              if (step.name in given.steps if given.steps else not step.named and (step.quick or not given.quick))]
    if given.quick and not given.steps:
        chosen = [scripts.without_long_parts(step) for step in chosen]
    if given.costs:
        print("\n".join(costs.table(costs.load(), {step.name for step in chosen})))
        return 0
    os.environ.setdefault("SEED", "1")
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)  # a shell's background jobs ignore it
    totals = Totals()
    with sessions_of_open_mpi():
        run(jobs_of(make_builds(chosen, totals), totals), totals)
    for failure in totals.failed:
        print(f"FAILED {failure}")
    print(f"{totals.passed} passed, {len(totals.failed)} failed, {len(totals.skipped)} skipped")
    return 1 if totals.failed or totals.passed == 0 else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
