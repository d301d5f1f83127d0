# SPDX-License-Identifier: Apache-2.0
"""Builds and runs every test, a step at a time, and adds up what they report. Called by tools/test.

A step is a meson suite in one of the builds, or a Python file of tests that prints a line "ok NAME", "FAIL NAME ..." or
"skip NAME: REASON" for each test. A skip that tests/skips.txt does not permit counts as a failure.
"""
import fnmatch
import glob
import json
import os
import re
import signal
import subprocess
import sys
import time

JOBS = str(os.cpu_count() or 2)
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
# name, build, kind, what
STEPS = [
    ("layers", None, "script", "tests/layers.py"),
    ("unit", "release", "suite", "unit"),
    ("ranks", "release", "suite", "ranks"),
    ("cli", "release", "script", "tests/cli/run.py"),
    ("page", "release", "script", "tests/page.py"),
    ("python", None, "script", "tests/python.py"),
    ("readme", "release", "script", "tests/readme.py"),
    ("model", None, "script", "tests/model.py"),
    ("demo", "release", "script", "tests/demo.py"),
    ("nccl", "release", "script", "tests/nccl.py"),
    ("install", None, "script", "tests/install.py"),
    ("faults", "release", "script", "tests/faults/run.py"),
    ("hosts", "release", "script", "tests/hosts/run.py"),
    ("address unit", "address", "suite", "unit"),
    ("address ranks", "address", "suite", "ranks"),
    ("address python", None, "script", "tests/python_address.py"),
    ("thread unit", "thread", "suite", "unit"),
    ("thread ranks", "thread", "suite", "ranks"),
    ("fuzz", "fuzz", "suite", "fuzz"),
]
LIMIT = 3000  # seconds of a step: some five times what a step takes; what it runs has limits of its own


class Totals:
    def __init__(self):
        self.passed, self.failed, self.skipped = 0, [], []
        self.permitted = []
        with open("tests/skips.txt", encoding="utf-8") as file:
            for line in file:
                line = line.split("#")[0].strip()
                if line:
                    self.permitted.append(line)

    def skip(self, name, reason):
        if any(fnmatch.fnmatchcase(one, pattern) for pattern in self.permitted for one in (name, f"{name}: {reason}")):
            self.skipped.append(name)
            print(f"  skipped {name}: {reason}")
        else:
            self.failed.append(f"{name} (skipped, and tests/skips.txt does not permit it: {reason})")


def build(name):
    directory = os.path.join("build", name)
    env = dict(os.environ)
    if name == "fuzz":
        env["CC"] = "clang-14"
    if not os.path.exists(os.path.join(directory, "build.ninja")):
        done = subprocess.run(["meson", "setup", directory, *BUILDS[name]], env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode != 0:
            print(done.stdout[-4000:])
            return False
    targets = []
    if name == "fuzz":
        corpora = [os.path.basename(path)[:-len(".zip")] for path in glob.glob("tests/fuzz/corpus/*.zip")]
        targets = ["tests/fuzz/seeds"] + ["tests/fuzz/" + name for name in corpora] + [os.path.splitext(path)[0] for path in glob.glob("tests/fuzz/fuzz_*.c")]
    done = subprocess.run(["ninja", "-C", directory, "-j", JOBS, *targets], text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode != 0:
        print(done.stdout[-4000:])
    return done.returncode == 0


def count_program(totals, step, test):
    """One test program: cmocka's own lines where it printed some, else its result."""
    name = f"{step}: {test['name'].split(' - ')[-1]}"
    text = test.get("stdout", "") + test.get("stderr", "")
    good = re.findall(r"^\[       OK \] (\S+)", text, re.M)
    skipped = re.findall(r"^\[  SKIPPED \] ([a-z_]\w*)", text, re.M)
    for one in dict.fromkeys(skipped):
        totals.skip(f"{name}: {one}", "the program says so")
    if test["result"] == "SKIP":
        totals.skip(name, text.strip().splitlines()[-1] if text.strip() else "exit 77")
    elif test["result"] in ("OK", "EXPECTEDFAIL"):
        totals.passed += len(good) or 1
    else:
        totals.passed += len(good)
        totals.failed.append(f"{name}: {test['result']}")
        print(f"---- {name}: {test['result']}\n" + text[-6000:])


def run(command, **options):
    """(output, exit code) of a command; at the limit it ends with all that it started, and the code is a word."""
    process = subprocess.Popen(command, text=True, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
                               **options)
    try:
        return process.communicate(timeout=LIMIT)[0], process.returncode
    except subprocess.TimeoutExpired as late:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return (late.stdout or b"").decode("utf-8", "replace"), f"its limit of {LIMIT} s"
    except KeyboardInterrupt:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def run_suite(totals, step, build_name, suite):
    directory = os.path.join("build", build_name)
    log = os.path.join(directory, "meson-logs", "testlog.json")
    if os.path.exists(log):
        os.unlink(log)
    multiplier = "1" if build_name == "release" else "4"
    environment = {**os.environ, **SANITIZER_ENV}
    if suite == "ranks":  # Open MPI leaves its own memory behind
        environment["ASAN_OPTIONS"] += ":detect_leaks=0"
    _, code = run(["meson", "test", "-C", directory, "--no-rebuild", "--suite", suite, "-t", multiplier,
                   "--num-processes", "1" if suite == "ranks" else JOBS], env=environment, stdout=subprocess.DEVNULL)
    if not isinstance(code, int):
        totals.failed.append(f"{step}: ended with {code}")
    if not os.path.exists(log):
        totals.failed.append(f"{step}: meson test wrote no log")
        return
    with open(log, encoding="utf-8") as file:
        for line in file:
            count_program(totals, step, json.loads(line))


def run_script(totals, step, build_name, path):
    directory = os.path.abspath(os.path.join("build", build_name)) if build_name else ""
    text, code = run([sys.executable, path, directory], stdout=subprocess.PIPE, env={**os.environ, **SANITIZER_ENV})
    seen = 0
    for line in text.splitlines():
        if line.startswith("ok "):
            totals.passed += 1
        elif line.startswith("skip "):
            name, _, reason = line[5:].partition(": ")
            totals.skip(f"{step}: {name}", reason)
        elif line.startswith("FAIL "):
            totals.failed.append(f"{step}: {line[5:]}")
        else:
            continue
        seen += 1
    if code != 0 or seen == 0 or "\nFAIL " in "\n" + text:
        print(f"---- {step} ended with {code}\n" + text[-8000:])
    if code != 0 and "\nFAIL " not in "\n" + text or seen == 0:
        totals.failed.append(f"{step}: ended with {code} after {seen} tests")


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(step[0] for step in STEPS))
        return 0
    unknown = [name for name in sys.argv[1:] if name not in [step[0] for step in STEPS]]
    if unknown:
        print(f"tests/run.py: there is no step {unknown[0]!r}; --list names them", file=sys.stderr)
        return 2
    totals, built = Totals(), {}
    for step, build_name, kind, what in STEPS:
        if sys.argv[1:] and step not in sys.argv[1:]:
            continue
        begun = time.monotonic()
        if build_name and build_name not in built:
            built[build_name] = build(build_name)
        if build_name and not built[build_name]:
            totals.failed.append(f"{step}: the {build_name} build failed")
            continue
        before = totals.passed
        if kind == "suite":
            run_suite(totals, step, build_name, what)
        else:
            run_script(totals, step, build_name, what)
        print(f"{step}: {totals.passed - before} passed, {time.monotonic() - begun:.0f} s", flush=True)
    for failure in totals.failed:
        print(f"FAILED {failure}")
    print(f"{totals.passed} passed, {len(totals.failed)} failed, {len(totals.skipped)} skipped")
    return 1 if totals.failed or totals.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
