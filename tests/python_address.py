# SPDX-License-Identifier: Apache-2.0
"""The Python extension under AddressSanitizer: the tests of the core alone, which need neither torch nor long. Prints as
tests/python.py does.

The extension's own files are compiled here and linked with the core of the address build, which is there already: pip's way, which
compiles the core anew, is that of tests/python.py.

Usage: tests/python_address.py BUILD
"""
import concurrent.futures
import glob
import os
import shutil
import subprocess
import sys
import sysconfig

import python
from steps.builds import CORES

MADE = os.path.abspath("build/python/address")
SITE = os.path.join(MADE, "site")
TESTS = ["build", "collate", "epoch", "files", "plan", "store"]
CC = os.environ.get("CC", "gcc")
CHECKED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fno-omit-frame-pointer", "-O1", "-g"]
# What the core needs: core_deps in meson.build.
LIBRARIES = ["lmdb", "xxhash", "jansson", "simdjson", "uv", "sodium", "archive", "z", "dl", "pthread"]


def run(*command, **more):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)


def compiled(source):
    """The object of a file, made anew if any source or header has changed; None: it does not compile."""
    made = os.path.join(MADE, os.path.basename(source) + ".o")
    seen = [*glob.glob("python_bindings/src/*"), *glob.glob("include/**/*.h", recursive=True)]
    if os.path.exists(made) and os.path.getmtime(made) > max(map(os.path.getmtime, seen)):
        return made
    done = run(CC, "-c", "-fPIC", "-std=gnu11", "-D_GNU_SOURCE", "-fvisibility=hidden", "-DPy_LIMITED_API=0x030b0000", *CHECKED,
               "-Iinclude", "-I" + sysconfig.get_path("include"), source, "-o", made)
    print(done.stdout[-4000:], end="")
    return made if done.returncode == 0 else None


def install(build):
    """Builds the extension, and lays it beside the package's Python files."""
    os.makedirs(MADE, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(CORES) as threads:
        objects = list(threads.map(compiled, sorted(glob.glob("python_bindings/src/*.c"))))
    if None in objects:
        return False
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree("python_bindings/rankstore", os.path.join(SITE, "rankstore"))
    done = run(CC, "-shared", *CHECKED, *objects, "-Wl,--whole-archive", os.path.join(build, "src/librankstore_core.a"),
               "-Wl,--no-whole-archive", "-Wl,--version-script=python_bindings/src/core.map",
               *("-l" + library for library in LIBRARIES), "-lstdc++", "-o", os.path.join(SITE, "rankstore", "_core.abi3.so"))
    print(done.stdout[-4000:], end="")
    return done.returncode == 0


def main():
    if not install(sys.argv[1]):
        print("FAIL install")
        return 1
    preloaded = " ".join(run(CC, f"-print-file-name=lib{name}.so").stdout.strip() for name in ("asan", "ubsan"))
    record = os.path.join(MADE, "tests.xml")
    if os.path.exists(record):
        os.unlink(record)
    environment = {**os.environ, "PYTHONPATH": SITE, "LD_PRELOAD": preloaded, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
                   "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1"}  # the interpreter keeps much to its end
    done = run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", "--junitxml", record,
               *[f"python_bindings/tests/test_core_{name}.py" for name in TESTS], env=environment)
    print(done.stdout[-6000:])
    if not os.path.exists(record):  # a sanitizer's report ends the process
        print(f"FAIL pytest ended with {done.returncode}")
        return 1
    return 1 if python.report(record) or done.returncode != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
