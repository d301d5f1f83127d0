#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python loader on records that come from the disk, beside 16 threads of pread and `rankstore bench --cold`.

Builds a dataset of 2 KiB records in DIRECTORY. Each round drops its pages and reads it in random order, first by
`rankstore bench --cold`, which also measures pread on the same records, then by a loader in a process of its own. Printed:
the medians, and the median of each round's share.

Usage: tests/bench/cold_loader.py BUILD DIRECTORY [--mib N] [--rounds N] [--batch-size N]
       BUILD holds the command line; the Python package is what PYTHONPATH has.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np

import rankstore

SIZE = 2048


def make(path, mib):
    count = (mib << 20) // SIZE
    rankstore.build(({"data": np.full(SIZE, i % 251, np.uint8)} for i in range(count)), path, progress=False).close()


def drop(path):
    for name in os.listdir(path):
        fd = os.open(os.path.join(path, name), os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def read(path, batch_size, most):
    """Samples a second of a loader, from its first batch on."""
    with rankstore.open(path) as ds:
        plan = ds.plan("random", batch_size=batch_size)
        begun, samples = time.perf_counter(), 0
        for batch in ds.loader(plan, out="numpy"):
            samples += len(batch.ids)
            if samples >= most:
                break
        print(json.dumps({"rate": samples / (time.perf_counter() - begun), "disk": ds.stats()["disk_bytes"] / samples}))


def last_json(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout[done.stdout.index("{"):])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("directory")
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--read", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.read:
        read(args.directory, args.batch_size, args.read)
        return
    work = tempfile.mkdtemp(prefix="cold-loader-", dir=args.directory)
    store = os.path.join(work, "store")
    rows = {"16 x pread": [], "rankstore bench --cold": [], "Python loader": []}
    disk = []
    try:
        make(store, args.mib)
        for turn in range(args.rounds):
            bench = last_json([os.path.join(args.build, "tools/rankstore/rankstore"), "bench", store, "--strategy", "random",
                               "--batch-size", str(args.batch_size), "--cold", "--json", "--epoch", str(turn)])["cold"]
            drop(store)
            loader = last_json([sys.executable, os.path.abspath(__file__), args.build, store, "--read", "100000",
                                "--batch-size", str(args.batch_size)])
            for name, rate in zip(rows, (bench["pread_samples_per_second"], bench["samples_per_second"], loader["rate"])):
                rows[name].append(rate)
            disk.append(loader["disk"])
    finally:
        shutil.rmtree(work)
    for name, rates in rows.items():
        share = statistics.median(rate / pread for rate, pread in zip(rates, rows["16 x pread"]))
        print(f"{name:24}{statistics.median(rates):10,.0f} samples/s   {100 * share:4.0f} % of pread")
    print(f"{statistics.median(disk) / 1000:.1f} KB read from the disk for each sample of the loader")


if __name__ == "__main__":
    main()
