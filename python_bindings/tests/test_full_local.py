# SPDX-License-Identifier: Apache-2.0
"""A local disk that becomes full while a job runs: what the opening has taken room for still comes; what grows later says so."""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kept_at_home import SAMPLES

SCRIPT = """
import os, sys, time
import rankstore
home, source, local, junk = sys.argv[1:]
with rankstore.open(home, local=local) as ds:
    assert ds.stats()["arriving_shards"] > 0
    with open(junk, "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)):
                pass
        except OSError as error:
            print(error.strerror)
    loader = ds.loader(ds.plan(batch_size=8, seed=3))
    print(sum(len(batch.ids) for batch in loader))
    while ds.stats()["arriving_shards"] > 0:
        time.sleep(0.01)
    rankstore.build([{"i": i, "data": b"x" * 300_000} for i in range(9)], source, append=True).close()
    rankstore.publish(source, home)
    try:
        ds.refresh()
    except rankstore.IOFailedError as error:
        print(error)
    print(sum(len(batch.ids) for batch in loader))
    os.unlink(junk)
    print(ds.refresh(), sum(len(batch.ids) for batch in loader))
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "disk"
    made.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "none", made], capture_output=True).returncode != 0:
        pytest.skip("needs to mount a small file system")
    yield made
    subprocess.run(["umount", "-l", made], check=True)


def test_what_has_room_comes_and_what_grows_says_so(built: Path, home: Path, slowed: dict[str, str], disk: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, str(home), str(built), str(disk / "rks"), str(disk / "junk")],
                          env={**os.environ, **slowed}, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()
    assert said[:2] == ["No space left on device", str(SAMPLES)] and said[3] == str(SAMPLES), said
    assert "local: no room for" in said[2], said
    assert said[4] == f"True {SAMPLES + 9}"
