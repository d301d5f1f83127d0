#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast JSON lines in an object store become a dataset, beside downloading them and building from the copy.

The store is `rclone serve http` on this machine (moto reads a whole object for each range); with --mb-a-second, behind the tests' proxy
as a link of that rate. The download is obstore's, four objects at a time. Rounds take turns; the figure is the median of (download +
build from the copy) / build by URL, for each number of ranks.

Usage: tests/bench/url_inputs.py DIRECTORY [--mib N] [--objects N] [--mb-a-second MB] [--ranks N,...] [--rounds N]
       The Python package is what PYTHONPATH has. DIRECTORY needs four times the size.
"""
import argparse
import concurrent.futures
import contextlib
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
rankstore.build(json.loads(sys.argv[1]), sys.argv[2], progress=False).close()
"""


def make(folder, mib, objects):
    """Fill the folder with text of words. Return the bytes."""
    folder.mkdir(exist_ok=True)
    chance, total = random.Random(1), 0
    words = ["".join(chance.choices("abcdefghijklmnop", k=chance.randint(2, 9))) for _ in range(5000)]
    for number in range(objects):
        lines, size = [], 0
        while size < (mib << 20) // objects:
            lines.append(json.dumps({"id": len(lines), "text": " ".join(chance.choices(words, k=120))}))
            size += len(lines[-1]) + 1
        content = ("\n".join(lines) + "\n").encode()
        (folder / f"{number:03}.jsonl").write_bytes(content)
        total += len(content)
    return total


def download(address, names, folder):
    import obstore
    import obstore.store
    folder.mkdir()
    client = obstore.store.HTTPStore.from_url(address, client_options={"allow_http": True})

    def one(name):
        with open(folder / name, "wb") as file:
            for part in obstore.get(client, name).stream(8 << 20):
                file.write(part)

    begin = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        list(threads.map(one, names))
    return time.monotonic() - begin


def build(source, out, ranks):
    """Return the seconds of the ranks' processes, their start included."""
    port = stores.free_port()
    begin = time.monotonic()
    running = [subprocess.Popen([sys.executable, "-c", RANK, json.dumps(source), str(out)], env={
        **os.environ, **({"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks),
                          "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)} if ranks > 1 else {})}) for rank in range(ranks)]
    codes = [one.wait() for one in running]
    if any(codes):
        sys.exit(f"a rank ended with {codes}")
    return time.monotonic() - begin


def measure(address, names, top, ranks, total, rounds, proxy):
    ratios = []
    for number in range(rounds):
        copy, local, stored = (top / f"{name}{ranks}.{number}" for name in ("copy", "local", "stored"))
        loaded = download(address, names, copy)
        built = build([f"{copy}/{name}" for name in names], local, ranks)
        before = proxy.counts()["bytes"] if proxy else 0
        by_url = build([f"{address}/{name}" for name in names], stored, ranks)
        read = f"{(proxy.counts()['bytes'] - before) / total:.2f} x the bytes; " if proxy else ""
        ids = {json.loads((place / "dataset.json").read_text())["dataset"] for place in (local, stored)}
        ratios.append((loaded + built) / by_url)
        print(f"  {ranks} ranks: download {loaded:.2f} s + build {built:.2f} s; by URL {by_url:.2f} s, {total / by_url / 1e6:.0f} MB/s; "
              f"{read}ratio {ratios[-1]:.2f}{'' if len(ids) == 1 else '; OTHER SAMPLES'}", flush=True)
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
    total, port = make(top / "in", given.mib, given.objects), stores.free_port()
    names = sorted(path.name for path in (top / "in").iterdir())
    print(f"{total / 1e6:.0f} MB of JSON lines in {given.objects} objects", flush=True)
    with contextlib.ExitStack() as running:
        serve = ["rclone", "serve", "http", str(top / "in"), "--addr", f"127.0.0.1:{port}", "--read-only"]
        address, proxy = running.enter_context(stores.started(serve, port)), None
        if given.mb_a_second:
            proxy = running.enter_context(stores.proxy(address))
            proxy.set(bytes_per_s=given.mb_a_second * 1e6)
            address = proxy.address
        for ranks in map(int, given.ranks.split(",")):
            ratio = measure(address, names, top, ranks, total, given.rounds, proxy)
            print(f"{ranks} ranks: median ratio {ratio:.2f} (goal 0.80)", flush=True)


if __name__ == "__main__":
    main()
