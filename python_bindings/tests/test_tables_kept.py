# SPDX-License-Identifier: Apache-2.0
"""Tables and datasets of other libraries: their missing values, narrower types that a schema gives, and what they inherit."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from built import build, read

import rankstore
from rankstore.errors import DataError


@pytest.mark.parametrize("kind", ["str", "object", "category"])
def test_nan_in_texts_of_pandas_is_a_missing_value(kind: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"x": pandas.Series(["a", None, float("nan")], dtype=kind), "y": [0.5, None, 1.5]})
    build(frame, tmp_path / "out")
    found = read(tmp_path / "out")
    assert [sample["x"] for sample in found] == ["a", None, None]
    assert found[1]["y"] != found[1]["y"]  # a float's NaN is a number
    build(frame[["x"]], tmp_path / "json", schema={"x": "json"})
    assert [sample["x"] for sample in read(tmp_path / "json")] == ["a", None, None]


@pytest.mark.parametrize(("source", "kind"), [("table", "int8"), ("columns", "int8"), ("table", "uint64"), ("columns", "uint8")])
def test_a_schema_makes_integers_narrower_if_they_fit(source: str, kind: str, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")

    def given(values: list[int]) -> Any:
        return pa.table({"x": values, "l": [[one] for one in values]}) if source == "table" else [
            rankstore.Columns({"x": numpy.array(values), "l": (numpy.array(values), range(len(values) + 1))})]
    asked = {"x": kind, "l": f"{kind}[*]"}
    build(given([0, 100]), tmp_path / "out", schema=asked)
    found = read(tmp_path / "out")
    assert [sample["x"] for sample in found] == [0, 100] and found[1]["l"].tolist() == [100] and found[1]["l"].dtype == kind
    for bad in (300, -300) if kind.endswith("8") else (-1,):
        with pytest.raises(DataError, match=f'column "x": {bad} does not fit {kind}'):
            build(given([0, bad]), tmp_path / "bad", schema=asked)


@pytest.mark.parametrize("kind", ["dataset", "union", "scanner", "file", "reader"])
def test_what_pyarrow_reads_lazily_is_a_table(kind: str, tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.dataset
    import pyarrow.parquet
    table = pa.table({"key": [f"k{i}" for i in range(300)], "ids": [list(range(i % 7)) for i in range(300)]})
    (tmp_path / "in").mkdir()
    pyarrow.parquet.write_table(table, tmp_path / "in" / "a.parquet", row_group_size=50)
    files = pyarrow.dataset.dataset(tmp_path / "in")
    given = {"dataset": lambda: files, "union": lambda: pyarrow.dataset.dataset([files]), "scanner": files.scanner,
             "file": lambda: pyarrow.parquet.ParquetFile(tmp_path / "in" / "a.parquet"),
             "reader": lambda: files.scanner().to_reader()}[kind]
    build(given(), tmp_path / "out", key="key")
    build(table, tmp_path / "table", key="key")
    with rankstore.open(tmp_path / "out") as lazy, rankstore.open(tmp_path / "table") as whole:
        assert lazy.id == whole.id and lazy[7]["ids"].tolist() == []
    assert rankstore.build(given(), tmp_path / "out", key="key") is not None  # the same again: it opens


def test_iterable_datasets_with_a_length_are_iterated(tmp_path: Path) -> None:
    data = pytest.importorskip("torch.utils.data")

    class Given(data.IterableDataset):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Any:
            return iter([{"x": i} for i in range(3)])

        def __len__(self) -> int:
            return 3

    build(Given(), tmp_path / "one")
    build(data.ChainDataset([Given(), Given()]), tmp_path / "two")
    assert [sample["x"] for sample in read(tmp_path / "one")] == [0, 1, 2]
    assert [sample["x"] for sample in read(tmp_path / "two")] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("form", ["numpy", "torch", "pandas", "arrow"])
def test_a_format_of_hugging_face_changes_no_value(form: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict({"x": [1, 2], "y": ["a", "b"]})
    build(made, tmp_path / "plain")
    build(made.with_format(form), tmp_path / form)
    with rankstore.open(tmp_path / "plain") as plain, rankstore.open(tmp_path / form) as formed:
        assert plain.id == formed.id
