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

STEPS, ROWS, LENGTH = 16, 512, 2000  # of a batch: 8 MB, in one tensor
WORK = 4  # matmuls a step
AHEAD = 2  # prefetch_device, as it is by default


def made(folder):
    draw = numpy.random.default_rng(0)
    rows = ({"tokens": draw.integers(0, 60000, LENGTH)} for _ in range(STEPS * ROWS))
    return rankstore.build(rows, folder + "/store", schema={"tokens": "int64[*]"}, progress=False)


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


# ---- what the GPU did ----------------------------------------------------------------------------------

def spans_of(events):
    """(copies to the GPU, its other work), each a list of (begin, end) in order. events: of torch's profiler, where calls on the CPU,
    which may be as long, stand among them."""
    spans = sorted((event.time_range.start, event.time_range.end, event.name) for event in events if event.device_type.name == "CUDA")
    copies = [(begin, end) for begin, end, name in spans if "HtoD" in name]
    return copies, [(begin, end) for begin, end, name in spans if "Memcpy" not in name and "Memset" not in name]


def count_beside(copies, work):
    """Of how many steps the copy ran beside work. Those of the first AHEAD + 1 do not count: they are queued before there is work."""
    assert len(copies) == STEPS, f"{len(copies)} copies in {STEPS} steps of one tensor each"
    return sum(any(begin < to and since < end for since, to in work) for begin, end in copies[AHEAD + 1:])


def timed(steps):
    """Milliseconds a step, without the first one, in which a loader begins."""
    next(steps)
    torch.cuda.synchronize()
    begin = time.perf_counter()
    count = sum(1 for _ in steps)
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count * 1e3


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
        plan = ds.plan("sequential", batch_size=ROWS, shuffle=False)
        equal_to_main_memory(ds, plan)
        loader = ds.loader(plan, collate=Pad(mask=None), device="cuda", prefetch_device=AHEAD)
        timed(work([None] * STEPS))
        timed(work(loader))
        alone, with_copies = [], []
        for _ in range(5):
            alone.append(timed(work([None] * STEPS)))
            with_copies.append(timed(work(loader)))
        alone, with_copies = sorted(alone)[2], sorted(with_copies)[2]
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            timed(work(loader))
        beside, wanted = count_beside(*spans_of(profile.events())), STEPS - AHEAD - 1
        stats = loader.stats()
        print(f"The loader: work alone {alone:.2f} ms a step, with copies {with_copies:.2f} ms; {beside} of {wanted} copies ran beside "
              f"a matmul; {stats['device_peak_bytes'] >> 20} MiB on the device ahead; {stats['copies_late']} late.")
        assert beside == wanted, "copies wait for the consumer"
        assert with_copies <= alone * 1.03, f"a step takes {with_copies / alone:.3f} times as long with copies"
        assert stats["device_peak_bytes"] <= (AHEAD + 1) * ROWS * LENGTH * 8, stats["device_peak_bytes"]
        assert stats["memory"]["pinned"]["peak"] > 0, "batches were not collated into pinned memory"


if __name__ == "__main__":
    main()
