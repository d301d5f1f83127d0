# SPDX-License-Identifier: Apache-2.0
"""`build(count=...)`: index columns that count items of a sample, such as the labels that a loss counts.

The library counts by rules. A function of a sample is a part of map."""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ArgumentError, DataError

_OPERATORS = ("==", "!=", "<", "<=", ">", ">=")

Rule = tuple[str, str, float] | Callable[[Any], int]


def check(count: Any) -> tuple[tuple[str, ...], dict[str, Callable[[Any], int]]]:
    """Return the rules of the argument `count` as the library takes them, and its functions by column. ArgumentError if it is wrong."""
    if not isinstance(count, Mapping):
        raise ArgumentError(f'count: a dict of rules by column, {{"learned": ("labels", "!=", -100)}}, not {count!r}')
    rules, functions = [], {}
    for name, rule in count.items():
        if callable(rule):
            functions[name] = rule
            continue
        if not isinstance(rule, tuple) or len(rule) != 3 or rule[1] not in _OPERATORS or not isinstance(rule[0], str) or \
                not hasattr(rule[2], "__float__"):
            raise ArgumentError(f'count: {name!r} is {rule!r}; give (column, operator, number), as ("labels", "!=", -100), or a '
                                f"function of a sample; operators are {', '.join(_OPERATORS)}")
        number = operator.index(rule[2]) if hasattr(rule[2], "__index__") else float(rule[2])
        rules.append(f"{_quoted(name)} = {_quoted(rule[0])} {rule[1]} {number!r}")
    return tuple(rules), functions


def _quoted(name: str) -> str:
    if name.isidentifier():
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class Counted:
    """map(sample) with one more column for each function. func: the user's map, or None."""

    def __init__(self, func: Callable[[Any], Any] | None, functions: Mapping[str, Callable[[Any], int]]) -> None:
        self.func, self.functions = func, dict(functions)

    def __call__(self, sample: Any) -> Any:
        made = sample if self.func is None else self.func(sample)
        if isinstance(made, list):
            return [self._with_counts(one) for one in made]
        return made if made is None else self._with_counts(made)

    def _with_counts(self, sample: Any) -> Any:
        if not isinstance(sample, Mapping):
            return sample  # not a dict: adding the sample refuses it
        made = dict(sample)
        for name, function in self.functions.items():
            if name in sample:
                raise DataError(f'count: the samples have a column "{name}" already; choose another name')
            made[name] = operator.index(function(sample))
        return made
