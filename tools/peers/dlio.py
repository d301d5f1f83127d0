# SPDX-License-Identifier: Apache-2.0
"""The command line of tools/compare_dlio."""
from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path
from statistics import median
from typing import Any

ROUNDS = 3
NOT_A_RESULT = "This is DLIO with the workloads' record sizes, batch sizes and computation times. It is not an MLPerf Storage result."
HELP = f"""Runs the workloads of MLPerf Storage in DLIO, with DLIO's own PyTorch loader and with Rankstore (tools/peers/dlio_loader.py),
in turns. An emulated accelerator is a process that sleeps for the workload's time of computation after each batch; its utilisation is
the share of time that it sleeps. A loader that reads nothing shows what DLIO itself can reach on this machine.

{NOT_A_RESULT} Such results need data of
five times the memory of the host, and TFRecord files for three of the workloads; here there are fewer files, in NPZ (one sample a file)
or HDF5 (many).

The number of accelerators doubles as long as a loader keeps them as busy as the workload asks for (90 %, cosmoflow 70 %)."""
EXAMPLES = """examples:
  tools/compare_dlio -o figures                     all workloads, from memory; 20 minutes, 22 GB of disk
  tools/compare_dlio --cold -o figures              the same from the disk, in a control group with a fifth of the data's memory
  tools/compare_dlio --link 300 --only resnet50     from a store that gives 300 MB/s
  tools/compare_dlio --only resnet50 --rounds 5     one workload
  tools/compare_dlio --quick                        some minutes, few files: does everything work?
  tools/compare_dlio --here                         by the python3 on PATH; installs nothing

Without --here the first run makes build/dlio-venv (1 GB, from tools/peers/requirements-dlio.txt) and builds this checkout's Python
package into build/python/site.
"""


def arguments() -> argparse.Namespace:
    from dlio_work import WORKLOADS
    parser = argparse.ArgumentParser("tools/compare_dlio", description=HELP, epilog=EXAMPLES,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, default=Path("build/dlio/results"), metavar="FOLDER",
                        help="where dlio.md, dlio.json (dlio-cold.md, dlio-cold.json) and the logs go (build/dlio/results)")
    parser.add_argument("--only", metavar="WORKLOAD,...", default=",".join(WORKLOADS), help="these of " + ", ".join(WORKLOADS))
    parser.add_argument("--cold", action="store_true", help="drop the files from memory before each run, and limit the memory of the run")
    parser.add_argument("--link", type=float, metavar="MB",
                        help="from a store on this machine, behind a link of MB megabytes a second, into an empty local folder before "
                        "each run (needs root, rclone, iproute2); Rankstore alone, since DLIO's loader does not read over HTTP")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"runs of each number of accelerators ({ROUNDS})")
    parser.add_argument("--data", type=Path, default=Path("build/dlio/data"), metavar="FOLDER",
                        help="where made data lies, and stays (build/dlio/data)")
    parser.add_argument("--quick", action="store_true", help="few files, one accelerator, one round")
    parser.add_argument("--here", action="store_true", help="install nothing: use the python3 on PATH")
    chosen = parser.parse_args()
    if chosen.rounds < 1:
        parser.error("--rounds: at least 1")
    if chosen.link is not None and (chosen.cold or not chosen.link >= 1):
        parser.error("--link: at least 1 MB/s, and without --cold")
    for name in chosen.only.split(","):
        if name not in WORKLOADS:
            parser.error(f"--only: there is no {name!r}; there are {', '.join(WORKLOADS)}")
    return chosen


def table(name: str, found: dict[str, Any]) -> list[str]:
    """Lines of markdown: a line for each number of accelerators and loader, medians of its runs."""
    work, floor = found["work"], found["floor_bytes_s"]
    lines = [f"### {name}", "",
             f"A step takes {work['batch']} records of {work['record']:,} bytes and sleeps {work['sleep'] * 1000:g} ms; {work['files']} "
             f"files ({work['format'].upper()}), {found['bytes'] / 1e9:.1f} GB. A loader keeps up if utilisation is {work['wanted']:.0f} % "
             "or more.", ""]
    if floor:
        lines += [f"The same bytes by {found['floor']}: {median(floor) / 1e6:,.0f} MB/s ({min(floor) / 1e6:,.0f} to "
                  f"{max(floor) / 1e6:,.0f}).", ""]
    link = any(run.get("link_bytes_s") for run in found["runs"])
    head, rule = (" over the link, MB/s |", "---:|") if link else ("", "")
    lines += ["| accelerators | loader | utilisation | from .. to | MB/s |" + head + " processor ms a step and accelerator | "
              "peak RSS of one |",
              "|---:|---|---:|---:|---:|" + rule + "---:|---:|"]
    groups: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for run in found["runs"]:
        groups.setdefault((run["accelerators"], run["loader"]), []).append(run)
    for (accelerators, loader), runs in groups.items():
        good = [run for run in runs if run["error"] is None]
        if not good:
            lines.append(f"| {accelerators} | {loader} | {runs[0]['error']} | | | | |")
            continue
        lines.append(_line(accelerators, loader, good, link))
    return [*lines, ""]


def _line(accelerators: int, loader: str, good: list[dict[str, Any]], link: bool) -> str:
    keys = ("utilisation", "bytes_s", "processor_ms", "peak_rss_bytes") + (("link_bytes_s",) if link else ())
    middle = {key: median(run[key] for run in good) for key in keys}
    each = [run["utilisation"] for run in good]
    rate = "" if loader == "nothing" else f"{middle['bytes_s'] / 1e6:,.0f}"
    moved = f" {middle['link_bytes_s'] / 1e6:,.0f} |" if link else ""
    return (f"| {accelerators} | {loader} | {middle['utilisation']:.1f} % | {min(each):.1f} .. {max(each):.1f} | {rate} |{moved} "
            f"{middle['processor_ms']:,.2f} | {middle['peak_rss_bytes'] / 2**20:,.0f} MiB |")


def _loads(found: dict[str, dict[str, Any]]) -> str:
    each = [run["load"] for one in found.values() for run in one["runs"]]
    return f"{min(each):.0f} to {max(each):.0f}"


def write(out: Path, stem: str, about: dict[str, Any], found: dict[str, dict[str, Any]]) -> list[Path]:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = ["# DLIO's workloads", "", NOT_A_RESULT, "",
             f"{about['processor']}, {about['cores']} cores, {about['memory_bytes'] / 2**30:.0f} GiB; Python {about['python']}; "
             f"{versions}. Load of the machine: {_loads(found)}.", "",
             about["source"], "",
             "Medians of runs in turns; an epoch's first step does not count. `pytorch` is DLIO's loader, with as many workers as the "
             "workload names. It reads each record, and hands over a picture of a fixed size in its place; Rankstore checks the records, "
             "and hands them over as they are. `nothing` reads nothing: the most that DLIO reaches here. Ranks meet after each step (MPI), "
             "which costs processor time when there are several.", ""]
    for name, one in found.items():
        lines += table(name, one)
    texts = {f"{stem}.json": json.dumps({"schema_version": 1, "machine": about, "workloads": found}, indent=1) + "\n",
             f"{stem}.md": "\n".join(lines)}
    for name, text in texts.items():
        (out / (name + ".partial")).write_text(text, encoding="utf-8")
        os.replace(out / (name + ".partial"), out / name)
    return [out / name for name in texts]


def source_of(chosen: argparse.Namespace, race: Any) -> Any:
    import dlio_source
    if chosen.link is not None:
        return dlio_source.Store(race.data, race.bytes, chosen.link)
    return (dlio_source.Disk if chosen.cold else dlio_source.Memory)(race.data, race.bytes)


def main() -> int:
    chosen = arguments()
    for module in ("numpy", "torch", "rankstore", "h5py", "mpi4py", "dlio_benchmark"):
        if importlib.util.find_spec(module) is None:
            print(f"compare_dlio: {module} is not installed for {sys.executable}; without --here it is", file=sys.stderr)
            return 3
    if shutil.which("mpirun") is None:
        print("compare_dlio: there is no mpirun; install openmpi-bin", file=sys.stderr)
        return 3
    missing = [name for name in ("rclone", "ip", "tc") if chosen.link is not None and shutil.which(name) is None]
    if missing or chosen.link is not None and os.geteuid() != 0:
        print(f"compare_dlio: --link needs {missing[0] if missing else 'root'}", file=sys.stderr)
        return 3
    import dlio_work
    import report
    out, data = chosen.out.resolve(), chosen.data.resolve()
    out.mkdir(parents=True, exist_ok=True)
    about = report.machine(("rankstore", "dlio_benchmark", "torch", "numpy", "h5py", "mpi4py"))
    found: dict[str, dict[str, Any]] = {}
    failed = False
    for name in chosen.only.split(","):
        work = dlio_work.WORKLOADS[name]
        race = dlio_work.Race(name, dlio_work.quick(work) if chosen.quick else work, data / ("quick" if chosen.quick else "full"), out)
        race.prepare()
        with source_of(chosen, race) as source:
            about["source"] = source.told
            found[name] = race.run(1 if chosen.quick else chosen.rounds, source)
        print("\n".join(table(name, found[name])), flush=True)
        written = write(out, source.stem, about, found)
        failed = failed or any(run["error"] for run in found[name]["runs"])
    for path in written:
        print(path)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
