#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How fast `stage` brings a dataset from a store, beside obstore's own parallel ranges and `rclone copy`, in turns.

The store is `rclone serve http` on this machine; with --mb-a-second it lies in a network namespace behind a link of that rate (tc's tbf;
needs root). All three write the same shard files to the same disk; only `stage` checks what came, and makes it durable. Processor time
is the rank's, without the helper's. A fourth row writes as many bytes from memory to new files: what the system takes for a page of a
file, which on a virtual machine whose host gives memory back can be most of it (2.4 s a GB were seen, 0.1 with pages that were used within
the last seconds). The rank's own part is the difference.

With --copy the home is a directory on the same disk, and `stage` is beside `cp --reflink=never` and `sync`; the home's pages are dropped
before each.

Usage: tests/bench/stage_rate.py DIRECTORY [--mib N] [--mb-a-second MB] [--rounds N] [--copy]
       The Python package is what PYTHONPATH has. DIRECTORY needs three times the size.
"""
import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

OURS = """
import json, sys, time
import rankstore
begin, before = time.monotonic(), time.process_time()
report = rankstore.stage(sys.argv[1], sys.argv[2], progress=False)
print(json.dumps([time.monotonic() - begin, time.process_time() - before, report.home_bytes]))
"""
THEIRS = """
import asyncio, json, os, sys, time
import obstore, obstore.store
store = obstore.store.HTTPStore.from_url(sys.argv[1], client_options={"allow_http": True})
names, out = json.loads(sys.argv[3]), sys.argv[2]
os.makedirs(out)

async def one(file, name, first, end, gate):
    async with gate:
        found = await obstore.get_range_async(store, name, start=first, end=end)
        await asyncio.to_thread(os.pwrite, file, memoryview(found), first)

async def main():
    gate = asyncio.Semaphore(32)
    files = {name: os.open(f"{out}/{name}", os.O_RDWR | os.O_CREAT) for name in names}
    await asyncio.gather(*(one(files[name], name, at, min(at + (4 << 20), size), gate)
                           for name, size in names.items() for at in range(0, size, 4 << 20)))

begin, before = time.monotonic(), time.process_time()
asyncio.run(main())
print(json.dumps([time.monotonic() - begin, time.process_time() - before, sum(names.values())]))
"""
WRITES = """
import json, os, sys, time
sizes, block = json.loads(sys.argv[3]), os.urandom(4 << 20)
os.makedirs(sys.argv[2])
begin, before = time.monotonic(), time.process_time()
for name, size in sizes.items():
    file = os.open(f"{sys.argv[2]}/{name}", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(file, 0, size)
    for at in range(0, size, 4 << 20):
        os.pwrite(file, block[:min(4 << 20, size - at)], at)
print(json.dumps([time.monotonic() - begin, time.process_time() - before, sum(sizes.values())]))
"""
HOST_S = 3  # after which the host has taken free memory back, for all rows alike


@contextlib.contextmanager
def link(mb_a_second):
    """Yield the words before a command that make it run behind the link, and the address there."""
    if not mb_a_second:
        yield [], "127.0.0.1"
        return
    name, low = f"stage{os.getpid()}", os.getpid() % 250
    ends, net = (f"sa{os.getpid()}", f"sb{os.getpid()}"), f"10.231.{low}"

    def run(*words):
        subprocess.run(words, check=True)
    run("ip", "netns", "add", name)
    try:
        run("ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1], "netns", name)
        run("ip", "addr", "add", f"{net}.1/24", "dev", ends[0])
        run("ip", "link", "set", ends[0], "up")
        run("ip", "-n", name, "addr", "add", f"{net}.2/24", "dev", ends[1])
        run("ip", "-n", name, "link", "set", ends[1], "up")
        run("ip", "-n", name, "link", "set", "lo", "up")
        run("tc", "-n", name, "qdisc", "add", "dev", ends[1], "root", "tbf", "rate", f"{int(mb_a_second * 8)}mbit",
            "burst", "1mb", "latency", "50ms")
        yield ["ip", "netns", "exec", name], f"{net}.2"
    finally:
        subprocess.run(["ip", "netns", "del", name], check=False)


@contextlib.contextmanager
def server(before, host, folder):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen([*before, "rclone", "serve", "http", str(folder), "--addr", f"{host}:{port}", "--read-only"],
                          stderr=subprocess.DEVNULL) as running:
        try:
            for _ in range(300):
                with socket.socket() as one:
                    if one.connect_ex((host, port)) == 0:
                        break
                time.sleep(0.05)
            yield f"http://{host}:{port}"
        finally:
            running.kill()


def measured(code, *words):
    done = subprocess.run([sys.executable, "-c", code, *words], check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def rclone(address, out):
    begin = time.monotonic()
    subprocess.run(["rclone", "copy", f":http,url='{address}/home/':", str(out), "--include", "*.rks", "--transfers", "8",
                    "--multi-thread-streams", "8", "--quiet"], check=True)
    return [time.monotonic() - begin, 0, sum(path.stat().st_size for path in Path(out).glob("*.rks"))]


def drop_pages(folder):
    os.sync()
    for path in folder.iterdir():
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def copied(home, out):
    begin = time.monotonic()
    out.mkdir()
    subprocess.run(["cp", "--reflink=never", *(str(path) for path in home.glob("part-*")), str(out)], check=True)
    subprocess.run(["sync", *(str(path) for path in out.iterdir()), str(out)], check=True)
    return [time.monotonic() - begin, 0, sum(path.stat().st_size for path in out.iterdir())]


def beside_a_copy(home, out, rounds):
    rates = {"stage": [], "copy": []}
    for _ in range(rounds):
        for name, found in rates.items():
            shutil.rmtree(out, ignore_errors=True)
            drop_pages(home)
            seconds, used, size = measured(OURS, str(home), str(out)) if name == "stage" else copied(home, out)
            found.append(size / seconds / 1e6)
            print(f"  {name}: {size / 1e6:.0f} MB in {seconds:.2f} s, {found[-1]:.0f} MB/s, load {os.getloadavg()[0]:.1f}", flush=True)
    shutil.rmtree(out)
    print(f"stage / copy: {statistics.median(ours / theirs for ours, theirs in zip(rates['stage'], rates['copy'])):.2f} (goal 0.90)")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("directory")
    options.add_argument("--mib", type=int, default=1024)
    options.add_argument("--mb-a-second", type=float, default=0)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--copy", action="store_true")
    given = options.parse_args()
    top = Path(given.directory)
    top.mkdir(parents=True, exist_ok=True)
    import rankstore
    if not (top / "home" / "dataset.json").exists():
        block = os.urandom(1 << 20)
        rankstore.build(({"id": i, "data": block[i % 1000:] + block[:i % 1000]} for i in range(given.mib)), top / "home",
                        max_shard="128MiB", progress=False).close()
    if given.copy:
        return beside_a_copy(top / "home", top / "out", given.rounds)
    names = {path.name: path.stat().st_size for path in (top / "home").glob("*.rks")}
    rates, costs = {"stage": [], "obstore": [], "rclone": [], "write": []}, {"stage": [], "write": []}
    rows = {"stage": (OURS,), "obstore": (THEIRS, json.dumps(names)), "write": (WRITES, json.dumps(names))}
    with link(given.mb_a_second) as (before, host), server(before, host, top) as address:
        for _ in range(given.rounds):
            for name in rates:
                out = top / "out"
                shutil.rmtree(out, ignore_errors=True)
                time.sleep(HOST_S)
                code, *more = rows.get(name, ("",))
                seconds, used, size = measured(code, f"{address}/home", str(out), *more) if code else rclone(address, out)
                rates[name].append(size / seconds / 1e6)
                if name in costs:
                    costs[name].append(used / size * 1e9)
                print(f"  {name}: {size / 1e6:.0f} MB in {seconds:.2f} s, {rates[name][-1]:.0f} MB/s"
                      + (f", {used / size * 1e9:.2f} s of processor a GB" if used else "") + f", load {os.getloadavg()[0]:.1f}", flush=True)
                shutil.rmtree(out, ignore_errors=True)
    for name in ("obstore", "rclone"):
        ratios = [ours / theirs for ours, theirs in zip(rates["stage"], rates[name])]
        print(f"stage / {name}: {statistics.median(ratios):.2f} (goal 0.90 behind 200 MB/s)")
    more = [ours - writes for ours, writes in zip(costs["stage"], costs["write"])]
    print(f"processor time of the rank beside that of the write alone: {statistics.median(more):.2f} s a GB (goal 0.5 in all)")


if __name__ == "__main__":
    main()
