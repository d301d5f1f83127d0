#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast JSON lines in an object store become a dataset, beside downloading them and building from the copy.

The store is moto's server on this machine; with --mb-a-second, behind a link of that rate. The download is obstore's, four objects
at a time. Rounds take turns; the figure is the median of (download + build from the copy) / build by URL, for each number of ranks.

Usage: tests/bench/url_inputs.py DIRECTORY [--mib N] [--objects N] [--mb-a-second MB] [--ranks N,...] [--rounds N]
       The Python package is what PYTHONPATH has. DIRECTORY needs four times the size.
"""
import argparse
import concurrent.futures
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python_bindings" / "tests"))
import stores

RANK = """
import json, sys
import rankstore
source, out, options = sys.argv[1:]
options = json.loads(options)
rankstore.build(source, out, progress=False, **({"storage_options": options} if options else {})).close()
"""


def make(store, mib, objects):
    """Fill the bucket with text of words. Return the bytes."""
    import obstore
    chance, total = random.Random(1), 0
    words = ["".join(chance.choices("abcdefghijklmnop", k=chance.randint(2, 9))) for _ in range(5000)]
    for number in range(objects):
        lines, size = [], 0
        while size < (mib << 20) // objects:
            lines.append(json.dumps({"id": len(lines), "text": " ".join(chance.choices(words, k=120))}))
            size += len(lines[-1]) + 1
        content = ("\n".join(lines) + "\n").encode()
        obstore.put(store.client(), f"in/{number:03}.jsonl", content)
        total += len(content)
    return total


def download(store, folder):
    import obstore
    folder.mkdir()
    client = store.client()

    def one(name):
        with open(folder / name, "wb") as file:
            for part in obstore.get(client, f"in/{name}").stream(8 << 20):
                file.write(part)

    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        list(threads.map(one, store.names("in")))
    return time.monotonic() - begin


def build(source, out, options, ranks):
    """Return the seconds of the ranks' processes, their start included."""
    port = stores.free_port()
    begin = time.monotonic()
    running = [subprocess.Popen([sys.executable, "-c", RANK, str(source), str(out), json.dumps(options)], env={
        **os.environ, **({"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks),
                          "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} if ranks > 1 else {})}) for rank in range(ranks)]
    codes = [one.wait() for one in running]
    if any(codes):
        sys.exit(f"a rank ended with {codes}")
    return time.monotonic() - begin


def measure(store, top, ranks, total, rounds, proxy):
    ratios = []
    for number in range(rounds):
        copy, local, stored = (top / f"{name}{ranks}.{number}" for name in ("copy", "local", "stored"))
        loaded = download(store, copy)
        built = build(f"{copy}/*.jsonl", local, {}, ranks)
        before = proxy.counts()
        by_url = build(f"s3://{store.bucket}/in/*.jsonl", stored, store.options, ranks)
        read = proxy.counts()["bytes"] - before["bytes"]
        ids = {json.loads((place / "dataset.json").read_text())["dataset"] for place in (local, stored)}
        ratios.append((loaded + built) / by_url)
        print(f"  {ranks} ranks: download {loaded:.2f} s + build {built:.2f} s; by URL {by_url:.2f} s, {total / by_url / 1e6:.0f} MB/s, "
              f"{read / total:.2f} x the bytes; ratio {ratios[-1]:.2f}{'' if len(ids) == 1 else '; OTHER SAMPLES'}", flush=True)
        for place in (copy, local, stored):
            shutil.rmtree(place)
    return statistics.median(ratios)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("directory")
    options.add_argument("--mib", type=int, default=256)
    options.add_argument("--objects", type=int, default=8)
    options.add_argument("--mb-a-second", type=float, default=0)
    options.add_argument("--ranks", default="1,2")
    options.add_argument("--rounds", type=int, default=3)
    given = options.parse_args()
    top = Path(given.directory)
    top.mkdir(parents=True, exist_ok=True)
    with stores.moto() as address, stores.proxy(address) as proxy:
        store = stores.make_bucket(address, "bench")
        total = make(store, given.mib, given.objects)
        proxy.set(bytes_per_s=given.mb_a_second * 1e6)
        store = stores.Store(proxy.address, "bench")
        print(f"{total / 1e6:.0f} MB of JSON lines in {given.objects} objects", flush=True)
        for ranks in map(int, given.ranks.split(",")):
            print(f"{ranks} ranks: median ratio {measure(store, top, ranks, total, given.rounds, proxy):.2f} (goal 0.80)", flush=True)


if __name__ == "__main__":
    main()
