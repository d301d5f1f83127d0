# SPDX-License-Identifier: Apache-2.0
"""Trainers that stop in mid-epoch and go on, with each kind of loader, also on other numbers of ranks: each sample once."""
from __future__ import annotations

import collections
import json
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from torch.utils.data import DataLoader
from trained import EXAMPLES, needs

import rankstore
from rankstore import Pack, Pad

COUNT = 211
Ranks = Callable[..., list[subprocess.CompletedProcess[str]]]


# ---- a DataLoader of the loader's attributes ------------------------------------------------------------------------

def shifted(batch: Any) -> Any:
    return type(batch)({**batch, "input_ids": batch["input_ids"] + 1000})


def drawn(sample: dict[str, Any], rng: numpy.random.Generator) -> dict[str, Any]:
    return {**sample, "noise": float(rng.random())}


def rows(samples: list[dict[str, Any]]) -> list[Any]:
    """Not a dict: nothing that looks at batches knows it."""
    return [(one["text"], one["noise"], one["input_ids"].sum()) for one in samples]


LOADERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "left": ({"max_tokens": 512}, {"collate": Pad(side="left", pad_value=7)}),
    "renamed": ({"max_tokens": 512}, {"collate": Pad(), "columns": ["input_ids"], "rename": {"input_ids": "tokens"}}),
    "transform": ({"max_tokens": 512}, {"collate": Pad(), "columns": ["input_ids"], "transform": shifted}),
    "mapped": ({"max_tokens": 512}, {"map": drawn, "collate": rows, "threads": 2}),
    "packed": ({"strategy": "pack", "capacity": 128}, {"collate": Pack("rows"), "columns": ["input_ids"]}),
    "split": ({"max_tokens": 64, "too_long": "split"}, {"collate": Pad(), "columns": ["input_ids"]}),
    "mix": ({"max_tokens": 512, "weights": numpy.arange(COUNT) % 3}, {"collate": Pad(), "columns": ["input_ids"]}),
    "skipping": ({"max_tokens": 512, "skip": [(0, 1, 2), (2, 4, 4)]}, {"collate": Pad(), "columns": ["input_ids"]})}


def loader_of(ds: rankstore.Dataset, kind: str) -> rankstore.Loader:
    plan, options = LOADERS[kind]
    return ds.loader(ds.plan(**plan), **options)


def as_values(batch: Any) -> Any:
    """A batch in types that compare."""
    if isinstance(batch, dict):
        return {name: value.tolist() if hasattr(value, "tolist") else [bytes(one) if isinstance(one, memoryview) else one for one in value]
                for name, value in batch.items()}
    return batch


def through(loader: rankstore.Loader, **options: Any) -> DataLoader[Any]:
    return DataLoader(loader.dataset, batch_sampler=loader.batch_sampler,  # type: ignore[arg-type]
                      collate_fn=loader.collate_fn, **options)


@pytest.mark.parametrize("epoch", [0, 2])
@pytest.mark.parametrize("kind", LOADERS)
def test_dataset_sampler_and_collate_fn_together_are_the_loader(ds: rankstore.Dataset, kind: str, epoch: int) -> None:
    needs("accelerate")
    from accelerate import skip_first_batches
    wanted = {}
    whole = loader_of(ds, kind)
    for each in (epoch, epoch + 1):
        whole.set_epoch(each)
        wanted[each] = [as_values(batch) for batch in whole]
    loader = loader_of(ds, kind)
    loader.set_epoch(epoch)
    found = []
    for batch in skip_first_batches(loader, 3):
        found.append(as_values(batch))
        if isinstance(batch, rankstore.Batch) and kind != "transform":
            assert batch.epoch == epoch and batch.global_tokens > 0
        assert loader.state_dict()["step"] >= 3 + len(found)
    assert found == wanted[epoch][3:] and len(found) > 1
    assert [as_values(batch) for batch in loader] == wanted[epoch + 1], "the next epoch follows by itself"
    again = loader_of(ds, kind)
    again.set_epoch(epoch)
    assert [as_values(batch) for batch in through(again)] == wanted[epoch]
    again.set_epoch(epoch)
    assert [as_values(batch) for batch in through(again, num_workers=2, timeout=400, multiprocessing_context="fork")] == wanted[epoch]


def test_spawned_workers_make_the_loaders_batches(ds: rankstore.Dataset) -> None:
    plan = ds.plan(max_tokens=512)
    for options in ({"collate": Pad(), "transform": sorted}, {"collate": len}):
        loader = ds.loader(plan, **options)
        found = list(through(loader, num_workers=2, timeout=400, multiprocessing_context="spawn"))
        loader.set_epoch(0)
        assert found == list(loader)
    (batch, *_) = through(loader_of(ds, "left"), num_workers=1, timeout=400, multiprocessing_context="spawn")
    assert batch.global_tokens == batch.lengths.sum()


def test_a_loop_through_dataloader_that_is_left_and_begun_again(ds: rankstore.Dataset) -> None:
    loader = loader_of(ds, "left")
    wanted = [as_values(batch) for batch in loader]
    loader.set_epoch(0)
    outside = iter(through(loader))
    begun = [as_values(next(outside)) for _ in range(4)]
    state = json.loads(json.dumps(loader.state_dict()))
    assert begun == wanted[:4] and state["step"] == 4
    loader.load_state_dict(state)
    assert [as_values(batch) for batch in through(loader)] == wanted[4:]
    loader.load_state_dict(state)
    assert [as_values(batch) for batch in loader] == wanted[4:]


def test_what_the_loaders_collate_fn_cannot_make(ds: rankstore.Dataset) -> None:
    loader, other = loader_of(ds, "left"), loader_of(ds, "left")
    with pytest.raises(rankstore.ArgumentError, match="ds.collate for other samplers"):
        next(iter(DataLoader(ds, batch_size=4, collate_fn=loader.collate_fn)))
    with pytest.raises(rankstore.ArgumentError, match="another plan; use the batch_sampler of the same loader"):
        next(iter(DataLoader(ds, batch_sampler=loader.batch_sampler, collate_fn=other.collate_fn)))  # type: ignore[arg-type]


# ---- the Trainer of transformers ------------------------------------------------------------------------------------

HF = ["import torch._dynamo", "from transformers import Trainer"]
TRAINER = '''
import json, os, sys
import numpy as np, torch
from transformers import Trainer, TrainingArguments
import rankstore, rankstore.hf
from rankstore import Pack, Pad
stage, count, epochs = sys.argv[1], 120, 3
LONGEST = 50

def shifted(batch):
    return type(batch)({**batch, "input_ids": batch["input_ids"] + 1000})

def longer(sample):
    return {**sample, "input_ids": sample["input_ids"] + 1000}

def padded(samples):
    return {"input_ids": torch.nn.utils.rnn.pad_sequence([torch.as_tensor(s["input_ids"]) for s in samples], batch_first=True)}

KINDS = {
    "left": (dict(strategy="bucket", max_tokens=256), dict(collate=Pad(pad_value=0, side="left"), columns=["input_ids"]), 0),
    "transform": (dict(strategy="bucket", max_tokens=256),
                  dict(collate=Pad(pad_value=-1000), columns=["input_ids"], transform=shifted), 1000),
    "mapped": (dict(strategy="bucket", max_tokens=256), dict(map=longer, collate=padded), 1000),
    "packed": (dict(strategy="pack", capacity=128), dict(collate=Pack("rows"), columns=["input_ids"]), 0),
    "mix": (dict(strategy="bucket", max_tokens=256, weights=[1] * count, steps="constant"), dict(collate=Pad(), columns=["input_ids"]), 0)}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(1))
    def forward(self, input_ids, **more):
        return {"loss": self.w.sum() * input_ids.float().mean()}

class TokenTrainer(rankstore.hf.TrainerMixin, Trainer):
    def training_step(self, model, inputs, *more, **options):
        found, sizes = np.unique(inputs["input_ids"].numpy(), return_counts=True)
        seen = {int(i) - self.base - 1: int(size) for i, size in zip(found, sizes) if i > self.base}
        assert all(size == 3 + i * 37 % LONGEST for i, size in seen.items()), seen
        with open(f"{self.name}.{stage}.{self.args.process_index}", "a") as file:
            print(json.dumps([int(self.state.epoch or 0), sorted(seen), list(inputs["input_ids"].shape)]), file=file)
        return super().training_step(model, inputs, *more, **options)

ds = rankstore.build([{"input_ids": np.full(3 + i * 37 % LONGEST, i + 1, np.int32)} for i in range(count)], "store", length="input_ids")
for kind, (plan, options, base) in KINDS.items():
    for epoch in (0, 2):
        plan_of = ds.plan(**plan, seed=5)
        accumulate = 2 if kind == "left" else 1
        whole = -(-plan_of.steps // accumulate)
        stop = epoch * whole + 3
        name = f"{kind}.{epoch}"
        settings = TrainingArguments(name, num_train_epochs=epochs, max_steps=stop if stage == "begun" else -1, save_steps=stop,
                                     report_to=[], gradient_accumulation_steps=accumulate, disable_tqdm=True, use_cpu=True,
                                     remove_unused_columns=False,
                                     save_strategy="steps" if stage == "begun" else "no", logging_strategy="no")
        trainer = TokenTrainer(Model(), settings, train_dataset=ds)
        trainer.name, trainer.base, trainer.plan, trainer.loader_options = name, base, plan_of, options
        trainer.train(resume_from_checkpoint=stage == "rest")
        if trainer.is_world_process_zero():
            print(json.dumps([name, stage, trainer.state.global_step, trainer.state.max_steps, trainer.state.epoch]), flush=True)
ds.close()
'''


def recorded(directory: Path, name: str, world: int) -> list[list[Any]]:
    return [[json.loads(line) for line in (directory / f"{name}.{rank}").read_text().splitlines()] for rank in range(world)]


@pytest.mark.parametrize("before, after", [(2, 1), (1, 3), (2, 2)])
@pytest.mark.limit(1500)
def test_the_trainer_goes_on_where_the_checkpoint_was(ranks: Ranks, tmp_path: Path, before: int, after: int) -> None:
    needs("transformers"), needs("accelerate")
    ranks(before, TRAINER, "begun", warm=HF)
    said = ranks(after, TRAINER, "rest", warm=HF)[0].stdout
    ends = {line[0]: line for line in (json.loads(text) for text in said.splitlines() if text.startswith("["))}
    for name in (f"{kind}.{epoch}" for kind in ("left", "transform", "mapped", "packed", "mix") for epoch in (0, 2)):
        begun, rest = recorded(tmp_path, f"{name}.begun", before), recorded(tmp_path, f"{name}.rest", after)
        seen: dict[int, collections.Counter[int]] = collections.defaultdict(collections.Counter)
        for epoch, samples, _ in (line for rank in begun + rest for line in rank):
            seen[epoch].update(samples)
        assert {epoch: len(each) for epoch, each in seen.items()} == {0: 120, 1: 120, 2: 120}, name
        assert all(count == 1 for each in seen.values() for count in each.values()), name
        assert len({len(lines) for lines in rest}) == 1
        assert ends[name][2] == ends[name][3] and ends[name][4] == 3.0, "the schedule ends with the last step"
    if before == after:
        ranks(before, TRAINER, "whole", warm=HF)
        for name in (f"{kind}.{epoch}" for kind in ("left", "packed", "mapped") for epoch in (0, 2)):
            whole, begun, rest = (recorded(tmp_path, f"{name}.{stage}", before) for stage in ("whole", "begun", "rest"))
            assert [one + other for one, other in zip(begun, rest)] == whole


# ---- Lightning ------------------------------------------------------------------------------------------------------

LIGHTNING = '''
import json, os, sys, warnings
import lightning, numpy as np, torch
from lightning.pytorch.callbacks import ModelCheckpoint
import rankstore
from rankstore import Pack, Pad
stage, count, epochs = sys.argv[1], 120, 3
KINDS = {"left": (dict(strategy="bucket", max_tokens=256), dict(collate=Pad(side="left"))),
         "packed": (dict(strategy="pack", capacity=128), dict(collate=Pack("rows"))),
         "varying": (dict(strategy="random", max_tokens=256, steps="per_epoch"), dict(collate=Pad())),
         "mapped": (dict(strategy="bucket", max_tokens=256), dict(map=lambda sample: sample, collate=lambda samples: {
             "input_ids": torch.as_tensor([sample["input_ids"][0] for sample in samples])}))}
lightning.seed_everything(0, verbose=False)

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Linear(1, 1)
    def training_step(self, batch, place):
        batch = batch[0] if isinstance(batch, list) else batch
        with open(f"{self.name}.{stage}.{self.global_rank}", "a") as file:
            print(json.dumps([batch.epoch, batch.ids.tolist()]), file=file)
        self.places.append((batch.epoch, place))
        return self.w(torch.ones(1)).sum()
    def validation_step(self, batch, place):
        self.validated.append(self.current_epoch)
    def val_dataloader(self):
        return [torch.ones(1)]
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

with rankstore.build([{"input_ids": np.full(3 + i * 37 % 50, i + 1, np.int32)} for i in range(count)], "store", length="input_ids") as ds:
    for kind, (plan, options) in KINDS.items():
        for epoch in (0, 2):
            planned = ds.plan(**plan, seed=5)
            stop = sum(planned.steps_of(before) for before in range(epoch)) + planned.steps_of(epoch) * int(sys.argv[2]) // 4
            model = Model()
            model.name, model.places, model.validated = f"{kind}.{epoch}", [], []
            open(f"{model.name}.{stage}.{ds.group.rank}", "a").close()
            saving = ModelCheckpoint(model.name, "last", every_n_train_steps=stop, enable_version_counter=False)
            trainer = lightning.Trainer(accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), strategy="ddp", max_epochs=epochs,
                                        max_steps=stop if stage == "begun" else -1, logger=False,
                                        callbacks=[saving] if stage == "begun" else [], enable_checkpointing=stage == "begun",
                                        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0)
            loader = ds.loader(planned, **options)
            trainer.fit(model, [loader, ds.loader(planned)] if "two" in sys.argv else loader,
                        ckpt_path=None if stage == "begun" else f"{model.name}/last.ckpt")
            if stage == "rest":
                begun = epoch + (sys.argv[2] == "4")  # Lightning itself does not validate an epoch after its last batch was saved
                assert model.validated == list(range(begun, epochs)), (model.name, model.validated)
                assert all(one[0] != next[0] or one[1] + 1 == next[1] for one, next in zip(model.places, model.places[1:])), model.places
'''


@pytest.mark.parametrize("quarter", [1, 3, 4])
@pytest.mark.parametrize("before, after", [(2, 1), (1, 3), (2, 2)])
@pytest.mark.limit(1500)
def test_lightning_goes_on_on_other_ranks(ranks: Ranks, tmp_path: Path, before: int, after: int, quarter: int) -> None:
    needs("lightning")
    warm = ["import torch._dynamo", "import lightning"]
    ranks(before, LIGHTNING, "begun", str(quarter), warm=warm)
    ranks(after, LIGHTNING, "rest", str(quarter), warm=warm)
    for name in (f"{kind}.{epoch}" for kind in ("left", "packed", "varying", "mapped") for epoch in (0, 2)):
        begun, rest = recorded(tmp_path, f"{name}.begun", before), recorded(tmp_path, f"{name}.rest", after)
        seen: dict[int, list[int]] = collections.defaultdict(list)
        for epoch, samples in (line for rank in begun + rest for line in rank):
            seen[epoch] += samples
        assert {epoch: len(each) for epoch, each in seen.items()} == {0: 120, 1: 120, 2: 120}, name
        assert all(sorted(each) == list(range(120)) for each in seen.values()), name


def test_lightning_counts_two_loaders_together(ranks: Ranks) -> None:
    needs("lightning")
    warm = ["import torch._dynamo", "import lightning"]
    ranks(2, LIGHTNING, "begun", "3", "two", warm=warm)
    (done,) = ranks(1, LIGHTNING, "rest", "3", "two", warm=warm, check=False)
    assert done.returncode and "resume from a checkpoint at an epoch's end" in done.stderr


OVERFIT = '''
import lightning, torch, rankstore
from rankstore import Pad

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.w, self.seen = torch.nn.Linear(1, 1), []
    def training_step(self, batch, place):
        self.seen.append(batch.ids.tolist())
        return self.w(torch.ones(1)).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

with rankstore.build([{"input_ids": [i] * (3 + i * 37 % 50)} for i in range(120)], "store") as ds:
    loader = ds.loader(ds.plan("bucket", max_tokens=256), collate=Pad())
    for options, steps in (({"overfit_batches": 2}, [0, 1] * 3), ({"limit_train_batches": 2, "max_epochs": 1}, [0, 1])):
        model = Model()
        trainer = lightning.Trainer(**{"max_epochs": 3, "accelerator": "cpu", "devices": ds.group.world, "strategy": "ddp",
                                       "logger": False, "enable_checkpointing": False, "enable_progress_bar": False,
                                       "enable_model_summary": False, **options})
        trainer.fit(model, loader)
        assert model.seen == [ds.plan("bucket", max_tokens=256).samples(0, step)[ds.group.rank] for step in steps]
'''


@pytest.mark.parametrize("world", [1, 2])
def test_lightning_overfits_the_same_batches(ranks: Ranks, world: int) -> None:
    needs("lightning")
    ranks(world, OVERFIT, warm=["import torch._dynamo", "import lightning"])


def test_a_lightning_that_counts_in_another_way(ds: rankstore.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "lightning.pytorch.loops.fit_loop"
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    made: dict[str, Any] = {"__name__": name}
    exec("import types\nclass Loop:\n    trainer = types.SimpleNamespace(overfit_batches=0)\n    def begin(self, loader):\n"
         "        loader.sampler.set_epoch(loader.epoch)", made)
    loader = loader_of(ds, "left")
    made["Loop"]().begin(loader)
    next(iter(loader))
    loader.load_state_dict(loader.state_dict())
    with pytest.raises(rankstore.StateError, match="resume from a checkpoint at an epoch's end"):
        made["Loop"]().begin(loader)


# ---- evaluation and TRL ---------------------------------------------------------------------------------------------

EVALUATE = '''
import json, sys
import numpy as np, torch
from transformers import Trainer, TrainingArguments
import rankstore, rankstore.hf
from rankstore import Pack, Pad
count = 61

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.zeros(1))
    def forward(self, input_ids, labels, **more):
        seen.append(len(input_ids))
        return {"loss": self.w.sum(), "logits": labels[:, None] * 2.0}

class TokenTrainer(rankstore.hf.TrainerMixin, Trainer):
    pass

def padded(samples):
    return {"input_ids": torch.nn.utils.rnn.pad_sequence([torch.as_tensor(s["input_ids"]) for s in samples], batch_first=True),
            "labels": torch.tensor([s["number"] for s in samples])}

samples = [{"input_ids": np.full(3 + i * 37 % 50, i + 1, np.int32), "number": i} for i in range(count)]
ds = rankstore.build(samples, "store", length="input_ids")
part = ds.select(range(3, 40))
seen = []
for name, options in {"layout": dict(collate=Pad(side="left"), rename={"number": "labels"}), "function": dict(collate=padded),
                      "mapped": dict(collate=padded, map=lambda s: s, columns=["input_ids", "number"]),
                      "transform": dict(collate=Pad(), transform=lambda b: type(b)({"input_ids": b["input_ids"], "labels": b["number"]})),
                      "packed": None}.items():
    trainer_options = options or dict(collate=Pack("rows"), columns=["input_ids"])
    trainer = TokenTrainer(Model(), TrainingArguments("out", report_to=[], disable_tqdm=True, use_cpu=True, remove_unused_columns=False,
                                                      per_device_eval_batch_size=4, logging_strategy="no"),
                           train_dataset=ds, eval_dataset=part, compute_metrics=lambda p: {"labels": p.label_ids.tolist()})
    trainer.plan, trainer.loader_options = ds.plan(max_tokens=256), trainer_options
    if options is None:
        trainer.eval_options = dict(collate=padded)
    seen.clear()
    found = trainer.evaluate()
    assert found["eval_labels"] == list(range(3, 40)), found
    assert sum(seen) * ds.group.world - 37 < 4 * ds.group.world
    given = trainer.predict(ds)
    assert given.label_ids.tolist() == list(range(count)) and given.predictions[:, 0].tolist() == [2.0 * i for i in range(count)]
    assert trainer.evaluate({"one": part, "two": ds})["eval_two_labels"] == list(range(count))
print("seen", flush=True)
ds.close()
'''


@pytest.mark.parametrize("world", [1, 2])
def test_evaluate_and_predict_give_each_sample_once_and_in_order(ranks: Ranks, tmp_path: Path, world: int) -> None:
    needs("transformers"), needs("accelerate")
    assert all("seen" in one.stdout for one in ranks(world, EVALUATE, warm=HF))


def test_a_checkpoint_without_the_loaders_state_or_of_another_plan(ds: rankstore.Dataset, tmp_path: Path) -> None:
    needs("transformers"), needs("accelerate")
    from transformers import Trainer, TrainingArguments

    import rankstore.hf

    class TokenTrainer(rankstore.hf.TrainerMixin, Trainer):  # type: ignore[misc]
        pass

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.zeros(1))

        def forward(self, input_ids: Any, attention_mask: Any) -> dict[str, Any]:
            return {"loss": self.w.sum()}

    def trainer(seed: int) -> Any:
        settings = TrainingArguments(str(tmp_path / "out"), max_steps=3, save_steps=3, report_to=[], disable_tqdm=True, use_cpu=True,
                                     remove_unused_columns=False, logging_strategy="no")
        found = TokenTrainer(Model(), settings, train_dataset=ds)
        found.plan, found.loader_options = ds.plan(max_tokens=512, seed=seed), {"columns": ["input_ids"]}
        return found

    trainer(1).train()
    state = tmp_path / "out" / "checkpoint-3" / "rankstore.json"
    assert json.loads(state.read_text())["step"] == 3
    with pytest.raises(rankstore.StateError, match="seed"):
        trainer(2).train(resume_from_checkpoint=True)
    state.write_text("{")
    with pytest.raises(rankstore.StateError, match=r"rankstore.json or trainer_state.json cannot be read"):
        trainer(1).train(resume_from_checkpoint=str(state.parent))
    state.unlink()
    with pytest.warns(UserWarning, match="has no rankstore.json"):
        trainer(1).train(resume_from_checkpoint=str(state.parent))


@pytest.mark.limit(1500)
def test_trl_goes_on_on_another_number_of_ranks(ranks: Ranks, tmp_path: Path) -> None:
    """The example of packed rows, stopped in mid-epoch."""
    needs("trl")
    text = (EXAMPLES / "packed_trl.py").read_text()
    for old, new in (('save_strategy="no"', 'save_strategy="steps", save_steps=3, max_steps=int(sys.argv[2])'),
                     ("num_train_epochs=1", "num_train_epochs=2"),
                     ("trainer.train()", "trainer.train(resume_from_checkpoint=sys.argv[2] == '-1')"),
                     ("    pass\n", RECORDING)):
        assert old in text
        text = text.replace(old, new)
    warm = ["import torch._dynamo", "from transformers import Trainer"]
    ranks(2, text, str(tmp_path / "store"), "3", warm=warm)
    ranks(1, text, str(tmp_path / "store"), "-1", warm=warm)
    seen = collections.Counter(token for stage, world in (("3", 2), ("-1", 1)) for rank in range(world)
                               for line in (tmp_path / f"rows.{stage}.{rank}").read_text().splitlines() for token in json.loads(line))
    assert sum(seen.values()) == 400 and set(seen.values()) == {2}


RECORDING = '''    def training_step(self, model, inputs, *more, **options):
        with open(f"rows.{sys.argv[2]}.{self.args.process_index}", "a") as file:
            print(sorted(inputs.ids.tolist()), file=file)
        return super().training_step(model, inputs, *more, **options)
'''
