# SPDX-License-Identifier: Apache-2.0
"""Ranks, threads and workers that read a dataset while it arrives from home over a slow link."""
from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from kept_at_home import SAMPLES, Ranks

NEIGHBOURS = """
import json, sys, time
import numpy, torch, rankstore
home, local, share = sys.argv[1], sys.argv[2], sys.argv[3] == "share"
with rankstore.open(home, local=local, no_share=not share) as ds:
    loader = ds.loader(ds.plan(batch_size=8, seed=3))
    came = [ds.stats()["arriving_shards"]]
    ids, remote = [], []
    for epoch in range(2):
        ids.append([i for batch in loader for i in batch["i"].tolist()])
        came.append(ds.stats()["arriving_shards"])
        while ds.stats()["arriving_shards"] > 0:
            time.sleep(0.01)
        remote.append(ds.stats()["remote_bytes"])
        ds.group.barrier()
    print(json.dumps([ids, remote, [int(ds[k]["i"]) for k in (0, 299, 599)], came]))
"""


@pytest.mark.parametrize("share", ["share", "alone"])
def test_ranks_of_a_node_read_what_neighbours_bring(home: Path, tmp_path: Path, ranks: Ranks, slowed: dict[str, str], share: str) -> None:
    """Until a sample is here, the rank that brings it is asked; then it is read from the file."""
    done = [json.loads(one.stdout.splitlines()[-1]) for one in
            ranks(3, NEIGHBOURS, str(home), str(tmp_path / "l"), share, env=slowed, warm=None)]
    for epoch in range(2):
        assert sorted(i for one in done for i in one[0][epoch]) == list(range(SAMPLES))
    assert all(one[2] == [0, 299, 599] and one[3][0] > 0 and one[3][-1] == 0 for one in done), [one[3] for one in done]
    first, asked = [one[1][0] for one in done], [one[1][1] - one[1][0] for one in done]
    assert min(first) > 0 and (asked == [0, 0, 0] if share == "share" else min(asked) > 0), (first, asked)


ASIDE = """
import json, os, sys, threading
os.environ["RKS_NODE"] = os.environ["RANK"]
import rankstore
home, local = sys.argv[1:]
with rankstore.open(home, local=local) as ds:
    theirs = [i for i in range(len(ds)) if ds.store.owner(i) == 0]
    if ds.group.rank == 1:
        here, got = theirs[0], {}
        key = ds.keys[here]
        first = int(ds[here]["i"])
        def ask(i):
            got[i] = int(ds[i]["i"])
        threads = [threading.Thread(target=ask, args=(i,)) for i in theirs[-64:]]
        for thread in threads:
            thread.start()
        found = ds.keys.find(key), int(ds.get(key)["i"])
        waiting = sum(thread.is_alive() for thread in threads)
        for thread in threads:
            thread.join()
        print(json.dumps([found == (here, first), waiting, all(got[i] == i for i in theirs[-64:])]), flush=True)
    ds.group.barrier()
"""


def test_a_key_is_answered_while_requests_wait_for_home(home: Path, tmp_path: Path, ranks: Ranks, slowed: dict[str, str]) -> None:
    """The owner puts aside what is still to come, so no thread of it waits, and what it has is served meanwhile."""
    slowed["SLOW_MB"] = "0.3"
    done = ranks(2, ASIDE, str(home), str(tmp_path / "l{rank}"), env=slowed, warm=None)
    right, waiting, all_right = json.loads(done[1].stdout.splitlines()[-1])
    assert right and all_right and waiting >= 32, (right, waiting, all_right)


WORKERS = """
import json, sys, time
import torch, rankstore
home, local = sys.argv[1:]
with rankstore.open(home, local=local) as ds:
    loader = torch.utils.data.DataLoader(ds, batch_size=8, num_workers=2, persistent_workers=True, shuffle=True,
                                         collate_fn=lambda rows: [row["i"] for row in rows])
    came, asked = [ds.stats()["arriving_shards"]], []
    for epoch in range(3):
        assert sorted(i for batch in loader for i in batch) == list(range(600))
        while ds.stats()["arriving_shards"] > 0:
            time.sleep(0.1)
        time.sleep(0.6)  # longer than the parent goes between its looks
        asked.append(ds.stats()["samples"])
    print(json.dumps([came, asked]))
"""


def test_workers_open_shards_when_all_have_come(home: Path, tmp_path: Path, ranks: Ranks, slowed: dict[str, str]) -> None:
    [done] = ranks(1, WORKERS, str(home), str(tmp_path / "l"), env=slowed, warm=None)
    came, asked = json.loads(done.stdout.splitlines()[-1])
    assert came[0] > 0 and asked[0] > 0 and asked[2] == asked[1], (came, asked)


LOST = """
import json, os, signal, sys
os.environ["RKS_NODE"] = os.environ["RANK"]
import mmap, struct, time
import torch, rankstore
home, local, link = sys.argv[1:]
rankstore.init(silence=3)
lost = os.environ["RANK"] == "1"
ds = rankstore.open(home, local=local, **({"local_room": "1"} if lost else {}))  # it brings nothing that others could miss
plan = ds.plan(batch_size=8, seed=3)
ds.group.barrier()
if lost:
    with open(link, "r+b") as file, mmap.mmap(file.fileno(), 8) as map:  # nothing more comes: the link is free again in an hour
        map[:8] = struct.pack("<Q", time.monotonic_ns() + 3600 * 10**9)
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGKILL)
begin, said = time.monotonic(), ""
try:
    while True:
        {read}
except rankstore.PeerError as error:
    said = str(error)
print(json.dumps([time.monotonic() - begin, said]), flush=True)
time.sleep(5)  # else another one may miss this one first
os._exit(0)
"""


@pytest.mark.parametrize("read", ["ds[i] for i in range(600)", "batch for batch in ds.loader(plan)", "ds.view(i) for i in range(600)"])
def test_a_lost_rank_is_heard_while_home_is_waited_for(home: Path, tmp_path: Path, ranks: Ranks, slowed: dict[str, str], read: str) -> None:
    """Home gives nothing more, and is waited for up to five minutes; a rank that is lost meanwhile is named well before."""
    slowed["SLOW_MB"] = "0.5"
    script = LOST.replace("{read}", f"[{read}]")
    done = ranks(3, script, str(home), str(tmp_path / "l{rank}"), slowed["SLOW_BUCKET"], env=slowed, warm=None, check=False)
    assert done[1].returncode == -9
    for rank in (0, 2):
        assert done[rank].returncode == 0, done[rank].stderr
        took, said = json.loads(done[rank].stdout.splitlines()[-1])
        assert re.search(r"^rank \d", said), said
        assert took < 120, said
