# SPDX-License-Identifier: Apache-2.0
"""The program of the page "Training scripts": killed in mid-epoch, or asked to end, and started again. Every sample counts once, and the
model becomes the one of a job that nothing ended."""
from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paged
import pytest
from trained import Record

torch = pytest.importorskip("torch")

PAGE = Path(__file__).parents[1] / "docs" / "training.md"
PROGRAM = next(block.text for block in paged.blocks_of(PAGE) if block.how == "save=train.py")
INPUT = next(block.text for block in paged.blocks_of(PAGE) if block.language == "python")
WORLD, EPOCHS, SAVE_EVERY = 2, 2, 10
# After each step a rank writes down what it trained on. At the step that STOP names ("epoch step") it stands still until it is killed, or
# asked to end.
HOOK = """
import os, time
os.chdir(os.environ["WHERE"])

def stepped(epoch, batch, asked_to_end):
    rank, stop = os.environ["RANK"], os.environ.get("STOP")
    with open(f"record.{rank}", "a") as file:
        print(epoch, batch.step, *batch.ids.tolist(), file=file)
    if f"{epoch} {batch.step}" == stop and not os.path.exists(f"{stop}.{rank}"):
        with open(f"pid.{rank}", "w") as file:
            file.write(str(os.getpid()))
        os.rename(f"pid.{rank}", f"{stop}.{rank}")
        while not asked_to_end:
            time.sleep(0.01)
"""
Ranks = Callable[..., list[subprocess.CompletedProcess[str]]]


def program() -> str:
    text, found = re.subn(r"^( +)optimizer\.step\(\)$", r"\1optimizer.step()\n\1stepped(epoch, batch, asked_to_end)", PROGRAM, flags=re.M)
    assert found == 1
    return HOOK + text


class Job:
    """A folder in which the program runs, is ended, and runs again."""

    def __init__(self, ranks: Ranks, where: Path) -> None:
        self.ranks, self.where = ranks, where
        where.mkdir()
        exec(compile(INPUT.replace("chats.jsonl", str(where / "chats.jsonl")), str(PAGE), "exec"), {})
        (where / "train.py").write_text(program())

    def checkpoint(self) -> dict[str, Any]:
        found: dict[str, Any] = torch.load(self.where / "shared" / "checkpoint.pt", weights_only=True)
        return found

    def place(self) -> tuple[int, int]:
        """The epoch and the step that the checkpoint goes on at."""
        state = self.checkpoint()["loader"]
        return state["epoch"], state["step"]

    def end(self) -> dict[str, Any]:
        """Let it run to its end."""
        self.ranks(WORLD, program(), env={"WHERE": str(self.where)})
        return self.checkpoint()

    def stopped_at(self, epoch: int, step: int, *options: str) -> tuple[subprocess.Popen[bytes], list[int]]:
        """Start it by torchrun. Return torchrun and the ranks' pids once all of these stand at the step."""
        environ = {**os.environ, "WHERE": str(self.where), "STOP": f"{epoch} {step}", "OMP_NUM_THREADS": "1",
                   "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # the page "torchrun" says why
        with self.said().open("ab") as said:
            running = subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(WORLD),
                                        *options, "train.py"], cwd=self.where, env=environ, stdout=subprocess.DEVNULL, stderr=said)
        stand = [self.where / f"{epoch} {step}.{rank}" for rank in range(WORLD)]
        limit = time.monotonic() + 400
        while not all(one.exists() for one in stand):
            assert running.poll() is None and time.monotonic() < limit, self.said().read_text()[-4000:]
            time.sleep(0.05)
        return running, [int(one.read_text()) for one in stand]

    def said(self) -> Path:
        return self.where / "said"

    def check_each_sample_once(self, repeated: int) -> None:
        """An epoch has each sample once; so many steps were done again, with the same samples."""
        seen: list[dict[tuple[int, int], list[int]]] = [{} for _ in range(WORLD)]
        again = [0] * WORLD
        for rank, lines in enumerate(Record(self.where / "record", WORLD).ranks):
            for epoch, step, *ids in lines:
                again[rank] += (epoch, step) in seen[rank]
                assert seen[rank].setdefault((epoch, step), ids) == ids
        assert again == [repeated] * WORLD
        for epoch in range(EPOCHS):
            ids = sorted(one for batches in seen for (at, _), batch in batches.items() if at == epoch for one in batch)
            assert ids == list(range(600))


@pytest.mark.limit(1500)
def test_killed_and_started_again(ranks: Ranks, tmp_path: Path) -> None:
    """First all is killed in mid-epoch; later one rank, and torchrun starts all of them again."""
    through = Job(ranks, tmp_path / "through")
    wanted = through.end()
    through.check_each_sample_once(0)

    job = Job(ranks, tmp_path / "killed")
    torchrun, pids = job.stopped_at(0, SAVE_EVERY + 3)
    for pid in (torchrun.pid, *pids):
        os.kill(pid, signal.SIGKILL)
    torchrun.wait(timeout=400)
    assert job.place() == (0, SAVE_EVERY)
    torchrun, pids = job.stopped_at(1, 1, "--max-restarts", "1")
    os.kill(pids[1], signal.SIGKILL)
    assert torchrun.wait(timeout=400) == 0, job.said().read_text()[-4000:]
    job.check_each_sample_once(4 + 2)
    found = job.checkpoint()
    assert found["loader"] == wanted["loader"]
    for name, value in wanted["model"].items():
        assert torch.allclose(found["model"][name], value, rtol=1e-3, atol=1e-4), name
    for number, state in wanted["optimizer"]["state"].items():
        assert torch.allclose(found["optimizer"]["state"][number]["exp_avg_sq"], state["exp_avg_sq"], rtol=1e-2, atol=1e-8), number


@pytest.mark.limit(1500)
def test_asked_to_end_all_save_after_the_same_step(ranks: Ranks, tmp_path: Path) -> None:
    job = Job(ranks, tmp_path / "asked")
    torchrun, pids = job.stopped_at(0, 3)
    os.kill(pids[1], signal.SIGTERM)  # this one alone goes on, and waits for the other's gradients
    torchrun.send_signal(signal.SIGTERM)  # which sends it to both
    torchrun.wait(timeout=400)
    assert job.place() == (0, SAVE_EVERY)
    job.end()
    job.check_each_sample_once(0)
