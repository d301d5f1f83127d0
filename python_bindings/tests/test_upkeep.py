# SPDX-License-Identifier: Apache-2.0
"""Datasets as wholes: merged, pruned, exported, compared."""
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from built import build, command, launched, read, same

import rankstore


def numbers(first: int, last: int) -> list[dict[str, Any]]:
    return [{"id": f"k{i}", "n": i, "text": "x" * (i % 7)} for i in range(first, last)]


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    with rankstore.init("solo"):
        yield


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    """k0..k29 and k30..k49."""
    a, b = tmp_path / "a", tmp_path / "b"
    build(numbers(0, 30), a, key="id", length="n")
    build(numbers(30, 50), b, key="id", length="n")
    return a, b


def test_merged(two: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = two
    told: list[tuple[Any, ...]] = []
    made = rankstore.merge([a, f"{b}@1"], tmp_path / "both", progress=lambda *one: told.append(one))
    assert (made.samples, made.copied_bytes) == (50, 0) and made.linked_bytes > 0 and told
    same(read(tmp_path / "both"), numbers(0, 50))
    copied = rankstore.merge([a, b], tmp_path / "copied", copy=True)
    assert (copied.linked_bytes, copied.copied_bytes, copied.dataset) == (0, made.linked_bytes, made.dataset)
    assert rankstore.diff(tmp_path / "both", tmp_path / "copied").equal


def test_what_cannot_be_merged(two: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = two
    build(numbers(7, 8), tmp_path / "seven", key="id", length="n")
    with pytest.raises(rankstore.DataError, match="k7"):
        rankstore.merge([a, tmp_path / "seven"], tmp_path / "both")
    with pytest.raises(rankstore.DataError, match="hold shards of one dataset, not two"):
        rankstore.merge([a, a], tmp_path / "both")
    build([{"id": "q", "other": 1.5}], tmp_path / "other", key="id")
    with pytest.raises(rankstore.ArgumentError, match="schema"):
        rankstore.merge([a, tmp_path / "other"], tmp_path / "both")
    with pytest.raises(rankstore.NotFoundError, match="missing"):
        rankstore.merge([a, tmp_path / "missing"], tmp_path / "both")
    with pytest.raises(rankstore.ArgumentError, match="list of directories"):
        rankstore.merge(str(a), tmp_path / "both")
    with pytest.raises(TypeError, match="progress: a callable"):
        rankstore._core.merge(rankstore.current().core, [str(a), str(b)], str(tmp_path / "both"), progress=1)  # type: ignore[arg-type]
    assert not (tmp_path / "both").exists()
    with pytest.raises(rankstore.ArgumentError):
        rankstore.merge([a, b], a)


def test_pruned(two: tuple[Path, Path], tmp_path: Path) -> None:
    a, _ = two
    build(numbers(100, 120), a, append=True)
    build(numbers(200, 220), a, append=True)
    (a / "ended.rks-part").write_bytes(b"x" * 100)
    counted = rankstore.prune(a, keep=2, dry_run=True)
    with rankstore.open(a) as dataset:
        assert len(dataset.generations) == 3
    assert rankstore.prune(a, keep=2) == counted and counted.generations == 1
    with rankstore.open(a) as dataset:
        assert len(dataset) == 70 and [one["generation"] for one in dataset.generations] == [2, 3]
    with pytest.raises(rankstore.ArgumentError, match="keep: 0"):
        rankstore.prune(a, keep=0)
    with pytest.raises(rankstore.NotFoundError):
        rankstore.prune(tmp_path / "missing")


def test_exported(two: tuple[Path, Path], tmp_path: Path) -> None:
    a, _ = two
    made = rankstore.export(a, tmp_path / "all.jsonl")
    assert (made.samples, made.filtered, made.to, made.keys_left) == (30, 0, "jsonl", False)
    assert [json.loads(line) for line in (tmp_path / "all.jsonl").open()] == numbers(0, 30)
    with rankstore.open(a) as dataset:
        chosen = rankstore.export(dataset, tmp_path / "chosen.npz", where="n >= 20", columns=["n"])
        assert (chosen.samples, chosen.filtered, chosen.to) == (10, 20, "npz")
        with pytest.raises(rankstore.ArgumentError, match="chosen.npz"):
            rankstore.export(dataset, tmp_path / "chosen.npz")
        assert rankstore.export(dataset, tmp_path / "chosen.npz", force=True).samples == 30
        with pytest.raises(rankstore.ArgumentError, match="not a selection"):
            rankstore.export(dataset.select([1, 2]), tmp_path / "some.jsonl")
        with pytest.raises(rankstore.ArgumentError, match="nothing"):
            rankstore.export(dataset, tmp_path / "some.jsonl", columns=["nothing"])
        assert len(dataset) == 30  # it is still open
    assert not (tmp_path / "some.jsonl").exists()
    build(str(tmp_path / "all.jsonl"), tmp_path / "again", key="id", length="n")
    assert rankstore.diff(a, tmp_path / "again").equal


def test_compared(two: tuple[Path, Path], tmp_path: Path) -> None:
    a, _ = two
    build([{**one, "n": one["n"] + (one["n"] == 12)} for one in numbers(5, 33)], tmp_path / "other", key="id", length="n")
    with rankstore.open(a) as one, rankstore.open(tmp_path / "other") as other:
        found = rankstore.diff(one, other, head=2)
        assert (found.same, found.only_a, found.only_b, found.changed, found.equal) == (24, 5, 3, 1, False)
        assert [(each.kind, each.key) for each in found.differences if each.kind == "changed"] == [("changed", b"k12")]
        for each in found.differences:
            assert each.id_a == (None if each.kind == "only_b" else one.keys.find(each.key))
            assert each.id_b == (None if each.kind == "only_a" else other.keys.find(each.key))
        assert sorted(each.kind for each in found.differences) == ["changed", "only_a", "only_a", "only_b", "only_b"]
        assert rankstore.diff(one, other, columns=["text"]).changed == 0
        assert rankstore.diff(one, one) == rankstore.DiffReport(30, 0, 0, 0, "")
    with pytest.raises(rankstore.StateError, match="closed"):
        rankstore.diff(one, other)
    with pytest.raises(TypeError, match="Store"):
        rankstore._core.diff(3, 4)  # type: ignore[arg-type]


def test_a_quarantine_is_in_neither(two: tuple[Path, Path], tmp_path: Path) -> None:
    a, _ = two
    with rankstore.open(a) as whole:
        whole.write_quarantine(tmp_path / "bad.json", range(5, 15))
        with rankstore.open(a, quarantine=tmp_path / "bad.json") as fewer:
            assert rankstore.diff(fewer, fewer) == rankstore.DiffReport(20, 0, 0, 0, "")
            found = rankstore.diff(fewer, whole, head=100)
            assert (found.same, found.only_b) == (20, 10)
            assert sorted(one.key for one in found.differences) == sorted(f"k{i}".encode() for i in range(5, 15))
            assert rankstore.diff(whole, fewer).only_a == 10


def test_reports_are_the_command_line_s(two: tuple[Path, Path], tmp_path: Path) -> None:
    """The same figures under the same names."""
    a, b = map(str, two)
    apart = {"schema_version", "directory", "target", "dry_run", "equal", "only_a_keys", "only_b_keys", "changed_keys", "home"}
    cases: list[tuple[type, list[Any], set[str]]] = [
        (rankstore.MergeReport, ["merge", a, b, "-o", tmp_path / "both"], set()),
        (rankstore.ExportReport, ["export", a, "-o", tmp_path / "out.tar"], set()),
        (rankstore.PublishReport, ["publish", a, tmp_path / "home"], set()),
        (rankstore.StageReport, ["stage", a, tmp_path / "local"], set()),
        (rankstore.PruneReport, ["prune", a], {"names"}),
        (rankstore.DiffReport, ["diff", a, a], {"differences"}),
    ]
    for kind, line, only_here in cases:
        assert set(kind.__dataclass_fields__) - only_here == set(json.loads(command(*line, "--json"))) - apart


@pytest.mark.parametrize("call", ["merge", "publish", "export", "diff"])
def test_what_progress_raises_is_raised(two: tuple[Path, Path], tmp_path: Path, call: str) -> None:
    def progress(*_: Any) -> None:
        raise LookupError("enough")

    a, b = two
    with pytest.raises(LookupError, match="enough"):
        if call == "merge":
            rankstore.merge([a, b], tmp_path / "out", progress=progress)
        elif call == "publish":
            rankstore.publish(a, tmp_path / "out", progress=progress)
        elif call == "export":
            rankstore.export(a, tmp_path / "out", to="dir", progress=progress)
        else:
            rankstore.diff(a, b, progress=progress)


def test_on_several_ranks(two: tuple[Path, Path], tmp_path: Path) -> None:
    """Three ranks: the same report on all, differences on rank 0; a failure is every rank's."""
    a, b = map(str, two)
    lines = launched(3, f"""
def main(group):
    made = rankstore.merge([{a!r}, {b!r}], OUT)
    wrote = rankstore.export(OUT, OUT + ".jsonl", progress=False)
    found = rankstore.diff({a!r}, OUT)
    pruned = rankstore.prune(OUT)
    try:
        rankstore.merge([{a!r}, {a!r}], OUT + "-twice")
    except rankstore.DataError as error:
        say(group.rank, made.samples, wrote.samples, found.same, found.only_b, len(found.differences), pruned.files,
            "hold shards of one dataset, not two" in str(error))
""", tmp_path / "out")
    assert sorted(lines) == [f"{rank} 50 50 30 20 {10 * (rank == 0)} 0 True" for rank in range(3)]
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 50


def test_ranks_that_ask_for_different_things(two: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = map(str, two)
    lines = launched(2, f"""
def main(group):
    other = group.rank == 1
    calls = (
        lambda: rankstore.export({a!r}, OUT + (".jsonl" if other else ".tar")),
        lambda: rankstore.export({a!r}, OUT, where="n > 5" if other else "n > 6"),
        lambda: rankstore.export({a!r}, OUT, where="n > 5" if other else None),
        lambda: rankstore.export({a!r}, OUT, columns=["n", "id"] if other else ["n"]),
        lambda: rankstore.diff({a!r}, {b!r}, columns=["n"] if other else ["id"]),
        lambda: rankstore.diff({a!r}, {b!r}, columns=["n"] if other else None),
        lambda: rankstore.prune({a!r}, keep=1 if other else 2),
        lambda: rankstore.prune({a!r}, dry_run=other),
    )
    for number, call in enumerate(calls):
        try:
            call()
        except rankstore.ArgumentError as error:
            say(number, str(error).replace("differs between rank 0 and rank 1", "differs"))
""", tmp_path / "out")
    wanted = ["export: target", "export: where", "export: where", "export: columns", "diff: columns", "diff: columns",
              "prune: keep", "prune: dry_run"]
    assert sorted(lines) == sorted(2 * [f"{number} {name} differs" for number, name in enumerate(wanted)])
    assert list(tmp_path.glob("out*")) == []
