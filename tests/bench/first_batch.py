#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How soon a job has its first and its tenth batch of a random plan, if its dataset is at a home behind a slow link.

Each rank is a node with a local directory of its own; ranks meet after each step, as in training. The floor is a plain program
that reads through the same link what must be read: manifests, sums, heads, and the records of the steps of all ranks.

With --latency-ms the home is a URL: `rclone serve http` behind the tests' proxy, which waits so long before each answer and shares the
link among all; the floor reads by HTTP on 64 connections, and each rank's helper has to start. Then the epoch goes on until all shards are
here; the last column is the share of the link, from the opening on, that brought bytes of shards for the first time.

Usage: tests/bench/first_batch.py BUILD DIRECTORY [--samples N] [--mb-a-second MB] [--ranks N,...] [--latency-ms MS]
       The Python package is what PYTHONPATH has. DIRECTORY needs twice the dataset's size.
"""
import argparse
import concurrent.futures
import contextlib
import http.client
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

BATCH, STEPS, SIZE = 64, 10, 2000


def build(home, samples):
    import rankstore
    rankstore.build(({"id": i, "data": os.urandom(SIZE)} for i in range(samples)), home, max_shard="64MiB").close()


class Links(threading.local):
    """A connection of each thread."""

    def get(self, address, path, first, end):
        if not hasattr(self, "one"):
            self.one = http.client.HTTPConnection(address.removeprefix("http://"))
        self.one.request("GET", path, headers={"Range": f"bytes={first}-{end - 1}"})
        return len(self.one.getresponse().read())


links = Links()


def read(path, first, end):
    address = os.environ.get("FLOOR_URL")
    if address:
        return links.get(address, "/home/" + os.path.basename(path), first, end)
    file = os.open(path, os.O_RDONLY)
    try:
        return len(os.pread(file, end - first, first))
    finally:
        os.close(file)


def floor(home, ranks, steps):
    """Seconds in which 64 threads read heads, and then the records of so many steps."""
    wanted, names = [], [name[:-5] for name in os.listdir(home) if name.startswith("part-") and name.endswith(".json")]
    for name in names:
        path = os.path.join(home, name)
        with open(path + ".json", encoding="utf-8") as file:
            segments = json.load(file)["segments"]
        wanted += [(path + ending, 0, os.path.getsize(path + ending)) for ending in (".json", ".sums")]
        wanted += [(path + ".rks", 0, 8192)] + [(path + ".rks", offset, offset + size) for _, _, _, offset, size, _ in segments]
    chance = random.Random(1)
    files = [(os.path.join(home, name) + ".rks", os.path.getsize(os.path.join(home, name) + ".rks")) for name in names]
    chosen = chance.choices(files, weights=[size for _, size in files], k=BATCH * ranks * steps)
    records = [(path, chance.randrange(0, size - SIZE)) for path, size in chosen]
    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(64) as threads:
        list(threads.map(lambda one: read(*one), wanted))
        list(threads.map(lambda one: read(one[0], one[1], one[1] + SIZE), records))
    return time.monotonic() - begin


def rank(home, local):
    import torch  # noqa: F401  ranks meet through it

    import rankstore
    group = rankstore.current()
    group.barrier()
    begin = time.monotonic()
    with rankstore.open(home, local=local) as ds:
        opened = time.monotonic() - begin
        batches, ends = iter(ds.loader(ds.plan(batch_size=BATCH, seed=1))), []
        for _ in range(STEPS):
            next(batches)
            ends.append(time.monotonic() - begin)
            group.barrier()
        while os.environ.get("FLOOR_URL") and ds.stats()["arriving_shards"] > 0:
            if next(batches, None) is None:
                batches = iter(ds.loader(ds.plan(batch_size=BATCH, seed=1)))
        print(json.dumps([opened, ends[0], ends[-1], time.monotonic() - begin, ds.stats()["home_bytes"]]), flush=True)
        group.barrier()
        del batches


def job(home, directory, ranks, environment):
    """The slowest rank's seconds: until it is open, has its first batch, its tenth."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    running = []
    for number in range(ranks):
        local = os.path.join(directory, f"local{number}")
        shutil.rmtree(local, ignore_errors=True)
        running.append(subprocess.Popen(
            [sys.executable, __file__, "--rank", home, local], text=True, stdout=subprocess.PIPE,
            env={**environment, "RKS_NODE": str(number), "RANK": str(number), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(number),
                 "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}))
    said = [json.loads(one.communicate(timeout=900)[0].splitlines()[-1]) for one in running]
    return [max(one[i] for one in said) for i in range(4)]


@contextlib.contextmanager
def served(folder, asked, environment):
    """Yield the address of a folder behind the proxy's link."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python_bindings" / "tests"))
    import stores
    port = stores.free_port()
    with stores.started(["rclone", "serve", "http", folder, "--addr", f"127.0.0.1:{port}", "--read-only"], port) as address, \
            stores.proxy(address) as proxy:
        proxy.set(latency_ms=asked.latency_ms, bytes_per_s=asked.mb_a_second * 1e6)
        environment["FLOOR_URL"] = proxy.address
        yield proxy


def main():
    if sys.argv[1:2] == ["--rank"]:
        return rank(*sys.argv[2:])
    if sys.argv[1:2] == ["--floor"]:
        print(floor(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
        return None
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("directory")
    parser.add_argument("--samples", type=int, default=1_000_000)
    parser.add_argument("--mb-a-second", type=float, default=50)
    parser.add_argument("--ranks", default="1,4,8")
    parser.add_argument("--latency-ms", type=float, default=0)
    asked = parser.parse_args()
    home = os.path.join(os.path.abspath(asked.directory), "home")
    if not os.path.exists(home):
        build(home, asked.samples)
    bucket = os.path.join(asked.directory, "link")
    environment = {**os.environ, "LD_PRELOAD": os.path.abspath(os.path.join(asked.build, "tests/bench/libslow_pread.so")),
                   "SLOW_WHERE": home, "SLOW_MB": str(asked.mb_a_second), "SLOW_BUCKET": bucket}
    if asked.latency_ms:
        environment = dict(os.environ)
        with served(os.path.dirname(home), asked, environment) as proxy:
            rows(asked, home, f"{proxy.address}/home", environment, proxy)
    else:
        rows(asked, home, home, environment, None)
    return None


def rows(asked, home, address, environment, proxy):
    more = "   all here   new bytes   link used" if proxy else ""
    print(f"ranks    open   first batch   floor   tenth batch   floor{more}", flush=True)
    size = sum(path.stat().st_size for path in Path(home).glob("*.rks"))
    for ranks in map(int, asked.ranks.split(",")):
        floors = [float(subprocess.run([sys.executable, __file__, "--floor", home, str(ranks), str(steps)], env=environment, text=True,
                                       capture_output=True, check=True).stdout) for steps in (1, STEPS)]
        before = proxy.counts()["data_bytes"] if proxy else 0
        opened, first, tenth, here = job(address, asked.directory, ranks, environment)
        more = ""
        if proxy:
            came = proxy.counts()["data_bytes"] - before
            more = f"   {here:6.2f} s      {size / came:5.1%}       {size / (here - opened) / asked.mb_a_second / 1e6:5.1%}"
        print(f"{ranks:5}  {opened:4.2f} s        {first:4.2f} s  {floors[0]:4.2f} s        {tenth:4.2f} s  {floors[1]:4.2f} s{more}",
              flush=True)


if __name__ == "__main__":
    sys.exit(main())
