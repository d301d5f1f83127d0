# SPDX-License-Identifier: Apache-2.0
"""Makes the datasets by which a later version proves that it reads what this one wrote: `python golden.py OUT.tar.xz`.

The archive lies in tests/fixtures under the version's name. A version that cannot read it refuses it by name, and a test says so."""
from __future__ import annotations

import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import rankstore

SCHEMA = ("key:str,t:int32[*],x:float32,s:str,j:json,big:float64[*],n:int8?,m:float16[2,*],c:complex64,blob:bytes,at:int64(timestamp_us),"
          "half:bfloat16[3],text:str?,flag:bool,wide:uint64")


def row(i: int) -> dict[str, Any]:
    return {"key": f"k{i}", "t": np.arange(i % 7, dtype="int32"), "x": i / 4, "s": f'text {i} "ü"', "j": {"a": [i, None]},
            "big": np.full(600 if i % 50 == 0 else 3, i / 2), "n": None if i % 3 else np.int8(i % 100), "m": np.ones((2, i % 4), "float16"),
            "c": np.complex64(1 + 2j), "blob": bytes([i % 256]) * (i % 9), "at": np.int64(i * 1000), "half": np.arange(3, dtype="uint16"),
            "text": None if i % 2 else "", "flag": i % 5 == 0, "wide": np.uint64(2**64 - 1 - i)}


def make(directory: Path) -> list[str]:
    """Make the datasets below `directory` and return their names."""
    options: dict[str, Any] = {"progress": False, "length": "t"}
    rankstore.build([row(i) for i in range(200)], directory / "types", schema=SCHEMA, key="key", index=["x", "wide"], unit_samples=40,
                    max_shard="8KiB", **options).close()
    rankstore.build([{"t": [i % 5]} for i in range(90)], directory / "excluded", dedup=True, unit_samples=16, **options).close()
    for name, key in (("derived", None), ("stored", "k")):
        for turn in range(10):  # so many that dataset.json refers to a list
            rankstore.build([{"t": [turn] * (i % 3), "k": f"{turn}/{i}"} for i in range(20)], directory / name, key=key, append=turn > 0,
                            unit_samples=8, **options).close()
    (directory / "rows.jsonl").write_text("".join(f'{{"t": [{i}], "labels": [{i % 3}, -100]}}\n' for i in range(50)))
    rankstore.build(directory / "rows.jsonl", directory / "files", count={"learned": ("labels", "!=", -100)}, where="learned > 0",
                    **options).close()
    return ["types", "excluded", "derived", "stored", "files"]


def main(out: str) -> None:
    with tempfile.TemporaryDirectory() as place, tarfile.open(out, "w:xz", preset=9) as archive:
        for name in make(Path(place)):
            rankstore.export(Path(place) / name, Path(place) / f"{name}.jsonl", progress=False)
            for added in (name, f"{name}.jsonl"):
                archive.add(Path(place) / added, added, filter=_plain)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if member.name.endswith("python.json") or "@" in member.name:
        return None
    member.mtime, member.uid, member.gid, member.uname, member.gname = 0, 0, 0, "", ""
    return member


if __name__ == "__main__":
    main(sys.argv[1])
