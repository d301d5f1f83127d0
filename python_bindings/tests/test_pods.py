# SPDX-License-Identifier: Apache-2.0
"""The program of the page "Training scripts" in pods of one machine: each has a network, a host name, a /tmp, a small /dev/shm and a volume
of its own, and none is told what a node is (Kubernetes on the page "Many nodes")."""
from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paged
import pytest

import rankstore

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
support = pytest.importorskip("support.nodes")
report = pytest.importorskip("support.report")
pytest.importorskip("torch")

BLOCKS = paged.blocks_of(Path(__file__).parents[1] / "docs" / "training.md")
PROGRAM = next(block.text for block in BLOCKS if block.how == "save=train.py")
INPUT = next(block.text for block in BLOCKS if block.language == "python")
OPENS = """
import rankstore
with rankstore.open("shared/chats", local="nvme/rks") as ds:
    print(sum(len(batch.ids) for batch in ds.loader(ds.plan(batch_size=8))), ds.stats()["home_bytes"])
"""
# The volume is bound over the folder nvme.
POD = """
mount --bind "$0" /mnt && mount --bind "$0/disk$1" /mnt/nvme && mount -t tmpfs -o size=16m none /tmp &&
mount -t tmpfs -o size=64k none /dev/shm && hostname "pod-$1" && cd /mnt && shift && exec "$@"
"""


class Pods(support.Nodes):  # type: ignore[misc]
    """Pods on one bridge. They find rank 0 by MASTER_ADDR, as an operator sets it."""

    def start(self, nodes: list[int], *command: str, **environ: str) -> list[subprocess.Popen[str]]:
        running = []
        for rank, node in enumerate(nodes):
            own = {**os.environ, **environ, "RANK": str(rank), "WORLD_SIZE": str(len(nodes)), "LOCAL_RANK": "0", "OMP_NUM_THREADS": "1",
                   "MASTER_ADDR": f"10.77.0.{nodes[0] + 1}", "MASTER_PORT": "29500", "GLOO_SOCKET_IFNAME": "eth0"}
            own.pop("RKS_NODE", None)
            running.append(subprocess.Popen(
                ["ip", "netns", "exec", self.names[node], "unshare", "-m", "-u", "-i", "--propagation", "private", "sh", "-c", POD,
                 self.work, str(node), *command], env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return running


@pytest.fixture
def pods() -> Iterator[Any]:
    if any(os.path.realpath(one).startswith("/tmp/") for one in (rankstore.__file__, sys.prefix)):
        pytest.skip("the checkout lies in /tmp, which containers with a /tmp of their own do not see")
    try:
        with Pods(3) as made:
            yield made
    except report.Skip:
        pytest.skip("needs root and namespaces of its own")


def test_pods_are_nodes(pods: Any) -> None:
    work = Path(pods.work)
    subprocess.run([sys.executable, "-c", INPUT], cwd=work, check=True, timeout=400)
    (work / "train.py").write_text(PROGRAM)
    said, errors = pods.run([0, 1], sys.executable, "train.py")
    assert said.count("epoch 1") == 2, said
    assert errors.count("are on one machine but cannot share memory") == 1, errors
    # The next job has another pod, whose volume is empty.
    (work / "train.py").write_text(OPENS)
    said, _ = pods.run([2], sys.executable, "train.py")
    samples, brought = map(int, said.split())
    assert samples == 600 and brought > 0
