# SPDX-License-Identifier: Apache-2.0
"""The nccl exchange as a user meets it: built without a header of NVIDIA, loaded at run time and not before, on a machine
without a GPU and, over the stand-in of CUDA and NCCL, on two nodes of two ranks."""
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from support.report import Skip, run_all  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
RANKSTORE = os.path.join(BUILD, "tools", "rankstore", "rankstore")
DOUBLE = os.path.join(BUILD, "tests", "support", "gpu", "libgpu_double.so")
WORK = tempfile.mkdtemp(prefix="rankstore-nccl-")
STORE = os.path.join(WORK, "store")
NVIDIA = os.path.join(sysconfig.get_path("purelib"), "nvidia")
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n", "4"]
# Two ranks a node.
NODES = ["sh", "-c", 'RKS_NODE=node-$((OMPI_COMM_WORLD_RANK / 2)) exec "$@"', "sh"]


def run(*command, code=0, **environment):
    """It must end with `code`, and the stand-in must not complain."""
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=3000)
    assert "the stand-in: " not in done.stderr, done.stderr
    assert done.returncode == code, f"{' '.join(command)}: exit {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done


def package_library():
    found = glob.glob(os.path.join(NVIDIA, "nccl", "lib", "libnccl.so.2"))
    if not found:
        raise Skip("nvidia-nccl is not installed")
    return found[0]


def has_gpu():
    return os.path.exists("/dev/nvidiactl")


def a_store_is_made():
    with open(os.path.join(WORK, "made.jsonl"), "w", encoding="utf-8") as file:
        for i in range(6000):
            file.write(json.dumps({"text": "x" * (i * 37 % 400)}) + "\n")
    run(RANKSTORE, "build", os.path.join(WORK, "made.jsonl"), "-o", STORE, "-j", "4", "--unit-size", "100k")


def nothing_is_loaded_where_it_is_not_asked_for():
    done = run(RANKSTORE, "bench", STORE, "-j", "2", LD_DEBUG="files")
    assert "librankstore" in done.stderr
    for name in ("libcuda", "libnccl", "gpu_double"):
        assert name not in done.stderr, f"{name} was looked for"


def without_a_driver_it_says_so_in_one_line():
    if has_gpu():
        raise Skip("this machine has a GPU")
    done = run(RANKSTORE, "bench", STORE, "--exchange", "nccl", code=3, RKS_NCCL_LIBRARY=package_library())
    assert done.stderr.startswith("rankstore bench: no CUDA driver: libcuda.so.1"), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def without_nccl_it_says_so_in_one_line():
    done = run(RANKSTORE, "bench", STORE, "--exchange", "nccl", code=3, RKS_NCCL_LIBRARY="/nonexistent/libnccl.so.2")
    assert done.stderr.startswith("rankstore bench: no NCCL: /nonexistent/libnccl.so.2"), done.stderr


def doctor_s_nccl(folder):
    """Its two lines, by a library in that folder."""
    said = subprocess.run([RANKSTORE, "doctor"], env={**os.environ, "LD_LIBRARY_PATH": folder, "RKS_CUDA_LIBRARY": DOUBLE},
                          capture_output=True,
                          text=True, timeout=600).stdout.splitlines()
    (at,) = [number for number, line in enumerate(said) if line.split()[1] == "nccl"]
    return " ".join(said[at:at + 2])


def the_package_of_the_environment_is_found():
    """The command looks in the Python environment that it is installed in, if its file is of somebody who may be trusted."""
    environment = os.path.join(WORK, "environment")
    package = os.path.join(environment, "lib", "python3.11", "site-packages", "nvidia", "nccl", "lib")
    os.makedirs(package)
    os.makedirs(os.path.join(environment, "bin"))
    (library,) = glob.glob(os.path.join(BUILD, "src", "librankstore.so.?"))
    shutil.copy(library, os.path.join(environment, "bin"))
    said = doctor_s_nccl(os.path.join(environment, "bin"))
    assert "not usable: no NCCL: libnccl.so.2" in said and "RKS_NCCL_LIBRARY names a libnccl.so.2" in said, said
    found = os.path.join(package, "libnccl.so.2")
    shutil.copy(DOUBLE, found)
    said = doctor_s_nccl(os.path.join(environment, "bin"))
    assert "usable: NCCL 2.28.9, GPU 0" in said and "not" not in said, said
    if os.geteuid() == 0:
        os.chown(found, 65534, 65534)
        said = doctor_s_nccl(os.path.join(environment, "bin"))
        assert "not usable: no NCCL: libnccl.so.2" in said, said


def the_real_nccl_has_all_that_is_called():
    """Found beside torch, loaded, its symbols taken and its version read; then the driver is missed, or the GPU is there."""
    done = run(RANKSTORE, "bench", STORE, "--exchange", "nccl", code=0 if has_gpu() else 3, RKS_NCCL_LIBRARY=package_library())
    assert "NCCL has no" not in done.stderr, done.stderr


def doctor_says_which_nccl_it_found():
    if has_gpu():
        raise Skip("this machine has a GPU")
    done = subprocess.run([RANKSTORE, "doctor"], env={**os.environ, "RKS_NCCL_LIBRARY": package_library()}, capture_output=True, text=True,
                          timeout=600)
    (line,) = [line for line in done.stdout.splitlines() if line.split()[1] == "nccl"]
    assert re.search(r"not usable: NCCL 2\.\d+\.\d+, no CUDA driver: libcuda.so.1", line), line


def options_that_are_none_are_named():
    done = run(RANKSTORE, "bench", STORE, "--exchange", "nccl:fast", code=2)
    assert '"fast"' in done.stderr and "rails=on|off" in done.stderr, done.stderr


def bench(exchange):
    done = run(*MPIRUN, *NODES, RANKSTORE, "bench", STORE, "--exchange", exchange, "--json", "--no-share",
               RKS_CUDA_LIBRARY=DOUBLE, RKS_NCCL_LIBRARY=DOUBLE)
    return json.loads(done.stdout)


def two_nodes_get_the_same_index_by_nccl_and_by_messages():
    if shutil.which("mpirun") is None:
        raise Skip("there is no mpirun")
    by_mpi = bench("mpi")
    for exchange in ("nccl", "nccl:rails=off", "nccl:slot=65536"):
        found = bench(exchange)
        assert found["exchange"] == "nccl" and found["exchange_why"] == "named", found
        assert found["exactly_once"] is True, found
        for name in ("digest", "plan_digest", "samples"):
            assert found[name] == by_mpi[name], (exchange, name, found, by_mpi)


def a_node_without_a_gpu_is_named_to_all():
    if shutil.which("mpirun") is None:
        raise Skip("there is no mpirun")
    if has_gpu():
        raise Skip("this machine has a GPU")
    other = ["sh", "-c", 'test $OMPI_COMM_WORLD_RANK -ge 2 && unset RKS_CUDA_LIBRARY; exec "$@"', "sh"]
    done = subprocess.run([*MPIRUN, *NODES, *other, RANKSTORE, "bench", STORE, "--exchange", "nccl"],
                          env={**os.environ, "RKS_CUDA_LIBRARY": DOUBLE, "RKS_NCCL_LIBRARY": DOUBLE}, capture_output=True,
                          text=True, timeout=3000)
    assert done.returncode != 0
    assert "rank 2" in done.stderr and "no CUDA driver: libcuda.so.1" in done.stderr, done.stderr


def what_runs_on_a_gpu_runs_over_the_stand_in():
    done = run("tests/gpu/run", "--stand-in", BUILD)
    lines = done.stdout.splitlines()
    assert not any(line.startswith("FAIL") for line in lines) and sum(line.startswith("ok ") for line in lines) >= 11, done.stdout


if __name__ == "__main__":
    if not os.path.exists(DOUBLE):
        print("skip nccl: NVIDIA's headers, which the stand-in needs, were not found")
    else:
        run_all([
            a_store_is_made,
            nothing_is_loaded_where_it_is_not_asked_for,
            without_a_driver_it_says_so_in_one_line,
            without_nccl_it_says_so_in_one_line,
            the_package_of_the_environment_is_found,
            the_real_nccl_has_all_that_is_called,
            doctor_says_which_nccl_it_found,
            options_that_are_none_are_named,
            two_nodes_get_the_same_index_by_nccl_and_by_messages,
            a_node_without_a_gpu_is_named_to_all,
            what_runs_on_a_gpu_runs_over_the_stand_in,
        ])
    shutil.rmtree(WORK, ignore_errors=True)
