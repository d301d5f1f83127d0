# SPDX-License-Identifier: Apache-2.0
"""`device="cuda"` on a GPU: batches equal those of main memory under a consumer that is slow, copies run beside a matmul, and how much
longer a step takes than the work alone. Prints the figures; an assertion says what is wrong.

Usage: python3 tests/gpu/loader.py      needs torch with CUDA and the Python package
"""
import tempfile
import time

import numpy
import torch

import rankstore
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


def copied(batches, slow=False):
    """What each batch holds, copied when it is yielded. slow: while the GPU is kept busy, so that a copy that is early, or memory that is
    used again too soon, shows."""
    found = []
    for batch in batches:
        if slow:
            torch.cuda._sleep(50_000_000)  # about 25 ms
        found.append([one.clone() for one in tensors(batch)])
    return found


def check_equal(name, plain, moved):
    for one, other in zip(plain, moved, strict=True):
        assert one, name
        for host, gpu in zip(one, other, strict=True):
            assert gpu.device.type == "cuda" and torch.equal(host, gpu.cpu()), name


def of_samples(samples):
    """A user's collate function."""
    return torch.stack([torch.from_numpy(sample["tokens"]) for sample in samples]), len(samples)


def of_batch(batch):
    """A user's transform, whose result has tensors at several depths."""
    tokens = batch["tokens"]
    return {"twice": (tokens * 2, [tokens[:, 0].clone(), {"last": tokens[:, -1].clone()}]), "count": len(tokens), "name": "a batch"}


def equal_to_main_memory(ds, plan):
    for layout in (Pad(), Pack(), Nested(), Lists()):
        check_equal(type(layout).__name__, copied(ds.loader(plan, collate=layout, pin_memory=False)),
                    copied(ds.loader(plan, collate=layout, device="cuda"), slow=True))
    for more in ({"collate": of_samples}, {"collate": Pad(), "transform": of_batch},
                 {"collate": Pad(), "transform": of_batch, "threads": 3},
                 {"collate": Pad(), "prefetch_device": 1, "prefetch_batches": 1}):
        check_equal(str(more), copied(ds.loader(plan, pin_memory=False, **more)), copied(ds.loader(plan, device="cuda", **more), slow=True))


def kept_and_left(ds, plan):
    """Batches that the consumer keeps stay as they are, those of a loop that is left early too, while the next loop runs."""
    plain = [batch[0] for batch in copied(ds.loader(plan, collate=Pad(mask=None), pin_memory=False))]
    for where in ({"device": "cuda"}, {"pin_memory": True}):
        loader = ds.loader(plan, collate=Pad(mask=None), **where)
        kept = [tensors(batch)[0] for _, batch in zip(range(3), loader)]
        kept += [tensors(batch)[0] for batch in loader]
        assert all(torch.equal(one, other.cpu()) for one, other in zip(plain[:3] + plain, kept, strict=True)), where
        if "pin_memory" in where:
            assert all(one.is_pinned() for one in kept)
            moved = [one.to("cuda", non_blocking=True) for one in kept]
            assert all(torch.equal(one, other.cpu()) for one, other in zip(kept, moved, strict=True))


def by_dataloader(ds, plan):
    """torch's DataLoader with workers that are forked when CUDA is in use, and its own pinning."""
    plain = copied(ds.loader(plan, collate=Pad(), pin_memory=False))
    for workers in (0, 2):
        padded = ds.collating(Pad())
        loader = torch.utils.data.DataLoader(padded, batch_sampler=plan.sampler(), collate_fn=padded.collate, num_workers=workers,
                                             pin_memory=True)
        moved = []
        for batch in loader:
            assert all(one.is_pinned() for one in tensors(batch)), workers
            moved.append([one.to("cuda", non_blocking=True) for one in tensors(batch)])
        check_equal(f"DataLoader, {workers} workers", plain, moved)


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
        for check in (equal_to_main_memory, kept_and_left, by_dataloader):
            check(ds, plan)
        loader = ds.loader(plan, collate=Pad(mask=None), device="cuda", prefetch_device=AHEAD)
        timed(work([None] * STEPS))
        timed(work(loader))
        alone, with_copies = [], []
        for _ in range(5):
            alone.append(timed(work([None] * STEPS)))
            with_copies.append(timed(work(loader)))
        alone, with_copies = sorted(alone)[2], sorted(with_copies)[2]
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in work(loader):  # no wait within: the first copy behind one would find no work to run beside
                pass
            torch.cuda.synchronize()
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
