# SPDX-License-Identifier: Apache-2.0
"""What a finished dataset's directory says of itself: dataset.json, as the library reads it, and what `build` wrote beside it."""
from __future__ import annotations

import contextlib
import json
import os
from typing import Any

from .. import _core
from ..errors import CorruptError, NotFoundError, UnsupportedError

FILE = "python.json"
FIGURES = ("samples", "filtered", "bad", "bytes", "units", "duplicates", "sampled_out")


def expand(directory: str, rank: int, node: int) -> str:
    return directory.replace("{rank}", str(rank)).replace("{node}", str(node))


def described(directory: str) -> dict[str, Any] | None:
    """Return what dataset.json says ("DIR@2": of a generation); None if there is none, or if it cannot be read here."""
    try:
        found: dict[str, Any] = json.loads(_core.dataset_info(directory))
    except (NotFoundError, CorruptError, UnsupportedError, OSError, ValueError):
        return None
    return found


def finished(directory: str) -> dict[str, Any]:
    """Return what made the dataset in `directory`; None if there is none, or if that was not recorded.

    It is a dict of its id ("dataset"), digest ("made_from") with its "rule" (None: unknown) and "options", generation, and what an append
    inherits ("shape")."""
    found: dict[str, Any] = {"dataset": None, "made_from": None, "rule": None, "options": None, "generation": 1, "shape": None,
                             "parts": False}
    there = described(directory)
    if there is None:
        with contextlib.suppress(OSError):
            found["parts"] = any(name.startswith("part-") and name.endswith(".json") for name in os.listdir(directory))
        return found
    options = there["build"]
    found.update(dataset=there["dataset"], generation=there["generation"], shape={
        "schema": json.dumps(there["schema"], ensure_ascii=False), "index": there["index"], "derived_keys": there["keys"] == "derived",
        "key": options.get("key"), "length": options.get("length"), "length_unit": there["length_unit"],
        "own_lengths": bool(options.get("length_fn")), "count": options.get("count", [])})
    rule, _, digest = there.get("made_from", "").partition(":")
    if digest and rule.isdecimal():
        found["made_from"], found["rule"] = digest, int(rule)
    try:
        with open(os.path.join(directory, FILE), encoding="utf-8") as file:
            written = json.load(file)
        if written["dataset"] == found["dataset"] and found["made_from"] is None:
            found["rule"] = int(written.get("rule", 1))  # an earlier version, which wrote no more than this file
        elif written["dataset"] == found["dataset"] and found["made_from"] == str(written["made_from"]):
            found["options"] = written.get("options")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return found


def figures(directory: str) -> dict[str, Any]:
    """Return what dataset.json says about a finished build, with what lengths count in words; zeros if this directory has none."""
    try:
        there = json.loads(_core.dataset_info(directory))
    except NotFoundError:
        there = {"length": ""}
    return {"length": there["length"], **{name: there.get(name, 0) for name in FIGURES}}
