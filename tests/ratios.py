# SPDX-License-Identifier: Apache-2.0
"""Ratios of speed to a floor that is measured beside it, in the same process, and a guard over them: docs/ratios.md has what an idle
machine gave, by commit. A ratio that falls below half of the newest row is a failure, after three tries. The machine's own speed
cancels out; half is far below what machines differ by.

Usage: tests/ratios.py BUILD             compares (the step `bench` of tools/test)
       tests/ratios.py BUILD --record    adds a row to docs/ratios.md, for HEAD: on an idle machine alone
"""
import datetime
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

PAGE = "docs/ratios.md"
ROUNDS, TRIES, LIMIT_S = 3, 3, 300
IDLE_WITHIN_S = 180
BUSY = 0.5  # load a core from which an idle machine cannot be spoken of
OF_FLOOR = re.compile(r"^(.{50}).*?: +(\d+) %", re.M)
PACKED = re.compile(r"^([A-Z]) +(\d+) +\d+ +\d+ +\d+ +([\d.]+) +([\d.]+) +([\d.]+)", re.M)

# Column of the page: the program's row.
ROWS = {
    "read": "read random samples, batches of 64, unchecked", "read, checked": "read random samples, batches of 64, checked",
    "build": "build, 300 B median, 14-byte keys, synced, sealed",
    "collate, padded": "tokens uint16, padded to int64", "collate, rows": "tokens uint16, rows of 8,192",
    "collate, blobs": "blobs of 100 KB, packed", "fetch 1 KB": "fetch over TCP loopback, 64 x 1 KB a request",
    "fetch 100 KB": "fetch over TCP loopback, 8 x 100 KB a request",
    "pack": "pack C 1000000, first", "pack, later": "pack C 1000000, later",
}


def measured(build):
    """{row of a program: part of the floor's speed} of one round."""
    found = {}
    with tempfile.TemporaryDirectory(dir=build, prefix="ratios-") as folder:
        for command in (["bench_shard", folder], ["bench_collate", folder], ["bench_fetch", folder, "1"], ["bench_fetch", folder, "2"],
                        ["bench_pack"]):
            said = subprocess.run([os.path.join(build, "tests", "bench", command[0]), *command[1:]], check=True, capture_output=True,
                                  text=True, timeout=LIMIT_S).stdout
            for name, percent in OF_FLOOR.findall(said):
                found[re.split(r" {2,}", name)[0].strip()] = int(percent) / 100
            for kind, samples, first, later, plain in PACKED.findall(said):
                found[f"pack {kind} {samples}, first"] = float(plain) / float(first)
                found[f"pack {kind} {samples}, later"] = float(plain) / float(later)
    return found


def medians(build):
    """{column: median of the rounds}."""
    rounds = [measured(build) for _ in range(ROUNDS)]
    return {column: statistics.median(one[row] for one in rounds) for column, row in ROWS.items()}


def recorded(lines):
    """{column: ratio} of the page's newest row, which is its last one."""
    lines = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in lines if line.startswith("|")]
    if lines[0][3:] != list(ROWS):
        raise ValueError(f"{PAGE}: its columns are not those of tests/ratios.py")
    return dict(zip(ROWS, map(float, lines[-1][3:])))


def below_half(found, wanted):
    """What has fallen, in words."""
    return [f"{column}: {found[column]:.2f} of its floor, {wanted[column]:.2f} recorded" for column in ROWS
            if found[column] < wanted[column] / 2]


def load_a_core():
    return os.getloadavg()[0] / len(os.sched_getaffinity(0))


def becomes_idle():
    """A build that has just ended is no reason to give up."""
    until = time.monotonic() + IDLE_WITHIN_S
    while load_a_core() > BUSY and time.monotonic() < until:
        time.sleep(2)
    return load_a_core() <= BUSY


def compare(build):
    with open(PAGE, encoding="utf-8") as page:
        wanted, best = recorded(page), dict.fromkeys(ROWS, 0.0)
    print("ok the_page_has_a_figure_for_each_row")
    if not becomes_idle():
        print(f"skip no_ratio_is_below_half_of_what_was_recorded: the machine is busy, with a load of {load_a_core():.1f} a core")
        return
    for _ in range(TRIES):
        best = {column: max(best[column], ratio) for column, ratio in medians(build).items()}
        low = below_half(best, wanted)
        if not low:
            break
    for column in ROWS:
        print(f"{column:20} {best[column]:6.2f}   recorded {wanted[column]:.2f}")
    print(f"FAIL no_ratio_is_below_half_of_what_was_recorded: {'; '.join(low)}" if low else
          "ok no_ratio_is_below_half_of_what_was_recorded")


def record(build):
    if not becomes_idle():
        sys.exit(f"tests/ratios.py: the machine is busy, with a load of {load_a_core():.1f} a core; nothing is recorded")
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        processor = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "?")
    machine = f"{processor}, {len(os.sched_getaffinity(0))} cores"
    with open(PAGE, "a", encoding="utf-8") as page:
        page.write(f"| {commit} | {datetime.date.today()} | {machine} | " + " | ".join(f"{one:.2f}" for one in medians(build).values())
                   + " |\n")


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    (record if sys.argv[2:] == ["--record"] else compare)(sys.argv[1])
