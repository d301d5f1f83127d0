# SPDX-License-Identifier: Apache-2.0
"""The loader, its layouts, its state, and what happens to batches that are held."""
from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import made
import numpy
import pytest
import torch
from built import build

import rankstore
from rankstore import Lists, Nested, Pack, Pad
from rankstore._dataset.worker_messages import WorkerStoreSpec
from rankstore._dataset.worker_service import Service
from rankstore._dataset.worker_store import WorkerStore

COUNT = 307


def check_padded(batch: rankstore.Batch) -> None:
    width = batch["input_ids"].shape[1]
    assert width % 8 == 0
    for row, i in enumerate(batch.ids.tolist()):
        size = made.length_of(i)
        assert batch.lengths[row] == size
        assert batch["input_ids"][row, :size].tolist() == [(i + k) % 65536 for k in range(size)]
        assert not batch["input_ids"][row, size:].any()
        assert batch["labels"][row].tolist() == [i] * size + [-100] * (width - size)
        assert batch["attention_mask"][row].tolist() == [1] * size + [0] * (width - size)
        assert batch["text"][row] == f"sample {i}" and bytes(batch["blob"][row]) == bytes([i % 256]) * (i % 5)
        assert batch["score"][row] == i / 4


def test_an_epoch_of_padded_batches_has_each_sample_once(ds: rankstore.Dataset) -> None:
    plan = ds.plan("bucket", max_tokens=512, seed=3)
    loader = ds.loader(plan, collate=Pad())
    seen: list[int] = []
    for step, batch in enumerate(loader):
        assert batch.step == step and batch.epoch == 0
        assert batch["input_ids"].dtype == torch.int64
        check_padded(batch)
        seen += batch.ids.tolist()
        assert batch.global_tokens == batch.lengths.sum()
        assert batch.sample_keys == [ds.keys[i] for i in batch.ids.tolist()]
    assert sorted(seen) == list(range(COUNT)) and len(loader) == step + 1


def test_batches_that_are_held_are_never_written_again(ds: rankstore.Dataset) -> None:
    loader = ds.loader(ds.plan(batch_size=8), collate=Pad())
    held = list(loader)
    for batch in held:
        check_padded(batch)
    view = held[0]["input_ids"][0]
    wanted = view.clone()
    del held
    for _ in loader:
        pass
    assert torch.equal(view, wanted)


def test_packed_batches(ds: rankstore.Dataset) -> None:
    plan = ds.plan("sorted", batch_size=5)
    for batch in ds.loader(plan, collate=Pack("flash", pad_to=64), columns=["input_ids"]):
        ids, total = batch.ids.tolist(), int(batch.lengths.sum())
        wanted = [(i + k) % 65536 for i in ids for k in range(made.length_of(i))]
        assert batch["input_ids"].shape == (1, (total + 63) // 64 * 64)
        assert batch["input_ids"][0, :total].tolist() == wanted
        labels = [(i + k) % 65536 if k else -100 for i in ids for k in range(made.length_of(i))]
        assert batch["labels"][0].tolist() == labels + [-100] * (batch["labels"].shape[1] - total)
        assert batch["position_ids"][0, :total].tolist() == [k for i in ids for k in range(made.length_of(i))]
        edges = batch["cu_seq_lens_q"]
        assert edges.dtype == torch.int32 and edges[-1] == batch["input_ids"].shape[1]
        assert edges[:len(ids) + 1].tolist() == [0, *numpy.cumsum([made.length_of(i) for i in ids]).tolist()]
        assert batch["seq_idx"].shape == batch["input_ids"].shape and batch["max_length_q"] == int(edges.diff().max())


def test_nested_and_lists(ds: rankstore.Dataset) -> None:
    plan = ds.plan("sequential", batch_size=6)
    for batch in ds.loader(plan, collate=Nested(), columns=["input_ids", "score"]):
        for i, one in zip(batch.ids.tolist(), batch["input_ids"].unbind()):
            assert one.tolist() == [(i + k) % 65536 for k in range(made.length_of(i))]
    for batch in ds.loader(plan, collate=Lists(), out="numpy"):
        for row, i in enumerate(batch.ids.tolist()):
            one = {name: batch[name][row] for name in ds.schema}
            assert made.same({**one, "blob": bytes(one["blob"])}, i)
            assert one["input_ids"].dtype == numpy.uint16


def test_columns_renamed_and_left_padding(ds: rankstore.Dataset) -> None:
    layout = Pad(side="left", mask=None, to_multiple=1, pad_value={"input_ids": 7}, dtype="int32")
    for batch in ds.loader(ds.plan(batch_size=4), collate=layout, columns=["input_ids"], rename={"input_ids": "tokens"}):
        assert set(batch) == {"tokens"} and batch["tokens"].dtype == torch.int32
        for row, i in enumerate(batch.ids.tolist()):
            size, width = made.length_of(i), batch["tokens"].shape[1]
            assert batch["tokens"][row].tolist() == [7] * (width - size) + [(i + k) % 65536 for k in range(size)]


@pytest.mark.parametrize("stop", [0, 1, 5, 1000])
def test_resume_at_any_step_is_exact(ds: rankstore.Dataset, stop: int) -> None:
    plan = ds.plan(batch_size=16, seed=9)
    loader = ds.loader(plan, collate=Pad())
    whole = {epoch: [] for epoch in range(2)}  # type: dict[int, list[list[int]]]
    for epoch in range(2):
        loader.set_epoch(epoch)
        whole[epoch] = [batch.ids.tolist() for batch in loader]
    assert whole[0] != whole[1]
    loader.set_epoch(0)
    seen = []
    for batch in loader:
        if len(seen) == stop:
            break
        seen.append(batch.ids.tolist())
        state = json.loads(json.dumps(loader.state_dict()))
    else:
        stop = len(seen)
    if stop == 0:
        loader.set_epoch(1), loader.set_epoch(0)
        state = loader.state_dict()
    other = ds.loader(ds.plan(batch_size=16, seed=9), collate=Pad(), start=state)
    for epoch in range(state["epoch"], 2):
        other.set_epoch(epoch)
        rest = [batch.ids.tolist() for batch in other]
        assert rest == (whole[0][stop:] if epoch == 0 else whole[1])


def test_a_state_of_another_plan_is_refused(ds: rankstore.Dataset) -> None:
    state = ds.loader(ds.plan(batch_size=16)).state_dict()
    with pytest.raises(rankstore.StateError, match="options"):
        ds.loader(ds.plan(batch_size=17)).load_state_dict(state)
    with pytest.raises(rankstore.StateError):
        ds.loader(ds.plan(batch_size=17)).load_state_dict({"hello": 1})


def test_a_second_iteration_ends_the_first_with_an_error(ds: rankstore.Dataset) -> None:
    loader = ds.loader(ds.plan(batch_size=8), collate=Pad())
    first = iter(loader)
    next(first)
    second = iter(loader)
    assert next(second).step == 0
    for _ in range(2):
        with pytest.raises(rankstore.StateError, match="one at a time.* make two loaders"):
            next(first)
    assert next(second).step == 1
    with pytest.raises(rankstore.StateError, match="make two loaders"):
        list(zip(loader, loader))
    with pytest.raises(rankstore.StateError, match="make two loaders"):
        for _ in loader:
            for _ in loader:
                pass


def test_one_that_has_ended_stays_ended(ds: rankstore.Dataset) -> None:
    loader = ds.loader(ds.plan(batch_size=8), collate=Pad())
    first = iter(loader)
    steps = sum(1 for _ in first)
    assert sum(1 for _ in loader) == steps and next(first, None) is None


def test_leaving_a_loop_and_starting_again(ds: rankstore.Dataset) -> None:
    loader = ds.loader(ds.plan(batch_size=8), collate=Pad())
    for batch in loader:
        assert batch.step == 0
        break
    assert [batch.step for batch in loader] == list(range(len(loader)))


def test_a_loaded_state_ends_what_is_under_way_with_an_error(ds: rankstore.Dataset) -> None:
    loader = ds.loader(ds.plan(batch_size=8), collate=Pad())
    first = iter(loader)
    next(first)
    loader.load_state_dict(loader.state_dict())
    with pytest.raises(rankstore.StateError, match="load_state_dict"):
        next(first)
    assert [batch.step for batch in loader] == list(range(1, len(loader)))


def test_leaving_early_leaves_no_thread(ds: rankstore.Dataset) -> None:
    before = threading.active_count()
    for _batch in ds.loader(ds.plan(batch_size=8), collate=Pad(), transform=lambda batch: batch, threads=3):
        break
    del _batch
    deadline = time.monotonic() + 100
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before


def test_transform_runs_ahead_and_its_errors_arrive(ds: rankstore.Dataset) -> None:
    def add(batch: rankstore.Batch) -> rankstore.Batch:
        batch["sum"] = batch["input_ids"].sum()
        return batch

    for batch in ds.loader(ds.plan(batch_size=8), collate=Pad(), transform=add, threads=2):
        assert batch["sum"] == batch["input_ids"].sum()

    def fail(batch: rankstore.Batch) -> None:
        raise RuntimeError(f"no luck at step {batch.step}")

    with pytest.raises(RuntimeError, match="no luck at step 0"):
        list(ds.loader(ds.plan(batch_size=8), collate=Pad(), transform=fail))


def test_two_loaders_on_one_dataset(ds: rankstore.Dataset) -> None:
    one, two = ds.loader(ds.plan(batch_size=8), collate=Pad()), ds.loader(ds.plan("sorted", max_tokens=304), collate=Pad())
    for a, b in zip(one, two):
        check_padded(a)
        check_padded(b)


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_of_a_foreign_loader_hand_over_whole_batches(ds: rankstore.Dataset, start: str) -> None:
    plan = ds.plan("bucket", max_tokens=512, seed=3)
    source = ds.collating(Pad())
    loader: torch.utils.data.DataLoader[Any] = torch.utils.data.DataLoader(
        source, batch_sampler=plan.sampler("rank"), num_workers=2, collate_fn=source.collate, multiprocessing_context=start,  # type: ignore[arg-type]
        timeout=400)
    seen: list[int] = []
    for step, batch in enumerate(loader):
        assert (batch.step, batch.epoch) == (step, 0)
        check_padded(batch)
        assert batch.global_tokens == batch.lengths.sum() and batch._plan is plan
        assert batch.sample_keys == [ds.keys[i] for i in batch.ids.tolist()]
        seen += batch.ids.tolist()
    assert sorted(seen) == list(range(COUNT))


@pytest.mark.parametrize("options", [{"columns": ["nobody"]}, {"out": "jax"}, {"threads": 0}, {"prefetch_batches": 0},
                                     {"prefetch_bytes": "many"}, {"pin_memory": "perhaps"}])
def test_options_that_are_none(ds: rankstore.Dataset, options: dict[str, object]) -> None:
    with pytest.raises(rankstore.ArgumentError, match=next(iter(options))):
        ds.loader(ds.plan(batch_size=8), **options)


def test_the_epoch_reaches_a_sampler_through_the_collating_dataset(ds: rankstore.Dataset) -> None:
    sampler = ds.plan(batch_size=16).sampler()
    made = ds.collating(Pad())
    first = [list(batch) for batch in sampler]
    made.set_epoch(1)
    assert [list(batch) for batch in sampler] != first
    made.set_epoch(0)
    assert [list(batch) for batch in sampler] == first


def test_bytes_alone_bound_what_is_made_ahead(ds: rankstore.Dataset) -> None:
    plan = ds.plan("random", batch_size=8)
    made = [ds.loader(plan, **options) for options in ({}, {"prefetch_bytes": 1}, {"prefetch_bytes": "1MiB"},
                                                      {"prefetch_batches": 1}, {"prefetch_bytes": "auto"})]
    assert [loader.prefetch_batches for loader in made] == [None, None, None, 1, None]
    assert [loader.prefetch_bytes for loader in made] == [None, 1, 1 << 20, None, None]
    read = [[batch.ids.tolist() for batch in loader] for loader in made]
    assert read[0] and all(each == read[0] for each in read)


def test_stats_count_what_is_read_from_the_disk(tmp_path: Path) -> None:
    build([{"x": bytes([i % 251]) * 5000} for i in range(2000)], tmp_path / "out")
    (shard,) = (tmp_path / "out").glob("*.rks")
    fd = os.open(shard, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        os.preadv(fd, [bytearray(1)], shard.stat().st_size // 2, os.RWF_NOWAIT)
        pytest.skip("this file system keeps files in memory")
    except OSError:
        pass
    finally:
        os.close(fd)
    with rankstore.open(tmp_path / "out") as ds:
        loader = ds.loader(ds.plan("random", batch_size=8), out="numpy")
        assert sum(len(batch.ids) for batch in loader) == 2000
        cold = ds.stats()
        assert 2000 * 5000 // 2 < cold["disk_bytes"] < 2 * shard.stat().st_size and 0 < cold["disk_reads"] <= 3000
        assert sum(len(batch.ids) for batch in loader) == 2000
        assert ds.stats()["disk_bytes"] - cold["disk_bytes"] < shard.stat().st_size // 10


def test_sizes_in_words() -> None:
    from rankstore._schema.sizes import parse_bytes
    assert [parse_bytes("b", size) for size in (5, "5", "5B", "1KiB", "1.5 MB", "2GiB")] == [5, 5, 5, 1024, 1_500_000, 2 << 30]


def test_stats_count_the_batches(ds: rankstore.Dataset) -> None:
    loader = ds.loader(ds.plan(batch_size=8), collate=Pad())
    steps = sum(1 for _ in loader)
    assert loader.stats()["batches"] == steps and loader.stats()["samples"] >= COUNT


def test_epochs_go_on_without_set_epoch(ds: Any, capsys: pytest.CaptureFixture[str]) -> None:
    plan = ds.plan("random", batch_size=16, seed=5)
    orders = [[int(i) for step in range(plan.steps) for i in plan.core.batch(epoch, step, 0)] for epoch in range(3)]
    assert orders[0] != orders[1] != orders[2]
    loader = ds.loader(plan)
    for epoch in range(3):
        assert [int(i) for batch in loader for i in batch.ids] == orders[epoch]
    loader.set_epoch(2)  # what it says is done, also if it is the epoch that has just been seen
    assert [int(i) for batch in loader for i in batch.ids] == orders[2]
    sampler = plan.sampler()
    for epoch in range(3):
        assert [i for batch in sampler for i in batch] == orders[epoch]
    sampler.set_epoch(0)
    assert [i for batch in sampler for i in batch] == orders[0]
    assert capsys.readouterr().err == ""


def test_a_sampler_that_is_asked_for_its_length_only_has_seen_its_epoch(ds: Any) -> None:
    plan = ds.plan("random", batch_size=16, seed=5)
    orders = [[int(i) for step in range(plan.steps) for i in plan.core.batch(epoch, step, 0)] for epoch in range(3)]
    sampler = plan.sampler()
    begin = sampler.state_dict()
    for epoch in range(3):  # no call after the last batch
        asked = iter(sampler)
        assert [i for _ in range(len(sampler)) for i in next(asked)] == orders[epoch]
    other = plan.sampler()
    assert [i for batch in other for i in batch] == orders[0]
    other.load_state_dict(begin)  # back to the beginning of the epoch that has just been seen
    assert [i for batch in other for i in batch] == orders[0]


def test_a_loop_that_is_left_early_stays_in_its_epoch(ds: Any, capsys: pytest.CaptureFixture[str]) -> None:
    plan = ds.plan("random", batch_size=16, seed=5)
    loader = ds.loader(plan)
    for place, _ in enumerate(loader):
        if place == 1:
            break
    state = loader.state_dict()
    assert capsys.readouterr().err == ""
    assert next(iter(loader)).epoch == 0
    assert capsys.readouterr().err == (f"rankstore: the loop over epoch 0 was left after 2 of {plan.steps} steps; this one begins epoch 0 "
                                       "again: set_epoch(1) begins the next, load_state_dict(state) goes on\n")
    loader.load_state_dict(state)
    assert [batch.step for batch in loader] == list(range(2, plan.steps))
    assert next(iter(loader)).epoch == 1
    loader.set_epoch(1)
    assert next(iter(loader)).step == 0 and capsys.readouterr().err == ""
    resumed = ds.loader(plan, start=plan.state(3, plan.steps))  # saved at an epoch's end
    assert next(iter(resumed)).epoch == 4


# ---- the service that worker processes ask -------------------------------------------------------------------------------

SERVICE = """
import ctypes, json, os, resource, signal, subprocess, sys, time
import rankstore
from rankstore._dataset.worker_messages import WorkerStoreSpec
from rankstore._dataset.worker_service import Service
from rankstore._dataset.worker_store import WorkerStore
how, out = sys.argv[1], sys.argv[2]
if how == "worker":
    spec = WorkerStoreSpec(**json.loads(sys.stdin.readline()))
    store = WorkerStore(spec)
    sys.stdout.write("up\\n"); sys.stdout.flush()
    sys.stdin.readline()
    try:
        print(store.key(3), flush=True)
    except rankstore.TimeoutError as error:
        print("silent" in str(error), flush=True)
    open(out + ".told", "w").close()
    sys.exit()
with rankstore.init("solo", silence=1) as group, rankstore.build([{"n": i} for i in range(9)], out, group=group) as ds:
    class Slow:
        group, stats = ds.store.group, ds.store.stats
        def key(self, sample):
            time.sleep(3)  # three times the silence limit
            return ds.store.key(sample)
    service = Service(Slow() if how == "slow" else ds.store)
    worker = subprocess.Popen([sys.executable, __file__, "worker", out], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    spec = dict(directories=[], dataset=ds.id, schema=ds.store.schema, count=9, no_check=False, socket=service.name,
                token=service.token, rank=0, world=2, silence=1.0, pid=os.getpid())
    def tell(line):
        worker.stdin.write(line + "\\n"); worker.stdin.flush()
    tell(json.dumps(spec))
    assert worker.stdout.readline() == "up\\n"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if how == "no descriptors":  # the listener's accept() fails while the worker's connection waits
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    if how != "stopped":
        tell("go")
    if how == "holds the GIL":  # so that no other thread of Python accepts, reads or beats, for three times the limit
        ctypes.PyDLL(None).sleep(3)
    if how == "stopped":
        waker = os.fork()
        if waker == 0:
            while open(f"/proc/{os.getppid()}/stat").read().rpartition(")")[2].split()[0] != "T":
                time.sleep(0.01)
            tell("go")
            until = time.monotonic() + 200  # a worker that waits for its parent for so long is told no error
            while not os.path.exists(out + ".told") and time.monotonic() < until:
                time.sleep(0.05)
            os.kill(os.getppid(), signal.SIGCONT); os._exit(0)
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "no descriptors":
        time.sleep(0.5)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    print(worker.stdout.readline(), end="")
"""


@pytest.mark.parametrize(("how", "told"), [("no descriptors", "b'"), ("slow", "b'"), ("holds the GIL", "b'"),
                                          ("stopped", "True")])
def test_workers_wait_for_a_slow_parent_and_not_for_a_silent_one(how: str, told: str, tmp_path: Path) -> None:
    script = tmp_path / "service.py"
    script.write_text(SERVICE)
    done = subprocess.run([sys.executable, str(script), how, str(tmp_path / "d")], timeout=400, capture_output=True, text=True)
    assert done.stdout.startswith(told), (done.stdout, done.stderr)


def worker_store(ds: Any, name: str, token: str = "", silence: float = 5.0) -> WorkerStore:
    """What a worker process has, here in this process."""
    return WorkerStore(WorkerStoreSpec(directories=(), dataset=ds.id, schema=ds.store.schema, count=len(ds), no_check=False, socket=name,
                                       token=token, rank=0, world=2, silence=silence))


def test_an_interrupted_request_leaves_no_reply_to_the_next_one(ds: Any) -> None:
    class Slow:
        group, stats = ds.store.group, ds.store.stats

        def key(self, sample: int) -> bytes:
            if sample == 3:
                os.kill(os.getpid(), signal.SIGUSR1)
                assert interrupted.wait(100)
                time.sleep(0.2)  # the reply comes when nobody waits for it any more
            return bytes(ds.store.key(sample))

    interrupted = threading.Event()

    def interrupt(number: int, frame: Any) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    service = Service(Slow())  # type: ignore[arg-type]
    store = worker_store(ds, service.name, service.token)
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            store.key(3)
        assert store.key(5) == ds.store.key(5)
    finally:
        signal.signal(signal.SIGUSR1, before)
        store.close()
        service.close()


STOPPED = """
import os, sys
import rankstore
from rankstore._dataset.worker_service import Service
with rankstore.init("solo", silence=100) as group, rankstore.build([{"n": i} for i in range(9)], sys.argv[1], group=group) as ds:
    service = Service(ds.store)
    print(ds.id, service.name, service.token, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_full_backlog_is_waited_for(goes_on: bool, tmp_path: Path) -> None:
    """Of a process that is stopped, so that nobody is accepted."""
    with contextlib.ExitStack() as stack:
        process = stack.enter_context(subprocess.Popen([sys.executable, "-c", STOPPED, str(tmp_path / "d")], stdin=subprocess.PIPE,
                                                       stdout=subprocess.PIPE, text=True))
        stack.callback(process.kill)
        assert process.stdout is not None
        dataset, name, token = process.stdout.readline().split()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        waiting: list[socket.socket] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                waiting.append(stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)))
                waiting[-1].setblocking(False)
                waiting[-1].connect("\0rankstore-workers-" + name)
        spec = WorkerStoreSpec(directories=(), dataset=dataset, schema="n:int64", count=9, no_check=False,
                               socket=name, token=token, rank=0, world=2, silence=100 if goes_on else 1)
        store = WorkerStore(spec)
        stack.callback(store.close)
        if goes_on:
            threading.Timer(0.3, process.send_signal, (signal.SIGCONT,)).start()
            assert store.key(3)
        else:
            begun = time.monotonic()
            with pytest.raises(rankstore.TimeoutError, match="silent for 1 s"):
                store.key(3)
            assert time.monotonic() - begun >= 0.8  # it tries again each eighth of the limit
            process.send_signal(signal.SIGCONT)
        for one in waiting:
            one.close()
        process.communicate("")
        assert process.returncode == 0


FLOOD = """
import os, socket, sys, time
until, made, held = time.monotonic() + 400, 0, []
while time.monotonic() < until:
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    one.setblocking(False)
    try:
        one.connect("\\0rankstore-workers-" + sys.argv[1])
        held.append(one)
        made += 1
        if made % 100 == 0:
            print(made, flush=True)
        one.send(b"\\xff" * 4096)
    except BlockingIOError:  # the queue is full
        one.close()
    except OSError:
        pass
    if len(held) > 200:
        for one in held:
            one.close()
        held = []
    if os.getppid() == 1:
        break
"""


def test_another_user_s_flood_keeps_no_worker_out(ds: Any) -> None:
    """Each new connection of a worker is served while another user connects as fast as it can, and gets nothing."""
    if os.geteuid() != 0:
        pytest.skip("needs root to be another user")
    service = Service(ds.store)
    flood = subprocess.Popen(["/usr/bin/python3", "-c", FLOOD, service.name], user=65534, group=65534, extra_groups=[], cwd="/",
                             env={}, stdout=subprocess.PIPE, text=True)
    try:
        assert flood.stdout is not None and flood.stdout.readline() == "100\n"
        threads, slowest = threading.active_count(), 0.0
        for sample in range(50):
            begun = time.monotonic()
            store = worker_store(ds, service.name, service.token, silence=100)
            assert store.key(sample % 5) == ds.store.key(sample % 5)
            store.close()
            slowest = max(slowest, time.monotonic() - begun)
        until = time.monotonic() + 60  # threads of workers that have closed end by themselves
        while threading.active_count() - threads > 2 and time.monotonic() < until:
            time.sleep(0.05)
        assert threading.active_count() - threads <= 2 and flood.poll() is None  # a stranger costs no thread
        assert slowest < 30, slowest
    finally:
        flood.kill()
        flood.communicate()
        service.close()


def test_a_forked_child_waits_for_no_lock_of_the_service(ds: Any) -> None:
    """A thread of the parent may hold it at the fork."""
    service = Service(ds.store)
    over = threading.Event()

    def ask() -> None:
        store = worker_store(ds, service.name, service.token, silence=100)
        while not over.is_set():
            assert store.key(3) == ds.store.key(3)
        store.close()

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for one in askers:
        one.start()
    ended = []
    for _ in range(20):
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(100)
            service.close()
            os._exit(0)
        ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    over.set()
    for one in askers:
        one.join()
    service.close()
    assert ended == [0] * 20
