# SPDX-License-Identifier: Apache-2.0
"""An iterable that is built again: what an interrupted build stored of other items never stays, and a finished dataset opens if its samples
are the iterable's."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from built import build, launched, read

import rankstore


def items(count: int, fail_at: int | None = None, sign: int = 1) -> Iterator[dict[str, Any]]:
    for i in range(count):
        if i == fail_at:
            raise ValueError("the tokenizer broke")
        yield {"i": sign * i, "x": [i] * (i % 4)}


def broken(out: Path, **options: Any) -> None:
    with pytest.raises(rankstore.CallbackError, match="the tokenizer broke"):
        build(items(600, fail_at=450), out, unit_samples=100, **options)
    assert list(out.glob("part-*.rks"))


def test_the_same_items_go_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    broken(out)
    report = build(items(600), out, unit_samples=100)
    assert (report.units, report.units_resumed, report.samples) == (6, 4, 600)
    assert "resumed: 4 of 6 units were there" in capfd.readouterr().err
    assert [sample["i"] for sample in read(out)] == list(range(600))


@pytest.mark.parametrize("options", [{}, {"map": lambda sample: {**sample, "y": sample["i"] % 3}},
                                     {"filter": lambda sample: sample["i"] % 7 != 1}, {"key": lambda sample: f"k{sample['i']}"}])
def test_other_items_are_noticed_and_nothing_of_the_old_ones_stays(options: dict[str, Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    broken(out, **options)
    with pytest.raises(rankstore.DataError, match='"part 0" has other samples than an interrupted build .* the same call builds anew'):
        build(items(600, sign=-1), out, unit_samples=100, **options)
    assert not list(out.glob("part-*"))
    report = build(items(600, sign=-1), out, unit_samples=100, **options)
    assert report.units_resumed == 0
    assert all(sample["i"] <= 0 for sample in read(out))


def test_fewer_items_are_noticed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    broken(out)
    with pytest.raises(rankstore.DataError, match="it ends before unit 2"):
        build(items(200), out, unit_samples=100)
    assert build(items(200), out, unit_samples=100).samples == 200


def test_what_was_refused_leaves_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(rankstore.DataError, match="twice"):
        build(iter([{"i": 1, "k": "a"}, {"i": 2, "k": "a"}]), out, key="k")
    assert not list(out.glob("part-*"))
    assert build(iter([{"i": 3, "k": "a"}, {"i": 4, "k": "b"}]), out, key="k").units_resumed == 0
    assert [sample["i"] for sample in read(out)] == [3, 4]


def test_a_refused_replacement_leaves_the_dataset(tmp_path: Path) -> None:
    out = tmp_path / "out"
    build(iter([{"i": 1, "k": "a"}]), out, key="k")
    with pytest.raises(rankstore.DataError, match="twice"):
        build(iter([{"i": 1, "k": "a"}, {"i": 2, "k": "a"}]), out, key="k", replace=True)
    assert [sample["i"] for sample in read(out)] == [1]


def test_equal_iterables_leave_nothing(tmp_path: Path) -> None:
    lines = launched(2, """
def main(group):
    try:
        build(({"i": i} for i in range(100)), OUT, group=group, unit_samples=10)
    except rankstore.ArgumentError as error:
        say("equal" in str(error))
    with build(({"i": 1000 * group.rank + i} for i in range(100)), OUT, group=group, unit_samples=10) as ds:
        say(ds.report.units_resumed, sorted(ds[i]["i"] for i in range(len(ds))) == [*range(100), *range(1000, 1100)])
""", tmp_path / "out")
    assert sorted(lines) == ["0 True", "0 True", "True", "True"]


def test_a_finished_dataset_opens_if_its_samples_are_the_iterable_s(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    first = build(items(60), out, unit_samples=10)
    again = build(items(60), out, unit_samples=10)
    assert again.kept and again.dataset == first.dataset and again.samples == 60
    assert "the iterable was read, and its samples are the same" in capfd.readouterr().err
    for changed, says in ((items(60, sign=-1), '"part 0" has other samples'), (items(59), '"part 5" has other samples'),
                          (items(50), "ends before unit 5"), (items(70), '"part 6" has other samples')):
        with pytest.raises(rankstore.ArgumentError, match=f"the iterable has other samples now .*{says}.*replace=True"):
            build(changed, out, unit_samples=10)
    with pytest.raises(rankstore.ArgumentError, match="source, options, code or number of ranks were others"):
        build(items(60), out, unit_samples=20)
    assert build(items(1), out, reuse=True).samples == 60
    assert [sample["i"] for sample in read(out)] == list(range(60))


def test_on_ranks(tmp_path: Path) -> None:
    lines = launched(2, """
def main(group):
    for changed in (0, 0, 1):
        try:
            mine = ({"i": 1000 * group.rank + i + changed * group.rank} for i in range(100))
            with build(mine, OUT, group=group, unit_samples=10) as ds:
                say(ds.report.kept, len(ds))
        except rankstore.ArgumentError as error:
            say("part 1" in str(error) and "other samples now" in str(error))
    for _ in range(2):
        with build(({"i": i} for i in range(100)), OUT + "2", group=group, unit_samples=10, same_on_all=True) as ds:
            say(ds.report.kept, len(ds))
""", tmp_path / "out")
    assert sorted(lines) == sorted(["False 200", "True 200", "True", "False 100", "True 100"] * 2)
