# SPDX-License-Identifier: Apache-2.0
"""The extension's views, Collate and Arrays: what numpy makes of the same samples."""
from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from rankstore import _core, errors

COUNT = 300


def ids(i: int) -> list[int]:
    return [i + j for j in range(i * 7 % 19)]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("collate")
    rows = [json.dumps({"ids": ids(i), "score": i / 4, "text": "x" * (i % 4)}) for i in range(COUNT)]
    (directory / "rows.jsonl").write_text("\n".join(rows) + "\n")
    group = _core.Group(solo=True)
    out = str(directory / "data")
    _core.build(group, [str(directory / "rows.jsonl")], out, length="ids",
                schema='{"ids": "int32[*]", "score": "float32", "text": "str"}')
    group.close()
    return out


@pytest.fixture
def store(dataset: str) -> Iterator[_core.Store]:
    group = _core.Group(solo=True)
    opened = _core.Store(group, dataset)
    yield opened
    opened.close()
    group.close()


def taken(arrays: _core.Arrays) -> dict[str, np.ndarray]:
    return {name: np.frombuffer(data, kind).reshape(dims) for name, kind, dims, data, _ in arrays.arrays()}


def padded(samples: list[int], multiple: int = 1, pad: int = 0, left: bool = False, most: int = 10**9) -> np.ndarray:
    rows = [ids(i)[:most] for i in samples]
    width = -(-max(len(row) for row in rows) // multiple) * multiple
    whole = np.full((len(rows), width), pad)
    for at, row in enumerate(rows):
        if row:
            whole[at, slice(width - len(row), width) if left else slice(0, len(row))] = row
    return whole


# ---- views ---------------------------------------------------------------------------------------


def test_views(store: _core.Store) -> None:
    for i in range(0, COUNT, 7):
        values = store.view(i)
        assert len(values) == 3
        first, score, text = values
        assert first and score and text
        assert first[1] == (len(ids(i)),) and np.frombuffer(first[0], np.int32).tolist() == ids(i)
        assert not first[0].writable and memoryview(first[0]).readonly
        assert score[1] == () and np.frombuffer(score[0], np.float32)[0] == i / 4
        assert bytes(text[0]) == b"x" * (i % 4)


@pytest.mark.parametrize("wrong", [-1, COUNT, 2**64])
def test_views_out_of_range(store: _core.Store, wrong: int) -> None:
    with pytest.raises(IndexError, match="out of range"):
        store.view(wrong)


def test_views_and_arrays_outlive_everything(dataset: str) -> None:
    group = _core.Group(solo=True)
    store = _core.Store(group, dataset)
    viewed, made = store.view(18), store.collate([18, 5], _core.Collate())
    samples = store.fetch([18])
    store.close()
    with pytest.raises(errors.StateError, match="closed"):
        store.view(0)
    late = samples.collate(_core.Collate())
    assert viewed[0]
    view, array, other = np.frombuffer(viewed[0][0], np.int32), taken(made)["ids"], taken(late)["ids"]
    numbers, lengths = np.frombuffer(made.ids(), np.uint64), np.frombuffer(made.lengths(), np.uint32)
    group.close()
    del store, group, viewed, made, late, samples
    gc.collect()
    assert view.tolist() == ids(18) and np.array_equal(array, padded([18, 5])) and np.array_equal(other, padded([18]))
    assert numbers.tolist() == [18, 5] and lengths.tolist() == [len(ids(18)), len(ids(5))]


# ---- layouts -------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"multiple": 8}, {"left": True}, {"pad": -5, "multiple": 4, "left": True},
                                     {"most": 6}])
def test_pad(store: _core.Store, options: dict[str, int]) -> None:
    samples = [18, 0, 5, 290, 5]
    collate = _core.Collate(columns=[("ids", "tokens", "int64", options.get("pad", 0), None), ("score", None, None, 0, None)],
                            to_multiple=options.get("multiple", 1), max_length=options.get("most", 0),
                            left=bool(options.get("left")), mask="mask")
    for arrays in (store.collate(samples, collate), store.collate(np.array(samples), collate),
                   store.fetch(samples).collate(collate)):
        assert arrays.samples == 5 and np.frombuffer(arrays.ids(), np.uint64).tolist() == samples
        found = taken(arrays)
        assert list(found) == ["tokens", "score", "mask"] and found["tokens"].dtype == np.int64
        assert np.array_equal(found["tokens"], padded(samples, **options))
        assert found["score"].tolist() == [i / 4 for i in samples]
        lengths = [min(len(ids(i)), options.get("most", 10**9)) for i in samples]
        assert found["mask"].sum(axis=1).tolist() == lengths
        assert (found["tokens"][found["mask"] == 0] == options.get("pad", 0)).all()


def test_pack(store: _core.Store) -> None:
    samples = [18, 0, 5, 290]
    collate = _core.Collate(layout="pack", columns=[("ids", None, None, 0, None), ("ids", "labels", "int64", -1, -100)],
                            to_multiple=16, positions="positions")
    arrays = store.collate(samples, collate)
    found = taken(arrays)
    items = [item for i in samples for item in ids(i)]
    total = -(-len(items) // 16) * 16
    assert found["ids"].tolist() == items + [0] * (total - len(items))
    firsts = [-100 if at == 0 else item for i in samples for at, item in enumerate(ids(i))]
    assert found["labels"].tolist() == firsts + [-1] * (total - len(items))
    assert found["positions"].tolist()[: len(items)] == [at for i in samples for at in range(len(ids(i)))]
    offsets = arrays.arrays()[0][4]
    assert offsets is not None and not offsets.writable
    assert np.frombuffer(offsets, np.int64).tolist() == np.cumsum([0] + [len(ids(i)) for i in samples]).tolist()


def test_all_columns_as_stored(store: _core.Store) -> None:
    found = taken(store.collate(range(20), _core.Collate()))
    assert list(found) == ["ids", "score", "text"]
    assert found["ids"].dtype == np.int32 and np.array_equal(found["ids"], padded(list(range(20))))
    assert bytes(found["text"]) == b"".join(b"x" * (i % 4) for i in range(20))  # packed, as text always is


def test_arrays_are_writable_and_aligned(store: _core.Store) -> None:
    for _, _, _, data, _ in store.collate(range(9), _core.Collate()).arrays():
        assert data.writable and np.frombuffer(data, np.uint8).ctypes.data % 64 == 0


@pytest.mark.parametrize("options, name", [
    ({"to_multiple": 0}, "to_multiple"), ({"max_length": -1}, "max_length"), ({"columns": [("ids",)]}, "columns"),
    ({"columns": [(None, None, None, 0, None)]}, "column"), ({"columns": [(5, None, None, 0, None)]}, "column"),
    ({"columns": [("ids", None, None, "x", None)]}, "real number"), ({"mask": "a\0b"}, "mask"), ({"layout": 5}, "layout"),
    ({"columns": 5}, "iterable"),
])
def test_wrong_options(options: dict[str, object], name: str) -> None:
    with pytest.raises((ValueError, TypeError), match=name):
        _core.Collate(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options, name", [
    ({"layout": "heap"}, "heap"), ({"columns": [("none", None, None, 0, None)]}, "none"),
    ({"columns": [("ids", None, "int16", 0, None)]}, "ids"),
])
def test_wrong_for_the_dataset(store: _core.Store, options: dict[str, object], name: str) -> None:
    collate = _core.Collate(**options)  # type: ignore[arg-type]
    for call in (lambda: store.collate([1], collate), lambda: store.fetch([1]).collate(collate),
                 lambda: _core.Epoch(store, _core.Plan(store), collate=collate).__next__()):
        with pytest.raises(errors.ArgumentError, match=name):
            call()
    with pytest.raises(TypeError, match="collate"):
        store.collate([1], "pad")  # type: ignore[arg-type]


# ---- epochs --------------------------------------------------------------------------------------


def test_epochs_of_arrays(store: _core.Store) -> None:
    plan = _core.Plan(store, max_tokens=200, seed=3)
    kept = []
    for step, arrays in _core.Epoch(store, plan, collate=_core.Collate(mask="mask")):
        assert step == len(kept) and isinstance(arrays, _core.Arrays)
        kept.append(arrays)
    assert len(kept) == plan.steps()
    for step, arrays in enumerate(kept):
        batch = plan.batch(0, step, 0)
        assert np.frombuffer(arrays.ids(), np.uint64).tolist() == batch
        assert np.array_equal(taken(arrays)["ids"], padded(batch))


def test_closing_a_store_closes_its_epochs_of_arrays(dataset: str) -> None:
    group = _core.Group(solo=True)
    store = _core.Store(group, dataset)
    epoch = _core.Epoch(store, _core.Plan(store, batch_size=7), collate=_core.Collate())
    kept = next(epoch)[1]
    store.close()
    with pytest.raises(errors.StateError, match="closed"):
        next(epoch)
    assert isinstance(kept, _core.Arrays) and kept.samples == 7 and taken(kept)["score"].shape == (7,)
    group.close()


def test_reference_counts(store: _core.Store) -> None:
    plan = _core.Plan(store, batch_size=20)

    def work() -> None:
        collate = _core.Collate(columns=[("ids", "a", "int64", 1.5e3, None)], mask="mask", layout="pad")
        for _, arrays in _core.Epoch(store, plan, collate=collate):
            assert isinstance(arrays, _core.Arrays)
            arrays.arrays(), arrays.ids(), arrays.lengths(), arrays.samples
        store.view(3)
        store.fetch([1, 2]).collate(collate)
        with pytest.raises(TypeError):
            _core.Collate(columns=[("ids", "b", "int64", "pad", None)])  # type: ignore[list-item]

    for _ in range(3):
        work()
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(20):
        work()
    gc.collect()
    assert sys.getallocatedblocks() - before < 100


def test_a_fork_reads_and_frees_what_it_was_given(store: _core.Store) -> None:
    arrays, viewed = store.collate([18], _core.Collate()), store.view(18)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            same = viewed[0] is not None and bytes(viewed[0][0]) == np.array(ids(18), np.int32).tobytes()
            code = 0 if same and np.array_equal(taken(arrays)["ids"], padded([18])) else 2
            del arrays, viewed
            gc.collect()
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert np.array_equal(taken(arrays)["ids"], padded([18]))
