# SPDX-License-Identifier: Apache-2.0
"""What loaders and trainers do to a dataset, its plans and its processes; the trainings themselves are in test_examples.py."""
from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import made
import numpy
import pytest
import torch
from torch.utils.data import DataLoader
from trained import needs

import rankstore
from rankstore import Pad

COUNT = 211
Ranks = Callable[..., list[subprocess.CompletedProcess[str]]]


def check(batch: rankstore.Batch) -> list[int]:
    """The ids of a batch, after a look at each of its samples."""
    ids: list[int] = batch.ids.tolist()
    for row, i in enumerate(ids):
        size = made.length_of(i)
        assert batch.lengths[row] == size and batch["input_ids"][row, :size].tolist() == [(i + k) % 65536 for k in range(size)]
        assert batch["text"][row] == f"sample {i}" and bytes(batch["blob"][row]) == bytes([i % 256]) * (i % 5)
    return ids


# ---- torch's DataLoader ---------------------------------------------------------------------------------------------

@pytest.mark.parametrize("start", ["fork", "forkserver", "spawn"])
def test_workers(ds: rankstore.Dataset, start: str) -> None:
    plan = ds.plan(batch_size=16, seed=5)
    sampler, batches = plan.sampler(), ds.collating(Pad())
    next(iter(ds.loader(plan, collate=Pad())))  # the library's threads have run in this process
    loader = DataLoader(batches, batch_sampler=sampler, collate_fn=batches.collate, num_workers=2, persistent_workers=True,
                        multiprocessing_context=start, timeout=400)
    seen: list[list[int]] = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        ids: list[int] = []
        for step, batch in enumerate(loader):
            assert (batch.epoch, batch.step) == (epoch, step)
            assert batch.global_tokens == batch.lengths.sum()
            ids += check(batch)
        assert sorted(ids) == list(range(COUNT)) and len(loader) == step + 1
        seen.append(ids)
    assert seen[0] != seen[1]
    assert made.same(ds[3], 3)  # the parent's own dataset is as it was


def test_one_sample_after_the_other_and_as_a_plain_sampler(ds: rankstore.Dataset) -> None:
    one_by_one = DataLoader(ds, batch_size=None, num_workers=2, timeout=400, multiprocessing_context="fork")
    assert all(made.same(one, i) for i, one in enumerate(_numpy(one) for one in one_by_one))
    whole = DataLoader(ds.collating(Pad()), sampler=ds.plan(batch_size=8).sampler(), batch_size=None)  # type: ignore[arg-type]
    assert sorted(i for batch in whole for i in check(batch)) == list(range(COUNT))


@pytest.mark.parametrize("workers", [0, 2])
def test_dataloaders_own_batches(ds: rankstore.Dataset, workers: int) -> None:
    """Without a plan: DataLoader's sampler, the dataset's collating; also over a selection."""
    chosen = ds.select(range(1, COUNT, 2)).collating(Pad())
    assert len(chosen.plan(batch_size=8).sampler()) > 0
    loader = DataLoader(chosen, batch_size=8, shuffle=True, collate_fn=chosen.collate, num_workers=workers)
    assert sorted(i for batch in loader for i in check(batch)) == list(range(1, COUNT, 2))


def _numpy(one: dict[str, Any]) -> dict[str, Any]:
    """DataLoader without batches makes tensors of arrays."""
    return {name: value.numpy() if hasattr(value, "numpy") else value for name, value in one.items()}


def as_they_are(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    assert type(samples) is list and all(type(one) is dict for one in samples)
    return samples


@pytest.mark.parametrize("workers, start", [(0, None), (2, "fork"), (2, "spawn")])
@pytest.mark.parametrize("options", [{}, {"max_length": 9, "too_long": "truncate"}, {"max_length": 9, "too_long": "split"},
                                     {"strategy": "pack"}, {"world": 3, "rank": 1}], ids=["whole", "truncate", "split", "pack", "rank"])
def test_an_own_collate_fn_gets_samples(ds: rankstore.Dataset, workers: int, start: str | None, options: dict[str, Any]) -> None:
    plan = ds.plan(**{**({"capacity": 300} if "strategy" in options else {"batch_size": 16}), "seed": 5, **options})
    collate = list if start == "spawn" else as_they_are  # a spawned worker cannot import this file
    loader: Any = DataLoader(ds, batch_sampler=plan.sampler(), collate_fn=collate, num_workers=workers, multiprocessing_context=start,
                             timeout=400 if workers else 0)
    for epoch in range(2):
        loader.batch_sampler.set_epoch(epoch)
        wanted = list(ds.loader(plan, collate=lambda samples: samples, start=plan.state(epoch, 0)))
        found = list(loader)
        assert len(found) == len(wanted) == plan.steps
        for batch, other in zip(found, wanted):
            assert [set(one) == set(ds.schema) for one in batch] == [True] * len(other)
            for one, same in zip(batch, other):
                assert one["text"] == same["text"] and numpy.array_equal(one["input_ids"], same["input_ids"])


def test_ds_collate_gives_layouts_and_collating_gives_them_to_own_functions(ds: rankstore.Dataset) -> None:
    plan = ds.plan(batch_size=16, seed=5)
    for loader in (DataLoader(ds, batch_sampler=plan.sampler(), collate_fn=ds.collate),  # type: ignore[arg-type]
                   DataLoader(ds.collating(Pad()), batch_sampler=plan.sampler(), collate_fn=lambda batch: batch)):  # type: ignore[arg-type]
        assert sorted(i for batch in loader for i in check(batch)) == list(range(COUNT))
    with pytest.raises(rankstore.ArgumentError, match=r"ds.collate: .* cannot be stacked .*ds.collating\(Pad\(\)\)"):
        next(iter(DataLoader(ds, batch_sampler=plan.sampler(), collate_fn=lambda samples: ds.collate(samples))))  # type: ignore[arg-type]


def test_batches_out_of_order_are_warned_of(ds: rankstore.Dataset) -> None:
    batches = ds.collating(Pad())
    options: dict[str, Any] = {"batch_sampler": ds.plan(batch_size=16).sampler(), "collate_fn": batches.collate}
    with pytest.warns(UserWarning, match="in_order"):
        list(DataLoader(batches, num_workers=2, timeout=400, in_order=False, multiprocessing_context="fork", **options))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        list(DataLoader(batches, num_workers=0, in_order=False, **options))


def test_pickles(ds: rankstore.Dataset) -> None:
    chosen = ds.select(range(0, COUNT, 3)).collating(Pad(), columns=["input_ids"])
    again = pickle.loads(pickle.dumps(chosen))
    assert len(again) == len(chosen) and made.same(again[5], 15) and again.schema == ds.schema
    places = next(iter(ds.plan(batch_size=8).sampler()))
    same = pickle.loads(pickle.dumps(places))
    assert same == places and (same.epoch, same.step, same.token) == (0, 0, places.token)
    batch = next(iter(ds.loader(ds.plan(batch_size=8), collate=Pad())))
    other = pickle.loads(pickle.dumps(batch))
    assert check(other) == check(batch) and other.step == 0
    again.close()


def test_a_batch_of_another_processs_plan_is_not_taken_for_ours(ds: rankstore.Dataset, tmp_path: Path) -> None:
    """Each process counts its own plans: the first one there is not the first one here."""
    plan = ds.plan(batch_size=8)
    script = ("import pickle, sys, rankstore\nds = rankstore.open(sys.argv[1])\nplan = ds.plan(batch_size=8)\n"
              "open(sys.argv[2], 'wb').write(pickle.dumps(next(iter(plan.sampler()))))")
    subprocess.run([sys.executable, "-c", script, str(tmp_path / "store"), str(tmp_path / "places")], check=True, timeout=400)
    places = pickle.loads((tmp_path / "places").read_bytes())
    assert places.token != plan.token


def test_an_error_in_a_worker_arrives(ds: rankstore.Dataset) -> None:
    batches = ds.collating(Pad())
    loader = iter(DataLoader(batches, batch_sampler=[[1, 2], [COUNT + 5]], collate_fn=batches.collate, num_workers=1, timeout=400,
                             multiprocessing_context="fork"))
    assert check(next(loader)) == [1, 2]
    with pytest.raises(IndexError, match=f"{COUNT + 5} is out of range: the dataset has {COUNT}"):
        next(loader)


@pytest.fixture
def by_name() -> Iterator[None]:
    """Tensors travel by names, not by descriptors that a worker hands over while it lives: then the end of one is torch's
    own error, whatever it was at."""
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy("file_system")
    yield
    torch.multiprocessing.set_sharing_strategy(before)


def test_a_worker_that_dies(ds: rankstore.Dataset, by_name: None) -> None:
    batches = ds.collating(Pad())
    loader = DataLoader(batches, batch_sampler=ds.plan(batch_size=4).sampler(), collate_fn=batches.collate, num_workers=2, timeout=400,
                        multiprocessing_context="fork")
    iterator = iter(loader)
    next(iterator)
    with pytest.raises(RuntimeError, match="exited unexpectedly|killed by signal"):  # torch's handler raises it anywhere
        os.kill(iterator._workers[0].pid, signal.SIGKILL)
        for _ in iterator:
            time.sleep(0.1)
    del iterator
    assert sorted(i for batch in loader for i in check(batch)) == list(range(COUNT))


SHARDED = '''
import os, sys
import rankstore
sys.path.insert(0, os.environ["TESTS"])
import made
import torch
from torch.utils.data import DataLoader

def main():
    group = rankstore.init()
    made.build(os.path.abspath("store.{rank}"), 211, group)
    ds = rankstore.open(os.path.abspath("store.{rank}"))
    plan = ds.plan(batch_size=16, seed=5)
    sampler, batches = plan.sampler(), ds.collating(rankstore.Pad())
    loader = DataLoader(batches, batch_sampler=sampler, collate_fn=batches.collate, num_workers=2, persistent_workers=True,
                        multiprocessing_context=sys.argv[1], timeout=400)
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            for row, i in enumerate(batch.ids.tolist()):
                size = made.length_of(i)
                assert batch["input_ids"][row, :size].tolist() == [(i + k) % 65536 for k in range(size)]
                assert batch["text"][row] == f"sample {i}" and bytes(batch["blob"][row]) == bytes([i % 256]) * (i % 5)
            assert batch.global_tokens >= batch.lengths.sum()
            print(epoch, *batch.ids.tolist(), flush=True)
    loader = DataLoader(ds, sampler=range(ds.group.rank, 211, 2), batch_size=None, num_workers=1, timeout=400,
                        multiprocessing_context=sys.argv[1])
    assert [one["text"] for one in loader] == [f"sample {i}" for i in range(ds.group.rank, 211, 2)]
    del loader
    ds.close()
    group.close()

if __name__ == "__main__":
    main()
'''


@pytest.mark.parametrize("start, nodes", [("fork", "one node"), ("spawn", "one node"), ("fork", "two nodes"), ("forkserver", "two nodes")])
def test_workers_of_ranks_with_directories_of_their_own(ranks: Ranks, start: str, nodes: str) -> None:
    """On one node workers open each other's shards, on two they ask their parents for what lies elsewhere."""
    script = SHARDED if nodes == "one node" else SHARDED.replace("rankstore.init()", 'rankstore.init(node=os.environ["RANK"])')
    lines = [line.split() for one in ranks(2, script, start) for line in one.stdout.splitlines()]
    for epoch in "01":
        assert sorted(int(i) for line in lines if line[0] == epoch for i in line[1:]) == list(range(COUNT))


# ---- torchdata ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("stop", [1, 6, 14])
@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_dataloader_goes_on_exactly(ds: rankstore.Dataset, workers: int, stop: int) -> None:
    """14 is the epoch's end: nothing is left of it."""
    needs("torchdata")
    import torchdata.stateful_dataloader as stateful

    def loader() -> tuple[Any, rankstore.PlanSampler]:
        sampler, batches = ds.plan(batch_size=16, seed=5).sampler(), ds.collating(Pad())
        return stateful.StatefulDataLoader(batches, batch_sampler=sampler, collate_fn=batches.collate, num_workers=workers,
                                           multiprocessing_context="fork" if workers else None, timeout=200 if workers else 0), sampler

    whole, sampler = loader()
    wanted = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        wanted.append([check(batch) for batch in whole])
    assert len(wanted[0]) == 14 and wanted[0] != wanted[1]
    first, sampler = loader()
    sampler.set_epoch(0)
    iterator = iter(first)
    begun = [check(next(iterator)) for _ in range(stop)]
    state = json.loads(json.dumps(first.state_dict())) if workers == 0 else pickle.loads(pickle.dumps(first.state_dict()))
    del iterator
    second, sampler = loader()
    second.load_state_dict(state)
    sampler.set_epoch(0)
    assert begun + [check(batch) for batch in second] == wanted[0]
    sampler.set_epoch(1)
    assert [check(batch) for batch in second] == wanted[1]


# ---- Accelerate, Lightning, transformers ------------------------------------------------------------------------------

TRAINER = ["import accelerate"]  # is there when a rank begins (warm.py)
ACCELERATE = '''
import os, sys, torch
import rankstore
sys.path.insert(0, os.environ["TESTS"])
import made
from accelerate import Accelerator, DataLoaderConfiguration
import torch
from torch.utils.data import DataLoader
how = sys.argv[1]
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4, dataloader_config=DataLoaderConfiguration(
    split_batches=how == "split", dispatch_batches=how == "dispatch"))
made.build("store", 211, rankstore.init())
ds = rankstore.open("store")
plan = ds.plan(batch_size=16, seed=5)
batches = ds.collating(rankstore.Pad(), columns=["input_ids"])
model = accelerator.prepare(torch.nn.Embedding(65536, 2))
optimizer = accelerator.prepare(torch.optim.SGD(model.parameters(), lr=0.1))
try:
    loader = ds.loader(plan, collate=rankstore.Pad(), columns=["input_ids"])
    if how != "loader":
        loader = DataLoader(batches, batch_sampler=plan.sampler("rank" if how == "rank" else "global"), collate_fn=batches.collate)
    prepared = accelerator.prepare(loader)
    if how == "loader":
        assert prepared is loader
    for batch in prepared:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch["input_ids"]).sum())
            optimizer.step()
            optimizer.zero_grad()
        print(*batch.ids.tolist(), flush=True)
except (rankstore.RankStoreError, ValueError) as error:
    print("refused:", error, flush=True)
    os._exit(0)
weights = accelerator.gather(model.module.weight.detach().sum().reshape(1)).tolist()
assert weights[0] == weights[1], weights
assert len(plan.epoch(0)) % 4 != 0
ds.close()
accelerator.end_training()
'''


@pytest.mark.parametrize("how", ["loader", "global"])
def test_accelerate_leaves_the_plan_as_it_is(ranks: Ranks, how: str) -> None:
    """Also the weights of the ranks are equal after an epoch whose last accumulation is short: it was synced."""
    needs("accelerate")
    done = ranks(2, ACCELERATE, how, warm=TRAINER)
    lines = [[[int(i) for i in line.split()] for line in one.stdout.splitlines()] for one in done]
    assert len(lines[0]) == len(lines[1])
    assert sorted(i for rank in lines for batch in rank for i in batch) == list(range(COUNT))


@pytest.mark.parametrize("how, says", [("split", "batch_size"), ("rank", 'plan.sampler("global")')])
def test_what_accelerate_would_do_wrong_is_refused(ranks: Ranks, how: str, says: str) -> None:
    needs("accelerate")
    assert all(says in one.stdout.splitlines()[-1] and "refused" in one.stdout for one in ranks(2, ACCELERATE, how, warm=TRAINER))


def test_accelerates_dispatching_is_refused(ranks: Ranks) -> None:
    """Rank 0 alone reads then; the other one ends when rank 0 has."""
    needs("accelerate")
    done = ranks(2, ACCELERATE, "dispatch", check=False, warm=TRAINER)
    assert "refused: Accelerate's dispatch_batches=True" in done[0].stdout


def test_lightning_reaches_the_loader_through_its_sampler(ds: rankstore.Dataset) -> None:
    loader = ds.loader(ds.plan(batch_size=16, seed=5), collate=Pad())
    iterator = iter(loader)  # Lightning makes the iterator first
    loader.sampler.set_epoch(2)
    assert next(iterator).epoch == 2 and loader.epoch == 2


def test_a_loader_knows_in_which_epoch_to_go_on(ds: rankstore.Dataset) -> None:
    loader = ds.loader(ds.plan(batch_size=16, seed=5), collate=Pad())
    assert loader.epoch == 0
    for _ in loader:
        assert loader.epoch == (0 if loader.state_dict()["step"] < len(loader) else 1)
    other = ds.loader(ds.plan(batch_size=16, seed=5), collate=Pad(), start=loader.state_dict())
    assert other.epoch == 1
    other.set_epoch(other.epoch)
    assert sorted(i for batch in other for i in check(batch)) == list(range(COUNT)) and other.epoch == 2


def test_the_trainer_mixin_says_what_is_missing() -> None:
    import rankstore.hf

    class Settings:
        split_batches, dispatch_batches = True, None

    trainer = rankstore.hf.TrainerMixin()
    with pytest.raises(rankstore.ArgumentError, match="plan is not set"):
        trainer.get_train_dataloader()
    trainer.plan, trainer.accelerator = object(), Settings()  # type: ignore[assignment, attr-defined]
    with pytest.raises(rankstore.ArgumentError, match="split_batches=True"):
        trainer.get_train_dataloader()


# ---- those that make a batch anew from its items ----------------------------------------------------------------------

def by_ddp(batch: rankstore.Batch, device: str) -> Any:
    """What DistributedDataParallel gives its module where device_ids are set."""
    from torch.distributed.utils import _recursive_to
    (made,) = _recursive_to((batch,), torch.device(device), False)[0]
    return made


def by_items(batch: rankstore.Batch, device: str) -> Any:
    """As the Trainer's _prepare_input does."""
    return type(batch)({name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in batch.items()})


@pytest.mark.parametrize("remake", [by_ddp, by_items])
@pytest.mark.parametrize("layout", [Pad(), rankstore.Pack(), rankstore.Lists()], ids=lambda one: type(one).__name__)
def test_a_batch_that_is_made_anew_knows_its_place(ds: rankstore.Dataset, layout: rankstore.Layout, remake: Any) -> None:
    plan = ds.plan(batch_size=16, seed=5)
    for batch in ds.loader(plan, collate=layout, columns=["input_ids"]):
        other = remake(batch, "cpu")
        assert other is not batch and list(other) == list(batch) and other.step == batch.step and other.epoch == 0
        assert other.ids.tolist() == batch.ids.tolist() and other.global_tokens == batch.global_tokens
        assert other.sample_keys == batch.sample_keys and other.padding_ratio == batch.padding_ratio
    assert batch.step == plan.steps - 1


@pytest.mark.parametrize("remake", [by_ddp, by_items])
def test_a_batch_whose_tensors_were_copied_says_what_to_do(ds: rankstore.Dataset, remake: Any) -> None:
    for batch in ds.loader(ds.plan(batch_size=16, seed=5), collate=Pad(), columns=["input_ids"]):
        lost, moved = remake(batch, "meta"), remake(batch.to("meta"), "meta")
        assert lost["input_ids"].device.type == moved["input_ids"].device.type == "meta"
        for name in ("ids", "lengths", "step", "epoch", "micro", "global_tokens", "padding_ratio", "pieces"):
            with pytest.raises(AttributeError, match=r"made of columns alone.*ds.loader\(plan, device=...\)"):
                getattr(lost, name)
        with pytest.raises(rankstore.StateError, match=r"or batch.to\(device\)"):
            lost.global_sum("learned")
        assert not hasattr(lost, "ids") and not hasattr(lost, "no_such_name")
        assert moved.ids.tolist() == batch.ids.tolist() and moved.step == batch.step


def test_a_tensor_that_all_batches_share_does_not_tell_them_apart(ds: rankstore.Dataset) -> None:
    shared = torch.ones(4)

    def collate(samples: list[dict[str, Any]]) -> dict[str, Any]:
        return {"mask": shared, "ids": [{"first": [torch.tensor(one["input_ids"][:1].astype("int64"))]} for one in samples], "none": []}

    one, other = list(ds.loader(ds.plan(batch_size=16, seed=5), collate=collate))[:2]
    pairs = list(one.items()), list(other.items())
    assert not hasattr(rankstore.Batch(pairs[0]), "ids"), "the other one was asked last"
    assert rankstore.Batch(pairs[1]).ids.tolist() == other.ids.tolist()
    assert by_ddp(one, "cpu").ids.tolist() == one.ids.tolist() == by_items(one, "cpu").ids.tolist()
    assert not hasattr(rankstore.Batch(mask=shared), "ids")


def test_a_batch_of_no_plan_has_no_step(ds: rankstore.Dataset) -> None:
    batch = ds.collating(Pad()).__getitems__([3, 5])
    assert (batch.step, batch.epoch, batch.micro) == (-1, -1, 0) and pickle.loads(pickle.dumps(batch)).step == -1


def test_a_batch_of_a_user_s_own_tensors_has_no_origin(ds: rankstore.Dataset) -> None:
    for batch in ds.loader(ds.plan(batch_size=16, seed=5), collate=Pad(), columns=["input_ids"]):
        assert batch.items() == dict(batch).items()
        assert not hasattr(rankstore.Batch({"input_ids": batch["input_ids"].clone()}), "ids")
        assert not hasattr(rankstore.Batch(text=["a"], number=5), "ids") and not hasattr(rankstore.Batch(), "ids")


# ---- how a run ends -------------------------------------------------------------------------------------------------

ENDING = '''
import sys, time
import rankstore
import torch
from torch.utils.data import DataLoader
ds = rankstore.open(sys.argv[1])
plan, batches = ds.plan(batch_size=4), ds.collating(rankstore.Pad())
if sys.argv[2] == "loader":
    loader = ds.loader(plan, collate=rankstore.Pad())
else:
    loader = DataLoader(batches, batch_sampler=plan.sampler(), collate_fn=batches.collate, num_workers=int(sys.argv[2]))
iterator = iter(loader)
next(iterator)
print("here", flush=True)
'''


@pytest.mark.parametrize("how", ["loader", "0", "2"])
def test_the_interpreter_ends_with_an_open_loader(tmp_path: Path, how: str) -> None:
    made.build(tmp_path / "store", COUNT)
    rankstore.current().close()
    few_cores = "ignore:This DataLoader will create"  # more workers than cores are torch's to warn of
    done = subprocess.run([sys.executable, "-W", few_cores, "-c", ENDING, str(tmp_path / "store"), how], text=True, capture_output=True,
                          timeout=400)
    assert (done.returncode, done.stdout, done.stderr) == (0, "here\n", "")


@pytest.mark.parametrize("how", ["loader", "0", "2"])
def test_ctrl_c_in_a_training_loop(tmp_path: Path, how: str) -> None:
    made.build(tmp_path / "store", COUNT)
    rankstore.current().close()
    script = ENDING + ("next(iterator)\nprint('and of the other worker', flush=True)\nfor batch in iterator:\n    time.sleep(0.01)\n"
                       "while True:\n    time.sleep(1)\n")
    process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "store"), how], text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "here\n"
        assert process.stdout.readline() == "and of the other worker\n"  # one that still starts would print a traceback, too
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does, workers included
        _, err = process.communicate(timeout=400)
    finally:
        process.kill()
    assert process.returncode in (-signal.SIGINT, 130) and "\nKeyboardInterrupt\n" in err, err
