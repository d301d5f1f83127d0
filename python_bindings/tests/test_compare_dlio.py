# SPDX-License-Identifier: Apache-2.0
"""tools/compare_dlio: its options everywhere; its runs where DLIO is installed."""
from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT / "tools/peers"


def compare(*arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run([str(ROOT / "tools/compare_dlio"), "--here", *arguments], env={**os.environ, "PATH": path}, text=True,
                          capture_output=True, stdin=subprocess.DEVNULL, timeout=800)


@pytest.mark.parametrize(("arguments", "said"), [(["--only", "llama"], "there is no 'llama'"), (["--rounds", "0"], "at least 1"),
                                                 (["--link", "0"], "at least 1 MB/s"),
                                                 (["--link", "9", "--cold"], "without --cold")])
def test_options_that_cannot_be(arguments: list[str], said: str) -> None:
    done = compare(*arguments)
    assert done.returncode == 2 and said in done.stderr


def test_help_names_the_workloads_and_says_what_it_is_not() -> None:
    done = compare("--help")
    assert done.returncode == 0 and "not an MLPerf Storage result" in done.stdout
    assert all(name in done.stdout for name in ("resnet50", "cosmoflow", "unet3d", "bert"))


def test_without_dlio_it_says_so(tmp_path: Path) -> None:
    if importlib.util.find_spec("dlio_benchmark"):
        pytest.skip("dlio_benchmark is installed")
    done = compare("--quick", "-o", str(tmp_path / "out"))
    assert done.returncode == 3 and "is not installed" in done.stderr and "without --here it is" in done.stderr


@pytest.mark.limit(900)
def test_a_quick_run_has_figures_of_both_loaders(tmp_path: Path) -> None:
    if importlib.util.find_spec("dlio_benchmark") is None:
        pytest.skip("dlio_benchmark is not among what tests install")
    done = compare("--quick", "--only", "cosmoflow", "-o", str(tmp_path / "out"), "--data", str(tmp_path / "data"))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out/dlio.json").read_text())["workloads"]["cosmoflow"]
    assert [run["loader"] for run in found["runs"]] == ["nothing", "pytorch", "Rankstore"]
    assert all(run["error"] is None and 0 < run["utilisation"] <= 100 for run in found["runs"])
    assert "not an MLPerf Storage result" in (tmp_path / "out/dlio.md").read_text()


def test_what_is_dropped_from_memory_is_read_again(tmp_path: Path) -> None:
    script = ("import sys, pathlib; sys.path.insert(0, sys.argv[1])\n"
              "import dlio_source\n"
              "folder = pathlib.Path(sys.argv[2])\n"
              "(folder / 'inner').mkdir()\n"
              "(folder / 'inner' / 'file').write_bytes(bytes(5 << 20))\n"
              "assert dlio_source.disk_rate(folder) > 0\n"
              "dlio_source.recall(folder)\n"
              "assert dlio_source.Memory(folder, 0).wrap(['a']) == ['a']\n"
              "with dlio_source.Limit(0) as limit:\n"
              " made = limit.folder\n"
              " assert made is None or limit.wrap(['a'])[-1] == 'a' and 'of the data or 3 GiB' in limit.told\n"
              "assert made is None or not made.exists()\n")
    done = subprocess.run([sys.executable, "-c", script, str(PEERS), str(tmp_path)], text=True, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["dlio", "dlio-cold", "dlio-store"])
def test_the_page_is_what_the_recorded_figures_give(name: str, tmp_path: Path) -> None:
    recorded = ROOT / "docs/measurements" / f"{name}.json"
    script = ("import sys, json, pathlib; sys.path.insert(0, sys.argv[1])\n"
              "import dlio\n"
              "found = json.loads(pathlib.Path(sys.argv[2]).read_text())\n"
              "dlio.write(pathlib.Path(sys.argv[3]), sys.argv[4], found['machine'], found['workloads'])\n")
    done = subprocess.run([sys.executable, "-c", script, str(PEERS), str(recorded), str(tmp_path), name], text=True, capture_output=True,
                          timeout=100)
    assert done.returncode == 0, done.stderr
    page = (ROOT / "docs/measurements/dlio.md").read_text()
    tables = (tmp_path / f"{name}.md").read_text().split("\n### ")[1:]
    assert tables and all("\n".join(table.splitlines()[-3:]).strip() in page for table in tables)
