# SPDX-License-Identifier: Apache-2.0
"""The examples, as their readers run them: no sample twice or lost, equal steps, epochs that differ, exact resume."""
from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ports import free_port
from trained import EXAMPLES, Record, needs

SAMPLES = 600
Ranks = Callable[..., list[subprocess.CompletedProcess[str]]]

# name, what else it needs, columns between step and ids, steps (of its own counting) after which it is stopped
FRAMEWORKS = [("stateful_dataloader", "torchdata", 0, 7), ("distributed_checkpoint", "torch", 0, 11),
              ("accelerate_training", "accelerate", 1, 15), ("lightning_training", "lightning", 0, 7)]


# What an example imports after torch and its optimizers. These import torch._dynamo, which takes as long as all of torch.
IMPORTS = {"accelerate_training": "import accelerate", "packed_accelerate": "import accelerate", "lightning_training": "import lightning",
           "hf_trainer": "from transformers import Trainer", "packed_trainer": "from transformers import Trainer",
           "distributed_checkpoint": "import torch.distributed.checkpoint"}


def imports(name: str) -> list[str]:
    return ["import torch._dynamo", *([IMPORTS[name]] if name in IMPORTS else [])]


def run(ranks: Ranks, world: int, name: str, *arguments: str) -> str:
    """An example on `world` ranks; what rank 0 printed."""
    return ranks(world, (EXAMPLES / f"{name}.py").read_text(), *arguments, timeout=400, warm=imports(name))[0].stdout


@pytest.mark.parametrize("name, other, flags, stop", FRAMEWORKS, ids=[one[0] for one in FRAMEWORKS])
@pytest.mark.limit(1500)
def test_a_stopped_run_goes_on_exactly(ranks: Ranks, tmp_path: Path, name: str, other: str, flags: int, stop: int) -> None:
    needs(other)
    out = ["--out", str(tmp_path / "store")]
    said = run(ranks, 2, name, *out, "--record", str(tmp_path / "whole"))
    assert "epoch 0:" in said and "epoch 1:" in said
    whole = Record(tmp_path / "whole", 2, flags)
    steps = whole.check(SAMPLES)
    run(ranks, 2, name, *out, "--stop-after", str(stop), "--record", str(tmp_path / "begun"))
    run(ranks, 2, name, *out, "--resume", "--record", str(tmp_path / "rest"))
    begun, rest = Record(tmp_path / "begun", 2, flags), Record(tmp_path / "rest", 2, flags)
    for rank in range(2):
        assert len(begun.batches(rank)) == stop
        assert begun.batches(rank) + rest.batches(rank) == whole.batches(rank)
        assert [line[:2] for line in begun.ranks[rank] + rest.ranks[rank]] == [[i // steps, i % steps] for i in range(2 * steps)]


@pytest.mark.parametrize("how", [[], ["--prepared"]], ids=["loader", "prepared"])
def test_accelerate_syncs_the_last_accumulation(ranks: Ranks, tmp_path: Path, how: list[str]) -> None:
    needs("accelerate")
    run(ranks, 2, "accelerate_training", "--out", str(tmp_path / "store"), "--record", str(tmp_path / "record"), *how)
    record = Record(tmp_path / "record", 2, 1)
    steps = record.check(SAMPLES)
    assert steps % 4 != 0
    for lines in record.ranks:
        assert [line[2] for line in lines] == [int(step % 4 == 3 or step == steps - 1) for step in range(steps)] * 2


@pytest.mark.limit(1500)
def test_hf_trainer(ranks: Ranks, tmp_path: Path) -> None:
    needs("transformers"), needs("accelerate")
    out = ["--out", str(tmp_path / "store")]
    said = run(ranks, 2, "hf_trainer", *out, "--record", str(tmp_path / "whole"))
    whole = Record(tmp_path / "whole", 2, 1)
    steps = len(whole.ranks[0]) // 2
    assert steps % 4 != 0 and f"{2 * (steps // 4 + 1)} optimizer steps" in said
    for lines in whole.ranks:
        assert [line[2] for line in lines] == [int(step % 4 == 3 or step == steps - 1) for step in range(steps)] * 2
    epochs = [[whole.batches(rank)[epoch * steps:(epoch + 1) * steps] for rank in range(2)] for epoch in range(2)]
    assert all(sorted(one for batches in each for batch in batches for one in batch) == list(range(SAMPLES)) for each in epochs)
    assert epochs[0] != epochs[1]
    done = steps // 4 + 2  # in the second epoch
    run(ranks, 2, "hf_trainer", *out, "--stop-after", str(done), "--record", str(tmp_path / "begun"))
    run(ranks, 2, "hf_trainer", *out, "--resume", "--record", str(tmp_path / "rest"))
    begun, rest = Record(tmp_path / "begun", 2, 1), Record(tmp_path / "rest", 2, 1)
    for rank in range(2):
        assert len(begun.batches(rank)) == steps + 4
        assert begun.batches(rank) + rest.batches(rank) == whole.batches(rank)


@pytest.mark.parametrize("name, other, world, words", [
    ("packed_titan", "torch", 2, "epoch 1: "), ("packed_trainer", "transformers", 1, " steps of rows 99."),
    ("packed_trl", "trl", 1, " steps of rows 99."), ("packed_accelerate", "accelerate", 2, "epoch 1: ")])
def test_packed_rows(ranks: Ranks, tmp_path: Path, name: str, other: str, world: int, words: str) -> None:
    needs(other)
    text = (EXAMPLES / f"{name}.py").read_text()
    assert len(text.splitlines()) < 50
    said = run(ranks, world, name, str(tmp_path / "store"))
    assert words in said and float(said.split("loss ")[-1]) < 4  # chance: ln 128, 4.9


def test_a_folder_of_images_has_the_same_crops_on_any_number_of_ranks(ranks: Ranks, tmp_path: Path) -> None:
    needs("PIL")
    assert len((EXAMPLES / "images.py").read_text().splitlines()) < 60
    said = [run(ranks, world, "images", str(tmp_path / str(world) / "store")) for world in (1, 2)]
    crops = [re.findall(r"epoch (\d): \d+ of 200 right, sum of all crops (\d+)", one) for one in said]
    assert crops[0] == crops[1] and len(dict(crops[0])) == len({crop for _, crop in crops[0]}) == 3
    assert all("epoch 2: 200 of 200 right" in one for one in said)


def checked_dataloader(printed: str, record: Path) -> None:
    assert f"epoch 1: {Record(record, 2).check(SAMPLES)} steps" in printed


def test_plain_dataloader(ranks: Ranks, tmp_path: Path) -> None:
    said = run(ranks, 2, "torch_dataloader", "--out", str(tmp_path / "store"), "--record", str(tmp_path / "record"))
    checked_dataloader(said, tmp_path / "record")


def test_plain_dataloader_with_workers_by_torchrun(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()),
                           str(EXAMPLES / "torch_dataloader.py"), "--out", str(tmp_path / "store"), "--record",
                           str(tmp_path / "record"), "--workers", "2"], text=True, capture_output=True, timeout=400, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    checked_dataloader(done.stdout, tmp_path / "record")


def test_a_checkpoint_goes_on_with_another_number_of_ranks(ranks: Ranks, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "store")]
    run(ranks, 2, "distributed_checkpoint", *out, "--stop-after", "7", "--record", str(tmp_path / "begun"))
    run(ranks, 3, "distributed_checkpoint", *out, "--resume", "--record", str(tmp_path / "rest"))
    begun, rest = Record(tmp_path / "begun", 2), Record(tmp_path / "rest", 3)
    first = [one for rank in range(2) for batch in begun.batches(rank) for one in batch]
    lines = [line for rank in rest.ranks for line in rank]
    for epoch, before in ((0, first), (1, [])):
        assert sorted(before + [one for line in lines if line[0] == epoch for one in line[2:]]) == list(range(SAMPLES))
    assert len({len(lines) for lines in rest.ranks}) == 1


@pytest.mark.limit(1500)
def test_sorted_batches(ranks: Ranks, tmp_path: Path) -> None:
    """The example asserts that each epoch delivers each sample once; here also that the batches are the uninterrupted run's."""
    data = Path(os.environ.get("RANKSTORE_DATA", "nowhere"), "gsm8k", "train.jsonl")
    options = ["--out", str(tmp_path / "store"), *(["--data", str(data), "--max-tokens", "65536"] if data.exists() else [])]
    said = run(ranks, 4, "sorted_batches", *options, "--record", str(tmp_path / "whole"))
    assert "each once" in said and "epoch 1:" in said
    whole = Record(tmp_path / "whole", 4)
    steps = len(whole.epochs()[0][0])
    stop = steps + steps // 2
    said = run(ranks, 4, "sorted_batches", *options, "--stop-after", str(stop), "--record", str(tmp_path / "begun"))
    assert f"stopped in epoch 1 after {stop} steps" in said
    begun = Record(tmp_path / "begun", 4)
    for world in (2, 4):
        said = run(ranks, world, "sorted_batches", *options, "--resume", "--record", str(tmp_path / f"rest{world}"))
        assert "epoch 1:" in said and f"on {world} ranks" in said
    rest = Record(tmp_path / "rest4", 4)
    assert all(begun.batches(rank) + rest.batches(rank) == whole.batches(rank) for rank in range(4))


# ---- the same limit of memory for the old way and the new one ---------------------------------------------------------

MEMORY = {"MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1"}
WORLD, MANY, FEW, BUDGET = 2, 3000, 40, 96 << 20  # 3,000 samples are 2,571 kept ones of 2,100 tokens and 17 bytes a token: 92 MB


def gpt(tmp_path: Path, how: str, samples: int, limit: int | None) -> tuple[list[int], list[int], list[str]]:
    """Runs gpt_loss_mask with at most `limit` bytes of data (RLIMIT_DATA) in each rank. Returns of each rank the exit status, the peak of
    its data, and what it said."""
    port, running = str(free_port()), []
    for rank in range(WORLD):
        environ = {**os.environ, **MEMORY, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank),
                   "LOCAL_WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        script = ("import resource, runpy, sys; limit = int(sys.argv[1]); "
                  "limit and resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)); sys.argv = sys.argv[2:]; "
                  "runpy.run_path(sys.argv[0], run_name='__main__')")
        running.append(subprocess.Popen(
            [sys.executable, "-c", script, str(limit or 0), str(EXAMPLES / "gpt_loss_mask.py"), "--how", how, "--samples", str(samples),
             "--out", str(tmp_path / f"store{samples}"), "--record", str(tmp_path / f"{how}{samples}")],
            env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path))
    peaks, deadline = [0] * WORLD, time.monotonic() + 600
    try:
        while any(process.poll() is None for process in running) and time.monotonic() < deadline:
            for rank, process in enumerate(running):
                peaks[rank] = max(peaks[rank], data_of(process.pid))
            if limit and any(process.poll() not in (None, 0) for process in running):
                time.sleep(2)  # a rank that waits for a dead one is ended
                break
            time.sleep(0.02)
    finally:
        for process in running:
            process.terminate() if process.poll() is None else None
    said = [process.communicate(timeout=400)[0] for process in running]
    return [process.returncode for process in running], peaks, said


def data_of(pid: int) -> int:
    """Bytes that RLIMIT_DATA counts; 0 for a process that has gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData")), 0)


def delivered(tmp_path: Path, name: str) -> list[int]:
    record = Record(tmp_path / name, WORLD)
    return sorted({one for rank in range(WORLD) for batch in record.batches(rank) for one in batch})


@pytest.mark.limit(1500)
def test_where_gathering_all_samples_runs_out_of_memory(tmp_path: Path) -> None:
    """What torch itself takes is measured with a few samples; both ways get as much and BUDGET more."""
    _, base, said = gpt(tmp_path, "after", FEW, None)
    limit = max(base) + BUDGET
    assert gpt(tmp_path, "before", FEW, limit)[0] == [0] * WORLD, "the old way must pass with few samples"
    ended, _, said = gpt(tmp_path, "before", MANY, limit)
    assert any(ended), f"the old way passed within {limit} bytes"
    assert any(word in "".join(said) for word in ("MemoryError", "bad_alloc", "allocate memory")), said
    ended, peaks, said = gpt(tmp_path, "after", MANY, limit)
    assert ended == [0] * WORLD, said
    print(f"limit {limit >> 20} MiB, of which torch {max(base) >> 20}; the new way's peak {max(peaks) >> 20} MiB")
    assert delivered(tmp_path, f"after{MANY}") == [number for number in range(MANY) if number % 7]
    assert gpt(tmp_path, "before", MANY, None)[0] == [0] * WORLD
    assert delivered(tmp_path, f"before{MANY}") == delivered(tmp_path, f"after{MANY}")


@pytest.mark.limit(1500)
def test_mixed_sources(ranks: Ranks, tmp_path: Path) -> None:
    """Other weights on the way, killed, on other ranks afterwards: the checkpoint and what comes after it are the whole epoch's draws."""
    data = Path(os.environ.get("RANKSTORE_DATA", "nowhere"), "gsm8k", "train.jsonl")
    options = ["--out", str(tmp_path / "store"), *(["--data", str(data)] if data.exists() else [])]
    script = (EXAMPLES / "mixed_sources.py").read_text()
    said = run(ranks, 3, "mixed_sources", *options, "--record", str(tmp_path / "whole"))
    assert "math: 47.2% of 1200 draws, 567 of" in said and "code: 52.8% of 1200 draws, 633 of" in said  # 288 at 0.7, 912 at 0.4
    done = ranks(3, script, *options, "--die-after", "21", "--record", str(tmp_path / "begun"), timeout=400, check=False,
                 warm=imports("mixed_sources"))
    assert -9 in [one.returncode for one in done] and 0 not in [one.returncode for one in done]
    saved = (tmp_path / "store" / "saved.json").read_text()
    run(ranks, 3, "mixed_sources", *options, "--resume", "--record", str(tmp_path / "same"))
    (tmp_path / "store" / "saved.json").write_text(saved)
    said = run(ranks, 2, "mixed_sources", *options, "--resume", "--record", str(tmp_path / "fewer"))
    assert "math: 40.1% of 816 draws, 327 of" in said and "code: 59.9% of 816 draws, 489 of" in said  # all after step 16 of 3 ranks
    whole, begun, same = (Record(tmp_path / name, 3) for name in ("whole", "begun", "same"))
    for rank in range(3):
        assert begun.batches(rank)[:16] + same.batches(rank) == whole.batches(rank)
    seen = [one for rank in range(3) for batch in begun.batches(rank)[:16] for one in batch]
    rest = [one for batches in (Record(tmp_path / "fewer", 2).batches(rank) for rank in range(2)) for batch in batches for one in batch]
    assert sorted(seen + rest) == sorted(one for rank in range(3) for batch in whole.batches(rank) for one in batch)


@pytest.mark.limit(900)
def test_the_three_scripts_beside_the_usual_way() -> None:
    script = Path(__file__).parents[2] / "tests/bench/training_scripts.py"
    done = subprocess.run([sys.executable, str(script), "--samples", "640", "--rounds", "1", "--steps", "0"], text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [row[:2] for row in rows] == [[name, way] for name in ("fine-tuning", "characters", "speech") for way in ("usual", "rankstore")]
    for usual, ours in zip(rows[::2], rows[1::2]):
        assert int(ours[2]) < int(usual[2]) and float(ours[5]) <= float(usual[5]) and int(ours[6].replace(",", "")) > 0
