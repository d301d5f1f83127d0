# SPDX-License-Identifier: Apache-2.0
"""Sums of index columns over a step and all ranks: what a loss over some of the tokens is divided by."""
from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import rankstore
from rankstore import Pad

COUNT = 60


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
            ({"n": ("lables", "!=", 1)}, rankstore.CallbackError,
             'count: "n" counts "lables", and a sample has no such column; it has input_ids'),
            ({"weight": ("labels", "!=", 1)}, rankstore.CallbackError, 'count: the samples have a column "weight" already')):
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
    for value, kind in (("abc", "str"), (b"abc", "bytes"), (["a", "b"], "list"), ({"a": 1}, "dict")):
        with pytest.raises((rankstore.CallbackError, rankstore.DataError),
                           match=f'count: "n" counts numbers of "t", which is {kind}; give a function'):
            rankstore.build([{"t": value}], tmp_path / "never", count={"n": ("t", "!=", 0)})


def test_rules_and_functions_with_a_map_and_a_schema(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"t": list(range(i)), "k": i}) + "\n" for i in range(10)))

    def doubled(row: Any) -> Any:
        return None if row["k"] == 3 else [{"t": row["t"]}, {"t": row["t"] * 2}]

    with rankstore.build(path, tmp_path / "out", map=doubled, schema="t:int32[*]", filter=lambda s: s["large"] > 0,
                         count={"large": ("t", ">=", 4), "all": lambda s: len(s["t"])}) as made:
        assert list(made.schema) == ["t", "large", "all"] and sorted(made.index) == ["all", "large"]
        assert [int(n) for n in made.index["all"]] == [len(made[i]["t"]) for i in range(len(made))]
        assert [int(n) for n in made.index["large"]] == [int((made[i]["t"] >= 4).sum()) for i in range(len(made))]
    with rankstore.build(path, tmp_path / "plain", count={"large": ("t", ">=", 4)}) as made:  # files, without a map
        assert [int(n) for n in made.index["large"]] == [max(0, i - 4) for i in range(10)]
    with pytest.raises(rankstore.ArgumentError, match=r"count\['large'\]\[2\] was 4, is 5"):
        rankstore.build(path, tmp_path / "plain", count={"large": ("t", ">=", 5)})
