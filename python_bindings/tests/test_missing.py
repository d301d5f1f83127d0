# SPDX-License-Identifier: Apache-2.0
"""Shards that are on no rank's disk: the error says whose they are, and `missing="partial"` prints what it leaves out."""
import socket

import pytest

import rankstore


@pytest.fixture
def torn(tmp_path):
    directory = tmp_path / "d"
    with rankstore.build([{"x": [i] * 5, "t": "a" * 200} for i in range(1000)], directory, unit_samples=100):
        pass
    with rankstore.build([{"x": [i] * 5, "t": "b" * 200} for i in range(500)], directory, unit_samples=100, append=True):
        pass
    newest = max(directory.glob("part-*.rks"), key=lambda path: path.stat().st_mtime_ns)
    for ending in (".rks", ".json", ".sums"):
        newest.with_suffix(ending).unlink()
    return directory


def test_the_error_names_samples_host_and_option(torn):
    with pytest.raises(rankstore.NotFoundError) as failed:
        rankstore.open(torn)
    text = str(failed.value)
    assert "1 of 2 shards are on no rank's disk, with 500 of 1500 samples" in text
    assert f"built by {socket.gethostname()}:{torn}" in text
    assert 'missing="partial"' in text


def test_a_partial_opening_prints_what_it_leaves_out(torn, capfd):
    with rankstore.open(torn, missing="partial") as ds:
        assert "1 of 2 shards missing: 500 of 1,500 samples left out" in capfd.readouterr().err
        figures = ds.stats()
        assert (figures["shards"], figures["missing_shards"], figures["missing_samples"]) == (2, 1, 500)
        assert len(ds) == 1500
        assert ds[999]["x"][0] == 999
        with pytest.raises(rankstore.NotFoundError):
            ds[1000]


def test_a_whole_dataset_prints_nothing(tmp_path, capfd):
    with rankstore.build([{"x": [1]}] * 10, tmp_path / "d"):
        pass
    capfd.readouterr()
    for missing in ("error", "partial"):
        with rankstore.open(tmp_path / "d", missing=missing) as ds:
            assert ds.stats()["missing_shards"] == 0
    assert "missing" not in capfd.readouterr().err


def test_other_words_are_refused(torn):
    with pytest.raises(rankstore.ArgumentError, match='"some" is not "error" or "partial"'):
        rankstore.open(torn, missing="some")
    with pytest.raises(rankstore.ArgumentError, match='now missing="partial"'):
        rankstore.open(torn, partial=True)
