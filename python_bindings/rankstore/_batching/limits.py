# SPDX-License-Identifier: Apache-2.0
"""What a plan says of its batches, to the layouts that make them: a budget bounds the arrays that are delivered."""
from __future__ import annotations

import dataclasses
import math
from typing import Any

PADDED = 8  # default: padded widths are rounded up to a multiple of it


@dataclasses.dataclass(frozen=True)
class Rule:
    """multiple: lengths count as rounded up to it. budget: items of a batch at most, 0 for no bound. sums: the budget is of
    samples one after another, not padded. cut: longer samples are cut to so many items, 0: they are whole. longest: no
    whole sample is longer, 0: any may be. unit: items that a length of 1 stands for. split: longer samples come in pieces of so
    many items, 0: they do not. row: items of a bin, 0: batches have no bins."""

    multiple: int = 1
    budget: int = 0
    sums: bool = False
    cut: int = 0
    longest: int = 0
    unit: int = 1
    split: int = 0
    row: int = 0


def default_multiple(strategy: str, cost: Any, max_tokens: int | None) -> int:
    """Return what lengths are rounded up to if `length_multiple` is not given, as in the core (rks_plan_options)."""
    return 1 if strategy == "pack" or cost == "tokens" else math.gcd(PADDED, max_tokens or PADDED)


def rule_of(options: dict[str, Any]) -> Rule:
    """Return the rule of a plan with these options; those that are 0 or empty may be absent."""
    packs, multiple = options.get("strategy") == "pack", options.get("length_multiple", 1)
    capacity, max_tokens = options.get("capacity", 0), options.get("max_tokens", 0)
    budget = capacity * options.get("batch_size", 1) if packs else max_tokens
    limits = [options.get("max_length", 0), capacity if packs else max_tokens // multiple * multiple]
    limit, too_long = min((one for one in limits if one), default=0), options.get("too_long", "error")
    return Rule(multiple, budget, budget > 0 and (packs or options.get("cost") == "tokens"),
                cut=limit if too_long == "truncate" else 0, longest=limit if too_long in ("error", "drop", "split") else 0,
                split=limit if too_long == "split" else 0, row=capacity if packs else 0)
