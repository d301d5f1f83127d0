# SPDX-License-Identifier: Apache-2.0
"""The options of a plan, as users give them and as the core takes them."""
from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from .._batching.limits import default_multiple
from .._schema.sizes import parse_count
from ..errors import ArgumentError

# what others call an option of a plan
SYNONYMS = {"num_replicas": "world", "world_size": "world", "num_shards": "world", "shard_id": "rank"}


Given = ParamSpec("Given")
Made = TypeVar("Made")


def names_synonyms(make: Callable[Given, Made]) -> Callable[Given, Made]:
    """Return a function that makes a plan, and whose TypeError for another library's name of an option says ours."""
    @functools.wraps(make)
    def plan(*given: Given.args, **named: Given.kwargs) -> Made:
        for name, ours in SYNONYMS.items():
            if name in named:
                raise TypeError(f"plan() got an unexpected keyword argument {name!r}; it is {ours}= here")
        return make(*given, **named)

    return plan


def plan_options(strategy: str, *, cost: str | tuple[float, float], shuffle: bool, **numbers: Any) -> dict[str, Any]:
    """Return the options of _core.Plan.

    Raises ArgumentError if a number that may be None is 0, a text is no number, or a cost is not a pair; TypeError if a cost has another
    type.
    """
    for name in ("max_tokens", "max_length", "capacity"):
        numbers[name] = parse_count(name, numbers[name])
    for name in ("batch_size", "max_tokens", "max_length", "capacity", "world"):
        if numbers[name] == 0:
            raise ArgumentError(f"{name}: 0; it must be at least 1, or None")
        numbers[name] = numbers[name] or 0
    if numbers["micro_batches"] == 1:
        del numbers["micro_batches"]
    if numbers["order"] == "plan":
        del numbers["order"]
    skip = [_skipped(one) for one in numbers.pop("skip") or ()]
    if skip:
        numbers["skip"] = skip
    options = {"strategy": strategy, "cost": cost, "no_shuffle": not shuffle, **numbers}
    if not isinstance(cost, str):
        if not isinstance(cost, tuple):
            raise TypeError(f"cost: {cost!r} is neither a name nor (a, b)")
        if len(cost) != 2:
            raise ArgumentError(f"cost: {len(cost)} numbers; give (a, b) for a L + b L^2")
        options.update(cost="polynomial", cost_linear=float(cost[0]), cost_quadratic=float(cost[1]))
    if options["length_multiple"] is None:
        options["length_multiple"] = default_multiple(options)
    if options["length_multiple"] == 1:
        del options["length_multiple"]
    return options


def _skipped(entry: Any) -> tuple[int, int, int]:
    """Return an entry of the option `skip` as three ints. ArgumentError if it is anything else."""
    if not isinstance(entry, (tuple, list)) or len(entry) != 3:
        raise ArgumentError(f"skip: {entry!r}; give a list of (epoch, first step, last step)")
    epoch, first, last = (operator.index(number) for number in entry)
    return epoch, first, last


DRAWN = ("mix", "samples", "mix_by", "mix_unit", "weights")


def core_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options without those that `mix` and `balance` of _core.Plan replace."""
    return {name: value for name, value in options.items() if name not in DRAWN and name != "balance"}


def plan_rank(rank: Any, world: int) -> int:
    """Return the rank as an int. ArgumentError if a plan for `world` ranks has no such rank."""
    number = operator.index(rank)
    if not 0 <= number < world:
        raise ArgumentError(f"rank: {number}; ranks of this plan are 0 to {world - 1}")
    return number
