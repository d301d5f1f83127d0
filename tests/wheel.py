# SPDX-License-Identifier: Apache-2.0
"""A wheel in an empty root: Python, glibc and pip, no compiler and no library of ours. By hand, as root:

    tests/wheel.py WHEEL ROOT [--no-torch] [--release NAME]

Makes ROOT with debootstrap if it is not there: of Debian's release NAME (bookworm) and of the wheel's processor (another than this
machine's needs qemu-user-static). Installs the wheel, numpy and torch with pip, and runs the README's programs. Prints how long each
step took.
"""
import os
import re
import shutil
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from readme import blocks  # noqa: E402

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
        shutil.copy(f"/usr/bin/qemu-{arch}-static", f"{root}/usr/bin/")
        subprocess.run(["chroot", root, f"/usr/bin/qemu-{arch}-static", "/bin/sh", "/debootstrap/debootstrap", "--second-stage"],
                       check=True,
                       stdout=subprocess.DEVNULL)


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
    # In a mount namespace of its own, so that no mount outlives this program: whoever deletes ROOT deletes ROOT alone.
    if os.environ.get("RANKSTORE_WHEEL_MOUNTS") != "own":
        os.environ["RANKSTORE_WHEEL_MOUNTS"] = "own"
        os.execvp("unshare", ["unshare", "--mount", sys.executable, *sys.argv])
    wheel, root = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    arch = re.search(r"(x86_64|aarch64)\.whl$", wheel)[1]
    make_root(root, arch, sys.argv[sys.argv.index("--release") + 1] if "--release" in sys.argv else "bookworm")
    for name in ("work", "venv"):
        shutil.rmtree(os.path.join(root, name), ignore_errors=True)
    os.makedirs(os.path.join(root, "work"))
    for path in ("/etc/resolv.conf", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"):
        if os.path.exists(path):
            shutil.copy(path, root + path)
    shutil.copy(wheel, os.path.join(root, "work"))
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
