# SPDX-License-Identifier: Apache-2.0
"""Objects with __getitem__ and __len__ that are built again: their code and state count, not only type and length."""
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from built import read

import rankstore
from rankstore.errors import ArgumentError, CallbackError


class Numbers:
    def __init__(self, first: int, values: Any = None) -> None:
        self.first, self.values = first, values

    def __len__(self) -> int:
        return 600

    def __getitem__(self, i: int) -> dict[str, int]:
        if self.first == 1 and i == 500 and getattr(self, "fails", False):
            raise RuntimeError("a bad disk")
        return {"x": self.first + i}


def test_an_equal_object_opens_the_finished_dataset(tmp_path: Path) -> None:
    rankstore.build(Numbers(1), tmp_path / "out", progress=False).close()
    with rankstore.build(Numbers(1), tmp_path / "out", progress=False) as ds:
        assert ds.report.kept


@pytest.mark.parametrize(("first", "then"), [
    (Numbers(1), Numbers(2)), (Numbers(1, [1, 2]), Numbers(1, [1, 3])), (Numbers(1, numpy.arange(9)), Numbers(1, numpy.arange(9)[::-1]))])
def test_an_object_with_another_state_is_another_source(first: Any, then: Any, tmp_path: Path) -> None:
    rankstore.build(first, tmp_path / "out", progress=False).close()
    with pytest.raises(ArgumentError, match="source: (first|values)"):
        rankstore.build(then, tmp_path / "out", progress=False)
    with rankstore.build(then, tmp_path / "out", progress=False, replace="if_changed") as ds:
        assert ds[0]["x"] == then.first


def test_a_version_stands_for_the_object(tmp_path: Path) -> None:
    rankstore.build(Numbers(1), tmp_path / "out", progress=False, version="a").close()
    with rankstore.build(Numbers(2), tmp_path / "out", progress=False, version="a") as ds:
        assert ds.report.kept and ds[0]["x"] == 1


def test_units_of_another_object_are_not_resumed(tmp_path: Path) -> None:
    failing = Numbers(1)
    failing.fails = True  # type: ignore[attr-defined]
    with pytest.raises(CallbackError, match="a bad disk"):
        rankstore.build(failing, tmp_path / "out", progress=False, unit_samples=16)
    rankstore.build(Numbers(5), tmp_path / "out", progress=False, unit_samples=16).close()
    assert [sample["x"] for sample in read(tmp_path / "out")] == list(range(5, 605))


def test_a_mapped_file_is_not_read_for_the_comparison(tmp_path: Path) -> None:
    numpy.arange(1 << 16).tofile(tmp_path / "data")
    for i in range(2):
        mapped = numpy.memmap(tmp_path / "data", numpy.int64, "r")
        with rankstore.build(Numbers(1, mapped), tmp_path / "out", progress=False) as ds:
            assert ds.report.kept == (i == 1)
