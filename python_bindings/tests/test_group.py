# SPDX-License-Identifier: Apache-2.0
"""Ranks that find each other by every launcher that can be had here."""
from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ports import free_port

import rankstore

TELL = '''
group = rankstore.init()
everyone = group.allgather("names", f"{group.rank}".encode() * (group.rank + 1))
assert everyone == [str(rank).encode() * (rank + 1) for rank in range(group.world)], everyone
print(group.rank, group.world, group.launcher, flush=True)
group.close()
'''

Ranks = Callable[..., list[subprocess.CompletedProcess[str]]]


def test_alone() -> None:
    with rankstore.init() as group:
        assert (group.rank, group.world, group.nodes, group.launcher) == (0, 1, 1, "one process")
        assert "rank 0 of 1" in repr(group)
    assert group.closed and "closed" in repr(group)
    group.close()


def test_torchruns_variables(ranks: Ranks) -> None:
    done = ranks(3, "import rankstore\n" + TELL + TELL)  # twice: another generation of keys
    assert [one.stdout.splitlines() for one in done] == [[f"{rank} 3 torch's rendezvous"] * 2 for rank in range(3)]


READ_STORE = """
import os
from datetime import timedelta
from torch.distributed import TCPStore
import rankstore
from rankstore._distributed import group as module

records, prefixes = [], set()
gather = module._StoreBootstrap.allgather
def gather_and_read(self, record, timeout_ms):
    everyone = gather(self, record, timeout_ms)
    records.append(everyone)
    prefixes.add(self._prefix)
    return everyone
module._StoreBootstrap.allgather = gather_and_read

group = rankstore.init()
group.agree("all are in, and have deleted theirs")
store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), timeout=timedelta(seconds=200),
                 wait_for_workers=False)
assert len(records) == 2 and all(len(everyone) == group.world for everyone in records)
prefix, = prefixes
names = [f"{prefix}/{number}/{rank}" for number in range(2) for rank in range(group.world)]
assert not any(store.check([name]) for name in names), "records are left in the store"
store.set(f"{prefix}/9/9", b"")
assert store.check([f"{prefix}/9/9"])  # this is how it would find them
group.agree("looked")
group.close()
"""


def test_the_store_keeps_nothing(ranks: Ranks) -> None:
    ranks(3, READ_STORE)


@pytest.mark.parametrize("first", ["dist.init_process_group('gloo')\n", ""])
def test_a_process_group_before_or_after(ranks: Ranks, first: str) -> None:
    after = "" if first else "dist.init_process_group('gloo')\n"
    done = ranks(2, "import torch.distributed as dist, rankstore\n" + first + TELL + after
                 + "dist.barrier(); dist.destroy_process_group()")
    launcher = "torch's process group" if first else "torch's rendezvous"
    assert [one.stdout.strip() for one in done] == [f"{rank} 2 {launcher}" for rank in range(2)]


def mpirun(ranks: int, script: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1"}
    return subprocess.run(["mpirun", "-n", str(ranks), sys.executable, str(script)], env=environ, text=True, capture_output=True,
                          timeout=400)


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
@pytest.mark.parametrize("how", ["rankstore.init()", "rankstore.init('mpi')", "rankstore.init(MPI.COMM_WORLD)"])
def test_mpirun(tmp_path: Path, how: str) -> None:
    if "COMM" in how:
        pytest.importorskip("mpi4py")
    script = tmp_path / "script.py"
    script.write_text("import rankstore\n" + ("from mpi4py import MPI\n" if "COMM" in how else "")
                      + TELL.replace("rankstore.init()", how)
                      .replace("flush=True", f"file=open({str(tmp_path)!r} + f'/said.{{group.rank}}', 'w')"))
    done = mpirun(2, script)
    launcher = "mpi4py" if "COMM" in how else "Open MPI"
    assert done.returncode == 0, done.stderr
    for rank in range(2):  # mpirun mixes what ranks print, not by lines
        assert (tmp_path / f"said.{rank}").read_text() == f"{rank} 2 {launcher}\n"


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="there is no mpirun")
def test_mpi_without_threads_is_refused_by_name(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    script = tmp_path / "script.py"
    script.write_text(f"""
import mpi4py, sys
mpi4py.rc.thread_level = "funneled"
from mpi4py import MPI
import rankstore
if MPI.Query_thread() < MPI.THREAD_SERIALIZED:
    try:
        rankstore.init("mpi")
        said = "no error"
    except rankstore.UnsupportedError as error:
        said = str(error)
else:
    said = "more than asked for"
with open({str(tmp_path)!r} + f"/said.{{MPI.COMM_WORLD.rank}}", "w") as file:
    file.write(said)
""")
    done = mpirun(2, script)
    said = [(tmp_path / f"said.{rank}").read_text() for rank in range(2)]
    known = ("without threads; use MPI_THREAD_SERIALIZED", "more than asked for")  # the second by newer releases of Open MPI
    assert done.returncode == 0 and all(any(words in one for words in known) for one in said), (said, done.stderr)


def test_a_step_of_srun(tmp_path: Path) -> None:
    """srun's variables, as it sets them for the two tasks of a step; SLURM_NTASKS of the allocation around it is not believed."""
    script = tmp_path / "script.py"
    script.write_text("import rankstore\n" + TELL)
    common = {**os.environ, "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "77", "SLURM_STEP_NUM_TASKS": "2", "SLURM_NTASKS": "9",
              "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    running = [subprocess.Popen([sys.executable, str(script)], env={**common, "SLURM_PROCID": str(rank)}, text=True,
                                stdout=subprocess.PIPE) for rank in range(2)]
    said = [process.communicate(timeout=400)[0].strip() for process in running]
    assert said == [f"{rank} 2 srun" for rank in range(2)]


def test_another_launcher_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PMI_RANK", "0")
    with pytest.raises(rankstore.UnsupportedError, match="mpi4py"):
        rankstore.init()


@pytest.mark.parametrize("options", [{"group": "carrier pigeon"}, {"silence": 0}, {"silence": -1}, {"patience": float("inf")},
                                     {"group": object()}])
def test_options_that_are_none(options: dict[str, object]) -> None:
    with pytest.raises(rankstore.ArgumentError):
        rankstore.init(**options)  # type: ignore[arg-type]


def test_an_error_of_one_rank_is_every_ranks(ranks: Ranks) -> None:
    script = '''
import rankstore
group = rankstore.init()
try:
    group.agree("loading", "no more tea" if group.rank == 1 else None)
except rankstore.DataError as error:
    print(error.rank, error.text)
group.close()
'''
    assert [one.stdout.strip() for one in ranks(3, script)] == ["1 no more tea"] * 3


def test_a_rank_that_left_is_named_once(ranks: Ranks) -> None:
    script = '''
import sys, rankstore
group = rankstore.init()
group.allgather("all are here", b"")
if group.rank == 1:
    sys.exit(0)
try:
    group.allgather("names", b"")
except rankstore.PeerError as error:
    print(error.rank, str(error).count("rank 1"), "has left" in str(error))
'''
    assert [one.stdout.strip() for one in ranks(3, script)] == ["1 1 True", "", "1 1 True"]


def test_a_rank_that_never_comes(ranks: Ranks) -> None:
    script = '''
import os, sys, time
from pathlib import Path
if os.environ["RANK"] == "1":
    sys.exit(0)
import rankstore, torch.distributed
Path("here" + os.environ["RANK"]).touch()
while not (Path("here0").exists() and Path("here2").exists()):  # one that imports for long would be missing, too
    time.sleep(0.01)
try:
    rankstore.init(silence=5, arrival=20)
except rankstore.PeerError as error:
    print(error)
'''
    done = ranks(3, script)
    assert "[1] have not arrived" in done[0].stdout
    assert "have not arrived" in done[2].stdout or "rank that holds the store" in done[2].stdout  # rank 0 may have left first
    assert "waitForInput" not in done[0].stderr + done[2].stderr  # torch's warning of each wait that ended


def test_ctrl_c_while_waiting(tmp_path: Path) -> None:
    """Rank 0 of two waits for the other, which is not there: SIGINT ends the wait at once with KeyboardInterrupt."""
    from conftest import is_listening
    port = free_port()
    script = tmp_path / "script.py"
    script.write_text("import rankstore\nprint('here', flush=True)\ntry:\n    rankstore.init(silence=60)\n"
                      "except KeyboardInterrupt:\n    print('interrupted')\n")
    environ = {**os.environ, "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    process = subprocess.Popen([sys.executable, str(script)], env=environ, text=True, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == "here\n"
    while not is_listening(port):  # rank 0 holds the store: torch is imported, and the wait begins
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=400)[0] == "interrupted\n"  # nothing else ends it: ranks may arrive for 300 s


def test_launch_forks_ranks() -> None:
    script = ("import rankstore\ndef main(group):\n    assert group.world == 3\n    group.agree('here')\n"
              "    return 7 if group.rank == 2 else 0\nprint(rankstore.launch(3, main))")
    done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, timeout=400)
    assert done.stdout.strip() == "7", done.stderr


def test_ranks_that_hang_say_where(ranks: Ranks) -> None:
    """The harness itself: a rank that does not end is shown with what its threads wait for."""
    with pytest.raises(pytest.fail.Exception) as failed:
        ranks(2, "import os, time\nif os.environ['RANK'] == '1':\n    time.sleep(600)  # here it hangs\n", timeout=20)
    said = str(failed.value)
    assert "rank 0 has ended with 0" in said and "rank 1, process" in said and "script.py\", line 3" in said


def test_launch_does_not_wait_for_a_stopped_rank(tmp_path: Path) -> None:
    """Rank 0 gives the silent one up, and the launcher kills it."""
    script = ("import os, signal, rankstore\ndef main(group):\n    if group.rank == 1:\n        print(os.getpid(), flush=True)\n"
              "        os.kill(os.getpid(), signal.SIGSTOP)\n    try:\n        group.agree('here')\n"
              "    except rankstore.PeerError as error:\n        print(error.rank, flush=True)\n        return 9\n"
              "print(rankstore.launch(2, main, silence=5))")
    done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, timeout=400,
                          env={**os.environ, "RKS_LAUNCH_GRACE_MS": "1000"})
    pid, lost, code = done.stdout.split()
    assert (lost, code) == ("1", "9") and not Path(f"/proc/{pid}").exists(), done.stderr


BARRIER = '''
import os, rankstore
group = rankstore.init()
if group.rank == 0:
    open("there", "w").close()
group.barrier()
print(os.path.exists("there"))
group.barrier()
group.close()
'''


def test_a_barrier_waits_for_all(ranks: Ranks) -> None:
    assert [one.stdout for one in ranks(3, BARRIER)] == ["True\n"] * 3


ALONE = '''
import os, sys, threading, time, rankstore
group = rankstore.init(patience=0.2)
if group.rank == 1:
    while not os.path.exists("err") or "build is collective" not in open("err").read():
        time.sleep(0.05)
else:
    os.dup2(os.open("err", os.O_CREAT | os.O_WRONLY), 2)
rankstore.build([{"x": i} for i in range(10)], "store").close()
'''


def test_a_build_on_one_rank_of_a_group_says_that_it_is_collective(ranks: Ranks, tmp_path: Path) -> None:
    ranks(2, ALONE)
    said = (tmp_path / "err").read_text()
    assert " s for rank 1 (" in said and 'on one alone with a group of its own (in Python init("solo"))' in said


BUSY = '''
import os, time, rankstore
group = rankstore.init(patience=0.2)

class Rows:
    def __init__(self):
        self.busy = group.rank == 1
    def __len__(self):
        while self.busy and (not os.path.exists("err") or "looks at its source" not in open("err").read()):
            time.sleep(0.05)
        return 10
    def __getitem__(self, i):
        return {"x": i}

if group.rank == 0:
    os.dup2(os.open("err", os.O_CREAT | os.O_WRONLY), 2)
rankstore.build(Rows(), "store").close()
'''


def test_a_rank_that_still_looks_at_its_source_is_not_taken_for_one_elsewhere(ranks: Ranks, tmp_path: Path) -> None:
    ranks(2, BUSY)
    said = [line for line in (tmp_path / "err").read_text().splitlines() if "in 'build: looking at the source'" in line]
    assert said and all(line.endswith(": looks at its source") for line in said), said  # a busy machine has later waits, of other things


SOLO_FIRST = '''
import torch.distributed as dist, rankstore
dist.init_process_group("gloo")
if dist.get_rank() == 0:
    for _ in range(2):
        with rankstore.init("solo") as alone:
            rankstore.build([{"x": i} for i in range(10)], "store", group=alone, replace=True).close()
dist.barrier()
group = rankstore.init(arrival=60)
print(group.world, len(rankstore.open("store")))
'''


def test_a_group_of_all_forms_after_one_rank_was_alone(ranks: Ranks) -> None:
    assert [one.stdout for one in ranks(2, SOLO_FIRST)] == ["2 10\n"] * 2


LATE = '''
import os, sys, threading, time
import torch.distributed as dist, rankstore
dist.init_process_group("gloo")
if dist.get_rank() == int(sys.argv[1]):
    while not os.path.exists("said"):
        time.sleep(0.05)
    rankstore.init()
else:
    def look():  # the line ends the wait of the late rank
        while "have waited" not in open("err").read():
            time.sleep(0.05)
        open("said", "w").close()
    os.dup2(os.open("err", os.O_CREAT | os.O_WRONLY), 2)
    threading.Thread(target=look, daemon=True).start()
    rankstore.init(patience=0.2)
'''


@pytest.mark.parametrize("late, here", [(1, "[0]"), (0, "[1]")])
def test_a_line_names_ranks_that_do_not_arrive(ranks: Ranks, tmp_path: Path, late: int, here: str) -> None:
    done = ranks(2, LATE, str(late))
    said = (tmp_path / "err").read_text()
    assert said.count("have waited") == 1 and not any("have waited" in one.stderr for one in done)
    assert f"ranks {here} have waited 0.2 s in init for ranks [{late}]. init, build and open are collective" in said
    assert 'on one alone as `with rankstore.init("solo") as alone: build(..., group=alone)`' in said
