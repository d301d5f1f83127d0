# SPDX-License-Identifier: Apache-2.0
"""What the tests of faults share: the command line, inputs, stores."""
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.report import SEED  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
CLI = os.path.join(BUILD, "tools", "rankstore", "rankstore")
WORK = tempfile.mkdtemp(prefix="rankstore-faults-")
CHOICE = random.Random(SEED)
LIMIT = 300  # seconds: only ends what hangs


def path(name):
    return os.path.join(WORK, name)


def rankstore(*arguments, code=0, env=None, limit=LIMIT, **popen):
    """Runs the command; returns (stdout, stderr). The exit code must be `code`; None: 0 or 1."""
    done = subprocess.run([CLI, *arguments], capture_output=True, text=True,
                          timeout=limit, env={**os.environ, **(env or {})}, **popen)
    assert done.returncode in ((0, 1) if code is None else (code,)), f"{arguments}: exit {done.returncode}, not {code}: {done.stderr}"
    return done.stdout, done.stderr


def rankstore_json(*arguments, **options):
    return json.loads(rankstore(*arguments, "--json", **options)[0])


def make_input(name, lines, seed=7):
    """JSON lines of very uneven length."""
    if not os.path.exists(path(name)):
        dice = random.Random(seed)
        with open(path(name), "w", encoding="utf-8") as file:
            for i in range(lines):
                words = " ".join(f"w{dice.randrange(10000)}" for _ in range(int(dice.lognormvariate(3, 1)) + 1))
                file.write(json.dumps({"key": f"k{i:07d}", "text": words}) + "\n")
    return path(name)


def make_store(name, *options, lines=2000):
    if not os.path.exists(path(name)):
        source = make_input(f"input{lines}.jsonl", lines)
        rankstore("build", source, "-o", path(name), "--key", "key", "--length", "text", "--unit-size", "64k", *options)
    return path(name)


def kill_all(process):
    """Ends a process that was started with `stdout=PIPE, start_new_session=True`, and its ranks: all have that pipe, and the last
    one to end, who may be in a system call, closes it. So none holds a lock or writes from here on."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def killed_after(seconds, arguments):
    """Runs the command line for at most that long. What it printed; None: it was killed."""
    process = subprocess.Popen([CLI, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        kill_all(process)
        return None
    assert process.returncode == 0, (arguments, process.returncode, err)
    return out


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def wait_for(condition, limit=LIMIT):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.002)
    raise AssertionError("nothing within the limit")
