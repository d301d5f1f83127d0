# SPDX-License-Identifier: Apache-2.0
"""The package as it was built, in newer interpreters than the one that it was built with: the tests that need numpy alone.

A free-threaded one (3.13t) needs a build of its own, and is tried by hand: docs/develop.md says how."""
from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import rankstore

HERE = Path(__file__).parent
TOP = HERE.parents[1]
TESTS = ["core_build", "core_collate", "core_epoch", "core_files", "core_gather", "core_group", "core_plan", "core_rules", "core_store",
         "json", "rows", "subinterpreters", "threads"]
NEEDED = ("numpy", "pytest", "hypothesis")


def interpreter(version: str) -> str | None:
    """The path of CPython `version`, from PATH or pyenv's versions; None: there is none."""
    for path in [shutil.which(f"python{version}"), *sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/{version}.*/bin/python3")))]:
        if path and subprocess.run([path, "-c", ""], capture_output=True, timeout=60).returncode == 0:  # a shim of pyenv may lead nowhere
            return path
    return None


def environment(version: str) -> str:
    """The interpreter of a virtual environment with what the tests need, in the versions of tools/requirements-test.txt."""
    place, found = TOP / "build" / "python" / f"interpreter-{version}", interpreter(version)
    if found is None:
        pytest.skip(f"there is no CPython {version}")
    pins = re.findall(rf"^(?:{'|'.join(NEEDED)})==.*$", (TOP / "tools/requirements-test.txt").read_text(), re.MULTILINE)
    assert len(pins) == len(NEEDED)
    python, mark = place / "bin" / "python3", place / "installed"
    if not mark.exists() or mark.read_text() != " ".join(pins):
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([found, "-m", "venv", str(place)], check=True, capture_output=True, timeout=300)
        done = subprocess.run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *pins],
                              capture_output=True, text=True, timeout=900)
        if done.returncode != 0:
            pytest.skip(f"pip could not install {' '.join(pins)} for CPython {version}")
        mark.write_text(" ".join(pins))
    return str(python)


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_the_package_in_a_newer_interpreter(version: str) -> None:
    python, site = environment(version), os.path.dirname(os.path.dirname(rankstore.__file__))
    done = subprocess.run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "-rs",
                           *(str(HERE / f"test_{name}.py") for name in TESTS)],
                          env={**os.environ, "PYTHONPATH": os.pathsep.join([site, str(HERE)]), "PYTHONDONTWRITEBYTECODE": "1"},
                          capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert int(re.findall(r"(\d+) passed", done.stdout)[-1]) > 200, done.stdout[-2000:]
