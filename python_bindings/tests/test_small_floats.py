# SPDX-License-Identifier: Apache-2.0
"""Values of bfloat16 and float8, which numpy lacks, have their type wherever they are read."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import pytest
from built import build

import rankstore

# ---- bfloat16 and float8

FLOATS = {"bfloat16": [0.5, -2.0, 1.75], "float8_e4m3fn": [0.5, -2.0, 448.0], "float8_e5m2": [0.5, -2.0, 57344.0]}


def test_values_of_bfloat16_and_float8_have_their_type(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    samples = [{**{name: torch.tensor(values).to(getattr(torch, name)) for name, values in FLOATS.items()},
                "one": torch.tensor(1.5, dtype=torch.bfloat16), "two": torch.ones(2, 2, dtype=torch.float8_e5m2)} for _ in range(3)]
    build(samples, tmp_path / "out", index=["one"], length="bfloat16")

    def check(sample: dict[str, Any]) -> None:
        for name, value in sample.items():
            assert value.dtype == samples[0][name].dtype and torch.equal(value.float(), samples[0][name].float()), name

    with rankstore.open(tmp_path / "out") as ds:
        check(ds[0])
        for sample in [*ds[[1, 2]], ds.view(1), *next(iter(ds.loader(ds.plan("sequential", batch_size=2), collate=list)))]:
            check(sample)
        window = ds.windows(6)[0]
        assert window.dtype == torch.bfloat16 and window.tolist() == FLOATS["bfloat16"] * 2
        assert next(ds.windows(3).batches(2)).dtype == torch.bfloat16
        assert ds.index["one"].tolist() == [1.5] * 3 and ds.index["one"].dtype == "float32"
        build(ds, tmp_path / "again", index=["one"], length="bfloat16")
        batch = next(iter(ds.loader(ds.plan("sequential", batch_size=2), out="numpy")))
        assert [one.rankstore_type for one in batch["bfloat16"]] == ["bfloat16"] * 2
    with rankstore.open(tmp_path / "again") as again:
        assert {name: column.text for name, column in again.schema.items()} == {
            "bfloat16": "bfloat16[*]", "float8_e4m3fn": "float8_e4m3fn[*]", "float8_e5m2": "float8_e5m2[*]", "one": "bfloat16",
            "two": "float8_e5m2[*,2]"}
        check(again[2])


BITS_SCRIPT = """
import pickle, sys
import numpy
from built import build
import rankstore
out, floats = sys.argv[1], {floats!r}
schema = {{name: name + "[*]" for name in floats}} | {{"one": "bfloat16"}}
given = {{"bfloat16": floats["bfloat16"], "float8_e4m3fn": numpy.array([0x30, 0xC0, 0x7E], "uint8"),
         "float8_e5m2": numpy.array([0x38, 0xC0, 0x7B], "uint8"), "one": numpy.array(0x3FC0, "uint16")}}
build([given] * 2, f"{{out}}/first", schema=schema, length="bfloat16")
with rankstore.open(f"{{out}}/first") as ds:
    build(ds, f"{{out}}/second", length="bfloat16")
with rankstore.open(f"{{out}}/second") as ds:
    assert {{name: column.text for name, column in ds.schema.items()}} == schema, ds.schema
    batch = next(iter(ds.loader(ds.plan("sequential", batch_size=2), out="numpy", collate=rankstore.Pad(to_multiple=1))))
    for sample in (ds[0], ds.view(1), batch, next(iter(ds.loader(ds.plan("sequential", batch_size=1), collate=list, out="numpy")))[0]):
        for name in floats:
            value = sample[name]
            assert value.rankstore_type == name and pickle.loads(pickle.dumps(value)).rankstore_type == name
            assert value[..., 1:].rankstore_type == name and not isinstance(numpy.asarray(value), type(value))
            try:
                value + 1
            except TypeError:
                pass
            else:
                raise AssertionError("arithmetic on bits")
    assert ds.windows(6)[0].rankstore_type == "bfloat16"
    wide = [{{name: sample[name] for name in floats}} for sample in (ds[0], ds[1])]
    build(wide, f"{{out}}/wide", schema={{name: "float32[*]" for name in floats}})
with rankstore.open(f"{{out}}/wide") as ds:
    assert {{name: ds[0][name].tolist() for name in floats}} == floats, ds[0]
assert "torch" not in sys.modules and "ml_dtypes" not in sys.modules
"""


def test_without_torch_bfloat16_and_float8_are_bits_that_name_their_type(tmp_path: Path) -> None:
    places = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    script = BITS_SCRIPT.format(floats=FLOATS)
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], text=True, capture_output=True, timeout=400,
                          env={**os.environ, "PYTHONPATH": places})
    assert done.returncode == 0, done.stderr


def test_every_float8_has_the_number_that_torch_gives_it() -> None:
    torch = pytest.importorskip("torch")
    from rankstore._schema import bits
    for name in FLOATS:
        every = numpy.arange(2**16 if name == "bfloat16" else 2**8).astype("uint16" if name == "bfloat16" else "uint8")
        wanted = torch.from_numpy(every.view(every.dtype.name.replace("uint16", "int16"))).view(getattr(torch, name)).float().numpy()
        numpy.testing.assert_array_equal(bits.as_float32(every, name), wanted)


def test_with_ml_dtypes_and_without_torch_they_are_its_arrays(tmp_path: Path) -> None:
    script = BITS_SCRIPT.format(floats=FLOATS).replace("import numpy\n", "import numpy, ml_dtypes\n")
    script = script[:script.index("with rankstore.open(f\"{out}/second\")")] + """
with rankstore.open(f"{out}/second") as ds:
    assert {name: column.text for name, column in ds.schema.items()} == schema, ds.schema
    batch = next(iter(ds.loader(ds.plan("sequential", batch_size=2), out="numpy", collate=rankstore.Pad(to_multiple=1))))
    for name in floats:
        assert ds[0][name].dtype == batch[name].dtype == ds.view(1)[name].dtype == getattr(ml_dtypes, name)
        assert ds[0][name].astype("float32").tolist() == batch[name][1].astype("float32").tolist() == floats[name]
    assert ds[0]["one"] == 1.5
assert "torch" not in sys.modules
"""
    pytest.importorskip("ml_dtypes")
    places = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], text=True, capture_output=True, timeout=400,
                          env={**os.environ, "PYTHONPATH": places})
    assert done.returncode == 0, done.stderr
