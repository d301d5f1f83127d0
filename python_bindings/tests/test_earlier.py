# SPDX-License-Identifier: Apache-2.0
"""Datasets and parts of earlier versions (tests/fixtures), and the unit size that a directory keeps."""
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import rankstore

FIXTURES = Path(__file__).parents[2] / "tests" / "fixtures"
OPTIONS = {"skip_bad": True, "where": "keep == 1", "length": "text", "progress": False}
ID = "817f7ba1f3c1971126192d9f2a98fb7c"  # as the earlier version named it


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    place = tmp_path_factory.mktemp("earlier")
    with tarfile.open(FIXTURES / "7780e08.tar.xz") as file:
        file.extractall(place, filter="data")
    subprocess.run([sys.executable, FIXTURES / "lines.py", "in.jsonl", "more.jsonl"], cwd=place, check=True)
    return place


def test_what_an_earlier_version_finished_is_opened_by_the_same_call(earlier, capfd):
    with rankstore.build(earlier / "in.jsonl", earlier / "python", **OPTIONS) as dataset:
        assert dataset.id == ID and len(dataset) == 84
    assert "nothing is built" in capfd.readouterr().err


def test_what_an_earlier_version_left_unfinished_is_gone_on_with(earlier):
    for name in ("unsealed", "sealed"):
        with rankstore.build(earlier / "in.jsonl", earlier / name, **OPTIONS) as dataset:
            assert dataset.id == ID
            assert (dataset.report.units, dataset.report.units_resumed, dataset.report.unit_size) == (1, 1, 64 << 20)
            assert dataset.info()["unit_size"] == 64 << 20


def test_an_append_takes_the_unit_size_of_the_dataset(earlier):
    with rankstore.build(earlier / "more.jsonl", earlier / "python", append=True, **OPTIONS) as dataset:
        assert (len(dataset), dataset.report.unit_size) == (158, 64 << 20)


def _stop(sample):
    if sample["id"] == 8_999 and os.environ.get("STOP_HERE"):
        raise RuntimeError("stopped")
    return sample


def test_samples_of_a_map_are_cut_as_the_parts_that_are_there(earlier, tmp_path, monkeypatch):
    """Also where the size was asked for before, and is not now."""
    monkeypatch.setenv("STOP_HERE", "1")
    with pytest.raises(rankstore.CallbackError, match="stopped"):
        rankstore.build(earlier / "in.jsonl", tmp_path / "d", map=_stop, unit_size="100KiB", progress=False)
    monkeypatch.delenv("STOP_HERE")
    with rankstore.build(earlier / "in.jsonl", tmp_path / "d", map=_stop, unit_size="100KiB", progress=False) as dataset:
        units, name = dataset.report.units, dataset.id
        assert dataset.report.unit_size == 100 << 10 and 0 < dataset.report.units_resumed < units
        assert dataset.info()["unit_size"] == 100 << 10
    with rankstore.build(earlier / "in.jsonl", tmp_path / "d", map=_stop, replace=True, progress=False) as dataset:
        assert dataset.report.unit_size == 1 << 20  # asked for without it: another build
        assert dataset.id != name
    with rankstore.build(earlier / "in.jsonl", tmp_path / "d", map=_stop, replace=True, progress=False) as dataset:
        assert dataset.report.unit_size == 1 << 20
    with rankstore.build(earlier / "more.jsonl", tmp_path / "d", map=_stop, append=True, progress=False) as dataset:
        assert dataset.report.unit_size == 1 << 20


def test_arrays_of_fixed_size_are_as_long_as_the_first_one(tmp_path):
    """But in what was built before, also after an append."""
    rows = [{"n": i, "tokens": [i, i + 1, i + 2]} for i in range(500, 600)]
    for name, append in (("first", False), ("appended", True)):
        with rankstore.build(rows, tmp_path / name, schema="n:int64,tokens:uint16[3]", append=append, progress=False) as dataset:
            assert dataset.lengths.tolist() == [3] * 100 and dataset.length_column == "tokens"
            assert ", length tokens, " in repr(dataset)
            assert dataset.report.length == dataset.info()["length"] == "items of tokens, 3 each"
            assert max(map(len, dataset.plan(max_tokens=40, length_multiple=1).sampler())) == 13
    with tarfile.open(FIXTURES / "fixed.tar.xz") as file:
        file.extractall(tmp_path, filter="data")
    with rankstore.build(rows, tmp_path / "fixed", append=True, progress=False) as dataset:
        assert dataset.lengths.tolist() == [1] * 200 and ", length 1 each, " in repr(dataset)
        assert dataset.report.length == dataset.info()["length"] == "1 each"


@pytest.mark.parametrize(("options", "shown", "text"), [
    ({}, "text", "bytes of text"), ({"length": "chars:text"}, "chars:text", "characters of text"),
    ({"length": "n", "length_unit": 4}, "n / 4", "the number in n / 4, rounded up"),
    ({"length": "pair", "length_unit": 2}, "pair / 2", "items of pair, 2 each / 2, rounded up"),
    ({"length": lambda sample: 7}, "of a function", "what a function said"),
    ({"schema": "n:int64"}, "1 each", "1 each"), ({"key": "text", "schema": "text:str,n:int64"}, "1 each", "1 each"),
])
def test_a_build_says_what_lengths_count(tmp_path, options, shown, text):
    rows = [{"n": i, "pair": [i, i], "text": f"row {i}"} for i in range(9)]
    for kept in (False, True):
        given = {"schema": "n:int64,pair:int32[2],text:str", **options}
        with rankstore.build(rows, tmp_path / "d", progress=False, **given) as dataset:
            assert dataset.report.kept == kept and f", length {shown}, " in repr(dataset)
            assert dataset.report.length == dataset.info()["length"] == text
