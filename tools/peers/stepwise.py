# SPDX-License-Identifier: Apache-2.0
"""Planners that see one global batch at a time, beside a plan of the whole epoch: documents arrive in shuffled order, each step takes as
many as its bins hold, and what does not fit waits. Rules after the ideas of papers; thresholds and
further details are ours:

- greedy: longest first, each document to the bin with the fewest tokens.
- WLB-LLM (arXiv 2503.17924): longest first, to the bin of the least cost if it fits there, else to that with the fewest
  tokens, else it waits; documents above a threshold wait in queues until there is one for each bin.
- sorted chunks: FlexSP (arXiv 2412.01523) cuts a sorted batch into micro-batches of like length, and ByteScale (arXiv
  2502.21231) runs documents of like length at the same time. Both then give a long document to several ranks, which is
  no matter of packing: here a document is one rank's, and the ranks of a micro-batch are evened out by cost.

In each of them the bins of a step are dealt to the ranks by cost."""
from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import numpy
from workload import Array

QUADRATIC = 1 / 49_152  # the cost of a sample is L + L^2 / 49,152, as of attention
LEVELS = (4, 2)  # WLB-LLM's queues: for documents above capacity / 4, and above capacity / 2


def cost_of(length: int) -> float:
    return length + length * length * QUADRATIC


class Least:
    """Numbers of bins by a value that only grows: the one with the least."""

    def __init__(self, count: int) -> None:
        self.values, self.heap = [0.0] * count, [(0.0, bin) for bin in range(count)]

    def find(self) -> int:
        while self.heap[0][0] != self.values[self.heap[0][1]]:
            heapq.heappop(self.heap)
        return self.heap[0][1]

    def add(self, bin: int, value: float) -> None:
        self.values[bin] += value
        heapq.heappush(self.heap, (self.values[bin], bin))


class Bins:
    """Bins of one capacity, which documents come into by a rule."""

    def __init__(self, count: int, capacity: int) -> None:
        self.capacity, self.tokens, self.cost = capacity, Least(count), Least(count)
        self.ids: list[list[int]] = [[] for _ in range(count)]

    def put(self, document: int, length: int, by_cost: bool) -> bool:
        """False if it fits nowhere."""
        for chosen in (self.cost.find(), self.tokens.find()) if by_cost else (self.tokens.find(),):
            if self.tokens.values[chosen] + length <= self.capacity:
                self.ids[chosen].append(document)
                self.tokens.add(chosen, length)
                self.cost.add(chosen, cost_of(length))
                return True
        return False


Step = tuple[list[list[int]], list[int]]
"""(ids of each bin, documents that wait)."""


class Greedy:
    """`lengths` of all documents; `step` is given those at hand."""

    by_cost = False

    def __init__(self, lengths: list[int], capacity: int, ranks: int, micro: int) -> None:
        self.lengths, self.capacity, self.ranks, self.micro = lengths, capacity, ranks, micro

    def longest_first(self, documents: Iterable[int]) -> list[int]:
        return sorted(documents, key=lambda one: -self.lengths[one])

    def pack(self, documents: Iterable[int], bins: Bins) -> list[int]:
        """Returns those that fit nowhere."""
        return [one for one in documents if not bins.put(one, self.lengths[one], self.by_cost)]

    def step(self, documents: list[int]) -> Step:
        bins = Bins(self.ranks * self.micro, self.capacity)
        waiting = self.pack(self.longest_first(documents), bins)
        return bins.ids, waiting

    def holds(self, document: int) -> bool:
        """True if it keeps an arriving document back."""
        return False

    def release(self, last: bool) -> list[int]:
        """Returns documents that it kept back, for the next step."""
        return []

    def held(self) -> int:
        return 0


class WlbLlm(Greedy):
    by_cost = True

    def __init__(self, lengths: list[int], capacity: int, ranks: int, micro: int) -> None:
        super().__init__(lengths, capacity, ranks, micro)
        self.queues: list[deque[int]] = [deque() for _ in LEVELS]

    def holds(self, document: int) -> bool:
        above = sum(self.lengths[document] > self.capacity // part for part in LEVELS)
        if above > 0:
            self.queues[above - 1].append(document)
        return above > 0

    def release(self, last: bool) -> list[int]:
        bins = self.ranks * self.micro
        full = [queue for queue in self.queues if len(queue) >= bins or last]
        return [queue.popleft() for queue in full for _ in range(min(len(queue), bins))]

    def held(self) -> int:
        return sum(map(len, self.queues))


class SortedChunks(Greedy):
    by_cost = True

    def step(self, documents: list[int]) -> Step:
        ordered = self.longest_first(documents)
        share = sum(self.lengths[one] for one in ordered) / self.micro
        made: list[list[int]] = []
        waiting: list[int] = []
        at, tokens = 0, 0
        for chunk in range(self.micro):
            begin = at
            while at < len(ordered) and (chunk + 1 == self.micro or tokens < share * (chunk + 1)):
                tokens += self.lengths[ordered[at]]
                at += 1
            bins = Bins(self.ranks, self.capacity)
            waiting = self.pack(self.longest_first(waiting + ordered[begin:at]), bins)
            made += bins.ids
        return made, waiting


def deal(bins: list[list[int]], lengths: list[int], ranks: int, micro: int) -> list[list[int]]:
    """The bins in the order [micro-batch, rank]: dearest first, each to the rank of the least cost that lacks one."""
    found: list[list[list[int]]] = [[] for _ in range(ranks)]
    open_ranks = [(0.0, rank) for rank in range(ranks)]
    for cost, ids in sorted(((sum(cost_of(lengths[one]) for one in each), each) for each in bins), key=lambda both: -both[0]):
        before, rank = heapq.heappop(open_ranks)
        found[rank].append(ids)
        if len(found[rank]) < micro:
            heapq.heappush(open_ranks, (before + cost, rank))
    return [each[number] for number in range(micro) for each in found if number < len(each)]


def plan_by(rule: Callable[..., Greedy], lengths: Array, capacity: int, ranks: int, micro: int) -> tuple[Array, Array, dict[str, Any]]:
    """(bounds of bins, ids, figures of what waited) of an epoch, in its order: first step, its first micro-batch, its first rank."""
    each: list[int] = lengths.tolist()
    arriving = deque(numpy.random.default_rng(11).permutation(len(each)).tolist())
    planner, order, hand, room = rule(each, capacity, ranks, micro), [], [], capacity * ranks * micro
    arrived: dict[int, int] = {}
    waited, longest, step = 0, 0, 0
    while arriving or hand or planner.held():
        hand += planner.release(not arriving)
        tokens = sum(each[one] for one in hand)
        while arriving and tokens < room:
            one = arriving.popleft()
            arrived[one] = step
            if not planner.holds(one):
                hand.append(one)
                tokens += each[one]
        bins, hand = planner.step(hand)
        for ids in bins:
            for one in ids:
                wait = step - arrived.pop(one)
                waited += each[one] * (wait > 0)
                longest = max(longest, wait)
        order += deal(bins, each, ranks, micro)
        step += 1
    bounds = numpy.cumsum([0, *map(len, order)])
    made = numpy.fromiter((one for ids in order for one in ids), numpy.uint32, len(each))
    return bounds, made, {"tokens that waited": waited / sum(each), "longest wait, steps": longest}
