# SPDX-License-Identifier: Apache-2.0
"""min_length, max_length, sample and dedup, by the core's reading and by Python's."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from built import build, dataset_id, keys, read

import rankstore
from rankstore.errors import ArgumentError


def rows(count: int) -> list[dict[str, Any]]:
    return [{"n": i, "text": "x" * (i % 10)} for i in range(count)]


def jsonl(path: Path, samples: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(sample) + "\n" for sample in samples))
    return path


READERS = pytest.mark.parametrize("how", [{}, {"map": dict}], ids=["core", "python"])


@READERS
def test_lengths(tmp_path: Path, how: dict[str, Any]) -> None:
    with rankstore.build(jsonl(tmp_path / "a.jsonl", rows(100)), tmp_path / "out", length="text", min_length=3,
                         max_length=5, **how) as ds:
        assert ds.report.samples == 30 and ds.report.filtered == 70
        assert sorted(set(ds.lengths)) == [3, 4, 5]


@READERS
def test_dedup_keeps_the_first_of_equal_contents(tmp_path: Path, how: dict[str, Any]) -> None:
    source = jsonl(tmp_path / "a.jsonl", rows(100))
    with rankstore.build(source, tmp_path / "out", key="n", dedup=True, **how) as ds:
        assert (ds.report.samples, ds.report.duplicates, ds.report.sampled_out) == (10, 90, 0)
        assert [ds[i]["n"] for i in range(10)] == list(range(10)) and ds.keys[9] == b"9"
        first = ds.report
    with rankstore.build(source, tmp_path / "out", key="n", dedup=True, **how) as again:  # what is there is opened
        assert (again.report.bytes, again.report.duplicates) == (first.bytes, 90)
    with pytest.raises(ArgumentError):
        build(source, tmp_path / "out", key="n", **how)


@READERS
def test_a_sample_of_n_and_a_share(tmp_path: Path, how: dict[str, Any]) -> None:
    source = jsonl(tmp_path / "a.jsonl", rows(2000))
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        with rankstore.build(source, tmp_path / name, sample=77, seed=seed, **how) as ds:
            assert (ds.report.samples, ds.report.sampled_out) == (77, 1923)
    assert dataset_id(tmp_path / "a") == dataset_id(tmp_path / "b") != dataset_id(tmp_path / "c")
    assert len(set(keys(tmp_path / "a"))) == len(read(tmp_path / "a")) == 77
    with rankstore.build(source, tmp_path / "share", sample=0.25, **how) as ds:
        assert 400 < ds.report.samples < 600 and ds.report.samples + ds.report.sampled_out == 2000


@pytest.mark.parametrize("sample", [0, -1, 1.0, 0.0, 2**32, True, "10%"])
def test_what_no_sample_is(tmp_path: Path, sample: Any) -> None:
    with pytest.raises(ArgumentError, match="sample: "):
        rankstore.build(jsonl(tmp_path / "a.jsonl", rows(3)), tmp_path / "out", sample=sample)
