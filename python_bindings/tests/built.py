# SPDX-License-Identifier: Apache-2.0
"""What the tests of building share."""
from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy

import rankstore

HEAD = """
import json, os, sys, time
sys.path.insert(0, {tests!r})
import numpy as np
import rankstore
from rankstore import Columns, build
OUT = sys.argv[1]
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())  # one piece, also where ranks share a pipe
"""


COMMAND = Path(__file__).parents[2] / "build/python/build/subprojects/rankstore/tools/rankstore/rankstore"


def command(*arguments: Any, code: int = 0) -> str:
    """What the command line, as it is built with the package, prints."""
    done = subprocess.run([str(COMMAND), *map(str, arguments)], text=True, capture_output=True, timeout=400, stdin=subprocess.DEVNULL)
    assert done.returncode == code, f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def launched(world: int, main: str, out: Path, *more: str, timeout: float = 400) -> list[str]:
    """Runs `main(group)` (a script's text) on `world` forked ranks of a new process; the lines that they printed, in any order."""
    script = HEAD.format(tests=str(Path(__file__).parent)) + main + f"\nsys.exit(rankstore.launch({world}, main, silence=10))\n"
    done = subprocess.run([sys.executable, "-c", script, str(out), *more], text=True, capture_output=True, timeout=timeout,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout.splitlines()


def read(directory: Path | str) -> list[dict[str, Any]]:
    """All samples of a dataset, in order."""
    with rankstore.init("solo") as group, rankstore.open(directory, group=group) as dataset:
        return [dataset[i] for i in range(len(dataset))]


def keys(directory: Path | str) -> list[bytes]:
    with rankstore.init("solo") as group, rankstore.open(directory, group=group) as dataset:
        return [dataset.keys[i] for i in range(len(dataset))]


def lengths(directory: Path | str) -> list[int]:
    with rankstore.init("solo") as group, rankstore.open(directory, group=group) as dataset:
        return [int(length) for length in dataset.lengths]


def dataset_id(directory: Path | str) -> str:
    return str(json.loads((Path(directory) / "dataset.json").read_text())["dataset"])


def build(source: Any, out: Path, **options: Any) -> rankstore.BuildReport:
    """Builds and closes; the report."""
    with rankstore.init("solo") as group, rankstore.build(source, out, group=group, **options) as dataset:
        assert len(dataset) == dataset.report.samples
        return dataset.report  # type: ignore[no-any-return]


def equal(found: Any, wanted: Any) -> bool:
    """Values of samples: arrays by type, shape and contents."""
    if isinstance(wanted, numpy.ndarray):
        return isinstance(found, numpy.ndarray) and found.dtype == wanted.dtype and numpy.array_equal(found, wanted)
    return bool(type(found) is type(wanted) and found == wanted)


def same(found: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.keys() == other.keys()
        for name in other:
            assert equal(one[name], other[name]), (name, one[name], other[name])


def naming(path: object) -> str:
    """A pattern for a message that names `path`. A path loses its middle where the message would be too long."""
    text = str(path)
    return f"{re.escape(text)}|{re.escape(text[:12])}[^ ]*\\.\\.\\.[^ ]*"
