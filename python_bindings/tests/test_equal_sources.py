# SPDX-License-Identifier: Apache-2.0
"""Under a launcher equal sources are split between ranks, and different ones are added; nothing appears twice unasked."""
from __future__ import annotations

import re
from pathlib import Path

import pytest
from built import launched, read

import rankstore

SOURCES = {"a generator": "({'i': i, 'x': [i] * 3} for i in range(100))", "a map": "map(lambda i: {'i': i, 'x': [i]}, range(100))",
           "columns": "[Columns({'i': np.arange(s, s + 50)}) for s in (0, 50)]"}
REFUSED = ("source: the streams of rank 0 and rank 1 are equal (100 samples; the first and last 4 items are equal, digest D), and each "
           "sample would be there twice; same_on_all=True splits them between ranks, each_rank=True adds them all the same")


@pytest.mark.parametrize("kind", SOURCES)
def test_equal_iterables_are_asked_about(kind: str, tmp_path: Path) -> None:
    lines = launched(2, f"""
def main(group):
    try:
        build({SOURCES[kind]}, OUT, group=group)
    except rankstore.ArgumentError as error:
        say(str(error))
    with build({SOURCES[kind]}, OUT, group=group, same_on_all=True, unit_samples=10) as ds:
        say(len(ds))
    with build({SOURCES[kind]}, OUT + "2", group=group, each_rank=True) as ds:
        say(len(ds))
""", tmp_path / "out")
    told = [re.sub("digest [0-9a-f]{40}", "digest D", line) for line in lines]
    assert sorted(told) == sorted([REFUSED, REFUSED, "100", "100", "200", "200"])
    assert [sample["i"] for sample in read(tmp_path / "out")] == list(range(100))


def test_lists_of_each_rank_are_added(tmp_path: Path) -> None:
    lines = launched(2, """
def main(group):
    mine = [{"i": 100 * group.rank + i} for i in range(10)]
    try:
        build(mine, OUT, group=group)
    except rankstore.ArgumentError as error:
        say(str(error))
    with build(mine, OUT, group=group, each_rank=True) as ds:
        say(sorted(ds[i]["i"] for i in range(len(ds))))
""", tmp_path / "out")
    refused = ("source: sample 0 of rank 0 and of rank 1 differ; a list is the same on all ranks, and is split between them; "
               "each_rank=True adds the lists of all ranks")
    both = str([*range(10), *range(100, 110)])
    assert sorted(lines) == sorted([refused, refused, both, both])


def test_what_excludes_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    for source, options, says in (([{"i": 1}], {"each_rank": True, "same_on_all": True},
                                   "each_rank and same_on_all cannot be used together"),
                                  (tmp_path / "a.txt", {"each_rank": True},
                                   "each_rank: only for samples in memory; files are split between all ranks")):
        with pytest.raises(rankstore.ArgumentError) as raised:
            rankstore.build(source, tmp_path / "out", **options)
        assert str(raised.value).removeprefix("rank 0: ") == says
