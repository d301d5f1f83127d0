#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What generations cost: appends of one small file each to one dataset.

    python tests/bench/generations.py RANKSTORE [APPENDS] [DIRECTORY]

prints, at a few numbers of appends, the time of an append (median of the last 20), of `info`, and the bytes of all manifests of
the directory: dataset.json, dataset.N.json and what they refer to."""
from __future__ import annotations

import glob
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time


def run(*command: str) -> float:
    """CPU seconds, which other work on the machine changes less than the clock."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def manifest_bytes(directory: str) -> int:
    """All that says which shards a generation has; not the shards' own manifests."""
    return sum(os.path.getsize(path) for pattern in ("dataset*.json", "list-*") for path in glob.glob(f"{directory}/{pattern}"))


def measure(rankstore: str, directory: str, stops: list[int]) -> list[dict[str, float]]:
    """A row for each number of appends in `stops`: append_s and append_cpu_s (medians), info_s, info_cpu_s, bytes, files."""
    target = f"{directory}/out"
    rows, walls, cpus = [], [], []
    for number in range(stops[-1] + 1):
        source = f"{directory}/in-{number}.jsonl"  # an input of one name and size would be the same build
        with open(source, "w", encoding="utf-8") as file:
            file.write(f'{{"id": "sample-{number:06d}", "text": "words of generation {number}"}}\n')
        begun = time.monotonic()
        cpu = run(rankstore, "build", source, "-o", target, "--key", "id", *(["--append"] if number else []))
        walls.append(time.monotonic() - begun)
        cpus.append(cpu)
        if number in stops:
            begun = time.monotonic()
            cpu = run(rankstore, "info", target, "--json")
            rows.append({"appends": number, "append_s": statistics.median(walls[-20:]), "append_cpu_s": statistics.median(cpus[-20:]),
                         "info_s": time.monotonic() - begun, "info_cpu_s": cpu, "bytes": manifest_bytes(target)})
    return rows


def main() -> None:
    rankstore, most = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    directory = tempfile.mkdtemp(dir=sys.argv[3] if len(sys.argv) > 3 else None)
    print("| appends | append s (CPU) | info s (CPU) | manifests MB |\n|---|---|---|---|")
    try:
        for row in measure(rankstore, directory, [stop for stop in (20, 100, 200, 400, 700, 1000) if stop <= most]):
            print("| {appends} | {append_s:.3f} ({append_cpu_s:.3f}) | {info_s:.2f} ({info_cpu_s:.2f}) | {megabytes:.2f} |".format(
                megabytes=row["bytes"] / 1e6, **row), flush=True)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
