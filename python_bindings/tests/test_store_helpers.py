# SPDX-License-Identifier: Apache-2.0
"""The process that reaches an object store: programs of others, and how many there are."""
from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import stores

import rankstore

SAMPLES = 200


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("built") / "tokens"
    rows = ({"i": i, "data": bytes([i % 251]) * (4000 + i % 97 * 50)} for i in range(SAMPLES))
    rankstore.build(rows, out, max_shard="512KiB", unit_samples=20).close()
    return out


def helper(tmp_path: Path, program: str) -> tuple[Path, Path]:
    """Return a program that runs one of this folder's, and a file that gets a line each time."""
    started, script = tmp_path / "started", tmp_path / "helper"
    script.write_text(f"#!/bin/sh\necho >> '{started}'\nexec '{sys.executable}' '{Path(__file__).with_name(program)}'\n")
    script.chmod(0o755)
    return script, started


def epoch(url: str, local: Path, **more: Any) -> list[int]:
    with rankstore.open(url, local=local, **more) as ds:
        ids = []
        for batch in ds.loader(ds.plan(batch_size=8, seed=3)):
            ids += batch["i"].tolist()
            assert all(bytes(data) == bytes([i % 251]) * (4000 + i % 97 * 50) for i, data in zip(batch["i"].tolist(), batch["data"]))
        return sorted(ids)


def test_a_rank_starts_one_helper(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also rank 0, which reads the dataset's description before shards are dealt; and a second run starts one."""
    program, started = helper(tmp_path, "small_helper.py")
    monkeypatch.setenv("RKS_HOME_HELPER", str(program))
    monkeypatch.setenv("SMALL_HELPER_TOP", str(tmp_path / "top"))
    shutil.copytree(built, tmp_path / "top" / "tokens")
    assert epoch("toy://top/tokens", tmp_path / "local") == list(range(SAMPLES))
    assert started.read_text() == "\n"
    assert rankstore.stage("toy://top/tokens", tmp_path / "other", progress=False).home_bytes > 0
    assert started.read_text() == "\n" * 2
    with rankstore.open(["toy://top/tokens"], local=tmp_path / "third") as ds:
        assert len(ds) == SAMPLES
    assert started.read_text() == "\n" * 3


SILENT = """
import sys
print("ready 1", flush=True)
for line in sys.stdin:
    pass
"""
HEARS = """
import os, sys
import rankstore
group = rankstore.init()
url = "toy://" if group.rank == 1 else "toy://top/tokens"
try:
    {call}
except rankstore.RankStoreError as error:
    print(type(error).__name__, error, flush=True)
group.close()
"""
WAITS = {
    "open": "rankstore.open(url, local=sys.argv[1], group=group)",
    "several": "rankstore.open([url], local=sys.argv[1], group=group)",
    "stage": "rankstore.stage(url, sys.argv[1], group=group)",
}


@pytest.mark.parametrize("call", list(WAITS))
def test_a_rank_that_waits_for_a_store_hears_one_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: Any, call: str) -> None:
    """Rank 0 reads the dataset's description from a store that never answers, which it waits for five minutes for."""
    (tmp_path / "silent").write_text(f"#!{sys.executable}\n{SILENT}")
    (tmp_path / "silent").chmod(0o755)
    monkeypatch.setenv("RKS_HOME_HELPER", str(tmp_path / "silent"))
    done = ranks(2, HEARS.replace("{call}", WAITS[call]), str(tmp_path / "local"), timeout=150)
    for one in done:
        assert "ArgumentError rank 1" in one.stdout and "toy://: names no bucket or host" in one.stdout, [one.stdout for one in done]


@pytest.mark.skipif(shutil.which("rclone") is None, reason="rclone is not installed")
def test_a_script_around_rclone_is_a_helper(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of some forty lines, for any store that rclone knows; its own options reach it."""
    pytest.importorskip("moto")
    program, started = helper(tmp_path, "rclone_helper.py")
    monkeypatch.setenv("RKS_HOME_HELPER", str(program))
    monkeypatch.setenv("RCLONE_CONFIG", str(tmp_path / "none.conf"))
    monkeypatch.delenv("AWS_CA_BUNDLE", raising=False)  # rclone 1.60 refuses it
    with stores.moto() as address:
        stores.make_bucket(address, "bucket")
        options = {"type": "s3", "provider": "Other", "endpoint": address, "access_key_id": stores.KEY, "secret_access_key": stores.SECRET}
        rankstore.publish(built, "any://bucket/tokens", storage_options=options)
        assert epoch("any://bucket/tokens", tmp_path / "local", storage_options=options) == list(range(SAMPLES))
        with pytest.raises(rankstore.RankStoreError, match="no dataset here") as failed:
            rankstore.open("any://bucket/other", local=tmp_path / "none", storage_options=options)
    assert stores.without_secrets(str(failed.value))


def test_records_of_the_first_batches_are_asked_for_side_by_side(tmp_path: Path) -> None:
    """A store answers late, so a rank has more requests for records under way than for pieces."""
    pytest.importorskip("obstore")
    pytest.importorskip("moto")
    rankstore.build(({"i": i, "data": bytes([i % 251]) * 500} for i in range(20000)), tmp_path / "many", progress=False).close()
    with stores.moto() as address, stores.proxy(address) as proxy:
        stores.make_bucket(address, "bucket")
        store = stores.Store(proxy.address, "bucket")
        rankstore.publish(tmp_path / "many", store.url("many"), storage_options=store.options)
        proxy.set(latency_ms=200, bytes_per_s=1e6)
        with rankstore.open(store.url("many"), local=tmp_path / "local", storage_options=store.options) as ds:
            batch = next(iter(ds.loader(ds.plan("random", batch_size=64, seed=3))))
            assert all(bytes(data) == bytes([i % 251]) * 500 for i, data in zip(batch["i"].tolist(), batch["data"]))
        assert proxy.counts()["most"] > 12
