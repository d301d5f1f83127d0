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
