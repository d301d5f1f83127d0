# SPDX-License-Identifier: Apache-2.0
"""Samples in pieces (too_long="split"), and rows of a plan's bins: every token once, and figures that are those delivered."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rankstore
from rankstore import Lists, Nested, Pack, Pad

numpy = pytest.importorskip("numpy")
hypothesis = pytest.importorskip("hypothesis")
strategies = hypothesis.strategies

LENGTHS = [1 + (i * 7919) % (9 if i % 3 else 150) for i in range(120)]


def row(i: int, n: int) -> dict[str, Any]:
    ids = 1000 * i + 1 + numpy.arange(n, dtype="int32")
    return {"key": f"s{i}", "input_ids": ids, "labels": ids, "tags": numpy.arange(n + 3, dtype="uint8"), "name": "x" * n,
            "x": float(i)}


@pytest.fixture(scope="module")
def ds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    rows = [row(i, n) for i, n in enumerate(LENGTHS)]
    with rankstore.build(rows, Path(tmp_path_factory.mktemp("pieces")) / "store", key="key", length="input_ids",
                         count={"learned": ("labels", ">", 0)}) as opened:
        yield opened


@strategies.composite
def plans(draw: Any) -> dict[str, Any]:
    strategy = draw(strategies.sampled_from(["pack", "pack", "bucket", "sorted", "random", "sequential"]))
    made: dict[str, Any] = {"strategy": strategy, "seed": draw(strategies.integers(0, 99)), "too_long": "split"}
    multiple = draw(strategies.sampled_from([None, None, 1, 3, 8]))
    if strategy == "pack":
        made["capacity"] = draw(strategies.integers(4, 60)) * (multiple or 1)
        made["batch_size"] = draw(strategies.integers(1, 3))
    else:
        made["max_tokens"] = draw(strategies.integers(24, 900))
        made["cost"] = draw(strategies.sampled_from(["padded", "tokens", "quadratic"]))
        made["max_length"] = draw(strategies.sampled_from([None, 5, 30, 64]))
    return made | ({} if multiple is None else {"length_multiple": multiple})


def delivered(batch: Any, kind: str) -> tuple[list[int], int]:
    """The token ids of a batch, and the items of their array."""
    ids = batch["input_ids"]
    if kind in ("lists", "nested"):
        found = [int(one) for sample in (ids if kind == "lists" else ids.unbind()) for one in sample]
        return found, len(found)
    return ids[ids != 0].tolist(), ids.numel()


@hypothesis.given(options=plans(), kind=strategies.sampled_from(["pad", "pack", "flash", "rows", "rows", "lists", "nested"]))
@hypothesis.settings(max_examples=60, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_every_token_comes_once_within_the_budget(ds: Any, options: dict[str, Any], kind: str) -> None:
    plan = ds.plan(**options)
    layout = {"pad": Pad(), "pack": Pack(), "flash": Pack("flash"), "rows": Pack("rows"), "lists": Lists(), "nested": Nested()}[kind]
    packs = options["strategy"] == "pack"
    sums, multiple = packs or options.get("cost") == "tokens", plan.options.get("length_multiple", 1)
    columns = ["input_ids", "labels", "x"]
    if kind == "pad" and sums or kind == "rows" and not packs:
        with pytest.raises(rankstore.ArgumentError, match="bounds sums of lengths" if kind == "pad" else "this plan has none"):
            ds.loader(plan, collate=layout, columns=columns)
        return
    budget = options.get("max_tokens") or options["capacity"] * options["batch_size"]
    report, seen = plan.report(1), Counter[int]()
    tokens = padded = largest = pieces = bins = 0
    loader = ds.loader(plan, collate=layout, columns=columns)
    loader.set_epoch(1)
    for batch in loader:
        ids, items = delivered(batch, kind)
        seen.update(ids)
        assert len(ids) == int(batch.lengths.sum()) == batch.global_tokens
        assert (batch.pieces[:, 1] == batch.lengths).all() and len(batch["x"]) == len(batch.lengths)
        pieces += int((batch.lengths != ds.all_lengths[batch.ids]).sum())
        expected = [1000 * i + 1 + k for i, (start, count) in zip(batch.ids.tolist(), batch.pieces.tolist(), strict=True)
                    for k in range(start, start + count)]
        assert ids == expected
        assert items <= budget
        if kind == "rows":
            bins += len(batch["input_ids"])
            assert batch["input_ids"].shape[1] == options["capacity"]
            items = sum(-(-int(one) // multiple) * multiple for one in batch.lengths)
        if kind in ("lists", "nested") and sums:
            items = sum(-(-int(one) // multiple) * multiple for one in batch.lengths)
        tokens, padded, largest = tokens + len(ids), padded + items, max(largest, items)
    assert seen == Counter(1000 * i + 1 + k for i, n in enumerate(LENGTHS) for k in range(n))
    assert (tokens, pieces) == (report["tokens"], report["pieces"]) and report["dropped"] == report["truncated"] == 0
    if sums or kind == "pad":
        assert (padded, largest) == (report["padded_tokens"], report["largest_batch"])
        assert report["efficiency"] == pytest.approx(tokens / padded)
    if packs:
        assert report["fill"] == pytest.approx(tokens / (report["bins"] * options["capacity"]))
        assert bins in (0, report["bins"])


# ---- drawn more than once, balanced by another cost

@pytest.mark.parametrize("strategy", ["pack", "bucket", "random", "sequential"])
def test_each_draw_brings_every_token_once(ds: Any, strategy: str) -> None:
    weights = numpy.array([i % 4 for i in range(120)])
    size: dict[str, Any] = {"capacity": 60} if strategy == "pack" else {"max_tokens": 240, "max_length": 60}
    plan = ds.plan(strategy, too_long="split", weights=weights, balance={"length": 1}, **size)
    seen, report = Counter[int](), plan.report(0)
    columns = ["input_ids", "labels"]
    for batch in ds.loader(plan, collate=Pack("rows") if strategy == "pack" else Pad(), columns=columns):
        ids, items = delivered(batch, "pad")
        seen.update(ids)
        assert len(ids) == batch.global_tokens and items <= 240
    assert seen == Counter({1000 * i + 1 + k: int(weights[i]) for i, n in enumerate(LENGTHS) for k in range(n) if weights[i]})
    assert report["tokens"] == seen.total() and report["pieces"] > 10 and report["dropped"] == 0


@pytest.mark.parametrize("strategy", ["pack", "random"])
def test_draws_stay_whole_through_a_remix_and_another_world(ds: Any, strategy: str) -> None:
    names = numpy.array(["even" if i % 2 == 0 else "odd" for i in range(120)])
    size: dict[str, Any] = {"capacity": 40} if strategy == "pack" else {"max_tokens": 160, "max_length": 40}

    def plan(world: int) -> Any:
        return rankstore.plan(ds.lengths, strategy, too_long="split", mix={"even": 2, "odd": 1}, sources=names, samples=300, seed=4,
                              world=world, **size)

    def take(of: Any, end: int) -> None:
        for step in range(end):
            seen.update((i, k) for rank in of.samples(0, step, pieces=True)
                        for i, start, count in rank for k in range(start, start + count))

    seen, begun, later = Counter[tuple[int, int]](), plan(2), plan(1)
    begun.remix({"even": 1, "odd": 3}, at=(0, 9))
    take(begun, 14)
    assert later.resume(begun.state(0, 14)) == (0, 0)
    take(later, later.steps_of(0))
    draws = [{seen[i, k] for k in range(n)} for i, n in enumerate(LENGTHS)]
    assert all(len(one) == 1 for one in draws)  # each token of a sample as often as the others
    assert sum(one.pop() for one in draws) == 300


def test_a_piece_costs_its_share(ds: Any) -> None:
    """A cost that is 1 an item, given as costs of samples, balances as lengths do."""
    options: dict[str, Any] = {"capacity": 50, "too_long": "split", "world": 4}
    by_cost = rankstore.plan(ds.lengths, "pack", balance=[256 * int(n) for n in ds.lengths], **options).report(0)
    by_length = rankstore.plan(ds.lengths, "pack", balance={"length": 1}, **options).report(0)
    assert by_cost["digest"] == by_length["digest"]
    assert by_cost["balance"] == pytest.approx(by_cost["token_balance"], abs=1e-6)


# ---- rows

def document_parts(batch: Any) -> list[tuple[int, int, int]]:
    """(row, begin, end) of each document, from document_ids."""
    found = []
    for number, ids in enumerate(batch["document_ids"].tolist()):
        for one in range(max(ids) + 1):
            places = [place for place, of in enumerate(ids) if of == one]
            assert places == list(range(places[0], places[-1] + 1))
            found.append((number, places[0], places[-1] + 1))
    return found


@pytest.mark.parametrize("multiple", [1, 8])
def test_rows_are_the_bins_of_the_plan(ds: Any, multiple: int) -> None:
    plan = ds.plan("pack", capacity=64, batch_size=3, too_long="split", length_multiple=multiple)
    for step, batch in enumerate(ds.loader(plan, collate=Pack("rows"), columns=["input_ids", "labels", "x"])):
        ids, positions, labels = batch["input_ids"], batch["position_ids"], batch["labels"]
        bins, documents = plan.bins(0, step), document_parts(batch)
        assert ids.shape == positions.shape == labels.shape == (len(bins), 64)
        assert [len(one) for one in bins] == [sum(row == number for row, _, _ in documents) for number in range(len(bins))]
        assert [end - begin for _, begin, end in documents] == batch.lengths.tolist()
        for place, (number, begin, end) in enumerate(documents):
            start = int(batch.pieces[place, 0])
            first = 1000 * int(batch.ids[place]) + 1 + start
            assert ids[number, begin:end].tolist() == list(range(first, first + end - begin))
            assert labels[number, begin:end].tolist() == [-100, *range(first + 1, first + end - begin)]
            assert begin % multiple == 0
            padded = min(-(-(end - begin) // multiple) * multiple, 64 - begin)
            assert positions[number, begin:begin + padded].tolist() == list(range(padded))
        filled = batch["document_ids"] == -1
        assert (ids[filled] == 0).all() and (labels[filled] == -100).all() and (ids[~filled] != 0).all()
        assert batch.padding_ratio == pytest.approx(float(filled.sum()) / ids.numel())
        assert ("cu_seqlens" in batch) == (multiple > 1)
        if multiple > 1:
            begins = [64 * number + begin for number, begin, _ in documents]
            assert batch["cu_seqlens_padded"].tolist() == [*begins, ids.numel()]
            assert batch["cu_seqlens"].diff().tolist() == batch.lengths.tolist() and batch["cu_seqlens"][0] == 0


def test_a_mask_of_blocks_and_labels_that_are_shifted_already(ds: Any) -> None:
    torch = pytest.importorskip("torch")
    plan = ds.plan("pack", capacity=40, batch_size=2, too_long="split")
    columns = ["input_ids", "labels"]
    for kind in ("full", "causal"):
        batch = next(iter(ds.loader(plan, collate=Pack("rows", mask=kind, mask_first=False), columns=columns)))
        documents, mask = batch["document_ids"], batch["attention_mask"]
        assert mask.shape == (2, 1, 40, 40) and mask.dtype == torch.bool
        for number in range(2):
            for q in range(40):
                for k in range(40):
                    same = documents[number, q] == documents[number, k]
                    assert bool(mask[number, 0, q, k]) == bool(same and (kind == "full" or k <= q))
        is_item = documents != -1
        assert (batch["labels"][is_item] == batch["input_ids"][is_item]).all()
    other = next(iter(ds.loader(plan, collate=Pack("rows", mask="causal"), columns=columns, out="numpy")))
    assert other["attention_mask"].dtype == bool and other["document_ids"].dtype == numpy.int32


def test_flash_has_both_sums_of_lengths(ds: Any) -> None:
    plan = ds.plan("pack", capacity=64, too_long="split", length_multiple=8)
    for batch in ds.loader(plan, collate=Pack("flash"), columns=["input_ids"]):
        edges = batch["cu_seqlens_padded"]
        assert (edges % 8 == 0).all() and edges[-1] == batch["input_ids"].shape[1] <= 64
        assert batch["cu_seqlens"].diff().tolist() == batch.lengths.tolist()
        assert batch["cu_seq_lens_q"].tolist() == edges.tolist()
        for place, begin in enumerate(edges[:-1].tolist()):
            count = int(batch.lengths[place])
            assert (batch["input_ids"][0, begin:begin + count] != 0).all()
            assert (batch["input_ids"][0, begin + count:edges[place + 1]] == 0).all()
            size = int(edges[place + 1]) - begin
            assert batch["position_ids"][0, begin:begin + size].tolist() == list(range(size))
    plan = ds.plan("pack", capacity=64, too_long="split")
    assert "cu_seqlens" not in next(iter(ds.loader(plan, collate=Pack("flash"), columns=["input_ids"])))


def test_columns_of_other_sizes_lie_apart(ds: Any) -> None:
    plan = ds.plan("pack", capacity=64, too_long="split")
    batch = next(iter(ds.loader(plan, collate=Pack("rows", layouts={"tags": "concat"}))))
    assert batch["tags"].shape == (sum(LENGTHS[i] + 3 for i in batch.ids.tolist()),)
    assert batch["name"] == ["x" * LENGTHS[i] for i in batch.ids.tolist()]  # text is not cut
    with pytest.raises(rankstore.DataError, match='items in "tags" and [0-9]+ in "input_ids", and rows hold as many of both'):
        next(iter(ds.loader(plan, collate=Pack("rows"))))


@pytest.mark.parametrize("style", ["hf", "flash", "titan"])
def test_labels_never_move_into_another_document(style: str, tmp_path: Path) -> None:
    samples = [{"input_ids": [11, 12], "labels": [1, 2, 3]}, {"input_ids": [1, 2, 3], "labels": [4, 5]}]
    rankstore.build(samples, tmp_path / "out", progress=False).close()
    with rankstore.open(tmp_path / "out") as ds:
        plan = ds.plan("sequential", batch_size=2)
        with pytest.raises(rankstore.DataError, match='3 items in "labels" and 2 in "input_ids", and positions count as many of both'):
            next(iter(ds.loader(plan, collate=Pack(style))))
        apart = next(iter(ds.loader(plan, collate=Pack(style, layouts={"labels": "concat"}))))
        assert apart["labels"].tolist() == [1, 2, 3, 4, 5] and apart["input_ids"].tolist() == [[11, 12, 1, 2, 3]]


def test_a_label_of_a_whole_sample_is_packed_as_it_is(tmp_path: Path) -> None:
    rankstore.build([{"input_ids": [11, 12], "labels": 1}, {"input_ids": [1], "labels": 0}], tmp_path / "out", progress=False).close()
    with rankstore.open(tmp_path / "out") as ds:
        batch = next(iter(ds.loader(ds.plan("sequential", batch_size=2), collate=Pack("flash"))))
        assert batch["labels"].tolist() == [1, 0] and batch["cu_seq_lens_q"].tolist() == [0, 2, 3]


# ---- what contradicts

def test_errors_say_what_to_change(ds: Any, tmp_path: Path) -> None:
    for wrong, says in ((lambda: Pack("rows", pad_to=8), "pad_to: rows are as wide as the plan's capacity; leave it out"),
                        (lambda: Pack(mask="full"), "mask: it is for Pack('rows') only"),
                        (lambda: Pack("rows", mask="all"), "mask: 'all'; it is 'full', 'causal' or None"),
                        (lambda: Pack("rows", layouts={"tags": "pad"}), "layouts: 'pad' of 'tags' is not 'concat'"),
                        (lambda: ds.loader(ds.plan(max_tokens=900), collate=Pack("rows")),
                         "Pack('rows'): rows are a plan's bins, and this plan has none; use plan(\"pack\", capacity=...)"),
                        (lambda: ds.collating(Pack("rows")).__getitems__([0, 1]),
                         "Pack('rows'): rows are a plan's bins, and these samples come from no plan; use "
                         "ds.loader(ds.plan(\"pack\", capacity=...)), or batch_sampler=plan.sampler()"),
                        (lambda: ds.loader(ds.plan(max_tokens=30, too_long="split"), collate=Pad(max_length=5)),
                         "Pad(max_length=5): the plan splits samples into pieces of 30; leave max_length out, or give max_length=5 to "
                         "plan()"),
                        (lambda: ds.plan("pack", capacity=100, too_long="split", balance=(1, 2)),
                         'balance: (a, b) counts the square of a whole sample, which too_long="split" plans in pieces; use '
                         "cost=(a, b)"),
                        (lambda: ds.plan("pack", capacity=100),
                         "sample 6 has length 115, above capacity 100 (13 of 120 samples are); too_long may be drop, truncate or split")):
        with pytest.raises(rankstore.RankStoreError) as raised:
            wrong()
        assert getattr(raised.value, "text", str(raised.value)) == says
    texts = [{"text": "y" * (10 + i)} for i in range(9)]
    for name, options in (("text", {"length": "text"}), ("function", {"length": lambda s: len(s["text"])})):
        with rankstore.build(texts, tmp_path / name, **options) as made:
            plan = made.plan("pack", capacity=12, too_long="split")
            with pytest.raises(rankstore.ArgumentError, match="str, bytes and json are not cut.*use too_long=\"drop\", or cut in build"):
                made.loader(plan, collate=Lists())
            with pytest.raises(rankstore.ArgumentError, match="not the item counts of a column, so bins are not rows"):
                made.loader(made.plan("pack", capacity=20), collate=Pack("rows"))


# ---- other ways to the same batches

@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_gets_the_same_pieces_and_rows(ds: Any, workers: int) -> None:
    data = pytest.importorskip("torch.utils.data")
    plan = ds.plan("pack", capacity=50, batch_size=2, too_long="split", world=2, rank=1)
    columns = ["input_ids", "labels"]
    loaded = list(ds.loader(plan, collate=Pack("rows"), columns=columns))
    loader = data.DataLoader(ds.collating(Pack("rows"), columns=columns), batch_sampler=plan.sampler(), collate_fn=ds.collate,
                             num_workers=workers)
    found = list(loader)
    assert len(found) == len(loaded) and sum(len(batch._pieces) for batch in found if batch._pieces is not None) > 3
    for one, other in zip(found, loaded, strict=True):
        assert (one["input_ids"] == other["input_ids"]).all() and (one["document_ids"] == other["document_ids"]).all()
        assert (one.pieces == other.pieces).all() and one.global_tokens == other.global_tokens


TWO_NODES = """
import os, sys
os.environ["RKS_NODE"] = os.environ["RANK"]  # a node each, with a directory of its own: a worker asks its parent for the rest
import numpy
import torch
import rankstore
from rankstore import Pack

rows = [{"input_ids": 1000 * i + 1 + numpy.arange(1 + i * 7919 % (9 if i % 3 else 150), dtype="int32")} for i in range(120)]
with rankstore.build(rows, sys.argv[1] + "/store-{rank}", length="input_ids", unit_samples=10) as ds:
    owners = {ds.store.owner(i) for i in range(len(ds))}
    plan = ds.plan("pack", capacity=40, too_long="split", seed=3)
    here = [(batch.step, batch.ids.tolist(), batch.pieces.tolist(), batch["input_ids"].tolist())
            for batch in ds.loader(plan, collate=Pack("rows"))]
    loader = torch.utils.data.DataLoader(ds.collating(Pack("rows")), batch_sampler=plan.sampler(), collate_fn=ds.collate, num_workers=1)
    there = [(batch.step, batch.ids.tolist(), batch.pieces.tolist(), batch["input_ids"].tolist()) for batch in loader]
    cut = sum(count < ds.all_lengths[i] for _, ids, pieces, _ in here for i, (_, count) in zip(ids, pieces))
    print(sorted(owners), here == there, len(here) == plan.steps, cut > 10)
"""


def test_a_worker_gets_pieces_of_samples_of_another_node(tmp_path: Path, ranks: Any) -> None:
    pytest.importorskip("torch")
    for one in ranks(2, TWO_NODES, str(tmp_path)):
        assert one.stdout.splitlines()[-1] == "[0, 1] True True True", one.stdout + one.stderr


def test_functions_of_the_user_get_pieces(ds: Any) -> None:
    def collate(samples: list[Any]) -> dict[str, Any]:
        return {"parts": [sample["input_ids"].copy() for sample in samples], "tags": [len(sample["tags"]) for sample in samples]}
    plan, seen = ds.plan("pack", capacity=32, too_long="split"), Counter[int]()
    for batch in ds.loader(plan, collate=collate):
        assert [len(one) for one in batch["parts"]] == batch.lengths.tolist() == batch.pieces[:, 1].tolist()
        assert batch["tags"] == [LENGTHS[i] + 3 for i in batch.ids.tolist()]
        assert batch.global_tokens == int(batch.lengths.sum())
        seen.update(int(one) for part in batch["parts"] for one in part)
    assert seen == Counter(1000 * i + 1 + k for i, n in enumerate(LENGTHS) for k in range(n))


def test_each_token_comes_once_if_the_world_changes_within_an_epoch(ds: Any) -> None:
    options: dict[str, Any] = {"strategy": "pack", "capacity": 32, "too_long": "split", "seed": 5}
    seen, state, changes = Counter[int](), None, 0
    for world in (3, 2, 5, 1):
        ranks = [ds.plan(**options, world=world, rank=rank) for rank in range(world)]
        loaders = [ds.loader(plan, collate=Pack("rows"), columns=["input_ids", "labels"], start=state) for plan in ranks]
        changes += state is not None and loaders[0].epoch == 0
        for step, batches in enumerate(zip(*loaders, strict=True)):
            for batch in batches:
                seen.update(delivered(batch, "rows")[0])
            state = loaders[0].state_dict()
            if world > 1 and step == 6:
                break
    assert changes == 3
    assert seen == Counter(1000 * i + 1 + k for i, n in enumerate(LENGTHS) for k in range(n))


def test_a_plan_tells_what_a_step_has(ds: Any) -> None:
    plan = ds.plan("pack", capacity=32, too_long="split", world=2, rank=0)
    seen = Counter[tuple[int, int]]()
    for step in range(plan.steps):
        ids, parts = plan.samples(3, step), plan.samples(3, step, pieces=True)
        assert [[one[0] for one in rank] for rank in parts] == ids
        seen.update((sample, k) for rank in parts for sample, start, count in rank for k in range(start, start + count))
    assert seen == Counter((i, k) for i, n in enumerate(LENGTHS) for k in range(n))
    pieces, (_, indices) = plan.epoch(3).pieces(-1), plan.epoch(3).batches(-1)
    assert len(pieces) == plan.report(3)["pieces"] and pieces.shape[1] == 3
    assert (ds.all_lengths[indices[pieces[:, 0]]] > 32).all()
    whole = ds.plan("pack", capacity=150)
    assert whole.samples(0, 0, pieces=True) == [[(i, 0, LENGTHS[i]) for i in whole.samples(0, 0)[0]]]
    assert len(whole.epoch(0).pieces()) == 0


def test_a_sum_of_the_index_is_exact_or_an_error(ds: Any) -> None:
    plan = ds.plan("pack", capacity=32, too_long="split")
    exact = 0
    for batch in ds.loader(plan, columns=["labels"]):
        whole = set(batch.ids[batch.lengths != ds.all_lengths[batch.ids]].tolist())
        if not whole:
            exact += 1
            assert batch.global_sum("learned") == int(batch.lengths.sum())
            continue
        with pytest.raises(rankstore.DataError,
                           match="global_sum: sample [0-9]+ has [0-9]+ items and [0-9]+ of them are in these batches, but "
                           '"learned" counts all of them; use global_tokens for a sum of lengths, too_long="drop", or split in build'):
            batch.global_sum("learned")
    assert exact > 3
    assert plan.step_sum("learned", 0, 0, accumulate=plan.steps) == sum(LENGTHS)  # all pieces are there


@pytest.mark.parametrize("options", [{"capacity": 32, "too_long": "split"}, {"capacity": 32, "too_long": "split", "micro_batches": 2}])
def test_the_sum_of_lengths_counts_pieces(ds: Any, options: Any) -> None:
    world = 2
    plans = [ds.plan("pack", world=world, rank=rank, **options) for rank in range(world)]
    each = [[int(batch.lengths.sum()) for batch in ds.loader(plan, columns=["labels"])] for plan in plans]
    totals = [sum(both) for both in zip(*each, strict=True)]
    assert sum(totals) == sum(LENGTHS) and ds.length_column == "input_ids"
    micro = plans[0].micro_batches
    for step, batch in enumerate(ds.loader(plans[0], columns=["labels"])):
        wanted = sum(totals[step // micro * micro:step // micro * micro + micro])
        assert batch.global_sum("input_ids") == batch.global_tokens == wanted
        assert batch.global_sum("input_ids", accumulate=1) == totals[step]
        assert batch.global_sum("input_ids", accumulate=4) == sum(totals[step // 4 * 4:step // 4 * 4 + 4])


def test_the_sum_of_lengths_counts_what_is_cut(ds: Any) -> None:
    for column, options, layout in (("input_ids", {"max_length": 5, "too_long": "truncate"}, Pad()),
                                    ("labels", {"length_multiple": 1}, Pad(max_length=3))):
        for batch in ds.loader(ds.plan(batch_size=20, **options), collate=layout, columns=[column]):
            assert batch.global_sum("input_ids") == int((batch[column] > 0).sum()) == int(batch.lengths.sum())


def test_tokens_are_counted_as_a_layout_cuts_them(ds: Any) -> None:
    for columns in (["labels"], ["input_ids"]):
        plan = ds.plan(batch_size=20, length_multiple=1) if columns == ["labels"] else \
            ds.plan(batch_size=20, max_length=5, too_long="truncate")
        for batch in ds.loader(plan, collate=Pad(max_length=5), columns=columns):
            assert batch.global_tokens == int(batch.lengths.sum()) == int((batch[columns[0]] > 0).sum())
