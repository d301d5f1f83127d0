# SPDX-License-Identifier: Apache-2.0
"""Packing all samples of an epoch into bins of one capacity, and the bins into steps of all ranks: lengths in, the ids of each bin
out. Rankstore evens out the cost of the ranks of a step; bins of the others go to ranks in turn, as their packers give them."""
from __future__ import annotations

import bisect
import dataclasses
import functools
import re
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
from stepwise import QUADRATIC, Greedy, SortedChunks, WlbLlm, plan_by
from workload import Array, Place

C_PROGRAM = Path("build/release/tests/bench/bench_pack")
HISTOGRAM = "histogram.txt"  # in the run's data folder: how many samples have length 1, 2, ...


@dataclass(frozen=True)
class Case:
    """`micro`: batches of a rank in an optimizer step; a batch is a bin. `mixed`: bins of any cost make a step, not those of like cost."""

    shape: str
    count: int
    capacity: int
    ranks: int = 1
    micro: int = 1
    mixed: bool = False


CASES = {"gamma": Case("gamma", 100_000, 2_048, 8), "uniform": Case("uniform", 10_000, 512), "chat": Case("chat", 20_000, 8_192, 8),
         "long": Case("long", 20_000, 131_072, 16), "mixed": Case("long", 1_000_000, 131_072, 16, 8, mixed=True),
         "large": Case("chat", 10_000_000, 8_192, 8), "histogram": Case("histogram", 0, 512, 8),
         "papers-32k": Case("lmsys", 1_000_000, 32_768, 8, 4), "papers-32k-256": Case("lmsys", 1_000_000, 32_768, 256, 4),
         "papers-128k": Case("lmsys", 1_000_000, 131_072, 64, 4), "papers-256k": Case("lmsys", 1_000_000, 262_144, 8, 4),
         "papers-256k-256": Case("lmsys", 2_000_000, 262_144, 256, 2)}
QUICK = 4_000
DRAWN_IN_C = {"chat": "A", "long": "C"}

Made = tuple[Array, Array]
"""(bounds of bins, sample ids)."""


def drawn(case: Case, place: Place) -> Array:
    """uint32[count]. Those of chat and of long documents are bench_pack's, which says what they are."""
    random, count = numpy.random.default_rng(7), min(case.count, QUICK) if place.quick else case.count
    if case.shape == "gamma":
        values = random.gamma(5, 20, count)
    elif case.shape == "uniform":
        values = random.integers(1, 513, count)
    elif case.shape == "lmsys":  # 99 % below 4,096 as of LMSys-Chat-1M, the longest 300,000
        tail = random.random(count) < 0.005
        values = numpy.where(tail, numpy.exp(random.uniform(numpy.log(4_096), numpy.log(300_000), count)),
                             random.lognormal(numpy.log(300), 1, count))
    elif case.shape in DRAWN_IN_C:
        path = place.folder / "drawn.bin"
        subprocess.run([str(C_PROGRAM), "--draw", str(path), DRAWN_IN_C[case.shape], str(count), str(case.capacity)], check=True)
        return numpy.fromfile(path, numpy.uint32)
    else:
        counts = [int(number) for number in re.findall(r"\d+", (place.folder / HISTOGRAM).read_text())]
        values = random.permutation(numpy.repeat(numpy.arange(1, len(counts) + 1, dtype=numpy.uint32), counts))
        values = values[:QUICK] if place.quick else values
    return numpy.clip(values, 1, case.capacity).astype(numpy.uint32)


class Loop:
    """Best-fit decreasing in Python over numpy's sort: bins by room in a sorted list."""

    def __init__(self, lengths: Array, case: Case, place: Place) -> None:
        self.lengths, self.capacity = lengths, case.capacity

    def pack(self) -> Made:
        order = numpy.argsort(self.lengths, kind="stable")[::-1]
        rooms: list[tuple[int, int]] = []  # what is left, and of which bin
        bins: list[list[int]] = []
        for number, length in zip(order.tolist(), self.lengths[order].tolist()):
            at = bisect.bisect_left(rooms, (length, 0))
            room, chosen = rooms.pop(at) if at < len(rooms) else (self.capacity, len(bins))
            if chosen == len(bins):
                bins.append([])
            bins[chosen].append(number)
            bisect.insort(rooms, (room - length, chosen))
        bounds = numpy.cumsum([0, *map(len, bins)])
        return bounds, numpy.fromiter((one for each in bins for one in each), numpy.uint32, len(order))


class Trl:
    """trl.pack_dataset, best-fit decreasing. It packs contents, not ids, so a sample is its id, repeated."""

    def __init__(self, lengths: Array, case: Case, place: Place) -> None:
        import datasets
        import pyarrow
        datasets.disable_progress_bars()
        datasets.disable_caching()
        offsets = numpy.concatenate([numpy.zeros(1, numpy.int64), numpy.cumsum(lengths, dtype=numpy.int64)])
        ids = numpy.repeat(numpy.arange(len(lengths), dtype=numpy.int32), lengths)
        column = pyarrow.LargeListArray.from_arrays(pyarrow.array(offsets), pyarrow.array(ids))
        self.dataset = datasets.Dataset(pyarrow.table({"input_ids": column}))
        self.capacity, self.count = case.capacity, len(lengths)

    def pack(self) -> Made:
        import trl
        packed = trl.pack_dataset(self.dataset, self.capacity, "bfd", {"batch_size": self.count})
        rows = packed.data.column("input_ids").combine_chunks()
        items, ends = rows.values.to_numpy(), rows.offsets.to_numpy()
        sizes = [len(each) for each in packed.data.column("seq_lengths").to_pylist()]
        starts = numpy.concatenate([numpy.zeros(1, numpy.int64), numpy.cumsum(
            [one for each in packed.data.column("seq_lengths").to_pylist() for one in each])])[:-1]
        assert len(items) == ends[-1] - ends[0]
        return numpy.cumsum([0, *sizes]), items[starts].astype(numpy.uint32)


class Seqpacker:
    """seqpacker.Packer, the arrays that it calls fastest."""

    strategy = "bfd"

    def __init__(self, lengths: Array, case: Case, place: Place) -> None:
        import seqpacker
        self.lengths, self.packer = lengths.astype(numpy.int64), seqpacker.Packer(case.capacity, self.strategy)

    def pack(self) -> Made:
        ids, inner = self.packer.pack_flat(self.lengths)
        return numpy.concatenate([[0], inner, [len(ids)]]), ids


class Optimized(Seqpacker):
    """Its default: first the bins, then the counts of each length."""

    strategy = "obfd"


class Stepwise:
    """A rule of stepwise.py, over an epoch."""

    def __init__(self, rule: type[Greedy], lengths: Array, case: Case, place: Place) -> None:
        self.rule, self.lengths, self.case = rule, lengths, case
        self.waits: dict[str, Any] = {}

    def pack(self) -> Made:
        bounds, ids, self.waits = plan_by(self.rule, self.lengths, self.case.capacity, self.case.ranks, self.case.micro)
        return bounds, ids


class Ours:
    """Strategy pack, and the bins of all ranks as arrays, in the order of an epoch: first step, its first rank."""

    def __init__(self, lengths: Array, case: Case, place: Place) -> None:
        self.lengths, self.case = lengths, case

    def plan(self) -> Any:
        from rankstore import _core
        case = self.case
        return _core.Plan(self.lengths, strategy="pack", capacity=case.capacity, world=case.ranks, micro_batches=case.micro,
                          mixed=case.mixed, cost="polynomial", cost_linear=1.0, cost_quadratic=QUADRATIC)

    def pack(self) -> Made:
        return self.arrays(self.plan(), 0)

    def arrays(self, plan: Any, epoch: int) -> Made:
        bounds, ids = plan.batches(epoch, -1)
        return numpy.frombuffer(bounds, numpy.int64), numpy.frombuffer(ids, numpy.uint32)


class Mixed(Ours):
    """With bins of any cost in a step."""

    def __init__(self, lengths: Array, case: Case, place: Place) -> None:
        super().__init__(lengths, dataclasses.replace(case, mixed=True), place)


class First(Ours):
    """A plan with its first epoch."""

    def timed(self) -> float:
        begun = time.perf_counter()
        self.plan().batch(0, 0, 0)
        return time.perf_counter() - begun


class Later(Ours):
    """Another epoch of a plan, shuffled anew."""

    def __init__(self, lengths: Array, case: Case, place: Place) -> None:
        super().__init__(lengths, case, place)
        self.kept, self.epoch = self.plan(), 0

    def pack(self) -> Made:
        return self.arrays(self.kept, 0)

    def timed(self) -> float:
        self.epoch += 1
        begun = time.perf_counter()
        self.kept.batch(self.epoch, 0, 0)
        return time.perf_counter() - begun


class InC:
    """The plain best-fit decreasing over a histogram of bench_pack.c: ids dealt into bins, no shuffle, no ranks."""

    def __init__(self, lengths: Array, case: Case, place: Place) -> None:
        path = place.folder / f"lengths-{case.shape}-{len(lengths)}.bin"
        lengths.tofile(path)
        self.program = subprocess.Popen([str(C_PROGRAM), "--plain", str(path), str(case.capacity)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.case, self.tokens = case, int(lengths.sum(dtype=numpy.int64))

    def turn(self) -> tuple[float, int]:
        """(seconds, bins)."""
        assert self.program.stdin is not None and self.program.stdout is not None
        self.program.stdin.write("\n")
        self.program.stdin.flush()
        seconds, bins = self.program.stdout.readline().split()
        return float(seconds), int(bins)

    def timed(self) -> float:
        return self.turn()[0]

    def figures(self) -> dict[str, Any]:
        bins = self.turn()[1]
        return {"bins": bins, "fill": self.tokens / bins / self.case.capacity}


PACKERS: dict[str, Any] = {
    "numpy + loop": Loop, "TRL": Trl, "seqpacker": Seqpacker, "seqpacker, obfd": Optimized, "Rankstore": Ours, "Rankstore, mixed": Mixed,
    "Rankstore, first plan": First, "Rankstore, later epoch": Later, "histogram in C": InC,
    "greedy a step": functools.partial(Stepwise, Greedy), "WLB-LLM's rule": functools.partial(Stepwise, WlbLlm),
    "sorted chunks": functools.partial(Stepwise, SortedChunks)}


def sums(values: Array, bounds: Array) -> Array:
    """Of each bin, which may be empty."""
    return numpy.diff(numpy.concatenate([[0], numpy.cumsum(values)])[bounds])


def figures(name: str, case: Case, lengths: Array, made: Made) -> dict[str, Any]:
    """Steps, bins, how full they are, and how even the ranks. ValueError if a sample or a bin is wrong."""
    bounds, ids = made
    if (numpy.bincount(ids, minlength=len(lengths)) != 1).any():
        raise ValueError(f"{name}: a sample is not in exactly one bin")
    each = lengths[ids].astype(numpy.int64)
    tokens = sums(each, bounds)
    if tokens.max() > case.capacity:
        raise ValueError(f"{name}: a bin of {tokens.max()} tokens, {case.capacity} are allowed")
    found: dict[str, Any] = {"bins": len(tokens), "fill": float(tokens.sum() / len(tokens) / case.capacity)}
    if case.ranks == 1:
        return found
    a_step = case.ranks * case.micro
    steps = -(-len(tokens) // a_step)

    def of_steps(values: Array) -> Array:
        """[steps, batches of a rank, ranks]; 0 where there is no bin."""
        return numpy.concatenate([values, numpy.zeros(steps * a_step - len(tokens))]).reshape(steps, case.micro, case.ranks)

    whole = of_steps(tokens).sum((1, 2))
    bins = of_steps(numpy.ones(len(tokens))).sum((1, 2))
    least = int(whole.argmin())
    cost = of_steps(sums(each + each * each * QUADRATIC, bounds)).sum(1)
    found["steps"] = steps
    if steps > 1:
        found["fill but for the emptiest step"] = float((whole.sum() - whole[least]) / (bins.sum() - bins[least]) / case.capacity)
    found["balance of cost"] = float((cost.mean(1) / cost.max(1)).mean())
    return found


class Packing:
    """A pack of all lengths; work is 1."""

    def __init__(self, place: Place, name: str, which: str) -> None:
        case = CASES[which]
        lengths = drawn(case, place)
        self.packer = PACKERS[name](lengths, case, place)
        self.notes: dict[str, Any] = self.packer.figures() if name == "histogram in C" else figures(name, case, lengths, self.packer.pack())
        self.notes.update(getattr(self.packer, "waits", {}))

    def round(self) -> tuple[float, float]:
        if hasattr(self.packer, "timed"):
            return self.packer.timed(), 1
        begun = time.perf_counter()
        made = self.packer.pack()
        seconds = time.perf_counter() - begun
        del made
        return seconds, 1


class Resuming:
    """What is left of an epoch in the middle, on 12 ranks in place of 8, beside a plan of what is left alone. Samples above the
    capacity come in pieces. Work is 1."""

    def __init__(self, place: Place, name: str) -> None:
        self.lengths = drawn(CASES["long"], place)
        self.options: dict[str, Any] = {"capacity": 8_192, "too_long": "split"}
        self.rest, self.state = self._left()
        self.alone = name == "Rankstore, the rest alone"
        plan = self.plan()
        self.notes: dict[str, Any] = {"steps": plan.steps_of(0), "pieces": len(self.rest)}
        if not self.alone:
            found = sorted(part for step in range(plan.steps_of(0)) for rank in plan.samples(0, step, pieces=True) for part in rank)
            if found != self.rest:
                raise ValueError(f"{name}: pieces that were left do not come exactly once")

    def _left(self) -> tuple[list[Any], Any]:
        """(id, start, count) of what is left, and the state."""
        import rankstore
        plan = rankstore.plan(self.lengths, "pack", world=8, **self.options)
        steps = plan.steps_of(0)
        return (sorted(part for step in range(steps // 2, steps) for rank in plan.samples(0, step, pieces=True) for part in rank),
                plan.state(0, steps // 2))

    def plan(self) -> Any:
        import rankstore
        if self.alone:
            return rankstore.plan(numpy.array([count for _, _, count in self.rest]), "pack", world=12, capacity=self.options["capacity"])
        made = rankstore.plan(self.lengths, "pack", world=12, **self.options)
        made.resume(self.state)
        made.steps_of(0)
        return made

    def round(self) -> tuple[float, float]:
        begun = time.perf_counter()
        self.plan()
        return time.perf_counter() - begun, 1
