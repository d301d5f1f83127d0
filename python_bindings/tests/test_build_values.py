# SPDX-License-Identifier: Apache-2.0
"""Whatever samples a user makes: they come back as they were, or are refused with the column's name."""
from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy
import pytest
from built import build, equal, lengths, read
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hn

import rankstore
from rankstore import Columns
from rankstore._schema import infer

NUMBERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "complex64")


@st.composite
def columns(draw: Any) -> Any:
    """A strategy of one column's values."""
    kind = draw(st.sampled_from(["str", "bytes", "int", "float", "bool", "json", "array", "scalar"]))
    if kind == "array":
        fixed = draw(st.lists(st.integers(1, 3), max_size=2))
        dtype = draw(st.sampled_from(NUMBERS))
        return st.integers(0, 5).flatmap(lambda first: hn.arrays(dtype, (first, *fixed),
                                                                 elements=hn.from_dtype(numpy.dtype(dtype), allow_nan=False)))
    return {"str": st.text(st.characters(exclude_categories=["Cs"]), max_size=20), "bytes": st.binary(max_size=20),
            "int": st.integers(-2**63, 2**63 - 1),
            "float": st.floats(allow_nan=False), "bool": st.booleans(), "scalar": st.integers(0, 255).map(numpy.uint8),
            "json": st.dictionaries(st.text("abc", max_size=3), st.integers(-9, 9) | st.none() | st.text("xyz", max_size=3),
                                    max_size=3)}[kind]


@st.composite
def datasets(draw: Any) -> list[dict[str, Any]]:
    names = draw(st.lists(st.text("abcé .", min_size=1, max_size=4), min_size=1, max_size=4, unique=True))
    made = {name: draw(columns()) for name in names}
    return [{name: draw(value) for name, value in made.items()} for _ in range(draw(st.integers(1, 12)))]


@settings(max_examples=60, deadline=None)
@given(samples=datasets())
def test_samples_come_back(samples: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        build(samples, Path(folder) / "out", progress=False)
        for found, wanted in zip(read(Path(folder) / "out"), samples, strict=True):
            for name, value in wanted.items():
                value = value.item() if isinstance(value, numpy.generic) else value
                assert equal(found[name], value), (name, found[name], value)


@settings(max_examples=60, deadline=None)
@given(samples=datasets(), cuts=st.lists(st.integers(0, 12), max_size=3))
def test_schema_is_the_same_however_samples_are_dealt(samples: list[dict[str, Any]], cuts: list[int]) -> None:
    bounds = [0, *sorted(min(cut, len(samples)) for cut in cuts), len(samples)]
    parts = [(rank, infer.infer(samples[start:stop], 100)) for rank, (start, stop) in enumerate(zip(bounds, bounds[1:], strict=False))]
    assert infer.merge(parts) == infer.infer(samples, 100)


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(0, 9), min_size=1, max_size=20), dtype=st.sampled_from(NUMBERS), width=st.integers(0, 3))
def test_columns_are_their_rows(sizes: list[int], dtype: str, width: int) -> None:
    ends = numpy.concatenate([[0], numpy.cumsum(sizes)])
    shape = (int(ends[-1]), width) if width else (int(ends[-1]),)
    given = Columns({"a": (numpy.arange(numpy.prod(shape)).reshape(shape).astype(dtype), ends), "n": numpy.arange(len(sizes))})
    with tempfile.TemporaryDirectory() as folder:
        build(iter([given]), Path(folder) / "arrays", progress=False)
        build(given.rows(), Path(folder) / "rows", progress=False)
        wanted = list(given.rows())
        for name in ("arrays", "rows"):
            for found, sample in zip(read(Path(folder) / name), wanted, strict=True):
                assert equal(found["a"], sample["a"]) and found["n"] == sample["n"]
        assert lengths(Path(folder) / "arrays") == sizes


class Odd:
    def __reduce__(self) -> Any:
        raise RuntimeError("nobody pickles this")


@pytest.mark.parametrize("value", [Odd(), {1, 2}, lambda: 0, 2**70, numpy.array([Odd()]), numpy.array(["a"]), "\ud800", [1, Odd()]])
def test_odd_values_are_refused_by_name(tmp_path: Path, value: Any) -> None:
    for k, before in enumerate(([], [{"fine": 1, "odd": 2}] * 200)):
        with pytest.raises(rankstore.RankStoreError, match='column "odd"'):
            build([*before, {"fine": 1, "odd": value}], tmp_path / str(k))


@pytest.mark.parametrize("value", [0.1 + 1j, 1 + 0.1j, 1e39 + 0j, complex(0, 2**24 + 1)])
def test_a_complex_is_not_rounded_unless_asked_for(tmp_path: Path, value: complex) -> None:
    exact = [{"z": complex(i, -0.5)} for i in range(3000)]
    build(exact, tmp_path / "exact")
    assert [one["z"] for one in read(tmp_path / "exact")] == [one["z"] for one in exact]
    for name, samples in (("first", [{"z": value}]), ("later", [*exact, {"z": value}])):
        with pytest.raises(rankstore.DataError, match=r'column "z": .* is not exact in complex64'):
            build(samples, tmp_path / name)
    report = build([*exact, {"z": value}], tmp_path / "skipped", skip_bad=True)
    assert (report.samples, report.bad) == (3000, 1)
    if abs(value) < 1e38:
        build([{"z": value}], tmp_path / "asked", schema={"z": "complex64"})
        assert read(tmp_path / "asked")[0]["z"] == complex(numpy.complex64(value))


def test_special_complex_numbers_are_exact(tmp_path: Path) -> None:
    build([{"z": complex("inf+nanj")}, {"z": complex(-0.0, 1.5)}], tmp_path / "out")
    assert [repr(one["z"]) for one in read(tmp_path / "out")] == [repr(complex("inf+nanj")), repr(complex(-0.0, 1.5))]


@pytest.mark.parametrize("value", [[2**53 + 1, 0.5], [0.5, -2**53 - 1], [[0.5, 1], [2**62 + 1, 2]], (2**53 + 1, 0.5)])
@pytest.mark.parametrize("schema", [None, "x:float64[*]", "x:float32[*]"])
def test_whole_numbers_among_floats_are_not_rounded(tmp_path: Path, value: Any, schema: str | None) -> None:
    if schema is not None and isinstance(value[0], list):
        schema = schema.replace("[*]", "[*,2]")
    for name, before in (("first", []), ("later", [{"x": [[0.5, 0.5]] if isinstance(value[0], list) else [0.5]}] * 3000)):
        with pytest.raises(rankstore.DataError, match='column "x": -?[0-9]+ stands among floats'):
            build([*before, {"x": value}], tmp_path / name, schema=schema)


def test_what_float64_holds_stands_among_floats(tmp_path: Path) -> None:
    value = [2**53, 2**60, -2**62, 1e300, 0.5, float("inf")]
    build([{"x": value}], tmp_path / "out")
    assert read(tmp_path / "out")[0]["x"].tolist() == value


def test_what_the_schema_lacks(tmp_path: Path) -> None:
    samples = [{"a": 1, "b": "x"}] * 5000
    build(samples, tmp_path / "given", schema={"b": "str"})
    assert read(tmp_path / "given")[0] == {"b": "x"}
    with pytest.raises(rankstore.DataError, match='sample 5000: column "c" is not in the schema'):
        build([*samples, {"a": 1, "b": "x", "c": 2}], tmp_path / "more")
    with pytest.raises(rankstore.DataError, match='sample 5000: column "b" .* is missing'):
        build([*samples, {"a": 1}], tmp_path / "less")
    report = build([*samples, {"a": 1}], tmp_path / "skipped", skip_bad=True)
    assert (report.samples, report.bad) == (5000, 1) and "sample 5000" in report.bad_first


def test_lengths_and_keys_of_callables(tmp_path: Path) -> None:
    samples = [{"a": i, "b": "x" * i} for i in range(30)]
    build(samples, tmp_path / "out", length=lambda sample: sample["a"] * 10 + 1, key=lambda sample: f"k{sample['a']}", length_unit=10,
          index=("a",))
    assert lengths(tmp_path / "out") == [i + 1 for i in range(30)]
    with rankstore.init("solo") as group, rankstore.open(tmp_path / "out", group=group) as dataset:
        assert dataset.get("k7") == samples[7] and list(dataset.index["a"]) == list(range(30))
    for name, options, says in (("length", {"length": lambda sample: -1}, "length returned -1"),
                                ("key", {"key": lambda sample: None}, "key returned NoneType")):
        with pytest.raises(rankstore.DataError, match=says):
            build(samples, tmp_path / name, **options)
    with pytest.raises(rankstore.DataError, match="k0"):
        build(samples, tmp_path / "twice", key=lambda sample: "k0")


def test_progress(tmp_path: Path) -> None:
    seen: list[tuple[str, int, int, int]] = []
    build([{"a": i} for i in range(3000)], tmp_path / "out", progress=lambda *told: seen.append(told))
    assert ("reading", 3000, 3000, 3000) in seen
    build([{"a": i} for i in range(3000)], tmp_path / "quiet", progress=False)


@pytest.mark.parametrize("options", [{"map": 3}, {"filter": "x"}, {"key": 4}, {"length": 1.5}, {"schema": 5}, {"unit_samples": 0},
                                     {"replace": True, "reuse": True}, {"workers": -1}])
def test_wrong_options(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(rankstore.ArgumentError, match=next(iter(options))):
        build([{"a": 1}], tmp_path / "out", **options)


@pytest.mark.parametrize("source", [{"a": 1}, b"x", 3, None, []])
def test_what_is_no_source(tmp_path: Path, source: Any) -> None:
    with pytest.raises(rankstore.RankStoreError):
        build(source, tmp_path / "out")


def test_json_values_are_what_json_dumps_makes_of_them_and_say_why_not(tmp_path: Path) -> None:
    loop: dict[str, Any] = {}
    loop["self"] = loop
    for value in ({"a": [1, {"b": (2.5, None)}], "\u00e9": "\n\u2028"}, [1e300, -0.0], {3: True}, {"n": numpy.arange(3)}):
        build([{"x": value}], tmp_path / "out", schema={"x": "json"}, replace=True)
        plain = {"n": [0, 1, 2]} if isinstance(value, dict) and "n" in value else value
        with rankstore.open(tmp_path / "out") as ds:
            assert json.dumps(ds[0]["x"]) == json.dumps(plain)
    for value, why in ((loop, "Circular reference"), ({"x": float("nan")}, "NaN and infinity, which JSON lacks"),
                       ([{1}], "set cannot be stored as JSON")):
        with pytest.raises(rankstore.DataError, match=f'column "x": not a JSON value: .*{why}'):
            build([{"x": value}], tmp_path / "bad", schema={"x": "json"})
