# SPDX-License-Identifier: Apache-2.0
"""The Python extension under AddressSanitizer: the tests of the core alone, which need neither torch nor long. Prints as
tests/python.py does.

Usage: tests/python_address.py [BUILD]
"""
import glob
import os
import shutil
import subprocess
import sys

import python

BUILD = os.path.abspath("build/python/address")
SITE = os.path.join(BUILD, "site")
TESTS = ["build", "collate", "epoch", "plan", "reader", "store"]


def run(*command, **more):
    return subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)


def install():
    """Builds the extension, and lays it beside the package's Python files."""
    if not os.path.exists(os.path.join(BUILD, "build.ninja")):
        done = run("meson", "setup", BUILD, "python_bindings", "-Db_sanitize=address", "-Db_lundef=false", "-Doptimization=1", "-Ddebug=true")
        if done.returncode != 0:
            print(done.stdout[-4000:])
            return False
    done = run("ninja", "-C", BUILD, "-j", str(os.cpu_count() or 2))
    if done.returncode != 0:
        print(done.stdout[-4000:])
        return False
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.copytree("python_bindings/rankstore", os.path.join(SITE, "rankstore"))
    for library in glob.glob(os.path.join(BUILD, "*.so")):
        shutil.copy(library, os.path.join(SITE, "rankstore"))
    return True


def main():
    if not install():
        print("FAIL install")
        return 1
    library = run(os.environ.get("CC", "gcc"), "-print-file-name=libasan.so").stdout.strip()
    record = os.path.join(BUILD, "tests.xml")
    if os.path.exists(record):
        os.unlink(record)
    environment = {**os.environ, "PYTHONPATH": SITE, "LD_PRELOAD": library, "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
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
