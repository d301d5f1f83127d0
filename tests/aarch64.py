# SPDX-License-Identifier: Apache-2.0
"""The unit tests of the C library for aarch64 under qemu. By hand, as root, on Debian:

    python3 tests/aarch64.py [TEST...]          all of them, or those that Meson knows by these names

Installs Debian's cross compiler and qemu-user-static if they are missing. Unpacks the libraries for aarch64 into build/aarch64/root; the
system's own packages stay as they are. A program that starts another one needs binfmt_misc: the first lines say whether it is there.
Emulated programs take 5 to 10 times as long, so each test may take 20 times its limit. qemu ignores advice about memory (madvise):
nothing is read ahead or dropped, and maps are not split. It also makes maps of its own. So the four programs in KNOWN fail there.
"""
import glob
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORK = os.path.join(ROOT, "build", "aarch64")
SYSROOT, BUILD, APT = (os.path.join(WORK, name) for name in ("root", "build", "apt"))
TOOLS = ["g++-aarch64-linux-gnu", "qemu-user-static", "pkg-config"]
BINFMT = "/proc/sys/fs/binfmt_misc"
KNOWN = {"ahead", "guarded_map", "resident", "shard"}
KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"


def run(*command, **how):
    subprocess.run(command, check=True, **how)


def libraries():
    """The development packages that tools/setup installs to build the library."""
    with open(os.path.join(ROOT, "tools", "setup"), encoding="utf-8") as file:
        packages = re.search(r'^setup_build_packages="([^"]+)"', file.read(), re.M)[1].split()
    return [name for name in packages if name.endswith("-dev") and name not in ("libpython3-dev", "libopenmpi-dev")] + ["libstdc++-12-dev"]


def install_tools():
    run("bash", "-c", '. tools/setup && setup_packages "$@"', "setup", *TOOLS, cwd=ROOT)


def make_root():
    """Downloads the libraries with an apt configuration of its own, and unpacks them."""
    if os.path.exists(os.path.join(WORK, "root.done")):
        return
    for folder in (f"{APT}/lists/partial", f"{APT}/cache/archives/partial", SYSROOT):
        os.makedirs(folder, exist_ok=True)
    asked = ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)", "Created-By: Packages"]
    rows = sorted(set(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.splitlines()))
    with open(f"{APT}/sources.list", "w", encoding="utf-8") as file:
        file.writelines(f"deb [arch=arm64 signed-by={KEYS}] {row}\n" for row in rows)
    with open(f"{APT}/status", "w", encoding="utf-8"):
        pass
    with open(f"{APT}/conf", "w", encoding="utf-8") as file:
        file.write(f'Dir::Etc::SourceList "{APT}/sources.list";\nDir::Etc::SourceParts "/dev/null";\nDir::State "{APT}";\n'
                   f'Dir::State::Lists "{APT}/lists";\nDir::State::status "{APT}/status";\nDir::Cache "{APT}/cache";\n'
                   'APT::Sandbox::User "root";\nAPT::Architecture "arm64";\nAPT::Architectures { "arm64"; };\n')
    own = {**os.environ, "APT_CONFIG": f"{APT}/conf"}
    run("apt-get", "update", "-qq", env=own)
    run("apt-get", "install", "-y", "-qq", "--no-install-recommends", "--download-only", *libraries(), env=own)
    for package in sorted(glob.glob(f"{APT}/cache/archives/*.deb")):
        run("dpkg-deb", "-x", package, SYSROOT)
    with open(os.path.join(WORK, "root.done"), "w", encoding="utf-8"):
        pass


def build():
    places = [f"{SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig", f"{SYSROOT}/usr/share/pkgconfig"]
    with open(os.path.join(WORK, "machine"), "w", encoding="utf-8") as file:
        file.write("[binaries]\nc = 'aarch64-linux-gnu-gcc'\ncpp = 'aarch64-linux-gnu-g++'\nar = 'aarch64-linux-gnu-ar'\n"
                   "strip = 'aarch64-linux-gnu-strip'\npkg-config = 'pkg-config'\n"
                   f"exe_wrapper = ['qemu-aarch64-static', '-L', '{SYSROOT}']\n"
                   f"[properties]\nsys_root = '{SYSROOT}'\npkg_config_libdir = {places}\nneeds_exe_wrapper = true\n"
                   f"[built-in options]\nc_args = ['--sysroot={SYSROOT}']\ncpp_args = ['--sysroot={SYSROOT}']\n"
                   f"c_link_args = ['--sysroot={SYSROOT}']\ncpp_link_args = ['--sysroot={SYSROOT}']\n"
                   "[host_machine]\nsystem = 'linux'\ncpu_family = 'aarch64'\ncpu = 'aarch64'\nendian = 'little'\n")
    if not os.path.exists(f"{BUILD}/build.ninja"):
        run("meson", "setup", BUILD, f"--cross-file={WORK}/machine", "-Dmpi=disabled", "--buildtype=release", cwd=ROOT)
    run("ninja", "-C", BUILD)


def main():
    os.makedirs(WORK, exist_ok=True)
    os.environ["PATH"] = f"{ROOT}/.venv/bin:{os.environ['PATH']}"  # Meson, as tools/setup installs it
    install_tools()
    make_root()
    build()
    if not os.path.exists(f"{BINFMT}/qemu-aarch64"):
        print("binfmt_misc does not know aarch64: tests that start programs will fail. As root: mount -t binfmt_misc none "
              f"{BINFMT}; cat /usr/lib/binfmt.d/qemu-aarch64.conf > {BINFMT}/register", flush=True)
    tests = sys.argv[1:] or ["--suite", "unit"]
    subprocess.run(["meson", "test", "-C", BUILD, "--no-rebuild", "--timeout-multiplier", "20", "--print-errorlogs", *tests],
                   env={**os.environ, "QEMU_LD_PREFIX": SYSROOT})
    with open(f"{BUILD}/meson-logs/testlog.json", encoding="utf-8") as file:
        found = {one["name"].rpartition(":")[2].strip(): one["result"] for one in map(json.loads, file)}
    bad = {name for name, result in found.items() if result not in ("OK", "SKIP")}
    print(f"{len(found) - len(bad)} programs good; failed: {', '.join(sorted(bad - KNOWN)) or 'none'}; "
          f"failed as known under qemu: {', '.join(sorted(bad & KNOWN)) or 'none'}")
    return 1 if bad - KNOWN or not found else 0


if __name__ == "__main__":
    sys.exit(main())
