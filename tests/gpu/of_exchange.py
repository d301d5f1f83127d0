# SPDX-License-Identifier: Apache-2.0
"""The steps of the exchange: processes that share one GPU, by the program gpu_exchange."""
import glob
import os
import shutil
import subprocess
import sys
import tempfile
import time

from steps import MIB, NoGpu, Skip, ask_gpu, median

LIMIT_GPU = 128 * MIB


def large(machine):
    """Bytes of a rank's stream; ranks that share a GPU wait for their slice of its time in each round."""
    return 16 * MIB if machine.double is None else 2 * MIB


def two_ranks_exchange_by_messages(machine):
    """The program runs with this machine's C library, and every byte arrives."""
    found = machine.good(2, MIB, 65536, "pull")
    return f"{found[0]['bytes']} bytes into rank 0, {found[1]['bytes']} into rank 1"


def the_first_call_of_CUDA(machine):
    """NCCL is found and loaded, the driver starts, and one rank exchanges with itself."""
    (found,) = machine.gpu_exchange(1, 65536, 4096, "nccl")
    if found["status"] == "unsupported" and machine.double is None:
        raise NoGpu(found["text"])
    assert found["status"] == "ok" and not found["wrong"], found
    return f"status {found['status']}, by {found['used']}"


def NCCL_takes_the_way_that_is_meant_for_it(machine):
    """NCCL's log of two ranks: 2 nodes, NET/Socket, at most 2 channels, 0 NVLS channels, rings; nothing of PAT."""
    machine.needs_gpu()
    with tempfile.TemporaryDirectory() as folder:
        machine.good(2, 4 * MIB, MIB, "nccl", NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,ENV,TUNING,NET,GRAPH",
                     NCCL_DEBUG_FILE=os.path.join(folder, "log.%p"))
        log = "".join(open(path, encoding="utf-8", errors="replace").read() for path in glob.glob(folder + "/*"))
    wanted = ("nNodes 2", "NET/Socket", " coll channels", "0 nvls channels", "Connected all rings")
    told = [line.split("NCCL INFO ")[-1] for line in log.splitlines() if any(word in line for word in (*wanted, "binomial"))]
    for word in wanted:
        assert word in log, f'no "{word}": {sorted(set(told))}'
    assert "binomial trees" not in log, sorted(set(told))
    assert " 1 coll channels" in log or " 2 coll channels" in log, sorted(set(told))
    return "; ".join(sorted(set(told)))[:600]


def the_same_bytes_as_by_messages(machine):
    """2, 4 and 8 ranks: every byte right, by rails, by one communicator of all and with small slots; afterwards the GPU's
    memory is as free as before."""
    size = large(machine)
    machine.figures += ["| ranks | MB a rank receives | nccl, s | pull, s | slots, MiB | NCCL and contexts meanwhile, all ranks, MiB |",
                        "|---:|---:|---:|---:|---:|---:|"]
    seen = []
    for ranks in (2, 4, 8):
        before = machine.free_mib()
        by_messages = machine.good(ranks, size, MIB, "pull")
        by_nccl = machine.good(ranks, size, MIB, "nccl", 3)
        for one, other in zip(by_messages, by_nccl):
            assert one["bytes"] == other["bytes"] and other["used"] == "nccl", (one, other)
        for backend in ("nccl:rails=off", "nccl:slot=65536"):
            machine.good(ranks, MIB // 2, MIB // 4, backend)
        after = machine.free_mib()
        assert before is None or after >= before - 16, f"{before} MiB were free before, {after} are after"
        machine.figures.append(
            f"| {ranks} | {by_nccl[0]['bytes'] / 1e6:.0f} | {median(by_nccl[0]['seconds']):.3f} | "
            f"{median(by_messages[0]['seconds']):.3f} | {max(one['gpu_buffer_bytes'] for one in by_nccl) / MIB:.1f} | "
            f"{max(one['gpu_nccl_bytes'] for one in by_nccl) / MIB:.1f} |")
        seen.append(f"{ranks} ranks good")
    machine.figures.append("")
    return ", ".join(seen)


def ten_exchanges_leave_nothing_behind(machine):
    """One process exchanges ten times: its open files and threads do not grow from the third time on, and the GPU's memory
    is as free as before."""
    before = machine.free_mib()
    found = machine.good(2, MIB, 262144, "nccl", 10)
    after = machine.free_mib()
    for one in found:
        assert max(one["files"][2:]) <= one["files"][2] and max(one["threads"][2:]) <= one["threads"][2], one
    assert before is None or after >= before - 16, f"{before} MiB were free before, {after} are after"
    return f"files {found[0]['files']}, threads {found[0]['threads']}, NCCL's MiB {found[0]['nccl_mib']}, free MiB {before} and {after}"


def GPU_memory_stays_within_its_bound(machine):
    """A rank's slots and what NCCL takes in the second exchange of a process are below 128 MiB. The first one also loads NCCL's
    code, about 100 MB, which a training job has already."""
    seen = []
    for ranks in (2, 8):
        found = machine.good(ranks, large(machine), 4 * MIB, "nccl", 2)
        # What the driver says has gone is that of all ranks, which share the GPU.
        code = max(one["code_mib"][0] for one in found) / ranks
        taken = max(one["nccl_mib"][1] for one in found) / ranks
        slots = max(one["gpu_buffer_bytes"] for one in found) / MIB
        assert slots + taken <= LIMIT_GPU / MIB, (
            f"{slots:.1f} MiB of slots, {taken:.1f} a rank of NCCL's ({code:.1f} of its code); are NCCL_MIN_NCHANNELS or "
            "NCCL_MIN_CTAS set?")
        seen.append(f"a rank of {ranks}: {slots:.1f} MiB of slots, {taken:.1f} of NCCL's own, {code:.1f} of code")
    return "; ".join(seen)


def a_failing_rank_is_known_to_all_within_a_second(machine):
    """A source fails in the middle: all ranks agree on its error within 1 s; 3 s later at most everything is freed (over the stand-in, on
    a machine as busy as it is, within 60 s each)."""
    seen, known, freed = [], *((1, 3) if machine.double is None else (60, 60))
    for ranks in (2, 4):
        found = machine.gpu_exchange(ranks, large(machine), MIB, "nccl", fault=("fail", 1))
        for one in found:
            assert one["status"] == "bad data" and one["error_rank"] == 1 and "the source is broken" in one["text"], one
            assert 0 <= one["known_seconds"] < known and one["ended_seconds"] < one["known_seconds"] + freed, one
        seen.append(f"{ranks} ranks: known after {max(one['known_seconds'] for one in found):.3f} s, "
                    f"freed after {max(one['ended_seconds'] for one in found):.3f} s")
    return "; ".join(seen)


def lost(found, rank):
    others = [one for one in found if one["rank"] != rank]
    for one in others:
        assert one["status"] in ("peer failed", "timeout") and one["error_rank"] == rank, one
    known, freed = (max(one[name] for one in others) for name in ("known_seconds", "ended_seconds"))
    return f"known after {known:.2f} s, freed after {freed:.2f} s: {others[0]['text']}"


def a_killed_rank_ends_the_others(machine):
    """The others name it, within 60 s, and end."""
    found = machine.gpu_exchange(4, large(machine), MIB, "nccl", fault=("kill", 2))
    assert all(one["known_seconds"] < 60 for one in found), found
    return lost(found, 2)


def a_stopped_rank_ends_the_others(machine):
    """As by SIGSTOP, with 3 s for a round: the others name it when it has been silent for 15 s, abort within 20 s, and give
    back the GPU's memory."""
    before = machine.free_mib()
    found = machine.gpu_exchange(2, large(machine), MIB, "nccl:timeout=3", fault=("stop", 1))
    seen = lost(found, 1)
    time.sleep(1)
    after = machine.free_mib()
    assert before is None or after >= before - 16, f"{before} MiB were free before, {after} are after"
    return seen


def memory_that_is_kept_serves_again(machine):
    """memory=keep, three exchanges: on a GPU the later ones take less than half the time of the first; nothing is left at the end."""
    before = machine.free_mib()
    found = machine.good(2, MIB, 262144, "nccl:memory=keep", 3)
    after = machine.free_mib()
    seconds = found[0]["seconds"]
    assert machine.double is not None or max(seconds[1:]) < seconds[0] / 2, seconds
    assert before is None or after >= before - 16, f"{before} MiB were free before, {after} are after"
    return f"seconds {seconds}"


def without_cuMem_all_ranks_exchange(machine):
    """NCCL_CUMEM_ENABLE=0: the same bytes, by one communicator of all."""
    found = machine.good(4, 4 * MIB, MIB, "nccl", 2, NCCL_CUMEM_ENABLE="0")
    return f"NCCL's MiB of all ranks, first and second: {found[0]['nccl_mib']}"


def a_full_GPU_is_an_error_on_all_ranks(machine):
    """Another process holds all but 8 MiB: all ranks end with one error within 60 s, and none hangs."""
    machine.needs_gpu()
    hog = "import sys, torch; n = torch.cuda.mem_get_info()[0] - (8 << 20); x = torch.empty(n, dtype=torch.uint8, device='cuda'); " \
          "print('held', flush=True); sys.stdin.read()"
    holder = subprocess.Popen([sys.executable, "-c", hog], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline().strip() == "held", "torch could not take the GPU's memory"
        found = machine.gpu_exchange(2, 4 * MIB, MIB, "nccl", limit_s=120)
    finally:
        holder.stdin.close()
        holder.wait(60)
    for one in found:
        assert one["status"] not in ("ok", "peer failed") and one["text"] == found[0]["text"], one
    return f"{found[0]['status']}: {found[0]['text']}"


def ranks_on(listed, gpu):
    """How many lines of `nvidia-smi --query-compute-apps=gpu_uuid,process_name` are ranks on that GPU."""
    return sum(line.startswith(gpu) and "gpu_exchange" in line for line in listed.splitlines())


def ranks_make_no_context_on_other_GPUs(machine):
    """With 2 GPUs: ranks on GPU 1, one of which fails, make no context on GPU 0, neither before nor behind their abort."""
    machine.needs_gpu()
    gpus = ask_gpu("uuid").split()
    if len(gpus) < 2:
        raise Skip("there is one GPU")
    command = [machine.exchange, "2", str(64 * MIB), str(MIB), "nccl", "1", "fail", "1"]
    looks = there = elsewhere = 0
    until = time.monotonic() + 120
    while there < 6 and time.monotonic() < until:  # both ranks in three looks; one run may be too short for them
        with subprocess.Popen(command, env=machine.environment(RKS_GPU="1"), stdout=subprocess.DEVNULL) as ranks:
            while ranks.poll() is None:
                listed = subprocess.run(["nvidia-smi", "--query-compute-apps=gpu_uuid,process_name", "--format=csv,noheader"],
                                        capture_output=True, text=True, timeout=60).stdout
                there, elsewhere, looks = there + ranks_on(listed, gpus[1]), elsewhere + ranks_on(listed, gpus[0]), looks + 1
    if there < 6:
        raise Skip(f"nvidia-smi showed the ranks on their own GPU {there} times in {looks} looks; as in a container, it may not see them")
    assert elsewhere == 0, f"on GPU 0 {elsewhere} times in {looks} looks"
    return f"on GPU 1 {there} times in {looks} looks, on GPU 0 none"


def chunks_are_measured(machine):
    """Figures alone: bytes a second into one of 4 ranks, by the size of a chunk, in at most 64 rounds of chunks."""
    machine.figures += ["| ranks | chunk | GB/s into a rank |", "|---:|---:|---:|"]
    for chunk in (64 << 10, 256 << 10, MIB, 4 * MIB):
        found = machine.good(4, min(large(machine), 64 * chunk), chunk, "nccl", 3)
        machine.figures.append(f"| 4 | {chunk >> 10} KiB | {found[0]['bytes'] / median(found[0]['seconds']) / 1e9:.3f} |")
    machine.figures.append("")
    return "see the table"


def compute_sanitizer_finds_nothing(machine):
    """No bad access of ours. Errors of CUDA's calls are not asked for: NCCL tries kernels that are for other GPUs."""
    machine.needs_gpu()
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not os.path.exists(tool):
        raise Skip("there is no compute-sanitizer")
    options = ["--target-processes", "all", "--report-api-errors", "no", "--error-exitcode", "9"]
    code, out, said = machine.run([tool, *options, machine.exchange, 2, MIB, 262144, "nccl", 1])
    assert code == 0, (out + said)[-1500:]
    return [line for line in (out + said).splitlines() if "ERROR SUMMARY" in line][-1]


STEPS = [
    two_ranks_exchange_by_messages,
    the_first_call_of_CUDA,
    NCCL_takes_the_way_that_is_meant_for_it,
    the_same_bytes_as_by_messages,
    ten_exchanges_leave_nothing_behind,
    GPU_memory_stays_within_its_bound,
    a_failing_rank_is_known_to_all_within_a_second,
    a_killed_rank_ends_the_others,
    a_stopped_rank_ends_the_others,
    memory_that_is_kept_serves_again,
    without_cuMem_all_ranks_exchange,
    a_full_GPU_is_an_error_on_all_ranks,
    ranks_make_no_context_on_other_GPUs,
    chunks_are_measured,
    compute_sanitizer_finds_nothing,
]
