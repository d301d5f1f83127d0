# SPDX-License-Identifier: Apache-2.0
"""A function of a sample, in a loader and bound to a dataset: with every layout, drawn alike everywhere, with errors that name samples."""
from __future__ import annotations

import datetime
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made
import numpy
import pytest
import torch

import rankstore
from rankstore import Lists, Nested, Pack, Pad

COUNT = 157
Sample = dict[str, Any]


def unchanged(sample: Sample) -> Sample:
    return sample


def drawn(sample: Sample, rng: numpy.random.Generator) -> Sample:
    return {"x": sample["input_ids"], "drawn": int(rng.integers(2**60)), "text": sample["text"]}


def is_same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        if a.is_nested:
            return a.dtype == b.dtype and is_same(list(a.unbind()), list(b.unbind()))
        bits = {torch.bfloat16: torch.int16, torch.float8_e5m2: torch.uint8}.get(a.dtype)
        same = torch.equal(a, b) if bits is None else torch.equal(a.view(bits), b.view(bits))
        return a.dtype == b.dtype and a.shape == b.shape and same
    if isinstance(a, numpy.ndarray):
        return a.dtype == b.dtype and numpy.array_equal(a, b)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(is_same, a, b))
    return bool(a == b)


def check_same(a: rankstore.Batch, b: rankstore.Batch) -> None:
    assert list(a) == list(b) and all(is_same(a[name], b[name]) for name in a)
    assert list(a.missing) == list(b.missing) and all(is_same(a.missing[name], b.missing[name]) for name in a.missing)
    assert (a.epoch, a.step, a.ids.tolist(), a.lengths.tolist()) == (b.epoch, b.step, b.ids.tolist(), b.lengths.tolist())
    assert a.pieces.tolist() == b.pieces.tolist() and a.padding_ratio == b.padding_ratio and a.global_tokens == b.global_tokens


# ---- every layout ----------------------------------------------------------------------------------------------------

TOKENS = ["input_ids", "labels", "text", "score"]
PACK: dict[str, Any] = dict(strategy="pack", capacity=128)
LAYOUTS: list[tuple[Any, dict[str, Any], dict[str, Any]]] = [
    (Pad(missing="mask"), {}, {}),
    (Pad(side="left", pad_value={"input_ids": 7}, mask={"labels": "labels_mask"}, lengths=["labels"], missing="mask"), {}, {}),
    (Pad(max_length=20, missing="mask"), dict(max_length=20, too_long="truncate"), {}),
    (Pad(missing="mask"), dict(max_length=20, too_long="split"), {}),
    (Pad(missing="mask"), dict(strategy="bucket", max_tokens=300), dict(rename={"input_ids": "tokens"})),
    (Lists(missing="mask"), {}, {}), (Lists(missing="mask"), {}, dict(out="numpy")), (None, {}, dict(columns=TOKENS)),
    (Nested(), {}, dict(columns=TOKENS)),
    (Pack(), {}, dict(columns=TOKENS)), (Pack("flash", pad_to=8), dict(max_length=20, too_long="split"), dict(columns=TOKENS)),
    (Pack("titan"), dict(max_length=20, too_long="truncate"), dict(columns=TOKENS)),
    (Pack("rows", mask="causal"), PACK, dict(columns=TOKENS)),
    (Pack("rows"), {**PACK, "length_multiple": 4, "max_length": 40, "too_long": "split", "batch_size": 2}, dict(columns=TOKENS)),
]


@pytest.mark.parametrize(("layout", "planned", "options"), LAYOUTS)
def test_a_map_that_changes_nothing_changes_no_layouts_batch(ds: rankstore.Dataset, layout: Any, planned: dict[str, Any],
                                                             options: dict[str, Any]) -> None:
    plan = ds.plan(**(planned if "strategy" in planned else {"batch_size": 8, **planned}))
    wanted = list(ds.loader(plan, collate=layout, **options))
    for how in ({"threads": 1}, {"threads": 3}, {"processes": 1}, {"processes": 2}):
        found = list(ds.loader(plan, collate=layout, map=unchanged, **options, **how))
        assert len(found) == len(wanted) > 1
        for one, other in zip(found, wanted, strict=True):
            check_same(one, other)


def test_each_type_of_column_stays_what_it_is(tmp_path: Path) -> None:
    schema = {"scalar": "int16", "byte": "uint8", "big": "uint64", "flag": "bool", "half": "float16", "brain": "bfloat16",
              "wave": "float16[80,*]", "fixed": "float32[2,3]", "bits": "float8_e5m2[*]", "maybe": "int32?", "ids": "uint8[*]?",
              "raw": "bytes", "meta": "json", "pair": "complex64[*]", "word": "str?", "wide": "bfloat16[*]"}
    rows = [{"scalar": i, "byte": i, "big": 2**63 + i, "flag": i % 2 == 0, "half": i / 8, "brain": i / 2,
             "wave": numpy.full((80, i), i, "float16"), "fixed": numpy.full((2, 3), i / 4, "float32"),
             "bits": torch.full((i,), 2.0).to(torch.float8_e5m2), "maybe": None if i % 3 else i, "ids": None if i % 4 == 1 else [i] * i,
             "raw": bytes(i), "meta": [{"a": i}, 7, "x", None][i % 4], "pair": numpy.full(i, 1 + 2j, "complex64"),
             "word": None if i % 5 == 1 else "w" * i, "wide": torch.full((i,), 1.5, dtype=torch.bfloat16)} for i in range(1, 30)]
    with rankstore.build(rows, tmp_path / "all", schema=schema, length="wave") as ds:
        plan = ds.plan(batch_size=4)
        for layout in (Pad(missing="mask"), Pad(missing="mask", fill={"maybe": -1})):
            for one, other in zip(ds.loader(plan, collate=layout, map=unchanged), ds.loader(plan, collate=layout), strict=True):
                check_same(one, other)


def test_new_and_changed_columns_are_delivered_as_the_function_returns_them(ds: rankstore.Dataset) -> None:
    def made_new(sample: Sample) -> Sample:
        i = int(sample["text"].split()[1])
        return {"image": numpy.full((3, 5, 6), i % 7, numpy.float32), "hot": numpy.eye(10, dtype=numpy.float32)[i % 10],
                "input_ids": sample["input_ids"].astype(numpy.int64) - 1, "score": sample["score"] * 2, "class": i % 3,
                "crop": numpy.full((1 + i % 4, 3), i, numpy.uint8), "tensor": torch.full((2, 2), i / 2), "list": [i, i],
                "words": ["a", str(i)]}

    for batch in ds.loader(ds.plan(batch_size=8), collate=Pad(), map=made_new):
        count = len(batch.ids)
        assert batch["image"].shape == (count, 3, 5, 6) and batch["hot"].shape == (count, 10) and batch["tensor"].shape == (count, 2, 2)
        assert batch["crop"].shape == (count, max(1 + i % 4 for i in batch.ids), 3) and batch["crop"].dtype == torch.uint8
        assert batch["input_ids"].shape[1] % 8 == 0 and batch["attention_mask"].sum() == batch.lengths.sum()
        assert batch["score"].tolist() == [i / 2 for i in batch.ids] and batch["score"].dtype == torch.float32
        assert batch["class"].tolist() == [i % 3 for i in batch.ids] and batch["words"] == [["a", str(i)] for i in batch.ids]
        assert batch["list"].tolist() == [[i, i] for i in batch.ids] and "text" not in batch
        assert batch["tensor"][:, 0, 0].tolist() == [i / 2 for i in batch.ids]
    for batch in ds.loader(ds.plan(batch_size=8), map=made_new):  # Lists: each value has its own shape
        assert [tuple(one.shape) for one in batch["crop"]] == [(1 + i % 4, 3) for i in batch.ids]


def test_lists_hold_values_that_differ_in_several_dimensions(ds: rankstore.Dataset) -> None:
    def image(sample: Sample) -> Sample:
        i = int(sample["text"].split()[1])
        return {"image": None if i == 5 else numpy.full((1 + i % 3, 2 + i % 4, 3), i, numpy.uint8)}

    for batch in ds.loader(ds.plan(batch_size=8), collate=Lists(missing="mask"), map=image):
        for i, one in zip(batch.ids.tolist(), batch["image"], strict=True):
            assert i == 5 or tuple(one.shape) == (1 + i % 3, 2 + i % 4, 3) and bool((one == i).all())


def test_a_new_column_that_goes_with_a_stored_one_is_as_wide(ds: rankstore.Dataset) -> None:
    def labelled(sample: Sample) -> Sample:
        ids = sample["input_ids"]
        return {"input_ids": ids, "targets": ids.astype(numpy.int64) + 1, "attention_mask": [1] * len(ids),
                "features": numpy.zeros((len(ids), 4), numpy.float32), "other": numpy.zeros(3)}

    def packed(sample: Sample) -> Sample:
        return {name: value for name, value in labelled(sample).items() if name != "other"}

    for batch in ds.loader(ds.plan("bucket", max_tokens=320), collate=Pad(), map=labelled, columns=["input_ids"]):
        width = batch["input_ids"].shape[1]
        assert width % 8 == 0 and batch["targets"].shape == batch["attention_mask"].shape == batch["input_ids"].shape
        assert batch["features"].shape == (len(batch.ids), width, 4) and batch["other"].shape == (len(batch.ids), 3)
        assert batch["attention_mask"].sum() == batch.lengths.sum()
    for batch in ds.loader(ds.plan("pack", capacity=128), collate=Pack("rows"), map=packed, columns=["input_ids"]):
        assert batch["targets"].shape == batch["input_ids"].shape and batch["features"].shape == (*batch["input_ids"].shape, 4)


def test_times_are_integers_as_a_build_stores_them(ds: rankstore.Dataset) -> None:
    first = datetime.datetime(2020, 1, 1)
    batch = next(iter(ds.loader(ds.plan("sequential", batch_size=4), collate=Pad(), map=lambda sample: {
        "when": first + datetime.timedelta(seconds=len(sample["blob"])), "days": [first.date()] * 2})))
    assert (batch["when"] - 18262 * 86400 * 10**6).tolist() == [0, 10**6, 2 * 10**6, 3 * 10**6]
    assert batch["days"].tolist() == [[18262, 18262]] * 4


def test_a_stored_time_may_be_changed(tmp_path: Path) -> None:
    first = datetime.datetime(2020, 1, 1)
    rows = [{"when": first, "n": i} for i in range(4)]
    with rankstore.build(rows, tmp_path / "times") as ds:
        plan = ds.plan("sequential", batch_size=4)
        wanted = next(iter(ds.loader(plan, collate=Pad())))["when"]
        hour = datetime.timedelta(hours=1)
        for add, function in ((0, unchanged), (0, lambda sample: {"when": first}), (3600, lambda sample: {"when": first + hour}),
                              (7, lambda sample: {"when": sample["when"] + 7 * 10**6})):
            assert torch.equal(next(iter(ds.loader(plan, collate=Pad(), map=function)))["when"], wanted + add * 10**6)
        assert next(iter(ds.loader(plan, collate=Pad(), map=lambda sample: {"n": first})))["n"][0] == wanted[0]


def test_images_of_many_sizes_are_forgotten(ds: rankstore.Dataset) -> None:
    loader = ds.loader(ds.plan("sequential", batch_size=1), collate=Pad(),
                       map=lambda sample, rng: {"x": numpy.zeros((2, int(sample["score"] * 4) + 1), numpy.uint8)})
    assert [batch["x"].shape[2] for batch in loader] == list(range(1, COUNT + 1))
    assert loader.own is not None and loader.own._layout is not None and len(loader.own._layout._made) <= 64


def test_a_sample_that_is_made_longer_is_whole(ds: rankstore.Dataset) -> None:
    def longer(sample: Sample) -> Sample:
        return {"input_ids": numpy.concatenate([sample["input_ids"]] * 2)}

    for batch in ds.loader(ds.plan(batch_size=8, max_length=20, too_long="truncate"), collate=Pad(), map=longer):
        assert batch["attention_mask"].sum(1).tolist() == [2 * min(20, made.length_of(i)) for i in batch.ids.tolist()]
        assert batch.lengths.tolist() == [min(20, made.length_of(i)) for i in batch.ids.tolist()]
    loader = ds.loader(ds.plan("pack", capacity=64), collate=Pack("rows"), map=longer)
    with pytest.raises(rankstore.DataError, match=r"collate: sample \d+ of the batch has \d+ items, and \d+ are left of row \d+, of 64"):
        list(loader)


# ---- the same everywhere ---------------------------------------------------------------------------------------------

def values_of(loader: Any) -> dict[str, int]:
    return {text: number for batch in loader for text, number in zip(batch["text"], batch["drawn"].tolist(), strict=True)}


@pytest.mark.parametrize("how", [{}, {"threads": 3}, {"processes": 2}])
def test_what_is_drawn_depends_on_seed_epoch_and_sample_alone(ds: rankstore.Dataset, how: dict[str, int]) -> None:
    plan = ds.plan("bucket", max_tokens=300, seed=7)
    loader = ds.loader(plan, collate=Pad(), map=drawn, **how)
    first, second = values_of(loader), values_of(loader)
    bits = numpy.random.Philox(key=numpy.array([7, 0], numpy.uint64), counter=numpy.array([0, 0, 1, 11], numpy.uint64))
    assert second["sample 11"] == numpy.random.Generator(bits).integers(2**60) and len(first) == COUNT and first != second
    ranks: dict[str, int] = {}
    for rank in range(3):
        ranks.update(values_of(ds.loader(ds.plan(batch_size=5, seed=7, world=3, rank=rank), collate=Lists(), map=drawn, **how)))
    assert ranks == first
    again = ds.loader(plan, collate=Pad(), map=drawn, **how)
    again.set_epoch(1)
    head: dict[str, int] = {}
    for batch in again:
        head.update(zip(batch["text"], batch["drawn"].tolist(), strict=True))
        if batch.step == 3:
            break
    state = json.loads(json.dumps(again.state_dict()))
    rest = values_of(ds.loader(plan, collate=Pad(), map=drawn, start=state, **how))
    assert {**head, **rest} == second and len(head) + len(rest) == COUNT


# ---- errors ----------------------------------------------------------------------------------------------------------

def returned(value: Any) -> Callable[[Sample], Any]:
    return lambda sample: value if sample["text"] == "sample 20" else {"x": numpy.zeros(2, numpy.float32)}


@pytest.mark.parametrize("how", [{}, {"processes": 2}])
@pytest.mark.parametrize(("value", "kind", "says"), [
    ([1, 2], rankstore.DataError, "map returned list, and a layout needs a dict of columns ({})"),
    ({"x": {1}}, rankstore.DataError, 'map: column "x": builtins.set cannot be stored'),
    ({"x": "text"}, rankstore.DataError, 'map: column "x": '),
    ({"x": numpy.zeros((2, 2), numpy.float32)}, rankstore.DataError, 'map: column "x": '),
    ({"y": 1}, rankstore.DataError, 'map: column "x" is only in some samples of a batch'),
    ({"x": None}, rankstore.DataError, 'column "x" (float32[*]?) is missing; use Pad(missing="mask")'),
    (None, rankstore.CallbackError, "map returned None; it must return the sample (epoch 0, step 2, sample {})")])
def test_what_no_layout_takes_is_named_with_its_sample(ds: rankstore.Dataset, value: Any, kind: type[Exception], says: str,
                                                       how: dict[str, int]) -> None:
    key = repr(ds.keys[20].decode())
    with pytest.raises(kind) as caught:
        list(ds.loader(ds.plan("sequential", batch_size=8), collate=Pad(), map=returned(value), **how))
    place = f"epoch 0, step 2, sample {key}"
    assert says.replace("({})", f"({place})").format(key) in str(caught.value)
    assert key in str(caught.value) or "sample 20" in str(caught.value)


def test_a_value_that_does_not_fit_its_column_is_named(ds: rankstore.Dataset) -> None:
    plan, key = ds.plan("sequential", batch_size=8), ds.keys[20].decode()
    with pytest.raises(rankstore.DataError) as caught:
        list(ds.loader(plan, collate=Pad(), map=lambda sample: {"input_ids": [70000 if sample["text"] == "sample 20" else 1]}))
    assert str(caught.value) == f'column "input_ids": 70000 does not fit uint16[*] (epoch 0, step 2, sample {key!r})'


def test_a_layout_that_contradicts_the_plan_is_refused_at_once(ds: rankstore.Dataset) -> None:
    plan = ds.plan(max_tokens=300, cost="tokens")
    with pytest.raises(rankstore.ArgumentError, match=r"Pad\(\): the plan bounds sums of lengths"):
        ds.loader(plan, collate=Pad(), map=unchanged)
    with pytest.raises(rankstore.ArgumentError, match=r"processes: they call map= and decode=, and there is neither"):
        ds.loader(plan, processes=2)
    for bad in (-1, 1.5, True, "2"):
        with pytest.raises(rankstore.ArgumentError, match="processes: .*; it must be an int of at least 0"):
            ds.loader(plan, map=unchanged, processes=bad)  # type: ignore[arg-type]


# ---- bound to a dataset ----------------------------------------------------------------------------------------------

def shown(sample: Sample) -> Sample:
    return {"text": sample["text"].upper(), "input_ids": sample["input_ids"] + 1}


def test_a_mapped_dataset_has_the_functions_samples(ds: rankstore.Dataset) -> None:
    mapped = ds.map(shown)
    wanted = [shown(ds[i]) for i in range(COUNT)]
    for found in ([mapped[i] for i in range(COUNT)], mapped[:], list(mapped), mapped[list(range(COUNT))], list(reversed(mapped))[::-1],
                  [mapped.get(key) for key in ds.keys], mapped.select(range(COUNT))[:], pickle.loads(pickle.dumps(mapped))[:],
                  pickle.loads(pickle.dumps(mapped.select(range(COUNT))))[:]):
        assert all(list(a) == list(b) and a["text"] == b["text"] and numpy.array_equal(a["input_ids"], b["input_ids"])
                   for a, b in zip(found, wanted, strict=True))
    assert ds[3]["text"] == "sample 3" and mapped.schema == ds.schema and len(mapped) == COUNT and mapped[-1]["text"] == "SAMPLE 156"
    assert [part[0]["text"][:6] for part in mapped.split({"a": 0.5, "b": 0.5})] == ["SAMPLE"] * 2
    assert mapped.view(3)["text"] == "sample 3"
    with pytest.raises(rankstore.ArgumentError, match="windows: they are of the stored items"):
        mapped.windows(8)


def test_functions_are_called_in_their_order_and_errors_name_the_sample(ds: rankstore.Dataset) -> None:
    def counted(sample: Sample) -> Sample:
        return {**sample, "calls": [*sample.get("calls", []), len(sample.get("calls", []))]}

    assert ds.map(counted).map(counted)[0]["calls"] == [0, 1]
    batch = next(iter(ds.map(counted).map(counted).loader(ds.plan(batch_size=4), collate=list, map=counted)))
    assert [sample["calls"] for sample in batch] == [[0, 1, 2]] * 4
    key = repr(ds.keys[20].decode())
    with pytest.raises(rankstore.CallbackError) as caught:
        ds.map(lambda sample: sample["nothing"])[20]
    assert str(caught.value) == f"rank 0: map raised KeyError: 'nothing' (sample {key})" and isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(rankstore.ArgumentError, match="map: a function of a sample, or of a sample and rng, not int"):
        ds.map(3)  # type: ignore[arg-type]
    with pytest.raises(rankstore.ArgumentError, match=r"map: it is map\(sample\) or map\(sample, rng\)"):
        ds.map(lambda a, b, c: a)


def test_a_loader_of_a_mapped_dataset_is_that_of_its_map(ds: rankstore.Dataset) -> None:
    plan = ds.plan(batch_size=8, seed=3)
    mapped = ds.map(drawn)
    for options in (dict(collate=Pad()), dict(processes=2), dict(collate=Nested(), columns=["input_ids", "text"])):
        found: Any = mapped.loader(mapped.plan(batch_size=8, seed=3), **options)
        for one, other in zip(found, ds.loader(plan, map=drawn, **options), strict=True):
            check_same(one, other)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_mapped_dataset_in_a_data_loader(ds: rankstore.Dataset, workers: int) -> None:
    from torch.utils.data import DataLoader
    mapped, plan = ds.map(drawn), ds.plan(batch_size=8, seed=3)
    wanted = list(ds.loader(plan, collate=Pad(), map=drawn))

    def texts(samples: list[Sample]) -> list[Any]:
        return [(sample["text"], sample["drawn"]) for sample in samples]

    data: Any = mapped
    found = DataLoader(data, batch_sampler=plan.sampler(), collate_fn=mapped.collate, num_workers=workers)
    for one, other in zip(found, wanted, strict=True):
        check_same(one, other)
    listed = list(DataLoader(data, batch_sampler=plan.sampler(), collate_fn=texts, num_workers=workers))
    assert listed == [list(zip(batch["text"], batch["drawn"].tolist(), strict=True)) for batch in wanted]
    loader = mapped.loader(plan, collate=Pad(), processes=2)
    through: Any = DataLoader(loader.dataset, batch_sampler=loader.batch_sampler, collate_fn=loader.collate_fn, num_workers=workers)
    for one, other in zip(through, wanted, strict=True):
        check_same(one, other)
    shuffled = [text for batch in DataLoader(data, batch_size=8, shuffle=True, collate_fn=mapped.collate, num_workers=workers)
                for text in batch["text"]]
    assert sorted(shuffled) == sorted(f"sample {i}" for i in range(COUNT))
    padded: Any = mapped.collating(Pad(side="left"), columns=["input_ids", "text"])
    batch = next(iter(DataLoader(padded, batch_size=4, collate_fn=mapped.collate, num_workers=workers)))
    assert batch["text"] == ["sample 0", "sample 1", "sample 2", "sample 3"] and batch["x"].shape[0] == 4 and "attention_mask" in batch


def test_outside_of_plans_set_epoch_draws_other_numbers(ds: rankstore.Dataset) -> None:
    from torch.utils.data import DataLoader
    mapped: Any = ds.map(drawn)
    loader = DataLoader(mapped, batch_size=COUNT, collate_fn=mapped.collate, num_workers=1)
    epochs = []
    for epoch in (0, 1, 0):
        mapped.set_epoch(epoch)
        numbers = next(iter(loader))["drawn"].tolist()
        assert numbers == [sample["drawn"] for sample in mapped] == [sample["drawn"] for sample in mapped.select(range(COUNT))]
        epochs.append(numbers)
    assert epochs[0] == epochs[2] and not set(epochs[0]) & set(epochs[1])


def test_what_joins_or_evaluates_a_mapped_dataset(ds: rankstore.Dataset) -> None:
    from torch.utils.data import DataLoader, Subset

    from rankstore._integrations.evaluation import EvaluatedSamples, pass_on
    mapped, wanted = ds.map(drawn), [drawn(ds[i], numpy.random.default_rng()) for i in range(8)]
    samples: Any
    for samples in (EvaluatedSamples(mapped, {"collate": Pad()}), EvaluatedSamples(ds, {"collate": Pad(), "map": drawn})):
        batch = next(iter(DataLoader(samples, batch_size=8, collate_fn=pass_on)))
        assert batch["text"] == [one["text"] for one in wanted] and batch["drawn"].tolist() == [mapped[i]["drawn"] for i in range(8)]
    part: Any = Subset(mapped, [5, 3])  # type: ignore[arg-type]
    assert [one["drawn"] for one in rankstore.from_torch(part)] == [mapped[5]["drawn"], mapped[3]["drawn"]]
    for refused in (lambda: rankstore.export(mapped, "out.jsonl"), lambda: rankstore.diff(ds, mapped)):
        with pytest.raises(rankstore.ArgumentError, match="takes what is stored, and ds.map and ds.decode change samples"):
            refused()
    with pytest.raises(rankstore.ArgumentError, match=r"concat: dataset 1 has functions of ds.map or ds.decode; join the datasets before"):
        rankstore.concat([ds, mapped], names=["a", "b"])
