# SPDX-License-Identifier: Apache-2.0
"""Columns of Arrow that no type stores block no other."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from built import build, read

import rankstore


def arrow() -> Any:
    return pytest.importorskip("pyarrow")


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
