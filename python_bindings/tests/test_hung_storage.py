# SPDX-License-Identifier: Apache-2.0
"""Storage that hangs: a mount whose reads get no answer (tests/support/fuse.py). A thread that waits there cannot be woken, so it must not
be one of the program's. What ends, ends long before the storage answers, which here it never does by itself."""
from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from built import COMMAND
from ports import free_port

import rankstore

TESTS = Path(__file__).resolve().parents[2] / "tests"
sys.path.insert(0, str(TESTS))
fuse = pytest.importorskip("support.fuse")

SILENCE_S = 3
LIMIT_S = 60  # ends what hangs
COUNT = 20000

BEGIN = f'''
import os, signal, sys, threading, time
import rankstore
signal.signal(signal.SIGINT, signal.default_int_handler)
group = rankstore.init(silence={SILENCE_S}, patience=1, node=os.environ.get("NODE"))
ds = rankstore.open(sys.argv[1], group=group)
def told(): print("ready", flush=True); sys.stdin.readline()
def close():
    begun = time.monotonic()
    ds.close()
    group.close()
    print("closed", time.monotonic() - begun, flush=True)
'''

CALLS = {
    "a sample": "ds[15000]['text']",
    "a batch": "ds[[1, 15000, 7000]]",
    "a key": "ds.keys[15000]",
    "a loader": 'list(ds.loader(ds.plan(max_tokens="10k", seed=1)))',
}


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Any]:
    rows = [{"key": f"k{i}", "text": "w" * (50 + i * 37 % 900)} for i in range(COUNT)]
    rankstore.build(rows, tmp_path / "data" / "ds", key="key", length="text").close()
    try:
        with fuse.Mount(str(tmp_path / "data"), str(tmp_path / "mount")) as mounted:
            yield mounted
    except fuse.NotHere as why:
        pytest.skip(str(why))


class Program:
    """A program that has opened the dataset of the mount, and then runs `body`."""

    def __init__(self, directory: str, body: str, **env: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", BEGIN + body, directory], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env={**os.environ, **env})

    def ready(self) -> None:
        assert self.process.stdout is not None and self.process.stdout.readline() == "ready\n", self.process.communicate(timeout=LIMIT_S)

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> tuple[str, str]:
        try:
            out, err = self.process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        return out, err


@contextlib.contextmanager
def program(mounted: Any, body: str) -> Iterator[Program]:
    with several(mounted, [Program(mounted.target + "/ds", body)]) as (one,):
        yield one


@contextlib.contextmanager
def several(mounted: Any, all_of_them: list[Program]) -> Iterator[list[Program]]:
    try:
        for one in all_of_them:
            one.ready()
        yield all_of_them
    finally:
        mounted.heal()
        for one in all_of_them:
            one.process.kill()
            one.process.wait(LIMIT_S)


def waits(mounted: Any, one: Program) -> None:
    """Return when the storage hangs, and the program has said so if that is to be expected."""
    begun = time.monotonic()
    while mounted.reads == 0 and one.process.poll() is None and time.monotonic() < begun + LIMIT_S:
        time.sleep(0.05)
    if mounted.reads == 0:
        one.process.kill()
        pytest.fail(f"it has read nothing: {one.end()}")
    time.sleep(1.5)  # more than its patience
    assert one.process.poll() is None


def seconds(out: str, word: str) -> float:
    found = [line.split()[1] for line in out.splitlines() if line.startswith(word + " ")]
    assert found, out
    return float(found[-1])


INTERRUPTED = '''
told()
try:
    CALL
except KeyboardInterrupt:
    print("interrupted")
close()
print("end")
'''


@pytest.mark.parametrize("call", list(CALLS))
def test_ctrl_c_ends_a_call_and_a_close_the_rest(mount: Any, call: str) -> None:
    with program(mount, INTERRUPTED.replace("CALL", CALLS[call])) as one:
        mount.hang(".rks")
        one.go_on()
        waits(mount, one)
        begun = time.monotonic()
        one.process.send_signal(signal.SIGINT)
        out, err = one.end()
        took = time.monotonic() - begun
    assert out.splitlines()[0] == "interrupted" and out.endswith("end\n") and one.process.returncode == 0, (out, err)
    assert seconds(out, "closed") < SILENCE_S + 2 and took < SILENCE_S + 2 + LIMIT_S / 4
    assert "rank 0 has waited " in err and ".rks (row " in err and "its storage may hang" in err, err


def test_ctrl_c_at_a_program_that_does_not_catch_it(mount: Any) -> None:
    with program(mount, "told()\nds[15000]") as one:
        mount.hang(".rks")
        one.go_on()
        waits(mount, one)
        one.process.send_signal(signal.SIGINT)
        _, err = one.end()
    assert one.process.returncode == -signal.SIGINT and err.endswith("KeyboardInterrupt\n"), (one.process.returncode, err)


def test_sigterm_reaches_the_programs_own_handler(mount: Any) -> None:
    body = "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\ntold()\nds[15000]"
    with program(mount, body) as one:
        mount.hang(".rks")
        one.go_on()
        waits(mount, one)
        one.process.send_signal(signal.SIGTERM)
        _, err = one.end()
    assert one.process.returncode == 7, err


IN_A_THREAD = '''
def read():
    try:
        ds[15000]
    except rankstore.RankStoreError as error:
        print("told", error)
reader = threading.Thread(target=read)
told()
reader.start()
time.sleep(1)
close()
reader.join()
print("end")
'''


def test_a_close_ends_a_call_that_waits_in_another_thread(mount: Any) -> None:
    with program(mount, IN_A_THREAD) as one:
        mount.hang(".rks")
        one.go_on()
        waits(mount, one)
        out, err = one.end()
    assert "closed while this call waited for its samples" in out and out.endswith("end\n") and one.process.returncode == 0, (out, err)
    assert seconds(out, "closed") < SILENCE_S + 2


HEALS = '''
before = [str(ds[i]) for i in (3, 15000, 19999)] + [ds.keys[15000]]
told()
print(before == [str(ds[i]) for i in (3, 15000, 19999)] + [ds.keys[15000]])
'''


def test_what_hung_comes_when_the_storage_answers_again(mount: Any) -> None:
    with program(mount, HEALS) as one:
        mount.hang(".rks")
        one.go_on()
        waits(mount, one)
        mount.heal()
        out, err = one.end()
    assert out == "True\n" and one.process.returncode == 0, (out, err)


FAILS = '''
before = str(ds[15000])
told()
try:
    ds[15000]
except rankstore.RankStoreError as error:
    print("failed", error)
told()
print(str(ds[15000]) == before)
'''


def test_what_failed_is_read_again_after_the_storage_has_healed(mount: Any) -> None:
    with program(mount, FAILS) as one:
        mount.fail(".rks")
        one.go_on()
        assert one.process.stdout is not None
        said = one.process.stdout.readline()
        assert said.startswith("failed") and "cannot be read" in said, said
        assert one.process.stdout.readline() == "ready\n"
        mount.heal()
        one.go_on()
        out, err = one.end()
    assert out == "True\n" and one.process.returncode == 0, (out, err)


def test_verify_says_what_the_storage_does_not_give_and_invents_nothing(mount: Any) -> None:
    """Not a key of zeros, nor a changed byte; and `bench --cold` names file, bytes and error."""
    directory = mount.target + "/ds"
    shard, = Path(mount.source, "ds").glob("*.rks")
    middle = shard.stat().st_size // 2 // 4096 * 4096
    mount.fail(".rks", begin=middle, end=middle + 16384)
    done = subprocess.run([COMMAND, "verify", "--full", directory], capture_output=True, text=True, timeout=LIMIT_S)
    said = done.stdout + done.stderr
    assert done.returncode == 1 and "cannot be read (input/output error" in said and "Input/output error" in said, said[:4000]
    assert "have changed" not in said and "\\0" not in said and "\\x00" not in said and "\0" not in said, said[:4000]
    done = subprocess.run([COMMAND, "bench", "--cold", directory], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 3 and f"{shard.name}: bytes " in done.stderr and "Input/output error" in done.stderr, done.stderr


OF_ANOTHER_NODE = '''
told()
try:
    if group.rank == 1:
        ds[15000]
    time.sleep(100)
except KeyboardInterrupt:
    print("interrupted")
close()
print("end")
'''


def test_a_rank_that_waits_for_another_ones_storage(mount: Any, tmp_path: Path) -> None:
    port = str(free_port())
    ranks = [Program(directory, OF_ANOTHER_NODE, RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", NODE=f"n{rank}",
                     MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
             for rank, directory in enumerate([mount.target + "/ds", str(tmp_path / "empty")])]
    with several(mount, ranks):
        mount.hang(".rks")
        for one in ranks:
            one.go_on()
        waits(mount, ranks[1])
        for one in ranks:
            one.process.send_signal(signal.SIGINT)
        ends = [one.end() for one in ranks]
    for one, (out, _) in zip(ranks, ends, strict=True):
        assert out.splitlines()[0] == "interrupted" and out.endswith("end\n") and one.process.returncode == 0, ends
        assert seconds(out, "closed") < SILENCE_S + 2
    assert "rank 1 has waited " in ends[1][1] and " s for rank 0, which reads " in ends[1][1] and "its storage may hang" in ends[1][1], ends
