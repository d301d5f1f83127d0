# SPDX-License-Identifier: Apache-2.0
"""A dataset that is kept at a home and opened from local directories: jobs on the same nodes, on fewer, on more, after losses, and without
home. Each rank is a node with a local directory of its own."""
from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kept_at_home import SAMPLES, SHARDS, Ranks, wait_for_all

import rankstore

TWICE = 65536
SCRIPT = """
import json, os, sys
os.environ["RKS_NODE"] = os.environ["RANK"]
import glob, time
import numpy, torch, rankstore
home, local, more, state = sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]
SHARDS = 12
lost = more.pop("lost", False)
with rankstore.open(home, local=local, **more) as ds:
    plan = ds.plan(batch_size=8, seed=3)
    loader = ds.loader(plan)
    if state != "" and os.path.exists(state):
        loader.load_state_dict(json.load(open(state)))
    ids = []
    for batch in loader:
        ids += batch["i"].tolist()
        if state != "" and not os.path.exists(state) and batch.step == 4:
            break
    if state != "" and not os.path.exists(state):
        said = loader.state_dict()
        ds.group.barrier()
        if ds.group.rank == 0:
            json.dump(said, open(state, "w"))
    while ds.stats()["arriving_shards"] > 0:
        time.sleep(0.01)
    copies = more.get("copies", 1)  # further ones are made beside the job
    while copies > 1 and not lost and ds.group.rank == 0 and len(glob.glob(f"{os.path.dirname(local)}/l*/*/part-*.json")) < copies * SHARDS:
        time.sleep(0.01)
    ds.group.barrier()
    rows = [int(ds[k]["i"]) for k in (0, 299, 599)]
    print(json.dumps([ids, ds.stats()["home_bytes"], plan.hash, rows]))
"""


def once(found: int, expected: int) -> bool:
    """Each byte came once; those of the shards' heads, and of the first records, perhaps twice: alone and with their pieces."""
    return expected <= found <= expected + SHARDS * TWICE


def shard_bytes(home: Path) -> int:
    return sum(path.stat().st_size for path in home.glob("part-*.rks"))


def held_bytes(local: Path) -> int:
    """Of whole shards, in a rank's local directory."""
    return sum(path.stat().st_size for path in local.glob("*/part-*.rks"))


class Job:
    """What a job's ranks read."""

    def __init__(self, ranks: Ranks, world: int, home: Path | str, local: Path | str, state: str = "", **more: Any) -> None:
        done = ranks(world, SCRIPT, str(home), str(local), json.dumps(more), state, warm=["import rankstore"])
        rows = [json.loads(one.stdout.splitlines()[-1]) for one in done]
        self.said = "".join(one.stderr for one in done)
        self.ids = sorted(i for row in rows for i in row[0])
        self.brought = [row[1] for row in rows]
        self.digest = rows[0][2]
        assert all(row[2:] == [self.digest, [0, 299, 599]] for row in rows)


def test_nodes_keep_what_has_come(home: Path, tmp_path: Path, ranks: Ranks) -> None:
    """The same nodes, fewer, more, a wiped disk: every sample once, and only what is lost is read from home."""
    whole = list(range(SAMPLES))
    local = tmp_path / "l{rank}"
    first = Job(ranks, 4, home, local)
    assert first.ids == whole and once(sum(first.brought), shard_bytes(home)) and max(first.brought) < shard_bytes(home) // 2
    again = Job(ranks, 4, home, local)
    assert (again.ids, again.brought, again.digest) == (whole, [0] * 4, first.digest)
    lost = held_bytes(tmp_path / "l2") + held_bytes(tmp_path / "l3")
    fewer = Job(ranks, 2, home, local)
    assert fewer.ids == whole and once(sum(fewer.brought), lost)
    more = Job(ranks, 6, home, local)
    assert (more.ids, more.brought) == (whole, [0] * 6)
    for rank in range(2, 6):
        shutil.rmtree(tmp_path / f"l{rank}")
    shutil.rmtree(tmp_path / "l1")
    lost = shard_bytes(home) - held_bytes(tmp_path / "l0")
    wiped = Job(ranks, 4, home, local)
    assert wiped.ids == whole and once(sum(wiped.brought), lost)


def test_a_lost_node_costs_nothing_with_two_copies(home: Path, tmp_path: Path, ranks: Ranks) -> None:
    local, state = tmp_path / "l{rank}", str(tmp_path / "state.json")
    first = Job(ranks, 3, home, local, state, copies=2)
    assert once(sum(first.brought), shard_bytes(home))  # the second copies come from the ranks that have the first
    shutil.rmtree(tmp_path / "l2")
    home.rename(home.parent / "away")
    rest = Job(ranks, 2, home, local, state, copies=2, lost=True)
    assert sorted(first.ids + rest.ids) == list(range(SAMPLES)) and rest.brought == [0, 0]
    assert "no dataset here; what " in rest.said and "holds of it opens" in rest.said


STAGE = """
import json, os, sys
os.environ["RKS_NODE"] = os.environ["RANK"]
import rankstore
report = rankstore.stage(sys.argv[1], sys.argv[2], **json.loads(sys.argv[3]))
print(json.dumps([report.wanted_bytes, report.bytes, report.home_bytes]))
"""


@pytest.mark.parametrize("options", [{"copies": 2}, {"everywhere": True}])
def test_each_byte_leaves_home_once(home: Path, tmp_path: Path, ranks: Ranks, options: dict[str, Any]) -> None:
    done = [json.loads(one.stdout.splitlines()[-1]) for one in
            ranks(3, STAGE, str(home), str(tmp_path / "l{rank}"), json.dumps(options), warm=["import rankstore"])]
    copies = options.get("copies", 3)
    assert all(one[0] == copies * one[1] and once(one[2], shard_bytes(home)) for one in done), done
    for path in home.glob("part-*.rks"):
        found = list(tmp_path.glob(f"l*/*/{path.name}"))
        assert len(found) == copies and all(one.read_bytes() == path.read_bytes() for one in found)


BUILD = """
import json, os, shutil, sys
os.environ["RKS_NODE"] = os.environ["RANK"]
import rankstore
from rankstore import NotFoundError
directory, copies, lose = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "lose"
rank = int(os.environ["RANK"])
if lose:
    if rank == 2:
        shutil.rmtree(directory.replace("{rank}", "2"))
    try:
        with rankstore.open(directory) as ds:
            print(json.dumps(sorted(int(ds[i]["i"]) for i in range(600))))
    except NotFoundError as error:
        print(json.dumps(str(error)))
else:
    rows = ({"i": i, "data": bytes([i % 251]) * (4000 + i % 97 * 50)} for i in range(600))
    with rankstore.build(rows, directory, copies=copies, max_shard="256KiB", unit_samples=20, same_on_all=True) as ds:
        print(json.dumps(ds.id if hasattr(ds, "id") else ""))
"""


@pytest.mark.parametrize("copies", [1, 2])
def test_a_build_makes_copies_between_its_nodes(tmp_path: Path, ranks: Ranks, copies: int) -> None:
    """Without a home: with two copies a node may be lost; the same call again, or an opening, finds them."""
    directory = str(tmp_path / "n{rank}")
    for _ in range(2):
        ranks(3, BUILD, directory, str(copies), "", warm=["import rankstore"])
    shards = {path.name for path in tmp_path.glob("n*/part-*.rks")}
    assert all(len(list(tmp_path.glob(f"n*/{name}"))) == copies for name in shards) and len(shards) >= 12
    done = [json.loads(one.stdout.splitlines()[-1]) for one in ranks(3, BUILD, directory, str(copies), "lose", warm=["import rankstore"])]
    assert done == [list(range(SAMPLES))] * 3 if copies == 2 else all("on no rank's disk" in one for one in done), done


BELOW = """
import json, os, sys
os.environ["RKS_NODE"] = os.environ["RANK"]
import rankstore
home, local = sys.argv[1], sys.argv[2]
rows = ({"i": i, "data": bytes([i % 251]) * (4000 + i % 97 * 50)} for i in range(600))
rankstore.build(rows, local + "/speech", home=home, max_shard="256KiB", unit_samples=20, same_on_all=True).close()
with rankstore.open(home, local=local) as ds:
    assert ds.stats()["arriving_shards"] == 0
    read = sorted(int(ds[i]["i"]) for i in range(600)) == list(range(600))
    ds.group.barrier()
    print(json.dumps([read, ds.stats()["home_bytes"]]))
"""


def test_shards_built_below_the_local_directory_are_linked(tmp_path: Path, ranks: Ranks) -> None:
    """Nodes that built the dataset and published it read nothing from home; one that lost its folder reads its part again, once."""
    home, local = tmp_path / "home", str(tmp_path / "l{rank}")
    done = [json.loads(one.stdout.splitlines()[-1]) for one in ranks(2, BELOW, str(home), local, warm=["import rankstore"])]
    assert done == [[True, 0], [True, 0]], done
    for path in home.glob("part-*.rks"):
        [built] = tmp_path.glob(f"l*/speech/{path.name}")
        [linked] = built.parents[1].glob(f"[!s]*/{path.name}")
        assert built.samefile(linked) and not linked.is_symlink()
    lost = held_bytes(tmp_path / "l1") // 2  # each file counts twice
    assert 0 < lost < shard_bytes(home)
    shutil.rmtree(tmp_path / "l1")
    again = Job(ranks, 2, home, local)
    assert again.ids == list(range(SAMPLES)) and once(sum(again.brought), lost)
    counted = rankstore.prune_local(tmp_path / "l0", dry_run=True)
    assert counted.shards > 0 and counted.bytes < 65536 * counted.shards, counted  # the other name keeps the shards' room
    shutil.rmtree(tmp_path / "l0" / "speech")  # the other name stays
    assert rankstore.prune_local(tmp_path / "l0", dry_run=True).bytes > held_bytes(tmp_path / "l0")
    last = Job(ranks, 2, home, local)
    assert (last.ids, last.brought) == (again.ids, [0, 0])


def test_a_lost_node_s_shards_are_read_again(home: Path, tmp_path: Path, ranks: Ranks) -> None:
    local, state = tmp_path / "l{rank}", str(tmp_path / "state.json")
    first = Job(ranks, 3, home, local, state)
    lost = shard_bytes(home) - held_bytes(tmp_path / "l0") - held_bytes(tmp_path / "l1")
    shutil.rmtree(tmp_path / "l2")
    rest = Job(ranks, 2, home, local, state)
    assert sorted(first.ids + rest.ids) == list(range(SAMPLES)) and once(sum(rest.brought), lost)


def test_home_is_away_and_shards_lack(home: Path, tmp_path: Path) -> None:
    rankstore.stage(home, tmp_path / "l")
    away = home.rename(home.parent / "away")
    with rankstore.open(home, local=tmp_path / "l") as ds:
        assert ds[599]["i"] == 599
    next((tmp_path / "l").glob("*/part-*.json")).unlink()
    next((tmp_path / "l").glob("*/part-*.rks")).unlink()
    with pytest.raises(rankstore.NotFoundError, match="kept/tokens"):
        rankstore.open(home, local=tmp_path / "l").close()
    away.rename(home)
    rankstore.open(home, local=tmp_path / "l").close()


def test_home_is_away_and_the_dataset_that_was_opened_last_opens(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for number in (1, 2, 1):
        shutil.rmtree(home, ignore_errors=True)
        rankstore.build([{"i": number}], home).close()
        with rankstore.open(home, local=tmp_path / "l") as ds:
            assert ds[0]["i"] == number
            wait_for_all(ds)
    home.rename(tmp_path / "away")
    with rankstore.open(home, local=tmp_path / "l") as ds:
        assert ds[0]["i"] == 1


def test_an_append_brings_what_is_new(home: Path, tmp_path: Path) -> None:
    with rankstore.open(home, local=tmp_path / "l") as ds:
        assert list(ds.loader(ds.plan(batch_size=50)))
        wait_for_all(ds)
        assert once(ds.stats()["home_bytes"], shard_bytes(home))
        before = shard_bytes(home)
        rankstore.build([{"i": i, "data": b"x" * 5000} for i in range(600, 650)], home, append=True, unit_samples=20).close()
        assert ds.refresh() and len(ds) == 650 and ds[649]["i"] == 649
        wait_for_all(ds)
        assert once(ds.stats()["home_bytes"], shard_bytes(home) - before)
    assert len(list((tmp_path / "l").iterdir())) == 1
    with rankstore.open(f"{home}@1", local=tmp_path / "l") as ds:
        assert len(ds) == SAMPLES and ds.stats()["home_bytes"] == 0
    with rankstore.open([home, f"{home}@1"], names=["a", "b"], local=tmp_path / "l") as ds:
        assert len(ds) == 650 + SAMPLES and ds.stats()["home_bytes"] == 0


def test_a_local_directory_is_a_dataset(home: Path, tmp_path: Path) -> None:
    rankstore.open(home, local=tmp_path / "l").close()
    [folder] = (tmp_path / "l").iterdir()
    assert json.loads((folder / "home.json").read_text()) == {"home": str(home), "schema_version": 1}
    rankstore.stage(home, tmp_path / "l")
    with rankstore.open(folder) as ds:
        assert len(ds) == SAMPLES
    next(folder.glob("part-*.json")).unlink()
    with pytest.raises(rankstore.NotFoundError, match=f"1 of {SHARDS} shards .* local copy: without `missing` .* from its home, .*{home}"):
        rankstore.open(folder, missing="error")
    with rankstore.open(folder) as ds:
        assert ds.stats()["home_bytes"] > 0 and sorted(int(ds[i]["i"]) for i in range(SAMPLES)) == list(range(SAMPLES))
        wait_for_all(ds)
    with rankstore.open(folder, missing="error") as ds:
        assert ds.stats()["home_bytes"] == 0
    for name in (f"file://{folder}", folder):
        lost = next(folder.glob("part-*.json"))
        lost.unlink()
        if name != folder:
            rankstore.open(name).close()
            rankstore.stage(home, tmp_path / "l")
    home.rename(home.parent / "away")
    with pytest.raises(rankstore.NotFoundError, match=f"{home}/{lost.stem}.rks: no such file|{home}"):
        rankstore.open(folder)


def test_workers_read_local_directories(home: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with rankstore.open(home, local=tmp_path / "l") as ds:
        loader = torch.utils.data.DataLoader(ds, batch_size=50, num_workers=2, collate_fn=lambda rows: [row["i"] for row in rows])
        assert sorted(i for batch in loader for i in batch) == list(range(SAMPLES))


def test_parts_that_do_not_fit(home: Path, tmp_path: Path) -> None:
    with pytest.raises(rankstore.IOFailedError, match=r"no room for .* MB of .* MB of shards; 1 local directory has room for 1\.0 MB more"):
        rankstore.open(home, local=tmp_path / "l", local_room="1MiB")
    assert not list((tmp_path / "l").glob("*/part-*"))


def test_stage_brings_all_ahead_of_a_job(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int, int]] = []
    report = rankstore.stage(home, tmp_path / "l", progress=lambda phase, done, total, samples: seen.append((phase, done, total)))
    assert (report.shards, report.places, report.here_bytes) == (SHARDS, 1, 0) and report.wanted_bytes == report.bytes
    assert once(report.home_bytes, shard_bytes(home))
    assert all(phase == "stage" and done <= total for phase, done, total in seen)
    again = rankstore.stage(home, tmp_path / "l", everywhere=True)
    assert (again.here_bytes, again.home_bytes, again.dataset, again.generation) == (report.bytes, 0, report.dataset, 1)
    with rankstore.open(home, local=tmp_path / "l") as ds:
        assert ds.stats()["home_bytes"] == 0 and ds[0]["i"] == 0
    monkeypatch.chdir(home.parent)
    rankstore.stage("tokens", "../m")
    [folder] = (tmp_path / "m").iterdir()
    assert json.loads((folder / "home.json").read_text())["home"] == str(home)
    with pytest.raises(rankstore.ArgumentError, match="copies: 0 is not"):
        rankstore.stage(home, tmp_path / "l", copies=0)
    with pytest.raises(rankstore.NotFoundError, match="nowhere"):
        rankstore.stage(tmp_path / "nowhere", tmp_path / "l")


def test_options_that_do_not_go_together(home: Path, tmp_path: Path) -> None:
    for options, said in [
            ({"copies": 2}, "copies: needs local="), ({"local_room": 5}, "local_room: needs local="),
            ({"local": tmp_path / "l", "copies": 0}, "copies: 0 is not a number of nodes"),
            ({"local": tmp_path / "l", "missing": "partial"}, '"partial" goes without `local`'),
            ({"local": tmp_path / "l", "shards": ["/x"]}, "goes without `shards`"),
            ({"missing": "fetch"}, '"fetch" needs `local`')]:
        with pytest.raises(rankstore.ArgumentError, match=said):
            rankstore.open(home, **options)


def test_damage_at_home_is_an_error_that_names_it(home: Path, tmp_path: Path) -> None:
    shard = sorted(home.glob("part-*.rks"))[0]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(rankstore.CorruptError, match=f"{shard}: the MiB at offset 0 is not the one that was published"):
        rankstore.stage(home, tmp_path / "l")  # an opening waits for heads alone
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    rankstore.open(home, local=tmp_path / "l").close()


def test_a_job_goes_on_when_home_is_mended(tmp_path: Path) -> None:
    """Damage at home fails the samples of that MiB alone, and they can be read once home is mended; so does a home that comes back."""
    home = tmp_path / "home"
    rankstore.build(({"i": i, "data": bytes([i % 251]) * 4000} for i in range(SAMPLES)), home).close()
    [shard] = home.glob("*.rks")
    data = bytearray(shard.read_bytes())
    with open(shard, "r+b") as file:  # in place: a home that is replaced is another error
        file.seek(len(data) // 2)
        file.write(bytes([data[len(data) // 2] ^ 1]))
    with rankstore.open(home, local=tmp_path / "l") as ds:
        failed = []
        for i in range(SAMPLES):
            try:
                assert ds[i]["i"] == i
            except rankstore.CorruptError as error:
                assert f"{shard.name}: the MiB at offset 1048576 is not the one that was published" in str(error)
                failed.append(i)
        assert 1 <= len(failed) <= 300
        with open(shard, "r+b") as file:
            file.write(data)
        assert all(ds[i]["i"] == i for i in range(SAMPLES))


IN_USE = """
import os, sys
import rankstore
ds = rankstore.open(sys.argv[1], **({"local": sys.argv[2]} if len(sys.argv) > 2 else {}))
until, end = os.pipe()
child = os.fork()  # a worker, which lives as long as this process
if child == 0:
    os.close(end)
    os.read(until, 1)
    os._exit(0)
print(os.getpid(), flush=True)
sys.stdin.readline()
ds.close()
print("closed", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["home", "local"])
def test_shards_in_use_stay(home: Path, tmp_path: Path, how: str) -> None:
    """Whoever has the dataset open keeps its shards, until it closes it: forked workers of an open dataset that was closed do not."""
    rankstore.stage(home, tmp_path / "l")
    [folder] = (tmp_path / "l").iterdir()
    opens = [home, tmp_path / "l"] if how == "home" else [folder]
    with subprocess.Popen([sys.executable, "-c", IN_USE, *opens], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None and other.stdout is not None
        pid = other.stdout.readline().strip()
        for dry in (True, False):
            with pytest.raises(rankstore.StateError, match=f"a process has it open; the last one that opened it is pid {pid} on "):
                rankstore.prune_local(tmp_path / "l", dry_run=dry)
        assert len(list(folder.glob("part-*.rks"))) == SHARDS
        other.stdin.write("\n")
        other.stdin.flush()
        assert other.stdout.readline() == "closed\n"
        assert rankstore.prune_local(tmp_path / "l").shards == SHARDS
        other.stdin.close()
    assert sorted(one.name for one in folder.iterdir()) == ["dataset.json", "home.json", "open.lock"]
    with rankstore.open(home, local=tmp_path / "l") as ds:
        assert ds[599]["i"] == 599
        with pytest.raises(rankstore.StateError, match="has it open"):
            rankstore.prune_local(folder)


def test_what_home_lacks_stays(home: Path, tmp_path: Path) -> None:
    rankstore.stage(home, tmp_path / "l")
    [folder] = (tmp_path / "l").iterdir()
    there = sorted(one.name for one in folder.iterdir())
    shard = sorted(home.glob("part-*.rks"))[3]

    def refused(error: type[Exception], match: str) -> None:
        with pytest.raises(error, match=match):
            rankstore.prune_local(tmp_path / "l")
        assert sorted(one.name for one in folder.iterdir()) == there

    for ending, kind in [("rks", "lacks"), ("json", "lacks"), ("sums", "lacks"), ("rks", "has another"), ("json", "has another"),
                         ("sums", "has another")]:
        file = shard.with_suffix(f".{ending}")
        whole = file.read_bytes()
        file.unlink()
        if kind == "has another":
            file.write_bytes(whole[:-1])
        refused(rankstore.StateError, f"its home, {home}, {kind} {file.name}; nothing is removed")
        file.unlink(missing_ok=True)
        file.write_bytes(whole)
    home.rename(home.parent / "away")
    refused(rankstore.NotFoundError, "nothing is removed: its home has no dataset")
    rankstore.build([{"i": 1, "data": b""}], home).close()
    refused(rankstore.StateError, "does not name part-")
    shutil.rmtree(home)
    (home.parent / "away").rename(home)
    counted = rankstore.prune_local(tmp_path / "l", dry_run=True)
    assert (counted.datasets, counted.shards, counted.arrivals, counted.files) == (1, SHARDS, 0, 3 * SHARDS) and counted.bytes > 0
    assert sorted(one.name for one in folder.iterdir()) == there
    assert rankstore.prune_local(folder) == counted and not list(folder.glob("part-*"))
    with pytest.raises(rankstore.NotFoundError, match="no local directory here"):
        rankstore.prune_local(tmp_path / "nowhere")


def test_abandoned_arrivals_go(home: Path, tmp_path: Path) -> None:
    rankstore.stage(home, tmp_path / "l")
    [folder] = (tmp_path / "l").iterdir()
    [one, other, third] = sorted(folder.glob("part-*.json"))[:3]
    one.rename(one.with_suffix(".manifest"))
    one.with_suffix(".rks").rename(one.with_suffix(".arriving"))
    one.with_suffix(".pieces").write_bytes(b"x" * 80)
    other.rename(other.with_suffix(".manifest"))  # killed at its end
    third.unlink()
    for name in ("part-0000000000000000-0000000000000000.pieces", "notes.txt", "part-mine.txt"):
        (folder / name).write_text("x")
    pruned = rankstore.prune_local(tmp_path / "l")
    assert (pruned.shards, pruned.arrivals) == (SHARDS - 3, 4)
    assert sorted(one.name for one in folder.iterdir()) == ["dataset.json", "home.json", "notes.txt", "open.lock", "part-mine.txt"]


PRUNE = """
import os, sys
import rankstore
report = rankstore.prune_local(sys.argv[1])
print(report.datasets, report.shards)
"""


def test_all_ranks_prune_or_none(home: Path, tmp_path: Path, ranks: Ranks) -> None:
    """Ranks that share a directory prune it once; if one directory is in use, no other one is touched."""
    for place in ("l0", "l1"):
        rankstore.stage(home, tmp_path / place, everywhere=True)
    [folder] = (tmp_path / "l1").iterdir()
    with rankstore.open(folder):
        refused = ranks(2, PRUNE, str(tmp_path / "l{rank}"), warm=None, check=False)
    assert all("has it open" in one.stderr for one in refused)
    assert len(list(tmp_path.glob("l?/*/part-*.rks"))) == 2 * SHARDS
    done = [one.stdout.splitlines()[-1] for one in ranks(2, PRUNE, str(tmp_path / "l0"), warm=None)]
    assert done == [f"1 {SHARDS}"] * 2 and len(list(tmp_path.glob("l?/*/part-*.rks"))) == SHARDS


PLACEMENT = """
import json, os, sys
os.environ["RKS_NODE"] = str(int(os.environ["RANK"]) // 2)  # two ranks a node
import rankstore
with rankstore.open(sys.argv[1], local=sys.argv[2], copies=2) as ds:
    first = ds.placement()
    again = ds.placement()
    print(json.dumps([first, again["dataset"] == first["dataset"]]))
"""


def test_placement_says_where_shards_lie(home: Path, tmp_path: Path, ranks: Ranks) -> None:
    for rank in range(3):  # whole on node 0; ranks 2 and 3 of node 1 have a directory each
        rankstore.stage(home, tmp_path / f"l{rank}")
    shutil.rmtree(tmp_path / "l1")
    (tmp_path / "l1").symlink_to("l0")
    gone = sorted((tmp_path / "l2").glob("*/part-*.json"))[:2]
    for one in gone:
        one.unlink()
    done = [json.loads(one.stdout.splitlines()[-1]) for one in ranks(3, PLACEMENT, str(home), str(tmp_path / "l{rank}"), warm=None)]
    assert all(one[1] for one in done) and done[0][0] == done[1][0] == done[2][0]
    found = done[0][0]
    assert [place["ranks"] for place in found["places"]] == [[0, 1], [2]] and [place["node"] for place in found["places"]] == [0, 1]
    assert found["home"] == str(home) and all(place["home"] == str(home) for place in found["places"])
    assert found["places"][0]["whole"] == SHARDS == len(found["shards"])
    assert found["places"][0]["directory"].startswith(str(tmp_path / "l0"))
    names = {one.stem for one in gone}
    for shard in found["shards"]:
        assert {"place": 0, "bytes": shard["bytes"]} in shard["places"] and ":" in shard["built"]
        assert shard["name"] in names or {"place": 1, "bytes": shard["bytes"]} in shard["places"]
    with rankstore.open(home) as ds:
        here = ds.placement()
        assert here["home"] is None and [place["whole"] for place in here["places"]] == [SHARDS]
        assert all(shard["places"] == [{"place": 0, "bytes": shard["bytes"]}] for shard in here["shards"])
