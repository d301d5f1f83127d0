# SPDX-License-Identifier: Apache-2.0
"""Lost shards of a finished dataset are built again by the call that built them, and old copies of them are welcome."""
from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from built import launched
from test_other_nodes import OPENED, WAYS, lines, program

_ = lines  # a fixture

REPORT = """
def double(sample):
    return {{**sample, "i": 2 * sample["i"]}}

def main(group):
    with build({source}, OUT + "/r{{rank}}", group=group, {more}) as ds:
        made = ds.report
        seen = sum(sample["i"] for sample in ds)
        os.write(1, f"{{made.kept}} {{made.shards_rebuilt}} {{made.units_rebuilt > 0}} {{len(ds)}} {{seen}}\\n".encode())
"""
STATE = """
def main(group):
    with rankstore.open(OUT + "/r{rank}", group=group) as ds:
        loader = ds.loader(ds.plan(batch_size=4, seed=3))
        if os.path.exists(OUT + "/state"):
            loader.load_state_dict(json.load(open(OUT + "/state")))
            taken = [int(i) for batch in loader for i in batch.ids]
        else:
            batches = iter(loader)
            taken = [int(i) for _ in range(5) for i in next(batches).ids]
            state = loader.state_dict()
            group.barrier()
            if group.rank == 0:
                json.dump(state, open(OUT + "/state", "w"))
        os.write(1, (" ".join(map(str, taken)) + "\\n").encode())
"""
TOTAL = 300 * 299 // 2


def again(way: str) -> str:
    return REPORT.format(source=WAYS[way], more={"files": "", "a map": "map=double"}.get(way, "unit_samples=20"))


def appending(source: str) -> str:
    return REPORT.format(source=repr(source), more="append=True")


def described(out: Path, rank: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / f"r{rank}" / "dataset.json").read_text())
    return found


@pytest.mark.parametrize("way", WAYS)
def test_the_same_call_builds_a_lost_shard_again(tmp_path: Path, lines: str, way: str) -> None:
    out = tmp_path / "out"
    launched(3, program(way), out, lines)
    before = described(out)
    shutil.rmtree(out / "r2")
    total = TOTAL * (2 if way == "a map" else 1)
    assert launched(3, again(way), out, lines) == [f"False 1 True 300 {total}"] * 3
    after = described(out)
    assert (after["dataset"], after["revision"], after["units"]) == (before["dataset"], 1, before["units"])
    assert [shard["id"] for shard in after["shards"]] == [shard["id"] for shard in before["shards"]]
    assert len([one for one in (out / "r2").iterdir() if one.suffix == ".rks"]) == 1  # the empty disk is filled
    assert launched(3, again(way), out, lines) == [f"True 0 False 300 {total}"] * 3


@pytest.mark.parametrize("way", ["files", "a list"])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_on_any_number_of_ranks(tmp_path: Path, lines: str, way: str, world: int) -> None:
    out = tmp_path / "out"
    launched(3, program(way), out, lines)
    before = described(out)
    for rank in (1, 2):
        shutil.rmtree(out / f"r{rank}")
    assert launched(world, again(way), out, lines) == [f"False 2 True 300 {TOTAL}"] * world
    assert described(out)["dataset"] == before["dataset"]
    assert launched(world, OPENED, out, lines) == [f"300 {TOTAL}"] * world


def test_a_saved_state_goes_on(tmp_path: Path, lines: str) -> None:
    out = tmp_path / "out"
    launched(3, program("files"), out, lines)
    first = launched(3, STATE, out, lines)
    shutil.rmtree(out / "r1")
    launched(3, again("files"), out, lines)
    rest = launched(3, STATE, out, lines)
    assert sorted(int(i) for line in [*first, *rest] for i in line.split()) == list(range(300))


def test_an_old_node_comes_back(tmp_path: Path, lines: str) -> None:
    """Its dataset.json is of an older revision, and its shard is a copy of the rebuilt one."""
    out = tmp_path / "out"
    launched(3, program("files"), out, lines)
    old = tmp_path / "old"
    (out / "r2").rename(old)
    launched(3, again("files"), out, lines)
    (out / "r2").rename(tmp_path / "rebuilt")
    old.rename(out / "r2")
    assert launched(3, OPENED, out, lines) == [f"300 {TOTAL}"] * 3  # the old one alone
    (tmp_path / "rebuilt").rename(out / "r3")
    assert launched(4, OPENED, out, lines) == [f"300 {TOTAL}"] * 4  # and both
    assert launched(3, again("files"), out, lines) == [f"True 0 False 300 {TOTAL}"] * 3
    assert "revision" not in described(out, 2)


def test_two_jobs_repair_the_same_dataset(tmp_path: Path, lines: str) -> None:
    """Both are revision 1, with other files of the same shards."""
    out, other = tmp_path / "out", tmp_path / "other"
    launched(3, program("files"), out, lines)
    shutil.rmtree(out / "r2")
    shutil.copytree(out, other)
    launched(3, again("files"), out, lines)
    launched(3, again("files"), other, lines)
    shutil.rmtree(out / "r1")
    (other / "r1").rename(out / "r1")
    shutil.rmtree(out / "r2")
    (other / "r2").rename(out / "r2")
    assert launched(3, OPENED, out, lines) == [f"300 {TOTAL}"] * 3


def test_an_append_keeps_what_is_a_copy(tmp_path: Path, lines: str) -> None:
    out = tmp_path / "out"
    launched(3, program("files"), out, lines)
    (out / "r2").rename(tmp_path / "old")
    launched(3, again("files"), out, lines)
    shutil.rmtree(out / "r2")
    (tmp_path / "old").rename(out / "r2")
    more = tmp_path / "more.jsonl"
    more.write_text("".join(json.dumps({"i": i, "row": []}) + "\n" for i in range(300, 310)))
    appended = appending(str(more))
    total = TOTAL + sum(range(300, 310))
    assert launched(3, appended, out, lines) == [f"False 0 False 310 {total}"] * 3
    assert launched(3, OPENED, out, lines) == [f"310 {total}"] * 3


@pytest.mark.parametrize("way", WAYS)
def test_a_source_that_has_changed_is_refused(tmp_path: Path, lines: str, way: str) -> None:
    """The digests of the units tell, also where names and sizes are the same."""
    out = tmp_path / "out"
    launched(3, program(way), out, lines)
    shutil.rmtree(out / "r2")
    left = {path.relative_to(out) for path in out.rglob("*") if path.is_file()}
    source = again(way)
    if "sys.argv" in WAYS[way]:
        for path in (tmp_path / "in").iterdir():
            path.write_text(path.read_text().replace('"i": 1', '"i": 8').replace('"i": 2', '"i": 9'))
    else:
        source = source.replace("'i': i,", "'i': i + 1,")
    with pytest.raises(AssertionError) as ended:
        launched(3, source, out, lines)
    said = "finished dataset is here" if way == "a list" else "has other samples"
    assert said in str(ended.value)
    assert {path.relative_to(out) for path in out.rglob("*") if path.is_file()} >= left
    assert "revision" not in described(out)
    shutil.rmtree(out / "r2", ignore_errors=True)
    assert "1 of 3 shards are on no rank's disk" in failed_to_open(out, lines)


def failed_to_open(out: Path, lines: str) -> str:
    with pytest.raises(AssertionError) as ended:
        launched(3, OPENED, out, lines)
    return str(ended.value)


def test_the_error_of_open_says_what_to_do(tmp_path: Path, lines: str) -> None:
    out = tmp_path / "out"
    launched(3, program("files"), out, lines)
    shutil.rmtree(out / "r0")
    assert "build the lost shards again (the same build, or rankstore repair)" in failed_to_open(out, lines)


def test_an_append_is_repaired_by_its_own_call(tmp_path: Path, lines: str) -> None:
    out = tmp_path / "out"
    launched(2, program("files"), out, lines)
    more = tmp_path / "more"
    more.mkdir()
    for k in range(4):
        (more / f"more{k}.jsonl").write_text("".join(json.dumps({"i": i, "row": []}) + "\n" for i in range(300 + 10 * k, 310 + 10 * k)))
    appended = appending(str(more / "*.jsonl"))
    total = TOTAL + sum(range(300, 340))
    first = set(out.glob("r*/part-*"))
    launched(2, appended, out, lines)
    grown = described(out, 1)
    lost = set(out.glob("r*/part-*")) - first
    for path in lost:
        path.unlink()
    assert launched(2, appended, out, lines) == [f"False {len(lost) // 3} True 340 {total}"] * 2
    assert (described(out)["dataset"], described(out)["generation"], described(out)["revision"]) == (grown["dataset"], 2, 1)
    assert "revision" not in json.loads((out / "r0" / "dataset.1.json").read_text())




def test_a_stream_is_repaired_with_another_size_of_shards(tmp_path: Path, lines: str) -> None:
    out = tmp_path / "out"
    launched(1, program("an iterable"), out, lines)
    before = described(out)
    for path in (out / "r0").glob("part-*"):
        path.unlink()
    smaller = again("an iterable").replace("unit_samples=20", "unit_samples=20, max_shard='1KiB'")
    assert launched(1, smaller, out, lines) == [f"False 1 True 300 {TOTAL}"]
    assert [shard["id"] for shard in described(out)["shards"]] == [shard["id"] for shard in before["shards"]]


@pytest.mark.parametrize("way", WAYS)
def test_shards_in_other_folders_are_not_lost(tmp_path: Path, lines: str, way: str) -> None:
    out = tmp_path / "out"
    launched(3, program(way), out, lines)
    moved = tmp_path / "moved-1"
    moved.mkdir()
    for path in (out / "r1").glob("part-*"):
        path.rename(moved / path.name)
    there = again(way).replace("group=group, ", "group=group, shards=[OUT + '/../moved-*'], ")
    total = TOTAL * (2 if way == "a map" else 1)
    assert launched(3, there, out, lines) == [f"True 0 False 300 {total}"] * 3
    assert not list((out / "r1").glob("part-*"))
    for path in (out / "r2").glob("part-*"):  # of two that are away, one is lost
        path.unlink()
    assert launched(3, there, out, lines) == [f"False 1 True 300 {total}"] * 3
    assert launched(3, again(way), out, lines) == [f"False 1 True 300 {total}"] * 3


def test_an_append_reads_shards_in_other_folders(tmp_path: Path, lines: str) -> None:
    out = tmp_path / "out"
    options = "key='key', unit_samples=20"
    rows = "[{'i': i, 'key': f'k{i}'} for i in range(%d, %d)]"
    made = REPORT.format(source=rows % (0, 300), more=options)
    launched(2, made, out)
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in (out / "r1").glob("part-*"):
        path.rename(moved / path.name)
    added = REPORT.format(source=rows % (300, 310), more="append=True, shards=[OUT + '/../moved']")
    assert launched(2, added, out) == [f"False 0 False 310 {sum(range(310))}"] * 2
    twice = REPORT.format(source=rows % (5, 6), more="append=True, shards=[OUT + '/../moved']")
    with pytest.raises(AssertionError, match="'k5' appears twice"):
        launched(2, twice, out)
