# SPDX-License-Identifier: Apache-2.0
"""Datasets and parts that commit 7780e08 wrote (tests/fixtures) are refused by name."""
from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest

import rankstore

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures"
ROWS = [{"id": i, "text": f"text {i}"} for i in range(9)]
SHARD = r'an earlier version\'s shard, 1.0 without "shard_in_blocks"; this version reads 1.0 with it: build again'
BLOCK = r"block version 1; this version reads 2: build again"


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    with tarfile.open(FIXTURES / "7780e08.tar.xz") as file:
        file.extractall(tmp_path, filter="data")
    (tmp_path / "in.jsonl").write_text('{"id": 1, "keep": 1, "n": 2, "text": "one"}\n')
    return tmp_path


@pytest.mark.parametrize("way", [
    lambda at: rankstore.open(at / "finished"),
    lambda at: rankstore.build(at / "in.jsonl", at / "finished", append=True, progress=False),
    lambda at: rankstore.build(ROWS, at / "finished", schema='{"id":"int64","keep":"int64","n":"int64","text":"str"}', append=True,
                               map=lambda row: {**row, "keep": 1, "n": 1}, progress=False),
    lambda at: rankstore.build(at / "in.jsonl", at / "python", reuse=True, progress=False)])
def test_a_dataset_is_refused(earlier: Path, way: Any) -> None:
    before = sorted((path, path.stat().st_mtime_ns) for path in earlier.glob("*/*"))
    with pytest.raises(rankstore.RankStoreError, match=SHARD):
        way(earlier)
    assert sorted((path, path.stat().st_mtime_ns) for path in earlier.glob("*/*") if path.name != "build.lock") == before


def test_what_it_was_made_from_is_not_compared(earlier: Path) -> None:
    with pytest.raises(rankstore.ArgumentError,
                       match="an earlier version of Rankstore built it, which compares by rule 1, this one by rule 3; "
                                                      'replace=True or "if_changed" builds anew'):
        rankstore.build(earlier / "in.jsonl", earlier / "python", progress=False)
    with rankstore.build(earlier / "in.jsonl", earlier / "python", replace="if_changed", progress=False) as dataset:
        assert len(dataset) == 1


@pytest.mark.parametrize("append", [False, True])
@pytest.mark.parametrize(("name", "says"), [("unsealed", BLOCK), ("sealed", SHARD)])
def test_an_unfinished_part_is_refused_until_it_is_removed(earlier: Path, name: str, says: str, append: bool) -> None:
    for source in (ROWS, earlier / "in.jsonl"):
        with pytest.raises(rankstore.RankStoreError, match=says + "; remove this unfinished part"):
            rankstore.build(source, earlier / name, append=append, progress=False)
    for path in earlier.glob(f"{name}/part-*"):
        path.unlink()
    with rankstore.build(ROWS, earlier / name, append=append, progress=False) as dataset:
        assert len(dataset) == len(ROWS)
