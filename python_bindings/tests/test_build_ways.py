# SPDX-License-Identifier: Apache-2.0
"""Files built by the core alone, and through Python functions that see each sample: the same samples, under the same keys."""
from __future__ import annotations

import json
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from built import build, command, keys, launched, read
from test_build_sources import mds, megatron, write_tar

import rankstore


def jsonl(folder: Path) -> Path:
    with open(folder / "a.jsonl", "w") as file:
        for i in range(400):
            file.write(json.dumps({"i": i, "t": [i] * (i % 7), "s": f"é {i}", "o": {"n": [i, None]}}) + "\n" + "\n" * (i % 3 == 0))
    return folder / "a.jsonl"


def text(folder: Path) -> Path:
    (folder / "a.txt").write_text("".join(f"line {i}\n" for i in range(900)))
    return folder / "a.txt"


def packed(folder: Path) -> Path:
    import gzip
    (folder / "a.txt.gz").write_bytes(gzip.compress(text(folder).read_bytes()))
    return folder / "a.txt.gz"


def csv(folder: Path) -> Path:
    (folder / "a.csv").write_text("i,f,s\n" + "".join(f'{i},{i / 4},"a ""{i}"""\n' for i in range(500)))
    return folder / "a.csv"


def npy(folder: Path) -> Path:
    numpy.save(folder / "a.npy", numpy.arange(6000, dtype=numpy.float32).reshape(500, 4, 3))
    return folder / "a.npy"


def folder(where: Path) -> Path:
    (where / "in" / "deep").mkdir(parents=True)
    for i in range(20):
        (where / "in" / ("deep" if i % 2 else "") / f"{i}.bin").write_bytes(bytes([0, i]) * i)
    return where / "in"


def tar(where: Path) -> Path:
    members = [(f"d/{i}.{ending}", data) for i in range(60)
               for ending, data in (("json", b'{"i":%d}' % i), ("txt", b"t" * i), ("cls", b"%d" % i), ("jpg", bytes([i]) * 100))]
    return write_tar(where / "a.tar", members)


def zipped(where: Path) -> Path:
    with tarfile.open(tar(where)) as there, zipfile.ZipFile(where / "a.zip", "w", zipfile.ZIP_DEFLATED) as made:
        for member in there:
            file = there.extractfile(member)
            assert file is not None
            made.writestr(member.name, file.read())
    return where / "a.zip"


def tokens(where: Path) -> Path:
    return megatron(where / "m", [numpy.arange(i % 50, dtype=numpy.uint16) for i in range(500)])


def shards(where: Path) -> Path:
    made = [{"b": bytes([i]), "s": f"é{i}".encode(), "j": json.dumps({"i": i}).encode(),
             "a": bytes([1 << 2, i]) + numpy.arange(i, dtype="<u2").tobytes()} for i in range(100)]
    return mds(where / "mds", [made[:50], made[50:]], {"b": ("bytes", None), "s": ("str", None), "j": ("json", None),
                                                      "a": ("ndarray:uint16", None)}, True)


MADE: list[Callable[[Path], Path]] = [jsonl, text, packed, csv, npy, folder, tar, zipped, tokens, shards]


@pytest.mark.parametrize("made", MADE, ids=[one.__name__ for one in MADE])
def test_a_map_changes_neither_keys_nor_columns(tmp_path: Path, made: Callable[[Path], Path]) -> None:
    source = made(tmp_path)
    build(source, tmp_path / "core", unit_size=4096)
    schema = "data:float32[4,3]" if made is npy else None  # Python's inference lets the first dimension vary
    build(source, tmp_path / "map", unit_size=4096, map=lambda sample: sample, schema=schema)
    launched(2, """
def main(group):
    build(sys.argv[2], OUT, group=group, unit_size=5000, map=dict, schema=sys.argv[3] or None).close()
""", tmp_path / "ranks", str(source), schema or "")
    command("build", source, "-o", tmp_path / "cli", "--unit-size", "4096")
    for other in ("map", "ranks", "cli"):
        assert "equal" in command("diff", tmp_path / "core", tmp_path / other), other


@pytest.mark.parametrize("made", [jsonl, tar, tokens], ids=["jsonl", "tar", "tokens"])
def test_what_is_dropped_leaves_the_keys_of_the_others(tmp_path: Path, made: Callable[[Path], Path]) -> None:
    def keep(sample: dict[str, Any]) -> bool:
        return sum(len(value) for value in sample.values() if hasattr(value, "__len__")) % 3 != 1

    source = made(tmp_path)
    one = build(source, tmp_path / "core", unit_size=4096, filter=keep)
    other = build(source, tmp_path / "map", unit_size=4096, map=lambda sample: sample if keep(sample) else None)
    assert one.filtered == other.filtered > 0
    assert "equal" in command("diff", tmp_path / "core", tmp_path / "map")


def test_a_function_for_lengths_is_asked_by_the_core(tmp_path: Path) -> None:
    source = jsonl(tmp_path)
    build(source, tmp_path / "core", length="t", unit_size=4096)
    build(source, tmp_path / "function", length=lambda sample: len(sample["t"]), unit_size=4096)
    assert "equal" in command("diff", tmp_path / "core", tmp_path / "function")
    with rankstore.open(tmp_path / "core") as one, rankstore.open(tmp_path / "function") as other:
        assert one.lengths.tolist() == other.lengths.tolist()
    for answer, says in ((lambda sample: -1, "length returned -1"), (lambda sample: "x", "length returned x")):
        with pytest.raises(rankstore.DataError, match=f"a.jsonl:1: {says}"):
            build(source, tmp_path / "bad", length=answer)
    with pytest.raises(rankstore.CallbackError) as raised:
        build(source, tmp_path / "raised", length=lambda sample: 0 // (sample["i"] - 7))
    assert raised.value.sample.endswith("a.jsonl:11") and "ZeroDivisionError" in str(raised.value)


@pytest.mark.parametrize("line", ['{"a": }', '{"a": [}', '{"a": tru}', '{"a": 1} 2', '{"a"'])
def test_a_malformed_line_is_told_as_json_tells_it(tmp_path: Path, line: str) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n' + line + "\n")
    with pytest.raises(json.JSONDecodeError) as of_json:
        json.loads(line)
    with pytest.raises(rankstore.CallbackError) as raised:
        build(tmp_path / "a.jsonl", tmp_path / "out", map=lambda sample: sample)
    assert f"JSONDecodeError: {of_json.value} (a.jsonl:2)" in str(raised.value)


def test_several_of_one_row(tmp_path: Path) -> None:
    """A map that gives lists: the first keeps the row's key, the others are numbered after it."""
    source = text(tmp_path)
    build(source, tmp_path / "out", unit_size=4096, map=lambda sample: [sample] * (int(sample["text"][5:]) % 4))
    found = keys(tmp_path / "out")
    assert found[:6] == [b"a.txt:1", b"a.txt:2", b"a.txt:2:1", b"a.txt:3", b"a.txt:3:1", b"a.txt:3:2"]
    assert len(found) == len(set(found)) == sum(i % 4 for i in range(900))


def test_rows_unlike_each_other_are_for_a_map(tmp_path: Path) -> None:
    """JSON objects without a common schema are what a map makes one of."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1}\n{"x": "two", "y": [[1], 2]}\n\n{"z": null}\n')
    build(path, tmp_path / "out", map=lambda sample: {"text": json.dumps(sample)})
    assert [json.loads(sample["text"]) for sample in read(tmp_path / "out")] == [{"x": 1}, {"x": "two", "y": [[1], 2]}, {"z": None}]
    assert keys(tmp_path / "out") == [b"a.jsonl:0", b"a.jsonl:1", b"a.jsonl:3"]


def test_files_of_several_kinds(tmp_path: Path) -> None:
    """What the core reads and Parquet in one build; two of the core's formats are refused."""
    import pyarrow
    import pyarrow.parquet
    pyarrow.parquet.write_table(pyarrow.table({"text": ["p0", "p1"]}), tmp_path / "t.parquet")
    (tmp_path / "a.txt").write_text("a0\na1\n")
    build([tmp_path / "t.parquet", tmp_path / "a.txt"], tmp_path / "out")
    assert keys(tmp_path / "out") == [b"t.parquet#0:0", b"t.parquet#0:1", b"a.txt:0", b"a.txt:1"]
    assert [sample["text"] for sample in read(tmp_path / "out")] == ["p0", "p1", "a0", "a1"]
    with pytest.raises(rankstore.RankStoreError, match="a.jsonl is jsonl and .*a.txt is text"):
        build([jsonl(tmp_path), tmp_path / "a.txt"], tmp_path / "two")


def test_bad_rows_are_listed_either_way(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"x": 1}\n{"x": \n[3]\n{"x": 4}\n')
    for options in ({}, {"map": dict}):
        report = build(path, tmp_path / str(len(options)), skip_bad=True, **options)  # type: ignore[arg-type]
        assert report.bad == 2 and "a.jsonl:2" in report.bad_first and "a.jsonl:3" in report.bad_first


def _stop(sample: dict[str, Any]) -> dict[str, Any]:
    if sample["id"] == 8_999 and os.environ.get("STOP_HERE"):
        raise RuntimeError("stopped")
    return sample


def test_samples_of_a_map_are_cut_as_the_parts_that_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the size was asked for before, and is not now."""
    for name, first, count in (("in.jsonl", 0, 9_000), ("more.jsonl", 100_000, 8_000)):
        with open(tmp_path / name, "w") as file:
            file.writelines(json.dumps({"id": i, "text": f"text {i} " + "x" * (i * 37 % 200)}) + "\n" for i in range(first, first + count))
    monkeypatch.setenv("STOP_HERE", "1")
    with pytest.raises(rankstore.CallbackError, match="stopped"):
        rankstore.build(tmp_path / "in.jsonl", tmp_path / "d", map=_stop, unit_size="100KiB", progress=False)
    monkeypatch.delenv("STOP_HERE")
    with rankstore.build(tmp_path / "in.jsonl", tmp_path / "d", map=_stop, unit_size="100KiB", progress=False) as dataset:
        units, name = dataset.report.units, dataset.id
        assert dataset.report.unit_size == 100 << 10 and 0 < dataset.report.units_resumed < units
        assert dataset.info()["unit_size"] == 100 << 10
    with rankstore.build(tmp_path / "in.jsonl", tmp_path / "d", map=_stop, replace=True, progress=False) as dataset:
        assert dataset.report.unit_size == 1 << 20  # asked for without it: another build
        assert dataset.id != name
    with rankstore.build(tmp_path / "in.jsonl", tmp_path / "d", map=_stop, replace=True, progress=False) as dataset:
        assert dataset.report.unit_size == 1 << 20
    with rankstore.build(tmp_path / "more.jsonl", tmp_path / "d", map=_stop, append=True, progress=False) as dataset:
        assert dataset.report.unit_size == 1 << 20


def test_arrays_of_fixed_size_are_as_long_as_the_first_one(tmp_path: Path) -> None:
    rows = [{"n": i, "tokens": [i, i + 1, i + 2]} for i in range(500, 600)]
    for name, append in (("first", False), ("appended", True)):
        with rankstore.build(rows, tmp_path / name, schema="n:int64,tokens:uint16[3]", append=append, progress=False) as dataset:
            assert dataset.lengths.tolist() == [3] * 100 and dataset.length_column == "tokens"
            assert ", length tokens, " in repr(dataset)
            assert dataset.report.length == dataset.info()["length"] == "items of tokens, 3 each"
            assert max(map(len, dataset.plan(max_tokens=40, length_multiple=1).sampler())) == 13


@pytest.mark.parametrize(("options", "shown", "text"), [
    ({}, "text", "bytes of text"), ({"length": "chars:text"}, "chars:text", "characters of text"),
    ({"length": "n", "length_unit": 4}, "n / 4", "the number in n / 4, rounded up"),
    ({"length": "pair", "length_unit": 2}, "pair / 2", "items of pair, 2 each / 2, rounded up"),
    ({"length": lambda sample: 7}, "of a function", "what a function said"),
    ({"schema": "n:int64"}, "1 each", "1 each"), ({"key": "text", "schema": "text:str,n:int64"}, "1 each", "1 each"),
])
def test_a_build_says_what_lengths_count(tmp_path: Path, options: dict[str, Any], shown: str, text: str) -> None:
    rows = [{"n": i, "pair": [i, i], "text": f"row {i}"} for i in range(9)]
    for kept in (False, True):
        given = {"schema": "n:int64,pair:int32[2],text:str", **options}
        with rankstore.build(rows, tmp_path / "d", progress=False, **given) as dataset:
            assert dataset.report.kept == kept and f", length {shown}, " in repr(dataset)
            assert dataset.report.length == dataset.info()["length"] == text
