# SPDX-License-Identifier: Apache-2.0
"""Plan over lengths alone, without a dataset or a group, and compute the cost of a transformer."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import _core
from .._batching.limits import rule_of
from .._distributed.group import ranks_here
from ..errors import ArgumentError
from .cost import sample_costs, shown
from .mixture import Groups, core_mix, groups_of, shown_options, stages_of
from .numbers import INTEGERS, one_dimension, refuse_outside
from .options import names_synonyms, plan_options, plan_rank
from .plan import Plan

if TYPE_CHECKING:
    import numpy


class Lengths:
    """What a Plan needs of a dataset, when it has lengths only."""

    id = ""
    length_unit = 1

    def __init__(self, lengths: numpy.ndarray[Any, Any]) -> None:
        self.all_lengths = lengths

    def planned_lengths(self) -> tuple[Any, str]:
        return self.all_lengths, ""

    def follow_epoch(self, sampler: Any) -> None:
        """Do nothing: there is no loader whose epoch the sampler could follow."""


def _array(lengths: Any, first: int = 0) -> numpy.ndarray[Any, Any]:
    """Return integers of one dimension as uint32. first: the place of the first one, in errors. ArgumentError for anything else."""
    import numpy
    if isinstance(lengths, Iterator):
        lengths = list(lengths)
        if not all(isinstance(one, (int, numpy.integer)) or getattr(one, "shape", None) == () for one in lengths):
            parts: list[Any] = []
            for part in lengths:
                parts.append(_array([part] if isinstance(part, (int, float)) else part, first))
                first += len(parts[-1])
            return numpy.concatenate(parts)
    array = one_dimension(lengths, "lengths", INTEGERS, first)
    refuse_outside(array, (array >= 0) & (array < 0xFFFFFFFF), "lengths", "lengths are from 0 to 2^32 - 2", first)
    return numpy.ascontiguousarray(array, "uint32")


@names_synonyms
def plan(lengths: Iterable[Any], strategy: str = "bucket", *, batch_size: int | None = None,
         max_tokens: int | str | None = None, cost: str | tuple[float, float] = "padded", max_length: int | str | None = None,
         too_long: str = "error", shuffle: bool = True, seed: int = 0, tail: str = "split", batch_multiple: int = 1,
         steps: str = "constant", world: int | None = None, rank: int | None = None, capacity: int | str | None = None,
         length_multiple: int | None = None, micro_batches: int = 1, mixed: bool = False, pack_window: int = 0,
         order: str = "plan", balance: Any = None,
         mix: Mapping[Any, float] | None = None, samples: int | None = None,
         sources: Any = None, mix_unit: str = "samples", weights: Any = None,
         curriculum: Sequence[tuple[Any, Any, Any]] | None = None,
         skip: Sequence[tuple[int, int, int]] | None = None) -> Plan:
    """Plan batches from lengths alone, without a dataset or a group.

    A plan decides which samples form which batch, at which step, on which rank. Ranks need not communicate: the same lengths and options
    give the same plan on every rank, and its samplers yield this rank's batches. They work with any dataset.

    lengths: Iterable. One integer a sample, from 0 to 2^32 - 2: a numpy array, a tensor, a list, or an iterator of those or of integers.
    strategy: str. As for Dataset.plan. Default: "bucket".
    batch_size: int. As for Dataset.plan. Default: 64 if max_tokens is not given, else unlimited; 1 for "pack".
    max_tokens: int or str. As for Dataset.plan. Default: unlimited.
    cost: str or tuple. As for Dataset.plan. Default: "padded".
    max_length: int or str. As for Dataset.plan. Default: max_tokens, capacity, or unlimited.
    too_long: str. As for Dataset.plan. Default: "error".
    shuffle: bool. Draw another order in each epoch. Default: True.
    seed: int, at least 0. Seed of everything random. Default: 0.
    tail: str. As for Dataset.plan. Default: "split".
    batch_multiple: int. As for Dataset.plan. Default: 1.
    steps: str. As for Dataset.plan. Default: "constant".
    world: int, at least 1. How many ranks to plan for. Default: the job's: of an open group, torch's process group or the launcher's
        variables (WORLD_SIZE); else 1.
    rank: int, from 0 to world - 1. The rank whose batches samplers yield. Default: the job's; 0 if you give another world than the job's.
    capacity: int or str. As for Dataset.plan. Default: none.
    length_multiple: int. As for Dataset.plan. Default: 1 for "pack" or cost="tokens"; otherwise gcd(8, max_tokens).
    micro_batches: int. As for Dataset.plan. Default: 1.
    mixed: bool. As for Dataset.plan. Default: False.
    pack_window: int. As for Dataset.plan. Default: 0.
    order: str. As for Dataset.plan. Default: "plan".
    balance: dict, tuple or list of numbers. As for Dataset.plan; "length" is the only column. Default: by `cost`.
    mix: dict of name and weight. As for Dataset.plan, with the names in `sources`. Default: each sample once.
    samples: int, at least 1. As for Dataset.plan. Default: the fewest draws in which every sample of a source with a weight occurs.
    sources: array or list. The name or number of each sample's source, for a mix. Default: one source, "0".
    mix_unit: str. As for Dataset.plan. Default: "samples".
    weights: array. One number a sample. As for Dataset.plan. Default: none.
    curriculum: list of (from_step, mix, max_length). As for Dataset.plan. Default: none.
    skip: list of (epoch, first, last). As for Dataset.plan. Default: none.

    Returns a Plan, which keeps a copy of the lengths.
    Raises ArgumentError naming the option, or DataError if no plan exists.
    """
    job, number = ranks_here()
    if world is None:
        world = job
    options = plan_options(
        strategy, batch_size=batch_size, max_tokens=max_tokens, cost=cost, max_length=max_length, too_long=too_long,
        shuffle=shuffle, seed=seed, tail=tail, batch_multiple=batch_multiple, steps=steps, world=world, capacity=capacity,
        length_multiple=length_multiple, micro_batches=micro_batches, mixed=mixed,
        pack_window=pack_window, order=order, skip=skip)
    number = plan_rank((number if world == job else 0) if rank is None else rank, world)
    kept: Any = Lengths(_array(lengths))  # stands for a dataset: all that such a plan and its samplers use of one
    count = len(kept.all_lengths)
    groups = Groups(["0"], bounds=[0, count]) if sources is None else groups_of(sources, "sources")
    if sources is not None and len(groups.source_of or b"") != 2 * count:
        raise ArgumentError(f"sources: {len(groups.source_of or b'') // 2} names for {count} lengths; give one for each length")
    drawn = core_mix(groups, mix=mix, samples=samples, mix_unit=mix_unit, weights=weights, count=count, whole=count,
                     changes=bool(curriculum))
    costs = None
    if balance is not None:
        costs = sample_costs(balance, kept.all_lengths, rule_of(options), lambda name: None)
    core = _core.Plan(kept.all_lengths, mix=drawn, balance=costs, **options)
    made = Plan(kept, core, number, {**options, **shown_options(mix, samples, None, mix_unit, weights), **shown(balance)})
    made.follow(stages_of(curriculum or (), groups.names))
    return made


def transformer_cost(hidden: int, layers: int = 1, *, feed_forward: int | None = None, key_value: int | None = None,
                     vocabulary: int = 0, gated: bool = False, causal: bool = True) -> tuple[float, float]:
    """Return the cost (a, b) of a transformer for one sample: a L + b L^2 floating-point operations for L tokens.

    It counts a forward pass as in Narayanan et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM"
    (2021), appendix: two operations for each multiplication with a weight, plus those of attention scores and of their weighted sum. A
    backward pass doubles both terms, so the ratio also holds for training.

    hidden: int, at least 1. Width of the model.
    layers: int, at least 1. Matters only beside vocabulary. Default: 1.
    feed_forward: int, at least 1. Inner width of the feed-forward part. Default: 4 x hidden.
    key_value: int, at least 1. Width of keys and of values (grouped heads). Default: hidden.
    vocabulary: int, at least 0. Rows of the output layer; 0 leaves it out. Default: 0.
    gated: bool. The feed-forward part has three matrices (SwiGLU), not two. Default: False.
    causal: bool. A token attends only to those before it, which halves attention. Default: True.

    Returns (a, b), two floats.
    Raises ArgumentError if a width is too small.
    """
    widths = {"hidden": hidden, "layers": layers, "feed_forward": 4 * hidden if feed_forward is None else feed_forward,
              "key_value": hidden if key_value is None else key_value}
    for name, number in widths.items():
        if number < 1:
            raise ArgumentError(f"{name}: {number}; it must be at least 1")
    if vocabulary < 0:
        raise ArgumentError(f"vocabulary: {vocabulary}; it must be at least 0")
    weights = 2 * hidden * (hidden + widths["key_value"]) + (3 if gated else 2) * hidden * widths["feed_forward"]
    return 2.0 * (layers * weights + vocabulary * hidden), (2.0 if causal else 4.0) * layers * hidden
