# SPDX-License-Identifier: Apache-2.0
"""What tests/gpu/run does. Prints a line a test as the other test scripts do and, if a GPU was used, its figures as Markdown.

Several NCCL ranks on one GPU are time-sliced: their speed says nothing about nodes with a GPU each, and nothing is judged by it.
"""
import datetime
import glob
import json
import os
import platform
import subprocess
import sys
import sysconfig

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from support.report import Skip, run_all  # noqa: E402

STAND_IN = "--stand-in" in sys.argv
BUILD = os.path.abspath(sys.argv[-1])
sys.argv = sys.argv[:1] + [BUILD]
HERE = os.path.dirname(os.path.abspath(__file__))
MIB = 1 << 20
LIMIT_GPU = 128 * MIB
LARGE = 64 * MIB if not STAND_IN else 2 * MIB
# Ranks that share a GPU are hosts of their own to NCCL, and speak through sockets.
ONE_GPU = {
    "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_NET_PLUGIN": "none", "NCCL_TUNER_PLUGIN": "none",
    "NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0", "NCCL_CUMEM_HOST_ENABLE": "0", "NCCL_RAS_ENABLE": "0", "NCCL_PROTO": "Simple",
}
FIGURES = []  # lines of the tables


def package_library():
    found = glob.glob(os.path.join(sysconfig.get_path("purelib"), "nvidia", "nccl", "lib", "libnccl.so.2"))
    return {"RKS_NCCL_LIBRARY": found[0]} if found else {}


def environment():
    if STAND_IN:
        double = os.path.join(BUILD, "tests", "support", "gpu", "libgpu_double.so")
        return {**os.environ, "RKS_CUDA_LIBRARY": double, "RKS_NCCL_LIBRARY": double}
    return {**package_library(), **os.environ, **ONE_GPU}


def exchange(ranks, size, chunk, backend, repeats=1, fault=()):
    """What each rank found: see gpu_exchange.c."""
    command = [os.path.join(BUILD, "tests", "gpu", "gpu_exchange"), ranks, size, chunk, backend, repeats, *fault]
    done = subprocess.run([str(word) for word in command], env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-2000:]}"
    return json.loads(done.stdout)


def good(found):
    for one in found:
        assert one["status"] == "ok" and not one["wrong"], one
    return found


def free_memory():
    """MiB of the GPU that nobody has taken, by the driver's own tool; None where there is no GPU."""
    if STAND_IN:
        return None
    done = subprocess.run(["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits"], capture_output=True, text=True,
                          timeout=60)
    return int(done.stdout.split()[0])


def median(values):
    return sorted(values)[len(values) // 2]


def the_same_bytes_as_by_messages():
    for ranks in (2, 4, 8):
        before = free_memory()
        by_messages = good(exchange(ranks, LARGE, 4 * MIB, "pull"))
        by_nccl = good(exchange(ranks, LARGE, 4 * MIB, "nccl", repeats=3))
        for one, other in zip(by_messages, by_nccl):
            assert one["bytes"] == other["bytes"] and other["used"] == "nccl", (one, other)
        after = free_memory()
        assert before is None or after >= before - 16, f"{before} MiB were free before, {after} are after"
        FIGURES.append(f"| {ranks} | {by_nccl[0]['bytes'] / 1e6:.0f} | {median(by_nccl[0]['seconds']):.3f} | "
                       f"{median(by_messages[0]['seconds']):.3f} | {max(one['gpu_slot_bytes'] for one in by_nccl) / MIB:.1f} | "
                       f"{max(one['gpu_nccl_bytes'] for one in by_nccl) / MIB:.1f} |")


def gpu_memory_stays_within_its_bound():
    """Of one rank: the ranks here share a GPU, so what the driver says has gone is that of all of them. The first exchange of a
    process also loads NCCL's code, which a training job has already: the second one is judged, and the first one told apart."""
    for ranks in (2, 8):
        first = max(one["gpu_nccl_bytes"] for one in good(exchange(ranks, LARGE, 4 * MIB, "nccl"))) / ranks
        found = good(exchange(ranks, LARGE, 4 * MIB, "nccl", repeats=2))
        slots = max(one["gpu_slot_bytes"] for one in found)
        taken = max(one["gpu_nccl_bytes"] for one in found) / ranks
        assert slots + taken <= LIMIT_GPU, (
            f"{slots} bytes of slots, {taken} a rank of NCCL's ({first} with its code); are NCCL_MIN_NCHANNELS or NCCL_MIN_CTAS set?")
        FIGURES.append(f"A rank of {ranks}: {taken / MIB:.1f} MiB of NCCL's own, {max(0, first - taken) / MIB:.1f} MiB of code.")


def a_local_error_is_known_to_all_within_a_second():
    for ranks in (2, 4):
        found = exchange(ranks, LARGE, MIB, "nccl", fault=("fail", 1))
        for one in found:
            assert one["status"] == "bad data" and one["error_rank"] == 1 and "the source is broken" in one["text"], one
            assert one["known_seconds"] < 1, one


def a_killed_rank_ends_the_others():
    found = exchange(4, LARGE, MIB, "nccl", fault=("kill", 2))
    for one in found:
        if one["rank"] != 2:
            assert one["status"] == "peer failed" and one["error_rank"] == 2, one
            assert one["known_seconds"] < 60, one


def chunks_are_measured():
    for chunk in (64 << 10, 256 << 10, MIB, 4 * MIB):
        found = good(exchange(4, LARGE, chunk, "nccl", repeats=3))
        FIGURES.append(f"| 4 | {chunk >> 10} KiB | {found[0]['bytes'] / median(found[0]['seconds']) / 1e9:.3f} |")


def of_torch(program):
    if STAND_IN:
        raise Skip("needs a GPU and torch")
    done = subprocess.run([sys.executable, os.path.join(HERE, program)], env=environment(), capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, f"{done.stdout[-2000:]}{done.stderr[-2000:]}"
    FIGURES.append(done.stdout.strip())


def an_exchange_beside_training():
    of_torch("beside_training.py")


def the_loader_copies_beside_the_work():
    of_torch("loader.py")


def print_results():
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True, timeout=60).stdout.strip()
    rows = [line for line in FIGURES if line.startswith("| ") and "KiB" not in line]
    chunks = [line for line in FIGURES if "KiB" in line]
    rest = [line for line in FIGURES if not line.startswith("| ")]
    print(
        "# The nccl exchange on a GPU\n\n"
        f"Written by `tests/gpu/run` on {datetime.date.today()}: {gpu} (driver), {platform.machine()}; library "
        f"{environment().get('RKS_NCCL_LIBRARY', 'of the system')}.\nRanks share one GPU, each a host of its own to NCCL: they are "
        "time-sliced, and the times say nothing about nodes with a GPU each.\n\n"
        "| ranks | MB a rank takes in | nccl, s | pull, s | slots, MiB | NCCL and contexts meanwhile, all ranks, MiB |\n"
        "|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n\n"
        "| ranks | chunk | GB/s into a rank |\n|---|---|---|\n" + "\n".join(chunks) + "\n\n" + "\n".join(rest))


if __name__ == "__main__":
    if not STAND_IN and not os.path.exists("/dev/nvidiactl"):
        print("There is no GPU here (no /dev/nvidiactl); --stand-in runs the same without one", file=sys.stderr)
        sys.exit(3)
    run_all([
        the_same_bytes_as_by_messages,
        gpu_memory_stays_within_its_bound,
        a_local_error_is_known_to_all_within_a_second,
        a_killed_rank_ends_the_others,
        chunks_are_measured,
        an_exchange_beside_training,
        the_loader_copies_beside_the_work,
    ])
    if not STAND_IN:
        print_results()
