# SPDX-License-Identifier: Apache-2.0
"""Layouts: missing values, names that are not there, a layout and a mask for each column."""
from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest

import rankstore
from rankstore import Lists, Pack, Pad


@pytest.fixture
def optional(tmp_path: Path) -> Iterator[Any]:
    rows = [{"y": 1, "x": [1, 2], "s": "a", "f": 0.5}, {"y": None, "x": None, "s": None, "f": 1.5}, {"y": 3, "x": [], "s": "", "f": None}]
    schema = {"y": "int64?", "x": "int32[*]?", "s": "str?", "f": "float32?"}
    with rankstore.build(rows, tmp_path / "store", schema=schema, length="x") as opened:
        yield opened


def batch(dataset: Any, collate: Any, **options: Any) -> Any:
    return next(iter(dataset.loader(dataset.plan("sequential", batch_size=8), collate=collate, **options)))


@pytest.mark.parametrize("layout", [Pad, Pack, Lists])
def test_a_missing_value_names_column_sample_and_both_ways_out(optional: Any, layout: Any) -> None:
    name = layout.__name__
    with pytest.raises(rankstore.DataError) as raised:
        batch(optional, layout(), columns=["y"])
    assert str(raised.value) == (
        f'sample 1: column "y" (int64?) is missing; use {name}(missing="mask"), which adds batch.missing["y"], or '
        f'{name}(fill={{"y": VALUE}}), or leave the column out by columns=')
    with pytest.raises(rankstore.DataError) as raised:
        batch(optional, layout(), columns=["x"])
    assert str(raised.value) == (
        f'sample 1: column "x" (int32[*]?) is missing; use {name}(missing="mask"), which adds batch.missing["x"], or leave '
        "the column out by columns=")


    with pytest.raises(rankstore.DataError, match='sample 1: column "s" .str.. is missing; use .*fill={"s": VALUE}'):
        batch(optional, layout(), columns=["s"])


def test_null_in_json_is_a_value(tmp_path: Path) -> None:
    with rankstore.build([{"j": {"x": 1}}, {"j": None}, {}], tmp_path / "store", schema="j:json?", length=lambda s: 1) as ds:
        assert batch(ds, Pad())["j"] == [{"x": 1}, None, None]


@pytest.mark.parametrize("fill, says", [
    ({"y": 1.5}, "fill: 1.5 does not fit into int64, the type of column 'y' (int64?)"),
    ({"y": "none"}, "fill: 'none' does not fit into int64, the type of column 'y' (int64?)"),
    ({"y": 2**63}, "fill: 9223372036854775808 does not fit into int64, the type of column 'y' (int64?)"),
    ({"s": 0}, "fill: 0 does not fit into str, the type of column 's' (str?)"),
    ({"f": None}, "fill: None does not fit into float32, the type of column 'f' (float32?)")])
def test_a_filling_that_the_column_cannot_hold(optional: Any, fill: Any, says: str) -> None:
    with pytest.raises(rankstore.ArgumentError) as raised:
        batch(optional, Pad(fill=fill))
    assert str(raised.value) == says
    with pytest.raises(rankstore.ArgumentError, match="fill: 300 does not fit into uint8"):
        batch(optional, Pad(fill={"y": 300}, dtype={"y": "uint8"}))


@pytest.mark.parametrize("layout, option", [(Pad(lengths=["x"]), "lengths"), (Pad(mask={"x": "x_mask"}), "mask")])
def test_a_mask_or_lengths_of_a_column_that_is_left_out(optional: Any, layout: Any, option: str) -> None:
    with pytest.raises(rankstore.ArgumentError) as raised:
        batch(optional, layout, columns=["y", "s"])
    assert str(raised.value) == f"{option}: column 'x' is not among columns=['y', 's']"


@pytest.mark.parametrize("layout", [Pad, Pack, Lists])
@pytest.mark.parametrize("out", ["torch", "numpy"])
def test_missing_values_are_marked(optional: Any, layout: Any, out: str) -> None:
    made = batch(optional, layout(missing="mask"), out=out, rename={"y": "label"})
    assert {name: flags.tolist() for name, flags in made.missing.items()} == {
        "label": [False, True, False], "x": [False, True, False], "s": [False, True, False], "f": [False, False, True]}
    assert made["label"].tolist() == [1, 0, 3] and made["s"] == ["a", None, ""]
    assert "label.missing" not in made
    again = pickle.loads(pickle.dumps(made))
    assert again.missing["label"].tolist() == [False, True, False]


def test_missing_values_are_filled(optional: Any) -> None:
    made = batch(optional, Pad(fill={"y": -1, "s": "none", "f": float("inf")}), columns=["y", "s", "f"])
    assert made["y"].tolist() == [1, -1, 3] and made["s"] == ["a", "none", ""] and made["f"].tolist() == [0.5, 1.5, float("inf")]
    assert made.missing == {}
    both = batch(optional, Pad(fill={"y": -1}, missing="mask"))
    assert both["y"].tolist() == [1, -1, 3] and both.missing["y"].tolist() == [False, True, False]
    with pytest.raises(rankstore.ArgumentError) as raised:
        optional.loader(optional.plan(batch_size=2), collate=Pad(fill={"x": 0}))
    assert str(raised.value) == "fill: column 'x' (int32[*]?) has no items where it is missing; use missing=\"mask\""
    for wrong, says in (({"missing": "drop"}, "missing: 'drop'; it is \"mask\" or None"),
                        ({"fill": -1}, "fill: a dict of values by column")):
        with pytest.raises(rankstore.ArgumentError, match=says):
            Pad(**wrong)


def test_workers_mark_missing_values_too(optional: Any) -> None:
    from torch.utils.data import DataLoader
    ds = optional.collating(Pad(missing="mask"))
    for made in DataLoader(ds, batch_sampler=ds.plan("sequential", batch_size=3).sampler(), collate_fn=ds.collate, num_workers=1):
        assert made.missing["y"].tolist() == [False, True, False] and made["y"].tolist() == [1, 0, 3]


@pytest.fixture
def speech(tmp_path: Path) -> Iterator[Any]:
    """The targets stand before the frames, whose items are the length."""
    rows = [{"targets": [1] * (1 + i % 3), "frames": numpy.full((3 + i, 4), i, numpy.float32), "labels": 7} for i in range(6)]
    with rankstore.build(rows, tmp_path / "store", length="frames") as opened:
        yield opened


def test_the_mask_is_of_the_column_that_lengths_are_of(speech: Any) -> None:
    made = batch(speech, Pad(to_multiple=1))
    assert made["attention_mask"].shape == (6, 8)
    assert made["attention_mask"].sum(1).tolist() == made.lengths.tolist() == [3, 4, 5, 6, 7, 8]
    assert made.padding_ratio == pytest.approx(1 - 33 / 48)
    ds = speech.collating(Pad(to_multiple=1))
    assert ds.__getitems__([0, 1])["attention_mask"].sum(1).tolist() == [3, 4]
    packed = batch(speech, Pack("flash", layouts={"targets": "concat"}), columns=["frames", "targets"])
    assert packed["max_length_q"] == 8 and packed["position_ids"].shape == (1, 33)


@pytest.mark.parametrize("style", ["hf", "flash", "titan", "rows"])
@pytest.mark.parametrize("out", ["torch", "numpy"])
def test_positions_begin_at_another_number(tmp_path: Path, style: str, out: str) -> None:
    rows = [{"input_ids": [1] * (3 + i)} for i in range(6)]
    name = "positions" if style == "titan" else "position_ids"
    with rankstore.build(rows, tmp_path / "store") as ds:
        plan = ds.plan("pack", capacity=16)
        usual, other = ([batch[name].tolist() for batch in ds.loader(plan, collate=Pack(style, first_position=first), out=out)]
                        for first in (0, 2))
        assert usual and other == [[[one + 2 for one in row] for row in batch] for batch in usual]
    for wrong in (-1, 1.5, True):
        with pytest.raises(rankstore.ArgumentError, match="first_position: .*; it is an int, at least 0"):
            Pack(first_position=wrong)  # type: ignore[arg-type]


def test_a_layout_a_mask_and_lengths_for_each_column(speech: Any) -> None:
    made = batch(speech, Pad(to_multiple=4, layouts={"targets": "concat"}, lengths=["frames", "targets"]))
    assert made["frames"].shape == (6, 8, 4) and made["targets"].tolist() == [1] * 12
    assert made["targets_lengths"].tolist() == [1, 2, 3, 1, 2, 3] and made["frames_lengths"].tolist() == [3, 4, 5, 6, 7, 8]
    assert made["attention_mask"].sum().item() == 33
    for side in ("right", "left"):
        both = batch(speech, Pad(to_multiple=1, side=side, mask={"frames": "enc", "targets": "dec"}, pad_value={"targets": -1}),
                     rename={"frames": "inputs"})
        assert "attention_mask" not in both
        assert both["dec"].tolist() == (both["targets"] != -1).long().tolist()
        assert both["enc"].shape == (6, 8) and both["enc"].sum(1).tolist() == [3, 4, 5, 6, 7, 8]
        assert both["enc"][0, 0].item() == (1 if side == "right" else 0)
    named = batch(speech, Pad(lengths={"targets": "target_sizes"}))
    assert named["target_sizes"].tolist() == [1, 2, 3, 1, 2, 3]


def test_a_mask_is_as_wide_as_the_padding_wherever_it_stands(tmp_path: Path) -> None:
    rows = [{"mel": numpy.full((5, 2 + i), i, numpy.float32)} for i in range(4)]
    with rankstore.build(rows, tmp_path / "mel", schema={"mel": "float32[5,*]"}) as opened:
        made = batch(opened, Pad(to_multiple=1, mask={"mel": "m"}))
    assert made["mel"].shape == (4, 5, 5) and made["m"].shape == (4, 5) and made["m"].sum(1).tolist() == [2, 3, 4, 5]
    rows.append({"mel": numpy.full((5, 9), 9, numpy.float32)})
    with rankstore.build(rows, tmp_path / "wide", schema={"mel": "float32[5,*]"}) as opened:
        made = batch(opened, Pad(to_multiple=1, mask={"mel": "m"}))
    assert made["mel"].shape == (5, 5, 9) and made["m"].shape == (5, 9) and made["m"].sum(1).tolist() == [2, 3, 4, 5, 9]


@pytest.mark.parametrize("options, says", [
    ({"pad_value": {"target": -1}}, "pad_value: there is no column 'target'; did you mean 'targets'? there are targets, frames, labels"),
    ({"dtype": {"lables": "int32"}}, "dtype: there is no column 'lables'; did you mean 'labels'? there are targets, frames, labels"),
    ({"fill": {"frame": 0}}, "fill: there is no column 'frame'; did you mean 'frames'? there are targets, frames, labels"),
    ({"fill": {"inputs": 0}}, "fill: there is no column 'inputs'; 'frames' is renamed to it; give 'frames'"),
    ({"lengths": ["zzz"]}, "lengths: there is no column 'zzz'; there are targets, frames, labels"),
    ({"layouts": {"tgt": "concat"}}, "layouts: there is no column 'tgt'; did you mean 'targets'? there are targets, frames, labels"),
    ({"mask": {"labels": "m"}}, "mask: column 'labels' (int64) has no variable dimension"),
    ({"mask": {"targets": "m"}, "layouts": {"targets": "concat"}},
     "mask: column 'targets' is concatenated, and has no padding; give lengths=['targets']"),
])
def test_names_that_are_not_there(speech: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(rankstore.ArgumentError) as raised:
        speech.loader(speech.plan(batch_size=2), collate=Pad(**options), rename={"frames": "inputs"})
    assert str(raised.value) == says


def test_columns_that_are_not_there(speech: Any) -> None:
    plan = speech.plan(batch_size=2)
    for options, says in (({"columns": ["frame"]},
                           "columns: there is no column 'frame'; did you mean 'frames'? there are targets, frames, labels"),
                          ({"rename": {"label": "y"}},
                           "rename: there is no column 'label'; did you mean 'labels'? there are targets, frames, labels")):
        with pytest.raises(rankstore.ArgumentError) as raised:
            speech.loader(plan, **options)
        assert str(raised.value) == says


def test_dtypes_of_torch_and_numpy(tmp_path: Path) -> None:
    import torch
    rows = [{"x": numpy.arange(3, dtype=numpy.int16), "labels": numpy.arange(i + 1, dtype=numpy.uint8)} for i in range(4)]
    with rankstore.build(rows, tmp_path / "store") as ds:
        for dtype in (torch.int32, numpy.int32, numpy.dtype("int32"), "int32", {"x": torch.int32}, {"x": numpy.int32}):
            assert batch(ds, Pad(dtype=dtype), columns=["x"])["x"].dtype == torch.int32
        made = batch(ds, Pad(to_multiple=1))
        assert made["labels"].dtype == torch.int64 and made["labels"][0].tolist() == [0, -100, -100, -100]  # uint8 has no -100
        assert batch(ds, Pad(labels_pad=255))["labels"].dtype == torch.int64
        assert batch(ds, Pad(labels_pad=255, dtype={"labels": "uint8"}))["labels"].dtype == torch.uint8
    assert Pad(dtype=numpy.int64).dtype == Pad(dtype=torch.int64).dtype == "int64"
    with pytest.raises(rankstore.ArgumentError, match="dtype: 'int46' is not an item type; did you mean 'int64'"):
        Pad(dtype="int46")
    with pytest.raises(rankstore.ArgumentError, match="dtype: <class 'str'> is not an item type"):
        Pad(dtype=str)


def test_a_closed_dataset_is_named(tmp_path: Path) -> None:
    opened = rankstore.build([{"y": 1}], tmp_path / "store")
    opened.close()
    with pytest.raises(rankstore.StateError) as raised:
        opened[0]
    assert str(raised.value) == f"{tmp_path / 'store'}: this dataset is closed; open it again"


@pytest.mark.parametrize("types, joined", [
    (("int32", "int64"), "int64"), (("float32[*]", "float64[*]"), "float64[*]"), (("uint8", "int16"), "int16"),
    (("uint32", "int32"), "int64"), (("float16", "bfloat16"), "float32"), (("int16", "float32"), "float32"),
    (("int32", "float32"), "float64"), (("uint8[*]", "uint16[*]?"), "uint16[*]?"), (("int64[*]", "json"), "json")])
def test_numbers_widen(types: tuple[str, str], joined: str) -> None:
    from rankstore._schema.values import merge
    assert merge({"x": types[0]}, {"x": types[1]}) == merge({"x": types[1]}, {"x": types[0]}) == {"x": joined}


def test_widened_columns_keep_their_values(tmp_path: Path) -> None:
    rows = [{"i": numpy.int32(-7), "f": numpy.arange(3, dtype=numpy.float32) / 3}, {"i": 2**40, "f": numpy.array([0.1])}]
    with rankstore.build(rows, tmp_path / "store") as ds:
        assert {name: column.text for name, column in ds.schema.items()} == {"i": "int64", "f": "float64[*]"}
        assert [ds[k]["i"] for k in range(2)] == [-7, 2**40] and ds[1]["f"].tolist() == [0.1]
        assert ds[0]["f"].tolist() == rows[0]["f"].astype("float64").tolist()


@pytest.mark.parametrize("one, other, says", [
    (numpy.zeros(3), numpy.zeros((3, 4)), 'column "x": float64[*] in one sample, float64[*,4] in another: a column has one number of '
     'dimensions; reshape in map=, or give schema={"x": "json"}'),
    (numpy.zeros(3), 1.5, 'column "x": float64[*] in one sample, float64 in another: a column has one number of dimensions; reshape in '
     'map=, or give schema={"x": "json"}'),
    (numpy.zeros(3, bool), numpy.zeros(3, int), 'column "x": bool[*] in one sample, int64[*] in another: no type holds both; convert one '
     "of them in map="),
    (2**63, -1, 'column "x" has -1 and 9223372036854775808, which no integer type holds together; give schema=, or leave it out in map=')])
def test_what_shares_no_type_never_becomes_json(tmp_path: Path, one: Any, other: Any, says: str) -> None:
    with pytest.raises(rankstore.DataError) as raised:
        rankstore.build([{"x": one}, {"x": other}], tmp_path / "store")
    assert str(raised.value) == f"rank 0: {says}"


@pytest.fixture
def labelled(tmp_path: Path) -> Iterator[Any]:
    rows = [{"x": numpy.arange(i + 1, dtype=numpy.uint8), "labels": numpy.full(i + 1, 7, numpy.uint8), "u": numpy.uint64(2**64 - 1),
             "f": numpy.array([0.1, 1e300])} for i in range(3)]
    with rankstore.build(rows, tmp_path / "labelled", length="x") as opened:
        yield opened


def test_labels_of_small_integers_widen_for_their_padding(labelled: Any) -> None:
    import torch
    for layout, columns in ((Pad(), ["labels"]), (Pack(pad_to=8), ["labels"]), (Pack(), ["x"])):
        made = batch(labelled, layout, columns=columns)
        assert made["labels"].dtype == torch.int64 and -100 in made["labels"].flatten().tolist()
    for layout in (Pack(), Pad()):  # what lengths count: bytes as tokens
        assert batch(labelled, layout, columns=["x"])["x"].dtype == torch.int64
    assert batch(labelled, Pad(), columns=["x"], rename={"x": "y"})["y"].dtype == torch.int64
    assert [one.dtype for one in batch(labelled, Lists(), columns=["x"])["x"]] == [torch.uint8] * 3
    assert batch(labelled, Pad(dtype={"x": "uint8"}), columns=["x"])["x"].dtype == torch.uint8
    assert batch(labelled, Pack(pad_to=8, pad_value=-1), columns=["x"])["x"].tolist() == [[0, 0, 1, 0, 1, 2, -1, -1]]
    assert batch(labelled, Pad(), columns=["u"], out="numpy")["u"].tolist() == [2**64 - 1] * 3


def test_small_integers_that_are_no_tokens_keep_their_type(tmp_path: Path) -> None:
    import torch
    rows = [{"ids": numpy.arange(i + 1), "image": numpy.zeros((2, i + 1), numpy.uint8), "flags": numpy.zeros(i + 1, numpy.int8),
             "n": numpy.uint8(i), "y": numpy.int8(i), "labels": numpy.uint8(i)} for i in range(3)]
    with rankstore.build(rows, tmp_path / "counts-ids", length="ids", schema={
            "ids": "int64[*]", "image": "uint8[2,*]", "flags": "int8[*]", "n": "uint8", "y": "int8", "labels": "uint8"}) as opened:
        made = batch(opened, Pad())
        assert {name: value.dtype for name, value in made.items()} == {
            "ids": torch.int64, "attention_mask": torch.int64, "image": torch.uint8, "flags": torch.int8, "n": torch.uint8, "y": torch.int8,
            "labels": torch.int64}
        assert batch(opened, Pad(), columns=["y"], rename={"y": "labels"})["labels"].dtype == torch.int64
    with rankstore.build(rows, tmp_path / "counts-image", length="image", schema={"image": "uint8[2,*]"}) as opened:
        assert batch(opened, Pad())["image"].dtype == torch.uint8


@pytest.mark.parametrize("layout, says", [
    (Pad(dtype="uint8"),
     "Pad: column 'labels' is filled with -100, which does not fit into uint8; leave uint8 out of dtype=, which gives int64, or "
                         "give another labels_pad"),
    (Pack(dtype={"labels": numpy.uint8}),
     "Pack: column 'labels' is filled with -100, which does not fit into uint8; leave uint8 out of dtype=, which "
                                          "gives int64, or give another labels_pad"),
    (Pad(pad_value=1.5), "Pad: column 'x' is filled with 1.5, which does not fit into int64; give another pad_value"),
    (Pad(pad_value={"x": "none"}), "Pad: column 'x' is filled with 'none', which does not fit into int64; give another pad_value"),  # type: ignore
    (Pad(dtype={"x": "float8_e5m2"}), "Pad(dtype=...): float8_e5m2 does not hold every value of uint8, column 'x'; leave it out of dtype="),
    (Pad(dtype="int64"), "Pad(dtype=...): int64 does not hold every value of uint64, column 'u'; dtype='int64' is for all integer "
                         "columns, and dtype={\"COLUMN\": 'int64'} for one")])
def test_types_that_do_not_fit_are_refused_with_the_loader(labelled: Any, layout: Any, says: str) -> None:
    with pytest.raises(rankstore.ArgumentError) as raised:
        labelled.loader(labelled.plan(batch_size=2), collate=layout)
    assert str(raised.value) == says


def test_types_may_be_of_python_numpy_or_torch(labelled: Any) -> None:
    import torch
    for same in (torch.int64, numpy.int64, numpy.dtype("int64"), "int64", int, torch.long):
        for layout in (Pad, Pack, Lists, rankstore.Nested):
            made = batch(labelled, layout(dtype={"x": same}), columns=["x"])
            first = made["x"][0] if isinstance(made["x"], list) else made["x"]
            assert first.dtype == torch.int64
    assert batch(labelled, Lists(dtype=torch.int32), columns=["x"])["x"][0].dtype == torch.int32
    for narrow in (torch.float32, numpy.float32, "float32"):
        made = batch(labelled, Pad(dtype={"f": narrow}), columns=["f"])
        assert made["f"].dtype == torch.float32 and made["f"][0, :2].tolist() == [float(numpy.float32(0.1)), float("inf")]
        assert batch(labelled, Lists(dtype={"f": narrow}), columns=["f"], out="numpy")["f"][0].dtype == numpy.float32
    with pytest.raises(rankstore.ArgumentError, match='dtype: numpy has no bfloat16; use out="torch"'):
        batch(labelled, Pad(dtype={"f": "bfloat16"}), columns=["f"], out="numpy")


def test_conversions_are_those_of_the_library(tmp_path: Path) -> None:
    from rankstore import _core
    from rankstore._schema import types
    with rankstore.build([{item: [] for item in types.ITEMS}], tmp_path / "all", schema={item: f"{item}[*]" for item in types.ITEMS},
                         length=lambda sample: 1) as ds:
        for stored in types.ITEMS:
            for item in types.ITEMS:
                collate = _core.Collate(layout="pad", columns=[(stored, None, item, 0, None)])
                try:
                    ds.store.collate([0], collate)
                    there = True
                except rankstore.ArgumentError:
                    there = False
                assert _core.converts(stored, item) == there, (stored, item)
