# SPDX-License-Identifier: Apache-2.0
"""Builds that add to a dataset: its generations, on one rank and on several."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
from built import build, dataset_id, keys, launched, read

import rankstore


def lines(path: Path, first: int, last: int) -> str:
    with open(path, "w") as file:
        file.writelines(json.dumps({"id": f"k{i}", "t": [i] * (i % 5)}) + "\n" for i in range(first, last))
    return str(path)


def numbers(first: int, last: int) -> list[dict[str, Any]]:
    return [{"i": i, "row": numpy.full(i % 7, i, numpy.float32)} for i in range(first, last)]


def test_generations_of_files(tmp_path: Path) -> None:
    a, b, out = lines(tmp_path / "a.jsonl", 0, 30), lines(tmp_path / "b.jsonl", 30, 50), tmp_path / "out"
    options: dict[str, Any] = {"key": "id", "length": "t", "schema": "id:str,t:int32[*]"}
    build(a, out, **options)
    assert build(b, out, append=True).samples == 50  # schema, key and length are the dataset's
    build([a, b], tmp_path / "both", **options)
    assert dataset_id(out) == dataset_id(tmp_path / "both")
    with rankstore.open(out) as dataset:
        assert [(one["generation"], one["samples"]) for one in dataset.generations] == [(1, 30), (2, 50)]
        assert [one["bytes"] for one in dataset.generations] == [build_bytes(tmp_path, a, options), dataset.nbytes]
        assert dataset.generations[1]["id"] == dataset.id and dataset.get("k40")["t"].dtype == numpy.int32
    with rankstore.open(f"{out}@1") as first:
        assert len(first) == 30 and "k29" in first.keys and "k30" not in first.keys
        assert [one["generation"] for one in first.generations] == [1, 2]
    with pytest.raises(rankstore.NotFoundError, match="generation 3"):
        rankstore.open(f"{out}@3")


def test_many_generations_share_lists(tmp_path: Path) -> None:
    out = tmp_path / "out"
    options: dict[str, Any] = {"key": "id", "length": "t", "schema": "id:str,t:int32[*]"}
    for i in range(9):
        rankstore.build(lines(tmp_path / f"{i}.jsonl", 4 * i, 4 * i + 4), out, progress=False, append=i > 0, **options).close()
    assert list(out.glob("list-*.units"))
    again = rankstore.build(str(tmp_path / "8.jsonl"), out, progress=False, reuse=True, **options)
    assert again.report is not None and again.report.kept and (again.report.samples, again.report.units) == (36, 9)
    assert again.report.bytes == again.nbytes
    again.close()
    for i in (1, 2, 5, 8):
        with rankstore.open(f"{out}@{i}") as older:
            assert len(older) == 4 * i and f"k{4 * i - 1}" in older.keys and f"k{4 * i}" not in older.keys


def test_a_column_that_the_dataset_lacks_is_refused(tmp_path: Path) -> None:
    more, out = tmp_path / "more.jsonl", tmp_path / "out"
    more.write_text('{"id": "x", "t": [1]}\n{"id": "y", "t": [2], "new": 5}\n')
    build(lines(tmp_path / "a.jsonl", 0, 3), out, key="id", schema="id:str,t:int32[*]")
    rows = [{"id": "z", "t": [3], "new": 5}]
    cases: list[tuple[Any, dict[str, Any]]] = [(str(more), {}), (str(more), {"map": dict}), (rows, {}),
                                               (str(more), {"key": lambda sample: sample["id"]})]
    for source, options in cases:
        with pytest.raises(rankstore.DataError, match='column "new" is not in the schema'):
            rankstore.build(source, out, append=True, **options)
    assert build(lines(tmp_path / "b.jsonl", 3, 6), out, append=True, key=lambda sample: sample["id"]).samples == 6
    assert build(more, out, append=True, schema="id:str,t:int32[*]").samples == 8


def build_bytes(tmp_path: Path, source: str, options: dict[str, Any]) -> int:
    return build(source, tmp_path / "alone", **options).bytes


def test_the_same_append_again_opens_what_it_made(tmp_path: Path) -> None:
    a, b, out = lines(tmp_path / "a.jsonl", 0, 30), lines(tmp_path / "b.jsonl", 30, 50), tmp_path / "out"
    assert build(a, out, key="id", append=True).samples == 30  # there was none
    for source, total in ((b, 50), (lines(tmp_path / "c.jsonl", 50, 60), 60)):
        for options in ({}, {}):
            report = build(source, out, append=True, **options)
            assert report.samples == total
        assert report.units_resumed == report.units
    with rankstore.open(out) as dataset:
        assert [one["samples"] for one in dataset.generations] == [30, 50, 60]


def test_mapped_files_behind_others(tmp_path: Path) -> None:
    """Keys of mapped files are stored in a dataset of their own, and derived where the dataset derives them."""
    a, b, c = (lines(tmp_path / f"{name}.jsonl", first, first + 10) for name, first in (("a", 0), ("b", 10), ("c", 20)))
    build(a, tmp_path / "derived")
    build(b, tmp_path / "derived", append=True, map=dict)
    build(c, tmp_path / "derived", append=True)
    assert keys(tmp_path / "derived")[::10] == [b"a.jsonl:0", b"b.jsonl#0:0", b"c.jsonl:0"]
    build(a, tmp_path / "stored", map=dict)
    build(b, tmp_path / "stored", append=True, map=dict)
    assert keys(tmp_path / "stored")[::10] == [b"a.jsonl:0", b"b.jsonl:0"]
    with pytest.raises(rankstore.ArgumentError, match="stored"):
        rankstore.build(c, tmp_path / "stored", append=True)
    for out, count in (("derived", 30), ("stored", 20)):
        assert [sample["id"] for sample in read(tmp_path / out)] == [f"k{i}" for i in range(count)]


def test_samples_from_memory(tmp_path: Path) -> None:
    """Derived keys are the generation's own, lists of one length are told apart, iterables are appended each time."""
    out = tmp_path / "out"
    build(numbers(0, 100), out)
    for _ in range(2):
        assert build(numbers(100, 200), out, append=True).samples == 200
    assert build(numbers(200, 300), out, append=True, map=lambda sample: {**sample, "row": sample["row"] + 1}).samples == 300
    assert build(iter(numbers(300, 310)), out, append=True).samples == 310
    assert build(iter(numbers(310, 320)), out, append=True).samples == 320
    assert [sample["i"] for sample in read(out)] == list(range(320))
    found = keys(out)
    assert len(set(found)) == 320 and found[0] == b"dataset@0:0" and found[100] == b"2/dataset@0:0"
    assert found[300] == b"4/part 0:0" and found[310] == b"5/part 0:0"
    assert [sample["i"] for sample in read(f"{out}@2")] == list(range(200))


def in_memory(changed: int | None, value: int = 999) -> list[tuple[str, Any]]:
    """Sources of one length; of each one value is another where `changed` says."""
    count = [value if i == changed else i for i in range(100)]
    import pyarrow
    import torch
    return [("dicts", [{"i": i} for i in count]),
            ("texts", tuple({"i": f"{'x' * 5000}{i}{'x' * 5000}"} for i in count)),
            ("lists", [{"i": [0] * 300 + [i]} for i in count]),
            ("arrays", [{"i": numpy.array([0] * 300 + [i])} for i in count]),
            ("large arrays", [{"i": numpy.array([[0] * 600, [i] * 600])} for i in count]),
            ("tensors", [{"i": torch.tensor([[0], [i]])} for i in count]),
            ("scalars", [{"i": numpy.int32(i)} for i in count]),
            ("sets", [{"i": {f"a{i}", "b", "c"}} for i in count]),
            ("numbers", pyarrow.table({"i": count})),
            ("nested", pyarrow.table({"i": [{"a": [i], "b": f"{i}"} for i in count]}))]


@pytest.mark.parametrize("kind", range(10))
def test_one_changed_value_makes_another_source(kind: int, tmp_path: Path) -> None:
    """Also where it is none of the samples that ranks compare with each other."""
    name, first = in_memory(None)[kind]
    options: dict[str, Any] = {"map": lambda sample: {"i": len(sample["i"])}} if name == "sets" else {}
    build(first, tmp_path / "out", **options)
    assert build(in_memory(None)[kind][1], tmp_path / "out", **options).units_resumed > 0
    with pytest.raises(rankstore.ArgumentError, match="built from another source|the contents of the source differ"):
        build(in_memory(50)[kind][1], tmp_path / "out", **options)
    for _ in range(2):
        assert build(in_memory(51)[kind][1], tmp_path / "out", append=True, **options).samples == 200
    assert build(in_memory(51, 777)[kind][1], tmp_path / "out", append=True, **options).samples == 300


def test_equal_sources_are_equal_in_every_process(tmp_path: Path) -> None:
    """Whatever the hash seed, the number of ranks, and which objects are one."""
    main = """
def main(group):
    same = "".join(["a", "b"])
    source = [{"i": i, "s": same if i % 2 else "".join(["a", "b"]), "set": {"x", "y", str(i)}} for i in range(3000)]
    report = build(source, OUT, map=lambda sample: {"i": sample["i"]}, progress=False).report
    if group.rank == 0:
        say(report.samples, report.units_resumed > 0)
"""
    assert [launched(world, main, tmp_path / "out") for world in (1, 2, 1)] == [["3000 False"], ["3000 True"], ["3000 True"]]


def test_objects_that_cannot_be_compared_are_appended_again(tmp_path: Path) -> None:
    class Numbers:
        def __init__(self, first: int) -> None:
            self.first = first

        def __len__(self) -> int:
            return 20

        def __getitem__(self, i: int) -> dict[str, Any]:
            return {"i": self.first + i}

    out = tmp_path / "out"
    for k in range(3):
        build(Numbers(20 * k), out, append=True)
    assert [sample["i"] for sample in read(out)] == list(range(60))


def test_what_does_not_go_together(tmp_path: Path) -> None:
    a, out = lines(tmp_path / "a.jsonl", 0, 30), tmp_path / "out"
    for option in ("replace", "reuse"):
        with pytest.raises(rankstore.ArgumentError, match=f"append and {option} cannot be used together"):
            rankstore.build(a, out, append=True, **{option: True})
    build(a, out, key="id")
    with pytest.raises(rankstore.ArgumentError, match="append=True"):
        rankstore.build(lines(tmp_path / "b.jsonl", 30, 40), out, key="id")
    with pytest.raises(rankstore.ArgumentError, match="schemas differ"):
        rankstore.build([{"x": 1}], out, append=True, schema="x:int64", key="x")
    with pytest.raises(rankstore.DataError, match="key 'k7' appears twice"):
        rankstore.build(lines(tmp_path / "c.jsonl", 7, 8), out, append=True)
    assert [len(one) for one in (read(out), read(f"{out}@1"))] == [30, 30]


def test_an_interrupted_append_goes_on(tmp_path: Path) -> None:
    out = tmp_path / "out"
    build(numbers(0, 100), out)

    fault = tmp_path / "fault"
    fault.touch()

    def stops(sample: dict[str, Any]) -> bool:
        if sample["i"] == 390 and Path(fault).exists():
            raise KeyError("stop")
        return True

    rows = numbers(100, 400)
    with pytest.raises(rankstore.CallbackError):
        rankstore.build(rows, out, append=True, filter=stops, unit_samples=50)
    assert len(read(out)) == 100
    fault.unlink()
    report = build(rows, out, append=True, filter=stops, unit_samples=50)
    assert report.samples == 400 and report.units_resumed == 5
    assert [sample["i"] for sample in read(out)] == list(range(400))


@pytest.mark.parametrize("own", ["", "/{rank}"])
def test_generations_on_several_ranks(tmp_path: Path, own: str) -> None:
    """Appended by three ranks, opened by two; each generation by all of them."""
    launched(3, f"""
import torch  # once, not by each rank
def main(group):
    for k in range(3):
        rows = [{{"i": i}} for i in range(k * 100, k * 100 + 40)]
        with build(rows, OUT + {own!r}, group=group, append=True, unit_samples=7) as ds:
            assert len(ds) == 40 * (k + 1), len(ds)
            assert [one["samples"] for one in ds.generations] == [40 * (j + 1) for j in range(k + 1)]
    for k in (1, 2, 3):
        with rankstore.open(OUT + {own!r} + f"@{{k}}", group=group) as ds:
            wanted = [j * 100 + i for j in range(k) for i in range(40)]
            assert [ds[i]["i"] for i in range(len(ds))] == wanted
            plan = ds.plan("random", batch_size=8)
            mine = [int(i) for batch in ds.loader(plan) for i in batch["i"]]
            both = sorted(sum((json.loads(one) for one in group.allgather("all", json.dumps(mine).encode())), []))
            assert both == wanted
    try:
        rankstore.open(OUT + {own!r} + "@4", group=group)
    except rankstore.NotFoundError as error:
        say(group.rank, "generation 4" in str(error))
""", tmp_path / "out")


def test_workers_append(tmp_path: Path) -> None:
    out = tmp_path / "out"
    build(numbers(0, 100), out, workers=2)
    assert build(numbers(100, 200), out, workers=2, append=True).samples == 200
    assert [sample["i"] for sample in read(out)] == list(range(200))


def test_an_append_repeats_a_function_for_lengths(tmp_path: Path) -> None:
    out = tmp_path / "out"
    build(numbers(0, 10), out, length=lambda sample: 7)
    with pytest.raises(rankstore.ArgumentError, match="append: the dataset's lengths came from a function; give length= again"):
        rankstore.build(numbers(10, 20), out, append=True)
    assert build(numbers(10, 20), out, append=True, length=lambda sample: 8).samples == 20
    with rankstore.open(out) as dataset:
        assert dataset.lengths.tolist() == [7] * 10 + [8] * 10


def test_an_append_infers_no_schema(tmp_path: Path) -> None:
    with pytest.raises(rankstore.ArgumentError, match='append: new samples take the dataset.s schema; leave schema="auto:all" out'):
        rankstore.build(numbers(0, 10), tmp_path / "out", append=True, schema="auto:all")


def test_a_first_append_records_the_length_as_the_command_line_does(tmp_path: Path) -> None:
    samples, source = [{"x": numpy.full(3, i, numpy.int32)} for i in range(10)], tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps({"x": [i] * 3}) + "\n" for i in range(10)))
    build(samples, tmp_path / "plain", schema="x:int32[3]")
    build(samples, tmp_path / "appended", schema="x:int32[3]", append=True)
    build(str(source), tmp_path / "files", schema="x:int32[3]", append=True)
    made = [json.loads((tmp_path / name / "dataset.json").read_text())["options"] for name in ("plain", "appended", "files")]
    assert [(one["length"], one["length_unit"]) for one in made] == [("x", 1)] * 3
    build([{"x": numpy.full(3, 1, numpy.int32)}], tmp_path / "appended", append=True)
    with rankstore.open(tmp_path / "appended") as dataset:
        assert dataset.lengths.tolist() == [3] * 11
