# SPDX-License-Identifier: Apache-2.0
"""build(wait=True): a second job on a directory waits for the first one, and opens what that made."""
from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rankstore

FIRST = """
import os, sys, time
import rankstore

def slow(sample):
    while not os.path.exists("go"):
        time.sleep(0.01)
    return sample

rankstore.build([{"x": i} for i in range(100)], "out", map=slow, schema="x:int64", length=lambda sample: 1, progress=False).close()
"""

SECOND = """
import os, sys
import rankstore
group = rankstore.init(silence=float(os.environ.get("SILENCE", "15")))
def slow(sample):
    raise AssertionError("it is not built twice")
with rankstore.build([{"x": i} for i in range(100)], "out", reuse=True, wait=True, map=slow, schema="x:int64", length=lambda sample: 1,
                     progress=False) as ds:
    print(len(ds), ds.report.units_resumed == ds.report.units > 0, flush=True)
"""


def begin(folder: Path, script: str, **environ: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", script], cwd=folder, env={**os.environ, **environ}, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def until(there: Callable[[], object]) -> None:
    end = time.monotonic() + 400
    while not there():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def first(tmp_path: Path) -> Iterator[Any]:
    """A build that holds the lock until there is a file `go`."""
    process = begin(tmp_path, FIRST)
    lock = tmp_path / "out" / "build.lock"
    until(lambda: lock.exists() and f"pid {process.pid} on " in lock.read_text())
    yield process
    process.kill()
    process.communicate()


def waiting(process: subprocess.Popen[str], holder: int) -> None:
    """Reads the line that says for whom it waits."""
    assert process.stderr is not None
    line = process.stderr.readline()
    assert re.fullmatch(rf"rankstore: out: waiting for another build \(pid {holder} on \S+\)\n", line), line


def test_who_waits_opens_what_the_other_made(tmp_path: Path, first: Any) -> None:
    second = begin(tmp_path, SECOND)
    waiting(second, first.pid)
    (tmp_path / "go").touch()
    out, err = second.communicate(timeout=400)
    assert (out, second.returncode) == ("100 True\n", 0), err
    assert "opening the finished dataset of 100 samples; nothing is built" in err
    assert first.wait() == 0


def test_without_wait_the_error_names_holder_and_option(tmp_path: Path, first: Any) -> None:
    with pytest.raises(rankstore.StateError) as raised:
        rankstore.build([{"x": 1}], tmp_path / "out")
    place = re.escape(str(tmp_path / "out" / "build.lock"))
    assert re.fullmatch(rf"{place}: another build runs here \(pid {first.pid} on \S+\); "
                        "set the option wait to wait for its end", raised.value.text)


def test_a_killed_build_is_gone_on_with(tmp_path: Path, first: Any) -> None:
    second = begin(tmp_path, SECOND.replace("raise AssertionError", "return sample; raise AssertionError"))
    waiting(second, first.pid)
    first.kill()
    first.wait()
    out, err = second.communicate(timeout=400)
    assert (out, second.returncode) == ("100 False\n", 0), err


def test_a_stopped_build_is_a_peer_error(tmp_path: Path, first: Any) -> None:
    first.send_signal(signal.SIGSTOP)
    second = begin(tmp_path, SECOND, SILENCE="1")
    waiting(second, first.pid)
    _, err = second.communicate(timeout=400)
    assert second.returncode == 1
    assert re.search(rf"rankstore.errors.PeerError: .*out: waited for another build \(pid {first.pid} on \S+\), which gave no sign of life "
                     "for 1 s; end it, and run again", err), err
    assert f"pid {first.pid} on " in (tmp_path / "out" / "build.lock").read_text()


def test_ctrl_c_ends_the_wait(tmp_path: Path, first: Any) -> None:
    second = begin(tmp_path, SECOND)
    waiting(second, first.pid)
    second.send_signal(signal.SIGINT)
    _, err = second.communicate(timeout=400)
    assert second.returncode == -signal.SIGINT and err.endswith("KeyboardInterrupt\n")
    assert f"pid {first.pid} on " in (tmp_path / "out" / "build.lock").read_text()
    (tmp_path / "go").touch()
    assert first.wait(60) == 0
    assert len(list((tmp_path / "out").glob("part-*.rks"))) == 1 and not (tmp_path / "out" / "build.lock").exists()


def test_an_append_that_waited_adds_to_what_the_other_made(tmp_path: Path) -> None:
    rankstore.build([{"x": 0}], tmp_path / "out", key=lambda sample: str(sample["x"])).close()
    one = FIRST.replace("schema=", 'append=True, key=lambda sample: str(1 + sample["x"]), schema=')
    first = begin(tmp_path, one)
    lock = tmp_path / "out" / "build.lock"
    until(lambda: lock.exists() and f"pid {first.pid} on " in lock.read_text())
    second = begin(tmp_path, one.replace("1 + sample", "1000 + sample").replace("append=True", "append=True, wait=True"))
    waiting(second, first.pid)
    (tmp_path / "go").touch()
    for process in (first, second):
        _, err = process.communicate(timeout=400)
        assert process.returncode == 0, err
    with rankstore.open(tmp_path / "out") as ds:
        assert len(ds) == 201 and [one["samples"] for one in ds.generations] == [1, 101, 201]
