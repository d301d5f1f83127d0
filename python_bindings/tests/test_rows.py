# SPDX-License-Identifier: Apache-2.0
"""A dataset as a list of samples: what `ds[i]` gives, and what lists do."""
from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import made
import numpy
import pytest

import rankstore
from rankstore._schema.decode import reader_of, values_of
from rankstore._schema.types import BITS, ITEMS, numpy_dtype

COUNT = 61


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, numpy.ndarray) and isinstance(b, numpy.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if hasattr(a, "untyped_storage"):  # a tensor of bfloat16 or float8
        return a.dtype == b.dtype and a.shape == b.shape and bytes(a.clone().untyped_storage()) == bytes(b.clone().untyped_storage())
    return type(a) is type(b) and (a == b or a != a)


# ---- values ------------------------------------------------------------------------------------------------------------

def test_single_reads_give_what_the_readers_of_columns_give(tmp_path: Path) -> None:
    """Each item type: one number, one dimension, two, and a missing one."""
    random = numpy.random.default_rng(5)
    schema = {"text": "str", "blob": "bytes", "note": "json", "none": "str?"}
    schema |= {f"{item}{form}": item + form for item in ITEMS for form in ("", "?", "[*]", "[2,*]", "[3]")}
    rows: list[list[Any]] = []
    for i in range(40):
        values: list[Any] = ["täxt" * i, bytes(range(i)), json.dumps({"i": [i, None]}), None if i % 2 else "there"]
        for item in ITEMS:
            dtype = numpy_dtype(item)
            for form in ((), None if i % 3 == 0 else (), (i,), (2, i), (3,)):
                bits = None if form is None else random.integers(0, 2 if item == "bool" else 256, (*form, dtype.itemsize), numpy.uint8)
                values.append(None if bits is None else bits.view(dtype)[..., 0].copy())
        rows.append(values)
    made.build_units(rankstore.init("solo").core, tmp_path / "all", json.dumps(schema), {"u": rows}, length="int32[*]")
    with rankstore.open(tmp_path / "all") as ds:
        readers = [(name, reader_of(column, copy=True)) for name, column in ds.schema.items()]
        for i in range(40):
            wanted = values_of(readers, ds.store.fetch([i]).values(0))
            for found in (ds[i], ds[i], ds[[i]][0], ds[i - 40], ds[numpy.int64(i)], ds.select([i])[0]):
                assert list(found) == list(wanted) and all(equal(found[name], wanted[name]) for name in wanted)
        arrays = [one for one in ds[7].values() if isinstance(one, numpy.ndarray)]
        assert len(arrays) >= 3 * (len(ITEMS) - len(BITS)) and all(one.flags.writeable and one.flags.aligned for one in arrays)
    assert arrays[0].sum() is not None  # they outlive the dataset


def test_a_sample_that_is_too_large_to_be_read_at_once(tmp_path: Path) -> None:
    samples = [{"x": numpy.arange(size, dtype=numpy.int64)} for size in (10, 200_000, 8_180, 8_192, 3)]
    with rankstore.build(samples, tmp_path / "large") as ds:
        for _ in range(2):
            assert [len(sample["x"]) for sample in ds] == [10, 200_000, 8_180, 8_192, 3]
            assert all((sample["x"] == numpy.arange(len(sample["x"]))).all() for sample in ds)


def test_a_value_whose_making_reads_another_sample(ds: rankstore.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, depth = json.loads, [0]

    def nested(text: str) -> Any:
        depth[0] += 1
        if depth[0] == 1:
            assert made.same(ds[40], 40) and made.same(ds[41], 41)
        depth[0] -= 1
        return plain(text)

    monkeypatch.setattr(json, "loads", nested)
    for i in (1, 2, 4, 5):
        assert made.same(ds[i], i)


def test_samples_in_a_fork(ds: rankstore.Dataset) -> None:
    assert made.same(ds[3], 3)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if made.same(ds[3], 3) and made.same(ds[-1], COUNT - 1) else 1
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def test_damage_is_found_by_a_single_read(tmp_path: Path) -> None:
    made.build(tmp_path / "bad", COUNT)
    (shard,) = (tmp_path / "bad").glob("*.rks")
    data = bytearray(shard.read_bytes())
    at = data.index(b"sample 33")
    data[at + 7:at + 9] = b"99"
    shard.write_bytes(data)
    with rankstore.open(tmp_path / "bad") as ds:
        for _ in range(3):
            with pytest.raises(rankstore.CorruptError, match="sample 33"):
                ds[33]
            assert made.same(ds[32], 32)


# ---- a list ------------------------------------------------------------------------------------------------------------

def test_a_dataset_is_read_like_a_list(ds: rankstore.Dataset) -> None:
    numbers = list(range(COUNT))
    for one in (ds, ds.select(numpy.arange(COUNT) % 3 == 1)):
        ids = one.ids.tolist()
        assert len(one) == len(ids) and [name(sample) for sample in one] == [f"sample {i}" for i in ids]
        assert [name(sample) for sample in reversed(one)] == [f"sample {i}" for i in reversed(ids)]
        for cut in (slice(2, 7), slice(None, None, -1), slice(-4, None), slice(5, 2), slice(0, 10**9, 7), slice(None)):
            assert [name(sample) for sample in one[cut]] == [f"sample {i}" for i in ids[cut]]
        for place in (0, -1, True + 1, numpy.int32(3), numpy.uint8(4), numpy.array(5), -len(ids)):
            assert name(one[place]) == f"sample {ids[int(place)]}"
        for wrong in (len(ids), -len(ids) - 1, 10**30, -10**30, numpy.int64(len(ids))):
            with pytest.raises(IndexError):
                one[wrong]
    assert numbers[-1] == len(ds) - 1


def name(sample: dict[str, Any]) -> str:
    return str(sample["text"])


@pytest.mark.parametrize(("use", "kind", "text"), [
    (lambda ds: ds["a"], TypeError, "a dataset's places are ints, slices, lists of ints or a mask of bools, not str; get(key) takes keys"),
    (lambda ds: ds[1.0], TypeError,
     "a dataset's places are ints, slices, lists of ints or a mask of bools, not float; get(key) takes keys"),
    (lambda ds: ds[None], TypeError, "NoneType"), (lambda ds: ds[::0], ValueError, "zero"), (lambda ds: ds["a":], TypeError, "slice"),
    (lambda ds: ds[99], IndexError, "sample 99 is out of range: the dataset has 61"),
    (lambda ds: ds[-62], IndexError, "sample -62 is out of range: the dataset has 61"),
    (lambda ds: ds[True], TypeError, "True is not a place"),
    (lambda ds: 3 in ds, TypeError,
     "`in` is not defined for a dataset, whose samples are dicts of arrays; `key in ds.keys` looks a key up"),
    (lambda ds: ds.__setitem__(0, {}), AttributeError, "__setitem__")])
def test_what_a_list_refuses(ds: rankstore.Dataset, use: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text.replace("(", r"\(").replace(")", r"\)")):
        use(ds)


def test_torch_takes_it_as_a_map_style_dataset(ds: rankstore.Dataset) -> None:
    torch = pytest.importorskip("torch")
    whole = torch.utils.data.ConcatDataset([ds, torch.utils.data.Subset(ds, [4, 2])])
    assert [name(whole[i]) for i in (0, COUNT - 1, COUNT, COUNT + 1)] == ["sample 0", f"sample {COUNT - 1}", "sample 4", "sample 2"]
