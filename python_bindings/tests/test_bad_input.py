# SPDX-License-Identifier: Apache-2.0
"""Wrong arguments, damaged files and hostile values, each with its exception."""
from __future__ import annotations

import copy
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made
import numpy
import pytest
import torch
from built import build, launched, naming

import rankstore
from rankstore import ArgumentError, CorruptError, DataError, IOFailedError, NotFoundError, Pad, RankStoreError, StateError

COUNT = 120


# ---- places and keys ---------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("which", ["abc", b"ab", None, 1.5, {}, [1.5], ["a"], [None], [[1]]])
def test_what_is_no_place_is_a_type_error(ds: rankstore.Dataset, which: Any) -> None:
    with pytest.raises(TypeError):
        ds[which]


@pytest.mark.parametrize("which", [[2, 1, -1], numpy.array([2, 1, -1]), torch.tensor([2, 1, -1]), range(2, 3)])
def test_places_in_any_list(ds: rankstore.Dataset, which: Any) -> None:
    assert [one["text"] for one in ds[which]] == [f"sample {int(i) % COUNT}" for i in which]


@pytest.mark.parametrize("key", ["", b"", "x" * 512, None, 3, "\udc80", "nobody"])
def test_what_is_no_key_is_not_there(ds: rankstore.Dataset, key: Any) -> None:
    assert key not in ds.keys
    with pytest.raises((KeyError, TypeError, ValueError)):
        ds.get(key)


@pytest.mark.parametrize("place", [None, "x", 1.5])
def test_places_of_views_and_owners_are_ints(ds: rankstore.Dataset, place: Any) -> None:
    with pytest.raises(TypeError):
        ds.view(place)
    with pytest.raises(TypeError):
        ds.owner(place)


# ---- options -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("options", [
    {"batch_size": 0}, {"batch_size": -1}, {"batch_size": 10**9}, {"batch_size": 2**40}, {"max_tokens": 0}, {"max_tokens": -1},
    {"max_length": 0}, {"world": 0}, {"world": -1}, {"world": 2**32}, {"rank": 5}, {"rank": -1},
    {"world": 2, "rank": 2}, {"seed": -1}, {"seed": 2**64}, {"batch_multiple": 0}, {"strategy": "sort"}, {"tail": ""},
    {"steps": "x"}, {"cost": "free"}, {"too_long": "?"}])
def test_plan_options_that_are_none(ds: rankstore.Dataset, options: dict[str, Any]) -> None:
    named = "world" if options.get("world", 0) not in (0, 2) else list(options)[-1]
    with pytest.raises(ArgumentError, match=named):
        ds.plan(**options)


@pytest.mark.parametrize("options", [{"batch_size": "4"}, {"batch_size": 1.5}, {"max_tokens": float("nan")}, {"tail": 3},
                                     {"cost": b"x"}, {"seed": "a"}])
def test_plan_options_of_another_type(ds: rankstore.Dataset, options: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        ds.plan(**options)


@pytest.mark.parametrize("options", [
    {"prefetch_bytes": "inf"}, {"prefetch_bytes": "1e400"}, {"prefetch_bytes": "nan"}, {"prefetch_bytes": None},
    {"prefetch_bytes": 1.5}, {"prefetch_batches": "3"}, {"prefetch_batches": 1.5}, {"threads": "2"}, {"threads": 1.5},
    {"transform": 3}, {"collate": "pad"}, {"collate": Pad}, {"columns": "input_ids"}, {"columns": [3]},
    {"rename": {"nope": "a"}}, {"out": "jax"}, {"pin_memory": "yes"}])
def test_loader_options_that_are_none(ds: rankstore.Dataset, options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=list(options)[0]):
        ds.loader(ds.plan(batch_size=8), **options)


@pytest.mark.parametrize("options", [{"prefetch_bytes": 0}, {"prefetch_bytes": "-1"}, {"prefetch_bytes": 10**30},
                                     {"prefetch_batches": 2**40}])
def test_loader_numbers_out_of_range(ds: rankstore.Dataset, options: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError, match=list(options)[0]):
        next(iter(ds.loader(ds.plan(batch_size=8), **options)))


def test_a_plan_of_another_dataset_is_refused(ds: rankstore.Dataset, tmp_path: Path) -> None:
    made.build(tmp_path / "other", COUNT // 2)
    with rankstore.open(tmp_path / "other") as other:
        plan = other.plan(batch_size=4)
        with pytest.raises(ArgumentError, match=other.id):
            ds.loader(plan)
        with pytest.raises(ArgumentError, match=other.id):
            ds[next(iter(plan.sampler()))]


@pytest.mark.parametrize("state", [
    [], {}, {"version": 1}, {"version": 2, "plan": "{}"}, {"version": 1, "plan": 3}, {"version": 1, "plan": ""},
    {"version": 1, "plan": "{}"}, {"version": 1, "plan": "[" * 1000}, {"version": 1, "plan": "a\0"}, {"version": 1, "plan": "null"}])
def test_states_that_are_none(ds: rankstore.Dataset, state: Any) -> None:
    with pytest.raises(StateError, match="state"):
        ds.loader(ds.plan(batch_size=8), start=state)


@pytest.mark.parametrize("epoch", [-1, 2**64])
def test_epochs_that_are_none(ds: rankstore.Dataset, epoch: int) -> None:
    loader = ds.loader(ds.plan(batch_size=8))
    with pytest.raises(ArgumentError, match="epoch"):
        loader.set_epoch(epoch)


def test_an_empty_selection_has_no_plan(ds: rankstore.Dataset) -> None:
    none = ds.select([])
    assert len(none) == 0 and list(none) == []
    with pytest.raises(DataError, match="no samples"):
        none.plan(batch_size=2)


def test_what_ends_the_block_of_a_group_is_told_though_a_dataset_is_open(tmp_path: Path) -> None:
    rankstore.build([{"x": 1}], tmp_path / "d").close()
    with pytest.raises(AttributeError, match="colour"), rankstore.init("solo") as group:
        ds = rankstore.open(tmp_path / "d", group=group)
        ds.colour  # type: ignore[attr-defined]  # noqa: B018
    ds.close()
    group.close()


def test_a_group_with_an_open_dataset_stays_the_default(ds: rankstore.Dataset) -> None:
    group = rankstore.current()
    with pytest.raises(StateError, match="in use"):
        group.close()
    assert rankstore.current() is group and made.same(ds[3], 3)


# ---- copies -------------------------------------------------------------------------------------------------------------

def test_a_copied_batch_is_the_same_batch(ds: rankstore.Dataset) -> None:
    batch = next(iter(ds.loader(ds.plan(batch_size=8), collate=Pad())))
    for made_of in (copy.copy(batch), copy.deepcopy(batch), pickle.loads(pickle.dumps(batch))):
        assert [bytes(one) for one in made_of["blob"]] == [bytes(one) for one in batch["blob"]]
        assert torch.equal(made_of["input_ids"], batch["input_ids"]) and made_of.step == batch.step
    assert copy.copy(batch).global_tokens == batch.global_tokens


def test_a_batch_that_was_saved_finds_no_other_plan(ds: rankstore.Dataset) -> None:
    assert ds.plan(batch_size=8).token > 1 << 16, "places in a list are alike in all processes"


def test_a_dataset_of_a_worker_has_a_repr(ds: rankstore.Dataset) -> None:
    assert ds.id in repr(pickle.loads(pickle.dumps(ds)))
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(0 if ds.id in repr(ds) else 1)
        finally:
            os._exit(2)
    assert os.waitpid(pid, 0)[1] == 0


# ---- files --------------------------------------------------------------------------------------------------------------

def data_file(directory: Path) -> Path:
    return next(directory.glob("*.rks"))


def manifest(directory: Path) -> Path:
    return directory / "dataset.json"


DAMAGE: dict[str, Callable[[Path], Any]] = {
    "empty data file": lambda d: os.truncate(data_file(d), 0),
    "one page": lambda d: os.truncate(data_file(d), 4096),
    "cut by a byte": lambda d: os.truncate(data_file(d), data_file(d).stat().st_size - 1),
    "a page longer": lambda d: os.truncate(data_file(d), data_file(d).stat().st_size + 4096),
    "zeros": lambda d: (data_file(d).chmod(0o644), data_file(d).write_bytes(bytes(data_file(d).stat().st_size))),
    "no manifest": lambda d: manifest(d).unlink(),
    "empty manifest": lambda d: os.truncate(manifest(d), 0),
    "cut manifest": lambda d: os.truncate(manifest(d), manifest(d).stat().st_size // 2),
    "newer format": lambda d: manifest(d).write_text(manifest(d).read_text().replace('"major":1', '"major":9')),
    "one sample too many": lambda d: manifest(d).write_text(
        manifest(d).read_text().replace(f'"samples":{COUNT}', f'"samples":{COUNT + 1}')),
    "data file is a directory": lambda d: (data_file(d).rename(d / "was"), (d / (d / "was").name).rename(d / "gone")),
    "data file is a FIFO": lambda d: (data_file(d).rename(d / "was"), os.mkfifo(str(next(d.glob("*.sums"))).replace(".sums", ".rks"))),
    "data file is a loop of links": lambda d: (data_file(d).rename(d / "was"), os.symlink(
        str(next(d.glob("*.sums"))).replace(".sums", ".rks"), str(next(d.glob("*.sums"))).replace(".sums", ".rks"))),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_dataset_does_not_open(tmp_path: Path, damage: str) -> None:
    directory = tmp_path / "store"
    made.build(directory, COUNT)
    for file in directory.iterdir():
        file.chmod(0o644)
    DAMAGE[damage](directory)
    with pytest.raises((CorruptError, IOFailedError, NotFoundError, rankstore.UnsupportedError, StateError), match=naming(directory)):
        rankstore.open(directory)


@pytest.mark.parametrize("path", ["", "no\0thing", 3, None, b"x"])
def test_what_is_no_directory(path: Any) -> None:
    with pytest.raises((RankStoreError, TypeError, ValueError)):
        rankstore.open(path)


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RankStoreError, match=naming(tmp_path / "file")):
        rankstore.open(tmp_path / "file")


def test_a_shard_that_is_cut_while_it_is_open(ds: rankstore.Dataset, tmp_path: Path) -> None:
    os.truncate(data_file(tmp_path / "store"), 4096)
    plan = ds.plan(batch_size=8)
    for read in (lambda: ds[COUNT - 1], lambda: ds[[1, 2]], lambda: ds.view(COUNT - 1), lambda: ds.keys[COUNT - 1],
                 lambda: list(ds.loader(plan, collate=Pad())), lambda: [ds[one] for one in plan.sampler()]):
        with pytest.raises((IOFailedError, CorruptError), match=r"\.rks"):
            read()


def test_flipped_bytes_are_found_in_that_sample_alone(ds: rankstore.Dataset, tmp_path: Path) -> None:
    file = data_file(tmp_path / "store")
    file.chmod(0o644)
    place = file.read_bytes().index(b"sample 77")
    with file.open("r+b") as out:
        out.seek(place)
        out.write(b"Sample")
    for i in range(COUNT):
        if i != 77:
            assert made.same(ds[i], i)
            continue
        for read in (lambda: ds[77], lambda: ds.view(77), lambda: ds.get(ds.keys[77])):
            with pytest.raises(CorruptError, match="sample 77 "):
                read()
    with pytest.raises(CorruptError, match="sample 77 "):
        list(ds.loader(ds.plan(batch_size=8), collate=Pad()))


# ---- loops ---------------------------------------------------------------------------------------------------------------

def test_an_iteration_in_a_fork_says_so(ds: rankstore.Dataset) -> None:
    iteration = iter(ds.loader(ds.plan(batch_size=4), transform=lambda batch: batch))
    next(iteration)
    pid = os.fork()
    if pid == 0:
        try:
            next(iteration)
        except StateError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert sum(1 for _ in iteration) == 29


def test_an_interrupt_does_not_wait_for_a_transform(ds: rankstore.Dataset) -> None:
    """The transform ends only when the interrupt has been seen."""
    begun, go_on = threading.Event(), threading.Event()

    def transform(batch: rankstore.Batch) -> None:
        begun.set()
        go_on.wait()

    def interrupt() -> None:
        begun.wait()
        time.sleep(0.2)  # now the other thread waits for the batch
        os.kill(os.getpid(), signal.SIGINT)

    loader = ds.loader(ds.plan(batch_size=4), transform=transform)
    with pytest.raises(KeyboardInterrupt):
        threading.Thread(target=interrupt).start()
        next(iter(loader))
    go_on.set()


# ---- ranks ---------------------------------------------------------------------------------------------------------------

def test_opening_and_closing_leaves_no_thread_or_descriptor(tmp_path: Path) -> None:
    """Ranks with directories of their own have a service for worker processes. Nothing waits for the collector."""
    lines = launched(2, """
import gc, made, pickle
from pathlib import Path
def main(group):
    gc.disable()
    made.build(Path(OUT) / f"part{group.rank}", 60, group)
    def count():
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    seen = []
    for k in range(6):
        with rankstore.open(OUT + "/part{rank}", group=group) as ds:
            pickle.dumps(ds)
        until = time.monotonic() + (60 if len(seen) > 1 else 0.2)  # some of it ends by itself, a little later
        while time.monotonic() < until and (len(seen) < 2 or any(now > then for now, then in zip(count(), seen[1]))):
            time.sleep(0.01)
        seen.append(count())
        group.agree("counted")
    say(all(now <= then for now, then in zip(seen[-1], seen[1])), seen)
""", tmp_path)
    assert len(lines) == 2 and all(line.startswith("True") for line in lines), lines


def test_a_killed_rank_leaves_no_file_and_no_waiting_worker(tmp_path: Path, ranks: Callable[..., list[Any]]) -> None:
    """Its forked worker, which asks it for samples of another node, and one that asks for the first time: an error."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    done = ranks(2, """
import os, pickle, signal, sys, time
from pathlib import Path
sys.path.insert(0, os.environ["TESTS"])
import made, rankstore
group = rankstore.init(node=os.environ["RANK"])
made.build(Path("part%d" % group.rank), 60, group)
ds = rankstore.open("part{rank}")
there = next(i for i in range(60) if ds.owner(i) != group.rank)
apart = pickle.loads(pickle.dumps(ds))
assert made.same(apart[there], there)
def tell(of):
    try:
        of[there]
    except rankstore.StateError as error:
        os.write(1, (str(error) + "\\n").encode())
os.write(1, b"|".join(name.encode() for name in os.listdir(os.environ["TMPDIR"])) + b"\\n")
parent, (ready, go) = os.getpid(), os.pipe()
if os.fork() == 0:
    assert made.same(ds[there], there)
    os.write(go, b".")
    while os.getppid() == parent:
        time.sleep(0.01)
    tell(ds)
    tell(apart)
    tell(pickle.loads(pickle.dumps(ds)))
    os._exit(0)
os.read(ready, 1)
Path("ready%d" % group.rank).touch()
while not all(Path("ready%d" % rank).exists() for rank in range(2)):
    time.sleep(0.01)
os.kill(os.getpid(), signal.SIGKILL)
""", env={"TMPDIR": str(temporary)}, check=False)
    for one in done:
        names, *said = one.stdout.split("\n")
        assert one.returncode == -signal.SIGKILL and names == "", one
        assert len([line for line in said if "has closed it or ended" in line]) == 3, one
    assert list(temporary.iterdir()) == []


def test_gather_takes_what_is_a_rank_and_a_path(tmp_path: Path) -> None:
    lines = launched(2, """
def main(group):
    def tell(label, **options):
        try:
            say(label, group.rank, rankstore.gather({"a": (group.rank, 1.0)}, group=group, **options))
        except rankstore.RankStoreError as error:
            say(label, group.rank, type(error).__name__, error)
    tell("numpy", dst=np.int64(1))
    for k, dst in enumerate(["0", None, 2**70, -1, 1.5]):
        tell(f"dst{k}", dst=dst)
    tell("out", out=b"x" if group.rank else None)
    tell("odd", dst=b"x" if group.rank else 0)
    tell("good")
""", tmp_path)
    told = {tuple(line.split(" ", 2)[:2]): line.split(" ", 2)[2] for line in lines}
    assert told["numpy", "0"] == "None" and "(1, " in told["numpy", "1"] and "(1, " in told["good", "0"]
    for rank in "01":
        assert all(told[f"dst{k}", rank].startswith("ArgumentError") and "dst" in told[f"dst{k}", rank] for k in range(5)), told
        assert told["out", rank].startswith("ArgumentError rank 1") and told["odd", rank].startswith("ArgumentError rank 1"), told


@pytest.mark.parametrize("values", [
    [{"a": numpy.array([1, "x", None], object)}], [{"a": object()}], [{"a": {1, 2}}], [{1: 2}], [3], [None], [{}],
    [{"": 1}], [{"a": 10**30}]])
def test_hostile_samples(tmp_path: Path, values: list[Any]) -> None:
    with pytest.raises((DataError, rankstore.CallbackError, ArgumentError)):
        build(values, tmp_path / "out")


@pytest.mark.parametrize("length", [float("nan"), -1, "3", 2**32, 2**64, None])
def test_lengths_that_are_none(tmp_path: Path, length: Any) -> None:
    with pytest.raises(DataError, match="length"):
        build([{"a": 1}], tmp_path / "out", length=lambda sample: length)


@pytest.mark.parametrize("key", ["", "x" * 512, b"", 1.5, None])
def test_keys_that_are_none(tmp_path: Path, key: Any) -> None:
    with pytest.raises(DataError, match="key"):
        build([{"a": 1}], tmp_path / "out", key=lambda sample: key)


@pytest.mark.parametrize("world", [1, 2])
def test_fewer_samples_than_ranks_and_none_at_all(tmp_path: Path, world: int) -> None:
    lines = launched(world, """
def main(group):
    with build([{"a": 1}], OUT + "/one", group=group) as ds:
        say(len(ds), ds[0]["a"], len(list(ds.loader(ds.plan(batch_size=2, tail="repeat")))))
    with build([{"a": i} for i in range(9)], OUT + "/none", filter=lambda sample: False, schema="a:int64", group=group) as ds:
        say(len(ds), list(ds))
""", tmp_path)
    assert sorted(lines) == sorted(["1 1 1", "0 []"] * world)


def test_a_key_of_two_ranks_is_named(tmp_path: Path) -> None:
    lines = launched(2, """
def main(group):
    try:
        build(iter([{"k": "same", "a": i} for i in range(group.rank, group.rank + 1)]), OUT + "/out", key="k", group=group)
    except rankstore.DataError as error:
        say(error)
""", tmp_path)
    assert len(lines) == 2 and all("same" in line for line in lines), lines


@pytest.mark.parametrize("end, code", [("raise RuntimeError('boom')", 1), ("sys.exit(3)", 3), ("os.kill(os.getpid(), 9)", -9),
                                       ("os.kill(os.getpid(), 15)", -15)])
def test_a_rank_that_ends_within_a_loop_ends_the_others(ranks: Callable[..., Any], end: str, code: int) -> None:
    """With datasets open and batches in flight: the other fails with an error that names it, and neither waits."""
    done = ranks(2, f"""
import os, sys
from pathlib import Path
sys.path.insert(0, os.environ["TESTS"])
import made, rankstore
group = rankstore.init(silence=10)
made.build(Path(f"part{{group.rank}}"), 400, group)
ds = rankstore.open("part{{rank}}", no_share=True)
plan = ds.plan(batch_size=8)
while True:
    for batch in ds.loader(plan, collate=rankstore.Pad(), transform=lambda batch: batch):
        if group.rank == 1 and batch.step == 5:
            {end}
""", check=False)
    assert done[1].returncode == code
    assert done[0].returncode == 1 and "PeerError: rank 1 (" in done[0].stderr, done[0].stderr
