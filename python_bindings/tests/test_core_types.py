# SPDX-License-Identifier: Apache-2.0
"""The package is typed, and light to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import rankstore

SOURCE = Path(__file__).resolve().parent.parent


@pytest.mark.limit(1500)
def test_mypy_strict() -> None:
    """mypy keeps what it found of torch and numpy from one run to the next, since that takes it ten times as long as the package."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--cache-dir", str(SOURCE.parent / "build/python/mypy"),
         "rankstore"],
        cwd=SOURCE,
        capture_output=True,
        text=True,
        timeout=1400,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_needs_neither_numpy_nor_torch() -> None:
    code = """
import sys, rankstore, rankstore._schema.values, rankstore._core as core
gather = core.Gather(core.Group(solo=True), "n:int64,t:str,j:json")
gather.add("a", 0, [1, "b", {"c": [1]}])
gather.run(0, print)
sys.exit("numpy" in sys.modules or "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=400)
    assert (done.returncode, done.stderr) == (0, "")
    assert "(b'{\"c\":[1]}', ())" in done.stdout


# What a bare interpreter has not loaded and takes time to load, of the standard library.
HEAVY = ["argparse", "ast", "asyncio", "base64", "concurrent", "ctypes", "dataclasses", "datetime", "difflib", "email", "enum", "hashlib",
         "hmac", "http", "importlib.metadata", "inspect", "json", "logging", "multiprocessing", "pickle", "random", "re",
         "secrets", "shutil",
         "socket", "ssl", "string", "struct", "subprocess", "tempfile", "threading", "traceback", "typing", "unittest", "urllib", "uuid",
         "weakref"]


def test_importing_loads_nothing_but_the_package() -> None:
    code = f"""
import sys
before = set(sys.modules)
import rankstore
loaded = set(sys.modules) - before
assert loaded == {{"rankstore"}}, loaded
assert not before & set({HEAVY!r}), before & set({HEAVY!r})
rankstore.__version__, rankstore.errors.ArgumentError, rankstore.Pad(), rankstore.current, rankstore._core.pid()
missing = [name for name in rankstore.__all__ if not hasattr(rankstore, name)]
assert not missing and not hasattr(rankstore, "nobody") and not hasattr(rankstore, "__nobody__"), missing
assert not {{"numpy", "torch", "pyarrow", "tqdm"}} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c",
                           f"import sys; sys.path.insert(0, {str(Path(rankstore.__path__[0]).parent)!r})\n" + code],
                          capture_output=True, text=True, timeout=400)
    assert (done.returncode, done.stderr) == (0, "")


def test_texts_are_built_and_read_without_numpy_and_torch(tmp_path: Path) -> None:
    """As if they were not installed: importing them fails."""
    (tmp_path / "in.jsonl").write_text('{"text": "a", "n": 1}\n{"text": "bc", "n": 2}\n')
    code = """
import sys
sys.modules.update(dict.fromkeys(("numpy", "torch", "pyarrow", "tqdm")))
import rankstore
with rankstore.build("in.jsonl", "out", length="text") as ds:
    print(ds[1], [one["n"] for one in ds], ds.keys[0], len(ds))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=400, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout == "{'text': 'bc', 'n': 2} [1, 2] b'in.jsonl:0' 2\n"
