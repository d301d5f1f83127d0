# SPDX-License-Identifier: Apache-2.0
"""A rank of a DLIO run: DLIO's own program, which also says what it cost.

Usage: dlio_job.py FOLDER HYDRA-ARGUMENT...   FOLDER gets cost-RANK.json: processor and wall seconds of the run without start and
generation, worker processes included, and the peak memory of this process.
"""
from __future__ import annotations

import json
import resource
import sys
import time
import types
from pathlib import Path
from typing import Any


class NoTrace:
    """DLIO's tracer, which has no wheel for this Python and fetches its sources from elsewhere: nothing is traced."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def log(self, function: Any) -> Any:
        return function

    log_init = log_static = log

    def iter(self, values: Any, *_: Any, **__: Any) -> Any:
        return values

    def update(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> NoTrace:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


def leave_out() -> None:
    for name in ("dftracer", "dftracer.logger"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["tensorflow"] = types.ModuleType("tensorflow")  # imported for a profiler that is not used
    module: Any = sys.modules["dftracer.logger"]
    module.dftracer, module.dft_fn, module.DFTRACER_ENABLE = NoTrace, NoTrace, False


class QuietMap(dict[int, Any]):
    """DLIO's list of all samples. Its reader puts the list's text into a message for each sample that it reads, though nobody asks for
    messages of that kind; with 40,000 samples that took most of the reader's time. This one has a short text."""

    def __repr__(self) -> str:
        return f"{len(self)} samples"


def shorten_messages(arguments: Any) -> None:
    whole = arguments.get_global_map_index
    arguments.get_global_map_index = lambda *given: QuietMap(whole(*given))


def processor_seconds() -> float:
    """Of this process, its living children, and those that it has waited for."""
    import psutil
    me = psutil.Process()
    found = 0.0
    for process in (me, *me.children(recursive=True)):
        times = process.cpu_times()
        found += times.user + times.system + (times.children_user + times.children_system)
    return found


def measure(run: Any, folder: Path, rank: int) -> Any:
    def measured(*arguments: Any) -> None:
        before, begun = processor_seconds(), time.perf_counter()
        run(*arguments)
        cost = {"processor_s": processor_seconds() - before, "wall_s": time.perf_counter() - begun,
                "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}
        (folder / f"cost-{rank}.json").write_text(json.dumps(cost), encoding="utf-8")
    return measured


def main() -> None:
    folder = Path(sys.argv.pop(1))
    leave_out()
    from dlio_benchmark import main as dlio
    from dlio_benchmark.utils.config import ConfigArguments
    from mpi4py import MPI
    shorten_messages(ConfigArguments)
    dlio.DLIOBenchmark.run = measure(dlio.DLIOBenchmark.run, folder, MPI.COMM_WORLD.Get_rank())
    dlio.main()


if __name__ == "__main__":
    main()
