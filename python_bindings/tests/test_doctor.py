# SPDX-License-Identifier: Apache-2.0
"""`rankstore doctor`, started by a launcher as the job is: what it says is what a program under the same launcher then does."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from paged import programs

import rankstore

CLI = shutil.which("rankstore", path=os.pathsep.join(programs())) or "rankstore"
LIMIT_S = 400
JOB = """
import json, sys
import rankstore
with rankstore.init() as group, rankstore.open(sys.argv[1]) as ds:
    said = {"ranks": f"rank {group.rank} of {group.world}", "launcher": group.launcher, "index": ds.stats()["exchange"]}
    with open(f"{sys.argv[2]}/said.{group.rank}", "w") as file:
        json.dump(said, file)
"""
TORCHRUN = ["torchrun", "--standalone", "--nproc-per-node"]
MPIRUN = ["mpirun", "--bind-to", "none", "-n"]
ALLOWED = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
           "OMP_NUM_THREADS": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, env={**os.environ, **ALLOWED}, capture_output=True, text=True, timeout=LIMIT_S)


@pytest.mark.parametrize(("launcher", "world"), [("torchrun", 2), ("mpirun", 2), ("mpirun", 4)])
def test_it_tells_what_the_job_does(tmp_path: Path, launcher: str, world: int) -> None:
    if launcher == "torchrun":
        pytest.importorskip("torch")
    elif shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun")
    with rankstore.init("solo") as alone:
        rankstore.build([{"x": i} for i in range(100)], tmp_path / "ds", group=alone).close()
    (tmp_path / "job.py").write_text(JOB)
    begin = [*(TORCHRUN if launcher == "torchrun" else MPIRUN), str(world)]
    found = run(*begin, *(["--no-python"] if launcher == "torchrun" else []), CLI, "doctor", "--json", str(tmp_path))
    assert found.returncode == 0, found.stdout + found.stderr
    report = json.loads(found.stdout)  # one rank speaks
    value = {one["name"]: one["value"] for one in report["findings"]}
    advice = {one["name"]: one["advice"] for one in report["findings"]}
    done = run(*begin, *([] if launcher == "torchrun" else [sys.executable]), str(tmp_path / "job.py"), str(tmp_path / "ds"), str(tmp_path))
    assert done.returncode == 0, done.stderr
    said = [json.loads((tmp_path / f"said.{rank}").read_text()) for rank in range(world)]
    meet = "torch's rendezvous" if launcher == "torchrun" else "Open MPI"
    assert {one["launcher"] for one in said} == {meet}
    assert value["launcher"] == f"{'torchrun' if launcher == 'torchrun' else 'Open MPI'}, ranks: {world}"
    assert value["ranks"].startswith(said[0]["ranks"])
    assert ("they meet in torch's store" if launcher == "torchrun" else "(mpi)") in value["ranks"]
    assert ("Python programs join them" in advice["ranks"]) == (launcher == "torchrun")
    assert value["transport"].startswith("samples by TCP ") and value["transport"].endswith(f"index: {said[0]['index']}")
    assert ("loopback" if launcher == "torchrun" else "127.0.0.1") in value["transport"]


def test_a_build_under_torchrun_is_refused_by_name_and_writes_nothing(tmp_path: Path) -> None:
    """The command line cannot join torch's ranks: each process would build all."""
    pytest.importorskip("torch")
    (tmp_path / "x.jsonl").write_text('{"key": "a", "text": "b"}\n' * 3)
    done = run(*TORCHRUN, "2", "--no-python", CLI, "build", str(tmp_path / "x.jsonl"), "-o", str(tmp_path / "out"))
    assert done.returncode != 0 and os.listdir(tmp_path) == ["x.jsonl"], done.stdout + done.stderr
    assert "torchrun started 2 processes of this command, which cannot join them; use mpirun -n 2, srun -n 2 or" in done.stderr


@pytest.mark.parametrize("size, name", [("1", "PMI_RANK"), ("2", "PMI_RANK"), (None, "PMI_RANK"), (None, "PMIX_RANK")])
def test_a_pmi_launcher_of_one_process_is_one_rank_and_others_are_refused(tmp_path: Path, size: str | None, name: str) -> None:
    """On the command line and in Python alike."""
    (tmp_path / "x.jsonl").write_text('{"key": "a", "text": "b"}\n')
    given = {**os.environ, **ALLOWED, name: "0", **({} if size is None else {"PMI_SIZE": size})}
    built = subprocess.run([CLI, "build", str(tmp_path / "x.jsonl"), "-o", str(tmp_path / "out")], env=given, capture_output=True,
                           text=True, timeout=LIMIT_S)
    opened = subprocess.run([sys.executable, "-c", "import rankstore\nwith rankstore.init() as group: print(group.world, group.launcher)"],
                            env=given, capture_output=True, text=True, timeout=LIMIT_S)
    if size == "1":
        assert built.returncode == 0 and (tmp_path / "out" / "dataset.json").exists(), built.stderr
        assert opened.stdout == "1 one process\n", opened.stderr
    else:
        assert built.returncode == 3 and f"{name} is set by a launcher that is neither" in built.stderr, built.stderr
        assert not (tmp_path / "out").exists()
        assert opened.returncode == 1 and f"{name} is set by a launcher that is not Open MPI" in opened.stderr, opened.stderr


@pytest.mark.parametrize("name", ["PMIX_RANK", "PMI_RANK"])
def test_a_launcher_that_the_job_refuses(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "0")
    with pytest.raises(rankstore.UnsupportedError, match=f"{name} is set"):
        rankstore.init()
    done = run(CLI, "doctor", "--json")
    finding = next(one for one in json.loads(done.stdout)["findings"] if one["name"] == "launcher")
    assert done.returncode == 3 and not finding["ok"] and finding["value"].startswith(f"{name} is set"), finding
