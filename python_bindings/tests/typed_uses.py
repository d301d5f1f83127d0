# SPDX-License-Identifier: Apache-2.0
"""What type checkers know of the package. tests/typed.py checks this file and the examples; nothing runs it."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

import numpy
from torch.utils.data import DataLoader, Subset
from transformers import Trainer, TrainingArguments

import rankstore
import rankstore.hf
from rankstore import Batch, GatherReport, Loader, Pad

if TYPE_CHECKING:
    from torch.utils.data import Dataset as TorchDataset

    Ids = numpy.ndarray[Any, numpy.dtype[numpy.int64]]


class MyTrainer(rankstore.hf.TrainerMixin, Trainer):
    pass


def as_dict(samples: list[Any]) -> dict[str, Any]:
    return {"count": len(samples)}


def as_pair(samples: list[Any]) -> tuple[int, str]:
    return len(samples), ""


def augmented(sample: dict[str, Any], rng: numpy.random.Generator) -> dict[str, Any]:
    return {**sample, "x": rng.random()}


def samples_of(ds: rankstore.Dataset) -> None:
    assert_type(ds[0], dict[str, Any])
    assert_type(ds[-3:], list[dict[str, Any]])
    assert_type(ds[[1, 2]], list[dict[str, Any]])
    assert_type(ds.map(augmented).select([1]), rankstore.Dataset)
    assert_type(ds.get("key"), dict[str, Any])
    with rankstore.build([{"x": 1}], "store") as built:
        assert_type(built, rankstore.Dataset)


def batches_of(ds: rankstore.Dataset) -> None:
    plan = ds.plan("bucket", max_tokens="16k")
    assert_type(ds.loader(plan), Loader[Batch])
    assert_type(ds.loader(plan, collate=Pad(), map=augmented, threads=2, processes=1, device="cuda"), Loader[Batch])
    assert_type(ds.loader(plan, collate=as_dict), Loader[Batch])
    assert_type(ds.loader(plan, collate=as_pair, columns=["x"]), Loader[tuple[int, str]])
    assert_type(ds.loader(plan, transform=len), Loader[int])
    for batch in ds.loader(plan, collate=Pad()):
        assert_type(batch, Batch)
        assert_type(batch.ids, "Ids")
        assert_type(batch.to("cuda"), Batch)
        assert_type(batch.step, int)
    for number, text in ds.loader(plan, collate=as_pair):
        assert_type(number, int)
        assert_type(text, str)


def in_torch(ds: rankstore.Dataset) -> None:
    plan = ds.plan(batch_size=4)
    DataLoader(ds, batch_sampler=plan.sampler(), collate_fn=ds.collate, num_workers=2)
    DataLoader(ds.collating(Pad()), batch_size=4)
    Subset(ds, [1, 2])
    taken: TorchDataset[dict[str, Any]] = ds
    trainer = MyTrainer(args=TrainingArguments("out"), train_dataset=ds)
    trainer.plan, trainer.loader_options = plan, {"collate": Pad(), "pin": taken is ds}


def gathered(results: dict[str, tuple[int, float]]) -> None:
    assert_type(rankstore.gather(results), dict[Any, list[tuple[int, Any]]] | None)
    assert_type(rankstore.gather(results, stack=True), dict[Any, Any] | None)
    assert_type(rankstore.gather(results, out="out.npz", stack=True), GatherReport | None)
    assert_type(rankstore.gather(results, 0, "out.npz"), GatherReport | None)
