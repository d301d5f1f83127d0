# SPDX-License-Identifier: Apache-2.0
"""rankstore.open and what a dataset answers."""
from __future__ import annotations

import copy
import gc
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import made
import numpy
import pytest
import torch

import rankstore

COUNT = 211


def test_samples_come_as_they_were_built(ds: rankstore.Dataset) -> None:
    assert len(ds) == COUNT
    assert all(made.same(ds[i], i) for i in range(COUNT))
    assert made.same(ds[-1], COUNT - 1)
    assert [one["text"] for one in ds[[5, 3, 5]]] == ["sample 5", "sample 3", "sample 5"]
    assert [one["text"] for one in ds[2:5]] == ["sample 2", "sample 3", "sample 4"]


def test_a_sample_is_the_callers_to_write(ds: rankstore.Dataset) -> None:
    one = ds[4]
    one["input_ids"][:] = 0
    assert made.same(ds[4], 4)


def test_a_quarantine_list_leaves_samples_out(ds: rankstore.Dataset, tmp_path: Path) -> None:
    with pytest.raises(IndexError, match=str(COUNT)):
        ds.write_quarantine(tmp_path / "bad.json", [COUNT])
    ds.write_quarantine(tmp_path / "bad.json", [17, 3, 17])
    with rankstore.open(tmp_path / "store", quarantine=tmp_path / "bad.json") as left:
        assert len(left) == COUNT and left.stats()["quarantined"] == 2
        assert made.same(left[4], 4) and left.owner(17) == -1
        with pytest.raises(rankstore.NotFoundError, match="sample 17 is in quarantine"):
            left[17]
        planned = left.plan("random", batch_size=8).epoch(0).batches()[1]
        assert sorted(planned.tolist()) == [i for i in range(COUNT) if i not in (3, 17)]
    with pytest.raises(rankstore.NotFoundError, match="nowhere"):
        rankstore.open(tmp_path / "store", quarantine="nowhere.json")


def test_the_directory_for_a_large_index_is_there(ds: rankstore.Dataset, tmp_path: Path) -> None:
    (tmp_path / "scratch-0").mkdir()
    with rankstore.open(tmp_path / "store", index_dir=tmp_path / "scratch-{node}") as other:
        assert len(other) == COUNT and made.same(other[4], 4)
    assert not list((tmp_path / "scratch-0").iterdir())
    with pytest.raises(rankstore.IOFailedError, match="index_dir .*/nowhere: No such file or directory"):
        rankstore.open(tmp_path / "store", index_dir=tmp_path / "nowhere")
    with pytest.raises(TypeError):
        rankstore.open(tmp_path / "store", index_dir=3)  # type: ignore[arg-type]


def test_workers_and_concat_take_over_the_directory_for_a_large_index(ds: rankstore.Dataset, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch-0"
    scratch.mkdir()
    with rankstore.open(tmp_path / "store", index_dir=tmp_path / "scratch-{node}") as other:
        assert made.same(pickle.loads(pickle.dumps(other))[4], 4)  # opened as in a worker process
        with rankstore.concat([other]) as again:
            assert made.same(again[4], 4)
        scratch.rmdir()
        with pytest.raises(rankstore.IOFailedError, match="index_dir .*/scratch-0: No such file or directory"):
            rankstore.concat([other])
        with rankstore.concat([other], index_dir=tmp_path) as elsewhere:
            assert made.same(elsewhere[4], 4)
        copy = pickle.loads(pickle.dumps(other))
        assert copy._handle.spec().index_dir == str(scratch)
        assert made.same(copy[4], 4)  # it cannot open the dataset, and asks the process that has it open


@pytest.mark.parametrize("place", [COUNT, -COUNT - 1, 2**64 - 1])
def test_a_place_that_is_not_there(ds: rankstore.Dataset, place: int) -> None:
    with pytest.raises(IndexError, match=str(place)):
        ds[place]


def test_a_key_leads_to_its_sample(ds: rankstore.Dataset) -> None:
    key = ds.keys[17]
    assert ds.keys.find(key) == 17
    assert made.same(ds.get(key), 17)
    assert key in ds.keys and "nobody" not in ds.keys
    with pytest.raises(KeyError, match="nobody"):
        ds.get("nobody")


def test_a_view_is_read_only_and_outlives_the_dataset(tmp_path: Path) -> None:
    made.build(tmp_path / "store", 20)
    ds = rankstore.open(tmp_path / "store")
    view = ds.view(9)
    with pytest.raises(ValueError):
        view["input_ids"][0] = 1
    ds.close()
    del ds
    gc.collect()
    assert numpy.array_equal(view["input_ids"], made.sample(9)["input_ids"])


def test_lengths_and_index_columns_are_arrays_without_a_copy(ds: rankstore.Dataset) -> None:
    assert ds.lengths.tolist() == [made.length_of(i) for i in range(COUNT)]
    assert not ds.lengths.flags.writeable
    assert list(ds.index) == ["score"] and ds.index["score"].tolist() == [i / 4 for i in range(COUNT)]
    held = ds.lengths
    ds.close()
    assert held[3] == made.length_of(3)


def test_a_selection_keeps_ids_and_plans_only_its_own(ds: rankstore.Dataset) -> None:
    chosen = ds.select(ds.lengths > 20)
    places = numpy.flatnonzero(ds.lengths > 20)
    assert len(chosen) == len(places)
    assert made.same(chosen[3], int(places[3]))
    assert chosen.lengths.min() > 20
    _, ids = chosen.plan(batch_size=7).epoch(0).batches()
    assert sorted(ids.tolist()) == places.tolist()
    again = chosen.select([0, 2])
    assert made.same(again[1], int(places[2]))
    assert chosen.keys.find(ds.keys[int(places[1])]) == 1
    with pytest.raises(KeyError):
        chosen.keys.find(ds.keys[int(numpy.flatnonzero(ds.lengths <= 20)[0])])


@pytest.mark.parametrize("kind", ["numpy", "torch", "list", "numpy's bools", "tuple"])
def test_a_mask_reads_what_select_selects(ds: rankstore.Dataset, kind: str) -> None:
    mask = ds.lengths < 20
    made_of = {"numpy": mask, "torch": torch.from_numpy(mask), "list": mask.tolist(), "numpy's bools": list(mask),
               "tuple": tuple(mask.tolist())}[kind]
    texts = [one["text"] for one in ds[made_of]]
    assert texts == [f"sample {i}" for i in numpy.flatnonzero(mask)] == [one["text"] for one in ds.select(made_of)]
    chosen = ds.select(mask)
    few = chosen.lengths < 10
    assert [one["text"] for one in chosen[few]] == [one["text"] for one in chosen.select(few)]
    assert ds[numpy.zeros(COUNT, bool)] == [] == ds[[]]


@pytest.mark.parametrize("mask", [[True, False], numpy.ones(3, bool), torch.ones(COUNT + 1, dtype=torch.bool), numpy.ones(0, bool)])
def test_a_mask_of_another_length(ds: rankstore.Dataset, mask: Any) -> None:
    with pytest.raises(IndexError, match=f"the mask has {len(mask)} entries, the dataset {COUNT} samples"):
        ds[mask]


@pytest.mark.parametrize("which", [True, False, numpy.True_, torch.tensor(True), [1, True], [True] * (COUNT - 1) + [0],
                                   numpy.ones((COUNT, 2), bool)])
def test_a_bool_is_no_place(ds: rankstore.Dataset, which: Any) -> None:
    with pytest.raises(TypeError):
        ds[which]
    with pytest.raises((TypeError, ValueError)):
        ds.select(which)
    if not hasattr(which, "__len__"):
        for call in (ds.view, ds.owner, ds.keys.__getitem__, ds.sample_id):
            with pytest.raises(TypeError, match="is not a place"):
                call(which)


@pytest.mark.parametrize("which", [[[0]], ["a"], numpy.ones(3, bool), [0.5]])
def test_a_selection_that_is_none(ds: rankstore.Dataset, which: object) -> None:
    with pytest.raises((rankstore.ArgumentError, ValueError)):
        ds.select(which)
    with pytest.raises(IndexError):
        ds.select([0, COUNT])


def test_the_repr_tells_all_of_it(ds: rankstore.Dataset) -> None:
    for part in (str(COUNT), "input_ids: uint16[*]", "length input_ids", ds.id, "rank 0 of 1"):
        assert part in repr(ds)


def test_a_closed_dataset_says_so(tmp_path: Path) -> None:
    made.build(tmp_path / "store", 5)
    ds = rankstore.open(tmp_path / "store")
    ds.close()
    ds.close()
    assert "closed" in repr(ds)
    with pytest.raises(rankstore.StateError, match="closed"):
        ds[0]


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(rankstore.NotFoundError, match="nowhere"):
        rankstore.open(tmp_path / "nowhere")


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_the_same_open_dataset(ds: rankstore.Dataset, copied: Any) -> None:
    chosen = ds.select([3, 5, 7]).collating(rankstore.Pad())
    chosen.mark = "mine"  # type: ignore[attr-defined]
    for of in (ds, chosen):
        one = copied(of)
        assert one is not of and repr(one) == repr(of) and "in a worker process" not in repr(one)
        assert [one[i]["text"] for i in range(3)] == [of[i]["text"] for i in range(3)]
        assert one.report == of.report and one.plan(batch_size=2).report() == of.plan(batch_size=2).report()
        first, second = next(iter(one.loader(one.plan(batch_size=2)))), next(iter(of.loader(of.plan(batch_size=2))))
        assert first["text"] == second["text"]
    assert copied(chosen).mark == "mine" and isinstance(copied(chosen).__getitems__([0, 1]), rankstore.Batch)
    nested = copied({"data": ds})
    assert nested["data"].lengths[0] == ds.lengths[0]
    copied(ds).close()
    assert ds.closed


def test_a_pickled_dataset_opens_again_in_a_new_process(ds: rankstore.Dataset, tmp_path: Path) -> None:
    (tmp_path / "ds").write_bytes(pickle.dumps(ds))
    script = "import pickle, sys; ds = pickle.load(open(sys.argv[1], 'rb')); print(ds[7]['text'], ds.get(ds.keys[3])['text'], len(ds))"
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "ds")], text=True, capture_output=True, timeout=400)
    assert done.stdout.split("\n")[0] == f"sample 7 sample 3 {COUNT}", done.stderr


def test_it_imports_without_numpy_torch_or_mpi() -> None:
    script = ("import sys\nclass Refuse:\n def find_spec(self, name, *_):\n"
              "  if name.split('.')[0] in ('numpy', 'torch', 'mpi4py', 'pyarrow', 'tqdm'): raise ImportError(name)\n"
              "sys.meta_path.insert(0, Refuse())\nimport rankstore\nprint(rankstore.__version__)")
    done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, timeout=400)
    assert done.returncode == 0, done.stderr


def test_to_open_and_read_imports_no_builder() -> None:
    script = ("import sys, rankstore\nfrom rankstore import open\n"
              "late = ('rankstore._build', 'rankstore._gather', 'rankstore._sources')\n"
              "print([name for name in sys.modules if name.startswith(late)], set(rankstore.__all__) <= set(dir(rankstore)))\n"
              "print(all(hasattr(rankstore, name) for name in rankstore.__all__), callable(rankstore.build), hasattr(rankstore, 'nobody'))")
    done = subprocess.run([sys.executable, "-c", script], text=True, capture_output=True, timeout=400)
    assert done.stdout.split("\n")[:2] == ["[] True", "True True False"], done.stdout + done.stderr


def test_places_of_a_batch_are_those_of_the_part(tmp_path: Path) -> None:
    with rankstore.build([{"x": numpy.full(3 + i % 9, i)} for i in range(200)], tmp_path / "store") as ds:
        part = ds.split({"train": 0.9, "val": 0.1})[0]
        twice = ds.select([7, 150, 3, 7, 99, 3])
        for chosen in (ds, part, twice, ds.select([])):
            if not len(chosen):
                assert chosen.places_of([]).tolist() == []
                continue
            for batch in chosen.loader(chosen.plan(batch_size=4), collate=rankstore.Pad()):
                held = batch["x"][:, 0].tolist()
                assert [int(one["x"][0]) for one in chosen[batch.places]] == held == [int(ds[int(i)]["x"][0]) for i in batch.ids]
                assert batch.places.dtype == numpy.int64 and batch.places.tolist() == [chosen.place(int(i)) for i in batch.ids]
        assert twice.places_of([3, 7, 150]).tolist() == [2, 0, 1]
        for missing in (8, 199):
            with pytest.raises(KeyError, match=f"sample {missing} is not in the selection"):
                twice.places_of([3, missing])
        with pytest.raises(AttributeError, match=r"indices: a batch has ids, .* and places, which ds\[...\]"):
            batch.indices
        with pytest.raises(rankstore.StateError, match=r"use ds.places_of\(batch.ids\)"):
            made = rankstore.Batch()
            made.ids = numpy.arange(3)
            made.places
