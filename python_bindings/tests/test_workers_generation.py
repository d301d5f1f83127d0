# SPDX-License-Identifier: Apache-2.0
"""A dataset that changes on disk while a DataLoader's workers read it: they read what their parent has open."""
from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rankstore

torch = pytest.importorskip("torch")

COUNT = 120


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"i": i, "x": [i] * (1 + i % 5)} for i in range(first, first + count)]


def append(directory: Path) -> None:
    rankstore.build(rows(COUNT, 30), directory, append=True).close()


def append_and_prune(directory: Path) -> None:
    append(directory)
    rankstore.prune(directory, keep=1)


def replace(directory: Path) -> None:
    rankstore.build(rows(1000, 40), directory, replace=True).close()
    rankstore.prune(directory)


def remove(directory: Path) -> None:
    shutil.rmtree(directory)


CHANGES: dict[str, Callable[[Path], None]] = {"append": append, "append and prune": append_and_prune, "replace": replace, "remove": remove}


def items(loader: Any) -> list[int]:
    return sorted(int(i) for batch in loader for i in batch["i"])


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("change", CHANGES)
def test_workers_read_what_their_parent_has(tmp_path: Path, change: str, start: str) -> None:
    directory = tmp_path / "d"
    with rankstore.build(rows(0, COUNT), directory) as ds:
        plan = ds.plan(batch_size=8)
        loader = torch.utils.data.DataLoader(ds, batch_sampler=plan.sampler(), collate_fn=ds.collate, num_workers=2,
                                             multiprocessing_context=start)
        assert items(loader) == list(range(COUNT))
        CHANGES[change](directory)
        assert items(loader) == list(range(COUNT))
        assert sorted(sample["i"] for sample in ds) == list(range(COUNT))


def test_several_datasets_of_which_one_grows(tmp_path: Path) -> None:
    for k, name in enumerate(("a", "b")):
        rankstore.build(rows(COUNT * k, COUNT), tmp_path / name).close()
    with rankstore.open([tmp_path / "a", tmp_path / "b"]) as ds:
        loader = torch.utils.data.DataLoader(ds, batch_sampler=ds.plan(batch_size=8).sampler(), collate_fn=ds.collate, num_workers=2)
        rankstore.build(rows(5000, 10), tmp_path / "b", append=True).close()
        assert items(loader) == list(range(2 * COUNT))
