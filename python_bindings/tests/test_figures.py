# SPDX-License-Identifier: Apache-2.0
"""A figure has one name on the command line, in Prometheus text and in Python, and docs/figures.md has them all."""
from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

from built import build, command

import rankstore

PAGE = (Path(__file__).parents[2] / "docs/figures.md").read_text()
NAMED = set(re.findall(r"`([a-z_0-9]+)`", PAGE))


def test_reading(tmp_path: Path) -> None:
    build([{"x": [1] * (i % 9)} for i in range(100)], tmp_path / "out")
    said = json.loads(command("bench", tmp_path / "out", "--json"))
    metrics = re.findall("# TYPE rankstore_([a-z_]+?)(?:_total)? ", command("bench", tmp_path / "out", "--metrics"))
    with rankstore.open(tmp_path / "out") as dataset:
        loader = dataset.loader(dataset.plan("random", batch_size=8), collate=rankstore.Lists())
        batches = list(loader)
        stats, asked, memory = dataset.stats(), loader.stats(), dataset.memory()
    for names in (said, stats, asked, said["memory"]):
        assert set(names) - {"schema_version"} <= NAMED
    assert set(metrics) - {"info"} <= set(said)
    alone = {"seconds", "peak_anon_bytes", "exactly_once", "digest", "plan_digest", "schema_version"}
    assert set(said) - alone == set(stats) - {"shards", "missing_shards", "missing_samples", "arriving_shards",
                                               "peak_inflight_bytes", "peak_batch_bytes", "torch_memory"}
    assert set(asked) - set(stats) == {"batches", "wait_seconds_p50", "wait_seconds_p99"}
    assert said["memory"].keys() == memory.keys() == stats["memory"].keys()
    assert asked["batches"] == len(batches) == 13 and stats["samples"] == said["samples"] == 100
    assert isinstance(stats["wait_seconds"], float) and 0 <= stats["wait_seconds"] < 60
    assert 0 < asked["wait_seconds_p50"] <= asked["wait_seconds_p99"] < 60


def test_building_and_planning(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"line {i}\n" for i in range(100)))
    said = json.loads(command("build", path, "-o", tmp_path / "cli", "--json"))
    report = dataclasses.asdict(build(path, tmp_path / "out"))
    assert set(said) - {"schema_version", "directory"} == set(report) <= NAMED
    for name in set(report) - {"seconds"}:
        assert report[name] == said[name], name
    planned = json.loads(command("plan", tmp_path / "out", "--json", "--max-tokens", "64", "--seed", "3"))
    with rankstore.open(tmp_path / "out") as dataset:
        found = dataset.plan("bucket", max_tokens=64, seed=3).report()
        assert dataset.info() == json.loads(command("info", tmp_path / "out", "--json"))
    assert set(planned) - {"schema_version", "strategy", "world", "seconds", "time"} == set(found) <= NAMED
    assert all(planned[name] == found[name] for name in found)
