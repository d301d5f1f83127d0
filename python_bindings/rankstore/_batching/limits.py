# SPDX-License-Identifier: Apache-2.0
"""What a plan says of its batches, to the layouts that make them: a budget bounds the arrays that are delivered."""
from __future__ import annotations

import dataclasses
from typing import Any

from .. import _core


@dataclasses.dataclass(frozen=True)
class Rule:
    """multiple: round lengths up to this. budget: maximum items of a batch (0: no bound). sums: the budget counts unpadded items.
    cut: longer samples are cut to this many items (0: none is cut). longest: maximum length of a whole sample (0: no bound). unit: items
    that a length of 1 stands for. split: longer samples come in pieces of this many items (0: no pieces). row: items of a bin (0: batches
    have no bins)."""

    multiple: int = 1
    budget: int = 0
    sums: bool = False
    cut: int = 0
    longest: int = 0
    unit: int = 1
    split: int = 0
    row: int = 0


def rule_of(options: dict[str, Any]) -> Rule:
    """Return the rule of a plan with these options of _core.Plan, as the library tells it; those that are 0 or empty may be absent."""
    return Rule(**_core.plan_limits(None, **{"length_multiple": 1, **options}))


def default_multiple(options: dict[str, Any]) -> int:
    """Return what lengths are rounded up to in a plan with these options of _core.Plan, if none of them says it."""
    return int(_core.plan_limits(None, **options)["multiple"])
