# SPDX-License-Identifier: Apache-2.0
"""What each sample costs a rank, from the option `balance` of a plan."""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .._batching.limits import Rule
from .._batching.protocols import Samples
from ..errors import ArgumentError
from .numbers import NUMBERS, one_dimension, refuse_outside

if TYPE_CHECKING:
    import numpy

RULE = "costs must be finite and at least 0, and one must be above 0"
LENGTH = "length"  # among weights, this name means a sample's length, unless a column has it


def sample_costs(balance: Any, lengths: numpy.ndarray[Any, Any], rule: Rule,
                 column: Callable[[str], Any]) -> numpy.ndarray[Any, Any]:
    """Return the cost of each sample as uint32: whole numbers, scaled to 32 bits, so that all machines balance alike.

    balance: weights by index column, (a, b) for a L + b L^2, or a number for each sample. lengths: of each sample; one that is absent (2^32
        - 1) costs nothing. rule: the plan's; a longer sample counts as long as the rule cuts it to. column: returns the index column of a
        name, or None. Raises ArgumentError that says what is wrong.
    """
    import numpy
    there = lengths != 0xFFFFFFFF
    own = numpy.minimum(numpy.where(there, lengths, 0), rule.cut or 0xFFFFFFFF).astype("float64")
    if isinstance(balance, Mapping):
        costs = numpy.zeros(len(lengths))
        for name, weight in balance.items():
            values = column(name)
            if values is None and name != LENGTH:
                raise ArgumentError(f'balance: "{name}" is not an index column; build it with index=["{name}"], or name "{LENGTH}"')
            costs += one_dimension(own if values is None else values, f"balance: {name}", NUMBERS).astype("float64") * float(weight)
    elif isinstance(balance, tuple):
        if len(balance) != 2:
            raise ArgumentError(f"balance: {len(balance)} numbers; give (a, b) for a L + b L^2")
        if rule.split and float(balance[1]) != 0:
            raise ArgumentError('balance: (a, b) counts the square of a whole sample, which too_long="split" plans in pieces; '
                                'use cost=(a, b)')
        costs = own * (float(balance[0]) + own * float(balance[1]))
    else:
        costs = one_dimension(balance, "balance", NUMBERS)
        if len(costs) != len(lengths):
            raise ArgumentError(f"balance: {len(costs)} costs for {len(lengths)} samples")
        costs = costs.astype("float64")
    costs = numpy.where(there, costs, 0)
    refuse_outside(costs, numpy.isfinite(costs) & (costs >= 0), "balance", RULE)
    largest = float(costs.max(initial=0))
    if len(costs) and largest == 0:
        raise ArgumentError(f"balance: {RULE}")
    return numpy.rint(numpy.ldexp(costs, 31 - math.frexp(largest)[1])).astype("uint32")


def costs_of(balance: Any, dataset: Samples, rule: Rule) -> numpy.ndarray[Any, Any] | None:
    """Return the costs by sample id, of a dataset or a selection: samples that are not chosen cost nothing. None if `balance` is None."""
    if balance is None:
        return None
    import numpy
    whole = dataset.all_lengths
    if dataset.is_selection:
        lengths = numpy.full(len(whole), 0xFFFFFFFF, "uint32")
        lengths[dataset.ids] = whole[dataset.ids]
        whole = lengths
        if not isinstance(balance, (Mapping, tuple)):
            given = sample_costs(balance, lengths[dataset.ids], rule, dataset.index_of)
            costs = numpy.zeros(len(whole), "uint32")
            costs[dataset.ids] = given
            return costs
    return sample_costs(balance, whole, rule, dataset.index_of)


def digest_of(costs: numpy.ndarray[Any, Any] | None) -> str:
    """Return a digest that is equal for equal costs."""
    import hashlib
    return "" if costs is None else hashlib.sha256(costs.tobytes()).hexdigest()


def shown(balance: Any) -> dict[str, Any]:
    """Return how a plan's options show a balance."""
    if balance is None:
        return {}
    return {"balance": balance if isinstance(balance, (Mapping, tuple)) else f"{len(balance)} costs"}

