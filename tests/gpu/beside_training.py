# SPDX-License-Identifier: Apache-2.0
"""An exchange in one thread while torch trains in another: the loss stays what it is without an exchange, torch's allocated and
reserved memory and its largest free block are as before, and a CUDA graph that the trainer captures meanwhile replays. Needs a GPU,
torch with CUDA, and the package rankstore. Prints a sentence."""
import os
import sys
import tempfile
import threading


def train(torch, steps, began=None):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(64, 512, device="cuda")
    loss = None
    for step in range(steps):
        optimizer.zero_grad(set_to_none=False)
        loss = (model(data) - data).square().mean()
        loss.backward()
        optimizer.step()
        if began is not None and step == 5:
            began.set()
    torch.cuda.synchronize()
    return float(loss)


def figures(torch):
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    return {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved(),
            "inactive": stats["inactive_split_bytes.all.current"]}


def capture_while(torch, work):
    """Captures a graph in this thread while work() runs in another one, then replays it."""
    value = torch.zeros(1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    thread = threading.Thread(target=work)
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        thread.start()
        for _ in range(1000):
            value += 1
        thread.join()
    value.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert float(value[0]) == 1000, float(value[0])


def main():
    import numpy
    import rankstore
    import torch
    if not torch.cuda.is_available():
        print("torch has no CUDA here", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        rows = ({"tokens": numpy.arange(i % 300, dtype=numpy.uint16)} for i in range(200000))
        rankstore.build(rows, store, schema={"tokens": "uint16[*]"}, progress=False).close()
        alone = train(torch, 300)
        train(torch, 10)
        before = figures(torch)
        began, failed = threading.Event(), []

        def exchange():
            try:
                began.wait(60)
                rankstore.open(store, exchange="nccl").close()
            except BaseException as raised:
                failed.append(raised)

        thread = threading.Thread(target=exchange)
        thread.start()
        beside = train(torch, 300, began)
        thread.join()
        after = figures(torch)
        assert not failed, failed
        assert alone == beside, f"the loss is {alone} alone, {beside} beside an exchange"
        assert before == after, f"torch's memory: {before} before, {after} after"
        capture_while(torch, exchange)
        assert not failed, failed
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                rankstore.open(store, exchange="nccl")
        except rankstore.StateError as raised:
            assert "captures a CUDA graph" in str(raised), raised
        else:
            raise AssertionError("an exchange was let into a capture")
        print(f"Beside training: the same loss ({alone:.6f}) with and without an exchange; torch's memory before and after: {before}; "
              "a graph that another thread captured meanwhile replays; within a capture it is refused.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
