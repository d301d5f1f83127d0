# SPDX-License-Identifier: Apache-2.0
"""An exchange in one thread while torch trains in another: the loss stays what it is without an exchange, torch's allocated and
reserved memory and its largest free block are as before, and a CUDA graph that the trainer captures meanwhile on a stream of its own
replays. Beside a capture that can be seen an exchange is refused. Needs a GPU, torch with CUDA, and the package rankstore. Prints a
sentence."""
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
    """Captures a graph in this thread, on a stream of its own, while work() runs in another one, then replays it."""
    value = torch.zeros(1024, device="cuda")
    graph = torch.cuda.CUDAGraph()
    thread = threading.Thread(target=work)
    with torch.cuda.graph(graph, stream=torch.cuda.Stream(), capture_error_mode="thread_local"):
        thread.start()
        for _ in range(1000):
            value += 1
        thread.join()
    value.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert float(value[0]) == 1000, float(value[0])


def check_refused(torch, store, mode):
    """In the thread that captures and in another one; the graph stays good."""
    import rankstore
    refused = []

    def open_it():
        try:
            rankstore.open(store, exchange="nccl").close()
        except rankstore.StateError as raised:
            refused.append(str(raised))

    value, graph, thread = torch.zeros(16, device="cuda"), torch.cuda.CUDAGraph(), threading.Thread(target=open_it)
    with torch.cuda.graph(graph, capture_error_mode=mode):
        value += 1
        open_it()
        thread.start()
        thread.join()
    graph.replay()
    torch.cuda.synchronize()
    assert float(value[0]) == 1, float(value[0])
    assert [text.split(" thread")[0] for text in refused] == ["this", "another"], (mode, refused)


def main():
    import numpy
    import torch

    import rankstore
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
        for mode in ("global", "thread_local", "relaxed"):
            check_refused(torch, store, mode)
        print(f"Beside training: the same loss ({alone:.6f}) with and without an exchange; torch's memory before and after: {before}; "
              "a graph that another thread captured meanwhile on a stream of its own replays; within a capture, and beside one on torch's "
              "stream, an exchange is refused.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
