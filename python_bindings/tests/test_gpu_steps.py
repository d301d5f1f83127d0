# SPDX-License-Identifier: Apache-2.0
"""What judges the steps that run on a GPU: it must find what is wrong, and here no GPU shows that. Made-up timelines and programs do."""
from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")
FOLDER = str(Path(__file__).resolve().parents[2] / "tests" / "gpu")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports a file of tests/gpu."""
    monkeypatch.syspath_prepend(FOLDER)
    before = set(sys.modules)
    yield importlib.import_module
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(sys.modules[name].__file__).startswith(FOLDER):
            del sys.modules[name]


def event(name: str, begin: float, end: float, device: str = "CUDA") -> Any:
    return SimpleNamespace(name=name, device_type=SimpleNamespace(name=device), time_range=SimpleNamespace(start=begin, end=end))


def timeline(program: Any, wait_for_work: bool) -> list[Any]:
    """Each step: 1,000 us of work and a copy of 100 us, in the middle of it, or between two steps' work."""
    events = []
    for step in range(program.STEPS):
        begin = step * 1200.0
        at = begin + (1050 if wait_for_work else 500)
        events += [event("gemm", begin, begin + 1000), event("Memcpy HtoD (Pinned -> Device)", at, at + 100),
                   event("Memcpy DtoH (Device -> Pageable)", at, at + 100)]
    return [*events, event("cudaDeviceSynchronize", 0, program.STEPS * 1200.0, "CPU")]


def test_copies_beside_work_are_told_from_those_that_wait(program: Any) -> None:
    loader = program("loader")
    wanted = loader.STEPS - loader.AHEAD - 1
    assert loader.count_beside(*loader.spans_of(timeline(loader, False))) == wanted >= 10
    assert loader.count_beside(*loader.spans_of(timeline(loader, True))) == 0, "what the CPU waits for is no work of the GPU's"
    with pytest.raises(AssertionError, match="0 copies in 16 steps"):
        loader.count_beside(*loader.spans_of([event("gemm", 0, 9)]))


def test_a_step_of_torch_s_profiler_has_what_is_asked_for(program: Any) -> None:
    import torch
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ones(4).sum()
    events = profile.events()
    assert events and {one.device_type.name for one in events} == {"CPU"}
    assert program("loader").spans_of(events) == ([], []) and all(one.time_range.start <= one.time_range.end for one in events)


def test_ranks_are_found_on_their_gpu(program: Any) -> None:
    listed = "GPU-a, /tmp/bin/gpu_exchange\nGPU-a, /tmp/bin/gpu_exchange\nGPU-b, python3\n"
    found = program("of_exchange")
    assert found.ranks_on(listed, "GPU-a") == 2 and found.ranks_on(listed, "GPU-b") == 0 and found.ranks_on("", "GPU-a") == 0


def test_what_the_stand_in_complains_of_fails_a_step(program: Any, tmp_path: Path) -> None:
    steps, said = program("steps"), tmp_path / "program"
    for text, good in (("a warning", True), ("the stand-in: cuMemFree_v2: without a context", False)):
        said.write_text(f"#!/bin/sh\necho '{text}' >&2\necho '[]'\n")
        said.chmod(0o755)
        machine = steps.Machine(str(said), "a stand-in")
        if good:
            assert machine.gpu_exchange(1, 1, 1, "nccl") == []
        else:
            with pytest.raises(AssertionError, match="without a context"):
                machine.gpu_exchange(1, 1, 1, "nccl")


def test_each_step_is_saved_as_it_ends(program: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps, results = program("steps"), tmp_path / "RESULTS.md"

    def a_good_step(machine: Any) -> str:
        """It is good."""
        return "seen"

    def a_bad_step(machine: Any) -> str:
        """What came before it is on disk."""
        assert "| a good step | It is good. | seen |" in results.read_text()
        raise AssertionError("broken | in two")

    def a_last_step(machine: Any) -> str:
        """It runs all the same."""
        assert "| the run ended before | 0.0 | not run |" in results.read_text()
        raise steps.Skip("not here")

    every, machine = [a_good_step, a_bad_step, a_last_step], steps.Machine("none", "a stand-in")
    assert steps.main(every, machine, str(results)) == 1
    assert "1 steps good, 1 failed, 1 skipped, 0 not run" in results.read_text() and "broken \\| in two" in results.read_text()
    assert steps.main(every, machine, str(results), ["good", "last"]) == 0
    assert "| a bad step | What came before it is on disk. | not chosen | 0.0 | not run |" in results.read_text()
    assert "FAIL a bad step (" in capsys.readouterr().out


def is_alive(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_program_that_does_not_end_is_ended_with_its_children(program: Any, tmp_path: Path) -> None:
    steps, log = program("steps"), tmp_path / "log"
    machine = steps.Machine("none", "a stand-in", str(log))
    with pytest.raises(AssertionError, match="no end within 5 s: it began"):
        machine.run(["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/child; echo it began; wait"], limit_s=5)
    stat, until = Path("/proc", (tmp_path / "child").read_text().strip(), "stat"), time.monotonic() + 60
    while is_alive(stat):  # it closes its pipes, for which run() waits, before it is gone
        assert time.monotonic() < until, stat.read_text()
        time.sleep(0.01)
    assert "$ sh -c" in log.read_text() and "it began" in log.read_text()
