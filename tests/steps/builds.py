# SPDX-License-Identifier: Apache-2.0
"""The builds that the steps need, below build/."""
import glob
import os
import subprocess


def count_cores():
    """Those that this process may use: by its affinity, and by the quota of its control group."""
    cores = len(os.sched_getaffinity(0))
    try:
        with open("/sys/fs/cgroup/cpu.max", encoding="ascii") as file:
            quota, period = file.read().split()
        return cores if quota == "max" else max(1, min(cores, round(int(quota) / int(period))))
    except (OSError, ValueError):
        return cores


CORES = count_cores()
# Half of the compiler's time at -O2.
CHECKED = ["-Doptimization=1", "-Ddebug=true"]
BUILDS = {
    "release": ["--buildtype=release", "--werror"],
    "address": ["-Db_sanitize=address,undefined", "-Db_lundef=false", *CHECKED],
    "thread": ["-Db_sanitize=thread", "-Db_lundef=false", *CHECKED],
    "fuzz": ["-Dfuzz=true", "-Dmpi=disabled", "--buildtype=debugoptimized"],
}
SANITIZER_ENV = {
    "ASAN_OPTIONS": "abort_on_error=0:detect_leaks=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:suppressions=" + os.path.abspath("tests/tsan.supp"),
}


def directory_of(name):
    return os.path.join("build", name)


def build(name):
    """Configures once, builds what has changed. False: it failed, and its output was printed."""
    directory, env = directory_of(name), dict(os.environ)
    if name == "fuzz":
        env["CC"], env["CXX"] = "clang-14", "clang++-14"
    if not os.path.exists(os.path.join(directory, "build.ninja")):
        done = subprocess.run(["meson", "setup", directory, *BUILDS[name]], env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            print(done.stdout[-4000:])
            return False
    targets = ["meson-test-prereq"] if name in ("address", "thread") else []  # no command line, no benchmarks
    if name == "fuzz":
        corpora = [os.path.basename(path)[:-len(".zip")] for path in glob.glob("tests/fuzz/corpus/*.zip")]
        targets = ["tests/fuzz/seeds", *("tests/fuzz/" + corpus for corpus in corpora),
                   *(os.path.splitext(path)[0] for path in glob.glob("tests/fuzz/fuzz_*.c"))]
    done = subprocess.run(["ninja", "-C", directory, "-j", str(CORES), *targets], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode != 0:
        print(done.stdout[-4000:])
    return done.returncode == 0
