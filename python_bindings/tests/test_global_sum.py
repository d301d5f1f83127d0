# SPDX-License-Identifier: Apache-2.0
"""Sums of index columns over a step and all ranks: what a loss over some of the tokens is divided by."""
from __future__ import annotations

import json
import operator
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings, strategies

import rankstore
from rankstore import Pad

COUNT = 60
OPERATORS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def sample(i: int) -> dict[str, Any]:
    tokens = numpy.arange(i % 13 + 2, dtype=numpy.int32)
    return {"input_ids": tokens, "labels": numpy.where(tokens % 3 == 0, tokens, -100).astype(numpy.int32), "weight": i / 4}


@pytest.fixture
def ds(tmp_path: Path) -> Iterator[Any]:
    with rankstore.build([sample(i) for i in range(COUNT)], tmp_path / "store", length="input_ids", index=["weight"],
                         count={"learned": ("labels", "!=", -100)}) as opened:
        yield opened


@pytest.mark.parametrize("strategy", ["bucket", "random"])
def test_it_is_what_all_ranks_learn_from(ds: Any, strategy: str) -> None:
    world = 3
    plans = [ds.plan(strategy, max_tokens=40, world=world, rank=rank) for rank in range(world)]
    loaders = [iter(ds.loader(plan, collate=Pad())) for plan in plans]
    seen = []
    for batches in zip(*loaders, strict=True):
        learned = sum(int((batch["labels"] != -100).sum()) for batch in batches)
        seen.append(learned)
        assert [batch.global_sum("learned") for batch in batches] == [learned] * world
        assert batches[0].global_sum("weight") == sum(float(batch["weight"].sum()) for batch in batches)
        assert learned < batches[0].global_tokens
    assert sum(seen) == sum(int((sample(i)["labels"] != -100).sum()) for i in range(COUNT))
    plan = plans[0]
    for step in range(plan.steps):  # all micro-batches of an optimizer step
        assert plan.step_sum("learned", 0, step, accumulate=4) == sum(seen[step // 4 * 4:step // 4 * 4 + 4])


def test_each_micro_batch_gives_the_sum_of_its_optimizer_step(ds: Any) -> None:
    batches = list(ds.loader(ds.plan("random", batch_size=7), collate=Pad()))
    each = [int((batch["labels"] != -100).sum()) for batch in batches]
    pairs = [sum(each[i // 2 * 2:i // 2 * 2 + 2]) for i in range(len(each))]
    assert [batch.global_sum("learned", accumulate=2) for batch in batches] == pairs


def test_mistakes(ds: Any, tmp_path: Path) -> None:
    made = next(iter(ds.loader(ds.plan("random", batch_size=7), collate=Pad())))
    with pytest.raises(rankstore.ArgumentError) as raised:
        made.global_sum("learnt")
    assert str(raised.value) == ('global_sum: "learnt" is not an index column; build it with index=["learnt"], or with '
                                 'count={"learnt": ("labels", "!=", -100)}')
    with pytest.raises(rankstore.ArgumentError, match="accumulate: 0; it must be at least 1"):
        made.global_sum("learned", accumulate=0)
    says = 'global_sum: sample [0-9]+ has [0-9]+ items and is cut to 5, but "learned" counts all of them; use too_long="drop" or "alone"'
    cut = list(ds.loader(ds.plan("sequential", batch_size=60, max_length=5, too_long="truncate"), collate=Pad()))
    with pytest.raises(rankstore.DataError, match=says):
        cut[0].global_sum("learned")
    with pytest.raises(rankstore.DataError, match=says):
        cut[0].global_sum("learned", accumulate=2)
    with pytest.raises(rankstore.StateError, match="global_sum: this batch came from no plan, so its step is not known"):
        ds.collating(Pad()).__getitems__([0, 1]).global_sum("learned")
    rows = [sample(i) for i in range(3)]
    for count, kind, says in (
            (["learned"], rankstore.ArgumentError, r"count: a dict of rules by column, .*, not \['learned'\]"),
            ({"n": ("labels", "<>", 1)}, rankstore.ArgumentError,
             "count: 'n' is .*; give .column, operator, number.*operators are ==, !=,"),
            ({"n": ("labels", "!=", "1")}, rankstore.ArgumentError, "count: 'n' is .*; give .column, operator, number"),
            ({"n": ("labels", "!=", float("nan"))}, rankstore.ArgumentError, 'count: a number expected at .*, not "nan"'),
            ({"n": ("lables", "!=", 1)}, rankstore.ArgumentError, 'count: no column "lables"; nearest: "labels"'),
            ({"weight": ("labels", "!=", 1)}, rankstore.ArgumentError, 'count: the samples have a column "weight" already'),
            ({"weight": len}, rankstore.CallbackError, 'count: the samples have a column "weight" already')):
        with pytest.raises((kind, rankstore.DataError), match=says):
            rankstore.build(rows, tmp_path / "wrong", count=count)  # type: ignore[arg-type]


def test_lengths_that_do_not_tell_what_is_cut(tmp_path: Path) -> None:
    rows = [{"x": list(range(i + 1)), "n": i} for i in range(8)]
    for i, options in enumerate(({"length": lambda s: 1}, {"length": "n"})):
        with rankstore.build(rows, tmp_path / str(i), count={"learned": ("x", ">", 1)}, **options) as made:
            plan = made.plan("sequential", batch_size=8)
            with pytest.raises(rankstore.DataError,
                               match="global_sum: the layout cuts samples to 3 items, and lengths count something else"):
                next(iter(made.loader(plan, collate=Pad(max_length=3)))).global_sum("learned")
            assert next(iter(made.loader(plan, collate=Pad()))).global_sum("learned") == sum(max(0, i - 1) for i in range(8))


def test_a_text_is_no_number_to_count(tmp_path: Path) -> None:
    for value, kind in (("abc", "str"), (b"abc", "bytes"), (["a", "b"], "json"), ({"a": 1}, "json")):
        with pytest.raises(rankstore.ArgumentError,
                           match=f'count: "n" counts numbers of "t", which is {kind}; give its numbers a type .*, or a function'):
            rankstore.build([{"t": value}], tmp_path / "never", count={"n": ("t", "!=", 0)})


def test_rules_and_functions_with_a_map_and_a_schema(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"t": list(range(i)), "k": i}) + "\n" for i in range(10)))

    def doubled(row: Any) -> Any:
        return None if row["k"] == 3 else [{"t": row["t"]}, {"t": row["t"] * 2}]

    with rankstore.build(path, tmp_path / "out", map=doubled, schema="t:int32[*]", filter=lambda s: s["all"] > 4, where="large > 0",
                         count={"large": ("t", ">=", 4), "all": lambda s: len(s["t"])}) as made:
        assert list(made.schema) == ["t", "all", "large"] and sorted(made.index) == ["all", "large"]
        assert [int(n) for n in made.index["all"]] == [len(made[i]["t"]) for i in range(len(made))]
        assert [int(n) for n in made.index["large"]] == [int((made[i]["t"] >= 4).sum()) for i in range(len(made))]
    with rankstore.build(path, tmp_path / "plain", count={"large": ("t", ">=", 4)}) as made:  # files, without a map
        assert [int(n) for n in made.index["large"]] == [max(0, i - 4) for i in range(10)]
    with pytest.raises(rankstore.ArgumentError, match=r'count: was \["large = t >= 4"\], is \["large = t >= 5"\]'):
        rankstore.build(path, tmp_path / "plain", count={"large": ("t", ">=", 5)})


numbers = strategies.one_of(strategies.integers(-9, 9), strategies.floats(-9, 9), strategies.sampled_from([2**53 + 1, 2**63, -2**63, 0.1]))
values = strategies.one_of(
    strategies.lists(strategies.integers(-9, 9)).map(lambda v: numpy.array(v, "int16")),
    strategies.lists(numbers.filter(lambda n: abs(n) < 100)).map(lambda v: numpy.array(v, "float64")),
    strategies.lists(strategies.booleans()).map(lambda v: numpy.array(v, "bool")))


@given(strategies.lists(values, min_size=1, max_size=6), strategies.sampled_from(["==", "!=", "<", "<=", ">", ">="]), numbers)
@settings(max_examples=40, deadline=None)
def test_a_rule_counts_what_python_counts(columns: list[Any], op: str, number: Any) -> None:
    kind = columns[0].dtype
    rows = [{"a b": column.astype(kind)} for column in columns]
    wanted = [sum(1 for item in row["a b"].tolist() if OPERATORS[op](item, number)) for row in rows]
    with tempfile.TemporaryDirectory() as place:
        with rankstore.build(rows, Path(place) / "rows", count={"n": ("a b", op, number)}, progress=False) as made:
            assert [int(n) for n in made.index["n"]] == wanted
            assert list(made.schema) == ["a b", "n"]


@pytest.mark.parametrize("source", ["rows", "file", "map", "stream"])
def test_a_schema_may_name_a_count_and_an_append_has_the_rules(source: str, tmp_path: Path) -> None:
    rows = [{"t": list(range(i % 7)), "k": f"{i}"} for i in range(40)]

    def again(start: int) -> Any:
        more = [{**row, "k": f"{start}/{row['k']}"} for row in rows]
        path = tmp_path / f"{start}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in more))
        return {"rows": more, "file": path, "map": path, "stream": iter(more)}[source]

    options: dict[str, Any] = {"map": lambda s: s} if source == "map" else {}
    rankstore.build(again(0), tmp_path / "out", key="k", count={"n": ("t", ">", 2)}, schema="t:int32[*],n:int64,k:str", **options).close()
    with rankstore.build(again(1), tmp_path / "out", append=True, **options) as made:
        assert list(made.schema) == ["t", "k", "n"] and list(made.index) == ["n"]
        assert [int(n) for n in made.index["n"]] == [sum(1 for item in row["t"] if item > 2) for row in rows] * 2
    with pytest.raises(rankstore.ArgumentError, match=r"count: the dataset counts by other rules \(n = t > 2\); leave the option out"):
        rankstore.build(again(2), tmp_path / "out", append=True, count={"n": ("t", ">", 3)}, **options)
