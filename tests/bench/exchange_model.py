# SPDX-License-Identifier: Apache-2.0
"""A model of the index exchange: expected time and memory on 256 and 1,024 ranks, fitted to what exchange.py measured.

    python3 tests/bench/exchange_model.py [MEASURED.json]

prints the section "The index exchange: a model" of docs/exchange.md (tests/model.py compares them). MEASURED.json is what exchange.py
wrote; exchange_measured.json beside this file is the run that the page describes. Nothing here was measured on more than one machine, nor
any of nccl on a GPU: its part is arithmetic over NCCL's own constants.
"""
from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MIB, GIB = 2**20, 2**30

# The datasets and the jobs that are asked about: of 1,024 ranks the largest dataset that there is, 2^32 - 1 samples at most.
RANKS = (256, 1024)
SAMPLES_A_RANK = 4 * MIB - 1
assert SAMPLES_A_RANK * max(RANKS) < 2**32
ENTRY = 12 + 24 / 65536  # a length, a key hash, and a piece's head of 24 bytes for 65,536 samples
RANKS_A_NODE = 8

# The exchange: src/exchange/.
CHUNK, HEAD, LANES = 4 * MIB, 32, 4
SLOT, SLOTS, CHANNELS = 16 * MIB, 2, 2

# What is assumed of the machines. What was measured comes from MEASURED.json alone.
ROUND_TRIP = 50e-6  # seconds from asking for a chunk until its first byte
RAIL = 12.5e9       # bytes a second of a network interface, 100 Gb/s
PULL_RAILS, NCCL_RAIL = 1, 45e9  # pull and mpi: one interface a node; nccl: a 400 Gb/s one for each GPU
COPY = 52e9         # bytes a second between GPU and pinned memory

# NCCL's own estimate of a ring with its Simple protocol, in seconds: to begin, and for each hop.
RING_BEGIN, RING_HOP, RING_NET_HOP = 8.4e-6, 3.4e-6, 14e-6
CHANNEL = 20 * MIB    # GPU memory of a channel whose ring goes through the network: 10 to send and 10 to receive
DEVICE_PEER = 608     # bytes of GPU memory for each rank and channel


@dataclass(frozen=True)
class Line:
    """y = fixed + slope * bytes."""

    fixed: float
    slope: float

    def at(self, count: float) -> float:
        return self.fixed + self.slope * count


def through(points: list[tuple[float, float]]) -> Line:
    """The line through the first and the last point."""
    (x0, y0), (x1, y1) = points[0], points[-1]
    slope = (y1 - y0) / (x1 - x0)
    return Line(y0 - slope * x0, slope)


def points_of(measured: dict[str, Any], way: str, figure: str) -> list[tuple[float, float]]:
    """(bytes that all ranks received, the figure) by number of samples, ascending. Seconds are those of the fastest round: the
    machine does other things beside."""
    rows = sorted((int(samples), ways[way]) for samples, ways in measured["samples"].items())
    return [(one["bytes"], min(one["seconds_all"]) if figure == "seconds" else one[figure]) for _, one in rows]


@dataclass(frozen=True)
class Job:
    """Ranks on nodes of RANKS_A_NODE, each with as much of the index."""

    ranks: int

    @property
    def nodes(self) -> int:
        return self.ranks // RANKS_A_NODE

    @property
    def index(self) -> float:
        return self.ranks * SAMPLES_A_RANK * 12.0

    @property
    def stream(self) -> float:
        """What a rank sends to each other node."""
        return SAMPLES_A_RANK * ENTRY

    @property
    def received(self) -> float:
        """By each node."""
        return (self.ranks - RANKS_A_NODE) * self.stream


@dataclass(frozen=True)
class Expected:
    """Seconds, what they are bound by, and memory of the rank that has most, beside the node's index."""

    seconds: float
    bound: str
    host: float
    pinned: float = 0
    gpu: float = 0


def by_messages(job: Job, fixed: float, processor: float) -> Expected:
    """pull and mpi: each rank of a node takes an even part of what the node receives, and sends its own stream once to each
    other node. `processor`: seconds a byte, of both ends together, taken to be half and half; a rank does both, one after the
    other."""
    sent, received = job.stream * (job.nodes - 1), job.received / RANKS_A_NODE
    parts = {"each rank's processor": (received + sent) * processor / 2, "the network": job.received / (PULL_RAILS * RAIL)}
    bound = max(parts, key=lambda name: parts[name])
    asking = math.ceil(received / CHUNK) / LANES * ROUND_TRIP
    return Expected(fixed + parts[bound] + asking, bound, staging(job.ranks // RANKS_A_NODE, job.nodes - 1))


def staging(senders: int, receivers: int) -> float:
    """Of a rank that receives from so many and sends to so many, with streams of a chunk and more."""
    return (min(senders, LANES) + min(receivers, LANES)) * (CHUNK + HEAD)


def ring(ranks: int, ranks_a_node: int = 1) -> float:
    """Seconds of an all-gather of hardly any bytes: a hop to each other rank, of which one a node goes through the network."""
    nodes = ranks // ranks_a_node
    return RING_BEGIN + (ranks - nodes) * RING_HOP + (nodes - 1) * RING_NET_HOP


def slots_and_bytes(job: Job, slot: float, rail: float) -> float:
    """Seconds in which each of RANKS_A_NODE rails carries its part of the whole index through slots of this size."""
    part = job.ranks * job.stream / RANKS_A_NODE
    return math.ceil(part / slot) * ring(job.nodes) + part / rail


def by_nccl(job: Job, fixed: float, processor: float) -> Expected:
    """As many rails as a node has ranks. What is done beside the network overlaps with it: copies out of the GPU, and each
    carrier's processor, taken to cost as much a byte as the receiving half of mpi (which also moves the bytes)."""
    part = job.ranks * job.stream / RANKS_A_NODE
    parts = {"the rings' latency and the network": slots_and_bytes(job, SLOT, NCCL_RAIL), "copies from the GPU": part / COPY,
             "the carriers' processors": part * processor / 2}
    bound = max(parts, key=lambda name: parts[name])
    chunk = SLOT / job.nodes
    return Expected(fixed + parts[bound], bound, 0, SLOTS * (SLOT + chunk),
                    SLOTS * SLOT + CHANNELS * CHANNEL + CHANNELS * DEVICE_PEER * job.nodes)


# ---- the section ---------------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:.0f}"


def check_table(measured: dict[str, Any]) -> list[str]:
    """The fit, and the size between its ends that it was not fitted to."""
    lines = ["| 4 ranks here | processor, both ends | seconds: fixed + a received GB | 3 M samples: modelled | measured | "
             "staging: modelled | measured |", "|---|---:|---:|---:|---:|---:|---:|"]
    for way in ("mpi", "pull"):
        wall, work = points_of(measured, way, "seconds"), points_of(measured, way, "processor")
        line = through(wall)
        biggest = measured["samples"][max(measured["samples"], key=int)][way]
        modelled = line.at(wall[1][0])
        lines.append(f"| {way} | {through(work).slope * 1e9:.2f} ns a byte | {line.fixed:.2f} + {line.slope * 1e9:.2f} | "
                     f"{modelled:.2f} s | {wall[1][1]:.2f} s | {staging(3, 3) / MIB:.0f} MiB | "
                     f"{biggest['staging'] / MIB:.0f} MiB |")
    return lines


def scale_table(measured: dict[str, Any]) -> list[str]:
    lines = ["| model of | ranks | nodes | index a node | seconds | bound by | host memory of a rank beside the index | pinned | "
             "GPU |", "|---|---:|---:|---:|---:|---|---:|---:|---:|"]
    for ranks in RANKS:
        job = Job(ranks)
        for way in ("pull", "mpi", "nccl"):
            base = "mpi" if way == "nccl" else way
            fixed = max(0.0, through(points_of(measured, base, "seconds")).fixed)
            work = through(points_of(measured, base, "processor")).slope
            one = (by_nccl if way == "nccl" else by_messages)(job, fixed, work)
            cells = [f"{part / MIB:.0f} MiB" if part else "" for part in (one.host, one.pinned, one.gpu)]
            lines.append(f"| {way} | {ranks:,} | {job.nodes} | {job.index / GIB:.0f} GiB | {number(one.seconds)} | {one.bound} | "
                         f"{' | '.join(cells)} |")
    return lines


def parameters(measured: dict[str, Any]) -> list[str]:
    """What the model takes from the run, what follows from the code, and what nobody measured."""
    facts = []
    for way in ("pull", "mpi"):
        work, wall = through(points_of(measured, way, "processor")), through(points_of(measured, way, "seconds"))
        facts.append(f"{way} takes {work.slope * 1e9:.2f} ns of processor a byte, both ends together, and {wall.fixed:.2f} s for an "
                     "index of none")
    return [
        f"Measured, by the run above: {'; '.join(facts)}.", "",
        f"From the code: 12 bytes travel for a sample and 24 for 65,536 of them, in chunks of {CHUNK // MIB} MiB, of which a rank "
        f"receives {LANES} at a time and sends {LANES}. Hence the memory.", "",
        "Assumed:", "",
        f"- pull and mpi: one interface of {PULL_RAILS * RAIL / 1e9:.1f} GB/s a node; {ROUND_TRIP * 1e6:.0f} us to ask for a chunk; half "
        "of the processor's time a byte is the sender's, half the receiver's. A rank receives its part and sends its own stream, one after "
        "the other, on a core of its own that is as fast as here.",
        f"- nccl: a rail of {NCCL_RAIL / 1e9:.0f} GB/s for each of a node's {RANKS_A_NODE} GPUs, {SLOTS} slots of {SLOT // MIB} MiB; rings "
        f"of one GPU a node take {RING_BEGIN * 1e6:.1f} us and {RING_NET_HOP * 1e6:.0f} us a hop; {COPY / 1e9:.0f} GB/s out of a GPU; "
        f"{CHANNELS} channels of {CHANNEL // MIB} MiB and {DEVICE_PEER} bytes a rank; a carrier's processor costs what mpi's receiver "
        "does. None of it was measured on a GPU.",
        "- Ranks come at once, and nobody else uses the network."]


def section(measured: dict[str, Any]) -> str:
    """Markdown."""
    return "\n".join([
        *check_table(measured), "",
        f"The line is laid through 1 M and 10 M samples, so 3 M tests it, as well as one machine can. For more ranks, each with "
        f"{SAMPLES_A_RANK / 1e6:.1f} M samples, {RANKS_A_NODE} a node:", "", *scale_table(measured), "", *parameters(measured)]) + "\n"


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "exchange_measured.json"
    print(section(json.loads(path.read_text(encoding="utf-8"))), end="")


if __name__ == "__main__":
    main()
