# SPDX-License-Identifier: Apache-2.0
"""Docstrings of public calls: a line for each parameter, with type and default."""
from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

import rankstore

CALLS = [rankstore.open, rankstore.concat, rankstore.build, rankstore.Dataset.split, rankstore.Dataset.plan,
         rankstore.Dataset.loader, rankstore.init, rankstore.launch,
         rankstore.gather, rankstore.merge, rankstore.publish, rankstore.prune, rankstore.export, rankstore.diff,
         rankstore.plan, rankstore.transformer_cost]
HOLDS_ITS_OPTIONS = {rankstore.Dataset.loader: rankstore.Loader}


def _lines(text: str) -> dict[str, str]:
    """What each parameter's line says, its continuations with it."""
    found: dict[str, str] = {}
    name = ""
    for line in inspect.cleandoc(text).splitlines():
        begins = re.match(r"(\w+): (.*)", line)
        if begins:
            name, found[begins[1]] = begins[1], begins[2]
        elif line.startswith("    ") and name:
            found[name] += " " + line.strip()
        else:
            name = ""
    return found


@pytest.mark.parametrize("call", CALLS, ids=[call.__qualname__ for call in CALLS])
def test_each_parameter_has_a_line_with_its_default(call: Callable[..., Any]) -> None:
    parameters = dict(inspect.signature(call).parameters)
    if call in HOLDS_ITS_OPTIONS:
        parameters = {"plan": parameters["plan"],
                      **{name: one for name, one in inspect.signature(HOLDS_ITS_OPTIONS[call]).parameters.items()
                         if one.kind is one.KEYWORD_ONLY}}
    parameters.pop("self", None)
    said = _lines(call.__doc__ or "")
    assert [*parameters] == [name for name in said if name in parameters], call.__qualname__
    for name, one in parameters.items():
        if one.default is not one.empty:
            assert "Default: " in said[name], f"{call.__qualname__}: {name}"


def test_a_missing_line_is_seen() -> None:
    assert _lines("Opens.\n\nname: str. Its name.\n    Default: none.\n\nReturns it: not a parameter.") == {
        "name": "str. Its name. Default: none."}
