# SPDX-License-Identifier: Apache-2.0
"""Publishing to a home whose file system stops answering in the middle: a line names it, Ctrl-C ends the call and the process, and when it
answers again the next call finishes the work."""
from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rankstore

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
fuse = pytest.importorskip("support.fuse")

LIMIT_S = 60  # ends what hangs
PROGRAM = """
import signal, sys
import rankstore
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    rankstore.publish(sys.argv[1], sys.argv[2])
except KeyboardInterrupt:
    print("interrupted", flush=True)
except rankstore.RankStoreError as error:
    print(type(error).__name__, error, flush=True)
"""
REQUESTS = {
    "making a file": (fuse.CREATE, ""),
    "writing a shard": (fuse.WRITE, ".sending"),
    "syncing a shard": (fuse.FSYNC, ".sending"),
    "linking a file": (fuse.LINK, ""),
    "removing a file": (fuse.UNLINK, ".sending"),
    "syncing the directory": (fuse.FSYNCDIR, ""),
    "a name": (fuse.LOOKUP, ".sums"),
}


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Any]:
    rows = [{"key": f"k{i}", "text": "w" * (50 + i * 37 % 900)} for i in range(5000)]
    rankstore.build(rows, tmp_path / "ds", key="key", length="text").close()
    (tmp_path / "data").mkdir()
    try:
        with fuse.Mount(str(tmp_path / "data"), str(tmp_path / "mount"), kept_s=0) as mounted:
            yield mounted
    except fuse.NotHere as why:
        pytest.skip(str(why))


@pytest.mark.parametrize("request_of", list(REQUESTS))
def test_ctrl_c_ends_a_publish_that_hangs(mount: Any, tmp_path: Path, request_of: str) -> None:
    at, name = REQUESTS[request_of]
    home = mount.target + "/home"
    mount.hang(name, at=(at,))
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path / "ds"), home], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
    try:
        until = time.monotonic() + LIMIT_S
        while mount.reads == 0 and process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        assert mount.reads > 0, process.communicate(timeout=LIMIT_S)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None and process.stdout.readline() == "interrupted\n"
    finally:
        mount.heal()
        try:
            _, said = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == 0, said
    rankstore.publish(tmp_path / "ds", home)
    with rankstore.open(home) as ds:
        assert [ds[i]["key"] for i in (0, 2500, 4999)] == ["k0", "k2500", "k4999"]
    assert not [path.name for path in Path(mount.source, "home").iterdir() if path.name.endswith(".claim")]


def test_a_home_that_answers_late_ends_no_publish(mount: Any, tmp_path: Path) -> None:
    """The silence limit is that of ranks and of the dataset's own disk; home has its own."""
    home, silence_s = mount.target + "/home", 2
    mount.hang(".sending", at=(fuse.WRITE,))
    answer = threading.Timer(3 * silence_s, mount.heal)
    answer.start()
    try:
        with rankstore.init(silence=silence_s) as group:
            rankstore.publish(tmp_path / "ds", home, group=group)
            assert mount.reads > 0
    finally:
        mount.heal()
        answer.cancel()
    with rankstore.open(home) as ds:
        assert [ds[i]["key"] for i in (0, 2500, 4999)] == ["k0", "k2500", "k4999"]
