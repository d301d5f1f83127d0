# SPDX-License-Identifier: Apache-2.0
"""What a finished dataset's directory says of itself: dataset.json, and what `build` wrote beside it."""
from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterator
from typing import Any

from .._schema import types

FILE = "python.json"


def expand(directory: str, rank: int, node: int) -> str:
    return directory.replace("{rank}", str(rank)).replace("{node}", str(node))


def finished(directory: str) -> dict[str, Any]:
    """Return what made the dataset in `directory`; None if there is none, or if that was not recorded.

    It is a dict of its id ("dataset"), digest ("made_from") with its "rule" and "options", generation, and what an append inherits
    ("shape")."""
    found: dict[str, Any] = {"dataset": None, "made_from": None, "rule": 1, "options": None, "generation": 1, "shape": None}
    try:
        with open(os.path.join(directory, "dataset.json"), encoding="utf-8") as file:
            there = json.load(file)
        found["dataset"], found["generation"] = str(there.get("dataset")), int(there.get("generation", 1))
        options = there["options"]
        found["shape"] = {"schema": json.dumps(there["schema"], ensure_ascii=False), "index": there["index"],
                          "derived_keys": bool(there["derived_keys"]), "key": options.get("key"), "length": options.get("length"),
                          "length_unit": options.get("length_unit", 1), "own_lengths": bool(options.get("length_fn"))}
        rule, _, digest = str(there.get("made_from", "")).partition(":")
        if digest and rule.isdecimal():
            found["made_from"], found["rule"] = digest, int(rule)
        with open(os.path.join(directory, FILE), encoding="utf-8") as file:
            written = json.load(file)
        if written["dataset"] == found["dataset"] and found["made_from"] in (None, str(written["made_from"])):
            found["made_from"], found["rule"] = str(written["made_from"]), int(written.get("rule", 1))
            found["options"] = written.get("options")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return found


def _listed_units(path: str) -> Iterator[dict[str, int]]:
    """Return the units of a list that dataset.json refers to (FORMAT.md, list-DIGITS.units)."""
    with open(path, "rb") as file:
        data = file.read()
    shards, units = struct.unpack_from("<QQ", data, 8)
    at = 24
    for i in range(shards + units):
        size = struct.unpack_from("<I", data, at + 88)[0]
        if i >= shards:
            filtered, bad, payload = struct.unpack_from("<QQQ", data, at + 32)
            yield {"filtered": filtered, "bad": bad, "bytes": payload}
        at += 96 + (size + 7) // 8 * 8


def figures(directory: str) -> dict[str, int]:
    """Return what dataset.json says about a finished build; zeros if this directory has none."""
    made = {"samples": 0, "filtered": 0, "bad": 0, "bytes": 0, "units": 0, "duplicates": 0, "sampled_out": 0}
    try:
        with open(os.path.join(directory, "dataset.json"), encoding="utf-8") as file:
            dataset = json.load(file)
    except FileNotFoundError:
        return made
    units = list(dataset["units"])
    for listed in dataset.get("lists", []):
        units.extend(_listed_units(os.path.join(directory, str(listed["name"]))))
    made["samples"], made["units"] = int(dataset["samples"]), len(units)
    for unit in units:
        for name in ("filtered", "bad", "bytes"):
            made[name] += int(unit[name])
    excluded = dataset.get("excluded", {"samples": 0, "bytes": 0, "duplicates": 0})
    made["bytes"] -= int(excluded["bytes"])
    made["duplicates"] = int(excluded["duplicates"])
    made["sampled_out"] = int(excluded["samples"]) - made["duplicates"]
    return made


def counted(directory: str) -> tuple[str | None, int, str] | None:
    """Return what lengths of the dataset in this directory count; None if its dataset.json cannot be read here.

    That is the column whose items they count (None for no single one), what they were divided by, and how `build` names it: "tokens",
    "chars:text", "of a function", "1 each"."""
    shape = finished(directory if os.path.isdir(directory) else re.sub(r"@\d+$", "", directory))["shape"]
    if shape is None:
        return None
    unit = int(shape["length_unit"])
    if shape["own_lengths"]:
        return None, unit, "of a function"
    if shape["length"]:
        return str(shape["length"]), unit, str(shape["length"])
    columns = (types.parse(name, text) for name, text in json.loads(shape["schema"]).items())
    name = next((column.name for column in columns if (column.varies or column.is_text) and column.name != shape["key"]), None)
    return name, unit, "1 each" if name is None else name


def words(directory: str) -> str:
    """Return the same in the core's words (BuildReport.length), if this process can read the dataset; else ""."""
    source, shape = counted(directory), finished(directory)["shape"]
    if source is None or shape is None:
        return ""
    _, unit, name = source
    kind, _, of = name.partition(":")
    schema = json.loads(shape["schema"])
    if name in schema:
        column = types.parse(name, schema[name])
        text = f"{'bytes of' if column.is_text else 'items of' if column.dims else 'the number in'} {name}"
        text += f", {column.dims[0]} each" if column.dims and not column.varies else ""
    elif kind in ("chars", "wav"):
        text = f"{'characters' if kind == 'chars' else 'sample frames'} of {of}"
    else:
        text = "what a function said" if name == "of a function" else name
    return text + (f" / {unit}, rounded up" if unit > 1 else "")
