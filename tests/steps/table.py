# SPDX-License-Identifier: Apache-2.0
"""The steps of tools/test, in the order in which they are listed. `seconds` and `load` serve until a run has recorded its own."""
import dataclasses

# Programs of suites and parts of steps that take long on 2 cores: they begin first. Seconds, cores kept busy.
LONG = {
    "sweep": (50, 0.4), "nccl_faults": (40, 0.5), "faults": (44, 0.1), "group_faults": (40, 0.1), "exchange": (26, 0.2), "links": (22, 0.1),
    "info": (20, 0.1), "room": (19, 0.1), "bad_members": (18, 0.1), "engine": (18, 0.4), "home_helper": (16, 0.1), "limits": (16, 0.3),
    "earlier_keys": (15, 0.1), "strangers": (13, 0.1), "fetch_hostile": (13, 0.1), "lost": (12, 0.1), "publish": (12, 0.3),
    "index_file": (11, 0.1), "verify_flips": (11, 0.6), "shard_damage": (10, 0.8), "ingest_csv": (10, 0.8), "selection": (10, 0.4),
}


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    build: str            # what it needs built; "": it makes its own, or needs none
    kind: str             # "suite" of Meson, or "script"
    what: str             # the suite's name; the script's path
    seconds: float        # on 2 cores, of its jobs one after another
    load: float = 1       # cores that a job of it keeps busy
    quick: bool = True    # part of `tools/test --quick`
    parts: tuple = ()     # patterns of files that the script takes one by one, each a job
    long: tuple = ()      # patterns of names of parts that --quick leaves out
    together: int = 1     # as many parts are one job
    install: bool = False  # the script is called with --install before its parts
    apart: frozenset = frozenset()  # steps that must not run beside it
    alone: bool = False   # nothing runs beside it
    named: bool = False   # runs only if it is named


# Seconds of processor time each: jobs of several processes that import torch, trainers, servers of object stores.
LONG_PYTHON = tuple(f"test_{name}.py" for name in (
    "append", "bad_input", "compare_dlio", "compare_peers", "core_values", "docs", "doctor", "ends", "examples", "forbidden_calls",
    "frameworks", "gather", "gpu_kit", "group", "growth", "home", "home_nodes", "hung_storage", "interpreters", "map", "map_processes",
    "memory", "missing", "nccl", "notebook", "real_data", "refresh", "repair", "room", "same_batches", "store_commands", "store_faults",
    "store_helpers", "store_prune", "stored_inputs", "stores", "trainers", "two_builds", "workers_generation"))

# The faults look for processes of the command line that have been left running.
COMMAND_LINE = frozenset({"cli", "page", "readme", "demo", "nccl", "hosts", "slurm"})
SLOW = {"quick": False}
STEPS = [
    Step("format", "", "script", "tests/format.py", 7, 2),
    Step("layers", "", "script", "tests/layers.py", 1),
    Step("structure", "", "script", "tests/structure.py", 4),
    Step("workflows", "", "script", "tests/workflows.py", 1),
    Step("release", "release", "script", "tests/release.py", 8),
    Step("runner", "", "script", "tests/runner.py", 5),
    Step("unit", "release", "suite", "unit", 600, 0.3),
    Step("ranks", "release", "suite", "ranks", 20),
    Step("cli", "release", "script", "tests/cli/run.py", 90, parts=("tests/cli/*.test",)),
    Step("page", "release", "script", "tests/page.py", 40),
    Step("python", "", "script", "tests/python.py", 550, parts=("python_bindings/tests/test_*.py",), long=LONG_PYTHON, together=5,
         install=True),
    Step("typed", "", "script", "tests/typed.py", 50, **SLOW),
    Step("readme", "release", "script", "tests/readme.py", 30),
    Step("abi", "release", "script", "tests/abi.py", 2),
    Step("wheel list", "", "script", "tests/wheel_list.py", 1),
    Step("words", "release", "script", "tests/words.py", 2),
    Step("model", "", "script", "tests/model.py", 15, **SLOW),
    Step("site", "", "script", "tests/site.py", 40, 0.5, **SLOW),
    Step("demo", "release", "script", "tests/demo.py", 10),
    Step("nccl", "release", "script", "tests/nccl.py", 30, **SLOW),
    Step("install", "", "script", "tests/install.py", 60, **SLOW),
    Step("growth", "", "script", "tests/growth.py", 140, 0.6, apart=frozenset({"python", "address python"}), **SLOW),
    Step("faults", "release", "script", "tests/faults/run.py", 140, apart=COMMAND_LINE, **SLOW),
    Step("hosts", "release", "script", "tests/hosts/run.py", 40, 0.3, **SLOW),
    Step("slurm", "release", "script", "tests/slurm/run.py", 60, 0.7, apart=frozenset({"python"}), **SLOW),
    Step("sim", "release", "script", "tests/sim/run", 60, 2),
    Step("address unit", "address", "suite", "unit", 700, 0.4, **SLOW),
    Step("address ranks", "address", "suite", "ranks", 30, **SLOW),
    Step("address python", "address", "script", "tests/python_address.py", 60, **SLOW),
    Step("thread unit", "thread", "suite", "unit", 900, 0.4, **SLOW),
    Step("thread ranks", "thread", "suite", "ranks", 30, **SLOW),
    Step("fuzz", "fuzz", "suite", "fuzz", 160, 1, **SLOW),
    Step("bench", "release", "script", "tests/ratios.py", 120, alone=True, named=True),
]
