# SPDX-License-Identifier: Apache-2.0
"""JSON arrays in files, their objects as columns, and columns that a schema lacks."""
from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from built import same

import rankstore

build = rankstore.build

def read(ds: rankstore.Dataset) -> list[dict[str, Any]]:
    return [ds[i] for i in range(len(ds))]


ALPACA: list[dict[str, Any]] = [{"instruction": f"do {i} ]}}\"", "input": "", "output": "é" * (i % 7)} for i in range(500)]


def test_an_array_gives_what_json_gives(tmp_path: Path) -> None:
    for name, text in (("a.json", json.dumps(ALPACA)), ("b.json", json.dumps(ALPACA, indent=2))):
        (tmp_path / name).write_text(text)
        ds = build(str(tmp_path / name), tmp_path / f"{name}.store")
        same(read(ds), ALPACA)
        assert ds.get(f"{name}:499")["output"] == ALPACA[499]["output"]
    with gzip.open(tmp_path / "c.json.gz", "wt") as file:
        json.dump(ALPACA, file)
    same(read(build(str(tmp_path / "c.json.gz"), tmp_path / "c")), ALPACA)


def test_an_array_inside_an_object(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "squad.json"
    path.write_text(json.dumps({"version": [1], "data": {"train": [{"q": "a", "meta": {"n": 1, "tags": ["x"]}},
                                                                  {"q": "b", "meta": {"n": 2, "tags": []}}]}}, indent=1))
    with pytest.raises(rankstore.DataError, match="its members that are arrays: version; name the one .* json_path=NAME"):
        build(str(path), tmp_path / "never")
    ds = build(str(path), tmp_path / "whole", json_path="data.train")
    same(read(ds), [{"q": "a", "meta": {"n": 1, "tags": ["x"]}}, {"q": "b", "meta": {"n": 2, "tags": []}}])
    assert ds.report.json_columns == "meta"
    assert "json columns: meta (objects and lists as they stand; flatten=True makes columns of objects)" in capfd.readouterr().err
    flat = build(str(path), tmp_path / "flat", json_path="data.train", flatten=True)
    same(read(flat), [{"q": "a", "meta.n": 1, "meta.tags": ["x"]}, {"q": "b", "meta.n": 2, "meta.tags": []}])
    assert (flat.report.json_columns, flat.report.object_columns) == ("meta.tags", "meta.n, meta.tags")


def test_a_map_sees_the_objects_as_they_stand(tmp_path: Path) -> None:
    rows = [{"id": i, **({"even": [{"deep": i}]} if i % 2 == 0 else {"odd": None})} for i in range(50)]
    (tmp_path / "u.json").write_text(json.dumps({"rows": rows}))
    ds = build(str(tmp_path / "u.json"), tmp_path / "u", json_path="rows",
               map=lambda sample: {"text": json.dumps(sample, sort_keys=True)})
    assert [json.loads(ds[i]["text"]) for i in range(50)] == rows
    assert ds.keys[7] == b"u.json:7"
    ds = build(str(tmp_path / "u.json"), tmp_path / "x", json_path="rows", extra="json", schema="id:int64", map=dict)
    assert ds[0] == {"id": 0, "extra": {"even": [{"deep": 0}]}}
    (tmp_path / "bad.json").write_text('[{"a": 1}, 5]')
    with pytest.raises(rankstore.CallbackError, match="an item must hold a JSON object, not int .bad.json:1"):
        build(str(tmp_path / "bad.json"), tmp_path / "bad", map=dict)


def test_lines_in_a_json_file_stay_lines(tmp_path: Path) -> None:
    (tmp_path / "l.json").write_text('{"a": [1, 2]}\n{"a": []}\n')
    assert [sample["a"].tolist() for sample in read(build(str(tmp_path / "l.json"), tmp_path / "l"))] == [[1, 2], []]


def test_what_the_schema_lacks(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"a": i, **({"late": {"x": i}} if i > 1200 else {})} for i in range(1300)]
    (tmp_path / "x.json").write_text(json.dumps(rows))
    sources: list[Any] = [str(tmp_path / "x.json"), rows]
    for i, source in enumerate(sources):
        with pytest.raises(rankstore.DataError, match='column "late" is not in the schema'):
            build(source, tmp_path / f"never{i}", schema="a:int64", extra="error")
        assert dict(build(source, tmp_path / f"drop{i}", extra="drop", schema="a:int64")[1299]) == {"a": 1299}
        ds = build(source, tmp_path / f"json{i}", extra="json", schema="a:int64")
        assert ds[1299] == {"a": 1299, "extra": {"late": {"x": 1299}}}
        assert ds[0]["extra"] is None
        ds = build(source, tmp_path / f"keyed{i}", extra="json", schema="a:int64", key=lambda sample: f"k{sample['a']}")
        assert ds.get("k1299") == {"a": 1299, "extra": {"late": {"x": 1299}}}
        assert ds.get("k0")["extra"] is None
        whole = build(source, tmp_path / f"all{i}", schema="auto:all")
        assert whole[1299]["late"] == {"x": 1299}
        assert whole[0]["late"] is None


def test_options_that_do_not_go_together(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    with pytest.raises(rankstore.ArgumentError, match='extra: \'all\'; it is "error", "drop" or "json"'):
        build([{"a": 1}], tmp_path / "x", extra="all")
    with pytest.raises(rankstore.ArgumentError, match="flatten: only for JSON files"):
        build([{"a": 1}], tmp_path / "x", flatten=True)
    with pytest.raises(rankstore.ArgumentError, match="flatten: not with map, or a function for key or count"):
        build(str(tmp_path / "x.json"), tmp_path / "x", flatten=True, map=dict)
    with pytest.raises(rankstore.ArgumentError, match="flatten: not with map, or a function for key or count"):
        build(str(tmp_path / "x.json"), tmp_path / "x", flatten=True, key=str)
    with pytest.raises(rankstore.ArgumentError, match='"auto:all" reads the source twice'):
        build(iter([{"a": 1}]), tmp_path / "x", schema="auto:all")


def test_none_in_a_json_column_is_its_null(tmp_path: Path) -> None:
    for i, rows in enumerate(([{"j": {"x": 1}}, {"j": None}], [{"j": {"x": 1}, "a": 1}, {"a": 1}])):
        assert [sample["j"] for sample in read(build(rows, tmp_path / str(i)))] == [{"x": 1}, None]
