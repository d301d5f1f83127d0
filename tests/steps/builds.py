# SPDX-License-Identifier: Apache-2.0
"""The builds that the steps need, below build/."""
import glob
import os
import subprocess

CORES = os.cpu_count() or 2
BUILDS = {
    "release": ["--buildtype=release", "--werror"],
    "address": ["-Db_sanitize=address,undefined", "-Db_lundef=false", "--buildtype=debugoptimized"],
    "thread": ["-Db_sanitize=thread", "-Db_lundef=false", "--buildtype=debugoptimized"],
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
