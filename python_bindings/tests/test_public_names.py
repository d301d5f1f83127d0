# SPDX-License-Identifier: Apache-2.0
"""Each public name is what it is, whichever others were used before: no module takes a name's place, and none needs another first."""
from __future__ import annotations

import importlib
import os
import pickle
import pkgutil
import random
import re
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

import rankstore

SAMPLES = [{"id": f"k{i}", "ids": list(range(1 + i % 5)), "n": i} for i in range(12)]


def opened(directory: Path) -> rankstore.Dataset:
    return rankstore.open(directory / "store")


def build(directory: Path) -> None:
    with rankstore.build(SAMPLES, directory / "built", key="id", length="ids", replace=True) as ds:
        assert type(ds.report) is rankstore.BuildReport and ds.report.samples == 12


def columns(directory: Path) -> None:
    with rankstore.build([rankstore.Columns({"n": ["a", "bc"]})], directory / "of_columns", replace=True) as ds:
        assert [one["n"] for one in ds] == ["a", "bc"]


def source(directory: Path) -> None:
    with opened(directory) as ds:
        assert [(type(one), one.samples) for one in ds.sources] == [(rankstore.Source, 12)]


def concat(directory: Path) -> None:
    with opened(directory) as a, rankstore.open(directory / "other") as b, rankstore.concat([a, b]) as both:
        assert len(both) == 23


def from_torch(directory: Path) -> None:
    with opened(directory) as ds:
        assert list(rankstore.from_torch(ds).ids) == list(range(12))


def difference(directory: Path) -> None:
    found = rankstore.diff(directory / "store", directory / "other")
    assert type(found) is rankstore.DiffReport and {type(one) for one in found.differences} == {rankstore.Difference}


def export(directory: Path) -> None:
    target = directory / "out.jsonl"
    target.unlink(missing_ok=True)
    made = rankstore.export(directory / "store", target)
    assert type(made) is rankstore.ExportReport and made.samples == 12


def merge(directory: Path) -> None:
    target = directory / f"merged{len(list(directory.glob('merged*')))}"
    made = rankstore.merge([directory / "store", directory / "one"], target)
    assert type(made) is rankstore.MergeReport and made.samples == 13


def publish(directory: Path) -> None:
    report = rankstore.publish(directory / "store", directory / "home", dry_run=True)
    assert type(report) is rankstore.PublishReport and report.sent_shards == 1


def stage(directory: Path) -> None:
    assert type(rankstore.stage(directory / "store", directory / "local")) is rankstore.StageReport


def prune(directory: Path) -> None:
    assert type(rankstore.prune(directory / "store", dry_run=True)) is rankstore.PruneReport


def prune_local(directory: Path) -> None:
    rankstore.stage(directory / "store", directory / "fast")
    assert type(rankstore.prune_local(directory / "fast", dry_run=True)) is rankstore.PruneLocalReport


def gather(directory: Path) -> None:
    assert rankstore.gather({"a": (0, 1.5)}) == {"a": [(0, 1.5)]}
    target = directory / f"gathered{len(list(directory.glob('gathered*')))}.npz"
    assert type(rankstore.gather({"a": (0, 1.5)}, out=target)) is rankstore.GatherReport


def launch(directory: Path) -> None:
    script = "import sys, rankstore; sys.exit(rankstore.launch(2, lambda group: group.world - 2))"
    assert subprocess.run([sys.executable, "-c", script], timeout=400).returncode == 0


def init(directory: Path) -> None:
    group = rankstore.current()
    assert type(group) is rankstore.Group and rankstore.init(group) is group


def plan(directory: Path) -> None:
    made = rankstore.plan([3, 1, 2], "sorted", batch_size=1)
    assert type(made) is rankstore.Plan and made.steps == 3


def cost(directory: Path) -> None:
    assert len(rankstore.transformer_cost(64)) == 2


def sampler(directory: Path) -> None:
    with opened(directory) as ds:
        made = ds.plan("sorted", batch_size=4).sampler()
        assert type(made) is rankstore.PlanSampler and [type(one) for one in made] == [rankstore.PlanBatch] * 3


def layout(made: Callable[[], rankstore.Layout]) -> Callable[[Path], None]:
    def use(directory: Path) -> None:
        with opened(directory) as ds:
            options = {"collate": made(), "columns": ["ids"]}
            packs = isinstance(options["collate"], rankstore.Pack)
            loader = ds.loader(ds.plan("pack", capacity=8) if packs else ds.plan("sorted", batch_size=4), **options)
            assert type(loader) is rankstore.Loader and {type(one) for one in loader} == {rankstore.Batch}
        again = pickle.loads(pickle.dumps(options["collate"]))
        assert isinstance(again, rankstore.Layout) and repr(again) == repr(options["collate"])
    return use


def error(name: str) -> Callable[[Path], None]:
    def use(directory: Path) -> None:
        made = getattr(rankstore, name)("why")
        assert isinstance(made, rankstore.RankStoreError) and type(made) is getattr(rankstore.errors, name)
        assert type(pickle.loads(pickle.dumps(made))) is type(made) and type(made).__module__ == "rankstore.errors"
    return use


def version(directory: Path) -> None:
    assert rankstore.__version__.count(".") == 2


def dataset(directory: Path) -> None:
    with opened(directory) as ds:
        assert type(ds) is rankstore.Dataset and len(ds) == 12


USES: dict[str, Callable[[Path], None]] = {
    **{name: error(name) for name in rankstore.__all__ if name.endswith("Error")},
    "Batch": layout(lambda: rankstore.Pad()), "BuildReport": build, "Columns": columns, "Dataset": dataset, "DiffReport": difference,
    "Difference": difference, "ExportReport": export, "GatherReport": gather, "Group": init, "Layout": layout(lambda: rankstore.Lists()),
    "Lists": layout(lambda: rankstore.Lists()), "Loader": layout(lambda: rankstore.Pad()), "MergeReport": merge,
    "Nested": layout(lambda: rankstore.Nested()), "Pack": layout(lambda: rankstore.Pack()), "Pad": layout(lambda: rankstore.Pad()),
    "Plan": plan, "PlanBatch": sampler, "PlanSampler": sampler, "PruneLocalReport": prune_local,
    "PruneReport": prune, "PublishReport": publish, "StageReport": stage, "Source": source,
    "__version__": version, "build": build, "concat": concat, "current": init, "diff": difference, "export": export,
    "from_torch": from_torch, "gather": gather,
    "init": init, "launch": launch, "merge": merge, "open": dataset, "plan": plan, "prune": prune,
    "prune_local": prune_local, "publish": publish, "stage": stage, "transformer_cost": cost,
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with rankstore.init("solo"):
        rankstore.build(SAMPLES, tmp_path / "store", key="id", length="ids").close()
        rankstore.build(SAMPLES[1:], tmp_path / "other", key="id", length="ids").close()
        rankstore.build([{**SAMPLES[0], "id": "one"}], tmp_path / "one", key="id", length="ids").close()
    return tmp_path


def test_every_name_is_used_after_every_other(directory: Path) -> None:
    """In this order and then the other way round, each name is used after each; and in one more order, when all modules are loaded."""
    assert sorted(USES) == sorted(rankstore.__all__)
    before = {name: getattr(rankstore, name) for name in USES}
    order = list(USES)
    with rankstore.init("solo"):
        for name in [*order, *reversed(order)]:
            USES[name](directory)
        for one in pkgutil.walk_packages(rankstore.__path__, "rankstore."):
            if not one.name.endswith("_mpi"):  # the core's module, not Python's
                importlib.import_module(one.name)
        random.Random(4).shuffle(order)
        for name in order:
            USES[name](directory)
    assert {name: getattr(rankstore, name) for name in USES} == before


FIRST = """
import os, sys
import rankstore
names = rankstore.__all__
late = []
for first in names:
    child = os.fork()
    if child == 0:
        wrong = 1
        try:
            found = {name: getattr(rankstore, name) for name in (first, *names)}
            wrong = any(type(one) is type(os) or getattr(rankstore, name) is not one for name, one in found.items())
        finally:
            os._exit(wrong)
    if os.waitpid(child, 0)[1] != 0:
        late.append(first)
sys.exit(f"not as the first: {late}" if late else 0)
"""


def test_every_name_may_be_the_first() -> None:
    """In a process of its own, forked from one that has imported nothing else."""
    done = subprocess.run([sys.executable, "-c", FIRST], text=True, capture_output=True, timeout=400)
    assert (done.returncode, done.stderr) == (0, "")


def test_public_classes_are_found_by_what_they_say_of_themselves() -> None:
    """Pickles name a class so."""
    for name in rankstore.__all__:
        one = getattr(rankstore, name)
        assert not isinstance(one, types.ModuleType), name
        if callable(one):
            assert getattr(sys.modules[one.__module__], one.__qualname__) is one and pickle.loads(pickle.dumps(one)) is one, name


def test_what_is_public_beside_the_names() -> None:
    found = [name for name in os.listdir(Path(rankstore.__path__[0])) if not name.startswith(("_", "lib"))]
    assert sorted(found) == ["errors.py", "hf.py", "py.typed", "store_helper.py"]
    assert rankstore.hf.TrainerMixin.__name__ == "TrainerMixin" and rankstore.errors.make


def test_completion_shows_public_names_alone(tmp_path: Path) -> None:
    """And every one of them, as far as a page, an example or a docstring of the class names it."""
    beside = {name for name in dir(rankstore) if not name.startswith("__")}
    assert beside == {name for name in rankstore.__all__ if name != "__version__"} | {"errors", "hf"}
    top = Path(__file__).parent.parent
    pages = "\n".join(path.read_text() for folder in ("docs", "examples") for path in (top / folder).iterdir())
    with rankstore.init("solo"), rankstore.build(SAMPLES, tmp_path / "store", length="ids") as ds:
        plan = ds.plan(batch_size=4)
        loader = ds.loader(plan, columns=["ids"])
        batch = next(iter(loader))
        sampler, layouts = plan.sampler(), (rankstore.Pad(), rankstore.Pack())
        for one in (ds, plan, loader, batch, sampler, next(iter(sampler)), *layouts, rankstore.current()):
            shown = set(dir(one))
            assert not [name for name in shown if name.startswith("_") and not name.startswith("__")], type(one)
            hidden = {name for name in object.__dir__(one) if not name.startswith("_")} - shown
            named = {name for name in hidden if re.search(rf"\b(?:ds|plan|loader|batch|sampler|group)\.{name}\b", pages)}
            assert hidden and not named, (type(one), named)
        assert {"plan", "loader", "map", "select", "lengths", "close", "places_of", "stats"} < set(dir(ds))
        assert {"ids", "step", "global_sum", "to", "places"} < set(dir(batch)) and {"steps", "report", "sampler", "hash"} < set(dir(plan))
