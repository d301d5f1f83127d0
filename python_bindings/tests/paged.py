# SPDX-License-Identifier: Apache-2.0
"""Runs the code blocks of a page in their order: `paged.py PAGE`, in the directory where their files shall be.

What stands after a block's language says how it is run:

    ```python               in the page's one namespace
    ```python save=NAME     saved as a script, for the commands that follow
    ```sh run               by bash
    ```sh srun              each line's command after srun's options, as two processes with the variables that srun sets
    ```sh                   not at all: what installs something
"""
from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ports import free_port

LIMIT_S = 500  # of a command
# There is no Slurm here: what srun would start is started by hand, with the variables that it sets.
SLURM = """
SLURM_JOB_NODELIST=localhost
scontrol() { [ "$*" = "show hostnames localhost" ] && echo localhost; }
srun() {
    while [ "$1" != python ] && [ "$1" != rankstore ]; do shift; done
    export SLURM_STEP_ID=$((${SLURM_STEP_ID:--1} + 1)) SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=localhost
    SLURM_PROCID=0 SLURM_LOCALID=0 "$@" & local one=$!
    SLURM_PROCID=1 SLURM_LOCALID=1 "$@" & local two=$!
    wait $one && wait $two
}
"""
PORT = "29500"  # the pages' MASTER_PORT; here a free one takes its place
KINDS = ("python", "python save=", "sh run", "sh srun", "sh")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language and what follows that, the line of its first line, its text."""

    language: str
    how: str
    line: int
    text: str


def blocks_of(page: Path) -> list[Block]:
    """All fenced blocks."""
    text = page.read_text(encoding="utf-8")
    return [Block(found[1], found[2].strip(), text.count("\n", 0, found.start(3)) + 1, found[3])
            for found in re.finditer(r"^```(\w*)([^\n]*)\n(.*?)^```$", text, re.M | re.S)]


def programs() -> list[str]:
    """Where python and the package's own command line lie: a wheel's beside the interpreter, the tests' beside the package."""
    package = importlib.util.find_spec("rankstore")
    assert package is not None and package.origin is not None
    return [os.path.dirname(sys.executable), str(Path(package.origin).parents[1] / "bin")]


def run_shell(block: Block, before: str = "") -> None:
    """`before`: what bash does first. Nothing that was started outlives the limit."""
    port = free_port(20000, 30000)
    environ = {**os.environ, "PATH": ":".join([*programs(), os.environ["PATH"]]), "SLURM_JOB_ID": str(port - 20000)}
    shell = subprocess.Popen(["bash", "-euo", "pipefail", "-c", before + block.text.replace(PORT, str(port))], env=environ,
                             stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        code = shell.wait(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        raise
    assert code == 0, f"ended with {code}:\n{block.text}"


def run(page: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "page"}
    for block in blocks_of(page):
        print(f"{page.name}:{block.line}: {block.language} {block.how}", flush=True)
        if block.language == "python" and block.how.startswith("save="):
            Path(block.how.removeprefix("save=")).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            exec(compile("\n" * (block.line - 1) + block.text, str(page), "exec"), namespace)
        elif block.how == "run":
            run_shell(block)
        elif block.how == "srun":
            run_shell(block, SLURM)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
