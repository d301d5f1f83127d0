# SPDX-License-Identifier: Apache-2.0
"""The command line of tools/compare_peers."""
from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from pathlib import Path

from packers import C_PROGRAM, HISTOGRAM
from rows import FILES_OF, HOLDERS, MODULES, PACKERS, ROWS, peer_of

ROUNDS = 5
MODULES_OF = MODULES | PACKERS | HOLDERS  # by peer
HELP = """Compares Rankstore with other ways to feed a training job, on the same data, in one run:
all_gather_object, a numpy memmap, py-lmdb, MosaicML streaming, LitData, WebDataset, Hugging Face datasets, Grain, Lance, Ray Data, NVIDIA
Energon, SPDL, torchdata's nodes, DDStore, TRL's packing, seqpacker, and transformers' samplers by length and its collator without padding.

The contestants of a row take turns, a round each, so that ratios hold also on a machine that does other things; figures
themselves hold only on one that does not. What each gives is compared with the source before anything is timed."""
EXAMPLES = """examples:
  tools/compare_peers -o figures                     all rows; an hour, and 20 GB of disk
  tools/compare_peers --quick                        some minutes, small data: does everything work?
  tools/compare_peers --only padded,padded-loader    two rows, and the build that they need
  tools/compare_peers --with memmap,py-lmdb          fewer peers
  tools/compare_peers --here                         by the python3 on PATH, with the peers that it has; installs nothing

Without --here the first run makes build/peers-venv (2.5 GB, from tools/peers/requirements.txt) and builds this checkout's
Python package into build/python/site.

rows:
"""


def arguments() -> argparse.Namespace:
    rows = "\n".join(f"  {key:<20} {row.title}" for key, row in ROWS.items())
    parser = argparse.ArgumentParser("tools/compare_peers", description=HELP, epilog=EXAMPLES + rows,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, default=Path("build/peers/results"), metavar="FOLDER",
                        help="where results.md, results.png, loaders.svg, results.json and log.txt go (build/peers/results)")
    parser.add_argument("--only", metavar="ROW,...", help="these rows")
    parser.add_argument("--with", dest="peers", metavar="PEER,...", help=f"these peers: {', '.join(MODULES_OF)}")
    parser.add_argument("--ddstore", type=Path, metavar="PATH",
                        help="for the row held: a checkout of DDStore (github.com/ORNL/DDStore), built in place as its manual says, by the "
                        "Python that runs this")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"rounds of each row ({ROUNDS}; --quick: 1)")
    parser.add_argument("--data", type=Path, default=Path("build/peers/data"), metavar="FOLDER",
                        help="where made data and the stores' files lie, and stay (build/peers/data)")
    parser.add_argument("--quick", action="store_true", help="small data and short rounds")
    parser.add_argument("--histogram", type=Path, metavar="FILE",
                        help="for pack-histogram: how many samples have length 1, 2, ..., numbers "
                        "with anything but digits between them (packedBERT published those of Wikipedia up to 512)")
    parser.add_argument("--here", action="store_true", help="install nothing: use the python3 on PATH")
    chosen = parser.parse_args()
    if chosen.rounds is not None and chosen.rounds < 1:
        parser.error("--rounds: at least 1")
    if chosen.histogram is None and "pack-histogram" in (chosen.only or "").split(","):
        parser.error("--only pack-histogram: it needs --histogram FILE")
    if chosen.ddstore is not None and not add_ddstore(chosen.ddstore):
        parser.error(f"--ddstore {chosen.ddstore}: there is no pyddstore*.so in it; build it there: pip install mpi4py Cython setuptools; "
                     "CC=mpicc CXX=mpicxx python3 setup.py build_ext --inplace")
    for option, text, known in (("--only", chosen.only, list(ROWS)), ("--with", chosen.peers, list(MODULES_OF))):
        for name in (text or "").split(",") if text is not None else []:
            if name not in known:
                parser.error(f"{option}: there is no {name!r}; there are {', '.join(known)}")
    return chosen


def add_ddstore(checkout: Path) -> bool:
    """Make what was built in a checkout of DDStore importable, here and in the contestants."""
    for built in (*checkout.glob("pyddstore*.so"), *checkout.glob("src/pyddstore*.so")):
        folder = str(built.parent.resolve())
        sys.path.insert(0, folder)
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, os.environ.get("PYTHONPATH", "")])
        return True
    return False


def rows_to_run(only: str | None, peers: list[str]) -> dict[str, list[str]]:
    """The rows asked for, each with its contestants; before them the builds of the stores that they read."""
    keys = only.split(",") if only else list(ROWS)
    found: dict[str, list[str]] = {}
    for key in keys:
        row = ROWS[key]
        found[key] = [name for name in row.contestants if peer_of(name) is None or peer_of(name) in peers]
        if row.made_by is not None and row.made_by not in keys:
            builders = found.setdefault(row.made_by, [])
            wanted = [FILES_OF.get(name, name) for name in peers if name in MODULES and name in row.contestants]
            builders += [name for name in (*dict.fromkeys(wanted), "Rankstore arrays") if name not in builders]
    return {key: found[key] for key in ROWS if key in found}


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # it is there, but not whole
        return False


def peers_here(asked: str | None) -> tuple[list[str], list[str]]:
    """(the peers that are installed, a line for each that is not)."""
    names, left_out = [], []
    for name in asked.split(",") if asked is not None else MODULES_OF:
        if is_installed(MODULES_OF[name]):
            names.append(name)
        else:
            left_out.append(f"{name} is left out: the module {MODULES_OF[name]} is not installed"
                            + ("; see --ddstore" if name in HOLDERS else ""))
    return names, left_out


def main() -> int:
    chosen = arguments()
    for module in ("numpy", "torch", "rankstore"):
        if not is_installed(module):
            print(f"compare_peers: {module} is not installed for {sys.executable}; without --here it is", file=sys.stderr)
            return 3
    peers, left_out = peers_here(chosen.peers)
    if chosen.histogram is None and chosen.only is None:
        left_out.append("the row pack-histogram is left out: it needs --histogram FILE")
    in_c = [] if C_PROGRAM.exists() else [key for key, row in ROWS.items() if row.in_c]
    if in_c:
        left_out.append(f"rows are left out, {', '.join(in_c)}: {C_PROGRAM} is not built; tools/test unit builds it")
    in_pillow = [] if is_installed("PIL") else ["build-images", "images"]
    if in_pillow:
        left_out.append(f"rows are left out, {', '.join(in_pillow)}: the module PIL is not installed")
    for line in left_out:
        print(f"compare_peers: {line}", file=sys.stderr)
    rows, quick = rows_to_run(chosen.only, peers), chosen.quick
    if chosen.histogram is None:
        rows.pop("pack-histogram", None)
    else:
        chosen.data.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(chosen.histogram, chosen.data / HISTOGRAM)
    rows = {key: names for key, names in rows.items() if key not in in_c + in_pillow}
    rounds = chosen.rounds or (1 if quick else ROUNDS)
    return run(rows, chosen.only, chosen.data.resolve(), chosen.out, rounds, quick, left_out)


def run(rows: dict[str, list[str]], only: str | None, data: Path, out: Path, rounds: int, quick: bool, left_out: list[str]) -> int:
    """Runs the rows; prints and writes what they find."""
    import race
    import report
    from workload import Place
    place, about = Place(data, quick), report.machine()
    found: report.Found = {}
    for kind in ("tokens", *(kind for kind in ("blobs", "images") if any(kind in ROWS[key].arguments for key in rows))):
        place.workload(kind)
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "log.txt", "w", encoding="utf-8") as log:
        for key, names in rows.items():
            asked = only is None or key in only.split(",")
            results = race.run(key, ROWS[key], names, place, rounds if asked else 1, log, _tell)
            if asked:
                found[key] = results
                _tell("")
                print("\n".join(report.table(ROWS[key], results)), flush=True)
                written = report.write(out, found, about, rounds, quick, left_out)
    for path in written:
        print(path)
    failed = [f"{key}: {result.name}: {result.error}" for key, results in found.items() for result in results if result.error]
    for line in failed:
        print(f"compare_peers: {line}", file=sys.stderr)
    return 1 if failed else 0


def _tell(line: str) -> None:
    """Where the run is, on a terminal."""
    if os.isatty(2):
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
