# SPDX-License-Identifier: Apache-2.0
"""The Python package, built from the checkout, installed into build/python/site, and tested there with pytest. Prints a line
"ok NAME", "FAIL NAME" or "skip NAME: REASON" for each test.

Usage: tests/python.py [BUILD] [PYTEST ARGUMENT...]
       tests/python.py BUILD --install             only builds and installs
       tests/python.py BUILD --installed FILE...   these files of tests, with what is installed
"""
import os
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree

SITE = os.path.abspath("build/python/site")


def install():
    """pip builds in place, so a second time only what has changed."""
    done = subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-build-isolation", "--no-deps",
         "--upgrade", "--target", SITE, "-Cbuild-dir=" + os.path.abspath("build/python/build"),
         "--config-settings=setup-args=-Dwerror=true", "./python_bindings"],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout[-4000:])
    print("ok install" if done.returncode == 0 else "FAIL install", flush=True)
    return done.returncode == 0


def report(path):
    """A line a test, from pytest's own record."""
    failed = 0
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname', '').split('.')[-1]}::{case.get('name')}"
        bad, skipped = case.find("failure"), case.find("skipped")
        bad = bad if bad is not None else case.find("error")
        if bad is not None:
            failed += 1
            print(f"FAIL {name}\n{textwrap.indent((bad.text or '')[-3000:], '  ')}")  # or its words look like results
        elif skipped is not None:
            print(f"skip {name}: {skipped.get('message')}")
        else:
            print(f"ok {name}")
    return failed


def main():
    arguments = sys.argv[2:]
    if arguments[:1] == ["--installed"]:
        arguments = arguments[1:]
        record = os.path.join(os.path.dirname(SITE), os.path.basename(arguments[0]) + ".xml")
    elif not install():
        return 1
    elif arguments == ["--install"]:
        return 0
    else:
        record = os.path.abspath("build/python/tests.xml")
    if os.path.exists(record):
        os.unlink(record)
    environment = {**os.environ, "PYTHONPATH": SITE, "OMP_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "false",
                   "PYTHONDONTWRITEBYTECODE": "1"}
    chosen = arguments or ["python_bindings/tests"]
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib",
                           "--junitxml", record, *chosen], env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    print(done.stdout[-6000:])
    if not os.path.exists(record):
        print(f"FAIL pytest ended with {done.returncode}")
        return 1
    failed = report(record)
    return 1 if failed or done.returncode != 0 else 0


if __name__ == "__main__":
    sys.exit(main())
