# SPDX-License-Identifier: Apache-2.0
"""What a running job shows: `rankstore top`, and Prometheus text on loopback."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from built import COMMAND, build, command
from ports import free_port

import rankstore

JOB = """
import json, os, sys, time, urllib.request
rank = int(os.environ["RANK"])
if sys.argv[2] == "nodes":
    os.environ["RKS_NODE"] = f"node{rank // 2}"
import rankstore
group = rankstore.init()
with rankstore.open(sys.argv[1], no_share=True, metrics=int(sys.argv[3]) or None) as ds:
    loader = ds.loader(ds.plan("random", batch_size=4, seed=1), collate=rankstore.Lists())
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    group.allgather("test: read", b"")
    if rank == 0:
        import subprocess
        said = subprocess.run([sys.argv[4], "top", "--json"], text=True, capture_output=True)
        with open("top.json", "w") as file:
            file.write(said.stdout + said.stderr)
    if int(sys.argv[3]):
        with urllib.request.urlopen(f"http://127.0.0.1:{int(sys.argv[3]) + rank}/metrics", timeout=400) as reply:
            open(f"metrics{rank}", "wb").write(reply.read())
    group.allgather("test: seen", b"")
    print(json.dumps({**ds.stats(), "pid": os.getpid()}))
group.close()
"""
Ranks = Callable[..., list[subprocess.CompletedProcess[str]]]


def made(tmp_path: Path) -> Path:
    build([{"x": [i] * (i % 9)} for i in range(400)], tmp_path / "out")
    return tmp_path / "out"


def shown(text: str, pids: set[int]) -> list[dict[str, Any]]:
    """The processes of a test among all that run here."""
    return [one for one in json.loads(text)["stores"] if one["process"] in pids]


def test_each_rank_of_each_node_is_listed(ranks: Ranks, tmp_path: Path) -> None:
    done = ranks(4, JOB, str(made(tmp_path)), "nodes", "0", str(COMMAND))
    stats = [json.loads(one.stdout.splitlines()[-1]) for one in done]
    found = shown((tmp_path / "top.json").read_text(), {one["pid"] for one in stats})
    assert [(one["rank"], one["ranks"], one["node"], one["nodes"]) for one in found] == [(i, 4, i // 2, 2) for i in range(4)]
    assert len({one["job"] for one in found}) == 1 and {one["directory"] for one in found} == {str(tmp_path / "out")}
    for one, own in zip(found, stats):
        assert one["process"] == own["pid"] and one["batches"] == 3 and one["step"] == 2 and one["steps"] == 25 and one["epoch"] == 0
        assert 0 < one["ahead"] <= 64
        assert 12 <= one["samples"] <= own["samples"] and one["bytes"] <= own["bytes"]
        assert 0 <= one["waiting"] <= 1 and one["samples_per_second"] >= 0
    assert sum(one["remote_bytes"] for one in found) > 0


def test_prometheus_reads_each_rank_of_a_node(ranks: Ranks, tmp_path: Path) -> None:
    port = free_port(count=2)
    done = ranks(2, JOB, str(made(tmp_path)), "together", str(port), str(COMMAND))
    for rank, one in enumerate(done):
        stats, text = json.loads(one.stdout.splitlines()[-1]), (tmp_path / f"metrics{rank}").read_text()
        values = dict(re.findall(rf'^rankstore_([a-z_]+){{rank="{rank}",node="0",store="[0-9]+",directory="[^"]+"}} ([0-9.]+)$',
                                 text, re.M))
        assert int(values["batches_total"]) == 3 and int(values["step"]) == 2
        assert 12 <= int(values["samples_total"]) <= stats["samples"]
        assert 0 <= float(values["wait_seconds_total"]) <= stats["wait_seconds"]
        named = set(re.findall("# TYPE rankstore_([a-z_]+?)(?:_total)? ", text))
        page = (Path(__file__).parents[2] / "docs/figures.md").read_text()
        assert named <= set(re.findall(r"`([a-z_0-9]+)`", page)), "docs/figures.md has each name"


def get(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=400) as reply:
        return str(reply.read().decode())


def threads() -> list[str]:
    """Names of this process's threads."""
    return [name.read_text().strip() for name in Path("/proc/self/task").glob("*/comm")]


def test_metrics_end_with_the_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, port = made(tmp_path), free_port()
    with rankstore.open(out) as plain, rankstore.open(out, metrics=port) as ds:
        assert list(ds[5]["x"]) == [5] * 5 and plain.stats()["samples"] == 0
        assert len(set(re.findall('rankstore_samples_total{rank="0",node="0",store="([0-9]+)",directory=', get(port)))) == 2
        assert threads().count("rks-metrics") == 1
        with pytest.raises(rankstore.ArgumentError, match=f"metrics: this process serves port {port} already"):
            rankstore.open(out, metrics=port + 1 if port < 65535 else port - 1)
    with pytest.raises(urllib.error.URLError):
        get(port)
    until = time.monotonic() + 100  # a thread that was joined may be in the list for a moment
    while "rks-metrics" in threads() and time.monotonic() < until:
        time.sleep(0.01)
    assert "rks-metrics" not in threads()
    for wrong in (0, -1, 65536, "80", True, 1.5):
        with pytest.raises(rankstore.ArgumentError, match="is not a port; give an int, 1 to 65535"):
            rankstore.open(out, metrics=wrong)  # type: ignore[arg-type]
    monkeypatch.setenv("RKS_METRICS", "many")
    with pytest.raises(rankstore.ArgumentError, match="RKS_METRICS: many is not a port; give 1 to 65535"):
        rankstore.open(out)


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    """The option: an error on all ranks. The variable, which all programs of a job get: a line, and the program goes on."""
    out = made(tmp_path)
    script = """if True:
        import os, socket, sys
        import rankstore
        held = socket.create_server(("127.0.0.1", 0))
        port = held.getsockname()[1]
        try:
            rankstore.open(sys.argv[1], metrics=port)
        except OSError as refused:
            print(refused)
        os.environ["RKS_METRICS"] = str(port)
        with rankstore.open(sys.argv[1]) as ds:
            print(len(ds))"""
    done = subprocess.run([sys.executable, "-c", script, str(out)], text=True, capture_output=True, timeout=400)
    assert re.search("metrics: port [0-9]+ of 127.0.0.1; choose another port: Address already in use\n400\n", done.stdout), done
    assert "Address already in use; this process shows no metrics" in done.stderr


def test_top_says_when_nothing_is_there_and_draws_on_a_terminal(tmp_path: Path) -> None:
    out = made(tmp_path)
    with rankstore.open(out):
        lines = command("top").splitlines()
        job = next(i for i, line in enumerate(lines) if str(out)[-40:] in line)
        assert re.fullmatch(r"job [0-9a-f]{8}, node 0 of 1, 1 rank in all: .*", lines[job])
        assert lines[job + 1].split() == ["rank", "process", "samples/s", "disk", "from", "peers", "to", "peers", "waiting", "ahead",
                                          "epoch", "step"]
        assert lines[job + 2].split()[:3] == ["0", str(os.getpid()), "0"]
        import pty
        master, slave = pty.openpty()
        drawn = subprocess.Popen([str(COMMAND), "top", "--count", "2"], stdout=slave, stdin=subprocess.DEVNULL)
        os.close(slave)
        text = b""
        try:
            while piece := os.read(master, 65536):
                text += piece
        except OSError:  # EIO: its end
            pass
        os.close(master)
        assert drawn.wait() == 0
        assert text.count(b"\x1b[H\x1b[J") == 2 and b"every 1 s; Ctrl-C ends it" in text
    done = subprocess.run([str(COMMAND), "top"], text=True, capture_output=True, timeout=400)
    if not done.stdout:  # no other program of this machine runs either
        assert done.returncode == 1 and "no process of yours on this machine has a dataset open" in done.stderr
