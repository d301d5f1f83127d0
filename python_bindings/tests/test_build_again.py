# SPDX-License-Identifier: Apache-2.0
"""A dataset that is built from an open one has its types and values."""
from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import numpy
import pytest

import rankstore


def rows() -> list[dict[str, Any]]:
    return [{"when": datetime.datetime(2020, 1, 1, 0, 0, i), "day": datetime.date(2020, 1, 1 + i), "small": numpy.int8(i),
             "n": numpy.int32(i), "half": numpy.float16(i / 2), "x": numpy.arange(i, dtype=numpy.uint16),
             "name": f"n{i}", "doc": {"a": [i, None]}, "maybe": None if i % 2 else i} for i in range(9)]


def test_types_and_values_stay(tmp_path: Path) -> None:
    with rankstore.build(rows(), tmp_path / "a") as ds, rankstore.build(ds, tmp_path / "b") as again:
        assert {name: one.text for name, one in again.schema.items()} == {name: one.text for name, one in ds.schema.items()}
        assert again.schema["when"].text.startswith("int64(timestamp") and again.schema["n"].text == "int32"
        for one, other in zip(ds, again, strict=True):
            assert one.keys() == other.keys()
            for name, value in one.items():
                assert numpy.array_equal(value, other[name]) if name == "x" else value == other[name], name


@pytest.mark.parametrize("way", ["ds.map", "map=", "select"])
def test_functions_and_selections(tmp_path: Path, way: str) -> None:
    def change(sample: dict[str, Any]) -> dict[str, Any]:
        return {"n": int(sample["n"]) + 2 ** 40, "text": "t"}

    with rankstore.build(rows(), tmp_path / "a") as ds:
        source = ds.map(change) if way == "ds.map" else ds.select([3, 1]) if way == "select" else ds
        with rankstore.build(source, tmp_path / "b", map=change if way == "map=" else None) as again:
            if way == "select":
                assert [one["n"] for one in again] == [3, 1] and again.schema["when"].text == ds.schema["when"].text
            else:
                assert [one["n"] for one in again] == [i + 2 ** 40 for i in range(9)] and again.schema["n"].text == "int64"


OPTIONS: dict[str, dict[str, Any]] = {
    "derived keys": {}, "a key column": {"key": "id"}, "a key function": {"key": lambda s: "x" + s["id"]},
    "a length function": {"length": lambda s: s["n"] % 7}, "a length column": {"length": "chars:text", "length_unit": 4},
    "filtered": {"where": "n > 9"}, "an index column": {"index": ["n"]}}


@pytest.mark.parametrize("what", OPTIONS)
def test_the_same_samples_are_the_same_dataset(tmp_path: Path, what: str) -> None:
    """Units, keys and lengths are taken over."""
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps({"text": "w" * (i % 97 + 1), "n": i, "id": f"k{i}"}) + "\n" for i in range(3000)))
    with rankstore.build(lines, tmp_path / "a", unit_size="16KiB", **OPTIONS[what]) as ds, \
            rankstore.build(ds, tmp_path / "b") as again, rankstore.build(again, tmp_path / "c") as thrice:
        assert ds.id == again.id == thrice.id
        assert list(ds.keys[:3]) == list(again.keys[:3]) and ds.lengths.tolist() == again.lengths.tolist()
        assert ds.info()["units"] == again.info()["units"] > 5
        assert ds.index.keys() == again.index.keys()
    with rankstore.open(tmp_path / "a") as ds, rankstore.build(ds, tmp_path / "b") as again:
        assert again.report is not None and again.report.kept  # known by its id


@pytest.mark.parametrize("source", ["a list", "an iterable", "an append"])
def test_of_other_sources_too(tmp_path: Path, source: str) -> None:
    samples = [{"x": [i] * (i % 5)} for i in range(300)]
    rankstore.build(iter(samples) if source == "an iterable" else samples, tmp_path / "a", unit_samples=50).close()
    if source == "an append":
        rankstore.build(samples, tmp_path / "a", append=True).close()
    with rankstore.open(tmp_path / "a") as ds, rankstore.build(ds, tmp_path / "b") as again:
        assert ds.id == again.id


def test_what_changes_the_samples_changes_the_id(tmp_path: Path) -> None:
    samples = [{"x": [i] * (i % 5 + 1)} for i in range(300)]
    with rankstore.build(samples, tmp_path / "a") as ds:
        whole = ds.id
        for number, (source, options) in enumerate([
                (ds.select(range(299, -1, -1)), {}), (ds, {"map": lambda s: s}), (ds, {"key": lambda s: str(s["x"][0])}),
                (ds, {"filter": lambda s: s["x"][0] != 7}), (ds, {"unit_samples": 7})]):
            with rankstore.build(source, tmp_path / f"b{number}", **options) as other:  # type: ignore[arg-type]
                assert other.id != whole and len(other) in (299, 300)
        with rankstore.build([ds[i] for i in range(300)], tmp_path / "c") as other:
            assert other.id == whole  # units of the same number of samples are cut alike
