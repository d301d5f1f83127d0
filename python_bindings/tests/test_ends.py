# SPDX-License-Identifier: Apache-2.0
"""The end of a job: whatever ends the ranks' processes, a good job ends well, and if one rank raises, the others report its
error. RKS_END_RUNS sets how often each way is tried (by hand: 50, beside a load)."""
from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ports import free_port

RANKS = 3
RUNS = int(os.environ.get("RKS_END_RUNS", "1"))
pytestmark = pytest.mark.limit(300 * max(RUNS, 2))

# Each rank reads samples of the others, so that they must go on serving; rank 0 is through first, and nobody closes.
SCRIPT = """
import os, sys, threading, time
from pathlib import Path
import rankstore
how, out = sys.argv[1], sys.argv[2]
kept = []
def work(group):
    place = f"{out}-{group.rank}" if how.startswith("read") else out  # of its own shard alone
    dataset = rankstore.open(place, group=group, no_share=True)
    if how == "keeps":
        kept.append(dataset)
    for i in range(0, len(dataset), 7):
        dataset[i]
        if group.rank > 0 and i % 70 == 0:
            time.sleep(0.02)
    if how == "raises" and group.rank == 1:
        raise ValueError("row 7")
    if how.endswith("exits with 3"):
        if group.rank == 1:
            note = Path(out + ".pid")
            note.with_suffix(".new").write_text(str(os.getpid()))
            note.with_suffix(".new").rename(note)
            sys.exit(3)
        while how == "read while one exits with 3":  # in calls of their own for that rank's samples
            [dataset[i] for i in range(len(dataset))]
    if how == "in a build":
        def rows():
            yield {"n": 1}
            if group.rank == 1:
                raise KeyError("row 7")
            yield {"n": 2}
        rankstore.build(rows(), out + "-more", group=group)
    if how == "with threads":  # daemons, in Python and in Rankstore as the interpreter ends
        for body in (lambda: [dataset[i % len(dataset)] for i in range(1 << 30)], lambda: time.sleep(1000)):
            threading.Thread(target=body, daemon=True).start()
    group.allgather("last", b"x" * 2000)
    if how == "exits":
        sys.exit(0)
    if how == "leaves" and group.rank == 1:
        sys.exit(0)  # the others wait for it
    if how in ("leaves", "raises late"):
        if how == "raises late" and group.rank == 1:
            time.sleep(0.3)
            raise ValueError("row 7")
        group.allgather("one more", b"")
def main(group):
    try:
        work(group)
    except Exception as error:
        os.write(2, f"rank {group.rank} reports {type(error).__name__}: {error}\\n".encode())
        if not how.endswith("exits with 3"):
            raise
    if how.endswith("exits with 3") and group.rank != 1:  # they end well, but later: the job's code is the other's
        group.close()
        while Path("/proc", Path(out + ".pid").read_text()).exists():
            time.sleep(0.05)
"""

ENDS = {
    "launch": SCRIPT + "sys.exit(rankstore.launch({ranks}, main, silence=60))\n",
    "mpirun": SCRIPT + "main(rankstore.init(silence=60))\n",
    "torchrun": SCRIPT + "main(rankstore.init(silence=60))\n",
}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a shard for each rank: built by as many."""
    directory = tmp_path_factory.mktemp("ends")
    lines = directory / "in.jsonl"
    lines.write_text("".join(f'{{"n": {i}, "t": "{"x" * 200}"}}\n' for i in range(1200)))
    out = directory / "d"
    script = f"""
import sys, rankstore
def main(group):
    rankstore.build({str(lines)!r}, {str(out)!r}, group=group, unit_size=16384).close()
sys.exit(rankstore.launch({RANKS}, main))
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=400)
    assert len(list(out.glob("part-*.rks"))) == RANKS
    return out


def run(launcher: str, how: str, dataset: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "script.py"
    script.write_text(ENDS[launcher].replace("{ranks}", str(RANKS)))
    command = [sys.executable, str(script)]
    if launcher == "mpirun":
        command = ["mpirun", "--oversubscribe", "-n", str(RANKS), *command]
    elif launcher == "torchrun":
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(RANKS), "--master-addr", "127.0.0.1",
                   "--master-port", str(free_port()), str(script)]
    out = tmp_path / "out"
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(dataset, out)
    shutil.rmtree(tmp_path / "out-more", ignore_errors=True)
    for rank, shard in enumerate(sorted(dataset.glob("part-*.rks"))):
        shutil.copytree(dataset, f"{out}-{rank}", dirs_exist_ok=True,
                        ignore=lambda _, names, stem=shard.stem: [name for name in names if "part" in name and stem not in name])
    return subprocess.run([*command, how, str(out)], text=True, capture_output=True, timeout=400, stdin=subprocess.DEVNULL)


def launchers(how: str) -> list[str]:
    """torchrun takes seconds for its start: it stands for the interpreter's end in the sample, as mpirun does."""
    return ["launch", "mpirun", "torchrun"] if RUNS > 1 or how in ("keeps", "raises") else ["launch", "mpirun"]


@pytest.mark.parametrize(("launcher", "how"), [(launcher, how) for how in ("keeps", "drops", "exits", "with threads")
                                               for launcher in launchers(how)])
def test_a_good_job_ends_well(launcher: str, how: str, dataset: Path, tmp_path: Path) -> None:
    for attempt in range(RUNS):
        done = run(launcher, how, dataset, tmp_path)
        assert done.returncode == 0 and "reports" not in done.stderr, f"attempt {attempt}:\n{done.stderr}"
        assert "rankstore:" not in done.stderr, done.stderr


@pytest.mark.parametrize(("launcher", "how"), [(launcher, how) for how in ("raises", "raises late", "in a build")
                                               for launcher in launchers(how)])
def test_the_others_report_the_error_of_a_rank_that_raises(launcher: str, how: str, dataset: Path, tmp_path: Path) -> None:
    for attempt in range(RUNS):
        done = run(launcher, how, dataset, tmp_path)
        told = [line for line in done.stderr.splitlines() if " reports " in line]
        assert done.returncode != 0
        assert len(told) == RANKS and all("row 7" in line for line in told), f"attempt {attempt}:\n{done.stderr}"


@pytest.mark.parametrize("launcher", ["launch", "mpirun"])
def test_a_rank_that_ends_early_is_named(launcher: str, dataset: Path, tmp_path: Path) -> None:
    """It serves the others as long as they work, but they must not wait for it in a collective call."""
    done = run(launcher, "leaves", dataset, tmp_path)
    told = [line for line in done.stderr.splitlines() if " reports " in line]
    assert done.returncode != 0
    assert len(told) == RANKS - 1 and all("rank 1" in line and "one more" in line for line in told), done.stderr


FAILS = """
import os, sys, time
from pathlib import Path
import rankstore
how, out = sys.argv[1], sys.argv[2]
note = Path(out + ".pid")
kept = []
def fail(group):
    note.with_suffix(".new").write_text(str(os.getpid()))
    note.with_suffix(".new").rename(note)
    if how == "exits":
        sys.exit(3)
    return 3
def main(group):
    if how == "raises in a with" and group.rank == 1:
        with group, rankstore.open(out, group=group, no_share=True):
            fail(group)
            raise ValueError("row 7")
    kept.append(rankstore.open(out, group=group, no_share=True))
    if group.rank == 1:
        return fail(group)
    until = time.monotonic() + 300  # in no call of Rankstore's, as in a gradient's all-reduce
    while time.monotonic() < until:
        if note.exists() and not Path("/proc", note.read_text()).exists():
            os.write(2, f"rank {group.rank} saw it end\\n".encode())
            return 0
        time.sleep(0.05)
sys.exit(rankstore.launch(3, main, silence=3000))
"""


@pytest.mark.parametrize("how", ["returns", "exits", "raises in a with"])
def test_a_rank_that_fails_serves_nobody(how: str, dataset: Path, tmp_path: Path) -> None:
    """Its process ends at once, so that a launcher sees it, whatever the others wait for."""
    script = tmp_path / "script.py"
    script.write_text(FAILS)
    done = subprocess.run([sys.executable, str(script), how, str(shutil.copytree(dataset, tmp_path / "out"))], text=True,
                          capture_output=True, timeout=400, stdin=subprocess.DEVNULL)
    assert done.returncode == (1 if how == "raises in a with" else 3), done.stderr
    assert done.stderr.count("saw it end") == 2, done.stderr


@pytest.mark.parametrize(("launcher", "how"), [(launcher, how) for how in ("exits with 3", "read while one exits with 3")
                                               for launcher in ("launch", "mpirun", "torchrun")
                                               if RUNS > 1 or launcher != "torchrun" or how == "exits with 3"])
def test_the_others_report_an_exit_code(launcher: str, how: str, dataset: Path, tmp_path: Path) -> None:
    """Of a script's own `sys.exit(3)`, which Python tells nobody before its end, wherever they are."""
    for attempt in range(RUNS):
        done = run(launcher, how, dataset, tmp_path)
        told = [line for line in done.stderr.splitlines() if " reports " in line]
        assert len(told) == RANKS - 1, f"attempt {attempt}:\n{done.stderr}"
        assert all("rank 1 (" in line and "ended with exit code 3" in line for line in told), f"attempt {attempt}:\n{done.stderr}"
        if launcher == "torchrun":
            assert done.returncode == 1 and "exitcode  : 3 " in done.stderr, f"attempt {attempt}:\n{done.stderr}"
        else:
            assert done.returncode == 3, f"attempt {attempt}: {done.returncode}\n{done.stderr}"


ALONE = """
import atexit, sys, time
from pathlib import Path
out, rank, notes, how = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]
told = notes / "told"
def wait():
    while how == "late" and not told.exists():
        time.sleep(0.01)
atexit.register(wait)  # before the package is there, so it runs behind its own function
import rankstore
class Notes:  # where ranks meet that nobody supervises
    def set(self, key, value):
        new = notes / (key.replace("/", "-") + ".new")
        new.write_bytes(value)
        new.rename(new.with_suffix(""))
    def check(self, keys):
        return all((notes / key.replace("/", "-")).exists() for key in keys)
    def multi_get(self, keys):
        return [(notes / key.replace("/", "-")).read_bytes() for key in keys]
    def delete_key(self, key):
        (notes / key.replace("/", "-")).unlink()
dataset = rankstore.open(out, group=rankstore.init(Notes(), rank=rank, world=2, silence=5 if how == "late" else 3000), no_share=True)
print("open", flush=True)
sys.stdin.readline()
if how == "late" and rank == 0:
    try:
        rankstore.current().agree("words")
    except rankstore.PeerError as error:
        print(error, flush=True)
    told.touch()
sys.exit(3 * rank)
"""


@contextlib.contextmanager
def two_alone(dataset: Path, tmp_path: Path, how: str) -> Iterator[list[subprocess.Popen[str]]]:
    ranks = [subprocess.Popen([sys.executable, "-c", ALONE, str(dataset), str(rank), str(tmp_path), how], text=True,
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for rank in (0, 1)]
    try:
        assert all(one.stdout is not None and one.stdout.readline() == "open\n" for one in ranks)
        yield ranks
    finally:
        for one in ranks:
            one.kill()
            one.wait()


def test_who_waits_in_no_call_sees_the_process_end(dataset: Path, tmp_path: Path) -> None:
    """Not served for the silence limit, and not waited for: another framework's call, or a launcher, must see it."""
    with two_alone(dataset, tmp_path, "well") as ranks:
        assert ranks[1].communicate("\n", timeout=300) == ("", "") and ranks[1].returncode == 3
        assert ranks[0].communicate("\n", timeout=300) == ("", "") and ranks[0].returncode == 0


def test_an_end_that_waits_for_others_is_told_before(dataset: Path, tmp_path: Path) -> None:
    """A function of the script's own runs after the package's, before the exit code is known."""
    with two_alone(dataset, tmp_path, "late") as ranks:
        assert ranks[1].stdin is not None
        ranks[1].stdin.write("\n")
        ranks[1].stdin.flush()
        out, _ = ranks[0].communicate("\n", timeout=300)
        assert out.startswith("rank 1 (") and out.endswith(": has left the group during 'words'\n")
        assert ranks[1].wait(timeout=300) == 3


FORKED = """
import atexit, os, sys
import rankstore
from rankstore import _core
from rankstore._distributed import shutdown
def fork():
    child = os.fork()
    if child > 0:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.write(1, f"a child ended with {code}\\n".encode())
        return
    if sys.argv[1] == "at the end":  # of a group of its own
        _core.Group(solo=True).close_at_exit()
    else:
        sys.exit(7)
group = rankstore.init(silence=60)
group.agree("words")
if sys.argv[1] == "at the end":
    atexit.unregister(shutdown._at_exit)
    atexit.register(fork)
    atexit.register(shutdown._at_exit)  # runs before it
else:
    fork()
"""


@pytest.mark.parametrize(("when", "code"), [("before", 7), ("at the end", 0)])
def test_a_forked_child_ends_with_its_own_groups_alone(when: str, code: int, tmp_path: Path) -> None:
    """Those of its parent, the thread that watches their end, and MPI are the parent's."""
    script = tmp_path / "script.py"
    script.write_text(FORKED)
    done = subprocess.run(["mpirun", "--oversubscribe", "-n", "2", sys.executable, str(script), when], text=True, capture_output=True,
                          timeout=300, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"a child ended with {code}\n" * 2, "")


MPI = """
import sys
from mpi4py import MPI
import rankstore
group = rankstore.init(MPI.COMM_WORLD, silence=3000)
if group.rank == 0:
    try:
        group.agree("words")
    except rankstore.PeerError as error:
        print(error, flush=True)
"""


def test_a_rank_that_waits_in_mpi4py_to_finalize_is_waited_for_by_nobody(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    script = tmp_path / "script.py"
    script.write_text(MPI)
    done = subprocess.run(["mpirun", "--oversubscribe", "-n", "2", sys.executable, str(script)], text=True, capture_output=True,
                          timeout=300, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("rank 1 (") and done.stdout.endswith("): has left the group during 'words'\n")


TEXTS = """
import os, sys
import rankstore
class Mute(Exception):
    def __str__(self):
        raise ValueError("no text")
errors = {"NUL": ValueError("row\\0seven"), "surrogate": rankstore.DataError("row \\udc80seven"), "mute": Mute()}
def main(group):
    try:
        if group.rank == 1:
            raise errors[sys.argv[1]]
        group.allgather("last", b"")
    except rankstore.PeerError as error:
        os.write(2, f"rank 0 reports {error}\\n".encode())
    except rankstore.DataError as error:
        if group.rank == 1:
            raise
        os.write(2, f"rank 0 reports {error}\\n".encode())
sys.exit(rankstore.launch(2, main, silence=60))
"""


@pytest.mark.parametrize(("kind", "told"), [("NUL", r"ended by ValueError: row\0seven"), ("surrogate", r"row \udc80seven"),
                                            ("mute", "ended by Mute: its text is not available")])
def test_any_error_reaches_the_others(kind: str, told: str, tmp_path: Path) -> None:
    """Also one whose text C cannot take."""
    script = tmp_path / "script.py"
    script.write_text(TEXTS)
    done = subprocess.run([sys.executable, str(script), kind], text=True, capture_output=True, timeout=400,
                          stdin=subprocess.DEVNULL)
    assert done.returncode != 0
    assert [line for line in done.stderr.splitlines() if "rank 0 reports" in line and told in line], done.stderr


# ---- closed standard descriptors, as in daemons ------------------------------------------------------------------------

WORK = """
import os, sys
out, closed = sys.argv[1], [int(one) for one in sys.argv[2]]
opened = os.open(out + ".note", os.O_WRONLY | os.O_CREAT, 0o600)
note = os.dup2(opened, 100)
os.close(opened)
for one in closed:
    try:
        os.close(one)
    except OSError:
        pass  # the shell has closed it
import rankstore
def main(group):
    with rankstore.build([{"n": i, "t": "x" * i} for i in range(300)], out, group=group, progress=True, replace=True) as ds:
        total = sum(int(ds[i]["n"]) for i in range(len(ds)))
    held = [os.readlink(f"/proc/self/fd/{one}") for one in closed]
    os.write(note, f"{total} {held}\\n".encode())
group = rankstore.init("solo")
main(group)
group.close()
code = rankstore.launch(2, main)
os.write(note, f"code {code}\\n".encode())
"""


@pytest.mark.parametrize("closed", ["0", "1", "2", "012"])
@pytest.mark.parametrize("when", ["by the caller", "by itself"])
def test_closed_standard_descriptors_are_held(closed: str, when: str, tmp_path: Path) -> None:
    """No file of a build, no lock and no socket takes their place, and a bar that cannot be drawn ends nothing."""
    closings = " ".join(f"{one}>&-" for one in closed) if when == "by the caller" else ""
    script = tmp_path / "work.py"
    script.write_text(WORK)
    out = tmp_path / "d"
    done = subprocess.run(["bash", "-c", f'exec "$@" {closings}', "bash", sys.executable, str(script), str(out), closed],
                          timeout=400, capture_output=True, text=True)
    told = Path(f"{out}.note").read_text().splitlines()
    assert done.returncode == 0, (told, done.stderr)
    assert told == [f"44850 {['/dev/null'] * len(closed)}"] * 3 + ["code 0"], done.stderr
