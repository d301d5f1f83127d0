# SPDX-License-Identifier: Apache-2.0
"""Containers that forbid system calls, mount less, or set limits: what works elsewhere works the same, or the error names the call or the
limit. The filters are real ones (tests/support/forbid.py)."""
from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from built import COMMAND, HEAD

TESTS = Path(__file__).resolve().parents[2] / "tests"
FORBID = [sys.executable, str(TESTS / "support" / "forbid.py")]
LIMIT_S = 400
NO_FILTERS = 77

FILTERS = [
    "memfd_create=EPERM",
    "memfd_create=ENOSYS fallocate=ENOSYS",
    "fallocate=EPERM mincore=EPERM sched_getaffinity=EPERM setpriority=EPERM io_uring_setup=EPERM statx=ENOSYS userfaultfd=EPERM",
    "mincore=ENOSYS preadv2=ENOSYS sendfile=EPERM renameat2=EPERM copy_file_range=EPERM linkat=EPERM faccessat2=EPERM close_range=EPERM",
    "madvise=EPERM fadvise64=EPERM sync_file_range=EPERM pidfd_open=EPERM pidfd_send_signal=ENOSYS process_vm_readv=EPERM",
]

AT_ONCE = " ".join({word.partition("=")[0]: word for calls in FILTERS for word in calls.split()}.values())

# 70,000 samples: the ranks of a node share epochs from 65,536 on.
MAIN = """
import hashlib
def main(group):
    seen = hashlib.sha256()
    with build([{"id": i, "text": "w" * (i % 23)} for i in range(70000)], OUT + "/ds", key="id", length="text") as built:
        assert len(built) == 70000
    with rankstore.open(OUT + "/ds") as ds:
        for batch in ds.loader(ds.plan(max_tokens=40000, seed=1)):
            seen.update(np.asarray(batch.ids).tobytes() + "".join(batch["text"]).encode())
    say(group.rank, seen.hexdigest())
"""


def forbidding(calls: str) -> list[str]:
    return [*FORBID, *calls.split(), "--"]


def run(command: list[str], limit: Callable[[], None] | None = None, **env: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=LIMIT_S, stdin=subprocess.DEVNULL,
                          preexec_fn=limit)
    if done.returncode == NO_FILTERS:
        pytest.skip(f"needs filters of system calls: {done.stderr}")
    return done


def good(command: list[str], limit: Callable[[], None] | None = None, **env: str) -> str:
    done = run(command, limit, **env)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def job(world: int, out: Path, before: list[str]) -> list[str]:
    out.mkdir()
    script = HEAD.format(tests=str(Path(__file__).parent)) + MAIN + f"sys.exit(rankstore.launch({world}, main, silence=20))\n"
    return sorted(good([*before, sys.executable, "-c", script, str(out)]).splitlines())


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[str]]:
    """By number of ranks, what each says that it got, where nothing is forbidden."""
    return {world: job(world, tmp_path_factory.mktemp("free") / str(world), []) for world in (1, 2)}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_text("".join(json.dumps({"key": f"k{i}", "text": "w" * (i % 37)}) + "\n" for i in range(5000)))
    return path


@pytest.mark.parametrize(("calls", "world"), [*((calls, 2) for calls in FILTERS), (AT_ONCE, 1)])
def test_a_build_and_an_epoch_are_the_same_without_them(tmp_path: Path, wanted: dict[int, list[str]], calls: str, world: int) -> None:
    assert job(world, tmp_path / "out", forbidding(calls)) == wanted[world]


def finding(done: subprocess.CompletedProcess[str], name: str) -> dict[str, object]:
    return next(one for one in json.loads(done.stdout)["findings"] if one["name"] == name)


@pytest.mark.parametrize("calls", FILTERS)
def test_commands_work_and_doctor_says_what_is_forbidden(tmp_path: Path, rows: Path, calls: str) -> None:
    def command(*words: str) -> str:
        return good([*forbidding(calls), str(COMMAND), *words])
    out, other, both = str(tmp_path / "ds"), str(tmp_path / "other"), str(tmp_path / "both")
    (tmp_path / "other.jsonl").write_text('{"key": "another", "text": "one"}\n')
    command("build", str(rows), "-o", out, "-j", "2", "--dedup", "--max-shard", "64K")
    command("verify", "--full", out)
    command("bench", out, "--cold")
    assert "every sample delivered exactly once: yes" in command("bench", out, "-j", "2")
    command("build", str(tmp_path / "other.jsonl"), "-o", other)
    command("merge", out, other, "-o", both, "--copy")
    for _ in range(2):
        command("export", both, "-o", str(tmp_path / "rows.jsonl"), "--force")
    assert len((tmp_path / "rows.jsonl").read_text().splitlines()) == 5001
    done = run([*forbidding(calls), str(COMMAND), "doctor", "--json", str(tmp_path)])
    found = finding(done, "system calls")
    assert found["ok"], found
    for name in ("memfd_create", "fallocate", "mincore", "renameat2"):
        assert (f"{name}=" in calls) == (name in str(found["value"])), found
    assert ("lies in unnamed files" in str(found["advice"])) == ("memfd_create" in calls)


@pytest.mark.parametrize("calls, words, says", [
    ("eventfd2=EPERM", ["bench", "DS", "-j", "2"], "eventfd2"),
    ("flock=EPERM", ["build", "ROWS", "-o", "NEW", "-j", "2"], "flock"),
    ("renameat2=EPERM", ["export", "DS", "-o", "FOLDER", "--to", "dir", "--force"], "renameat2"),
    ("clone3=EAGAIN clone=EAGAIN", ["bench", "DS"], "pids.max"),
    ("clone3=EAGAIN clone=EAGAIN", ["build", "ROWS", "-o", "NEW"], "pids.max"),
    ("clone3=EAGAIN clone=EAGAIN", ["bench", "DS", "-j", "2"], "pids.max"),
])
def test_what_has_no_other_way_is_named(tmp_path: Path, rows: Path, calls: str, words: list[str], says: str) -> None:
    places = {"DS": str(tmp_path / "ds"), "ROWS": str(rows), "NEW": str(tmp_path / "new"), "FOLDER": str(tmp_path / "files")}
    good([str(COMMAND), "build", str(rows), "-o", places["DS"]])
    if "FOLDER" in words:
        good([str(COMMAND), "export", places["DS"], "-o", places["FOLDER"], "--to", "dir"])
    before = sorted(os.listdir(tmp_path))
    done = run([*forbidding(calls), str(COMMAND), *(places.get(word, word) for word in words)])
    assert done.returncode == 3 and says in done.stderr, done.stderr
    assert sorted(set(os.listdir(tmp_path)) - {"new"}) == before
    if says in ("eventfd2", "flock"):
        done = run([*forbidding(calls), str(COMMAND), "doctor", "--json"])
        found = finding(done, "system calls")
        assert done.returncode == 3 and not found["ok"] and says in str(found["value"]) and f"allow {says}" in str(found["advice"]), found


WORKER = """
import multiprocessing, sys
import rankstore
def look(ds):
    return len(ds), ds[7]["text"]
if __name__ == "__main__":
    with rankstore.init("solo") as group, rankstore.open(sys.argv[1], group=group) as ds:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(look, (ds,)) == look(ds) == (5000, "w" * 7)
        ds.refresh()
"""


@pytest.mark.parametrize("calls", ["memfd_create=EPERM", "memfd_create=ENOSYS fallocate=EPERM"])
def test_a_worker_process_reads_without_them(tmp_path: Path, rows: Path, calls: str) -> None:
    good([str(COMMAND), "build", str(rows), "-o", str(tmp_path / "ds")])
    (tmp_path / "work.py").write_text(WORKER)
    good([*forbidding(calls), sys.executable, str(tmp_path / "work.py"), str(tmp_path / "ds")])


MOUNTS = {
    "no /proc": 'mount --bind "$0" /proc',
    "no /dev/shm": 'mount --bind "$0" /dev/shm && mount -o remount,bind,ro /dev/shm',
    "read-only /tmp": 'mount --bind "$0" /tmp && mount -o remount,bind,ro /tmp',
}


def inside(how: str, empty: Path) -> list[str]:
    """What begins a command in a mount namespace of its own."""
    begin = ["unshare", "-m", "sh", "-c", f'{MOUNTS[how]} && exec "$@"', str(empty)]
    if os.geteuid() != 0 or subprocess.run([*begin, "true"], capture_output=True, timeout=LIMIT_S).returncode != 0:
        pytest.skip("needs root and namespaces of its own")
    return begin


@pytest.fixture
def apart() -> Iterator[Path]:
    """A folder outside of /tmp, on the disk of the checkout."""
    with tempfile.TemporaryDirectory(prefix="forbidden-", dir=TESTS.parent / "build") as made:
        yield Path(made)


@pytest.mark.parametrize("forbid", [[], forbidding("memfd_create=EPERM")], ids=["all calls", "no memfd_create"])
@pytest.mark.parametrize("how", list(MOUNTS))
def test_without_a_mount(apart: Path, rows: Path, how: str, forbid: list[str]) -> None:
    (apart / "empty").mkdir()
    (apart / "rows.jsonl").write_bytes(rows.read_bytes())
    begin, out = [*inside(how, apart / "empty"), *forbid, str(COMMAND)], str(apart / "ds")
    good([*begin, "build", str(apart / "rows.jsonl"), "-o", out, "-j", "2"])
    good([*begin, "bench", out])
    assert "every sample delivered exactly once: yes" in good([*begin, "bench", out, "-j", "2"])
    good([*begin, "verify", out])
    done = run([*begin, "doctor", "--json", out])
    assert finding(done, "/proc")["ok"] == (how != "no /proc")
    assert finding(done, "TMPDIR")["ok"] == (how != "read-only /tmp")
    assert finding(done, "system calls")["ok"]


def test_without_any_place_for_memory_the_call_is_named(apart: Path, rows: Path) -> None:
    (apart / "empty").mkdir()
    (apart / "rows.jsonl").write_bytes(rows.read_bytes())
    good([str(COMMAND), "build", str(apart / "rows.jsonl"), "-o", str(apart / "ds")])
    words = " && ".join(f'mount --bind "$0" {place} && mount -o remount,bind,ro {place}' for place in ("/dev/shm", "/tmp", "/var/tmp"))
    inside("no /dev/shm", apart / "empty")
    begin = ["unshare", "-m", "sh", "-c", f'{words} && exec "$@"', str(apart / "empty"), *forbidding("memfd_create=EPERM"), str(COMMAND)]
    done = run([*begin, "bench", str(apart / "ds")], TMPDIR="/tmp")
    assert done.returncode == 3 and "allow memfd_create" in done.stderr and "tmpfs with room at /dev/shm" in done.stderr, done.stderr
    done = run([*begin, "doctor", "--json"], TMPDIR="/tmp")
    found = finding(done, "system calls")
    assert done.returncode == 3 and not found["ok"] and "allow memfd_create" in str(found["advice"]), found


@pytest.mark.parametrize("kind, most, words, says", [
    ("NOFILE", 64, ["bench", "DS"], ""),
    ("NOFILE", 64, ["bench", "DS", "-j", "2"], "and the limit is 64; raise it (ulimit -Hn"),
    ("FSIZE", 8192, ["bench", "DS"], "(ulimit -f), 8192"),
    ("FSIZE", 8192, ["build", "ROWS", "-o", "NEW", "-j", "2"], "(ulimit -f), 8192"),
])
def test_a_limit_is_named(tmp_path: Path, rows: Path, kind: str, most: int, words: list[str], says: str) -> None:
    places = {"DS": str(tmp_path / "ds"), "ROWS": str(rows), "NEW": str(tmp_path / "new")}
    good([str(COMMAND), "build", str(rows), "-o", places["DS"]])
    which = getattr(resource, f"RLIMIT_{kind}")
    done = run([str(COMMAND), *(places.get(word, word) for word in words)], lambda: resource.setrlimit(which, (most, most)))
    assert done.returncode == (3 if says else 0) and says in done.stderr, done.stderr


@pytest.mark.parametrize("ranks", ["1", "2"])
def test_less_and_less_address_space_ends_in_an_error_that_names_the_limit(tmp_path: Path, rows: Path, ranks: str) -> None:
    good([str(COMMAND), "build", str(rows), "-o", str(tmp_path / "ds")])
    named, most = 0, 512 << 20
    while most > 16 << 20:
        done = run([str(COMMAND), "bench", str(tmp_path / "ds"), "-j", ranks], lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)))
        if done.returncode == 127:  # not even its libraries can be loaded
            break
        assert done.returncode == 0 or (done.returncode == 3 and "ulimit -v" in done.stderr), done
        named += done.returncode == 3
        most = most * 15 // 16
    assert named > 0, most
