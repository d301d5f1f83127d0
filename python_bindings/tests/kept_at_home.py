# SPDX-License-Identifier: Apache-2.0
"""Fixtures: a dataset of twelve shards at a home, and a link to it that is slow."""
from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rankstore

SAMPLES, SHARDS = 600, 12
Ranks = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home") / "tokens"
    rows = ({"i": i, "data": bytes([i % 251]) * (4000 + i % 97 * 50)} for i in range(SAMPLES))
    rankstore.build(rows, home, max_shard="256KiB", unit_samples=20).close()
    assert len(list(home.glob("*.rks"))) == SHARDS
    return home


@pytest.fixture
def home(built: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built, tmp_path / "kept" / "tokens"))


@pytest.fixture
def slowed(home: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of processes for which home gives 2 MB/s: the dataset comes in two seconds."""
    source = Path(__file__).parents[2] / "tests" / "bench" / "slow_pread.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64", "-o", tmp_path / "slow.so", source], check=True)
    return {"LD_PRELOAD": str(tmp_path / "slow.so"), "SLOW_BUCKET": str(tmp_path / "link"), "SLOW_MB": "2", "SLOW_WHERE": str(home)}


def wait_for_all(ds: Any) -> None:
    """Until the shards are whole: samples that came alone leave the rest on its way."""
    while ds.stats()["arriving_shards"] > 0:
        time.sleep(0.01)
