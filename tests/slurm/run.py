# SPDX-License-Identifier: Apache-2.0
"""Real Slurm: what srun starts becomes one job, in C and in Python; steps beside each other, ended and requeued ones.

Usage: run.py BUILD-DIRECTORY [TEST...]
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from cluster import PROGRAMS, Cluster, find, free_ports

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.report import Skip, run_all  # noqa: E402

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python_bindings", "tests"))
from paged import blocks_of  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
CLI = os.path.join(BUILD, "tools", "rankstore", "rankstore")
SITE = os.path.join(os.path.dirname(BUILD), "python", "site")
ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
WORK = tempfile.mkdtemp(prefix="rankstore-srun-")
HERE = {"MASTER_ADDR": "127.0.0.1"}  # the names of the two nodes have no addresses
ROWS, PADDING = 60000, "x" * 200
CLUSTER = []


def cluster():
    if not CLUSTER:
        missing = [name for name in PROGRAMS if find(name) is None]
        if missing:
            raise Skip(f"Debian's slurm-wlm and munge are not installed: {', '.join(missing)}")
        if os.geteuid() != 0:
            raise Skip("needs root to start slurmd")
        CLUSTER.append(Cluster().__enter__())
    return CLUSTER[0]


def path(name):
    return os.path.join(WORK, name)


def make_lines():
    if not os.path.exists(path("rows.jsonl")):
        with open(path("rows.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"id": f"k{i}", "text": PADDING[: i % 200]}) + "\n" for i in range(ROWS))
    return path("rows.jsonl")


def build(name, *options):
    return [CLI, "build", make_lines(), "-o", path(name), "--key", "id", "--unit-size", "256k", "--json", *options]


def is_whole(name):
    made = subprocess.run([CLI, "verify", "--full", path(name)], capture_output=True, text=True, timeout=120)
    assert made.returncode == 0 and f"{ROWS:,} samples" in made.stdout, made.stdout + made.stderr


def still_running():
    """Processes of the tests; defunct ones of the daemons do not count."""
    found = subprocess.run(["pgrep", "-f", WORK], capture_output=True, text=True).stdout.split()
    return [one for one in found if one != str(os.getpid())]


def wait_until(is_so, what, seconds=60):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, f"waited {seconds} s: {what}"
        time.sleep(0.05)


# ---- the command line ------------------------------------------------------------------------


def the_command_line_is_one_job():
    out, err = cluster().run("srun", "-N2", "-n4", *build("together"), **HERE)
    report = json.loads(out)  # one rank speaks
    assert report["samples"] == ROWS, report
    is_whole("together")
    shards = [name for name in os.listdir(path("together")) if name.endswith(".rks")]
    assert len(shards) == 4, shards
    assert err == "", err


def one_node_needs_no_name():
    out, _ = cluster().run("srun", "-N1", "-n3", *build("alone"))
    assert json.loads(out)["samples"] == ROWS
    is_whole("alone")


def a_name_without_an_address_is_an_error_at_once():
    begun = time.monotonic()
    _, err = cluster().run("srun", "-N2", "-n4", *build("nowhere"), code=None)
    assert time.monotonic() - begun < 60, err
    lines = [line for line in err.splitlines() if not line.startswith("srun: ")]
    assert lines and all('"n1", has no address here' in line and "MASTER_ADDR" in line for line in lines), err


def the_doctor_tells_how_many_found_each_other():
    out, _ = cluster().run("srun", "-N2", "-n4", CLI, "doctor", WORK, code=None, **HERE)
    assert "srun, ranks: 4" in out and "rank 0 of 4" in out and "(srun)" in out, out


def two_steps_of_a_job_do_not_disturb_each_other():
    steps = " & ".join(f"srun --exact -N2 -n4 {' '.join(build(f'beside{i}'))} > {path(f'beside{i}.json')}" for i in range(3))
    cluster().run("salloc", "-Q", "-N2", "-n12", "bash", "-c", f"{steps} & wait", **HERE)
    for i in range(3):
        with open(path(f"beside{i}.json"), encoding="utf-8") as file:
            assert json.load(file)["samples"] == ROWS
        is_whole(f"beside{i}")


def a_cancelled_step_leaves_nothing_and_is_resumed():
    command = ["srun", "-N2", "-n4", *build("cancelled", "--threads", "1", "--dedup")]
    for patience in (0.3, 0.6):
        process = subprocess.Popen(command, env={**cluster().environ, **HERE}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: os.path.isdir(path("cancelled")) or process.poll() is not None, "the build begins")
        time.sleep(patience)
        jobs = subprocess.run(["squeue", "-h", "-o", "%A"], env=cluster().environ, capture_output=True, text=True).stdout.split()
        for job in jobs:
            cluster().run("scancel", f"{job}.0", code=None)
        process.communicate(timeout=60)
        wait_until(lambda: not still_running(), "all tasks end")
    if not os.path.exists(path("cancelled/dataset.json")):
        cluster().run(*command, **HERE)
    is_whole("cancelled")


# ---- Python ----------------------------------------------------------------------------------

SCRIPT = """
import json, os, sys
import rankstore
from rankstore import Lists

with rankstore.init() as group, rankstore.build({source!r}, {out!r}, key="id", unit_size="256KiB", group=group) as ds:
    seen = [i for batch in ds.loader(ds.plan("bucket", max_tokens=4096), collate=Lists(), out="numpy") for i in batch.ids.tolist()]
    every = group.allgather("seen", json.dumps(seen).encode())
    if group.rank == 0:
        ids = sorted(i for one in every for i in json.loads(one))
        print(group.world, group.launcher, ids == list(range(len(ds))), os.environ.get("SLURM_RESTART_COUNT", "0"), flush=True)
    {more}
"""


def script(name, more="pass"):
    if not os.path.isdir(SITE):
        subprocess.run([sys.executable, "tests/python.py", BUILD, "--install"], cwd=ROOT, check=True, timeout=600)
    with open(path(f"{name}.py"), "w", encoding="utf-8") as file:
        file.write(SCRIPT.format(source=make_lines(), out=path(name), more=more))
    return [sys.executable, path(f"{name}.py")]


def python_programs_meet_without_torch():
    out, _ = cluster().run("srun", "-N2", "-n4", *script("python"), PYTHONPATH=SITE, **HERE)
    assert out.split("\n")[0] == "4 srun True 0", out


ONE_A_NODE = "srun --nodes 2 --ntasks-per-node 1 python"
PAGES = {  # what is run of a page; "": all of it, in its order
    "slurm.md": "",
    "nodes.md": f"{ONE_A_NODE} epoch.py",
    "shared.md": f"{ONE_A_NODE} shared.py",
    "training.md": f"export MASTER_PORT=29500\npython block0.py\n{ONE_A_NODE} train.py",
}


def script_of(page, folder):
    """Save a page's programs, and return what a batch script does to run them."""
    lines = ""
    for i, block in enumerate(blocks_of(Path(ROOT) / "python_bindings" / "docs" / page)):
        name = block.how.removeprefix("save=") or f"block{i}.py"
        if block.language == "python":
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(block.text)
            lines += "" if block.how else f"python {name}\n"
        elif block.how == "srun":
            lines += block.text
    lines = (PAGES[page] or lines).replace("29500", str(free_ports(1)[0]))
    # The names of the two nodes have no addresses.
    return re.sub(r"^(export MASTER_ADDR=.*)$", r"\1\n[ $MASTER_ADDR = n1 ]\nexport MASTER_ADDR=127.0.0.1", lines, flags=re.M)


def the_pages_commands_run():
    """What pages print, as the lines of a batch script: here srun is the real one."""
    script("pages")  # makes the package
    at = {"PYTHONPATH": SITE, "PATH": f"{os.path.dirname(sys.executable)}:{os.path.dirname(CLI)}:{os.environ['PATH']}", **HERE}
    for page in PAGES:
        folder = path(page)
        os.makedirs(folder)
        with open(os.path.join(folder, "job.sh"), "w", encoding="utf-8") as file:
            file.write("#!/bin/bash\nset -euo pipefail\n" + script_of(page, folder))
        cluster().run("bash", "-c", 'sbatch --wait --nodes 2 --ntasks-per-node 1 --output=job.out job.sh || { cat job.out; exit 1; }',
                      cwd=folder, **at)
        assert any(name.endswith("dataset.json") for _, _, names in os.walk(folder) for name in names)


def the_readmes_program_runs():
    script("readme")  # makes the package
    folder = path("readme_program")
    os.makedirs(folder)
    with open(f"{folder}/readme.py", "w", encoding="utf-8") as file:
        file.write("".join(block.text for block in blocks_of(Path(ROOT) / "README.md") if block.language == "python"))
    out, _ = cluster().run("srun", "-N2", "-n4", sys.executable, "readme.py", cwd=folder, PYTHONPATH=SITE, **HERE)
    shapes = [int(rows) for rows in re.findall(r"torch\.Size\(\[(\d+), \d+\]\)", out)]
    assert sum(shapes) == 10_000, out[-2000:]


def a_killed_task_is_named_by_the_others():
    program = script("killed", "if group.rank == 2:\n        os.kill(os.getpid(), 9)\n    group.barrier()")
    begun = time.monotonic()
    _, err = cluster().run("srun", "-N2", "-n4", *program, PYTHONPATH=SITE, code=None, **HERE)
    assert time.monotonic() - begun < 60 and "PeerError" in err and "rank 2" in err, err


def a_requeued_job_goes_on():
    """The first run asks Slurm to start the job again, as a scheduler that needs the nodes does."""
    program = script("requeued", "if os.environ.get('SLURM_RESTART_COUNT', '0') == '0':\n        group.barrier()\n"
                     "        import time; time.sleep(30)")
    job = path("job.sh")
    with open(job, "w", encoding="utf-8") as file:
        file.write(f"#!/bin/bash\nsrun -N2 -n4 {' '.join(program)}\n")
    out, _ = cluster().run("sbatch", "--requeue", "-N2", "-n4", "--open-mode=append", f"--output={path('job.out')}", job,
                           PYTHONPATH=SITE, **HERE)
    number = re.search(r"\d+", out).group()

    def said(count):
        if not os.path.exists(path("job.out")):
            return False
        with open(path("job.out"), encoding="utf-8") as file:
            return f"4 srun True {count}" in file.read()

    wait_until(lambda: said(0), "the first run has read all")
    cluster().run("scontrol", "requeue", number)
    wait_until(lambda: said(1), "the second run has read all", 180)


def nothing_is_left():
    if CLUSTER:
        wait_until(lambda: not still_running(), "all tasks end")


TESTS = [
    the_command_line_is_one_job,
    one_node_needs_no_name,
    a_name_without_an_address_is_an_error_at_once,
    the_doctor_tells_how_many_found_each_other,
    two_steps_of_a_job_do_not_disturb_each_other,
    a_cancelled_step_leaves_nothing_and_is_resumed,
    python_programs_meet_without_torch,
    the_pages_commands_run,
    the_readmes_program_runs,
    a_killed_task_is_named_by_the_others,
    a_requeued_job_goes_on,
    nothing_is_left,
]

if __name__ == "__main__":
    try:
        run_all(TESTS)
    finally:
        for one in CLUSTER:
            one.stop()
        shutil.rmtree(WORK, ignore_errors=True)
