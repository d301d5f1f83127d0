# SPDX-License-Identifier: Apache-2.0
"""The steps that need the Python package, and those beside torch."""
import ctypes
import importlib.util
import os
import re
import sys
import tempfile

from steps import NoGpu, Skip, package_library

HERE = os.path.dirname(os.path.abspath(__file__))
OPEN = """import sys, rankstore
try:
    rankstore.open(sys.argv[1], exchange="nccl").close()
except rankstore.UnsupportedError as why:
    print(why)
else:
    print("opened")
"""
BUILD = """import sys, rankstore
rows = ({"tokens": list(range(i % 300))} for i in range(5000))
with rankstore.build(rows, sys.argv[1], schema={"tokens": "uint16[*]"}, progress=False) as ds:
    assert len(ds) == 5000 and list(ds[299]["tokens"]) == list(range(299))
    print(f"rankstore {rankstore.__version__}: {len(ds)} samples built and read")
"""
ASSERTED = """import sys, time, rankstore, torch
try:
    torch.zeros(1, device="cuda")[torch.tensor([5], device="cuda")].sum().item()
except RuntimeError as raised:
    print(f"torch: {str(raised).splitlines()[0][:80]}")
begin = time.monotonic()
try:
    rankstore.open(sys.argv[1], exchange="nccl").close()
    sys.exit("the dataset opened on a GPU that has failed")
except rankstore.RankStoreError as raised:
    print(f"rankstore, after {time.monotonic() - begin:.2f} s: {str(raised)[:200]}")
"""


ON_GPU = """import runpy, sys, torch
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
print(f"{torch.cuda.max_memory_allocated() >> 10} KiB of the GPU")
assert torch.cuda.max_memory_allocated() > 0, "nothing was done on the GPU"
"""
# Program, what it imports, and where the samples begin in a line of its --record; None: it has none.
EXAMPLES = [("accelerate_training", "accelerate", 3), ("lightning_training", "lightning", 2), ("hf_trainer", "transformers", 3),
            ("packed_accelerate", "accelerate", None), ("packed_trainer", "transformers", None)]
SAMPLES = 600  # of an example's epoch; two epochs


def run_text(machine, text, *arguments):
    code, out, said = machine.run([sys.executable, "-c", text, *arguments])
    assert code == 0, (out + said)[-1500:]
    return out.strip()


def has_package():
    return importlib.util.find_spec("rankstore") is not None


def the_package_builds_and_reads(machine):
    """The Python package is imported, builds a dataset and reads it."""
    if not has_package():
        raise Skip("the package rankstore is not installed")
    with tempfile.TemporaryDirectory() as folder:
        return run_text(machine, BUILD, os.path.join(folder, "store"))


def torch_and_NCCL_are_found(machine):
    """torch with CUDA, and NCCL 2.18 or newer."""
    machine.needs_gpu()
    if importlib.util.find_spec("torch") is None:
        raise Skip("there is no torch: the steps beside it will fail")
    seen = run_text(machine, "import torch; print('torch', torch.__version__, 'CUDA', torch.version.cuda)")
    path, whose = (package_library(), "NVIDIA's package") if package_library() else ("libnccl.so.2", "the system's")
    version = ctypes.c_int()
    assert ctypes.CDLL(path).ncclGetVersion(ctypes.byref(version)) == 0, path
    number = version.value
    assert number >= 21800, number
    return f"{seen}; NCCL {number // 10000}.{number // 100 % 100}.{number % 100}, {whose}"


def the_package_meets_CUDA(machine):
    """rankstore.open(exchange="nccl") opens a dataset by the GPU."""
    if machine.double is not None or not has_package():
        raise Skip("needs a GPU and the package")
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        run_text(machine, BUILD, store)
        found = run_text(machine, OPEN, store)
    if found != "opened":
        raise NoGpu(found)
    return found


def by_torchrun(machine, ranks, program, *arguments):
    """What the ranks printed."""
    code, out, said = machine.run([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks,
                                   os.path.join(HERE, program), *arguments])
    errors = [line for line in said.splitlines() if re.search(r"Error: ", line)] or [(out + said)[-1500:]]
    assert code == 0, errors[0]
    return out.strip()


def beside_ranks(machine, ranks, mode):
    machine.needs_gpu()
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        run_text(machine, BUILD, store)
        out = by_torchrun(machine, ranks, "beside_ranks.py", mode, store)
    return "; ".join(line for line in out.splitlines() if line.startswith("rank 0"))


def a_job_of_ranks_with_NCCL_alone(machine):
    """1 and 3 ranks under torchrun whose process group has NCCL alone: build, exchange by NCCL, plan, device="cuda", bfloat16 and
    DistributedDataParallel; each sample once in each epoch; results on the GPU are gathered in order."""
    machine.needs_gpu()
    with tempfile.TemporaryDirectory() as folder:
        return "; ".join(by_torchrun(machine, ranks, "job.py", os.path.join(folder, str(ranks))) for ranks in (1, 3))


def check_record(path, first):
    """Each sample once in each of two epochs. first: where the samples begin in a line."""
    with open(path, encoding="utf-8") as file:
        ids = [int(word) for line in file for word in line.split()[first:]]
    assert len(ids) == 2 * SAMPLES, len(ids)
    assert sorted(ids[:SAMPLES]) == sorted(ids[SAMPLES:]) == list(range(SAMPLES)), "a sample was lost, or came twice"


def the_examples_train_on_the_GPU(machine):
    """Those of Accelerate, Lightning and the Trainer, as their pages have them: they use the GPU, and each sample comes once in each
    epoch."""
    machine.needs_gpu()
    folders = [os.path.join(HERE, "examples"), os.path.join(HERE, "..", "..", "python_bindings", "examples")]
    examples, seen = next(filter(os.path.isdir, folders)), []
    for name, needs, first in EXAMPLES:
        if importlib.util.find_spec(needs) is None:
            seen.append(f"{name}: not tried, there is no {needs}")
            continue
        with tempfile.TemporaryDirectory() as folder:
            record, options = os.path.join(folder, "record"), [os.path.join(folder, "store")]
            if first is not None:
                options = ["--out", *options, "--record", record]
            said = run_text(machine, ON_GPU, os.path.join(examples, name + ".py"), *options)
            if first is not None:
                check_record(record + ".0", first)
        seen.append(f"{name}: {', '.join(said.splitlines()[-2:])}")
    return "; ".join(seen)


def an_exchange_beside_training(machine):
    """The loss and torch's memory are as without it; a graph that another thread captures meanwhile in thread_local mode on a
    stream of its own replays; within a capture, and beside one on torch's capture stream, it is refused."""
    machine.needs_gpu()
    return machine.python("beside_training.py")


def torch_s_communicators_stay_as_they_are(machine):
    """4 ranks open a dataset before and after torch's own NCCL was used: torch's sums are right each time, the second exchange
    takes less than 30 MiB a rank and gives it back, and no variable of the process changes."""
    return " / ".join(beside_ranks(machine, 4, mode) for mode in ("before", "after"))


def a_thread_exchanges_while_torch_s_ranks_train(machine):
    """2 ranks, each with exchanges in a thread beside 500 steps: documented as not allowed; figures alone, and an end within
    180 s."""
    try:
        return beside_ranks(machine, 2, "thread")
    except AssertionError as raised:
        return f"as documented, it does not work: {raised}"


def a_capture_in_global_mode_on_a_stream_of_its_own(machine):
    """Nobody can see it, so it is documented as not allowed; figures alone: whether the graph replays."""
    try:
        return beside_ranks(machine, 2, "capture")
    except AssertionError as raised:
        return f"as documented, it does not work: {raised}"


def a_GPU_that_has_failed_is_an_error_at_once(machine):
    """After a device-side assertion of torch: opening ends with an error within 120 s, and the process ends."""
    machine.needs_gpu()
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store")
        run_text(machine, BUILD, store)
        return run_text(machine, ASSERTED, store).replace("\n", "; ")


def the_loader_copies_beside_the_work(machine):
    """Batches of all layouts equal main memory's; copies run beside a matmul in all steps but those that are queued before
    there is work; a step with copies takes at most 3 % longer than without; at most three batches lie on the GPU ahead."""
    machine.needs_gpu()
    return machine.python("loader.py")


FIRST = [the_package_builds_and_reads, torch_and_NCCL_are_found]
SECOND = [the_package_meets_CUDA]
STEPS = [
    the_loader_copies_beside_the_work,
    a_job_of_ranks_with_NCCL_alone,
    the_examples_train_on_the_GPU,
    an_exchange_beside_training,
    torch_s_communicators_stay_as_they_are,
    a_GPU_that_has_failed_is_an_error_at_once,
]
LAST = [a_capture_in_global_mode_on_a_stream_of_its_own, a_thread_exchanges_while_torch_s_ranks_train]
