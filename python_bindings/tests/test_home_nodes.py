# SPDX-License-Identifier: Apache-2.0
"""The life of a dataset that has a home, on nodes with networks and disks of their own: built by four nodes, trained on the same ones, on
fewer, on more, with a wiped disk, and after a node died in mid-epoch. Each job goes on from the saved state.

As a program it prints what each job found and read: PYTHONPATH=SITE python3 test_home_nodes.py (needs root)."""
from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
support = pytest.importorskip("support.nodes")
report = pytest.importorskip("support.report")

SAMPLES, STEPS = 8000, 5
HOME_MORE = 1.02  # the heads of shards, and the first records, may come twice
BUILD = """
import sys
import rankstore
rows = ({"i": i, "data": bytes([i % 251]) * (3000 + i % 97 * 20)} for i in range(int(sys.argv[3])))
with rankstore.build(rows, sys.argv[1], home=sys.argv[2], max_shard="4MiB", unit_samples=250, same_on_all=True) as ds:
    print(len(ds))
"""
# Trains so many steps, saves the state, and says what it has seen until then; then it ends, or goes on until a node dies.
TRAIN = """
import json, os, signal, sys, time
import rankstore
home, local, state, steps, dies = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
with rankstore.open(home, local=local) as ds:
    plan = ds.plan(batch_size=64, seed=3)
    loader = ds.loader(plan)
    if os.path.exists(state):
        loader.load_state_dict(json.load(open(state)))
    ids, count, saved = [], 0, False
    def said():
        ds.group.barrier()
        if ds.group.rank == 0:
            json.dump(loader.state_dict(), open(state, "w"))
        while dies == "" and ds.stats()["arriving_shards"] > 0:
            time.sleep(0.01)
        ds.group.barrier()
        print(json.dumps([ids, ds.stats()["home_bytes"], plan.hash]), flush=True)
        return True
    for batch in loader:
        count += 1
        if not saved:
            ids += batch["i"].tolist()
        if not saved and count == steps:
            saved = said()
            if dies == "":
                break
        if count == steps + 2 and os.environ["RKS_NODE"] == dies:
            os.kill(os.getpid(), signal.SIGKILL)
        ds.group.barrier()
    if not saved:
        said()
"""


class Life:
    """A dataset, its home, and the samples that its jobs have read."""

    def __init__(self, nodes: Any) -> None:
        self.nodes = nodes
        self.home, self.state = f"{nodes.work}/home", f"{nodes.work}/state.json"
        self.local = f"{nodes.disk}/rks"
        self.seen: list[int] = []
        self.digests: set[str] = set()
        self.jobs: list[tuple[str, int, int, int]] = []  # what, nodes, bytes that none of them had, bytes read from home

    def build(self, on: list[int]) -> None:
        out, _ = self.nodes.run(on, sys.executable, "-c", BUILD, f"{self.local}/speech", self.home, str(SAMPLES))
        assert out.split() == [str(SAMPLES)] * len(on)

    def held(self, node: int) -> set[str]:
        return {path.name for path in Path(f"{self.nodes.work}/disk{node}/rks").glob("*/part-*.rks")}

    def lost(self, on: list[int]) -> int:
        """Bytes of the shards that none of these nodes has."""
        here = set().union(*(self.held(node) for node in on))
        return sum(path.stat().st_size for path in Path(self.home).glob("part-*.rks") if path.name not in here)

    def train(self, what: str, on: list[int], steps: int = STEPS, dies: str = "") -> int:
        """Returns the bytes that the job has read from home: those that no node had, and little more."""
        lost = self.lost(on)
        running = self.nodes.start(on, sys.executable, "-c", TRAIN, self.home, self.local, self.state, str(steps), dies)
        said, errors = self.nodes.end(running)
        codes = [one.returncode for one in running]
        assert all(code == 0 for code in codes) if dies == "" else 0 not in codes, (codes, errors)
        rows = [json.loads(text.splitlines()[-1]) for text in said]
        self.seen += [i for row in rows for i in row[0]]
        self.digests |= {row[2] for row in rows}
        read = sum(row[1] for row in rows)
        self.jobs.append((what, len(on), lost, read))
        assert lost <= read <= HOME_MORE * lost, self.jobs[-1]
        return read

    def ends(self) -> None:
        assert sorted(self.seen) == list(range(SAMPLES)), len(self.seen)
        assert len(self.digests) == 1, self.digests  # the same plan, whatever the nodes


def other_nodes(life: Life) -> None:
    """The same nodes, two of them, six of which two are empty, and two with a wiped disk: only what nobody has is read from home."""
    life.build([0, 1, 2, 3])
    assert life.train("the nodes that built it", [0, 1, 2, 3]) == 0
    assert life.train("two of them", [0, 1]) > 0
    assert life.train("six, of which two are empty", [5, 0, 1, 2, 3, 4]) == 0
    shutil.rmtree(f"{life.nodes.work}/disk1/rks")
    shutil.rmtree(f"{life.nodes.work}/disk0/rks")
    assert life.train("two disks wiped", [3, 1, 0, 2], SAMPLES) > 0
    life.ends()


def dying_node(life: Life, copies: int) -> None:
    life.build([0, 1, 2, 3])
    if copies == 2:
        stage = "import sys, rankstore; rankstore.stage(sys.argv[1], sys.argv[2], copies=2)"
        life.nodes.run([0, 1, 2, 3], sys.executable, "-c", stage, life.home, life.local)
    life.train(f"copies={copies}: a node dies", [0, 1, 2, 3], dies="n3")
    read = life.train(f"copies={copies}: the others go on", [0, 1, 2], SAMPLES)
    assert (read > 0) == (copies == 1)
    life.ends()


@pytest.fixture
def life() -> Iterator[Life]:
    try:
        with support.Nodes(6) as nodes:
            yield Life(nodes)
    except report.Skip:
        pytest.skip("needs root and namespaces of its own")


def test_jobs_on_other_nodes_go_on(life: Life) -> None:
    other_nodes(life)


@pytest.mark.parametrize("copies", [1, 2])
def test_a_node_dies_in_mid_epoch(life: Life, copies: int) -> None:
    dying_node(life, copies)


def main() -> None:
    for work in (other_nodes, lambda life: dying_node(life, 1), lambda life: dying_node(life, 2)):
        with support.Nodes(6) as nodes:
            life = Life(nodes)
            work(life)
            for what, count, lost, read in life.jobs:
                print(f"{what:<32} {count} nodes   none of them had {lost / 1e6:7.2f} MB   read from home {read / 1e6:7.2f} MB")
    print("each job went on from the saved state; every sample came exactly once, by one plan")


if __name__ == "__main__":
    main()
