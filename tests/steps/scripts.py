# SPDX-License-Identifier: Apache-2.0
"""A step that is a Python file of tests, which prints a line "ok NAME", "FAIL NAME ..." or "skip NAME: REASON" for each test. It is
called as FILE BUILD [PART...]; a step of several parts has a job for each."""
import dataclasses
import fnmatch
import glob
import os
import sys

from steps.builds import SANITIZER_ENV, directory_of
from steps.job import Job

LONG_S = 40     # what a long part takes, so that it begins early
LIMIT_S = 3000  # some five times what the longest takes; what it runs has limits of its own


def is_long(step, path):
    return any(fnmatch.fnmatchcase(os.path.basename(path), name) for name in step.long)


def without_long_parts(step):
    kept = [path for pattern in step.parts for path in glob.glob(pattern) if not is_long(step, path)]
    return dataclasses.replace(step, parts=tuple(map(glob.escape, kept)))


def jobs(step):
    build = os.path.abspath(directory_of(step.build)) if step.build else ""
    parts = sorted(path for pattern in step.parts for path in glob.glob(pattern))
    common = {"step": step.name, "read": read, "environment": SANITIZER_ENV, "limit_s": LIMIT_S, "apart": step.apart,
              "alone": step.alone}
    if not parts:
        return [Job(name="", command=[sys.executable, step.what, build], seconds=step.seconds, load=step.load, **common)]
    installed = ["--installed"] if step.install else []
    lots = [parts[i:i + step.together] for i in range(0, len(parts), step.together)]
    first = [Job(name="install", command=[sys.executable, step.what, build, "--install"], seconds=40, load=2,
                 **common)] if step.install else []
    return first + [Job(name=" ".join(os.path.splitext(os.path.basename(part))[0] for part in lot),
                        seconds=step.seconds * len(lot) / len(parts) + LONG_S * sum(is_long(step, part) for part in lot),
                        load=step.load,
                        command=[sys.executable, step.what, build, *installed, *map(os.path.abspath, lot)],
                        after="install" if step.install else "", **{**common, "limit_s": LIMIT_S * len(lot)})
                    for lot in lots]


def read(job, text, code, totals):
    seen = failed = 0
    for line in text.splitlines():
        if line.startswith("ok "):
            totals.passed += 1
        elif line.startswith("skip "):
            name, _, reason = line[5:].partition(": ")
            totals.skip(f"{job.step}: {name}", reason)
        elif line.startswith("FAIL "):
            totals.failed.append(f"{job.step}: {line[5:]}")
            failed += 1
        else:
            continue
        seen += 1
    if code != 0 or seen == 0 or failed:
        print(f"---- {job.key} ended with {code}\n" + text[-8000:])
    if code != 0 and not failed or seen == 0:
        totals.failed.append(f"{job.key}: ended with {code} after {seen} tests")
