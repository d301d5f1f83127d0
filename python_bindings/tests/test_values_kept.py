# SPDX-License-Identifier: Apache-2.0
"""What goes in comes out: no source changes a value without a word. Each value is refused, or is the same from every source that has it."""
from __future__ import annotations

import json
import subprocess
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


@pytest.mark.parametrize("first", [[[]], [None]])
def test_empty_lists_and_nulls_take_the_type_of_another_file(first: list[Any], tmp_path: Path) -> None:
    pa = arrow()
    import pyarrow.parquet as parquet
    for name, values in (("a", first), ("b", [[2, 3]])):
        parquet.write_table(pa.table({"x": pa.array(values)}), tmp_path / f"{name}.parquet")
    build([tmp_path / "a.parquet", tmp_path / "b.parquet"], tmp_path / "out")
    with rankstore.open(tmp_path / "out") as ds:
        assert ds.schema["x"].text == "int64[*]?" and ds[1]["x"].tolist() == [2, 3]
        assert ds[0]["x"] is None if first == [None] else ds[0]["x"].tolist() == []


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
