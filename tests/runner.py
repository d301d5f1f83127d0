# SPDX-License-Identifier: Apache-2.0
"""The test runner itself: which jobs run side by side, and that nothing that fails, hangs, is skipped or prints nothing counts as
passed."""
import contextlib
import dataclasses
import glob
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ratios  # noqa: E402
import run  # noqa: E402
from steps import costs, load, pool, scripts, suites, table  # noqa: E402
from steps.job import Job, Totals  # noqa: E402
from support.report import run_all  # noqa: E402


def job(name, seconds=1.0, load=1.0, **more):
    return Job(step=more.pop("step", "s"), name=name, command=[], read=None, limit_s=100, seconds=seconds, load=load, **more)


def outcome(read, code_of_python, limit_s=60, after=None, then=None):
    """Runs Python code as a job; the totals, or what `then` says of the pool."""
    totals, here = Totals(), os.getcwd()
    jobs = [Job(step="runner", name="job", command=[sys.executable, "-c", code_of_python], read=read, limit_s=limit_s,
                directory=here)]
    if after:
        jobs.append(Job(step="runner", name="next", command=[sys.executable, "-c", after], read=read, limit_s=limit_s,
                        after="job"))
    with tempfile.TemporaryDirectory(prefix="rankstore-runner-") as folder, contextlib.redirect_stdout(io.StringIO()):
        before, costs.PATH = costs.PATH, os.path.join(folder, "durations.json")
        try:
            running = pool.Pool(jobs)
            while running.waiting or running.running:
                running.start()
                for one, text, code in running.poll():
                    one.read(one, text, code, totals)
                totals.failed += [one.key for one in running.give_up()]
                time.sleep(0.01)
        finally:
            costs.PATH = before
    return then(running) if then else totals


def cores_are_filled_and_not_overfilled():
    waiting = [job("long", load=1.5), job("half", load=0.5), job("one")]
    before, pool.CORES = pool.CORES, 2
    try:
        assert pool.choose(waiting, [], set()).name == "long"
        assert pool.choose(waiting[1:], waiting[:1], set()).name == "half"
        assert pool.choose(waiting[2:], waiting[:2], set()) is None
        assert pool.choose(waiting[:1], [], set()).name == "long"
    finally:
        pool.CORES = before
    waits = [job(str(i), load=0) for i in range(pool.SLOTS + 1)]
    assert pool.choose(waits[-1:], waits[:-1], set()) is None


def a_job_that_waits_leaves_room_for_others():
    before, pool.CORES = pool.CORES, 2
    try:
        running = [job("once busy", load=2), job("once waiting", load=0)]
        assert pool.choose([job("next")], running, set()) is None
        running[0].measured = 0.2
        assert pool.choose([job("next")], running, set()).name == "next"
        running[1].measured = 1.5
        assert pool.choose([job("next")], running, set()) is None
    finally:
        pool.CORES = before


def what_running_jobs_use_is_measured():
    """Also what a process does that a job has started in a session of its own, or that outlives its parent."""
    spin = "import time\nwhile True: pass"
    start = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {spin!r}], start_new_session="
    codes = ["import time; time.sleep(600)", spin, start + "True); time.sleep(600)", start + "False)"]
    running = [subprocess.Popen([sys.executable, "-c", code], start_new_session=True) for code in codes]
    strays = []
    try:
        meter, found = load.Meter(), {}
        until = time.monotonic() + 100
        while not (found and min(found[one.pid] for one in running[1:]) > 0.05) and time.monotonic() < until:
            time.sleep(0.2)
            found = meter.look([one.pid for one in running]) or found
            there = load.processes()
            strays = [pid for pid in there if load.belongs_to(pid, {one.pid for one in running}, there)]
        assert found[running[0].pid] < 0.05 and all(found[one.pid] > 0.05 for one in running[1:]), [found.get(one.pid) for one in running]
        assert load.memory_left() > 0
    finally:
        for pid in strays:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for one in running:
            one.wait()


def what_disturbs_each_other_runs_apart():
    faults, cli = job("", load=0, step="faults", apart=frozenset({"cli"})), job("", load=0, step="cli")
    assert pool.choose([faults], [cli], set()) is None and pool.choose([cli], [faults], set()) is None
    lone = job("lone", load=0, alone=True)
    assert pool.choose([lone], [cli], set()) is None and pool.choose([cli], [lone], set()) is None
    assert pool.choose([lone], [], set()) is lone


def a_job_begins_after_the_one_it_needs():
    install, test = job("install"), job("test", after="install")
    assert pool.choose([test], [], set()) is None and pool.choose([test], [], {"s/install"}) is test
    assert pool.in_order([job("long", 100), test, install])[0] is install


def the_time_left_is_that_of_the_jobs_side_by_side():
    before, pool.CORES = pool.CORES, 2
    try:
        jobs = [job(str(i), seconds=10) for i in range(4)]
        assert pool.seconds_left(jobs, [], set()) == 20
        assert pool.seconds_left(jobs[1:], [(jobs[0], 4)], set()) == 20
        assert pool.seconds_left([job("never", after="gone")], [], set()) == 0
    finally:
        pool.CORES = before


def costs_are_added_by_step():
    waits = outcome(scripts.read, "import time; time.sleep(0.6); print('ok a')", then=lambda found: found.recorded["runner/job"])
    works = outcome(scripts.read, "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time\\n"
                    "while time.process_time() < 0.6: pass']); print('ok a')", then=lambda found: found.recorded["runner/job"])
    assert waits.seconds >= 0.6 and waits.processor < 0.5 and works.processor >= 0.6, (waits, works)
    lines = costs.table({"a/x": works, "a/y": works, "b/z": waits, "build c": works, "d": works}, {"a", "b"})
    assert [line.split("  ")[-1] for line in lines[:3]] == ["a, 2 jobs", "build c", "b"], lines
    assert lines[-1].endswith("b/z") and len(lines) == 8, lines


def a_reader_that_has_enough_ends_a_list():
    costly = {f"cli/{'x' * 100}{i}": costs.Cost(1.0, 1.0) for i in range(30)}
    with tempfile.TemporaryDirectory(prefix="rankstore-runner-") as folder:
        os.mkdir(os.path.join(folder, "build"))
        with open(os.path.join(folder, "build", "test-durations.json"), "w", encoding="utf-8") as file:
            json.dump(costly, file)
        for asked in ("--costs", "--list"):
            reading, writing = os.pipe()
            os.close(reading)
            done = subprocess.run([sys.executable, os.path.abspath("tests/run.py"), asked], cwd=folder, stdout=writing,
                                  stderr=subprocess.PIPE, text=True, timeout=100)
            os.close(writing)
            assert done.stderr == "" and done.returncode == -signal.SIGPIPE, (asked, done)


def what_fails_is_counted():
    good = outcome(scripts.read, "print('ok a'); print('ok b')")
    assert (good.passed, good.failed) == (2, []), good.failed
    for code in ("print('ok a'); print('FAIL b: why')", "print('ok a'); raise SystemExit(1)", "pass",
                 "import os; print('ok a', flush=True); os.abort()", "print('ok a'); print('skip b: no reason that is permitted')"):
        found = outcome(scripts.read, code)
        assert len(found.failed) == 1, (code, found.failed)
    for code in ("raise SystemExit(1)", "import os; os.abort()", "raise SystemExit(77)"):
        assert len(outcome(suites.read, code).failed) == 1, code
    assert outcome(suites.read, "print('[       OK ] one'); print('[       OK ] two')").passed == 2


def what_hangs_is_ended_and_counted():
    found = outcome(suites.read, "import time; time.sleep(600)", limit_s=0.5)
    assert len(found.failed) == 1 and "limit" in found.failed[0], found.failed


def what_waits_for_a_failure_is_counted():
    found = outcome(scripts.read, "print('FAIL install'); raise SystemExit(1)", after="print('ok next')")
    assert found.passed == 0 and found.failed[-1] == "runner/next", found.failed


def open_mpi_s_directory_of_sessions_stays_while_tests_run():
    with tempfile.TemporaryDirectory(prefix="rankstore-runner-") as folder:
        before, tempfile.tempdir = tempfile.tempdir, folder
        try:
            with run.sessions_of_open_mpi():
                [shared] = os.listdir(folder)
                for _ in range(2):
                    subprocess.run(["mpirun", "--bind-to", "none", "-n", "1", "true"], check=True, timeout=100, capture_output=True,
                                   env={**os.environ, "TMPDIR": folder, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                                        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
                    assert os.listdir(folder) == [shared] and [one for one in os.listdir(os.path.join(folder, shared))
                                                               if one.startswith("kept.")], os.listdir(folder)
            assert os.listdir(folder) == []
        finally:
            tempfile.tempdir = before


def each_test_is_a_job_once():
    files = [os.path.abspath(f"tests/cli/{name}") for name in os.listdir("tests/cli") if name.endswith(".test")]
    for together in (1, 4, len(files) + 1):
        parts = scripts.jobs(table.Step("cli", "", "script", "run.py", 10, parts=("tests/cli/*.test",), together=together))
        assert sorted(file for one in parts for file in one.command[3:]) == sorted(files), together
        assert len(parts) == len({one.log for one in parts}) == -(-len(files) // together), (together, len(parts))


def a_quick_run_leaves_long_parts_out():
    names = {name for name in os.listdir("tests/cli") if name.endswith(".test")}
    step = table.Step("cli", "", "script", "run.py", 10, parts=("tests/cli/*.test",), long=("bad.test", "c*.test"))
    kept = {os.path.basename(part) for part in scripts.without_long_parts(step).parts}
    early = [one.name for one in pool.in_order(scripts.jobs(dataclasses.replace(step, long=("csv.test", "wait.test"))))]
    assert early[:2] == ["csv", "wait"]
    assert kept == {name for name in names if name != "bad.test" and not name.startswith("c")} and len(names) > len(kept) > 0
    for step in table.STEPS:  # each name is that of a part
        parts = {os.path.basename(path) for pattern in step.parts for path in glob.glob(pattern)}
        assert set(step.long) <= parts, set(step.long) - parts


def a_ratio_that_has_fallen_by_more_than_half_is_named():
    def line(*cells):
        return "| " + " | ".join(cells) + " |\n"

    page = ["# Ratios\n", line("commit", "date", "machine", *ratios.ROWS), "|---|\n", line("1", "2", "3", *["0.1"] * len(ratios.ROWS)),
            line("4", "5", "6", *["0.8"] * len(ratios.ROWS))]
    wanted = ratios.recorded(page)
    assert wanted == dict.fromkeys(ratios.ROWS, 0.8), wanted
    assert ratios.below_half({**wanted, "read": 0.41}, wanted) == []
    assert ratios.below_half({**wanted, "read": 0.39}, wanted) == ["read: 0.39 of its floor, 0.80 recorded"]
    assert [step.name for step in table.STEPS if step.named] == ["bench"]


if __name__ == "__main__":
    run_all([
        cores_are_filled_and_not_overfilled,
        a_job_that_waits_leaves_room_for_others,
        what_running_jobs_use_is_measured,
        what_disturbs_each_other_runs_apart,
        a_job_begins_after_the_one_it_needs,
        the_time_left_is_that_of_the_jobs_side_by_side,
        costs_are_added_by_step,
        a_reader_that_has_enough_ends_a_list,
        what_fails_is_counted,
        what_hangs_is_ended_and_counted,
        what_waits_for_a_failure_is_counted,
        open_mpi_s_directory_of_sessions_stays_while_tests_run,
        each_test_is_a_job_once,
        a_quick_run_leaves_long_parts_out,
        a_ratio_that_has_fallen_by_more_than_half_is_named,
    ])
