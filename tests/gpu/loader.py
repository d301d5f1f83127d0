# SPDX-License-Identifier: Apache-2.0
"""`device="cuda"` on a GPU: batches equal those of main memory under a consumer that is slow, copies run beside a matmul, and how much
longer a step takes than the work alone. Prints the figures; an assertion says what is wrong.

Usage: python3 tests/gpu/loader.py      needs torch with CUDA and the Python package
"""
import tempfile
import time

import numpy
import rankstore
import torch
from rankstore import Lists, Nested, Pack, Pad

ROWS, LENGTH, STEPS = 4096, 2000, 8
WORK = 4  # matmuls a step


def made(folder):
    draw = numpy.random.default_rng(0)
    rows = ({"tokens": draw.integers(0, 60000, LENGTH).astype(numpy.uint16)} for _ in range(ROWS))
    return rankstore.build(rows, folder + "/store", schema={"tokens": "uint16[*]"}, progress=False)


def tensors(value):
    if isinstance(value, dict):
        return [one for part in value.values() for one in tensors(part)]
    if isinstance(value, (list, tuple)):
        return [one for part in value for one in tensors(part)]
    if getattr(value, "is_nested", False):
        return [value.values()]
    return [value] if hasattr(value, "is_pinned") else []


def equal_to_main_memory(ds, plan):
    for layout in (Pad(), Pack(), Nested(), Lists()):
        plain = [[one.clone() for one in tensors(batch)] for batch in ds.loader(plan, collate=layout, pin_memory=False)]
        moved = []
        for batch in ds.loader(plan, collate=layout, device="cuda"):
            torch.cuda._sleep(50_000_000)  # about 25 ms: a copy that is early, or memory that is used anew, would show
            moved.append([one.clone() for one in tensors(batch)])
        for one, other in zip(plain, moved, strict=True):
            for host, gpu in zip(one, other, strict=True):
                assert gpu.device.type == "cuda" and torch.equal(host, gpu.cpu()), type(layout).__name__


def timed(steps):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in steps:
        pass
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / STEPS * 1e3


def main():
    x = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)

    def work(batches):
        for batch in batches:
            y = x
            for _ in range(WORK):
                y = y @ x
            if batch is not None:
                tensors(batch)[0].sum()
            yield

    with tempfile.TemporaryDirectory() as folder, made(folder) as ds:
        plan = ds.plan("sequential", batch_size=ROWS // STEPS, shuffle=False)
        equal_to_main_memory(ds, plan)
        loader = ds.loader(plan, collate=Pad(), device="cuda")
        timed(work([None] * STEPS))
        timed(work(loader))
        alone, with_copies = [], []
        for _ in range(5):
            alone.append(timed(work([None] * STEPS)))
            with_copies.append(timed(work(loader)))
        alone, with_copies = sorted(alone)[2], sorted(with_copies)[2]
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            timed(work(loader))
        spans = [(event.name, event.time_range.start, event.time_range.end) for event in profile.events()]
        copies = [(begin, end) for name, begin, end in spans if "HtoD" in name and end - begin > 50]
        others = [(begin, end) for name, begin, end in spans if "Memcpy" not in name and end - begin > 500]
        beside = sum(any(b < end and begin < e for b, e in others) for begin, end in copies)
        print(f"The loader: work alone {alone:.2f} ms a step, with copies {with_copies:.2f} ms; {beside} of {len(copies)} copies ran beside "
              f"a matmul; {loader.stats()['device_peak_bytes'] >> 20} MiB on the device ahead.")
        assert beside >= len(copies) - 2, "copies wait for the consumer"
        assert with_copies <= alone * 1.03, f"a step takes {with_copies / alone:.3f} times as long with copies"
        pinned = loader.stats()["memory"]["pinned"]
        assert pinned["peak"] > 0, "batches were not collated into pinned memory"


if __name__ == "__main__":
    main()
