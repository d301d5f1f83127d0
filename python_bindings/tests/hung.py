# SPDX-License-Identifier: Apache-2.0
"""Programs whose storage hangs (tests/support/fuse.py), and what they say before it answers again."""
from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
fuse = pytest.importorskip("support.fuse")

SILENCE_S = 3
LIMIT_S = 120  # ends what hangs
MPIRUN = ["mpirun", "--bind-to", "none", "-n", "2"]

BEGIN = f'''
import os, sys
import rankstore
def threads(): return len(os.listdir("/proc/self/task"))
def say(line): os.write(1, (line + "\\n").encode())  # at once: the lines of two ranks meet in one pipe
group = rankstore.init(silence={SILENCE_S})
'''


def start(command: list[str], program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*command, sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def ended(process: subprocess.Popen[str], mounted: Any, ranks: int = 1) -> str:
    """Return what the program says before the storage heals. Some requests keep a thread in the kernel, and so the process, until then."""
    told: list[str] = []
    assert process.stdin is not None and process.stdout is not None
    timer = threading.Timer(LIMIT_S, mounted.heal)
    timer.start()
    try:
        process.stdin.write("\n")
        process.stdin.flush()
        while "".join(told).count(" ended\n") < ranks and (line := process.stdout.readline()):
            told.append(line)
        assert timer.is_alive(), told
    finally:
        timer.cancel()
        mounted.heal()
        try:
            err = process.communicate(timeout=LIMIT_S)[1]
        finally:
            process.kill()
    assert process.returncode == 0 and mounted.reads > 0, (told, err)
    return "".join(told)
