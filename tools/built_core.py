#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes the core from where the checkout has compiled it: build/release, as tools/demo and tools/test make it. Called by src/meson.build,
so that `pip install ./python_bindings` need not compile it a second time.

Usage: tools/built_core.py find ROOT              brings the core of ROOT/build/release up to date and prints that directory; prints
                                                  nothing if it is not there, has other options, does not compile, or is another ninja's
       tools/built_core.py take BUILD ARCHIVE DEPFILE    brings it up to date and copies its objects into ARCHIVE; writes for ninja what
                                                         they were made from
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

CORE = os.path.join("src", "librankstore_core.a")
WANTED = {"buildtype": "release", "b_sanitize": [], "b_lto": False, "b_coverage": False, "b_pgo": "off"}
TRIVIAL = "rule touch\n  command = touch $out\nbuild made: touch\n"


def first_line(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.readline()
    except OSError:
        return ""


def log_of(ninja):
    """How the logs of this ninja begin."""
    with tempfile.TemporaryDirectory(prefix="rankstore-ninja-") as folder:
        with open(os.path.join(folder, "build.ninja"), "w", encoding="utf-8") as file:
            file.write(TRIVIAL)
        subprocess.run([ninja, "-C", folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return first_line(os.path.join(folder, ".ninja_log"))


def ninja_of(build):
    """One that reads the log of this build; another version would throw the log away and compile everything again. None: none is here."""
    log = first_line(os.path.join(build, ".ninja_log"))
    own = os.path.join(os.path.dirname(os.path.dirname(build)), ".venv", "bin", "ninja")
    found = [path for path in (own, shutil.which("ninja")) if path is not None and os.access(path, os.X_OK)]
    return next((path for path in found if log and log_of(path) == log), None)


def has_wanted_options(build):
    try:
        with open(os.path.join(build, "meson-info", "intro-buildoptions.json"), encoding="utf-8") as file:
            options = {one["name"]: one["value"] for one in json.load(file)}
    except (OSError, ValueError):
        return False
    options["b_sanitize"] = [] if options.get("b_sanitize") == "none" else options.get("b_sanitize")  # of Meson before 1.8
    return all(options.get(name) == value for name, value in WANTED.items())


def bring_up_to_date(build):
    ninja = ninja_of(build)
    return ninja is not None and subprocess.run([ninja, "-C", build, CORE], stdout=sys.stderr).returncode == 0


def find(root):
    build = os.path.join(os.path.realpath(root), "build", "release")
    if has_wanted_options(build) and bring_up_to_date(build):
        print(build)


def sources(root):
    return sorted(os.path.join(folder, name) for top in ("src", "include") for folder, _, names in os.walk(os.path.join(root, top))
                  for name in names if name.endswith((".c", ".cc", ".h", "meson.build")))


def take(build, archive, depfile):
    if not bring_up_to_date(build):
        sys.exit(f"built_core.py: {build} has no core that is up to date: make it with tools/demo, or configure this build again")
    objects = subprocess.run(["ar", "t", os.path.join(build, CORE)], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    if os.path.exists(archive):
        os.unlink(archive)
    subprocess.run(["ar", "qcs", archive, *objects], check=True)
    made_of = [path.replace(" ", "\\ ") for path in sources(os.path.dirname(os.path.dirname(build)))]
    with open(depfile, "w", encoding="utf-8") as file:
        file.write(" ".join([f"{archive}:", *made_of]) + "\n")


if __name__ == "__main__":
    {"find": find, "take": take}[sys.argv[1]](*sys.argv[2:])
