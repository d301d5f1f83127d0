# SPDX-License-Identifier: Apache-2.0
"""Runs the contestants of a row in turns, a round each, so that what else the machine does falls on all of them alike."""
from __future__ import annotations

import json
import os
import queue
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rows import Row
from workload import Place

HERE = Path(__file__).parent
LIMIT_S = 600  # for one answer of a contestant
RANKS = 4
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "DISABLE_OPTIMIZED_DATASET_TELEMETRY": "1", "PYTHONDONTWRITEBYTECODE": "1"}


@dataclass
class Result:
    """Of one contestant: its rounds, or why it has none."""

    name: str
    seconds: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    peak_rss: int = 0
    notes: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    def add(self, line: dict[str, Any]) -> None:
        if "error" in line:
            self.error = line["error"]
            return
        self.seconds.append(line["seconds"])
        self.work.append(line["work"])
        self.peak_rss = max(self.peak_rss, line["peak_rss"])
        self.notes.update(line.get("notes", {}))

    def values(self, row: Row) -> list[float]:
        """Of each round: seconds, or units a second."""
        return list(self.seconds) if row.less_is_better else [work / row.scale / seconds for work, seconds in zip(self.work, self.seconds)]

    def median(self, row: Row) -> float:
        return median(self.values(row))


def ahead(row: Row, mine: Result, other: Result) -> float:
    """How many times better `mine` is: the median over rounds of ratios within a round."""
    pairs = zip(mine.values(row), other.values(row))
    return median(theirs / ours if row.less_is_better else ours / theirs for ours, theirs in pairs)


class Contestant:
    """A process of contestant.py."""

    def __init__(self, row: str, name: str, place: Place, log: Any) -> None:
        command = [sys.executable, str(HERE / "contestant.py"), row, name, str(place.folder), "1" if place.quick else "0"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                                        env={**os.environ, **ENVIRONMENT}, start_new_session=True)
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def answer(self) -> dict[str, Any]:
        """The next line; an error where there is none in time."""
        try:
            line = self._lines.get(timeout=LIMIT_S)
        except queue.Empty:
            return {"error": f"no answer in {LIMIT_S} s"}
        found: dict[str, Any] = json.loads(line) if line else {"error": f"it ended with {self.process.wait()}; see log.txt"}
        return found

    def tell(self, order: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(order + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:  # its answer says why
            pass

    def end(self) -> None:
        """Ends it and what it has started."""
        self.tell("end")
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            pass
        try:
            os.killpg(self.process.pid, 9)
        except ProcessLookupError:
            pass
        self.process.wait()


def run(key: str, row: Row, names: list[str], place: Place, rounds: int, log: Any, tell: Callable[[str], None]) -> list[Result]:
    """The row's results, in the order of its contestants."""
    results = {name: Result(name) for name in names}
    if row.ranks:
        _run_ranks(key, results, place, 1 if key == "gather" else rounds, log, tell)
    elif row.fresh:
        for number in range(rounds):
            for name in names:
                tell(f"{key}: round {number + 1} of {rounds}: {name}")
                _round_of_new(key, results[name], place, log)
    else:
        _run_turns(key, results, place, rounds, log, tell)
    return list(results.values())


def _round_of_new(key: str, result: Result, place: Place, log: Any) -> None:
    contestant = Contestant(key, result.name, place, log)
    try:
        first = contestant.answer()
        if "error" not in first:
            contestant.tell("round")
            first = contestant.answer()
        result.add(first)
    finally:
        contestant.end()


def _run_turns(key: str, results: dict[str, Result], place: Place, rounds: int, log: Any, tell: Callable[[str], None]) -> None:
    running: dict[str, Contestant] = {}
    try:
        for name, result in results.items():
            tell(f"{key}: preparing {name}")
            running[name] = Contestant(key, name, place, log)
            first = running[name].answer()
            if "error" in first:
                result.add(first)
                running.pop(name).end()
        for number in range(rounds):
            for name in list(running):
                tell(f"{key}: round {number + 1} of {rounds}: {name}")
                running[name].tell("round")
                results[name].add(running[name].answer())
                if results[name].error:
                    running.pop(name).end()
    finally:
        for contestant in running.values():
            contestant.end()


def _free_port() -> int:
    """Rank 0 listens there only seconds later; none of those that Linux gives to connections."""
    for port in random.sample(range(10000, 32000), 200):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port")


def _run_ranks(key: str, results: dict[str, Result], place: Place, rounds: int, log: Any, tell: Callable[[str], None]) -> None:
    tell(f"{key}: {RANKS} ranks")
    port = _free_port()
    command = [sys.executable, str(HERE / "ranks.py"), key, str(place.folder), "1" if place.quick else "0", str(rounds)]
    job = [subprocess.Popen(command, stdout=subprocess.PIPE if rank == 0 else log, stderr=log, text=True,
                            env={**os.environ, **ENVIRONMENT, "RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank),
                                 "LOCAL_WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
           for rank in range(RANKS)]
    text, late = "", False
    try:
        text = job[0].communicate(timeout=LIMIT_S)[0]
        until = time.monotonic() + 100
        late = any(one.wait(max(0.1, until - time.monotonic())) for one in job)
    except subprocess.TimeoutExpired:
        late = True
    finally:
        for one in job:
            one.kill()
            one.wait()
    for line in text.splitlines():
        found = json.loads(line)
        if found["name"] in results:
            results[found["name"]].add(found)
    for result in results.values():
        if late or not result.seconds:
            result.error = "a rank failed, or did not end in time; see log.txt"
