# SPDX-License-Identifier: Apache-2.0
"""Two builds of one input on nodes that have shards of either: one dataset."""
from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from built import command, launched
from test_other_nodes import OPENED, WAYS, lines, program
from test_repair import STATE, TOTAL, again, appending

_ = lines  # a fixture

WORKERS = """
import torch
def main(group):
    with rankstore.open(OUT + "/r{rank}", group=group) as ds:
        for context in "fork", "spawn":
            loader = torch.utils.data.DataLoader(ds, batch_size=None, num_workers=2, multiprocessing_context=context)
            say(context, len(ds), sum(sample["i"] for sample in loader))
"""


def mix(out: Path, world: int, way: str, source: str, of_other: set[int]) -> None:
    """Build twice; `out` gets the other build's folders of some ranks."""
    other = out.parent / "other"
    launched(world, program(way), out, source)
    launched(world, program(way), other, source)
    for rank in of_other:
        shutil.rmtree(out / f"r{rank}")
        (other / f"r{rank}").rename(out / f"r{rank}")
    shutil.rmtree(other)


def ids(out: Path, rank: int) -> set[str]:
    return {shard["id"] for shard in json.loads((out / f"r{rank}" / "dataset.json").read_text())["shards"]}


def parts(out: Path, rank: int) -> list[str]:
    return sorted(path.name for path in (out / f"r{rank}").glob("*.rks"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("of_other", [{0}, {1}, {0, 2}])
def test_their_shards_are_copies(tmp_path: Path, lines: str, way: str, of_other: set[int]) -> None:
    out = tmp_path / "out"
    mix(out, 3, way, lines, of_other)
    assert not ids(out, 0) & ids(out, 1)
    total = TOTAL * (2 if way == "a map" else 1)
    assert launched(3, OPENED, out) == [f"300 {total}"] * 3
    assert launched(3, again(way), out, lines) == [f"True 0 False 300 {total}"] * 3


def test_a_saved_state_goes_on(tmp_path: Path, lines: str) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    launched(3, program("files"), out, lines)
    launched(3, program("files"), other, lines)
    first = launched(3, STATE, out)
    shutil.rmtree(out / "r1")
    (other / "r1").rename(out / "r1")
    rest = launched(3, STATE, out)
    assert sorted(int(i) for line in [*first, *rest] for i in line.split()) == list(range(300))


def test_worker_processes_read_them(tmp_path: Path, lines: str) -> None:
    out = tmp_path / "out"
    mix(out, 3, "files", lines, {1})
    assert sorted(launched(3, WORKERS, out)) == sorted([f"fork 300 {TOTAL}", f"spawn 300 {TOTAL}"] * 3)


@pytest.mark.parametrize("of_other", [{0}, {1}])
def test_an_append_and_prune_keep_them(tmp_path: Path, lines: str, of_other: set[int]) -> None:
    out = tmp_path / "out"
    mix(out, 3, "files", lines, of_other)
    before = {part for rank in range(3) for part in parts(out, rank)}
    more = tmp_path / "more.jsonl"
    more.write_text("".join(json.dumps({"i": i, "row": []}) + "\n" for i in range(300, 310)))
    total = TOTAL + sum(range(300, 310))
    assert launched(3, appending(str(more)), out) == [f"False 0 False 310 {total}"] * 3
    assert launched(3, OPENED, out) == [f"310 {total}"] * 3
    for rank in range(3):
        command("prune", out / f"r{rank}")
    assert before <= {part for rank in range(3) for part in parts(out, rank)}
    assert launched(3, OPENED, out) == [f"310 {total}"] * 3
    command("verify", *(out / f"r{rank}" for rank in range(3)))


@pytest.mark.parametrize("world", [2, 4])
def test_repaired_on_any_number_of_ranks(tmp_path: Path, lines: str, world: int) -> None:
    out = tmp_path / "out"
    mix(out, 3, "files", lines, {1})
    shutil.rmtree(out / "r2")
    lost = 2 if world == 2 else 1
    if world == 2:
        shutil.rmtree(out / "r0")
    assert launched(world, again("files"), out, lines) == [f"False {lost} True 300 {TOTAL}"] * world
    assert launched(world, OPENED, out) == [f"300 {TOTAL}"] * world


def test_verify_looks_into_both(tmp_path: Path, lines: str) -> None:
    out = tmp_path / "out"
    mix(out, 3, "files", lines, {1})
    command("verify", *(out / f"r{rank}" for rank in range(3)))
    damaged = out / "r1" / parts(out, 1)[0]
    data = damaged.read_bytes()
    damaged.write_bytes(bytes(byte ^ 255 if i % 64 == 0 and i > len(data) // 4 else byte for i, byte in enumerate(data)))
    assert damaged.name in command("verify", *(out / f"r{rank}" for rank in range(3)), code=1)


def test_nothing_of_a_replaced_build_stays(tmp_path: Path, lines: str) -> None:
    out = tmp_path / "out"
    launched(2, program("files"), out, lines)
    first, second = out / "r0", out / "r1"
    first.rename(tmp_path / "kept")
    second.rename(first)
    (tmp_path / "kept").rename(second)  # each rank has the shard that the other one writes
    launched(2, program("files").replace("group=group, ", "group=group, replace=True, "), out, lines)
    assert [len(parts(out, rank)) for rank in range(2)] == [1, 1]
    assert launched(2, OPENED, out) == [f"300 {TOTAL}"] * 2


def test_shards_cut_in_another_way_are_refused(tmp_path: Path, lines: str) -> None:
    out, other = tmp_path / "out", tmp_path / "other"
    launched(2, program("files"), out, lines)
    launched(3, program("files"), other, lines)
    shutil.rmtree(out / "r1")
    (other / "r1").rename(out / "r1")
    with pytest.raises(AssertionError, match="the same samples, cut into shards in two ways; remove one of them"):
        launched(2, OPENED, out)
