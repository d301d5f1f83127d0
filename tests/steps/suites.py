# SPDX-License-Identifier: Apache-2.0
"""A step that is a suite of a Meson build: a job for each test program."""
import json
import os
import re
import subprocess
import zlib

from steps.builds import SANITIZER_ENV, directory_of
from steps.job import Job

# Times a program's own limit: it shares the cores with others, and sanitizers are slow.
PATIENCE = {"release": 8}
PATIENCE_SANITIZED = 16


def jobs(step):
    directory = directory_of(step.build)
    listed = subprocess.run(["meson", "introspect", "--tests", directory], check=True, text=True, stdout=subprocess.PIPE)
    return [job(step, directory, test) for test in json.loads(listed.stdout)
            if step.what in [suite.split(":")[-1] for suite in test["suite"]]]


def job(step, directory, test):
    garbage = zlib.crc32(f"{os.environ.get('SEED')} {test['name']}".encode()) % 255 + 1  # the same in each run, as SEED is
    environment = {**SANITIZER_ENV, "MALLOC_PERTURB_": str(garbage), **test["env"]}
    if step.what == "ranks":  # Open MPI leaves its own memory behind
        environment["ASAN_OPTIONS"] += ":detect_leaks=0"
    return Job(step=step.name, name=test["name"], command=test["cmd"], read=read, environment=environment,
               directory=test["workdir"] or os.path.abspath(directory), alone=not test["is_parallel"],
               limit_s=test["timeout"] * PATIENCE.get(step.build, PATIENCE_SANITIZED))


def read(job, text, code, totals):
    """cmocka's own lines if the program printed some, else its exit code."""
    name = f"{job.step}: {job.name}"
    good = re.findall(r"^\[       OK \] (\S+)", text, re.M)
    skipped = re.findall(r"^\[  SKIPPED \] ([a-z_]\w*)", text, re.M)
    for one in dict.fromkeys(skipped):
        totals.skip(f"{name}: {one}", "the program says so")
    if code == 77:
        totals.skip(name, text.strip().splitlines()[-1] if text.strip() else "exit 77")
    elif code == 0:
        totals.passed += len(good) or 1
    else:
        totals.passed += len(good)
        totals.failed.append(f"{name}: ended with {code}")
        print(f"---- {name}: ended with {code}\n" + text[-6000:])
