# SPDX-License-Identifier: Apache-2.0
"""`rankstore build` of Parquet and Arrow files, which the command line leaves to the package."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from built import COMMAND, dataset_id, keys

import rankstore

pyarrow = pytest.importorskip("pyarrow")


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "RANKSTORE_PYTHON": sys.executable, "PYTHONPATH": str(Path(rankstore.__file__).parents[1])}
    return subprocess.run([str(COMMAND), "build", *map(str, arguments)], text=True, capture_output=True, timeout=400, env=environ,
                          stdin=subprocess.DEVNULL)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    from pyarrow import feather, parquet
    table = pyarrow.table({"id": [f"k{i}" for i in range(600)], "x": [[1] * (i % 7) for i in range(600)], "n": range(600)})
    (tmp_path / "in").mkdir()
    for name in ("a.parquet", "in/b.pq"):
        parquet.write_table(table, tmp_path / name, row_group_size=100)
    feather.write_feather(table, tmp_path / "a.feather")
    return tmp_path / "a.parquet"


def test_the_command_builds_what_python_does(source: Path, tmp_path: Path) -> None:
    done = command(source, "-o", tmp_path / "out", "--key", "id", "--length", "x", "--index", "n", "--where", "n < 500", "-j", 2)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{tmp_path}/out: 500 samples, ") and "; 100 filtered out\nbuilt in " in done.stdout
    rankstore.build(source, tmp_path / "python", key="id", length="x", index=["n"], where="n < 500").close()
    assert dataset_id(tmp_path / "out") == dataset_id(tmp_path / "python") and keys(tmp_path / "out")[499] == b"k499"
    for other in ("in", "a.feather"):
        report = json.loads(command(tmp_path / other, "-o", tmp_path / f"of-{other}", "--json", "--sample", "10").stdout)
        assert (report["samples"], report["sampled_out"], report["directory"]) == (10, 590, f"{tmp_path}/of-{other}")


def test_a_package_of_another_version_is_refused_with_both(source: Path, tmp_path: Path) -> None:
    site = tmp_path / "site" / "rankstore"
    shutil.copytree(Path(rankstore.__file__).parent, site)
    with open(site / "__init__.py", "a", encoding="utf-8") as file:
        file.write('\n__version__ = "12.34.56"\n')
    environ = {**os.environ, "RANKSTORE_PYTHON": sys.executable, "PYTHONPATH": str(site.parent)}
    done = subprocess.run([str(COMMAND), "build", str(source), "-o", str(tmp_path / "out")], text=True, capture_output=True, timeout=400,
                          env=environ, stdin=subprocess.DEVNULL)
    assert done.returncode == 3 and not (tmp_path / "out").exists()
    assert f"this command has version {rankstore.__version__}, and the Python package" in done.stderr, done.stderr
    assert "has 12.34.56: install the same version of both" in done.stderr


def test_it_looks_for_shards_in_other_folders(source: Path, tmp_path: Path) -> None:
    out, moved = tmp_path / "out", tmp_path / "moved-1"
    assert command(source, "-o", out).returncode == 0
    moved.mkdir()
    for path in out.glob("part-*"):
        path.rename(moved / path.name)
    done = command(source, "-o", out, "--shards", tmp_path / "none", "--shards", tmp_path / "moved-*")
    assert done.returncode == 0 and "was there: the input and the options are the same" in done.stdout, done
    assert not list(out.glob("part-*"))


def test_its_errors_are_the_commands(source: Path, tmp_path: Path) -> None:
    for arguments, code, says in (((source, "--key", "nope"), 2, 'rankstore build: key: no column "nope"; nearest: "n", "id", "x"\n'),
                                  ((tmp_path / "none.parquet",), 1, f"rankstore build: {tmp_path}/none.parquet: no such file\n")):
        done = command(*arguments, "-o", tmp_path / "out")
        assert (done.returncode, done.stderr) == (code, says) and done.stdout == ""


def test_sources_are_taken_as_they_are_named(source: Path, tmp_path: Path) -> None:
    odd = tmp_path / "-a b.parquet"
    os.link(source, odd)
    assert command(source, odd, "-o", tmp_path / "out").returncode == 0
    with rankstore.open(tmp_path / "out") as ds:
        assert len(ds) == 1200
    # none is left out in silence
    other = os.fsdecode(b"\xff")
    for arguments in ((source, f"{other}.parquet"), (source, "--key", other), (source, "--index", other)):
        done = command(*arguments, "-o", tmp_path / "out2")
        assert done.returncode == 2 and "rankstore build: a name or an option is not UTF-8" in done.stderr, done
        assert not (tmp_path / "out2").exists()
    # more names than one argument of a process has room for
    done = command(*(tmp_path / f"{'x' * 100}{i}.parquet" for i in range(1500)), "-o", tmp_path / "out3")
    assert done.returncode == 1 and done.stderr.endswith(": no such file\n"), done.stderr[-300:]
