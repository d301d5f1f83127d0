# SPDX-License-Identifier: Apache-2.0
"""Run by `meson dist`: puts the C core, which lies outside this folder, into the source package as its subproject."""
import os
import shutil
import subprocess

WANTED = ["meson.build", "meson.options", "LICENSE", "THIRD_PARTY", "FORMAT.md", "include", "src", "tools"]


def main():
    core = os.path.realpath(os.path.join(os.environ["MESON_SOURCE_ROOT"], "subprojects", "rankstore"))
    target = os.path.join(os.environ["MESON_DIST_ROOT"], "subprojects", "rankstore")
    if os.path.islink(target):
        os.unlink(target)
    listed = subprocess.run(["git", "-C", core, "ls-files", "-z", "--", *WANTED], check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        os.makedirs(os.path.dirname(os.path.join(target, name)), exist_ok=True)
        shutil.copy(os.path.join(core, name), os.path.join(target, name))


if __name__ == "__main__":
    main()
