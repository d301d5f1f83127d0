# SPDX-License-Identifier: Apache-2.0
"""The file that runs the GPU tests elsewhere: made here, and run without a network in a root that has Python, torch and NCCL alone, up to
the first call of CUDA."""
from __future__ import annotations

import glob
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "build" / "release" / "tests" / "gpu" / "gpu_exchange"
OURS = re.compile(r"lib(lmdb|xxhash|jansson|simdjson|uv|sodium|archive|zstd|rankstore)\b")
# In mount, process and network namespaces of its own: what is mounted goes with them, and there is loopback alone.
INSIDE = """set -e
ip link set lo up
mount --make-rprivate /
mount -t proc proc "$1/proc"
for place in $3; do mkdir -p "$1$place"; mount --bind "$place" "$1$place"; mount -o remount,ro,bind "$1$place"; done
for place in null urandom; do touch "$1/dev/$place"; mount --bind "/dev/$place" "$1/dev/$place"; done
mkdir -p "$1/dev/shm"; mount -t tmpfs tmpfs "$1/dev/shm"
cd "$1/work"
exec chroot "$1" /bin/env -i PATH=/bin HOME=/work PYTHONPATH="$4" "$2" /work/kit.pyz --results /work/RESULTS.md
"""


def make(made: Path, *options: str | Path) -> Path:
    subprocess.run([ROOT / "tests" / "gpu" / "kit", *options, "--out", made], check=True, timeout=1800,
                   env={**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"})
    return made


def need_libraries(arch: str) -> None:
    if not (ROOT / "build" / "wheel" / arch / "libarchive.done").exists():
        pytest.skip(f"tools/wheel --arch {arch} has not built its libraries here, which takes minutes")


@pytest.fixture(scope="module")
def portable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_libraries(platform.machine())
    return make(tmp_path_factory.mktemp("kit") / "kit.pyz")


@pytest.fixture(scope="module", params=["native", "portable"])
def kit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if request.param == "portable":
        found: Path = request.getfixturevalue("portable")
        return found
    made = tmp_path_factory.mktemp("kit") / "kit.pyz"
    if not PROGRAM.exists() or not (ROOT / "build" / "python" / "site").exists():
        pytest.skip("build/release is not there")
    return make(made, "--native", ROOT / "build" / "release")


def needed(paths: list[str]) -> set[str]:
    """The shared libraries that these files need, but none of ours."""
    found: set[str] = set()
    for path in paths:
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, timeout=60).stdout
        found |= {real for real in re.findall(r"(/\S+) \(0x", listed) if not OURS.search(os.path.basename(real))}
    return found


def make_root(root: Path, python: str, packages: str) -> list[str]:
    """The folders to show in it: Python's modules and the packages. Programs and libraries are copied."""
    for place in ("proc", "dev", "bin", "tmp", "work", "etc"):
        (root / place).mkdir(parents=True)
    stdlib = sysconfig.get_path("stdlib")
    modules = glob.glob(f"{stdlib}/lib-dynload/*.so")
    torch = glob.glob(f"{packages}/torch/lib/*.so*") + glob.glob(f"{packages}/nvidia/nccl/lib/*.so*")
    programs = [python, str(shutil.which("env")), str(shutil.which("sh"))]
    libraries = {real for real in needed([*programs, *modules, *torch]) if not real.startswith((stdlib, packages))}
    for real in libraries:
        (root / real[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(real, root / real[1:])
    for program in programs[1:]:
        shutil.copy(program, root / "bin")
    (root / python[1:]).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(python, root / python[1:])
    return [stdlib, packages]


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has a GPU")
def test_it_runs_without_network_and_libraries_up_to_the_first_call_of_cuda(kit: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0 or subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs root and namespaces of its own")
    pytest.importorskip("torch")
    if not glob.glob(f"{sysconfig.get_path('purelib')}/nvidia/nccl/lib/libnccl.so.2"):
        pytest.skip("nvidia-nccl is not installed")
    root, python = tmp_path / "root", os.path.realpath(sys.executable)
    packages = sysconfig.get_path("purelib")
    shown = make_root(root, python, packages)
    shutil.copy(kit, root / "work" / "kit.pyz")
    assert not [path for path in root.rglob("*.so*") if OURS.search(path.name)]
    done = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "sh", "-c", INSIDE, "sh", root, python,
                           " ".join(shown), packages],
                          capture_output=True, text=True, timeout=600)
    assert done.returncode == 3, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert sum(line.startswith("ok ") for line in lines) == 3 and not any(line.startswith("FAIL") for line in lines), done.stdout
    assert re.search(r"stopped at step 4 of \d+, the first call of CUDA: no CUDA driver: libcuda.so.1", done.stderr), done.stderr
    results = (root / "work" / "RESULTS.md").read_text()
    assert "| 1 | two ranks exchange by messages |" in results and "5000 samples built and read" in results
    assert re.search(r"torch \S+ CUDA \S+; NCCL 2\.\d+\.\d+, NVIDIA's package", results), results
    assert "| stop |" in results and results.count("| not run |") >= 10 and "step 4 found no GPU" in results


def test_its_steps_run_over_the_stand_in(kit: Path, tmp_path: Path) -> None:
    double = ROOT / "build" / "release" / "tests" / "support" / "gpu" / "libgpu_double.so"
    if not double.exists():
        pytest.skip("NVIDIA's headers, which the stand-in needs, were not found")
    steps = tmp_path / "steps"
    shutil.unpack_archive(kit, steps, "zip")
    os.chmod(steps / "bin" / "gpu_exchange", 0o755)
    done = subprocess.run([sys.executable, steps / "gpu" / "run.py", steps / "bin" / "gpu_exchange", "--stand-in", double, "--results",
                           tmp_path / "RESULTS.md"], capture_output=True, text=True, timeout=900,
                          env={**os.environ, "LD_LIBRARY_PATH": str(steps / "lib")})
    assert done.returncode == 0, done.stdout + done.stderr
    results = (tmp_path / "RESULTS.md").read_text()
    assert "**no GPU**" in results and "| a killed rank ends the others |" in results and "| FAIL |" not in results
    assert results.count("| ok |") >= 9, results


# ---- what runs elsewhere -----------------------------------------------------------------------------


def unpacked(kit: Path, folder: Path) -> list[Path]:
    """The program and the package's library."""
    shutil.unpack_archive(kit, folder, "zip")
    program = folder / "bin" / "gpu_exchange"
    program.chmod(0o755)
    return [program, *(folder / "site" / "rankstore").glob("_core*.so")]


def newest_glibc(path: Path) -> tuple[int, int]:
    return max((int(major), int(minor)) for major, minor in re.findall(rb"GLIBC_(\d+)\.(\d+)", path.read_bytes()))


def check_portable(files: list[Path]) -> None:
    assert len(files) == 2, files
    for path in files:
        assert newest_glibc(path) <= (2, 28), (path, newest_glibc(path))
    assert not list(files[0].parents[1].glob("lib/*")), "libraries lie beside it"


def test_a_portable_kit_needs_the_c_library_alone(portable: Path, tmp_path: Path) -> None:
    files = unpacked(portable, tmp_path / "there")
    check_portable(files)
    for path in files:
        listed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True, timeout=60).stdout
        names = {os.path.basename(line.split()[0]) for line in listed.splitlines()}
        assert all(re.match(r"linux-vdso|ld-linux|lib(c|m|dl|rt|pthread)\.so", name) for name in names), listed


def test_the_kit_of_the_other_processor_runs_up_to_the_missing_nccl(tmp_path: Path) -> None:
    """By an emulator: ranks exchange by messages, and NCCL is looked for."""
    other = "aarch64"
    if platform.machine() == other:
        pytest.skip("this machine's own is tried by the other tests")
    need_libraries(other)
    emulator, system = shutil.which(f"qemu-{other}-static"), f"/usr/{other}-linux-gnu"
    if emulator is None or not os.path.exists(system):
        pytest.skip("qemu-user-static and libc6-arm64-cross are not installed")
    files = unpacked(make(tmp_path / "kit.pyz", "--arch", other), tmp_path / "there")
    check_portable(files)

    def run(*words: str) -> list[dict[str, object]]:
        done = subprocess.run([emulator, "-L", system, files[0], *words], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        found: list[dict[str, object]] = json.loads(done.stdout)
        return found

    assert [(one["status"], one["wrong"]) for one in run("2", "1048576", "65536", "pull", "1")] == [("ok", False)] * 2
    (alone,) = run("1", "65536", "4096", "nccl", "1")
    assert alone["status"] == "unsupported" and str(alone["text"]).startswith("no NCCL: libnccl.so.2"), alone
