#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python loader of one or several installed packages and a plain loop over a numpy memmap, in turns.

Each package and the plain loop is a process that stays alive. Samples are tokens (lognormal, median 300), batches are sorted and of 64
samples, `Pad()` makes them tensors. A round lets each process run one epoch, one after the other, in changing order. Printed: tokens a
second of the wall clock and of processor time, the medians of each round's ratio to the plain loop and to the last package, the time
of Python and C a batch, and how often the system changed threads (voluntary and not) a batch.

Modes: idle; one: all threads of a process on one core; busy: a process that computes without end runs beside them.

Usage: tests/bench/loader.py DIRECTORY SITE [SITE ...] [--samples N] [--rounds N] [--mode idle|one|busy ...] [--json]
       SITE: a folder with the package, such as build/python/site of a checkout; give the one to compare with last.
"""
import argparse
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import time

import numpy as np

MEDIAN, SPREAD, BATCH = 300, 0.8, 64


def make_tokens(samples):
    """Return (tokens, offsets) of all samples, the same ones for each process."""
    draw = np.random.default_rng(7)
    lengths = np.clip(draw.lognormal(np.log(MEDIAN), SPREAD, samples), 1, 8192).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return draw.integers(0, 50_000, offsets[-1], dtype=np.int32), offsets


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def switches():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_nvcsw, used.ru_nivcsw


def plain_epochs(directory, samples):
    """A loop as people write it: sorted samples, a batch is a padded tensor and its mask."""
    import torch
    tokens, offsets = make_tokens(samples)
    path = os.path.join(directory, f"tokens.{samples}")
    if not os.path.exists(path):
        tokens.tofile(path)
    tokens = np.memmap(path, np.int32, "r")
    lengths = np.diff(offsets)
    order = np.argsort(lengths, kind="stable")

    def epoch(number):
        seen = 0
        starts = np.random.default_rng(number).permutation(np.arange(0, samples, BATCH))
        for start in starts:
            ids = order[start:start + BATCH]
            width = -(-int(lengths[ids].max()) // 8) * 8
            batch = np.zeros((len(ids), width), np.int64)
            mask = np.zeros((len(ids), width), np.int64)
            for row, one in enumerate(ids):
                begin, end = offsets[one], offsets[one + 1]
                batch[row, :end - begin] = tokens[begin:end]
                mask[row, :end - begin] = 1
            seen += int(torch.from_numpy(mask).shape[0])
        return seen, len(starts)

    return epoch


def loader_epochs(directory, samples):
    import rankstore
    tokens, offsets = make_tokens(samples)
    # Each package has a dataset of its own, since a format may have changed between them.
    path = os.path.join(directory, f"dataset.{samples}.{abs(hash(rankstore.__file__))}")
    if not os.path.exists(path):
        rankstore.build(({"input_ids": tokens[begin:end]} for begin, end in zip(offsets[:-1], offsets[1:])), path,
                        progress=False).close()
    ds = rankstore.open(path)
    loader = ds.loader(ds.plan("sorted", batch_size=BATCH), collate=rankstore.Pad())

    def epoch(number):
        loader.set_epoch(number)
        seen = batches = 0
        for batch in loader:
            seen += batch["input_ids"].shape[0]
            batches += 1
        return seen, batches

    return epoch


def serve(kind, directory, samples):
    """Run an epoch for each line of standard input and print what it took."""
    epoch = (plain_epochs if kind == "plain" else loader_epochs)(directory, samples)
    print("ready", flush=True)
    for number, line in enumerate(sys.stdin):
        os.sched_setaffinity(0, json.loads(line))
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), json.loads(line))
        begin, used, before = time.perf_counter(), cpu_seconds(), switches()
        seen, batches = epoch(number)
        took = {"wall": time.perf_counter() - begin, "cpu": cpu_seconds() - used}
        voluntary, forced = (now - then for now, then in zip(switches(), before))
        print(json.dumps({**took, "batches": batches, "seen": seen, "voluntary": voluntary, "forced": forced}), flush=True)


def start(kind, site, options):
    process = subprocess.Popen([sys.executable, __file__, "--serve", kind, options.directory, "--samples", str(options.samples)],
                               env={**os.environ, "PYTHONPATH": site, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if process.stdout.readline() != "ready\n":
        raise SystemExit(f"{kind}: {site}: did not start")
    return process


def compute_forever():
    while True:
        sum(range(10_000))


def measure(processes, mode, rounds, samples):
    """Return, of each process, its epochs: a list of what `serve` prints."""
    cores = sorted(os.sched_getaffinity(0))
    busy = [multiprocessing.Process(target=compute_forever, daemon=True)] if mode == "busy" else []
    for one in busy:
        one.start()
    found = [[] for _ in processes]
    for number in range(rounds + 1):
        turn = list(range(len(processes)))
        turn = turn[number % len(turn):] + turn[:number % len(turn)]
        for index in turn if number % 2 else turn[::-1]:
            processes[index].stdin.write(json.dumps(cores[:1] if mode == "one" else cores) + "\n")
            processes[index].stdin.flush()
            epoch = json.loads(processes[index].stdout.readline())
            if epoch["seen"] != samples:
                raise SystemExit(f"process {index}: an epoch had {epoch['seen']} of {samples} samples")
            if number > 0:  # the first one warms up
                found[index].append(epoch)
    for one in busy:
        one.kill()
        one.join()
    return found


def report(mode, names, found, tokens, as_json):
    rows = []
    for name, epochs in zip(names, found):
        row = {"mode": mode, "who": name}
        for clock in ("wall", "cpu"):
            row[f"tokens_per_{clock}_s"] = tokens / statistics.median(one[clock] for one in epochs)
            for other, others in (("plain", found[0]), ("last", found[-1])):
                row[f"{clock}_to_{other}"] = statistics.median(theirs[clock] / one[clock] for one, theirs in zip(epochs, others))
        row["cpu_us_a_batch"] = statistics.median(one["cpu"] / one["batches"] for one in epochs) * 1e6
        for kind in ("voluntary", "forced"):
            row[f"{kind}_switches_a_batch"] = statistics.median(one[kind] / one["batches"] for one in epochs)
        rows.append(row)
        if not as_json:
            print(f"{mode:5} {name:40} {row['tokens_per_wall_s'] / 1e6:7.1f} M tokens/s, "
                  f"{row['tokens_per_cpu_s'] / 1e6:7.1f} a CPU second, {row['cpu_us_a_batch']:6.1f} us CPU and "
                  f"{row['voluntary_switches_a_batch']:.2f} + {row['forced_switches_a_batch']:.2f} switches a batch; "
                  f"of plain: wall {row['wall_to_plain']:5.2f} CPU {row['cpu_to_plain']:5.2f}; "
                  f"of last: wall {row['wall_to_last']:5.3f} CPU {row['cpu_to_last']:5.3f}", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("sites", nargs="*")
    parser.add_argument("--samples", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--mode", choices=["idle", "one", "busy"], action="append")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.directory, options.samples)
        return
    tokens = int(make_tokens(options.samples)[1][-1])
    names = ["plain", *options.sites]
    processes = [start("plain" if name == "plain" else "loader", "" if name == "plain" else os.path.abspath(name), options)
                 for name in names]
    rows = []
    for mode in options.mode or ["idle", "one", "busy"]:
        rows += report(mode, names, measure(processes, mode, options.rounds, options.samples), tokens, options.json)
    if options.json:
        print(json.dumps(rows))
    for one in processes:
        one.stdin.close()
        one.wait(60)


if __name__ == "__main__":
    main()
