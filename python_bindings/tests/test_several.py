# SPDX-License-Identifier: Apache-2.0
"""Several datasets as one: `concat`, and `open` of several directories."""
from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path
from typing import Any

import numpy
import pytest

import rankstore
from rankstore.errors import ArgumentError, StateError


def make(path: Path, rows: list[dict[str, Any]], **options: Any) -> Path:
    source = path.with_suffix(".jsonl")
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    rankstore.build(source, path, **options).close()
    return path


def web(count: int = 30) -> list[dict[str, Any]]:
    return [{"id": f"w{i}", "text": "web " * (1 + i % 5), "score": i, "url": f"http://{i}"} for i in range(count)]


def code(count: int = 20) -> list[dict[str, Any]]:
    return [{"text": "code " * (1 + i % 7), "id": f"c{i}", "score": 100 + i} for i in range(count)]


@pytest.fixture
def two(tmp_path: Path) -> list[Path]:
    return [make(tmp_path / "web", web(), key="id", index=["score"], length="text"),
            make(tmp_path / "code", code(), key="id", index=["score"], length="text")]


def test_samples_of_the_first_come_first(two: list[Path]) -> None:
    with rankstore.open(two) as ds:
        assert len(ds) == 50 and [one.name for one in ds.sources] == ["web", "code"]
        assert list(ds.schema) == ["id", "text", "score", "url"]
        assert ds[3] == web()[3] and ds[34] == {**code()[4], "url": None}
        assert ds[[49, 0]] == [{**code()[19], "url": None}, web()[0]]
        assert list(ds.index["score"]) == [*range(30), *range(100, 120)]
        assert ds.get("c7")["score"] == 107 and ds.keys.find("c7") == 37 and ds.keys[37] == b"c7"
        assert [one.samples for one in ds.sources] == [30, 20] and ds.sources[1].first == 30
        assert list(ds.source_of([0, 29, 30, 49])) == [0, 0, 1, 1]
        assert [one["name"] for one in ds.info()["sources"]] == ["web", "code"]
        assert ds.length_column == "text" and ds.nbytes == sum(one.bytes for one in ds.sources)


def test_a_batch_names_its_samples_sources(two: list[Path]) -> None:
    with rankstore.open(two, names=["a", "b"]) as ds:
        plan = ds.plan("random", batch_size=8)
        seen = []
        for batch in ds.loader(plan, collate=rankstore.Lists(missing="mask"), out="numpy"):
            assert batch.source.dtype == numpy.uint16
            assert [int(s) for s in batch.source] == [int(i >= 30) for i in batch.ids]
            assert [bool(gone) for gone in batch.missing["url"]] == [int(i) >= 30 for i in batch.ids]
            seen += batch.ids.tolist()
        assert sorted(seen) == list(range(50))
        assert list(ds.collating(columns=["score"]).__getitems__([0, 45]).source) == [0, 1]
    with pytest.raises(StateError):
        rankstore.Batch().source  # noqa: B018


def test_columns_that_are_not_asked_for_may_differ(two: list[Path], tmp_path: Path) -> None:
    other = make(tmp_path / "other", [{"text": "x", "score": "high"}], length="text")
    with pytest.raises(ArgumentError, match='dataset other: column "score" is str, but int64 in dataset web'):
        rankstore.open([two[0], other])
    with rankstore.open([two[0], other], columns=["text"]) as ds:
        assert list(ds.schema) == ["text"] and ds[30] == {"text": "x"} and ds[1] == {"text": "web web "}
    with pytest.raises(ArgumentError, match="no dataset has a column"):
        rankstore.open([two[0], other], columns=["texts"])
    with rankstore.open(two[0], columns=["url", "id"]) as ds:
        assert ds[2] == {"id": "w2", "url": "http://2"}


def test_a_key_of_several_sources_needs_one(two: list[Path], tmp_path: Path) -> None:
    with rankstore.open([two[0], two[0]], names=["a", "b"]) as ds:
        with pytest.raises(ArgumentError, match="several sources, a and b"):
            ds.get("w3")
        assert ds.keys.find("w3", source="b") == 33 and ds.get("w3", source=0) == web()[3]
        with pytest.raises(ArgumentError, match="the sources are a, b"):
            ds.get("w3", source="c")
        with pytest.raises(KeyError):
            ds.get("w99", source="a")
    with pytest.raises(ArgumentError, match="two datasets are named web"):
        rankstore.open([two[0], two[0]])
    for wrong in (["a"], ["a", ""]):
        with pytest.raises((ArgumentError, ValueError), match="name"):
            rankstore.open(two, names=wrong)
    with pytest.raises(ArgumentError, match="no directory"):
        rankstore.open([])


def test_concat_keeps_selections_and_quarantines(two: list[Path], tmp_path: Path) -> None:
    with rankstore.open(two[0]) as first:
        first.write_quarantine(tmp_path / "bad.json", [2])
    with (rankstore.open(two[0], quarantine=tmp_path / "bad.json") as first, rankstore.open(two[1]) as second):
        with rankstore.concat([first, second.select([5, 7])], names=["a", "b"]) as ds:
            assert len(ds) == 31 and ds.ids.tolist() == [0, 1, *range(3, 30), 35, 37]
            assert ds[-1] == {**code()[7], "url": None} and [one.name for one in ds.sources] == ["a", "b"]
            assert sum(len(batch["id"]) for batch in ds.loader(ds.plan("sorted", batch_size=4), columns=["id"])) == 31
        with rankstore.concat([second]) as one, rankstore.concat([one, second], names=["x", "y"]) as more:
            assert [source.name for source in more.sources] == ["x", "y"] and len(more) == 40
        with pytest.raises(ArgumentError, match="two datasets are named code"):
            rankstore.concat([second, second])
        with pytest.raises(TypeError, match="dataset 1 is a list"):
            rankstore.concat([first, [1]])  # type: ignore[list-item]
        for wrong in ({"datasets": []}, {"datasets": [first], "names": ["a", "b"]}):
            with pytest.raises(ArgumentError):
                rankstore.concat(**wrong)  # type: ignore[arg-type]


def test_concat_keeps_columns_and_checks(two: list[Path], tmp_path: Path) -> None:
    other = make(tmp_path / "other", [{"id": "o", "text": "x", "score": "high"}], length="text")
    with (rankstore.open(two[0], columns=["id", "text"], check=False) as first, rankstore.open(other, columns=["text"]) as second,
          rankstore.open(two[1], columns=["score"], check=False) as third):
        with rankstore.concat([first, second]) as ds:  # "score" has two types, and nobody asked for it
            assert list(ds.schema) == ["id", "text"] and ds[30] == {"id": "o", "text": "x"} and ds.is_checked
        with rankstore.concat([first, third]) as ds:
            assert list(ds.schema) == ["id", "text", "score"] and not ds.is_checked
        with rankstore.concat([first, third], columns=["score"]) as ds:
            assert list(ds.schema) == ["score"]
        with rankstore.concat([third, first.select([4, 1])]) as part:
            with rankstore.concat([part.select([20, 3, 3]), first.select([2])], names=["a", "b"]) as ds:  # of a concat's selection
                assert [source.name for source in ds.sources] == ["a/code", "a/web", "b"]
                assert ds.ids.tolist() == [24, 3, 3, 52] and [one["score"] for one in ds] == [4, 103, 103, 2]


def test_a_quarantine_list_is_of_each_copy_of_its_dataset(two: list[Path], tmp_path: Path) -> None:
    with rankstore.open(two[0]) as one:
        one.write_quarantine(tmp_path / "bad.json", [2, 29])
    with rankstore.open([two[0], two[1], two[0]], names=["a", "b", "c"], quarantine=tmp_path / "bad.json") as ds:
        assert numpy.flatnonzero(ds.lengths == 0xFFFFFFFF).tolist() == [2, 29, 52, 79]
        assert ds.stats()["quarantined"] == 4


def test_one_directory_says_what_it_is_also_with_some_columns(two: list[Path]) -> None:
    more = [{"id": "more", "text": "x", "score": 1, "url": ""}]
    rankstore.build(more, two[0], append=True, key="id", index=["score"], length="text").close()
    with rankstore.open(two[0]) as whole, rankstore.open(two[0], columns=["id"], names=["a"]) as part:
        assert part.generations == whole.generations and [one["generation"] for one in part.generations] == [1, 2]
        for name in ("generation", "unit_size", "build", "units"):
            assert part.info().get(name) == whole.info().get(name), name


def test_no_directory_on_one_rank_is_every_ranks_error(two: list[Path]) -> None:
    def rank(group: rankstore.Group) -> None:
        with pytest.raises(ArgumentError, match="open: no directory is given"):
            rankstore.open([] if group.rank == 1 else two, group=group)
        with rankstore.open(two, group=group) as ds:
            assert len(ds) == 50

    assert rankstore.launch(2, rank) == 0


# ---- repeats and order

def test_a_selection_keeps_order_and_repeats(two: list[Path]) -> None:
    with rankstore.open(two[0]) as ds:
        some = ds.select([7, 2, 2, 9, 7])
        assert len(some) == 5 and some.ids.tolist() == [7, 2, 2, 9, 7]
        assert [one["id"] for one in some] == ["w7", "w2", "w2", "w9", "w7"] and some.keys[:2] == [b"w7", b"w2"]
        assert some.index["score"].tolist() == [7, 2, 2, 9, 7] and some.lengths.tolist() == ds.lengths[[7, 2, 2, 9, 7]].tolist()
        assert some.keys.find("w2") == 1 and some.keys.find("w7") == 0 and some.keys.find("w9") == 3 and some.place(9) == 3
        for gone in ("w3", "w29", "w0"):
            with pytest.raises(KeyError, match="not in the selection"):
                some.keys.find(gone)
        with pytest.raises(ValueError, match="read-only"):
            some.ids[0] = 10**12
        again = some.select([3, 0, 3])  # places of the selection, not of the whole
        assert again.ids.tolist() == [9, 7, 9] and some.select(numpy.array([1, 0, 0, 1, 0], bool)).ids.tolist() == [7, 9]
        assert some.select(range(4, -1, -1)).ids.tolist() == [7, 9, 2, 2, 7]
        with pytest.raises(IndexError, match="select: place 5 is out of range: there are 5 samples"):
            some.select([0, 5, 9])
        with pytest.raises(IndexError, match="select: place -1 is out of range: there are 5 samples"):
            some.select([-1])
        with pytest.raises(ArgumentError, match="plan: the selection has samples more than once, so they have counts already"):
            some.plan(samples=9)
        assert sorted(some.plan("sequential").epoch(0).batches(-1)[1].tolist()) == [2, 2, 7, 7, 9]


def test_order_changes_no_plan(two: list[Path]) -> None:
    with rankstore.open(two[0]) as ds:
        up, down = ds.select([3, 8, 20, 21]), ds.select([21, 3, 20, 8])
        plan, other = up.plan("random", batch_size=2, seed=5), down.plan("random", batch_size=2, seed=5)
        assert plan.hash == other.hash and plan.report()["digest"] == other.report()["digest"]
        assert sorted(i for batch in down.loader(plan) for i in batch.ids.tolist()) == [3, 8, 20, 21]
        assert other.resume(plan.state(0, 1)) == (0, 1)
        assert ds.select([8, 3, 20, 21]).windows is not None
        with pytest.raises(ArgumentError, match="this is a selection of others"):
            ds.select([3, 8, 20, 22]).loader(plan)


def test_ranks_that_select_otherwise_hear_it(two: list[Path]) -> None:
    """Each would give its share of another plan."""
    def rank(group: rankstore.Group) -> None:
        with rankstore.open(two, group=group) as ds:
            with pytest.raises(ArgumentError, match="rank 0 plans a selection of 30 samples, rank 1 another one, of 31; select the same"):
                ds.select(range(30 + group.rank)).plan()
            with pytest.raises(ArgumentError, match="rank 0 plans a selection of 30 samples, rank 1 another one, of 30; select the same"):
                ds.select(range(group.rank, 30 + group.rank)).plan()
            with pytest.raises(ArgumentError, match="the plan's options differ: rank 0 has seed 0, rank 1 has seed 1"):
                ds.select(range(30)).plan(seed=group.rank)
            wrong: list[tuple[dict[str, Any], str]] = [
                ({"mix": {"wep": 1.0}}, "mix: there is no 'wep'; did you mean 'web'"),
                ({"mix": 3}, "mix: a dict of names and weights, not int"),
                ({"weights": [1]}, "weights: int64 of shape"), ({"batch_size": 0}, "batch_size"), ({"mix_by": "score"}, "give mix= too"),
                ({"balance": {"nope": 1.0}}, "nope")]
            for options, says in wrong:  # of one rank: all hear it at once
                for some in (ds, ds.select(range(30))):
                    with pytest.raises(ArgumentError, match=says):
                        some.plan(**(options if group.rank == 1 else {"mix": {"web": 1.0}}))
            assert ds.select([5, *range(4)]).plan(batch_size=1, tail="drop").steps == 2
            five = ds.select([5, *range(4)])  # numbers of numpy's and of torch's, too
            plain = five.plan(batch_size=2, seed=3, cost=(1.0, 2.0), mix={"web": 1.0}, samples=8)
            other = five.plan(batch_size=numpy.int64(2), seed=numpy.int64(3), cost=(numpy.float32(1), numpy.float32(2)),  # type: ignore[arg-type]
                              mix={"web": numpy.float32(1)}, samples=torch.tensor(8))  # type: ignore[arg-type, dict-item]
            assert plain.hash == other.hash

    assert rankstore.launch(2, rank) == 0


# ---- torch's own

torch = pytest.importorskip("torch")
data = torch.utils.data


def test_parts_of_random_split_are_datasets(two: list[Path]) -> None:
    with rankstore.open(two[0]) as ds:
        parts = data.random_split(ds, [20, 10], torch.Generator().manual_seed(1))
        train, val = map(rankstore.from_torch, parts)
        assert (len(train), len(val)) == (20, 10) and sorted(train.ids.tolist() + val.ids.tolist()) == list(range(30))
        assert [train[i] for i in range(20)] == [parts[0][i] for i in range(20)]  # in their order, too
        seen = [i for batch in train.loader(train.plan(batch_size=4)) for i in batch.ids.tolist()]
        assert sorted(seen) == sorted(train.ids.tolist())
        listed = [row for rows in data.DataLoader(parts[1], batch_size=4, collate_fn=list) for row in rows]
        assert listed == list(val)  # a Subset itself goes on giving samples


def test_nests_of_subsets_and_concats_are_datasets(two: list[Path]) -> None:
    with rankstore.open(two[0]) as web_, rankstore.open(two[1]) as code_:
        nest: Any = data.Subset(data.ConcatDataset([data.Subset(web_, [5, 5, 2]), code_, web_.select([9, 1])]), [4, 0, -1, 24, 1])
        with rankstore.from_torch(nest) as ds:
            want = [{**nest[i], "url": nest[i].get("url")} for i in range(5)]
            assert list(ds) == want and [one.name for one in ds.sources] == ["web", "code"]
            assert ds.source_of(ds.ids).tolist() == [1, 0, 0, 0, 0]
        folds = [data.Subset(web_, range(i, 30, 3)) for i in range(3)]
        train = rankstore.from_torch(data.ConcatDataset(folds[:2]))
        assert len(train) == 20 and train.store is web_.store and train.plan(batch_size=4).report()["samples"] == 20
        whole = rankstore.from_torch(data.ConcatDataset([web_]))
        assert not whole.is_selection and whole.plan().hash == web_.plan().hash
        with rankstore.from_torch(data.ConcatDataset([web_, code_]), names=["x", "y"]) as ds:
            assert not ds.is_selection and [one.name for one in ds.sources] == ["x", "y"] and len(ds) == 50
        assert rankstore.from_torch(data.Subset(web_, [])).ids.tolist() == []


def test_what_from_torch_does_not_take(two: list[Path], tmp_path: Path) -> None:
    with rankstore.open(two[0]) as ds:
        with pytest.raises(TypeError, match="a list is neither a rankstore.Dataset nor a Subset or ConcatDataset of some"):
            rankstore.from_torch(data.Subset([1, 2], [0]))
        with pytest.raises(IndexError, match="the Subset has place 30 of 30"):
            rankstore.from_torch(data.Subset(ds, [30]))
        for mask in ([True, False] * 15, numpy.arange(30) < 3, torch.arange(30) < 3):
            with pytest.raises(TypeError, match=r"the Subset's indices are bool, not ints; of a mask, ds.select\(mask\) is the part"):
                rankstore.from_torch(data.Subset(ds, mask))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="dataset 0 is a Subset, not a rankstore.Dataset; use rankstore.from_torch"):
            rankstore.concat([data.Subset(ds, [3])])  # type: ignore[list-item]
        with rankstore.open(two[0]) as again:
            with pytest.raises(ArgumentError, match="two datasets are named web"):
                rankstore.from_torch(data.ConcatDataset([ds, again]))
        ds.write_quarantine(tmp_path / "bad.json", [2])
    with rankstore.open(two[0], quarantine=tmp_path / "bad.json") as ds, rankstore.open(two[1]) as other:
        with rankstore.from_torch(data.ConcatDataset([data.Subset(ds, [3, 2, 1]), other])) as both:
            assert both.ids.tolist() == [3, 1, *range(30, 50)]


def test_a_plan_refuses_to_be_read_through_torchs_subset(two: list[Path]) -> None:
    """It would read other samples, without a word where there are enough of them."""
    with rankstore.open(two) as ds:
        plan = ds.plan("random", batch_size=8)
        shuffled = data.Subset(ds, list(reversed(range(50))))
        for wrong in (shuffled, data.Subset(ds, [3]), data.ConcatDataset([shuffled]), data.ConcatDataset([ds, ds])):
            kind = type(wrong).__name__
            with pytest.raises(ArgumentError, match=f"torch's {kind} numbers samples anew; use part = "
                                                    f"rankstore.from_torch\\({kind.lower()}\\)"):
                next(iter(data.DataLoader(wrong, batch_sampler=plan.sampler(), collate_fn=list)))
        alone = rankstore.plan(ds.lengths[:10], batch_size=5)  # of any dataset, so also of a Subset
        seen = [row for rows in data.DataLoader(data.Subset(ds, range(10)), batch_sampler=alone.sampler(), collate_fn=list)
                for row in rows]
        assert len(seen) == 10


def test_concat_refuses_a_directory_that_has_changed(two: list[Path]) -> None:
    """Its samples would be another generation's, and a selection's places others."""
    with rankstore.open(two[0]) as first, rankstore.open(two[1]) as second:
        more = [{"id": f"more{i}", "text": "x", "score": i, "url": ""} for i in range(5)]
        rankstore.build(more, two[0], append=True, key="id", index=["score"], length="text").close()
        with pytest.raises(StateError, match="web.* holds another generation now"):
            rankstore.concat([first, second])
        with pytest.raises(StateError, match="DIR@N"):
            rankstore.concat([second, first.select([3])])
        assert len(first) == 30
    with rankstore.open(f"{two[0]}@1") as first, rankstore.open(two[1]) as second:
        with rankstore.concat([first, second], names=["web", "code"]) as ds:
            assert len(ds) == 50 and ds[30] == {**code()[0], "url": None}


def test_worker_processes_read_all_sources(two: list[Path]) -> None:
    torch = pytest.importorskip("torch")
    with rankstore.open(two, names=["a", "b"]) as ds:
        plan = ds.plan("random", batch_size=8)
        seen = []
        for batch in torch.utils.data.DataLoader(ds.collating(rankstore.Lists(), columns=["id"]), batch_sampler=plan.sampler(),
                                                 collate_fn=ds.collate, num_workers=1):
            seen += batch.ids.tolist()
            assert [int(s) for s in batch.source] == [int(i >= 30) for i in batch.ids]
        assert sorted(seen) == list(range(50))


def test_ranks_serve_each_others_sources(tmp_path: Path) -> None:
    """Each rank sees one of the two datasets."""
    make(tmp_path / "web", web(), key="id", index=["score"], length="text")
    make(tmp_path / "code", code(), key="id", index=["score"], length="text")

    def rank(group: rankstore.Group) -> None:
        there = [tmp_path / name if number == group.rank else tmp_path / f"none{number}"
                 for number, name in enumerate(("web", "code"))]
        with rankstore.open(there, group=group, names=["web", "code"], no_share=True) as ds:
            assert len(ds) == 50 and ds[34] == {**code()[4], "url": None} and ds[3] == web()[3]
            assert ds.get("c7")["score"] == 107

    assert rankstore.launch(2, rank) == 0


ELSEWHERE = """
import os, pickle, sys
import rankstore
rank = int(os.environ["RANK"])
with rankstore.init(node=f"n{rank}", silence=60) as group:
    there = [sys.argv[1 + number] + ("" if number == rank else "-none") for number in range(2)]
    with rankstore.open(there, group=group, names=["a", "b"]) as ds:
        batch = next(iter(ds.loader(ds.plan("sequential", batch_size=2), collate=rankstore.Pad(), out="numpy")))
        print(ds.length_column, ds.length_unit, ds.lengths_are_items, sorted(batch), pickle.loads(pickle.dumps(ds)).length_column)
    with rankstore.open(there[0], group=group) as ds:
        print(ds.length_column, ds.length_unit)
"""


def test_ranks_know_what_lengths_count_in_directories_of_other_nodes(tmp_path: Path, ranks: Any) -> None:
    """Else only some of them would make an attention mask of it."""
    rows = [{"ids": numpy.arange(1 + i % 9, dtype="int32"), "other": numpy.arange(i % 5, dtype="int32")} for i in range(60)]
    for name in "ab":
        rankstore.build(rows, tmp_path / name, length="other").close()
    rankstore.current().close()
    done = ranks(2, ELSEWHERE, str(tmp_path / "a"), str(tmp_path / "b"))
    told = [one.stdout.splitlines() for one in done]
    assert told[0] == told[1], told
    assert told[0][0].startswith("other 1 True [") and told[0][0].endswith(" other") and told[0][1] == "other 1", told


# ---- splits

def test_a_split_has_its_shares_and_keeps_samples_when_the_dataset_grows(tmp_path: Path) -> None:
    with (rankstore.open(make(tmp_path / "small", web(2000), key="id", length="text")) as small,
          rankstore.open(make(tmp_path / "large", web(6000), key="id", length="text")) as large):
        train, val = large.split({"train": 0.9, "val": 0.1})
        assert len(train) + len(val) == 6000 and not {*train.keys} & {*val.keys}
        assert abs(len(val) - 600) < 5 * (6000 * 0.09) ** 0.5
        before = small.split({"val": 0.1, "train": 0.9})  # the order of the parts does not matter
        assert {*before[0].keys} == {*val.keys} & {*small.keys} and len(before[0]) + len(before[1]) == 2000
        assert {*large.split({"train": 0.9, "val": 0.1}, seed=1)[1].keys} != {*val.keys}
        seen = [i for batch in train.loader(train.plan("bucket", batch_size=64)) for i in batch.ids.tolist()]
        assert sorted(seen) == train.ids.tolist() and val[0]["id"].encode() == val.keys[0]
        again = val.split({"a": 1, "b": 1}, seed=3)  # a part of a part
        assert sorted(again[0].ids.tolist() + again[1].ids.tolist()) == val.ids.tolist()
        state = (loader := train.loader(train.plan("random", batch_size=64))).state_dict()
        loader.load_state_dict(state)


@pytest.mark.parametrize("indexed", [True, False])
def test_a_split_by_column_keeps_groups_together(tmp_path: Path, indexed: bool) -> None:
    rows = [{"id": i, "speaker": i % 40, "text": "x"} for i in range(400)]
    path = make(tmp_path / "out", rows, key="id", length="text", index=["speaker"] if indexed else [])
    with rankstore.open(path) as ds:
        parts = ds.split({"a": 0.5, "b": 0.3, "c": 0.2}, by="speaker")
        speakers = [{sample["speaker"] for sample in part} for part in parts]
        assert sum(map(len, speakers)) == 40 and set.union(*speakers) == set(range(40)) and all(speakers)


def test_a_split_of_several_datasets_puts_a_key_on_one_side(two: list[Path]) -> None:
    with rankstore.open([two[0], two[0]], names=["a", "b"]) as ds:
        train, val = ds.split({"train": 0.7, "val": 0.3})
        assert {*train.keys}.isdisjoint(val.keys) and len(train) % 2 == len(val) % 2 == 0


def test_a_part_of_weight_0_is_empty_also_of_samples_in_quarantine(two: list[Path], tmp_path: Path) -> None:
    with rankstore.open(two[0]) as whole:
        whole.write_quarantine(tmp_path / "bad.json", [2, 9])
    with rankstore.open(two[0], quarantine=tmp_path / "bad.json") as ds:
        for by in (None, "url", "score"):  # "score" is in the index
            nothing, everything = ds.split({"a": 0, "b": 1}, by=by)
            assert (len(nothing), len(everything)) == (0, 30), by


def test_wrong_parts_are_named(two: list[Path]) -> None:
    with rankstore.open(two[0]) as ds:
        everything, nothing = ds.split({"all": 1, "none": 0})
        assert len(everything) == 30 and len(nothing) == 0
        wrong: list[Any] = [{}, {"a": -1, "b": 1}, {"a": float("nan")}, {"a": float("inf")}, {"a": 0}, {"": 1}, ["a"], {1: 1}]
        for parts in wrong:
            with pytest.raises(ArgumentError, match="split"):
                ds.split(parts)
        with pytest.raises(ArgumentError, match='no column "nope"'):
            ds.split({"a": 1}, by="nope")


def test_an_open_reads_each_dataset_json_once(two: list[Path]) -> None:
    """The kernel counts what is opened (inotify)."""
    libc = ctypes.CDLL(None, use_errno=True)
    opened = 0x20
    watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        for directory in two:
            assert libc.inotify_add_watch(watch, os.fsencode(directory / "dataset.json"), opened) > 0
        with rankstore.open(two) as ds:
            assert ds.length_column == "text" and ds.length_unit == 1 and ds.length_shown == "text"
        assert len(os.read(watch, 1 << 16)) == 2 * 16  # events without a name
    finally:
        os.close(watch)
