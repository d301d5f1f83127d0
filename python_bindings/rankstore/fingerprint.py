# SPDX-License-Identifier: Apache-2.0
"""Whether a finished dataset is what a build would make: from what, with which options and which code.

Each rank's directory holds it as `python.json` beside dataset.json: {"dataset": id, "made_from": digest, "shown":
{...}}.
"""
from __future__ import annotations

import functools
import hashlib
import json
import os
import types
from typing import Any

FILE = "python.json"


def digest(value: Any) -> str:
    """32 hexadecimal digits of a JSON value."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def code(function: Any) -> str | None:
    """What a callable does, as far as its own code, its defaults and what it closes over say; None for none. Functions
    that it calls are known by their names alone."""
    return None if function is None else digest(_code(function, 0))


def _code(value: Any, depth: int) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (bytes, complex)):
        return repr(value)
    if depth > 8:
        return type(value).__qualname__
    if isinstance(value, (list, tuple)):
        return [_code(one, depth + 1) for one in value]
    if isinstance(value, (set, frozenset)):
        return sorted(json.dumps(_code(one, depth + 1)) for one in value)
    if isinstance(value, dict):
        return [[_code(key, depth + 1), _code(one, depth + 1)] for key, one in value.items()]
    if isinstance(value, types.CodeType):
        return [value.co_code.hex(), list(value.co_names), list(value.co_varnames), _code(value.co_consts, depth + 1)]
    if isinstance(value, functools.partial):
        return ["partial", _code(value.func, depth + 1), _code(value.args, depth + 1), _code(value.keywords, depth + 1)]
    if isinstance(value, types.MethodType):
        return ["method", _code(value.__func__, depth + 1), _code(value.__self__, depth + 1)]
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell)]
        return ["function", _code(value.__code__, depth + 1), _code(value.__defaults__, depth + 1),
                _code(value.__kwdefaults__, depth + 1), _code(cells, depth + 1)]
    if isinstance(value, (type, types.BuiltinFunctionType, types.ModuleType)):
        return getattr(value, "__qualname__", value.__name__)
    call = getattr(type(value), "__call__", None)
    state = getattr(value, "__dict__", {})
    return [type(value).__module__, type(value).__qualname__, _code(getattr(call, "__code__", None), depth + 1),
            _code(state, depth + 1)]


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def expand(directory: str, rank: int, node: int) -> str:
    return directory.replace("{rank}", str(rank)).replace("{node}", str(node))


def finished(directory: str) -> dict[str, Any]:
    """The dataset in `directory`: its id ("dataset"), digest ("made_from"), generation, and what an append takes over
    ("shape"). None where there is none, or nobody wrote it down."""
    found: dict[str, Any] = {"dataset": None, "made_from": None, "generation": 1, "shape": None}
    try:
        with open(os.path.join(directory, "dataset.json"), encoding="utf-8") as file:
            there = json.load(file)
        found["dataset"], found["generation"] = str(there.get("dataset")), int(there.get("generation", 1))
        options = there["options"]
        found["shape"] = {"schema": json.dumps(there["schema"], ensure_ascii=False), "index": there["index"],
                          "derived_keys": bool(there["derived_keys"]), "key": options.get("key"), "length": options.get("length"),
                          "length_unit": options.get("length_unit", 1)}
        with open(os.path.join(directory, FILE), encoding="utf-8") as file:
            written = json.load(file)
        found["made_from"] = str(written["made_from"]) if written["dataset"] == found["dataset"] else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    return found


def write(directory: str, dataset: str, made_from: dict[str, Any]) -> None:
    """Atomically; ranks that share the directory write the same."""
    path = os.path.join(directory, FILE)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump({"dataset": dataset, "made_from": digest(made_from), "options": made_from}, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def figures(directory: str) -> dict[str, int]:
    """What dataset.json says about a finished build; zeros where this directory has none."""
    made = {"samples": 0, "filtered": 0, "bad": 0, "bytes": 0, "units": 0, "duplicates": 0, "sampled_out": 0}
    try:
        with open(os.path.join(directory, "dataset.json"), encoding="utf-8") as file:
            dataset = json.load(file)
    except FileNotFoundError:
        return made
    made["samples"], made["units"] = int(dataset["samples"]), len(dataset["units"])
    for unit in dataset["units"]:
        for name in ("filtered", "bad", "bytes"):
            made[name] += int(unit[name])
    excluded = dataset.get("excluded", {"samples": 0, "bytes": 0, "duplicates": 0})
    made["bytes"] -= int(excluded["bytes"])
    made["duplicates"] = int(excluded["duplicates"])
    made["sampled_out"] = int(excluded["samples"]) - made["duplicates"]
    return made
