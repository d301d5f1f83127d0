# SPDX-License-Identifier: Apache-2.0
"""A dataset that is built from an open one has its types and values."""
from __future__ import annotations

import datetime
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
