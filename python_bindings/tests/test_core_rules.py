# SPDX-License-Identifier: Apache-2.0
"""Rules that Python asks the library for: what a type is, what bounds a plan's batches, what a dataset that is not open holds."""
from __future__ import annotations

import itertools
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import rankstore
from rankstore import _core
from rankstore._batching import limits
from rankstore._provenance import dataset_json
from rankstore._schema import types


def test_types_are_those_of_numpy() -> None:
    for item in types.ITEMS:
        found = types.describe(item)
        dtype = numpy.dtype(types.BITS.get(item, item))
        assert types.numpy_dtype(item) == dtype and found.size == dtype.itemsize and found.dims == () and not found.nullable
        if item not in types.BITS:
            assert found.kind[0] == {"b": "b", "i": "i", "u": "u", "f": "f", "c": "c"}[dtype.kind]
        if types.is_integer(item):
            assert types.int_range(item) == (numpy.iinfo(item).min, numpy.iinfo(item).max)
    assert set(types.BITS) == {"bfloat16", "float8_e4m3fn", "float8_e5m2"} and set(types.TEXT) == {"str", "bytes", "json"}
    assert set(types.BITS) | types.TEXT < set(_core.item_types())


def test_columns_have_their_dimensions() -> None:
    for text, item, dims, nullable in (("float16[80,*]?", "float16", (80, None), True), ("uint8[*,*,3]", "uint8", (None, None, 3), False),
                                       ("str", "str", (), False), ("json?", "json", (), True), ("int64", "int64", (), False)):
        column = types.parse("x", text)
        assert (column.item, column.dims, column.nullable, column.text) == (item, dims, nullable, text)
        assert column.varies == (None in dims) and column.is_text == (item in types.TEXT) and column.is_scalar == (text == "int64")
    for wrong in ("", "int33", "str[3]", "int32[0]", "int32??", "x:int32"):
        with pytest.raises(ValueError, match="is not a type"):
            types.describe(wrong)


def rules() -> Iterator[dict[str, Any]]:
    for strategy, too_long, longest in itertools.product(("bucket", "random", "pack"), ("drop", "truncate", "split", "alone"), (None, 90)):
        if strategy == "pack":
            if too_long != "alone":
                yield {"strategy": strategy, "too_long": too_long, "max_length": longest, "capacity": 128, "batch_size": 3}
            continue
        for cost, budget, multiple in itertools.product(("padded", "tokens"), (None, 1000, 1001), (None, 16)):
            yield {"strategy": strategy, "too_long": too_long, "max_length": longest, "cost": cost, "max_tokens": budget,
                   "length_multiple": multiple}


def test_limits_hold_in_every_plan() -> None:
    lengths = numpy.arange(400, dtype=numpy.uint32) * 7919 % 300 + 1
    seen = 0
    for asked in rules():
        made = rankstore.plan(lengths, **asked)
        rule, report = made.rule, made.report(0)
        capped = [bound
                  for bound in (asked["max_length"], asked.get("capacity"), (asked.get("max_tokens") or 0) // rule.multiple * rule.multiple)
                  if bound]
        limit = min(capped, default=0)
        packed = asked["strategy"] == "pack" or asked["cost"] == "tokens"
        assert rule.multiple == (asked.get("length_multiple") or (1 if packed else math.gcd(8, asked["max_tokens"] or 8)))
        assert rule.sums == (asked["strategy"] == "pack" or bool(asked["max_tokens"]) and asked["cost"] == "tokens")
        assert rule.budget == (128 * 3 if asked["strategy"] == "pack" else asked["max_tokens"] or 0)
        assert rule.cut == (limit if asked["too_long"] == "truncate" else 0)
        assert rule.split == (limit if asked["too_long"] == "split" else 0)
        assert rule.longest == (limit if asked["too_long"] in ("drop", "split") else 0)
        assert rule.row == asked.get("capacity", 0)
        if rule.budget and asked["too_long"] != "alone":
            assert report["largest_batch"] <= rule.budget
        seen += 1
    assert seen > 100


def test_wrong_options_are_refused_like_by_a_plan() -> None:
    for wrong in ({"strategy": "buckets"}, {"strategy": "pack"}, {"max_tokens": 4, "length_multiple": 8}, {"cost": "polynomial"}):
        with pytest.raises(rankstore.ArgumentError) as limited:
            limits.rule_of(wrong)
        with pytest.raises(rankstore.ArgumentError) as planned:
            _core.Plan(numpy.ones(4, numpy.uint32), **wrong)
        assert str(limited.value) == str(planned.value)


def build(directory: Path, first: int, count: int = 5) -> rankstore.Dataset:
    samples = ({"n": first + i, "ids": list(range(i + 1))} for i in range(count))
    return rankstore.build(list(samples), directory, schema={"n": "int64", "ids": "int32[*]"}, index=["n"], where="n != 3", append=True)


def test_figures_are_those_of_the_reports(tmp_path: Path) -> None:
    """Also of a dataset whose units are in lists."""
    for number in range(12):
        build(tmp_path / "store", 5 * number).close()
    assert any(name.endswith(".units") for name in os.listdir(tmp_path / "store"))
    with rankstore.open(tmp_path / "store") as ds:
        info, found = ds.info(), dataset_json.described(str(tmp_path / "store"))
        assert found is not None
        for name in set(found) - {"directory", "length_column", "length_unit", "made_from"}:
            assert found[name] == info[name], name
        figures = dataset_json.figures(str(tmp_path / "store"))
        assert figures == {"length": "items of ids", "samples": 59, "filtered": 1, "bad": 0, "bytes": info["bytes"], "units": info["units"],
                           "duplicates": 0, "sampled_out": 0}
        assert ds.length_column == "ids" and ds.length_unit == 1
    older = dataset_json.described(f"{tmp_path / 'store'}@3")
    assert older is not None and (older["generation"], older["samples"]) == (3, 14)


def test_a_directory_without_a_dataset_has_no_figures(tmp_path: Path) -> None:
    empty = dataset_json.figures(str(tmp_path))
    assert empty == {"length": "", **dict.fromkeys(dataset_json.FIGURES, 0)}
    assert dataset_json.described(str(tmp_path)) is None
    assert dataset_json.finished(str(tmp_path))["dataset"] is None


def test_a_damaged_dataset_is_not_described(tmp_path: Path) -> None:
    build(tmp_path / "store", 0).close()
    path = tmp_path / "store" / "dataset.json"
    good = path.read_bytes()
    for size in range(0, len(good), 7):
        path.write_bytes(good[:size])
        assert dataset_json.finished(str(tmp_path / "store"))["dataset"] is None
        with pytest.raises(rankstore.RankStoreError, match="dataset.json"):
            dataset_json.figures(str(tmp_path / "store"))
    path.write_bytes(good)
    assert dataset_json.finished(str(tmp_path / "store"))["dataset"] == json.loads(good)["dataset"]


@pytest.mark.parametrize("schema, column, expected", [
    ({"n": "int64", "a": "uint16[3]", "b": "uint8[2]"}, "a", 3),
    ({"__key__": "str", "t": "str"}, "t", 4),
    ({"__key__": "str", "a": "uint16[3]"}, "a", 3),
    ({"n": "int64"}, None, 1),
])
def test_a_first_append_counts_like_a_first_build(schema: dict[str, str], column: str | None, expected: int, tmp_path: Path) -> None:
    values = {"int64": 1, "uint16[3]": [1, 2, 3], "uint8[2]": [1, 2], "str": "four"}
    for append in (False, True):
        where = tmp_path / f"append-{append}"
        sample = {name: "a longer key" if name == "__key__" else values[kind] for name, kind in schema.items()}
        for _ in range(2 if append else 1):
            rankstore.build([sample], where, schema=schema, append=append).close()
        with rankstore.open(where) as ds:
            assert ds.lengths.tolist() == [expected] * len(ds) and ds.length_column == column
