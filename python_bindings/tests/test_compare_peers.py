# SPDX-License-Identifier: Apache-2.0
"""tools/compare_peers on small data, with the peers that are installed here (numpy's memmap always is)."""
from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# One of each measure, and of each kind of data. A row makes the data that it needs.
ROWS = "build-tokens,open,read-blobs-64,padded-loader,epoch-blobs,first-batch,beside-blobs,plan,pack,exchange,gather"
if importlib.util.find_spec("mpi4py"):
    ROWS += ",held"
if importlib.util.find_spec("PIL"):
    ROWS += ",images"
if importlib.util.find_spec("moto") and importlib.util.find_spec("obstore"):
    ROWS += ",far"
if (ROOT / "build/release/tests/bench/bench_pack").exists():  # what these rows need
    ROWS += ",pack-chat,resume"


def compare(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run([str(ROOT / "tools/compare_peers"), "--here", *arguments], env={**os.environ, "PATH": path, **(env or {})},
                          text=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=800)


@pytest.mark.limit(1500)
def test_a_quick_run_measures_every_kind_of_row(tmp_path: Path) -> None:
    done = compare("--quick", "--only", ROWS, "--with", "memmap", "-o", str(tmp_path / "out"), "--data", str(tmp_path / "data"))
    assert done.returncode == 0, done.stderr + (tmp_path / "out/log.txt").read_text()
    found = json.loads((tmp_path / "out/results.json").read_text())
    assert {row["row"] for row in found["rows"]} == set(ROWS.split(","))
    for row in found["rows"]:
        assert row["error"] is None and len(row["values"]) == 1 and row["median"] > 0 and row["peak_rss_bytes"] > 1 << 20, row
    for row in ROWS.split(","):
        names = {one["name"] for one in found["rows"] if one["row"] == row}
        assert any(name.startswith("Rankstore") for name in names) and len(names) > 1, names
    drawn = "".join(ElementTree.parse(tmp_path / "out/loaders.svg").getroot().itertext())
    assert "Text, in padded batches" in drawn and "Rankstore" in drawn and "memmap, DataLoader" in drawn
    page = (tmp_path / "out/results.md").read_text()
    assert "A quick run" in page and "| memmap |" in page


@pytest.mark.parametrize(("peer", "module", "rows"),
                         [("Grain", "grain", "read-tokens,padded-loader,epoch-blobs-loader"),
                          ("Lance", "lance", "read-tokens-64,padded-loader,epoch-blobs-loader"),
                          ("Ray Data", "ray", "epoch-blobs-loader"), ("Energon", "megatron.energon", "epoch-blobs-loader"),
                          ("SPDL", "spdl", "padded-loader"), ("torchdata nodes", "torchdata", "padded-loader")])
def test_a_loader_gives_every_sample(peer: str, module: str, rows: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(module.partition(".")[0]) is None:
        pytest.skip(f"{module} is not among what tests install")
    done = compare("--quick", "--only", rows, "--with", peer, "-o", str(tmp_path / "out"), "--data", str(tmp_path / "data"))
    assert done.returncode == 0, done.stderr + (tmp_path / "out/log.txt").read_text()
    found = json.loads((tmp_path / "out/results.json").read_text())["rows"]
    assert {row["row"] for row in found if row["name"] == peer} == set(rows.split(","))


def test_a_peer_that_is_not_installed_is_named_and_left_out(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import sys\nclass Hide:\n def find_spec(self, name, *_):\n"
        "  if name == 'lmdb': raise ModuleNotFoundError(name)\nsys.meta_path.insert(0, Hide())\n")
    env = {"PYTHONPATH": os.pathsep.join([str(hidden), os.environ.get("PYTHONPATH", "")])}
    done = compare("--quick", "--only", "build-tokens", "--with", "memmap,py-lmdb", "-o", str(tmp_path / "out"), "--data",
                   str(tmp_path / "data"), env=env)
    assert done.returncode == 0, done.stderr
    assert "py-lmdb is left out" in done.stderr and "py-lmdb is left out" in (tmp_path / "out/results.md").read_text()
    names = {row["name"] for row in json.loads((tmp_path / "out/results.json").read_text())["rows"]}
    assert "memmap" in names and "py-lmdb" not in names


def test_contents_that_differ_are_an_error_and_no_figure(tmp_path: Path) -> None:
    script = ("import sys, pathlib; sys.path.insert(0, sys.argv[1])\n"
              "import measures, stores, workload\n"
              "place = workload.Place(pathlib.Path(sys.argv[2]), True)\n"
              "class Wrong(stores.Memmap):\n"
              " def read(self, i): return super().read(i) if i % 64 else super().read(i)[::-1]\n"
              "stores.STORES['memmap'] = Wrong\n"
              "measures.Build(place, 'memmap', 'tokens').round()\n")
    done = subprocess.run([sys.executable, "-c", script, str(ROOT / "tools/peers"), str(tmp_path)], text=True, capture_output=True,
                          timeout=400)
    assert done.returncode == 1 and "is not what was written" in done.stderr, done.stderr


@pytest.mark.parametrize(("arguments", "said"),
                         [(["--only", "nothing"], "there is no 'nothing'"), (["--with", "torch"], "there is no 'torch'"),
                                                 (["--rounds", "0"], "at least 1"),
                                                 (["--only", "pack-histogram"], "it needs --histogram FILE"),
                                                 (["--ddstore", "/nowhere"], "there is no pyddstore*.so in it; build it there")])
def test_options_that_cannot_be(arguments: list[str], said: str) -> None:
    done = compare(*arguments)
    assert done.returncode == 2 and said in done.stderr


@pytest.mark.parametrize(("ids", "said"), [([0, 1, 1], "not in exactly one bin"), ([2, 1, 0], "a bin of 20 tokens, 16 are allowed")])
def test_a_packer_that_loses_samples_or_breaks_the_capacity_is_an_error(ids: list[int], said: str) -> None:
    script = ("import sys, numpy; sys.path.insert(0, sys.argv[1])\n"
              "import packers\n"
              "lengths, bounds = numpy.array([4, 8, 12], 'uint32'), numpy.array([0, 2, 3])\n"
              "case = packers.Case('gamma', 3, 16, ranks=2)\n"
              "found = packers.figures('it', case, lengths, (bounds, numpy.array([0, 2, 1])))\n"
              "assert found == {'bins': 2, 'fill': 0.75, 'steps': 1, 'balance of cost': found['balance of cost']}, found\n"
              "packers.figures('it', case, lengths, (bounds, numpy.array(eval(sys.argv[2]))))\n")
    done = subprocess.run([sys.executable, "-c", script, str(ROOT / "tools/peers"), str(ids)], text=True, capture_output=True,
                          timeout=100)
    assert done.returncode == 1 and said in done.stderr, done.stderr


@pytest.mark.parametrize("rule", ["Greedy", "WlbLlm", "SortedChunks"])
def test_a_rule_of_one_step_at_a_time_places_each_document_once_and_tells_what_waited(rule: str) -> None:
    script = ("import sys, numpy; sys.path.insert(0, sys.argv[1])\n"
              "import packers, stepwise\n"
              "rule = getattr(stepwise, sys.argv[2])\n"
              "lengths = numpy.random.default_rng(3).integers(1, 1001, 3000).astype('uint32')\n"
              "bounds, ids, waits = stepwise.plan_by(rule, lengths, 1000, 4, 3)\n"
              "found = packers.figures('it', packers.Case('', 3000, 1000, 4, 3), lengths, (bounds, ids))\n"
              "assert found['steps'] == (len(bounds) - 1) / 12 and 0 < waits['tokens that waited'] < 1 <= waits['longest wait, steps']\n"
              "short = stepwise.plan_by(rule, numpy.full(2400, 10, 'uint32'), 1000, 4, 3)\n"
              "assert numpy.diff(short[0]).tolist() == [100] * 24 and short[2]['longest wait, steps'] == 0, short\n")
    done = subprocess.run([sys.executable, "-c", script, str(ROOT / "tools/peers"), rule], text=True, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_help_teaches_every_row() -> None:
    done = compare("--help")
    others = ",build-blobs,read-tokens,padded,build-images,pack-papers-32k,pack-large"
    assert done.returncode == 0 and all(f"\n  {row} " in done.stdout for row in (ROWS + others).split(","))
