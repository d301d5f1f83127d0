# SPDX-License-Identifier: Apache-2.0
"""A wheel in an empty root: Python, glibc and pip, no compiler and no library of ours. By hand, as root:

    tests/wheel.py WHEEL ROOT [--no-torch] [--release NAME]

Makes ROOT with debootstrap if it is not there: of Debian's release NAME (bookworm) and of the wheel's processor. Installs the wheel,
numpy and torch with pip, and runs the README's programs. Prints how long each step took.

Another processor than this machine's needs qemu-PROCESSOR-static (Debian's qemu-user-static) in PATH and Linux 6.7. Linux knows of it
in a namespace of this program alone. Packages are unpacked there, not configured.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from readme import blocks  # noqa: E402

BINFMT = "/proc/sys/fs/binfmt_misc"
MACHINE = {"x86_64": b"\x3e\x00", "aarch64": b"\xb7\x00"}  # in an ELF header
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64"}
INCLUDE = "python3,python3-pip,python3-venv,ca-certificates"
SHELL = """set -eu
printf '{"text": "a short one"}\\n{"text": "and a somewhat longer one"}\\n' > notes.jsonl
rankstore build notes.jsonl -o notes --length text
rankstore plan notes --max-tokens 64 --compare
rankstore bench notes --max-tokens 64 -j 2 --json | grep '"exactly_once": true'
rankstore verify --full notes
rankstore doctor . > doctor.txt || [ $? -eq 1 ]
cat doctor.txt
"""
BARE = """import sys, rankstore
assert "numpy" not in sys.modules and "torch" not in sys.modules
print("rankstore", rankstore.__version__)
"""
RANKS = """import rankstore, sys
def main(group):
    ds = rankstore.build([{"x": [i] * (i % 9 + 1)} for i in range(500)], "ranks", group=group)
    plan = ds.plan("bucket", max_tokens=64)
    seen = sum(len(batch.ids) for batch in ds.loader(plan, collate=rankstore.Lists(), out="numpy"))
    with open("seen", "a") as file:
        print(seen, file=file)
    ds.close()
if __name__ == "__main__":
    code = rankstore.launch(2, main)
    sys.exit(code or sum(map(int, open("seen"))) != 500)
"""


def make_root(root, arch, release):
    if os.path.exists(os.path.join(root, "usr", "bin", "python3")):
        return
    foreign = arch != os.uname().machine
    subprocess.run(["debootstrap", "--variant=minbase", f"--arch={DEBIAN[arch]}", f"--include={INCLUDE}",
                    *(["--foreign"] if foreign else []),
                    release, root], check=True, stdout=subprocess.DEVNULL)
    if foreign:
        unpack(root)


def unpack(root):
    """What debootstrap has downloaded; its second stage would run the programs of another processor."""
    for package in sorted(glob.glob(f"{root}/var/cache/apt/archives/*.deb")):
        files = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, stdout=subprocess.PIPE).stdout
        subprocess.run(["tar", "-x", "-C", root, "--keep-directory-symlink"], input=files, check=True)
    for name in ("passwd", "group"):
        shutil.copy(f"{root}/usr/share/base-passwd/{name}.master", f"{root}/etc/{name}")
    if os.path.islink(f"{root}/proc"):  # as debootstrap makes it in a container
        os.unlink(f"{root}/proc")


def let_linux_start_programs_of(arch):
    """In this user namespace alone: its own binfmt_misc. "F": the emulator is opened now, so no root needs it."""
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00" + MACHINE[arch]
    mask = b"\xff" * 7 + b"\x00" + b"\xff" * 8 + b"\xfe\xff\xff\xff"
    emulator = shutil.which(f"qemu-{arch}-static") or sys.exit(f"qemu-{arch}-static is not in PATH: install qemu-user-static")
    escaped = ("".join(f"\\x{byte:02x}" for byte in text) for text in (header, mask))
    subprocess.run(["mount", "-t", "binfmt_misc", "none", BINFMT], check=True)
    with open(f"{BINFMT}/register", "w", encoding="ascii") as file:
        file.write(f":qemu-{arch}:M::{':'.join(escaped)}:{emulator}:F")


def inside(root, name, *command, text=None):
    began = time.monotonic()
    environment = {"PATH": "/venv/bin:/usr/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8",
                   **{key: value for key, value in os.environ.items() if key.startswith("PIP_")}}
    done = subprocess.run([shutil.which("chroot") or "/usr/sbin/chroot", root, "/bin/sh", "-c", 'cd /work && exec "$@"', "sh", *command],
                          input=text, text=True, env=environment,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=3000)
    good = done.returncode == 0
    print(f"{'ok' if good else 'FAIL'} {name}: {time.monotonic() - began:.1f} s"
          + ("" if good else f", exit {done.returncode}\n{done.stdout[-3000:]}"), flush=True)
    return done.stdout if good else ""


def main():
    wheel, root = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    arch = re.search(r"(x86_64|aarch64)\.whl$", wheel)[1]
    foreign = arch != os.uname().machine
    # In namespaces of its own, so that no mount outlives this program: whoever deletes ROOT deletes ROOT alone.
    if os.environ.get("RANKSTORE_WHEEL_MOUNTS") != "own":
        make_root(root, arch, sys.argv[sys.argv.index("--release") + 1] if "--release" in sys.argv else "bookworm")
        os.environ["RANKSTORE_WHEEL_MOUNTS"] = "own"
        own = ["--user", "--map-root-user", "--pid", "--fork"] if foreign else []
        os.execvp("unshare", ["unshare", *own, "--mount", sys.executable, *sys.argv])
    for name in ("work", "venv"):
        shutil.rmtree(os.path.join(root, name), ignore_errors=True)
    os.makedirs(os.path.join(root, "work"))
    for path in ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"):
        if os.path.exists(path):
            shutil.copy(path, root + path)
    shutil.copy(wheel, os.path.join(root, "work"))
    if foreign:
        let_linux_start_programs_of(arch)
        subprocess.run(["mount", "--rbind", "/dev", os.path.join(root, "dev")], check=True)
    for kind, place in (("proc", "proc"), ("tmpfs", "dev/shm")):
        os.makedirs(os.path.join(root, place), exist_ok=True)
        subprocess.run(["mount", "-t", kind, kind, os.path.join(root, place)], check=True)
    inside(root, "a virtual environment", "python3", "-m", "venv", "/venv")
    inside(root, "pip install of the wheel", "pip", "install", "-q", "--no-index", os.path.basename(wheel))
    inside(root, "import without numpy and torch", "python", "-c", BARE)
    inside(root, "the command line", "sh", "-s", text=SHELL)
    libraries = ["numpy"] if "--no-torch" in sys.argv else ["numpy", "torch"]
    inside(root, f"pip install of {' and '.join(libraries)}", "pip", "install", "-q", *libraries)
    inside(root, "two ranks", "sh", "-c", "cat > ranks.py && python ranks.py", text=RANKS)
    if "torch" in libraries:
        inside(root, "the README's program", "python", "-", text=blocks("README.md", "python")[0])


if __name__ == "__main__":
    main()
