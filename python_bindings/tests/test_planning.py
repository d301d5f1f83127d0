# SPDX-License-Identifier: Apache-2.0
"""Plans over lengths alone, packed bins, and costs."""
from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import made
import numpy
import pytest
import torch
from built import command

import rankstore
from rankstore import Pack, Pad

LENGTHS = numpy.random.default_rng(3).integers(1, 900, 4000)


def packed(**options: Any) -> rankstore.Plan:
    return rankstore.plan(LENGTHS, "pack", capacity=2048, **options)


def test_lengths_come_as_array_tensor_list_or_iterator() -> None:
    plan = packed(world=4)
    for same in (LENGTHS.tolist(), torch.from_numpy(LENGTHS), LENGTHS[::1].astype("uint16"),
                 iter(numpy.array_split(LENGTHS, 7)), (size for size in LENGTHS.tolist()), iter([LENGTHS[:5].tolist(), LENGTHS[5:]])):
        other = rankstore.plan(same, "pack", capacity=2048, world=4)
        assert other.hash == plan.hash and other.report(2)["digest"] == plan.report(2)["digest"]
    for wrong in ([0.5, 1.5], numpy.zeros((2, 2), int), [-1], [2**32], iter([0.5, 1.5])):
        with pytest.raises(rankstore.ArgumentError, match=r"^lengths(\[0\])?: "):
            rankstore.plan(wrong)
    with pytest.raises(rankstore.DataError, match="no samples"):
        rankstore.plan([], "pack", capacity=5)
    with pytest.raises(rankstore.DataError, match="no samples"):
        rankstore.plan(iter([]), "pack", capacity=5)


def test_bins_hold_at_most_the_capacity_and_each_sample_once() -> None:
    plan, seen = packed(world=3, batch_size=2), []
    for step in range(plan.steps):
        ranks = plan.samples(1, step)
        for rank in range(3):
            bins = plan.bins(1, step, rank)
            assert [i for one in bins for i in one] == ranks[rank] and 1 <= len(bins) <= 2
            assert all(one and LENGTHS[one].sum() <= 2048 for one in bins)
            seen += ranks[rank]
    assert sorted(seen) == list(range(len(LENGTHS)))
    report = plan.report(1)
    assert report["fill"] > 0.99 and report["tokens"] == LENGTHS.sum()
    assert report["fill"] == pytest.approx(LENGTHS.sum() / (report["bins"] * 2048))


def test_windows_bring_other_samples_together() -> None:
    plan = packed(world=4, pack_window=32)
    steps = {plan.steps_of(epoch) for epoch in range(6)}
    assert steps == {plan.steps} and plan.steps >= packed(world=4).steps
    assert all(plan.report(epoch)["fill"] > 0.98 for epoch in range(6))
    ids = sorted(i for step in range(plan.steps) for rank in plan.samples(5, step) for i in rank)
    assert ids == list(range(len(LENGTHS))) and plan.hash != packed(world=4).hash
    other = packed(world=3, pack_window=32)
    assert other.resume(plan.state(0, 5)) == (0, 0) and "pack_window=32" in repr(plan)


def test_the_balance_counts_what_it_is_given() -> None:
    costs = numpy.random.default_rng(5).exponential(1.0, len(LENGTHS))
    for micros in (1, 4):
        plain, plan = packed(world=4, micro_batches=micros), packed(world=4, micro_batches=micros, balance=costs)
        sums = numpy.zeros((plan.steps // micros, 4))
        for step in range(plan.steps):
            for rank, ids in enumerate(plan.samples(1, step)):
                sums[step // micros, rank] += costs[ids].sum()
        report = plan.report(1)
        assert report["balance"] == pytest.approx((sums.mean(1) / sums.max(1)).mean()) and report["balance"] > 0.99
        assert report["fill"] == plain.report(1)["fill"] and plan.hash != plain.hash and "balance='4000 costs'" in repr(plan)
        copy = pickle.loads(pickle.dumps(plan))
        assert copy.hash == plan.hash and copy.report(1)["digest"] == report["digest"]
    with pytest.raises(rankstore.StateError, match="options differ: balance is "):
        packed(world=4, balance=costs).resume(packed(world=4, balance=costs**2).state(0, 3))


def test_budget_and_balance_count_different_things() -> None:
    def plan(**options: Any) -> rankstore.Plan:
        return rankstore.plan(LENGTHS, "random", max_tokens=4096, cost="tokens", world=4, **options)

    both, same = plan(balance=(0, 1.0)), plan(balance=LENGTHS.astype(float)**2)
    assert both.report()["largest_batch"] <= 4096 and both.report()["digest"] == same.report()["digest"]
    squares = numpy.zeros((2, both.steps, 4))
    for which, one in enumerate((both, plan())):
        for step in range(one.steps):
            squares[which, step] = [(LENGTHS[ids].astype(float)**2).sum() for ids in one.samples(0, step)]
    even = (squares.mean(2) / squares.max(2)).mean(1)
    assert even[0] > even[1] + 0.02 and both.report()["balance"] == pytest.approx(even[0])


@pytest.mark.parametrize("balance, words", [
    ({"vision": 1.0}, 'balance: "vision" is not an index column; build it with'), ((1.0,), "balance: 1 numbers; give .a, b. for"),
    ([1.0], "balance: 1 costs for 4000 samples"), (-LENGTHS, "costs must be finite and at least 0"), (LENGTHS * 0, "one must be above 0"),
    (LENGTHS * numpy.inf, "costs must be finite"), (LENGTHS.astype(str), "give numbers in one dimension")])
def test_wrong_costs_are_named(balance: Any, words: str) -> None:
    with pytest.raises(rankstore.ArgumentError, match=words):
        packed(balance=balance)


def test_index_columns_weigh_in_the_balance(tmp_path: Path) -> None:
    rankstore.build(({"text": numpy.arange(10 + i % 90), "vision": (i * 37) % 500} for i in range(800)), tmp_path / "store",
                    index=["vision"], length="text")
    with rankstore.open(tmp_path / "store") as ds:
        vision, some = ds.index["vision"], ds.select(range(0, 800, 2))
        weights = {"length": 1.0, "vision": 2.5}
        plan = ds.plan("pack", capacity=400, world=2, rank=0, balance=weights)
        alone = rankstore.plan(ds.lengths, "pack", capacity=400, world=2, balance=ds.lengths + 2.5 * vision)
        assert plan.report()["digest"] == alone.report()["digest"] and plan.report()["balance"] > 0.98
        assert "balance={'length': 1.0, 'vision': 2.5}" in repr(plan)
        whole = some.plan("pack", capacity=400, balance=weights)
        given = some.plan("pack", capacity=400, balance=some.lengths + 2.5 * some.index["vision"])
        assert whole.report()["digest"] == given.report()["digest"] and whole.report()["samples"] == 400
        with pytest.raises(rankstore.ArgumentError, match="for 400 samples"):
            some.plan("pack", capacity=400, balance=vision)
    rankstore.current().close()


@pytest.mark.parametrize("options", [{"strategy": "pack", "capacity": 400, "too_long": "truncate", "max_length": 77},
                                     {"strategy": "bucket", "max_tokens": 1004, "too_long": "truncate"}])
def test_the_command_line_balances_by_the_same_costs(options: dict[str, Any], tmp_path: Path) -> None:
    rankstore.build(({"text": numpy.arange(10 + i % 990), "vision": (i * 37) % 500, "rate": i / 7} for i in range(1200)),
                    tmp_path / "store", index=["vision", "rate"], length="text")
    given = [word for name, value in options.items() for word in ("--" + name.replace("_", "-"), value)]
    with rankstore.open(tmp_path / "store") as ds:
        for balance, text in (({"length": 1.0, "vision": 2.5, "rate": -0.01}, "length=1,vision=2.5,rate=-0.01"),
                              ((3.0, 0.1), "polynomial:3,0.1")):
            made = ds.plan(**options, world=2, rank=0, balance=balance).report(0)["digest"]
            shown = json.loads(command("plan", tmp_path / "store", "--world", 2, "--json", "--balance", text, *given))
            assert shown["digest"] == made != ds.plan(**options, world=2, rank=0).report(0)["digest"]
    rankstore.current().close()


def test_batches_come_longest_first() -> None:
    plan = rankstore.plan(LENGTHS, max_tokens=8192, order="longest_first")
    for batch in plan.sampler():
        lengths = LENGTHS[list(batch)]
        assert (lengths[:-1] >= lengths[1:]).all()
    assert rankstore.plan(LENGTHS, max_tokens=8192, order="plan").hash == rankstore.plan(LENGTHS, max_tokens=8192).hash


def test_a_rank_plans_alone_what_all_plan_together() -> None:
    together = packed(world=4)
    for rank in range(4):
        alone = packed(world=4, rank=rank)
        assert [list(batch) for batch in alone.sampler()] == \
            [together.samples(0, step)[rank] for step in range(together.steps)]


def test_a_state_goes_on_with_other_ranks() -> None:
    plan = packed(world=4)
    state, other = plan.state(0, 5), packed(world=3)
    assert other.resume(state) == (0, 0)
    ids = [i for step in range(5) for rank in plan.samples(0, step) for i in rank]
    ids += [i for step in range(len(other.epoch(0))) for rank in other.samples(0, step) for i in rank]
    assert sorted(ids) == list(range(len(LENGTHS)))


@pytest.mark.parametrize("options", [
    {"strategy": "pack", "capacity": 2048, "cost": (1.0, 1e-4), "micro_batches": 2, "mixed": True, "order": "longest_first"},
    {"strategy": "random", "max_tokens": 4000, "seed": 2**63, "too_long": "drop", "max_length": 700, "tail": "repeat"},
    {"strategy": "bucket", "batch_size": 16, "length_multiple": 1, "shuffle": False}, {"strategy": "bucket"},
    {"strategy": "pack", "capacity": 512, "too_long": "split", "length_multiple": 16, "pack_window": 8, "skip": [(1, 4, 9)]}])
def test_the_command_line_takes_a_plan_from_its_state(options: dict[str, Any], tmp_path: Path) -> None:
    numpy.save(tmp_path / "lengths.npy", LENGTHS)
    plan = rankstore.plan(LENGTHS, world=3, **options)
    (tmp_path / "state.json").write_text(json.dumps(plan.state(1, 2)))
    lines = command("plan", "--lengths", tmp_path / "lengths.npy", "--state", tmp_path / "state.json", "--step", 5, "--json").splitlines()
    found = [[one["id"] for one in map(json.loads, lines) if one["rank"] == rank] for rank in range(3)]
    assert found == plan.samples(1, 5) and all(found)


def test_micro_batches_even_out_the_cost() -> None:
    cost = rankstore.transformer_cost(512)
    mixed = packed(world=4, micro_batches=4, mixed=True, cost=cost)
    assert mixed.steps % 4 == 0
    a, b = cost
    sums = numpy.zeros((mixed.steps // 4, 4))
    for step in range(mixed.steps):
        for rank, ids in enumerate(mixed.samples(0, step)):
            lengths = LENGTHS[ids].astype(float)
            sums[step // 4, rank] += (a * lengths + b * lengths**2).sum()
    assert mixed.report()["balance"] == pytest.approx((sums.mean(1) / sums.max(1)).mean())
    assert mixed.report()["lost"] == pytest.approx(1 - sums.mean(1).sum() / sums.max(1).sum())
    assert mixed.resume(mixed.state(0, 6)) == (0, 4)  # states fall between optimizer steps


def test_a_transformer_costs_as_its_shape_says() -> None:
    a, b = rankstore.transformer_cost(4096, 32)
    assert a == 24 * 32 * 4096**2 and b / a == pytest.approx(1 / (12 * 4096))
    assert rankstore.transformer_cost(4096, causal=False)[1] == 2 * rankstore.transformer_cost(4096)[1]
    with_head = rankstore.transformer_cost(4096, 32, vocabulary=32000)[0]
    assert with_head == a + 2 * 4096 * 32000
    gated = rankstore.transformer_cost(4096, 1, feed_forward=11008, key_value=1024, gated=True)[0]
    assert gated == 2 * (2 * 4096 * 5120 + 3 * 4096 * 11008)
    with pytest.raises(rankstore.ArgumentError, match="key_value: 0"):
        rankstore.transformer_cost(4096, key_value=0)


@pytest.mark.parametrize("options, words", [
    ({"max_tokens": 5}, "max_tokens cannot be used with strategy=pack"), ({"capacity": 0}, "capacity: 0; it must be at least 1"),
    ({"cost": (3,)}, "1 numbers; give .a, b. for"), ({"cost": (0, 0)}, "both must be at least 0"),
    ({"world": 0}, "^world: 0; it must be at least 1"),
    ({"rank": 1}, "rank: 1; ranks of this plan are 0 to 0"), ({"micro_batches": 1 << 20}, "micro_batches"),
    ({"strategy": "bucket"}, "capacity needs strategy=pack"),
    ({"strategy": "bucket", "capacity": None, "pack_window": 8}, "pack_window needs strategy=pack"),
    ({"order": "shortest"}, "order .shortest. is not one of plan, longest_first")])
def test_wrong_options_are_named(options: dict[str, Any], words: str) -> None:
    with pytest.raises(rankstore.ArgumentError, match=words):
        rankstore.plan(LENGTHS, **{"strategy": "pack", "capacity": 2048, **options})


def test_a_loader_delivers_packed_bins(tmp_path: Path) -> None:
    made.build(tmp_path / "store", 307)
    with rankstore.open(tmp_path / "store") as ds:
        plan = ds.plan("pack", capacity=256, cost=(1.0, 0.01))
        alone = rankstore.plan(ds.lengths, "pack", capacity=256, cost=(1.0, 0.01))
        assert alone.report()["digest"] == plan.report()["digest"]
        seen: list[int] = []
        for batch in ds.loader(plan, collate=Pack("flash", pad_to=256)):
            assert batch["input_ids"].shape == (1, 256)
            sizes = [made.length_of(i) for i in batch.ids.tolist()]
            assert batch["cu_seq_lens_q"].diff().tolist()[:len(sizes)] == sizes
            seen += batch.ids.tolist()
        assert sorted(seen) == list(range(307))
    rankstore.current().close()


def test_a_plan_over_lengths_alone_serves_a_dataset_with_as_many_samples(tmp_path: Path) -> None:
    made.build(tmp_path / "store", 307)
    with rankstore.open(tmp_path / "store") as ds:
        alone = rankstore.plan(ds.lengths, "sorted", max_tokens=304)
        seen = [i for batch in ds.loader(alone, collate=Pad()) for i in batch.ids.tolist()]
        assert sorted(seen) == list(range(307))
        loader = torch.utils.data.DataLoader(ds, batch_sampler=alone.sampler(), collate_fn=ds.collate)
        assert sum(len(batch.lengths) for batch in loader) == 307
        with pytest.raises(rankstore.ArgumentError, match="over 306 lengths, and this dataset has 307 samples"):
            ds.loader(rankstore.plan(ds.lengths[:306]))
    rankstore.current().close()


def test_a_plan_goes_with_its_own_selection_alone(tmp_path: Path) -> None:
    """Its batches would be those of the other part."""
    made.build(tmp_path / "store", 307)
    with rankstore.open(tmp_path / "store") as ds:
        train, val = ds.split({"train": 0.8, "val": 0.2})
        for wrong, plan in ((val, train.plan()), (ds, train.plan()), (val, ds.plan())):
            with pytest.raises(rankstore.ArgumentError, match="use the plan\\(\\) of the selection"):
                wrong.loader(plan)
            with pytest.raises(rankstore.ArgumentError, match="use the plan\\(\\) of the selection"):
                next(iter(torch.utils.data.DataLoader(wrong, batch_sampler=plan.sampler(), collate_fn=wrong.collate)))
        again = ds.select(train.ids)  # the same samples, chosen once more
        seen = [i for batch in again.loader(train.plan()) for i in batch.ids.tolist()]
        assert sorted(seen) == train.ids.tolist()
        with pytest.raises(rankstore.ArgumentError, match=f"over 307 lengths alone, .* a selection of {len(val)} samples; use ds.plan"):
            val.loader(rankstore.plan(ds.lengths))
        with pytest.raises(rankstore.ArgumentError, match="use ds.plan"):
            val.loader(rankstore.plan(val.lengths))
    rankstore.current().close()


def test_a_plan_over_lengths_alone_counts_in_the_datasets_unit(tmp_path: Path) -> None:
    """A length of 1 stands for 100 items, so a cut to 8 would not be one to 8 items."""
    rows = [{"ids": numpy.arange(1 + i * 40, dtype="int32")} for i in range(40)]
    with rankstore.build(rows, tmp_path / "store", length="ids", length_unit=100) as ds:
        wrong = []
        for plan in (ds.plan(max_tokens=8, too_long="truncate"), rankstore.plan(ds.lengths, max_tokens=8, too_long="truncate")):
            with pytest.raises(rankstore.ArgumentError) as told:
                ds.loader(plan, collate=Pad())
            wrong.append(str(told.value))
            with pytest.raises(rankstore.ArgumentError) as told:
                next(iter(torch.utils.data.DataLoader(ds, batch_sampler=plan.sampler(), collate_fn=ds.collate)))
            wrong.append(str(told.value))
        assert len(set(wrong)) == 1
    rankstore.current().close()


def test_a_batch_of_a_plan_over_lengths_alone_has_its_datasets_sums(tmp_path: Path) -> None:
    rows = [{"ids": numpy.arange(1 + i % 9, dtype="int32"), "n": i} for i in range(60)]
    with rankstore.build(rows, tmp_path / "store", length="ids", index=["n"]) as ds:
        plan = rankstore.plan(ds.lengths, batch_size=8)
        total = 0
        for batch in ds.loader(plan, collate=Pad()):
            assert batch.global_sum("n") == sum(batch["n"].tolist())
            total += batch.global_sum("n")
        assert total == sum(range(60))
        with pytest.raises(rankstore.StateError, match="lengths alone.* use ds.plan"):
            plan.step_sum("n", 0, 0)
    rankstore.current().close()


def test_a_micro_batch_knows_its_place_and_its_whole_step(tmp_path: Path) -> None:
    made.build(tmp_path / "store", 307)
    with rankstore.open(tmp_path / "store") as ds:
        plan = ds.plan("pack", capacity=512, micro_batches=3)
        batches = list(ds.loader(plan, collate=Pack()))
        assert [batch.micro for batch in batches] == [step % 3 for step in range(plan.steps)]
        for first in range(0, len(batches), 3):
            whole = sum(int(batch.lengths.sum()) for batch in batches[first:first + 3])
            assert [batch.global_tokens for batch in batches[first:first + 3]] == [whole] * 3
    rankstore.current().close()


def test_steps_are_told_by_epoch(tmp_path: Path) -> None:
    made.build(tmp_path / "store", 307)
    with rankstore.open(tmp_path / "store") as ds:
        same = ds.plan("random", max_tokens=304)
        assert {same.steps_of(epoch) for epoch in range(20)} == {same.steps}
        varied = ds.plan("random", max_tokens=304, steps="per_epoch")
        counts = [varied.steps_of(epoch) for epoch in range(20)]
        assert len(set(counts)) > 1
        loader, sampler = ds.loader(varied, collate=Pad()), varied.sampler()
        for epoch in range(4):
            loader.set_epoch(epoch)
            sampler.set_epoch(epoch)
            assert len(loader) == len(list(loader)) == len(sampler) == counts[epoch]
    rankstore.current().close()


# ---- the ranks of a plan over lengths alone ---------------------------------------------------------------------------

OF_THE_JOB = '''
import os, sys
import rankstore
how = sys.argv[1]
if how == "torch":
    import torch.distributed as dist
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    for name in ("RANK", "WORLD_SIZE"):
        del os.environ[name]
if how == "group":
    group = rankstore.init()
    for name in ("RANK", "WORLD_SIZE"):
        del os.environ[name]
if how == "mpi":
    os.environ["OMPI_COMM_WORLD_RANK"], os.environ["OMPI_COMM_WORLD_SIZE"] = os.environ.pop("RANK"), os.environ.pop("WORLD_SIZE")
lengths = [1 + i % 9 for i in range(100)]
plan = rankstore.plan(lengths, "random", batch_size=5)
print(*(i for batch in plan.sampler() for i in batch))
alone = rankstore.plan(lengths, "random", batch_size=5, world=1, rank=0)
assert sorted(i for batch in alone.sampler() for i in batch) == list(range(100))
other, mine = rankstore.plan(lengths, world=5), rankstore.plan(lengths, world=2)
assert (other.world, other.rank, mine.world, mine.rank) == (5, 0, 2, plan.rank)
'''


@pytest.mark.parametrize("how", ["torchrun", "torch", "group", "mpi"])
def test_a_plan_over_lengths_is_of_the_job_s_ranks(ranks: Any, how: str) -> None:
    parts = [[int(i) for i in one.stdout.split()] for one in ranks(2, OF_THE_JOB, how)]
    assert sorted(parts[0] + parts[1]) == list(range(100)) and len(parts[0]) == len(parts[1]) == 50


@pytest.mark.parametrize("name, says", [("num_replicas", "it is world= here"), ("world_size", "it is world= here"),
                                        ("shard_id", "it is rank= here"),
                                        ("nonsense", "unexpected keyword argument 'nonsense'")])
def test_names_that_others_have_for_options(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        rankstore.plan(LENGTHS, **{name: 2})
    with rankstore.build([{"x": 1}] * 8, tmp_path / "store") as ds, pytest.raises(TypeError, match=says):
        ds.plan(**{name: 2})


def test_counts_of_tokens_may_be_texts() -> None:
    plan = rankstore.plan(LENGTHS, "bucket", max_tokens="16k", max_length="1.5k", too_long="drop", world=2)
    assert plan.hash == rankstore.plan(LENGTHS, "bucket", max_tokens=16384, max_length=1536, too_long="drop", world=2).hash
    assert plan.options["max_tokens"] == 16384
    assert packed().hash == rankstore.plan(LENGTHS, "pack", capacity="2K").hash == rankstore.plan(LENGTHS, "pack", capacity="2048").hash
    assert rankstore.plan(LENGTHS, max_tokens="1M").options["max_tokens"] == 2**20
    for wrong in ("16q", "", "k", "16 k", "-1k", "1.5", "0.3k", "16kB", "1e3", "1.1234k", "16k\n", "١k"):
        with pytest.raises(rankstore.ArgumentError) as raised:
            rankstore.plan(LENGTHS, max_tokens=wrong)
        assert str(raised.value) == (f"max_tokens: {wrong!r} is not a whole number such as 16384, '16k' or '1.5M' (k, M, G: times 1024, "
                                     "1024^2, 1024^3)")
    with pytest.raises(rankstore.ArgumentError, match="capacity: 0; it must be at least 1, or None"):
        rankstore.plan(LENGTHS, "pack", capacity="0k")
