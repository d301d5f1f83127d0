# SPDX-License-Identifier: Apache-2.0
"""Times, decimals and maps of several sources: what is stored, and what is refused. docs/types.md has the plain cases."""
from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy
import pytest
from built import build, read

import rankstore
from rankstore.errors import ArgumentError, DataError

pa = pytest.importorskip("pyarrow")
ZONE = dt.timezone(dt.timedelta(hours=1))
MOMENT = dt.datetime(2020, 1, 1, 12, 30, 0, 250000)


def schema_of(path: Path) -> dict[str, str]:
    with rankstore.open(path) as ds:
        return {name: column.text for name, column in ds.schema.items()}


def column(values: list[Any], kind: Any) -> Any:
    return pa.table({"x": pa.array(values, kind)})


def written(path: Path, table: Any) -> str:
    import pyarrow.parquet as parquet
    parquet.write_table(table, path)
    return str(path)


@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("ns", "Europe/Berlin"), pa.date32(), pa.time64("us"), pa.duration("us"),
                                  pa.decimal128(7, 2), pa.map_(pa.string(), pa.int64()), pa.list_(pa.timestamp("us")),
                                  pa.struct([("t", pa.timestamp("us")), ("m", pa.map_(pa.string(), pa.decimal128(3, 1)))])])
def test_a_map_that_returns_its_sample_builds_the_same_dataset(kind: Any, tmp_path: Path) -> None:
    values: dict[str, Any] = {"timestamp": MOMENT, "date32": MOMENT.date(), "time64": MOMENT.time(), "duration": dt.timedelta(seconds=1.5),
                              "decimal128": 1, "map": {"a": 1}.items(), "list": [MOMENT],
                              "struct": {"t": MOMENT, "m": [("a", 1)]}}
    value = next(one for name, one in values.items() if str(kind).startswith(name))
    table = pa.table({"x": pa.array([list(value) if str(kind).startswith("map") else value], kind), "text": ["a"]})
    build(table, tmp_path / "plain")
    build(table, tmp_path / "mapped", map=dict)
    with rankstore.open(tmp_path / "plain") as plain, rankstore.open(tmp_path / "mapped") as mapped:
        assert plain.id == mapped.id


def test_functions_get_times_not_numbers(tmp_path: Path) -> None:
    import decimal
    table = pa.table({"t": [MOMENT], "d": [decimal.Decimal("1.10")], "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8()))})
    seen: list[dict[str, Any]] = []
    build(table, tmp_path / "a", filter=lambda sample: seen.append(sample) or True)
    assert seen == [{"t": MOMENT, "d": decimal.Decimal("1.10"), "m": {"k": 1}}]
    build(table, tmp_path / "b", map=lambda sample: {"iso": sample["t"].isoformat(), "year": sample["t"].year})
    assert read(tmp_path / "b") == [{"iso": MOMENT.isoformat(), "year": 2020}]


@pytest.mark.parametrize("asked", ["str?", "json"])
def test_a_schema_with_text_stores_iso_8601(asked: str, tmp_path: Path) -> None:
    table = pa.table({"t": [MOMENT, None], "z": pa.array([MOMENT.replace(tzinfo=ZONE)] * 2, pa.timestamp("us", "+01:00")),
                      "d": pa.array([MOMENT.date()] * 2), "l": [dt.timedelta(days=-1, microseconds=5)] * 2})
    build(table, tmp_path / "out", schema={"t": asked, "z": asked, "d": asked, "l": asked})
    assert read(tmp_path / "out") == [
        {"t": "2020-01-01T12:30:00.250000", "z": "2020-01-01T12:30:00.250000+01:00", "d": "2020-01-01", "l": "-PT86399.999995S"},
        {"t": None, "z": "2020-01-01T12:30:00.250000+01:00", "d": "2020-01-01", "l": "-PT86399.999995S"}]


@pytest.mark.parametrize("nulls", [False, True])
def test_files_of_two_units_get_the_finer_one(nulls: bool, tmp_path: Path) -> None:
    files = [written(tmp_path / "ms.parquet", column([5, None if nulls else 6], pa.timestamp("ms"))),
             written(tmp_path / "us.parquet", column([5, 7], pa.timestamp("us")))]
    build(files, tmp_path / "out")
    assert schema_of(tmp_path / "out") == {"x": "int64(timestamp_us)" + "?" * nulls}
    assert [sample["x"] for sample in read(tmp_path / "out")] == [5000, None if nulls else 6000, 5, 7]


def test_a_time_that_does_not_fit_the_unit_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"1500 ms does not fit int64\(timestamp_s\)"):
        build(column([1500], pa.timestamp("ms")), tmp_path / "a", schema={"x": "int64(timestamp_s)"})
    with pytest.raises(DataError, match=f"{2**62} s does not fit"):
        build(column([2**62], pa.timestamp("s")), tmp_path / "b", schema={"x": "int64(timestamp_us)"})
    with pytest.raises(DataError, match=r"2020-01-01 12:30:00.250000 does not fit timestamp_s"):
        build([{"x": MOMENT}], tmp_path / "c", schema={"x": "int64(timestamp_s)"})
    build(column([1000], pa.timestamp("ms")), tmp_path / "d", schema={"x": "int64(timestamp_s)"})
    assert read(tmp_path / "d") == [{"x": 1}]


@pytest.mark.parametrize("source", [column([5, None], pa.timestamp("ms")), column([5], pa.timestamp("ms")), [{"x": MOMENT}],
                                    [{"x": numpy.array(MOMENT, "M8[ms]")}], {"x": numpy.array([MOMENT], "M8[ms]")}])
def test_times_in_a_column_of_plain_numbers_are_refused(source: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"timestamp_"):
        build(source, tmp_path / "out", schema={"x": "int64?"})


@pytest.mark.parametrize(("first", "then"), [
    (MOMENT, MOMENT.replace(tzinfo=ZONE)), (MOMENT, 5), (MOMENT, MOMENT.date()), (dt.time(1), dt.timedelta(1)), ([MOMENT], [5])])
def test_what_means_something_else_is_refused(first: Any, then: Any, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no type holds both"):
        build([{"x": first}, {"x": then}], tmp_path / "out")


def test_a_column_of_nulls_takes_the_type_of_other_files(tmp_path: Path) -> None:
    files = [written(tmp_path / "a.parquet", pa.table({"x": pa.nulls(1), "y": pa.nulls(1)})),
             written(tmp_path / "b.parquet", pa.table({"x": ["q"], "y": pa.array([[1, 2]], pa.list_(pa.int32(), 2))}))]
    build(files, tmp_path / "out")
    assert schema_of(tmp_path / "out") == {"x": "str?", "y": "int32[2]?"}
    found = read(tmp_path / "out")
    assert [sample["x"] for sample in found] == [None, "q"] and found[0]["y"] is None and found[1]["y"].tolist() == [1, 2]


@pytest.mark.parametrize(("item", "shown"), [("float32", numpy.float32(1.1).item()), ("float64", 1.1), ("str", "1.10")])
def test_decimals_become_what_the_schema_asks_for(item: str, shown: Any, tmp_path: Path) -> None:
    import decimal
    table = pa.table({"x": [decimal.Decimal("1.10")]})
    build(table, tmp_path / "out", schema={"x": item})
    assert read(tmp_path / "out") == [{"x": shown}]
    with pytest.raises(DataError, match="decimals as int64"):
        build(table, tmp_path / "whole", schema={"x": "int64"})


def test_a_map_with_a_key_twice_is_refused(tmp_path: Path) -> None:
    table = column([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int8()))
    with pytest.raises(DataError, match='column "x".*duplicate key'):
        build(table, tmp_path / "out")


@pytest.mark.parametrize(("array", "kind", "shown"), [
    (pa.RunEndEncodedArray.from_arrays(pa.array([1, 3], pa.int32()), pa.array(["a", "b"])), "str", ["a", "b", "b"]),
    (pa.array([[1], [], [2, 3]], pa.list_(pa.int64())), "int64[*]", [[1], [], [2, 3]]),
    (pa.array([{"a": "x"}, {"a": "y"}], pa.struct([("a", pa.dictionary(pa.int8(), pa.string()))])), "json", [{"a": "x"}, {"a": "y"}])])
def test_encoded_columns_are_their_values(array: Any, kind: str, shown: list[Any], tmp_path: Path) -> None:
    build(pa.table({"x": array}), tmp_path / "out")
    assert schema_of(tmp_path / "out") == {"x": kind}
    assert [sample["x"].tolist() if kind.endswith("]") else sample["x"] for sample in read(tmp_path / "out")] == shown


@pytest.mark.skipif(not hasattr(pa, "list_view"), reason="this pyarrow has no list_view")
def test_views_are_lists_and_bytes(tmp_path: Path) -> None:
    table = pa.table({"l": pa.array([[1], None, [2, 3]], pa.list_view(pa.int64())), "b": pa.array([b"a", None, b"c"], pa.binary_view())})
    build(table, tmp_path / "out")
    assert schema_of(tmp_path / "out") == {"l": "int64[*]?", "b": "bytes?"}
    found = read(tmp_path / "out")
    assert [sample["l"] if sample["l"] is None else sample["l"].tolist() for sample in found] == [[1], None, [2, 3]]
    assert [sample["b"] for sample in found] == [b"a", None, b"c"]


def test_columns_keep_the_unit_through_a_map(tmp_path: Path) -> None:
    columns = rankstore.Columns({"x": numpy.array([5, 6], "M8[ms]"), "y": (numpy.array([1, 2, 3], "m8[s]"), [0, 1, 3])})
    build([columns], tmp_path / "a")
    build([columns], tmp_path / "b", map=dict)
    assert schema_of(tmp_path / "a") == schema_of(tmp_path / "b") == {"x": "int64(timestamp_ms)", "y": "int64(duration_s)[*]"}
    assert [sample["x"] for sample in read(tmp_path / "b")] == [5, 6]
    with pytest.raises(DataError, match="NaT"):
        rankstore.Columns({"x": numpy.array([5, "NaT"], "M8[ms]")})


def test_changed_times_of_a_frame_are_another_source(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    build(pandas.DataFrame({"x": [pandas.Timestamp(MOMENT)]}), tmp_path / "out")
    with pytest.raises(ArgumentError, match="source differs|source"):
        build(pandas.DataFrame({"x": [pandas.Timestamp(MOMENT) + pandas.Timedelta(1, "s")]}), tmp_path / "out")


def test_files_are_appended_in_the_unit_of_the_dataset(tmp_path: Path) -> None:
    build(column([5], pa.timestamp("us")), tmp_path / "out")
    build(column([6], pa.timestamp("ms")), tmp_path / "out", append=True)
    assert [sample["x"] for sample in read(tmp_path / "out")] == [5, 6000]


def test_times_beyond_their_type_are_refused_and_long_durations_are_exact() -> None:
    import numpy

    from rankstore._schema import times

    assert times.as_text(numpy.array([10**12, -5], "timedelta64[s]")) == ["PT1000000000000S", "-PT5S"]
    assert times.as_text(numpy.timedelta64(400 * 365, "D")) == f"PT{400 * 365 * 86400}S"
    with pytest.raises(ValueError, match="has no text of its own"):
        times.as_text(numpy.timedelta64(1, "ps"))
    with pytest.raises(ValueError, match=r"does not fit int32\(date\)"):
        times.scaled("d", "int32(date)", "int32(date)", numpy.array([2**40]))
