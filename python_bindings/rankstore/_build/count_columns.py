# SPDX-License-Identifier: Apache-2.0
"""`build(count=...)`: index columns that count items of a sample, such as the labels that a loss counts."""
from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ArgumentError, DataError

_COMPARE = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

Rule = tuple[str, str, float] | Callable[[Any], int]


def check(count: Any) -> dict[str, Rule]:
    """Return the argument `count` as a dict. Raises ArgumentError if it is wrong."""
    if not isinstance(count, Mapping):
        raise ArgumentError(f'count: a dict of rules by column, {{"learned": ("labels", "!=", -100)}}, not {count!r}')
    for name, rule in count.items():
        if callable(rule):
            continue
        if not isinstance(rule, tuple) or len(rule) != 3 or rule[1] not in _COMPARE or not isinstance(rule[0], str):
            raise ArgumentError(f'count: {name!r} is {rule!r}; give (column, operator, number), as ("labels", "!=", -100), or a '
                                f"function of a sample; operators are {', '.join(_COMPARE)}")
    return dict(count)


class Counted:
    """map(sample) with one more column for each rule. func: the user's map, or None."""

    def __init__(self, func: Callable[[Any], Any] | None, count: Mapping[str, Rule]) -> None:
        self.func, self.count = func, dict(count)

    def __call__(self, sample: Any) -> Any:
        made = sample if self.func is None else self.func(sample)
        if isinstance(made, list):
            return [self._with_counts(one) for one in made]
        return made if made is None else self._with_counts(made)

    def _with_counts(self, sample: Any) -> Any:
        if not isinstance(sample, Mapping):
            return sample  # not a dict: adding the sample refuses it
        made = dict(sample)
        for name, rule in self.count.items():
            if name in sample:
                raise DataError(f'count: the samples have a column "{name}" already; choose another name')
            made[name] = _counted(name, rule, sample)
        return made


def _counted(name: str, rule: Rule, sample: Mapping[str, Any]) -> int:
    if callable(rule):
        return operator.index(rule(sample))
    column, compare, number = rule
    if column not in sample:
        raise DataError(f'count: "{name}" counts "{column}", and a sample has no such column; it has {", ".join(sample)}')
    value = sample[column]
    if value is None:
        return 0
    import numpy
    if isinstance(value, (str, bytes, bytearray, Mapping)) or numpy.asarray(value).dtype.kind not in "biuf":
        raise DataError(f'count: "{name}" counts numbers of "{column}", which is {type(value).__name__}; give a function of '
                        f"a sample")
    return int(numpy.count_nonzero(_COMPARE[compare](numpy.asarray(value), number)))
