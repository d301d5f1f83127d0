# SPDX-License-Identifier: Apache-2.0
"""Ranks of torchrun on one GPU, each a node of its own: torch's NCCL works while or before the dataset is opened by NCCL.

Usage: torchrun --nproc-per-node N tests/gpu/beside_ranks.py before|after|thread|capture DATASET
before, after: the dataset is opened before torch's communicator is made, or after it was used; twice, then torch sums again.
thread: ten exchanges in a thread beside 500 steps. capture: an exchange in a thread while the rank captures a CUDA graph in global
mode on a stream of its own. Each rank prints a line.
"""
import ctypes
import os
import sys
import threading
import time

RANK = int(os.environ["RANK"])
os.environ.update(NCCL_HOSTID=f"rank-{RANK}", RKS_NODE=f"rank-{RANK}")  # before torch loads NCCL

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import rankstore  # noqa: E402

MIB = 1 << 20


def environment():
    """As C libraries see it; os.environ does not follow setenv."""
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    names = ("NCCL_PAT_ENABLE", "NCCL_ALGO", "NCCL_PROTO", "NCCL_MAX_CTAS", "NCCL_MIN_CTAS", "NCCL_CUMEM_ENABLE", "NCCL_COMM_BLOCKING")
    return {name: getenv(name.encode()) for name in names}


def exchange(store):
    """(seconds, MiB of the GPU that stay taken)"""
    torch.cuda.synchronize()
    before, begin = torch.cuda.mem_get_info()[0], time.monotonic()
    with rankstore.open(store, exchange="nccl") as ds:
        seconds, found = time.monotonic() - begin, ds.stats()
    assert found["exchange"] == "nccl", found
    dist.barrier(device_ids=[0])
    return seconds, (before - torch.cuda.mem_get_info()[0]) / MIB


def check_sum():
    value = torch.full((1 << 20,), float(RANK + 1), device="cuda")
    dist.all_reduce(value)
    world = dist.get_world_size()
    assert float(value[0]) == world * (world + 1) / 2 and bool((value == value[0]).all()), float(value[0])


def train(steps, began=None):
    torch.manual_seed(0)
    weights, data = torch.randn(1024, 1024, device="cuda"), torch.randn(64, 1024, device="cuda")
    for step in range(steps):
        gradient = data.t() @ (data @ weights - data)
        dist.all_reduce(gradient)
        weights -= 1e-6 * gradient
        if began is not None and step == 5:
            began.set()
    torch.cuda.synchronize()
    return float(weights.sum())


def in_thread(store, times, began, failed):
    try:
        began.wait(60)
        for _ in range(times):
            rankstore.open(store, exchange="nccl").close()
    except BaseException as raised:
        failed.append(raised)


def beside_steps(store):
    began, failed = threading.Event(), []
    alone = train(50)
    thread = threading.Thread(target=in_thread, args=(store, 10, began, failed))
    thread.start()
    train(500, began)
    thread.join()
    assert not failed, failed
    assert train(50) == alone
    return "10 exchanges beside 500 steps, the same sums"


def beside_capture(store):
    began, failed = threading.Event(), []
    began.set()
    value, graph = torch.zeros(1024, device="cuda"), torch.cuda.CUDAGraph()
    thread = threading.Thread(target=in_thread, args=(store, 1, began, failed))
    with torch.cuda.graph(graph, stream=torch.cuda.Stream(), capture_error_mode="global"):
        thread.start()
        for _ in range(500):
            value += 1
        thread.join()
    value.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert float(value[0]) == 500, float(value[0])
    return f"the graph replays; the exchange: {failed or 'good'}"


def main():
    mode, store, before = sys.argv[1], sys.argv[2], environment()
    torch.cuda.set_device(0)
    torch.zeros(1, device="cuda")
    dist.init_process_group("cpu:gloo,cuda:nccl")
    if mode in ("thread", "capture"):
        said = beside_steps(store) if mode == "thread" else beside_capture(store)
    else:
        if mode == "after":
            check_sum()
        first = exchange(store)
        check_sum()
        again = exchange(store)
        check_sum()
        world = dist.get_world_size()
        assert again[1] < 16, (first, again)
        said = (f"{mode}: first {first[0]:.2f} s, {first[1]:.0f} MiB of all {world} ranks stay (code); again {again[0]:.2f} s, "
                f"{again[1]:.0f} MiB stay; torch's sums are right")
    assert environment() == before, (before, environment())
    print(f"rank {RANK}: {said}; NCCL's variables are as before", flush=True)
    rankstore.current().close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
