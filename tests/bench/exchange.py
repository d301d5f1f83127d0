# SPDX-License-Identifier: Apache-2.0
"""How an index reaches four ranks, by each way that there is: seconds, bytes and peak host memory. Run by hand.

    python3 tests/bench/exchange.py [--samples 1000000,3000000,10000000] [--rounds 3] [-o FOLDER]

needs mpirun, torch, numpy and the built package (`python3 tests/python.py "" python_bindings/tests/test_memory.py` leaves it in
build/python/site). It prints a table and writes exchange.md and exchange.json.

The index: a length and a key hash of each sample, 12 bytes, 55, 30, 10 and 5 % of them on the ranks. Every rank is a node of its own
(RKS_NODE), so all of it travels, over this machine's loopback. Each way is a job of its own, so that no way finds the memory that
another one left; its first round makes connections and is told apart. What a way is timed for:

    all_gather_object          of a list of (key hash, length), made before
    all_gather_object, arrays  of two numpy arrays: nothing but bytes is pickled
    tensors                    all_gather of lengths and of hashes, padded to the largest rank's
    mpi, pull, nccl            rankstore.open() from the directory on: the shard's part is read, the rest exchanged, checked and
                               in place in the shared index, the store ready to fetch

`bytes` are those that all ranks received: by the sizes for torch's (padding included), by `exchange_bytes` for Rankstore's. `memory`
is anonymous and shared memory above what the rank had before, of the rank that took most (polled from /proc while the way ran):
the index in it is one copy, 12 bytes a sample, for ranks that share a node share it. `beside the index` is what Rankstore's ways took
beyond that copy. `processor` is the time of all ranks' threads together, with the check of what arrived.
"""
from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RANKS = 4
PARTS = (0.55, 0.30, 0.10, 0.05)
OBJECTS = "all_gather_object"
WAYS = (OBJECTS, "all_gather_object, arrays", "tensors", "mpi", "pull", "nccl")
OURS = ("mpi", "pull", "nccl")
LIMIT_S = 600
COLUMN, UNIT = "length", 65536


def counts_of(samples: int) -> list[int]:
    """How many samples each rank has."""
    bounds = [round(samples * sum(PARTS[:rank])) for rank in range(RANKS)] + [samples]
    return [end - begin for begin, end in zip(bounds, bounds[1:])]


# ---- one of the ranks ----------------------------------------------------------------------------------------------------


def memory_now() -> int:
    """Bytes of this process that are no pages of files."""
    with open("/proc/self/status", encoding="ascii") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith(("RssAnon:", "RssShmem:")))


def processor_time() -> float:
    """Seconds, of all threads of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Watch:
    """The most that memory_now() rose by while this is open."""

    def __enter__(self) -> Watch:
        self.before, self.peak, self._ended = memory_now(), 0, threading.Event()
        self._thread = threading.Thread(target=self._poll, daemon=True)
        self._thread.start()
        return self

    def _poll(self) -> None:
        while not self._ended.wait(0.005):
            self.peak = max(self.peak, memory_now() - self.before)

    def __exit__(self, *unused: object) -> None:
        self._ended.set()
        self._thread.join()
        self.peak = max(self.peak, memory_now() - self.before)


class Rank:
    """This rank's part of the index, and the ways."""

    def __init__(self, folder: Path, samples: int) -> None:
        import numpy
        self.rank, self.samples, self.folder = int(os.environ["RANK"]), samples, folder / "{rank}"
        self.count = counts_of(samples)[self.rank]
        random = numpy.random.default_rng(100 + self.rank)
        self.lengths = numpy.clip(random.lognormal(numpy.log(300), 1.0, self.count), 8, 8192).astype(numpy.int32)
        self.hashes = random.integers(-2**63, 2**63 - 1, self.count)

    def build(self) -> None:
        """COLLECTIVE. Rankstore's dataset: one number a sample, which is its length."""
        import numpy

        import rankstore
        column = self.lengths.astype(numpy.uint32)
        items = [rankstore.Columns({COLUMN: column[i:i + UNIT]}) for i in range(0, self.count, UNIT)]
        rankstore.build(items, self.folder, length=COLUMN, replace=True, progress=False).close()

    def way(self, name: str) -> Callable[[], tuple[int, dict[str, Any]]]:
        """The call that is timed: the sum of all lengths, and what else it knows."""
        if name in OURS:
            return lambda: self._rankstore(name)
        if name == "tensors":
            return self._tensors
        if name == OBJECTS:
            entries = list(zip(self.hashes.tolist(), self.lengths.tolist()))
            return lambda: self._objects(entries, lambda part: sum(length for _, length in part))
        return lambda: self._objects((self.hashes, self.lengths), lambda part: int(part[1].sum()))

    def _objects(self, mine: Any, total: Callable[[Any], int]) -> tuple[int, dict[str, Any]]:
        import pickle

        import torch.distributed
        self.found: Any = [None] * RANKS
        begun = time.perf_counter()
        torch.distributed.all_gather_object(self.found, mine)
        seconds = time.perf_counter() - begun
        return sum(map(total, self.found)), {"seconds": seconds, "sent": len(pickle.dumps(mine)), "padded": True}

    def _tensors(self) -> tuple[int, dict[str, Any]]:
        import torch
        begun = time.perf_counter()
        counts = [torch.zeros(1, dtype=torch.int64) for _ in range(RANKS)]
        torch.distributed.all_gather(counts, torch.tensor([self.count]))
        most = max(int(count) for count in counts)
        self.found = []
        for array in (self.lengths, self.hashes):
            mine = torch.zeros(most, dtype=torch.from_numpy(array[:0].copy()).dtype)
            mine[:self.count] = torch.from_numpy(array)
            self.found.append([torch.empty_like(mine) for _ in range(RANKS)])
            torch.distributed.all_gather(self.found[-1], mine)
        seconds = time.perf_counter() - begun
        total = sum(int(part[:int(count)].sum(dtype=torch.int64)) for part, count in zip(self.found[0], counts))
        return total, {"seconds": seconds, "sent": self.count * 12, "padded": True}

    def _rankstore(self, exchange: str) -> tuple[int, dict[str, Any]]:
        import numpy

        import rankstore
        begun = time.perf_counter()
        self.found = rankstore.open(self.folder, exchange=exchange)
        seconds = time.perf_counter() - begun
        stats = self.found.stats()
        return int(self.found.lengths.sum(dtype=numpy.int64)), {
            "seconds": seconds, "received": stats["exchange_bytes"], "index": stats["memory"]["index"]["current"],
            "staging": stats["memory"]["staging"]["peak"]}

    def let_go(self) -> None:
        found = self.__dict__.pop("found", None)
        if hasattr(found, "close"):
            found.close()


def as_rank(way: str, folder: Path, samples: int, rounds: int) -> None:
    """One rank of a job; rank 0 prints a JSON line a round."""
    os.environ.update(RANK=os.environ["OMPI_COMM_WORLD_RANK"], WORLD_SIZE=os.environ["OMPI_COMM_WORLD_SIZE"],
                      RKS_NODE=os.environ["OMPI_COMM_WORLD_RANK"])
    import rankstore
    group = rankstore.init("mpi")
    part = Rank(folder, samples)
    if way == "build":
        part.build()
        return
    if way not in OURS:
        import torch.distributed
        torch.distributed.init_process_group("gloo")
    wanted = sum(int.from_bytes(one, "little") for one in group.allgather("sum", int(part.lengths.sum()).to_bytes(8, "little")))
    call = part.way(way)
    for number in range(rounds + 1):
        group.agree("round")
        with Watch() as watch:
            before = processor_time()
            total, facts = call()
            facts["processor"] = processor_time() - before
        if total != wanted:
            raise ValueError(f"{way}: the lengths add up to {total}, wanted {wanted}")
        part.let_go()
        facts["memory"] = watch.peak
        told = [json.loads(one) for one in group.allgather("facts", json.dumps(facts).encode())]
        if part.rank == 0:
            print(json.dumps({"first": number == 0, "ranks": told}), flush=True)
    if way not in OURS:
        torch.distributed.destroy_process_group()
    group.close()


# ---- all of them ---------------------------------------------------------------------------------------------------------


def start(way: str, folder: Path, samples: int, rounds: int, port: int) -> list[dict[str, Any]]:
    """The lines of a job; RuntimeError with its last words where it fails."""
    environ = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1",
               "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", "RKS_LISTEN": "lo",
               "PYTHONPATH": f"{ROOT / 'build' / 'python' / 'site'}:{os.environ.get('PYTHONPATH', '')}"}
    command = ["mpirun", "--oversubscribe", "-n", str(RANKS), sys.executable, __file__, "--rank", way, str(folder), str(samples),
               str(rounds)]
    done = subprocess.run(command, env=environ, text=True, capture_output=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        errors = [line for line in done.stderr.splitlines() if "Error" in line or "rankstore" in line]
        raise RuntimeError(errors[-1] if errors else f"exit {done.returncode}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def figures(way: str, lines: list[dict[str, Any]]) -> dict[str, Any]:
    """Of one way and number of samples: a collective takes as long as its slowest rank."""
    seconds = [max(rank["seconds"] for rank in line["ranks"]) for line in lines]
    ranks = lines[-1]["ranks"]
    if way in OURS:
        received = sum(rank["received"] for rank in ranks)
    else:
        received = RANKS * (RANKS - 1) * max(rank["sent"] for rank in ranks)
    found = {"processor": statistics.median(sum(rank["processor"] for rank in line["ranks"]) for line in lines[1:]),
             "seconds": statistics.median(seconds[1:]), "seconds_first": seconds[0], "seconds_all": seconds[1:], "bytes": received,
             "memory": max(rank["memory"] for line in lines for rank in line["ranks"])}
    if way in OURS:
        found["index"] = max(rank["index"] for rank in ranks)
        found["beside_index"] = max(rank["memory"] - rank["index"] for line in lines for rank in line["ranks"])
        found["staging"] = max(rank["staging"] for rank in ranks)
    return found


def mib(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


def table(samples: int, found: dict[str, dict[str, Any]]) -> list[str]:
    """Lines of markdown."""
    lines = [f"### {samples:,} samples, {RANKS} ranks, {', '.join(f'{part:.0%}' for part in PARTS)} of them on each", "",
             "| way | seconds | the first time | processor | beside all_gather_object | bytes received | memory of a rank "
             "| beside the index |",
             "|---|---:|---:|---:|---:|---:|---:|---:|"]
    base = found.get(OBJECTS, {}).get("seconds")
    for way, one in found.items():
        if "error" in one:
            lines.append(f"| {way} | not run: {one['error']} | | | | | | |")
            continue
        ratio = f"{base / one['seconds']:.1f} x" if base else ""
        beside = mib(one["beside_index"]) if "beside_index" in one else ""
        lines.append(f"| {way} | {one['seconds']:.3f} | {one['seconds_first']:.3f} | {one['processor']:.2f} s | {ratio} | "
                     f"{mib(one['bytes'])} | {mib(one['memory'])} | {beside} |")
    return [*lines, ""]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", default="1000000,3000000,10000000", help="numbers of samples, by commas (%(default)s)")
    parser.add_argument("--ways", default=";".join(WAYS), help="by semicolons (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="after the first (%(default)s)")
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "build" / "bench", help="where exchange.md and .json go (%(default)s)")
    chosen = parser.parse_args()
    text: list[str] = []
    results: dict[str, Any] = {"schema_version": 1, "ranks": RANKS, "parts": PARTS, "rounds": chosen.rounds,
                               "load_before": os.getloadavg()[0], "samples": {}}
    folder, port = Path(tempfile.mkdtemp(prefix="rankstore-exchange-")), 20000 + os.getpid() % 20000
    try:
        for samples in map(int, chosen.samples.split(",")):
            start("build", folder / str(samples), samples, 0, port)
            found: dict[str, Any] = {}
            for way in chosen.ways.split(";"):
                port += 1
                try:
                    found[way] = figures(way, start(way, folder / str(samples), samples, chosen.rounds, port))
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    found[way] = {"error": str(error)[-200:]}
                print(f"{samples} {way}: {found[way]}", file=sys.stderr)
            results["samples"][str(samples)] = found
            text += table(samples, found)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(text))
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "exchange.md").write_text("\n".join(text), encoding="utf-8")
    (chosen.out / "exchange.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        as_rank(sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
    else:
        sys.exit(main())
