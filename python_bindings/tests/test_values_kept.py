# SPDX-License-Identifier: Apache-2.0
"""What goes in comes out: no source changes a value without a word. Each value is refused, or is the same from every source that has it."""
from __future__ import annotations

import gzip
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
from built import COMMAND, build, command, read
from made import build_units

import rankstore
from rankstore import _core
from rankstore.errors import ArgumentError, DataError

JSON_VALUES: list[Any] = [{"a": 1}, "42", "null", "true", "hello", '{"b": 2}', 42, None, True, [1, "x"]]


def arrow() -> Any:
    return pytest.importorskip("pyarrow")


# ---- a column of JSON holds values, not texts of JSON

def sources_of_json(folder: Path) -> dict[str, Callable[[], dict[str, Any]]]:
    lines = folder / "lines.jsonl"
    lines.write_text("".join(json.dumps({"c": one}) + "\n" for one in JSON_VALUES))
    samples = [{"c": one} for one in JSON_VALUES]
    return {"list": lambda: {"source": samples}, "generator": lambda: {"source": iter(samples)}, "lines": lambda: {"source": str(lines)},
            "map": lambda: {"source": str(lines), "map": dict}}


@pytest.mark.parametrize("name", ["list", "generator", "lines", "map"])
def test_a_value_of_a_json_column_is_the_value(name: str, tmp_path: Path) -> None:
    options = sources_of_json(tmp_path)[name]()
    build(options.pop("source"), tmp_path / "out", schema="c:json", **options)
    assert [one["c"] for one in read(tmp_path / "out")] == JSON_VALUES


def test_a_text_after_lists_in_an_inferred_json_column_stays_a_text(tmp_path: Path) -> None:
    samples = [{"content": [{"type": "text", "text": "a"}]}] * 3 + [{"content": "5"}, {"content": "hello"}]
    build(samples, tmp_path / "out", schema={"content": "json"})
    assert read(tmp_path / "out") == samples


def test_texts_of_arrow_become_json_strings(tmp_path: Path) -> None:
    pa = arrow()
    build(pa.table({"c": ["42", "hello", None]}), tmp_path / "out", schema="c:json")
    assert [one["c"] for one in read(tmp_path / "out")] == ["42", "hello", None]
    shown = [json.loads(line)["columns"]["c"] for line in command("cat", tmp_path / "out", "#0", "#1", "#2", "--json").splitlines()]
    assert shown == ["42", "hello", None]


def test_verify_full_parses_stored_json(tmp_path: Path) -> None:
    group = _core.Group(solo=True)
    texts = [b'{"a": 1}', b"hello", b"[1, NaN]"]  # the core takes texts of JSON in arrays as they are
    arrays: list[Any] = [(numpy.arange(3), None), (b"".join(texts), numpy.cumsum([0, *map(len, texts)]))]
    build_units(group, tmp_path / "out", "n:int64,c:json", {"u": lambda sink: sink.add_arrays(arrays, 3, None)})
    found = command("verify", tmp_path / "out", "--full", code=1)
    assert 'u:1' in found and 'u:2' in found and 'u:0' not in found and found.count('column "c": invalid JSON') == 2, found


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_arrow_structs_and_nested_lists_refuse_what_json_lacks(value: float, tmp_path: Path) -> None:
    pa = arrow()
    for column in ([{"x": value}], [[[1.0, value]]]):
        with pytest.raises(DataError, match='column "m": not a JSON value: NaN and infinity, which JSON lacks'):
            build(pa.table({"m": pa.array(column)}), tmp_path / "out")


# ---- Arrow files join as JSON lines do

@pytest.mark.parametrize(("first", "second"), [
    ([[1]], [["x"]]), ([[[1]]], [[1]]), ([[1]], [{"q": 1}]), ([[]], [[2]]),
])
def test_parquet_files_join_as_json_lines_do(first: list[Any], second: list[Any], tmp_path: Path) -> None:
    pa = arrow()
    import pyarrow.parquet as parquet
    (tmp_path / "parquet").mkdir()
    (tmp_path / "lines").mkdir()
    for name, values in (("a", first), ("b", second)):
        parquet.write_table(pa.table({"x": pa.array(values)}), tmp_path / "parquet" / f"{name}.parquet")
        (tmp_path / "lines" / f"{name}.jsonl").write_text("".join(json.dumps({"x": one}) + "\n" for one in values))
    found = []
    for kind in ("parquet", "lines"):
        build([str(one) for one in sorted((tmp_path / kind).iterdir())], tmp_path / f"{kind}.out")
        found.append([one["x"].tolist() if hasattr(one["x"], "tolist") else one["x"] for one in read(tmp_path / f"{kind}.out")])
    assert found[0] == found[1] == [*first, *second]


@pytest.mark.parametrize("sizes", [(2, 3), (2, -1), (-1, 2)])
def test_lists_of_fixed_and_variable_size_join(sizes: tuple[int, int], tmp_path: Path) -> None:
    pa = arrow()
    import pyarrow.parquet as parquet
    (tmp_path / "in").mkdir()
    for name, size in zip("ab", sizes):
        values = [[1, 2], [3, 4]] if size != 3 else [[1, 2, 3], [4, 5, 6]]
        parquet.write_table(pa.table({"x": pa.array(values, pa.list_(pa.int64(), size))}), tmp_path / "in" / f"{name}.parquet")
    build(str(tmp_path / "in"), tmp_path / "out")
    second = [[1, 2, 3], [4, 5, 6]] if sizes[1] == 3 else [[1, 2], [3, 4]]
    assert [one["x"].tolist() for one in read(tmp_path / "out")] == [[1, 2], [3, 4], *second]


# ---- masks

def masked() -> Any:
    return numpy.ma.masked_equal(numpy.array([1, -999, 3]), -999)


def test_a_masked_array_is_refused_wherever_it_stands(tmp_path: Path) -> None:
    with pytest.raises(DataError, match='sample 0: column "x": an array with masked items'):
        build([{"x": masked()}], tmp_path / "a")
    with pytest.raises(DataError, match='column "x": an array with masked items'):
        build([rankstore.Columns({"x": masked()})], tmp_path / "b")
    with pytest.raises(DataError, match='column "x": an array with masked items'):
        rankstore.Columns({"x": (masked(), [0, 3])})
    with pytest.raises(DataError, match=r'results\["r"\], index 0: an array with masked items'):
        rankstore.gather({"r": (0, masked())})
    with pytest.raises(ArgumentError, match="lengths: an array with masked items"):
        rankstore.plan(masked(), "sequential", batch_size=3)


def test_a_masked_array_as_the_source_has_missing_values(tmp_path: Path) -> None:
    build(masked(), tmp_path / "out")
    assert [one["data"] for one in read(tmp_path / "out")] == [1, None, 3]


def test_an_array_whose_mask_hides_nothing_is_an_array(tmp_path: Path) -> None:
    build([{"x": numpy.ma.array([1, 2], mask=[False, False])}, {"x": numpy.arange(3)}], tmp_path / "out")
    assert [one["x"].tolist() for one in read(tmp_path / "out")] == [[1, 2], [0, 1, 2]]


def test_missing_items_of_pandas_and_arrow_are_refused(tmp_path: Path) -> None:
    pandas, pa = pytest.importorskip("pandas"), arrow()
    for value, kind in ((pandas.Series([1, None], dtype="Int64"), "NA"), (pa.array([1, None]), "null")):
        with pytest.raises(DataError, match=f'column "x": an array with {kind} items'):
            build([{"x": value}], tmp_path / "out")
    build([{"x": pandas.Series([1.5, float("nan")])}], tmp_path / "floats")  # NaN is a value of floats
    assert numpy.isnan(read(tmp_path / "floats")[0]["x"][1])


def test_missing_numbers_of_pandas_columns_are_missing_values(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    build({"x": pandas.Series([1, None, 3], dtype="Int64")}, tmp_path / "out")
    assert [one["x"] for one in read(tmp_path / "out")] == [1, None, 3]


# ---- numbers, and values without an end

def test_unsigned_numbers_beyond_int64_stay_exact_in_lists(tmp_path: Path) -> None:
    build([{"x": [2**64 - 1, 5]}, {"x": [7]}], tmp_path / "out", schema="x:uint64[*]")
    assert [one["x"].tolist() for one in read(tmp_path / "out")] == [[2**64 - 1, 5], [7]]
    with pytest.raises(DataError, match="numbers below 0 stand beside numbers of 2\\^63 and more"):
        build([{"x": [2**64 - 1, -5]}], tmp_path / "bad", schema="x:uint64[*]")


def test_a_matrix_is_an_array_of_two_dimensions(tmp_path: Path) -> None:
    with pytest.warns(PendingDeprecationWarning):
        matrix = numpy.matrix([[1, 2]])
    build([{"x": matrix, "y": {"a": matrix}}], tmp_path / "out")
    (found,) = read(tmp_path / "out")
    assert found["x"].tolist() == [[1, 2]] and found["y"] == {"a": [[1, 2]]}
    build(matrix, tmp_path / "rows")
    assert [one["data"].tolist() for one in read(tmp_path / "rows")] == [[[1, 2]]]


def test_a_list_in_itself_is_refused(tmp_path: Path) -> None:
    for loop in ([], [1]):
        loop.append(loop)
        with pytest.raises(DataError, match='column "x": not a JSON value: Circular reference'):
            build([{"x": loop}], tmp_path / "out")


# ---- tar files

def tar_of(*names: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = len(name)
            archive.addfile(info, io.BytesIO(name.encode()))
    return made.getvalue()


@pytest.mark.parametrize("name", ["two.tar", "two.tar.gz", "members.tar.gz"])
def test_tars_one_after_another_in_one_file_are_read(name: str, tmp_path: Path) -> None:
    first, second = tar_of("a.txt", "b.txt"), tar_of("c.txt")
    whole = {"two.tar": first + second, "two.tar.gz": gzip.compress(first + second),
             "members.tar.gz": gzip.compress(first) + gzip.compress(second)}[name]
    (tmp_path / name).write_bytes(whole)
    build(str(tmp_path / name), tmp_path / "out")
    assert [one["txt"] for one in read(tmp_path / "out")] == ["a.txt", "b.txt", "c.txt"]


@pytest.mark.parametrize("damage", ["cut", "sum"])
def test_damage_after_the_end_of_a_packed_tar_is_found(damage: str, tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(tar_of("a.txt", "b.txt")))
    if damage == "cut":
        del packed[-8:]
    else:
        packed[-6] ^= 1
    (tmp_path / "a.tar.gz").write_bytes(packed)
    with pytest.raises(DataError, match="a.tar.gz: damaged at about byte .* gzip: (cut, the end is missing|incorrect data check)"):
        build(str(tmp_path / "a.tar.gz"), tmp_path / "out")


# ---- a replaced dataset is inferred anew

@pytest.mark.parametrize(("old", "new", "columns"), [
    ('{"y":"cat"}\n', '{"y":12345}\n', {"y": 12345}), ('{"y":1.5}\n', '{"y":123}\n', {"y": 123}), ('{"x":1}\n', '{"z":2}\n', {"z": 2}),
])
@pytest.mark.parametrize("by", ["command", "python"])
def test_a_replacement_infers_its_schema_anew(by: str, old: str, new: str, columns: dict[str, int], tmp_path: Path) -> None:
    for text in (old, new):
        (tmp_path / "a.jsonl").write_text(text)
        if by == "command":
            command("build", tmp_path / "a.jsonl", "-o", tmp_path / "out", "--replace")
        else:
            build(str(tmp_path / "a.jsonl"), tmp_path / "out", replace=True)
    (found,) = read(tmp_path / "out")
    assert found == columns and all(type(found[name]) is int for name in columns)


# ---- folders

def parquet_folder(folder: Path, *names: str) -> Path:
    pa = arrow()
    import pyarrow.parquet as parquet
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        parquet.write_table(pa.table({"a": [1, 2]}), folder / name)
    return folder


@pytest.mark.parametrize("name", [".ipynb_checkpoints/x-checkpoint.parquet", "_temporary/0/x.parquet", ".x.parquet", ".gitattributes",
                                  ".DS_Store", ".x.parquet.crc", "_SUCCESS", "_metadata", "README.md", "x.parquet.sha256", "LICENSE"])
def test_what_tools_leave_beside_data_is_not_read(name: str, tmp_path: Path) -> None:
    folder = parquet_folder(tmp_path / "in", "x.parquet", "sub/Y.PARQUET")
    if name.endswith(".parquet"):
        parquet_folder(folder, name)
    else:
        (folder / name).write_text("{}")
    build(str(folder), tmp_path / "out")
    assert [one["a"] for one in read(tmp_path / "out")] == [1, 2, 1, 2]


def test_a_folder_of_datasets_and_other_files_is_refused(tmp_path: Path) -> None:
    folder = parquet_folder(tmp_path / "in", "x.parquet")
    (folder / "notes.txt").write_text("a")
    with pytest.raises(ArgumentError, match='holds x.parquet, a dataset, and notes.txt, which is none; .* format="folder"'):
        build(str(folder), tmp_path / "out")
    build(str(folder), tmp_path / "out", format="folder")
    assert sorted(one["path"] for one in read(tmp_path / "out")) == ["notes.txt", "x.parquet"]


def test_folders_with_values_of_a_column_are_refused(tmp_path: Path) -> None:
    folder = parquet_folder(tmp_path / "in", "lang=en/x.parquet", "lang=de/x.parquet")
    with pytest.raises(ArgumentError, match=r"have values of a column \(lang=de\), which is not read"):
        build(str(folder), tmp_path / "out")


def test_what_save_to_disk_wrote_is_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    one = datasets.Dataset.from_dict({"a": [1, 2]})
    one.save_to_disk(str(tmp_path / "one"))
    build(str(tmp_path / "one"), tmp_path / "out")
    assert [sample["a"] for sample in read(tmp_path / "out")] == [1, 2]
    datasets.DatasetDict({"train": one, "test": one}).save_to_disk(str(tmp_path / "both"))
    with pytest.raises(ArgumentError, match="DatasetDict; give one of its splits: .*both/test, .*both/train"):
        build(str(tmp_path / "both"), tmp_path / "out2")


# ---- tables, arrays and dicts as people have them

def test_a_data_frame_and_a_structured_array_are_columns(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    build(pandas.DataFrame({"a": [1, 2], "t": ["x", "y"]}, index=[7, 8]), tmp_path / "frame")
    assert read(tmp_path / "frame") == [{"a": 1, "t": "x"}, {"a": 2, "t": "y"}]
    build(numpy.array([(1, 0.5), (2, 1.5)], dtype=[("a", "i4"), ("b", "f4")]), tmp_path / "fields")
    assert read(tmp_path / "fields") == [{"a": 1, "b": 0.5}, {"a": 2, "b": 1.5}]


def test_a_list_of_numpy_numbers_is_an_array(tmp_path: Path) -> None:
    for dtype in ("int64", "uint16", "float32", "bool"):
        build([{"x": list(numpy.ones(3, dtype))}], tmp_path / dtype)
        (found,) = read(tmp_path / dtype)
        assert found["x"].dtype == dtype and found["x"].tolist() == [1, 1, 1]


@pytest.mark.parametrize("value", [{1: 2, "1": 3}, [{"a": {True: 1, "true": 2}}], {None: 1, "null": 2}, {0.5: 1, "0.5": 2}])
def test_a_dict_whose_names_are_the_same_in_json_is_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="names of a dict are the same in JSON"):
        build([{"x": value}], tmp_path / "out")
    build([{"x": {1: 2, "2": 3}}], tmp_path / "good")
    assert read(tmp_path / "good") == [{"x": {"1": 2, "2": 3}}]


def test_tensors_of_arrow_keep_their_shape(tmp_path: Path) -> None:
    pa = arrow()
    values = numpy.arange(18, dtype="float32").reshape(3, 2, 3)
    table = pa.table({"x": pa.FixedShapeTensorArray.from_numpy_ndarray(values)})
    build(table, tmp_path / "out")
    build(table.slice(1), tmp_path / "sliced")
    assert [one["x"].tolist() for one in read(tmp_path / "out")] == values.tolist()
    assert [one["x"].tolist() for one in read(tmp_path / "sliced")] == values[1:].tolist()


def test_arrays_of_hugging_face_keep_their_shape(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    values = [[[0.5, 1, 2], [3, 4, 5]], None, [[6, 7, 8], [9, 10, 11]]]
    for shape, given in (((2, 3), values), ((None, 3), [values[0], [[1, 2, 3]], [[4, 5, 6]] * 3])):
        features = datasets.Features({"x": datasets.Array2D(shape, "float32")})
        build(datasets.Dataset.from_dict({"x": given}, features=features), tmp_path / str(shape[0]))
        found = [None if one["x"] is None else one["x"].tolist() for one in read(tmp_path / str(shape[0]))]
        assert found == given


def test_columns_that_a_format_hides_are_not_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    both = datasets.Dataset.from_dict({"x": [1], "y": [2]})
    build(both.with_format("numpy", columns=["y"]), tmp_path / "out")
    assert read(tmp_path / "out") == [{"y": 2}]
    with pytest.raises(ArgumentError, match=r"DatasetDict has several splits; give one of them: source\['train'\]"):
        build(datasets.DatasetDict({"train": both}), tmp_path / "splits")


@pytest.mark.parametrize("side", ["right", "left"])
def test_a_mask_that_samples_have_is_the_mask(tmp_path: Path, side: str) -> None:
    build([{"input_ids": [1, 2, 3], "attention_mask": [1, 0, 1]}, {"input_ids": [4], "attention_mask": [1]}], tmp_path / "out")
    with rankstore.open(tmp_path / "out") as ds:
        made = next(iter(ds.loader(ds.plan("sequential", batch_size=2), collate=rankstore.Pad(pad_value=9, to_multiple=1, side=side))))
        assert made["input_ids"].tolist() == [[1, 2, 3], [4, 9, 9] if side == "right" else [9, 9, 4]]
        assert made["attention_mask"].tolist() == [[1, 0, 1], [1, 0, 0] if side == "right" else [0, 0, 1]]
        made = next(iter(ds.loader(ds.plan("sequential", batch_size=2), collate=rankstore.Pad(to_multiple=1, mask="own"))))
        assert made["own"].sum().item() == 4 and made["attention_mask"].sum().item() == 3
        own = rankstore.Pad(to_multiple=1, pad_value={"attention_mask": 5})
        made = next(iter(ds.loader(ds.plan("sequential", batch_size=2), collate=own)))
        assert made["attention_mask"].sum().item() == 13


def test_a_mask_that_samples_have_and_that_cannot_be_one_is_named(tmp_path: Path) -> None:
    build([{"input_ids": [1, 2], "attention_mask": 1}], tmp_path / "out")
    with rankstore.open(tmp_path / "out") as ds:
        plan = ds.plan("sequential", batch_size=1)
        with pytest.raises(ArgumentError, match=r"have a column 'attention_mask' \(int64\), which is the mask's name and cannot be"):
            ds.loader(plan, collate=rankstore.Pad())
        batch = next(iter(ds.loader(plan, collate=rankstore.Pad(mask=None, to_multiple=1))))
        assert batch["attention_mask"].tolist() == [1]


def test_an_empty_json_array_is_a_file_without_samples(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"a":1}]')
    (tmp_path / "b.json").write_text("[ ]\n")
    build([str(tmp_path / "a.json"), str(tmp_path / "b.json")], tmp_path / "out")
    assert read(tmp_path / "out") == [{"a": 1}]
    with pytest.raises(DataError, match="b.json: empty: no row to infer a schema from"):
        build(str(tmp_path / "b.json"), tmp_path / "alone")


def test_a_missing_row_of_a_list_of_fixed_size_is_a_missing_value(tmp_path: Path) -> None:
    pa = arrow()
    values = [[1.5, 2.5], None, [3.5, 4.5], None]
    table = pa.table({"e": pa.array(values, pa.list_(pa.float32(), 2))})
    build(table, tmp_path / "out")
    build(table.slice(1, 2), tmp_path / "sliced")
    for name, wanted in (("out", values), ("sliced", values[1:3])):
        assert [None if one["e"] is None else one["e"].tolist() for one in read(tmp_path / name)] == wanted
    with pytest.raises(DataError, match='column "e": a null inside a list'):
        build(pa.table({"e": pa.array([[1.5, None]], pa.list_(pa.float32(), 2))}), tmp_path / "inside")


# ---- NaN and infinity that JSON lines have bare, as json.dumps writes them

def test_bare_nan_is_a_number_of_a_float_column_on_every_way(tmp_path: Path) -> None:
    values = [1.5, float("nan"), float("inf"), float("-inf")]
    lines = tmp_path / "in.jsonl"
    lines.write_text("".join(json.dumps({"s": "t", "loss": one, "all": [one, 1]}) + "\n" for one in values))
    for i, options in enumerate([{}, {"schema": "s:str,loss:float64,all:float64[*]"}, {"map": dict}]):
        build(str(lines), tmp_path / f"out{i}", **options)
        found = read(tmp_path / f"out{i}")
        numpy.testing.assert_equal([one["loss"] for one in found], values)
        numpy.testing.assert_equal([one["all"].tolist() for one in found], [[one, 1.0] for one in values])
    build(str(lines), tmp_path / "dropped", schema="s:str")
    assert read(tmp_path / "dropped") == [{"s": "t"}] * 4
    lines.write_text('{"loss": 1}\n{"loss": NaN}\n')
    with pytest.raises(DataError, match='in.jsonl:2: column "loss": NaN does not fit int64'):
        build(str(lines), tmp_path / "refused", schema="loss:int64")


# ---- integers of 2^63 and more

LARGE = 2**64 - 1


@pytest.mark.parametrize("kind", ["list", "generator", "lines", "map", "csv", "arrow"])
def test_integers_from_2_to_the_63_are_exact_from_every_source(kind: str, tmp_path: Path) -> None:
    samples = [{"id": LARGE, "t": "x"}, {"id": 5, "t": "y"}]
    lines, table = tmp_path / "in.jsonl", tmp_path / "in.csv"
    lines.write_text("".join(json.dumps(one) + "\n" for one in samples))
    table.write_text(f"id,t\n{LARGE},x\n5,y\n")
    source: Any = {"list": samples, "generator": iter(samples), "csv": str(table)}.get(kind, str(lines))
    if kind == "arrow":
        source = arrow().table({"id": arrow().array([LARGE, 5], "uint64"), "t": ["x", "y"]})
    build(source, tmp_path / "out", **({"map": dict} if kind == "map" else {}))
    assert read(tmp_path / "out") == samples


def test_lists_and_json_hold_integers_from_2_to_the_63(tmp_path: Path) -> None:
    samples = [{"a": [LARGE, 5], "m": {"h": LARGE}}, {"a": [], "m": {}}, {"a": [1], "m": [LARGE]}]
    lines = tmp_path / "in.jsonl"
    lines.write_text("".join(json.dumps(one) + "\n" for one in samples))
    for i, source in enumerate((samples, str(lines))):
        build(source, tmp_path / str(i))
        found = read(tmp_path / str(i))
        assert [{"a": one["a"].tolist(), "m": one["m"]} for one in found] == samples
        assert found[0]["a"].dtype == "uint64"


def test_integers_that_no_type_holds_together_are_named(tmp_path: Path) -> None:
    both = f"has -5 and {LARGE}, which no integer type holds together"
    for source in ([{"a": -5}, {"a": LARGE}], [{"a": [LARGE, -5]}]):
        with pytest.raises(DataError, match=both):
            build(source, tmp_path / "out")
    with pytest.raises(DataError, match=f"{2**64} is beyond 64 bits"):
        build([{"a": [2**64]}], tmp_path / "out")
    with pytest.raises(DataError, match="-5 does not fit uint64|-5 is not a value of uint64"):
        build([{"a": numpy.uint64(LARGE)}, {"a": numpy.int64(-5)}], tmp_path / "out")
    build([{"a": -5}, {"a": 2**63}, {"a": 0.5}], tmp_path / "floats")
    assert [one["a"] for one in read(tmp_path / "floats")] == [-5.0, 2.0**63, 0.5]


def test_arrow_files_of_int64_and_uint64_join(tmp_path: Path) -> None:
    pa = arrow()
    import pyarrow.parquet as parquet
    for name, values, kind in (("a", [5], "int64"), ("b", [LARGE], "uint64"), ("c", [-5], "int64")):
        parquet.write_table(pa.table({"x": pa.array(values, kind)}), tmp_path / f"{name}.parquet")
    build([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")], tmp_path / "out")
    assert [one["x"] for one in read(tmp_path / "out")] == [5, LARGE]
    with pytest.raises(DataError, match='column "x": -5 does not fit uint64'):
        build([str(tmp_path / "c.parquet"), str(tmp_path / "b.parquet")], tmp_path / "refused")


def test_integers_beside_floats_of_arrow_are_exact_or_refused(tmp_path: Path) -> None:
    pa = arrow()
    import pyarrow.parquet as parquet
    files = (("a", [2**53, 2**60], "int64"), ("b", [0.5], "float64"), ("c", [2**53 + 1], "int64"), ("d", [LARGE], "uint64"))
    for name, values, kind in files:
        parquet.write_table(pa.table({"x": pa.array(values, kind)}), tmp_path / f"{name}.parquet")
    build([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")], tmp_path / "out")
    assert [one["x"] for one in read(tmp_path / "out")] == [2.0**53, 2.0**60, 0.5]
    for name, value in (("c", 2**53 + 1), ("d", LARGE)):
        with pytest.raises(DataError, match=f'column "x": {value} does not fit float64'):
            build([str(tmp_path / f"{name}.parquet"), str(tmp_path / "b.parquet")], tmp_path / "refused")


# ---- a locale whose point is a comma

LOCALE_SCRIPT = """
import json, locale, struct, sys
from built import build, read
import rankstore
assert locale.setlocale(locale.LC_ALL, "de_DE.UTF-8") and locale.localeconv()["decimal_point"] == ","
number, out = 0.12345678901234567, sys.argv[1]
open(f"{out}/a.csv", "w").write(f"x\\n{number!r}\\n")
open(f"{out}/a.jsonl", "w").write(json.dumps({"x": number}) + "\\n")
text = repr(number).encode()
sample = struct.pack("<I", len(text)) + text
import os
os.mkdir(f"{out}/mds")
open(f"{out}/mds/shard.00000.mds", "wb").write(struct.pack("<III", 1, 12, 12 + len(sample)) + sample)
json.dump({"version": 2, "shards": [{"format": "mds", "version": 2, "samples": 1, "column_names": ["x"], "column_encodings": ["str_float"],
           "column_sizes": [None], "compression": None, "hashes": [], "zip_data": None, "size_limit": 1 << 26,
           "raw_data": {"basename": "shard.00000.mds", "bytes": 12 + len(sample), "hashes": {}}}]}, open(f"{out}/mds/index.json", "w"))
for name in ("a.csv", "a.jsonl", "mds"):
    build(f"{out}/{name}", f"{out}/{name}.out", where="x > 0.1 and x < 1.5e-1")
    assert read(f"{out}/{name}.out") == [{"x": number}], name
    rankstore.export(f"{out}/{name}.out", f"{out}/{name}.lines", to="jsonl")
    assert json.loads(open(f"{out}/{name}.lines").read())["x"] == number, name
"""


def test_numbers_have_a_point_whatever_the_locale(tmp_path: Path) -> None:
    made = subprocess.run(["localedef", "--no-archive", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")], capture_output=True)
    assert made.returncode == 0, made.stderr
    places = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", LOCALE_SCRIPT, str(tmp_path)], text=True, capture_output=True, timeout=400,
                          env={**os.environ, "LOCPATH": str(tmp_path), "PYTHONPATH": places})
    assert done.returncode == 0, done.stderr


# ---- CSV

def test_the_index_of_pandas_in_csv_is_left_out_by_a_schema_and_named_without(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    for name in ("a", "b"):
        pandas.DataFrame({"a": [5, 6], "t": ["x", None]}, index=[7, 8]).to_csv(tmp_path / f"{name}.csv")
    sources = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    with pytest.raises(DataError, match=r"a.csv: column 1 has no name; if pandas wrote it: to_csv\(index=False\), or give schema"):
        build(sources, tmp_path / "out")
    build(sources, tmp_path / "out", schema="a:int64,t:str?")
    assert read(tmp_path / "out") == [{"a": 5, "t": "x"}, {"a": 6, "t": None}] * 2
    with pytest.raises(DataError, match='column "" is not in the schema'):
        build(sources, tmp_path / "strict", schema="a:int64,t:str?", extra="error")


# ---- names of columns

@pytest.mark.parametrize("kind", ["table", "parquet", "arrow", "stream", "frame"])
def test_two_columns_of_one_name_are_refused(kind: str, tmp_path: Path) -> None:
    pa = arrow()
    import pyarrow.parquet as parquet
    table = pa.Table.from_arrays([pa.array([1]), pa.array(["x"]), pa.array([2])], names=["a", "b", "a"])
    source: Any = table
    if kind == "parquet":
        source = str(tmp_path / "in.parquet")
        parquet.write_table(table, source)
    elif kind in ("arrow", "stream"):
        source = str(tmp_path / "in.arrow")
        with pa.OSFile(source, "wb") as file, (pa.ipc.new_file if kind == "arrow" else pa.ipc.new_stream)(file, table.schema) as writer:
            writer.write_table(table)
    elif kind == "frame":
        source = pytest.importorskip("pandas").DataFrame([[1, "x", 2]], columns=["1", "b", 1])
    with pytest.raises((DataError, ArgumentError), match='two columns are called "[a1]"'):
        build(source, tmp_path / "out")


# ---- lengths

def test_lengths_count_an_array_rather_than_a_text(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    samples = [{"text": "a", "meta": {"x": 1}, "ids": list(range(1500)), "mask": [True] * 1500},
               {"text": "bb", "meta": {}, "ids": [1], "mask": [True]}]
    lines = tmp_path / "in.jsonl"
    lines.write_text("".join(json.dumps({name: one for name, one in sample.items() if name != "mask"}) + "\n" for sample in samples))
    for i, source in enumerate((samples, str(lines))):
        build(source, tmp_path / str(i))
        assert f"rankstore: {tmp_path / str(i)}: length: items of ids" in capfd.readouterr().err
        with rankstore.open(tmp_path / str(i)) as ds:
            assert ds.lengths.tolist() == [1500, 1] and ds.length_column == "ids"
        assert json.loads((tmp_path / str(i) / "dataset.json").read_text())["options"]["length"] == "ids"
    build([{"n": 1, "text": "abc"}], tmp_path / "text")
    assert json.loads((tmp_path / "text" / "dataset.json").read_text())["options"]["length"] == "text"


@pytest.mark.parametrize("length", ["text", "n"])
def test_a_padded_column_that_is_longer_than_what_is_counted_is_refused(length: str, tmp_path: Path) -> None:
    build([{"text": "a" * 5, "n": 2, "ids": list(range(1500)), "x": [1] * 5} for _ in range(4)], tmp_path / "out", length=length)
    with rankstore.open(tmp_path / "out") as ds:
        plan = ds.plan("sequential", max_tokens=8192)
        with pytest.raises(ArgumentError, match=rf"counts '{length}', at most \d+ a sample of this batch, and 'ids' is padded to 1,50.*"
                                                r"length='ids'"):
            list(ds.loader(plan, collate=rankstore.Pad()))
        list(ds.loader(plan, collate=rankstore.Lists()))
        list(ds.loader(ds.plan("sequential", batch_size=2)))  # bounds no tokens
        assert len(list(ds.loader(plan, columns=["text", "n", "x"], collate=rankstore.Pad()))) == 1


def test_a_padded_column_that_is_longer_than_the_whole_budget_is_refused(tmp_path: Path) -> None:
    build([{"ids": [1] * 5, "x": [1] * 90} for _ in range(4)], tmp_path / "out", length="ids")
    with rankstore.open(tmp_path / "out") as ds:
        with pytest.raises(ArgumentError, match="counts 'ids', at most 64 in all, and 'x' is padded to 96 a sample; .* length='x'"):
            list(ds.loader(ds.plan("sequential", max_tokens=64), collate=rankstore.Pad()))
        assert len(list(ds.loader(ds.plan("sequential", max_tokens=128), collate=rankstore.Pad()))) == 1


# ---- bfloat16 and float8

FLOATS = {"bfloat16": [0.5, -2.0, 1.75], "float8_e4m3fn": [0.5, -2.0, 448.0], "float8_e5m2": [0.5, -2.0, 57344.0]}


def test_values_of_bfloat16_and_float8_have_their_type(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    samples = [{**{name: torch.tensor(values).to(getattr(torch, name)) for name, values in FLOATS.items()},
                "one": torch.tensor(1.5, dtype=torch.bfloat16), "two": torch.ones(2, 2, dtype=torch.float8_e5m2)} for _ in range(3)]
    build(samples, tmp_path / "out", index=["one"], length="bfloat16")

    def check(sample: dict[str, Any]) -> None:
        for name, value in sample.items():
            assert value.dtype == samples[0][name].dtype and torch.equal(value.float(), samples[0][name].float()), name

    with rankstore.open(tmp_path / "out") as ds:
        check(ds[0])
        for sample in [*ds[[1, 2]], ds.view(1), *next(iter(ds.loader(ds.plan("sequential", batch_size=2), collate=list)))]:
            check(sample)
        window = ds.windows(6)[0]
        assert window.dtype == torch.bfloat16 and window.tolist() == FLOATS["bfloat16"] * 2
        assert next(ds.windows(3).batches(2)).dtype == torch.bfloat16
        assert ds.index["one"].tolist() == [1.5] * 3 and ds.index["one"].dtype == "float32"
        build(ds, tmp_path / "again", index=["one"], length="bfloat16")
        batch = next(iter(ds.loader(ds.plan("sequential", batch_size=2), out="numpy")))
        assert [one.rankstore_type for one in batch["bfloat16"]] == ["bfloat16"] * 2
    with rankstore.open(tmp_path / "again") as again:
        assert {name: column.text for name, column in again.schema.items()} == {
            "bfloat16": "bfloat16[*]", "float8_e4m3fn": "float8_e4m3fn[*]", "float8_e5m2": "float8_e5m2[*]", "one": "bfloat16",
            "two": "float8_e5m2[*,2]"}
        check(again[2])


BITS_SCRIPT = """
import pickle, sys
import numpy
from built import build
import rankstore
out, floats = sys.argv[1], {floats!r}
schema = {{name: name + "[*]" for name in floats}} | {{"one": "bfloat16"}}
given = {{"bfloat16": floats["bfloat16"], "float8_e4m3fn": numpy.array([0x30, 0xC0, 0x7E], "uint8"),
         "float8_e5m2": numpy.array([0x38, 0xC0, 0x7B], "uint8"), "one": numpy.array(0x3FC0, "uint16")}}
build([given] * 2, f"{{out}}/first", schema=schema, length="bfloat16")
with rankstore.open(f"{{out}}/first") as ds:
    build(ds, f"{{out}}/second", length="bfloat16")
with rankstore.open(f"{{out}}/second") as ds:
    assert {{name: column.text for name, column in ds.schema.items()}} == schema, ds.schema
    batch = next(iter(ds.loader(ds.plan("sequential", batch_size=2), out="numpy", collate=rankstore.Pad(to_multiple=1))))
    for sample in (ds[0], ds.view(1), batch, next(iter(ds.loader(ds.plan("sequential", batch_size=1), collate=list, out="numpy")))[0]):
        for name in floats:
            value = sample[name]
            assert value.rankstore_type == name and pickle.loads(pickle.dumps(value)).rankstore_type == name
            assert value[..., 1:].rankstore_type == name and not isinstance(numpy.asarray(value), type(value))
            try:
                value + 1
            except TypeError:
                pass
            else:
                raise AssertionError("arithmetic on bits")
    assert ds.windows(6)[0].rankstore_type == "bfloat16"
    wide = [{{name: sample[name] for name in floats}} for sample in (ds[0], ds[1])]
    build(wide, f"{{out}}/wide", schema={{name: "float32[*]" for name in floats}})
with rankstore.open(f"{{out}}/wide") as ds:
    assert {{name: ds[0][name].tolist() for name in floats}} == floats, ds[0]
assert "torch" not in sys.modules and "ml_dtypes" not in sys.modules
"""


def test_without_torch_bfloat16_and_float8_are_bits_that_name_their_type(tmp_path: Path) -> None:
    places = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    script = BITS_SCRIPT.format(floats=FLOATS)
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], text=True, capture_output=True, timeout=400,
                          env={**os.environ, "PYTHONPATH": places})
    assert done.returncode == 0, done.stderr


def test_every_float8_has_the_number_that_torch_gives_it() -> None:
    torch = pytest.importorskip("torch")
    from rankstore._schema import bits
    for name in FLOATS:
        every = numpy.arange(2**16 if name == "bfloat16" else 2**8).astype("uint16" if name == "bfloat16" else "uint8")
        wanted = torch.from_numpy(every.view(every.dtype.name.replace("uint16", "int16"))).view(getattr(torch, name)).float().numpy()
        numpy.testing.assert_array_equal(bits.as_float32(every, name), wanted)


def test_with_ml_dtypes_and_without_torch_they_are_its_arrays(tmp_path: Path) -> None:
    script = BITS_SCRIPT.format(floats=FLOATS).replace("import numpy\n", "import numpy, ml_dtypes\n")
    script = script[:script.index("with rankstore.open(f\"{out}/second\")")] + """
with rankstore.open(f"{out}/second") as ds:
    assert {name: column.text for name, column in ds.schema.items()} == schema, ds.schema
    batch = next(iter(ds.loader(ds.plan("sequential", batch_size=2), out="numpy", collate=rankstore.Pad(to_multiple=1))))
    for name in floats:
        assert ds[0][name].dtype == batch[name].dtype == ds.view(1)[name].dtype == getattr(ml_dtypes, name)
        assert ds[0][name].astype("float32").tolist() == batch[name][1].astype("float32").tolist() == floats[name]
    assert ds[0]["one"] == 1.5
assert "torch" not in sys.modules
"""
    pytest.importorskip("ml_dtypes")
    places = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], text=True, capture_output=True, timeout=400,
                          env={**os.environ, "PYTHONPATH": places})
    assert done.returncode == 0, done.stderr


# ---- messages

def test_messages_show_keys_with_nul_whole(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"key 'a\\x00b' appears twice"):
        build([{"x": 1}, {"x": 2}], tmp_path / "twice", key=lambda sample: b"a\0b")
    with pytest.raises(DataError, match=r'sample "a\\x00b": \d+ bytes, at most 100 are allowed \(max_sample\)'):
        build([{"x": b"y" * 200}], tmp_path / "large", key=lambda sample: b"a\0b", max_sample=100)
    build([{"x": 1}], tmp_path / "out", key=lambda sample: b"a\0b")
    with rankstore.open(tmp_path / "out") as ds:
        assert ds.get(b"a\0b") == {"x": 1}
        with pytest.raises(KeyError, match=r"a\\x00c"):
            ds.get(b"a\0c")


@pytest.mark.parametrize(("number", "shown"), [
    ("1.0", "1.0"), ("0.1", "0.1"), ("9223372036854775808", "9223372036854775808"), ("1e300", "1e300"), ("-Infinity", "-Infinity")])
def test_messages_quote_numbers_with_all_digits(number: str, shown: str, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(f'{{"x": {number}}}\n')
    with pytest.raises(DataError, match=rf'in.jsonl:1: column "x": {shown} does not fit int64'):
        build(str(tmp_path / "in.jsonl"), tmp_path / "out", schema="x:int64")


def test_no_larger_sample_is_allowed_than_one_write_holds(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="max_sample: 2147418113 is above 2147418112, the most that a sample can have"):
        build([{"x": 1}], tmp_path / "out", max_sample=2147418113)
    build([{"x": 1}], tmp_path / "out", max_sample=2147418112)
    assert "2G" in subprocess.run([str(COMMAND), "build", "-o", str(tmp_path / "no"), "--max-sample", "2G", "x.jsonl"],
                                  capture_output=True, text=True).stderr


def test_a_changed_byte_of_parquet_is_found_by_the_checksum_of_its_page(tmp_path: Path) -> None:
    pa = arrow()
    import pyarrow.parquet as parquet
    path = tmp_path / "in.parquet"
    parquet.write_table(pa.table({"x": numpy.arange(1000)}), path, compression="none", use_dictionary=False, write_page_checksum=True)
    build(str(path), tmp_path / "good")
    data = bytearray(path.read_bytes())
    data[data.index(numpy.int64(500).tobytes())] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match="in.parquet: .*checksum"):
        build(str(path), tmp_path / "bad")


def unstored() -> dict[str, Any]:
    pa = arrow()
    return {"nulls": pa.array([[1, None], [2]]), "bytes": pa.array([[b"x"], []]), "nan": pa.array([{"a": float("nan")}, {"a": 1.0}]),
            "nested": pa.array([{"a": [b"x"]}, {"a": []}])}


@pytest.mark.parametrize("kind", ["nulls", "bytes", "nan", "nested"])
@pytest.mark.parametrize("form", ["table", "parquet", "arrow"])
def test_a_column_that_cannot_be_stored_blocks_no_other(kind: str, form: str, tmp_path: Path) -> None:
    pa = arrow()
    import pyarrow.parquet
    table = pa.table({"text": ["a", "b"], "x": unstored()[kind]})
    source: Any = table if form == "table" else tmp_path / f"in.{form}"
    if form == "parquet":
        pyarrow.parquet.write_table(table, source)
    elif form == "arrow":
        with pa.ipc.new_file(str(source), table.schema) as file:
            file.write_table(table)
    only = [{"text": "a"}, {"text": "b"}]
    build(source, tmp_path / "schema", schema={"text": "str"})
    assert read(tmp_path / "schema") == only
    build(source, tmp_path / "map", map=lambda sample: {"text": sample["text"]})
    assert read(tmp_path / "map") == only
    build(source, tmp_path / "seen", map=lambda sample: {"x": repr(sample["x"])})
    assert [sample["x"] for sample in read(tmp_path / "seen")] == [repr(value) for value in table["x"].to_pylist()]
    build(source, tmp_path / "filter", schema={"text": "str"}, filter=lambda sample: sample["x"] is not sample)
    assert read(tmp_path / "filter") == only
    with pytest.raises(rankstore.RankStoreError, match='column "x"'):
        build(source, tmp_path / "all")
    if kind not in ("nulls", "nan"):
        with pytest.raises(rankstore.RankStoreError, match='column "x"'):
            build(source, tmp_path / "extra", schema={"text": "str"}, extra="error")
