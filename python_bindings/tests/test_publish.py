# SPDX-License-Identifier: Apache-2.0
"""Datasets and their homes: published, opened there, added to."""
from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from built import build, launched, read, same

import rankstore


def numbers(first: int, last: int) -> list[dict[str, Any]]:
    return [{"id": f"k{i}", "n": i, "text": "x" * (i % 7)} for i in range(first, last)]


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    with rankstore.init("solo"):
        yield


def files(directory: Path) -> set[str]:
    return {one.name for one in directory.iterdir()} - {"rankstore.home"}


def test_published_and_opened_there(tmp_path: Path) -> None:
    there, home = tmp_path / "there", tmp_path / "far" / "home"
    build(numbers(0, 30), there, key="id", length="n")
    counted: list[tuple[Any, ...]] = []
    dry = rankstore.publish(there, home, dry_run=True)
    assert not home.exists()
    made = rankstore.publish(there, home, progress=lambda *one: counted.append(one))
    assert (made.generation, made.before, made.shards, made.sent_shards, made.there_bytes, made.nothing_to_do) == (1, 0, 1, 1, 0, False)
    assert made.sent_bytes > dry.sent_bytes > 0 and counted and files(there) == files(home)
    same(read(home), numbers(0, 30))
    again = rankstore.publish(there, home)
    assert (again.sent_shards, again.sent_bytes, again.dataset) == (0, 0, made.dataset) and again.there_bytes > 0
    with rankstore.open(there) as a, rankstore.open(home) as b:
        one, other = (list(ds.loader(ds.plan("random", batch_size=4, seed=3))) for ds in (a, b))
        assert [list(batch.ids) for batch in one] == [list(batch.ids) for batch in other]


def test_an_append_goes_home_and_an_open_dataset_refreshes(tmp_path: Path) -> None:
    there, home = tmp_path / "there", tmp_path / "home"
    build(numbers(0, 30), there, key="id", length="n")
    rankstore.publish(there, home)
    with rankstore.open(home) as ds:
        build(numbers(30, 50), there, key="id", length="n", append=True)
        assert not ds.refresh()
        made = rankstore.publish(there, home)
        assert (made.generation, made.before, made.sent_shards, made.shards) == (2, 1, 1, 2)
        assert ds.refresh() and len(ds) == 50
    assert (there / "python.json").read_text() == (home / "python.json").read_text()
    same(read(f"{home}@1"), numbers(0, 30))


def test_a_build_publishes_and_a_published_one_is_not_built_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there, home = tmp_path / "there", tmp_path / "home"
    for _ in range(2):
        with rankstore.build(numbers(0, 30), there, key="id", home=home) as ds:
            assert len(ds) == 30
        same(read(home), numbers(0, 30))
    written = {one.name: one.stat().st_mtime_ns for one in home.iterdir()}
    with rankstore.build(numbers(0, 30), home, key="id") as ds:  # its python.json came along: it is known to be the same
        assert len(ds) == 30
    assert written == {one.name: one.stat().st_mtime_ns for one in home.iterdir()}
    with rankstore.build(numbers(30, 40), there, key="id", append=True, home=home) as ds:
        assert len(ds) == 40
    same(read(home), numbers(0, 40))


def waits_for_home(home: Path, count: int, last: int, first: int = 0) -> Iterator[dict[str, Any]]:
    """Samples, the last ones of which come when so many shards have arrived at home."""
    yield from ({"id": f"k{i}", "data": bytes([i % 251]) * 5000} for i in range(first, last - 10))
    end = time.monotonic() + 60
    while len(list(home.glob("part-*.json"))) < count:
        assert time.monotonic() < end, f"after 60 s home has {files(home) if home.exists() else None}"
        time.sleep(0.01)
    yield from ({"id": f"k{i}", "data": bytes([i % 251]) * 5000} for i in range(last - 10, last))


SMALL_SHARDS: dict[str, Any] = {"key": "id", "max_shard": "256KiB", "unit_samples": 20}


def test_a_build_sends_shards_home_while_it_builds_others(tmp_path: Path) -> None:
    """The samples do not end before shards are at home; no reader sees them there until all are."""
    there, home = tmp_path / "there", tmp_path / "home"

    def samples() -> Iterator[dict[str, Any]]:
        yield from waits_for_home(home, 3, 400)
        assert "dataset.json" not in files(home)

    with rankstore.build(samples(), there, home=home, **SMALL_SHARDS) as ds:
        assert len(ds) == 400
    assert files(there) == files(home)
    before = len(list(home.glob("part-*.json")))
    assert before > 4
    with rankstore.build(waits_for_home(home, before + 2, 700, 400), there, append=True, home=home, **SMALL_SHARDS) as ds:
        assert len(ds) == 700
    assert files(there) == files(home)
    with rankstore.open(home) as ds:
        assert [ds[i]["data"] for i in (0, 399, 699)] == [bytes([i % 251]) * 5000 for i in (0, 399, 699)]
    again = rankstore.publish(there, home)
    assert again.sent_bytes == 0


def test_a_build_that_ends_early_leaves_shards_at_home_that_the_next_one_uses(tmp_path: Path) -> None:
    there, home = tmp_path / "there", tmp_path / "home"

    def fails() -> Iterator[dict[str, Any]]:
        yield from waits_for_home(home, 2, 400)
        raise OSError("the source went away")

    with pytest.raises(rankstore.CallbackError, match="the source went away"):
        rankstore.build(fails(), there, home=home, **SMALL_SHARDS)
    assert "dataset.json" not in files(home) and not list(home.glob("*.sending"))
    kept = {path: path.stat().st_mtime_ns for path in home.glob("part-*.json")}
    with rankstore.build(waits_for_home(home, 2, 400), there, home=home, **SMALL_SHARDS) as ds:
        assert len(ds) == 400
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    with rankstore.open(home) as ds:
        assert len(ds) == 400


def test_nothing_is_sent_ahead_to_a_home_that_holds_another_dataset(tmp_path: Path) -> None:
    home = tmp_path / "home"
    rankstore.build(numbers(0, 30), tmp_path / "first", key="id", home=home).close()
    before = files(home)
    with pytest.raises(rankstore.StateError, match="publish it to another home"):
        rankstore.build(waits_for_home(home, 0, 400), tmp_path / "second", home=home, **SMALL_SHARDS)
    assert files(home) == before
    with rankstore.open(tmp_path / "second") as ds:  # it was built all the same
        assert len(ds) == 400


def test_what_is_refused(tmp_path: Path) -> None:
    there, other, home = tmp_path / "there", tmp_path / "other", tmp_path / "home"
    build(numbers(0, 30), there, key="id")
    build(numbers(5, 30), other, key="id")
    rankstore.publish(there, home)
    with pytest.raises(rankstore.StateError, match="is not a later state; publish it to another home"):
        rankstore.publish(other, home)
    with pytest.raises(rankstore.ArgumentError, match="is or lies in"):
        rankstore.publish(there, there / "home")
    with pytest.raises(rankstore.NotFoundError, match="no dataset here"):
        rankstore.publish(tmp_path / "missing", home)
    with pytest.raises(rankstore.ArgumentError, match="s3://...: has a password in it"):
        rankstore.publish(there, "s3://me:word@bucket/x")
    with pytest.raises(rankstore.ArgumentError, match="storage_options: only for a URL"):
        rankstore.publish(there, home, storage_options={"region": "x"})
    with pytest.raises(TypeError, match="progress: a callable"):
        rankstore._core.publish(rankstore.current().core, str(there), str(home), progress=1)  # type: ignore[arg-type]
    (home / "dataset.claim").write_text("digest 00000000000000000000000000000000\npid 1 on another-host\n")
    build(numbers(30, 40), there, key="id", append=True)
    with pytest.raises(rankstore.StateError, match=r"another process changes this home \(pid 1 on another-host\)"):
        rankstore.publish(there, home)
    with pytest.raises(rankstore.StateError, match="changes this home"):
        rankstore.prune(home)
    same(read(home), numbers(0, 30))


EACH_HAS = """
def main(group):
    source = [{"id": f"k{i}", "n": i, "text": "x" * (i % 7)} for i in range(300)]
    rankstore.build(source, sys.argv[1], key="id", unit_samples=20, length="n").close()
    for _ in range(2):
        report = rankstore.publish(sys.argv[1], sys.argv[2])
        say(report.before, report.generation, report.sent_shards, report.sent_bytes > 0, report.there_bytes > 0)
"""


def test_all_ranks_publish_what_each_has(tmp_path: Path) -> None:
    home = tmp_path / "home"
    lines = launched(3, EACH_HAS, tmp_path / "d-{rank}", str(home))
    assert sorted(lines) == 3 * ["0 1 3 True False"] + 3 * ["1 1 0 False True"], lines
    same(read(home), numbers(0, 300))
    assert len(list(home.glob("part-*.rks"))) == 3


OWN_HOMES = """
import os
def main(group):
    os.makedirs(f"{sys.argv[2]}-{group.rank}")
    os.chdir(f"{sys.argv[2]}-{group.rank}")
    try:
        rankstore.publish(sys.argv[1], "home")
    except rankstore.ArgumentError as refused:
        say(refused.args[0])
"""


def test_ranks_that_see_different_homes_are_refused(tmp_path: Path) -> None:
    build(numbers(0, 30), tmp_path / "there", key="id")
    lines = launched(2, OWN_HOMES, tmp_path / "there", str(tmp_path / "at"))
    assert len(lines) == 2 and all("does not see what rank 0 sees under this name" in line for line in lines), lines
    assert files(tmp_path / "at-0" / "home") == set()
