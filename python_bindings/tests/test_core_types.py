# SPDX-License-Identifier: Apache-2.0
"""The package is typed, and light to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent


def test_mypy_strict(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--cache-dir", str(tmp_path), "rankstore"],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_needs_neither_numpy_nor_torch() -> None:
    code = """
import sys, rankstore, rankstore.values, rankstore._core as core
gather = core.Gather(core.Group(solo=True), "n:int64,t:str,j:json")
gather.add("a", 0, [1, "b", {"c": [1]}])
gather.run(0, print)
sys.exit("numpy" in sys.modules or "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (0, "")
    assert "(b'{\"c\":[1]}', ())" in done.stdout
