# SPDX-License-Identifier: Apache-2.0
"""A second job, on other nodes: each rank has a directory of its own, and some are empty."""
from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path

import pytest
from built import launched

WAYS = {
    "files": "sys.argv[2]",
    "a map": "sys.argv[2]",
    "a list": "[{'i': i, 'row': [i] * (i % 5)} for i in range(300)]",
    "an iterable": "({'i': i, 'row': [i] * (i % 5)} for i in range(group.rank, 300, group.world))",
}
PROGRAM = """
def double(sample):
    return {{**sample, "i": 2 * sample["i"]}}

def main(group):
    with build({source}, OUT + "/r{{rank}}", group=group, {more}) as ds:
        os.write(1, f"{{ds.report.kept}} {{ds.report.samples}} {{len(ds)}} {{sum(sample['i'] for sample in ds)}}\\n".encode())
"""


OPENED = """
def main(group):
    with rankstore.open(OUT + "/r{rank}", group=group) as ds:
        os.write(1, f"{len(ds)} {sum(sample['i'] for sample in ds)}\\n".encode())
"""


def program(way: str) -> str:
    return PROGRAM.format(source=WAYS[way], more={"files": "", "a map": "map=double"}.get(way, "unit_samples=20"))


def failed(world: int, way: str, out: Path, source: str) -> str:
    """Run the program, which fails; return what it printed."""
    with pytest.raises(AssertionError) as ended:
        launched(world, program(way), out, source)
    return str(ended.value)


@pytest.fixture
def lines(tmp_path: Path) -> str:
    folder = tmp_path / "in"
    folder.mkdir()
    for k in range(6):
        (folder / f"{k}.jsonl").write_text("".join(json.dumps({"i": i, "row": [i] * (i % 5)}) + "\n" for i in range(50 * k, 50 * k + 50)))
    return str(folder / "*.jsonl")


@pytest.mark.parametrize("way", WAYS)
def test_an_empty_directory_has_no_say(tmp_path: Path, lines: str, way: str) -> None:
    out = tmp_path / "out"
    launched(3, program(way), out, lines)
    first = json.loads((out / "r0" / "dataset.json").read_text())["dataset"]
    empty = out / "r0"
    for path in empty.iterdir():  # the shards go to another rank's directory: node 0 is new
        if path.name.startswith("part-"):
            path.rename(out / "r2" / path.name)
        else:
            path.unlink()
    total = 300 * 299 // 2 * (2 if way == "a map" else 1)
    assert launched(3, program(way), out, lines) == [f"True 300 300 {total}"] * 3
    assert json.loads((out / "r1" / "dataset.json").read_text())["dataset"] == first
    assert not (empty / "dataset.json").exists()


def test_more_nodes_open_what_fewer_built(tmp_path: Path, lines: str) -> None:
    out = tmp_path / "out"
    launched(2, program("files"), out, lines)
    assert launched(4, program("files"), out, lines) == [f"True 300 300 {300 * 299 // 2}"] * 4


def test_another_source_is_still_refused(tmp_path: Path, lines: str) -> None:
    out = tmp_path / "out"
    launched(2, program("files"), out, lines)
    (tmp_path / "in" / "7.jsonl").write_text('{"i": 1, "row": [1]}\n')
    assert "it was built from another source" in failed(3, "files", out, lines)


@pytest.mark.parametrize("way", WAYS)
def test_a_lost_shard_is_named_with_its_host(tmp_path: Path, lines: str, way: str) -> None:
    out = tmp_path / "out"
    launched(3, program(way), out, lines)
    shutil.rmtree(out / "r0")
    with pytest.raises(AssertionError) as ended:
        launched(3, OPENED, out)
    text = str(ended.value)
    assert "shards are on no rank's disk" in text
    assert f"built by {socket.gethostname()}:{out}/r0" in text


@pytest.mark.parametrize("way", ["files", "a map", "a list"])
def test_an_interrupted_commit_is_ended(tmp_path: Path, lines: str, way: str) -> None:
    out = tmp_path / "out"
    launched(2, program(way), out, lines)
    first = json.loads((out / "r0" / "dataset.json").read_text())["dataset"]
    (out / "r1" / "dataset.json").unlink()
    (out / "r1" / "python.json").unlink()
    launched(2, program(way), out, lines)
    assert json.loads((out / "r1" / "dataset.json").read_text())["dataset"] == first


@pytest.mark.parametrize("way", WAYS)
def test_shards_have_a_size(tmp_path: Path, lines: str, way: str) -> None:
    """Another size makes the same dataset."""
    out, small = tmp_path / "out", tmp_path / "small"
    sized = program(way).replace("group=group, ", "group=group, max_shard='1KiB', ")
    assert launched(2, program(way), out, lines) == launched(2, sized, small, lines)
    first, second = (json.loads((one / "r0" / "dataset.json").read_text()) for one in (out, small))
    assert first["dataset"] == second["dataset"]
    assert (len(first["shards"]), len(second["shards"]) > 3) == (2, True)
    largest = max(unit["bytes"] for unit in second["units"])
    assert all(shard["bytes"] < 1024 + largest for shard in second["shards"])
    shutil.rmtree(small / "r1")
    assert "repaired" not in str(launched(2, sized, small, lines))  # several lost shards, each built again
    assert launched(2, OPENED, small, lines) == launched(2, OPENED, out, lines)
