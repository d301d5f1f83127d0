# SPDX-License-Identifier: Apache-2.0
"""What a run found, as results.json, results.md and results.png."""
from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import chart
from race import Result, ahead
from rows import ROWS, Row

VERSIONS = ("rankstore", "torch", "numpy", "lmdb", "mosaicml-streaming", "litdata", "webdataset", "datasets", "pyarrow",
            "grain", "pylance", "ray", "megatron-energon", "spdl", "torchdata", "trl", "transformers")
Found = dict[str, list[Result]]
"""Results by the row's name."""


def machine(packages: Sequence[str] = VERSIONS) -> dict[str, Any]:
    """Where the run was, with which versions."""
    model = next((line.split(":", 1)[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                  if line.startswith("model name")),
                 platform.machine())
    versions = {}
    for name in packages:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {"processor": model, "cores": len(os.sched_getaffinity(0)),
            "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "kernel": platform.release(), "python": platform.python_version(), "load_before": os.getloadavg()[0], "versions": versions}


def number(value: float) -> str:
    """Three significant digits, without an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value >= 0.001 else f"{value:.5f}"


def _lead(row: Row, results: Sequence[Result]) -> Result | None:
    return next((result for result in results if result.name == row.ours and result.seconds), None)


def table(row: Row, results: Sequence[Result]) -> list[str]:
    """Lines of markdown."""
    lead = _lead(row, results)
    unit = "seconds" if row.unit == "s" else row.unit
    lines = [f"### {row.title}", "", f"| | {unit} | from .. to | {row.ours} is ahead | peak RSS | |", "|---|---:|---:|---:|---:|---|"]
    for result in sorted(results, key=lambda one: (one.error is not None, one.name)):
        if result.error or not result.seconds:
            lines.append(f"| {result.name} | | | | | {result.error} |")
            continue
        values = result.values(row)
        ratio = f"{ahead(row, lead, result):.2f} x" if lead is not None and lead is not result else ""
        notes = ", ".join(f"{name} {number(value) if isinstance(value, float) else value}" for name, value in result.notes.items())
        lines.append(f"| {result.name} | {number(result.median(row))} | {number(min(values))} .. {number(max(values))} | {ratio} | "
                     f"{result.peak_rss / 2**20:,.0f} MiB | {notes} |")
    return [*lines, "", *([row.note, ""] if row.note else [])]


def write(folder: Path, found: Found, about: dict[str, Any], rounds: int, quick: bool, left_out: Sequence[str]) -> list[Path]:
    """Writes the files; returns their paths. Without matplotlib there is no picture."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"row": key, "title": ROWS[key].title, "unit": ROWS[key].unit, "name": result.name, "error": result.error,
             "values": result.values(ROWS[key]), "median": result.median(ROWS[key]) if result.seconds else None,
             "peak_rss_bytes": result.peak_rss, "notes": result.notes} for key, results in found.items() for result in results]
    texts = {"results.json": json.dumps({"schema_version": 1, "machine": about, "rounds": rounds, "quick": quick,
                                         "left_out": list(left_out),
                                         "rows": rows}, indent=1) + "\n",
             "results.md": "\n".join(_page(found, about, rounds, quick, left_out))}
    for name, text in texts.items():
        partial = folder / (name + ".partial")
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, folder / name)
    written = [folder / name for name in texts]
    if chart.draw(folder / "loaders.svg", found, about):
        written.append(folder / "loaders.svg")
    try:
        import matplotlib
    except ImportError:
        print("compare_peers: no picture: matplotlib is not installed", file=sys.stderr)
        return written
    matplotlib.use("Agg")
    from picture import draw
    draw(folder / "results.png", found)
    return [*written, folder / "results.png"]


def _page(found: Found, about: dict[str, Any], rounds: int, quick: bool, left_out: Sequence[str]) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    lines = ["# Rankstore beside its peers", "",
             f"{about['processor']}, {about['cores']} cores, {about['memory_bytes'] / 2**30:.0f} GiB; Linux {about['kernel']}, Python "
             f"{about['python']}; {versions}. Load of the machine before: {about['load_before']:.1f}.", "",
             f"Medians of {rounds} rounds, in which the contestants of a row take turns; `ahead` is the median of ratios within a round. "
             "All is read from a warm page cache, by one process on one machine if nothing else is said. Contents are checked. Peak RSS "
             "adds up a process and its workers, mapped files included.", ""]
    if quick:
        lines += ["**A quick run: small data, too short to compare anything.**", ""]
    for line in left_out:
        lines += [f"- {line}"]
    for key, results in found.items():
        lines += ["", *table(ROWS[key], results)]
    return lines
