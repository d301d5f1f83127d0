# SPDX-License-Identifier: Apache-2.0
"""A plan's budget bounds the arrays that are delivered, and its report's figures are theirs."""
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rankstore
from rankstore import Lists, Nested, Pack, Pad

numpy = pytest.importorskip("numpy")
hypothesis = pytest.importorskip("hypothesis")
strategies = hypothesis.strategies

LENGTHS = [1 + (i * 7919) % (9 if i % 3 else 70) for i in range(240)]


@pytest.fixture(scope="module")
def ds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    rows = [{"key": f"s{i}", "input_ids": numpy.arange(1, n + 1, dtype="int32"), "x": numpy.ones(3, "float32")}
            for i, n in enumerate(LENGTHS)]
    with rankstore.build(rows, Path(tmp_path_factory.mktemp("delivered")) / "store", key="key", length="input_ids") as opened:
        yield opened


@strategies.composite
def plans(draw: Any) -> dict[str, Any]:
    strategy = draw(strategies.sampled_from(["bucket", "sorted", "random", "sequential", "pack"]))
    made: dict[str, Any] = {"strategy": strategy, "seed": draw(strategies.integers(0, 99)),
                            "too_long": draw(strategies.sampled_from(["drop", "truncate", "split"])),
                            "tail": draw(strategies.sampled_from(["split", "split", "repeat", "drop"])),
                            "order": draw(strategies.sampled_from(["plan", "longest_first"]))}
    multiple = draw(strategies.sampled_from([None, None, 1, 3, 8]))
    if strategy == "pack":
        made["capacity"] = draw(strategies.integers(8, 120)) * (multiple or 1)
        made["batch_size"] = draw(strategies.integers(1, 3))
        made["micro_batches"] = draw(strategies.sampled_from([1, 1, 2, 3]))
        made["mixed"] = made["micro_batches"] > 1 and draw(strategies.booleans())
        made["pack_window"] = draw(strategies.sampled_from([0, 0, 4]))
    else:
        made["max_tokens"] = draw(strategies.integers(24, 900))
        made["cost"] = draw(strategies.sampled_from(["padded", "tokens", "quadratic"]))
        made["steps"] = draw(strategies.sampled_from(["constant", "per_epoch"])) if strategy == "random" else "constant"
    made["max_length"] = draw(strategies.sampled_from([None, None, 5, 30, 64]))
    return made | ({} if multiple is None else {"length_multiple": multiple})


@hypothesis.given(options=plans(), kind=strategies.sampled_from(["pad", "pack", "flash", "lists", "nested", "rows"]))
@hypothesis.settings(max_examples=int(os.environ.get("RKS_TEST_PLANS", 80)), deadline=None,
                     suppress_health_check=list(hypothesis.HealthCheck))
def test_batches_are_those_of_the_plan(ds: Any, options: dict[str, Any], kind: str) -> None:
    """Of every strategy in every layout; RKS_TEST_PLANS=2000 tries more of them."""
    try:
        plan = ds.plan(**options)
        report = plan.report(1)
    except rankstore.DataError:  # too few samples or bins are left
        hypothesis.assume(False)
    apart = {"x": "concat"}  # it has other numbers of items than input_ids
    layout = {"pad": Pad(), "pack": Pack(layouts=apart), "flash": Pack("flash", layouts=apart), "lists": Lists(), "nested": Nested(),
              "rows": Pack("rows")}[kind]
    if kind == "rows" and options["strategy"] != "pack":
        with pytest.raises(rankstore.ArgumentError, match="rows"):
            ds.loader(plan, collate=layout)
        return
    sums = options["strategy"] == "pack" or options.get("cost") == "tokens"
    if kind == "pad" and sums:
        with pytest.raises(rankstore.ArgumentError, match="bounds sums of lengths"):
            ds.loader(plan, collate=layout)
        return
    budget = options.get("max_tokens") or options["capacity"] * options["batch_size"]
    multiple = plan.options.get("length_multiple", 1)
    tokens, padded, largest, samples, rows = 0, 0, 0, 0, 0
    sizes: list[int] = []
    of_steps: dict[int, int] = {}
    told: dict[int, int] = {}
    loader = ds.loader(plan, collate=layout, columns=["input_ids"] if kind == "rows" else None)
    loader.set_epoch(1)
    for batch in loader:
        ids = batch["input_ids"]
        if kind == "pad":
            items, real = ids.numel(), int((ids != 0).sum())
            assert ids.shape[1] % multiple == 0 and int(batch["attention_mask"].sum()) == real
        elif kind == "rows":
            real, rows = int((ids != 0).sum()), rows + len(ids)
            assert ids.shape[1] == options["capacity"] and ids.numel() <= budget
            items = sum(-(-int(one) // multiple) * multiple for one in batch.lengths)
        elif kind in ("pack", "flash"):
            items, real = ids.numel(), int((ids != 0).sum())
        else:
            items = real = sum(len(one) for one in ids) if kind == "lists" else ids.values().numel()
        assert items <= budget and real == int(batch.lengths.sum())
        step = batch.step // plan.micro_batches
        of_steps[step], told[step] = of_steps.get(step, 0) + real, batch.global_tokens
        if sums and kind in ("lists", "nested"):
            items = sum(-(-int(one) // multiple) * multiple for one in batch.lengths)
        tokens, padded, largest, samples = tokens + real, padded + items, max(largest, items), samples + len(batch.ids)
        sizes.append(items)
        assert items <= budget and (not options["max_length"] or int(batch.lengths.max()) <= options["max_length"])
    assert of_steps == told
    assert (tokens, samples, len(sizes)) == (report["tokens"], report["samples"], report["batches"])
    if sums or kind == "pad":
        assert (padded, largest) == (report["padded_tokens"], report["largest_batch"])
        assert report["efficiency"] == pytest.approx(tokens / padded)
        assert (min(sizes), sorted(sizes)[(len(sizes) - 1) // 2]) == (report["smallest_batch"], report["median_batch"])
    if kind == "rows":
        assert rows == report["bins"]
    if options["strategy"] == "pack":
        assert report["fill"] == pytest.approx(tokens / (report["bins"] * options["capacity"]))


def test_a_layout_that_contradicts_the_plan_is_an_error_that_says_what_to_change(ds: Any) -> None:
    whole, cut = {"max_tokens": 800}, {"max_tokens": 800, "max_length": 30, "too_long": "truncate"}
    for options, layout, says in (
            (whole, Pad(to_multiple=16), "counts widths in multiples of 8; give length_multiple=16 to plan"),
            ({"max_tokens": 100}, Pad(to_multiple=8), "in multiples of 4; give length_multiple=8"),
            (whole, Pad(max_length=5), 'counts whole samples; give max_length=5, too_long="truncate"'),
            (whole, Pack(max_len=5), r"Pack\(max_len=5\): the plan counts whole samples"),
            (cut, Pad(max_length=20), r"Pad\(max_length=20\): the plan cuts samples to 30; leave max_length out"),
            (cut, Pack(max_len=40), "the plan cuts samples to 30; leave max_len out"),
            (whole | {"cost": "tokens"}, Pack(pad_to=64), r"Pack\(pad_to=64\): a batch may be larger than the plan's budget of 800"),
            (whole | {"cost": "tokens"}, Pad(), "use Pack"),
            ({"strategy": "pack", "capacity": 128}, Pad(), "use Pack")):
        with pytest.raises(rankstore.ArgumentError, match=says):
            ds.loader(ds.plan(**options), collate=layout)


def test_what_does_not_contradict_is_taken(ds: Any) -> None:
    for options, layout in (({"max_tokens": 800}, Pad(to_multiple=2)), ({"batch_size": 7}, Pad(to_multiple=32)),
                            ({"max_tokens": 800, "max_length": 30, "too_long": "truncate"}, Pad(max_length=30)),
                            ({"max_tokens": 800, "max_length": 30, "too_long": "drop"}, Pad(max_length=30)),
                            ({"strategy": "pack", "capacity": 128}, Pack(pad_to=64, layouts={"x": "concat"})), ({"cost": "tokens"}, Pad())):
        assert next(iter(ds.loader(ds.plan(**options), collate=layout)))["input_ids"].numel() > 0


def test_a_data_loader_gets_batches_of_the_plan_too(ds: Any) -> None:
    data = pytest.importorskip("torch.utils.data")
    plan = ds.plan("sorted", max_tokens=100, max_length=30, too_long="truncate")
    for workers in (0, 2):
        loader = data.DataLoader(ds, batch_sampler=plan.sampler(), collate_fn=ds.collate, num_workers=workers)
        shapes = [batch["input_ids"].shape for batch in loader]
        assert max(shape.numel() for shape in shapes) <= 100 and max(shape[1] for shape in shapes) == 32
        assert all(shape[1] % 4 == 0 for shape in shapes)


def test_lengths_of_no_column_cannot_be_cut_by(tmp_path: Path) -> None:
    rows = [{"ids": numpy.arange(n + 1, dtype="int32")} for n in range(30)]
    with rankstore.build(rows, tmp_path / "halves", length="ids", length_unit=2) as opened:
        plan = opened.plan("sorted", max_length=4, too_long="truncate")
        with pytest.raises(rankstore.ArgumentError, match="not the item counts of a column.*build"):
            opened.loader(plan, collate=Pad())


@pytest.mark.parametrize("layout", [Lists(), Pad(), Pack(labels=False, layouts={"image": "concat"})], ids=lambda one: type(one).__name__)
def test_a_plan_cuts_what_is_as_long_as_the_sample_alone(tmp_path: Path, layout: Any) -> None:
    images = [numpy.arange(100 + i, dtype="uint8") for i in range(8)]
    rows = [{"ids": numpy.arange(20 + i), "labels": numpy.arange(20 + i), "image": image} for i, image in enumerate(images)]
    with rankstore.build(rows, tmp_path / "images", length="ids") as opened:
        for columns in (None, ["labels", "image"]):
            plan = opened.plan("sequential", max_tokens=16, too_long="truncate", shuffle=False)
            batches = list(opened.loader(plan, collate=layout, columns=columns, out="numpy"))
            assert [int(batch.lengths[0]) for batch in batches] == [16] * 8
            for batch, image in zip(batches, images, strict=True):
                assert numpy.asarray(batch["labels"]).size == 16
                assert (numpy.asarray(batch["image"]).ravel()[:len(image)] == image).all()
    with rankstore.open(tmp_path / "images") as opened:
        plan = opened.plan("sequential", max_tokens=16, too_long="truncate")
        batch = next(iter(opened.loader(plan, collate=Pad(max_length=16), out="numpy")))
        assert batch["image"].shape == batch["ids"].shape == (1, 16)


def test_lengths_of_something_else_are_not_cut(tmp_path: Path) -> None:
    rows = [{"text": "x" * 2000, "ids": numpy.arange(40)} for _ in range(4)]
    for name, options in (("text", {"length": "text", "length_unit": 100}), ("units", {"length": "ids", "length_unit": 2})):
        with rankstore.build(rows, tmp_path / name, **options) as opened:
            batch = next(iter(opened.loader(opened.plan("sequential", batch_size=4), collate=Pad(max_length=8), out="numpy")))
            assert batch["ids"].shape == (4, 8) and batch.lengths.tolist() == [20] * 4


def test_a_plan_that_cuts_contradicts_another_cut_of_any_column(tmp_path: Path) -> None:
    rows = [{"ids": numpy.arange(40), "labels": numpy.arange(40)} for _ in range(4)]
    with rankstore.build(rows, tmp_path / "store", length="ids") as opened:
        plan = opened.plan("sequential", batch_size=2, max_length=16, too_long="truncate")
        with pytest.raises(rankstore.ArgumentError, match=r"Pad\(max_length=5\): the plan cuts samples to 16"):
            opened.loader(plan, collate=Pad(max_length=5), columns=["labels"])
