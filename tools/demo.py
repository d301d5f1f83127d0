# SPDX-License-Identifier: Apache-2.0
"""The main job and its table. Called by tools/demo."""
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile

RANKS = "4"


def run(*command):
    """Runs a command and returns its standard output; a failure ends the demo with its message."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"demo: {' '.join(command)} ended with {done.returncode}")
    return done.stdout


def rankstore(cli, *arguments, ranks=RANKS):
    os.environ.setdefault("OMPI_MCA_btl", "^tcp")  # one node: Open MPI need not look at its interfaces, and complain about them
    launcher = ["mpirun", "-n", ranks] if ranks else []
    return json.loads(run(*launcher, cli, *arguments, "--json"))


def say(what):
    """What is done now: to standard error, for who waits."""
    print(f"... {what}", file=sys.stderr, flush=True)


def collect(source, target):
    """Copies the folder's *.py files (without caches and installed packages); returns how many."""
    count = 0
    for folder, folders, files in os.walk(source):
        folders[:] = [f for f in folders if f not in ("__pycache__", "site-packages", "dist-packages")]
        for name in files:
            path = os.path.join(folder, name)
            if not name.endswith(".py") or not is_text(path):
                continue
            copy = os.path.join(target, os.path.relpath(path, source))
            os.makedirs(os.path.dirname(copy), exist_ok=True)
            shutil.copyfile(path, copy)
            count += 1
    return count


def is_text(path):
    with open(path, "rb") as file:
        try:
            text = file.read().decode("utf-8")
        except UnicodeDecodeError:
            return False
    return "\0" not in text


def mib(count):
    return f"{count / 2**20:.1f} MiB" if count >= 2**20 else f"{count / 2**10:.1f} KiB"


def table(built, plans, shared, unshared):
    def both(name, text):
        print(f"{name:<34} {text(shared):>18} {text(unshared):>18}")

    waste = {plan["strategy"]: 100 * (1 - plan["efficiency"]) for plan in plans["plans"]}
    print(f"{'samples kept / filtered out':<34} {built['samples']:,} / {built['filtered']:,}")
    print(f"{'bytes of data / bytes exchanged':<34} {mib(built['bytes'])} / {mib(shared['exchange_bytes'])}")
    print(f"{'padding waste':<34} random {waste['random']:.1f} %, bucket {waste['bucket']:.1f} %, "
          f"sorted {waste['sorted']:.1f} %")
    print()
    print(f"{'':<34} {'shared disk':>18} {'over TCP':>18}")
    both("read from this rank's node", lambda b: mib(b["local_bytes"]))
    both("fetched from other ranks", lambda b: mib(b["remote_bytes"]))
    both("samples a second", lambda b: f"{b['samples'] / b['seconds']:,.0f}")
    both("time waited for samples", lambda b: f"{b['wait_seconds']:.3f} s")
    both("peak memory of a rank", lambda b: mib(b["peak_anon_bytes"]))
    exact = shared["exactly_once"] and unshared["exactly_once"]
    same = shared["digest"] == unshared["digest"] and shared["plan_digest"] == unshared["plan_digest"]
    print()
    print(f"same plan and same bytes both ways: {'yes' if same else 'NO'}")
    print(f"every sample delivered exactly once: {'yes' if exact else 'NO'}")
    return exact and same


NEXT = """
Next:
  export PATH="$PWD/{folder}:$PATH"
  rankstore build YOUR.jsonl -o store && rankstore plan store --max-tokens 16k --compare    # docs/cli.md
  . .venv/bin/activate && pip install ./python_bindings    # `import rankstore`: python_bindings/docs/start.md"""


def main():
    # Files of more than 64 KiB count as 64 KiB in the plan, as a training job would truncate them.
    budget = ["--max-tokens", "256k", "--max-length", "64k", "--too-long", "truncate"]
    cli = os.path.join(sys.argv[1], "tools", "rankstore", "rankstore")
    source = sys.argv[2] or sysconfig.get_paths()["stdlib"]
    with tempfile.TemporaryDirectory(prefix="rankstore-demo-") as work:
        files = os.path.join(work, "files")
        store = os.path.join(work, "store-{rank}")
        print(f"{collect(source, files):,} files below {source}; {RANKS} ranks under mpirun", flush=True)
        say("building the dataset")
        built = rankstore(cli, "build", files, "-o", store, "--format", "folder",
                          "--schema", "path:str,text:str", "--key", "path", "--length", "text",
                          "--where", 'text != ""', "--unit-size", "1M")
        print(f"built dataset {built['dataset']} in {built['seconds']:.2f} s, each rank its own shard\n")
        say("planning its batches by each strategy")
        plans = rankstore(cli, "plan", store, "--compare", *budget)
        say("reading an epoch, the ranks sharing the node's disk")
        shared = rankstore(cli, "bench", store, *budget)
        say("reading it again, all that a rank does not own over TCP")
        unshared = rankstore(cli, "bench", store, "--no-share", *budget)
        good = table(built, plans, shared, unshared)
    if good:
        print(NEXT.format(folder=os.path.dirname(cli)))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
