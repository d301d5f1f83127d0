# SPDX-License-Identifier: Apache-2.0
"""A local directory whose file system stops answering: a mounted image that is frozen, so that every write there hangs in the kernel until
it is thawed. An opening ends with an error that names the directory, and Ctrl-C ends a loop over batches and the close behind it."""
from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import rankstore

FREEZE, THAW = 0xC0045877, 0xC0045878
SILENCE_S, LIMIT_S = 3, 90
PROGRAM = f"""
import signal, sys
import rankstore
signal.signal(signal.SIGINT, signal.default_int_handler)
def say(*words): print(*words, flush=True)
group = rankstore.init(silence={SILENCE_S})
def opened():
    return rankstore.open(sys.argv[1], local=sys.argv[2], group=group)
"""
OPENS = PROGRAM + """
try:
    opened()
except rankstore.RankStoreError as error:
    say(type(error).__name__, error)
group.close()
"""
READS = PROGRAM + """
ds = opened()
say("ready")
sys.stdin.readline()
try:
    for i in range(len(ds)):
        ds[i]
    say("read all")
except KeyboardInterrupt:
    say("interrupted")
ds.close()
group.close()
say("closed")
"""


class Disk:
    """A mounted image of a file system."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.handle = os.open(place, os.O_RDONLY)
        self.frozen = False

    def freeze(self) -> None:
        fcntl.ioctl(self.handle, FREEZE, 0)
        self.frozen = True

    def thaw(self) -> None:
        if self.frozen:
            self.frozen = False
            fcntl.ioctl(self.handle, THAW, 0)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    image, place = tmp_path / "image", tmp_path / "disk"
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("needs root and mkfs.ext4 to mount an image of a file system")
    with open(image, "wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    place.mkdir()
    if subprocess.run(["mount", "-o", "loop", image, place], capture_output=True, check=False).returncode != 0:
        pytest.skip("cannot mount an image of a file system here")
    made = Disk(place)
    limit = threading.Timer(LIMIT_S, made.thaw)  # whatever hangs then goes on
    limit.start()
    try:
        yield made
    finally:
        limit.cancel()
        made.thaw()
        os.close(made.handle)
        subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    rows = ({"i": i, "data": bytes([i % 251]) * 4000} for i in range(4000))
    rankstore.build(rows, tmp_path / "home", max_shard="2MiB", unit_samples=200).close()
    return tmp_path / "home"


@contextlib.contextmanager
def started(program: str, home: Path, disk: Disk) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", program, str(home), str(disk.place / "rks")], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        disk.thaw()
        process.kill()
        process.wait(LIMIT_S)


@pytest.mark.parametrize("before", ["nothing", "the dataset"])
def test_an_opening_ends_and_names_the_directory(home: Path, disk: Disk, before: str) -> None:
    if before == "the dataset":
        rankstore.open(home, local=disk.place / "rks").close()
    disk.freeze()
    with started(OPENS, home, disk) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert "Timeout" in said.split()[0], said
        assert f"{disk.place}/rks: its storage has not answered for {SILENCE_S}.0 s" in said and "`ls`" in said, said
        assert disk.frozen
        disk.thaw()
        assert process.wait(LIMIT_S) == 0


def test_ctrl_c_ends_a_read_that_waits_for_the_directory(home: Path, disk: Disk) -> None:
    with started(READS, home, disk) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "ready\n", process.communicate(timeout=LIMIT_S)
        disk.freeze()
        process.stdin.write("\n")
        process.stdin.flush()
        try:
            process.wait(3)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
        assert process.stdout.readline() in ("interrupted\n", "read all\n")
        assert process.stdout.readline() == "closed\n"
        assert disk.frozen
        disk.thaw()
        assert process.wait(LIMIT_S) == 0
    with rankstore.open(home, local=disk.place / "rks") as ds:  # goes on with what is there
        assert [int(ds[i]["i"]) for i in (0, 2000, 3999)] == [0, 2000, 3999]
