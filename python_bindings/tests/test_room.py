# SPDX-License-Identifier: Apache-2.0
"""A dataset that is larger than the local disks: room="through" reads at home what has no room, and keeps nothing of it."""
from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from built import COMMAND
from kept_at_home import SAMPLES, SHARDS, Ranks, wait_for_all

import rankstore

SCRIPT = """
import json, os, sys, time
os.environ["RKS_NODE"] = os.environ["RANK"]
import numpy, rankstore
home, local, room, state = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
with rankstore.open(home, local=local, local_room=room, room="through") as ds:
    plan = ds.plan(batch_size=8, seed=3)
    loader = ds.loader(plan)
    if os.path.exists(state):
        loader.load_state_dict(json.load(open(state)))
    ids = []
    for batch in loader:
        ids += batch["i"].tolist()
        assert all(bytes(one)[:1] == bytes([i % 251]) for i, one in zip(batch["i"], batch["data"]))
        if not os.path.exists(state) and batch.step == 4:
            break
    said = loader.state_dict()
    ds.group.barrier()
    if ds.group.rank == 0:
        json.dump(said, open(state, "w"))
    while ds.stats()["arriving_shards"] > 0:
        time.sleep(0.01)
    ds.group.barrier()
    print(json.dumps([ids, ds.stats()["home_bytes"], plan.hash, [int(ds[k]["i"]) for k in (0, 299, 599)]]))
"""


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("**/part-*.rks"))


def names_of(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("**/part-*.rks")}


def test_what_has_no_room_is_read_and_not_kept(home: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    local, room = tmp_path / "local", bytes_of(home) // 3
    with pytest.raises(rankstore.IOFailedError, match=r'no room for .* room="through"'):
        rankstore.open(home, local=local, local_room=room)
    with rankstore.open(home, local=local, local_room=room, room="through") as ds:
        assert [int(ds[i]["i"]) for i in range(SAMPLES)] == list(range(SAMPLES))
        assert ds.view(599)["data"] == bytes([599 % 251]) * (4000 + 599 % 97 * 50)
        wait_for_all(ds)
        found = ds.placement()
    kept = names_of(local)
    assert 0 < len(kept) < SHARDS and bytes_of(local) <= room
    assert f"no room for {SHARDS - len(kept)} of {SHARDS} shards" in capfd.readouterr().err
    assert found["home"] == str(home)
    with rankstore.open(home, local=local, local_room=1, room="through") as ds:     # what is here stays
        assert sum(int(sample["i"]) for sample in ds) == sum(range(SAMPLES)) and ds.stats()["home_bytes"] == 0
    assert names_of(local) == kept
    with rankstore.open(home, local=local, room="through") as ds:                   # there is room now
        assert sum(int(sample["i"]) for sample in ds) == sum(range(SAMPLES))
        wait_for_all(ds)
    assert names_of(local) == names_of(home)


def test_ranks_read_through_and_go_on(home: Path, tmp_path: Path, ranks: Ranks) -> None:
    """Two nodes with room for a quarter each, then three: every sample once, the same plan, and no more than the room is kept."""
    room, seen, digests = bytes_of(home) // 4, [], set()
    for world in (2, 3):
        done = ranks(world, SCRIPT, str(home), str(tmp_path / "l{rank}"), str(room), str(tmp_path / "state"))
        rows = [json.loads(one.stdout.splitlines()[-1]) for one in done]
        seen += [i for row in rows for i in row[0]]
        digests.add(rows[0][2])
        assert all(row[3] == [0, 299, 599] and row[1] <= room * 1.1 for row in rows), rows
        if world == 2:
            assert all(0 < bytes_of(tmp_path / f"l{rank}") <= room for rank in range(2))
            assert names_of(tmp_path / "l0") | names_of(tmp_path / "l1") < names_of(home)
    assert sorted(seen) == list(range(SAMPLES)) and len(digests) == 1


def test_workers_and_a_refresh_read_through(home: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch.utils.data")
    source = tmp_path / "source"
    rankstore.build(({"i": i, "data": b"x" * 3000} for i in range(100)), source, max_shard="64KiB", unit_samples=10).close()
    grown = tmp_path / "grown"
    rankstore.publish(source, grown)
    with rankstore.open(grown, local=tmp_path / "local", local_room="100KiB", room="through") as ds:
        plan = ds.plan(batch_size=10, seed=1)
        loader = torch.DataLoader(ds, batch_sampler=plan.sampler(), num_workers=2, collate_fn=list, multiprocessing_context="forkserver")
        assert sorted(int(sample["i"]) for batch in loader for sample in batch) == list(range(100))
        rankstore.build(({"i": i, "data": b"x" * 3000} for i in range(100, 150)), source, append=True).close()
        rankstore.publish(source, grown)
        assert ds.refresh() and sorted(int(sample["i"]) for sample in ds) == list(range(150))
        wait_for_all(ds)
    assert bytes_of(tmp_path / "local") <= 200 << 10


def test_damage_at_home_names_the_file(home: Path, tmp_path: Path) -> None:
    with rankstore.open(home, local=tmp_path / "local", local_room=1, room="through") as ds:
        ds[0]
    shard = sorted(home.glob("*.rks"))[3]
    with open(shard, "r+b") as file:
        file.seek(100_000)
        file.write(b"\xff" * 64)
    with (rankstore.open(home, local=tmp_path / "local", local_room=1, room="through") as ds,
          pytest.raises(rankstore.CorruptError, match="sample")):
        for i in range(SAMPLES):
            ds[i]
    for path in home.glob(shard.stem + ".*"):
        path.unlink()
    with pytest.raises(rankstore.NotFoundError, match=shard.stem):
        rankstore.open(home, local=tmp_path / "local", local_room=1, room="through")


def test_options(home: Path, tmp_path: Path) -> None:
    with pytest.raises(rankstore.ArgumentError, match='room: \'keep\' is not known; give "error" or "through"'):
        rankstore.open(home, local=tmp_path / "local", room="keep")
    with pytest.raises(rankstore.ArgumentError, match="room: needs local=, a directory"):
        rankstore.open(home, room="through")


def test_the_command_line(home: Path, tmp_path: Path) -> None:
    room = ["--local", str(tmp_path / "local"), "--local-room", "400K"]
    done = subprocess.run([COMMAND, "stats", str(home), *room], capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "no room for" in done.stderr, done.stderr
    done = subprocess.run([COMMAND, "stats", str(home), *room, "--room", "through"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and f"of {SAMPLES} samples" in done.stdout and "are read through, from" in done.stderr, done
