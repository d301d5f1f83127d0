# SPDX-License-Identifier: Apache-2.0
"""Integers of 64 bits, and numbers under another locale: exact from every source, or refused by value."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
from built import build, read

from rankstore.errors import DataError


def arrow() -> Any:
    return pytest.importorskip("pyarrow")


# ---- integers of 2^63 and more

LARGE = 2**64 - 1


@pytest.mark.parametrize("kind", ["list", "generator", "lines", "map", "csv", "arrow"])
def test_integers_from_2_to_the_63_are_exact_from_every_source(kind: str, tmp_path: Path) -> None:
    samples = [{"id": LARGE, "t": "x"}, {"id": 5, "t": "y"}]
    lines, table = tmp_path / "in.jsonl", tmp_path / "in.csv"
    lines.write_text("".join(json.dumps(one) + "\n" for one in samples))
    table.write_text(f"id,t\n{LARGE},x\n5,y\n")
    source: Any = {"list": samples, "generator": iter(samples), "csv": str(table)}.get(kind, str(lines))
    if kind == "arrow":
        source = arrow().table({"id": arrow().array([LARGE, 5], "uint64"), "t": ["x", "y"]})
    build(source, tmp_path / "out", **({"map": dict} if kind == "map" else {}))
    assert read(tmp_path / "out") == samples


def test_lists_and_json_hold_integers_from_2_to_the_63(tmp_path: Path) -> None:
    samples = [{"a": [LARGE, 5], "m": {"h": LARGE}}, {"a": [], "m": {}}, {"a": [1], "m": [LARGE]}]
    lines = tmp_path / "in.jsonl"
    lines.write_text("".join(json.dumps(one) + "\n" for one in samples))
    for i, source in enumerate((samples, str(lines))):
        build(source, tmp_path / str(i))
        found = read(tmp_path / str(i))
        assert [{"a": one["a"].tolist(), "m": one["m"]} for one in found] == samples
        assert found[0]["a"].dtype == "uint64"


def test_integers_that_no_type_holds_together_are_named(tmp_path: Path) -> None:
    both = f"has -5 and {LARGE}, which no integer type holds together"
    for source in ([{"a": -5}, {"a": LARGE}], [{"a": [LARGE, -5]}]):
        with pytest.raises(DataError, match=both):
            build(source, tmp_path / "out")
    with pytest.raises(DataError, match=f"{2**64} is beyond 64 bits"):
        build([{"a": [2**64]}], tmp_path / "out")
    with pytest.raises(DataError, match="-5 does not fit uint64|-5 is not a value of uint64"):
        build([{"a": numpy.uint64(LARGE)}, {"a": numpy.int64(-5)}], tmp_path / "out")
    build([{"a": -5}, {"a": 2**63}, {"a": 0.5}], tmp_path / "floats")
    assert [one["a"] for one in read(tmp_path / "floats")] == [-5.0, 2.0**63, 0.5]


def test_arrow_files_of_int64_and_uint64_join(tmp_path: Path) -> None:
    pa = arrow()
    import pyarrow.parquet as parquet
    for name, values, kind in (("a", [5], "int64"), ("b", [LARGE], "uint64"), ("c", [-5], "int64")):
        parquet.write_table(pa.table({"x": pa.array(values, kind)}), tmp_path / f"{name}.parquet")
    build([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")], tmp_path / "out")
    assert [one["x"] for one in read(tmp_path / "out")] == [5, LARGE]
    with pytest.raises(DataError, match='column "x": -5 does not fit uint64'):
        build([str(tmp_path / "c.parquet"), str(tmp_path / "b.parquet")], tmp_path / "refused")


def test_integers_beside_floats_of_arrow_are_exact_or_refused(tmp_path: Path) -> None:
    pa = arrow()
    import pyarrow.parquet as parquet
    files = (("a", [2**53, 2**60], "int64"), ("b", [0.5], "float64"), ("c", [2**53 + 1], "int64"), ("d", [LARGE], "uint64"))
    for name, values, kind in files:
        parquet.write_table(pa.table({"x": pa.array(values, kind)}), tmp_path / f"{name}.parquet")
    build([str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")], tmp_path / "out")
    assert [one["x"] for one in read(tmp_path / "out")] == [2.0**53, 2.0**60, 0.5]
    for name, value in (("c", 2**53 + 1), ("d", LARGE)):
        with pytest.raises(DataError, match=f'column "x": {value} does not fit float64'):
            build([str(tmp_path / f"{name}.parquet"), str(tmp_path / "b.parquet")], tmp_path / "refused")


# ---- a locale whose point is a comma

LOCALE_SCRIPT = """
import json, locale, struct, sys
from built import build, read
import rankstore
assert locale.setlocale(locale.LC_ALL, "de_DE.UTF-8") and locale.localeconv()["decimal_point"] == ","
number, out = 0.12345678901234567, sys.argv[1]
open(f"{out}/a.csv", "w").write(f"x\\n{number!r}\\n")
open(f"{out}/a.jsonl", "w").write(json.dumps({"x": number}) + "\\n")
text = repr(number).encode()
sample = struct.pack("<I", len(text)) + text
import os
os.mkdir(f"{out}/mds")
open(f"{out}/mds/shard.00000.mds", "wb").write(struct.pack("<III", 1, 12, 12 + len(sample)) + sample)
json.dump({"version": 2, "shards": [{"format": "mds", "version": 2, "samples": 1, "column_names": ["x"], "column_encodings": ["str_float"],
           "column_sizes": [None], "compression": None, "hashes": [], "zip_data": None, "size_limit": 1 << 26,
           "raw_data": {"basename": "shard.00000.mds", "bytes": 12 + len(sample), "hashes": {}}}]}, open(f"{out}/mds/index.json", "w"))
for name in ("a.csv", "a.jsonl", "mds"):
    build(f"{out}/{name}", f"{out}/{name}.out", where="x > 0.1 and x < 1.5e-1")
    assert read(f"{out}/{name}.out") == [{"x": number}], name
    rankstore.export(f"{out}/{name}.out", f"{out}/{name}.lines", to="jsonl")
    assert json.loads(open(f"{out}/{name}.lines").read())["x"] == number, name
"""


def test_numbers_have_a_point_whatever_the_locale(tmp_path: Path) -> None:
    made = subprocess.run(["localedef", "--no-archive", "-i", "de_DE", "-f", "UTF-8", str(tmp_path / "de_DE.UTF-8")], capture_output=True)
    assert made.returncode == 0, made.stderr
    places = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", LOCALE_SCRIPT, str(tmp_path)], text=True, capture_output=True, timeout=400,
                          env={**os.environ, "LOCPATH": str(tmp_path), "PYTHONPATH": places})
    assert done.returncode == 0, done.stderr
