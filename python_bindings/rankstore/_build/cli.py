# SPDX-License-Identifier: Apache-2.0
"""What the command line leaves to the Python package: `rankstore build` of Parquet and Arrow files.

The command runs this with its own arguments and prints its results."""
from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from typing import Any

from .._distributed.group import Group, init, launch
from ..errors import ArgumentError, CancelledError, CorruptError, DataError, NotFoundError, PeerError, RankStoreError
from .build import build

# Exit codes of the command.
_PROBLEM, _USAGE, _ENVIRONMENT, _PEER, _INTERRUPTED = 1, 2, 3, 4, 130
_CODES: tuple[tuple[type[RankStoreError], int], ...] = (
    (ArgumentError, _USAGE), (CorruptError, _PROBLEM), (DataError, _PROBLEM), (NotFoundError, _PROBLEM), (PeerError, _PEER),
    (CancelledError, _INTERRUPTED))


def main(asked: str, sources: list[str]) -> int:
    """Build what the command asked for and return the exit code. asked: JSON of directory, options (of `build`), processes and json."""
    given: dict[str, Any] = {**json.loads(asked), "sources": sources}
    if given["processes"] > 1:
        return launch(given["processes"], lambda group: _run(group, given))
    try:
        with init() as group:
            return _run(group, given)
    except RankStoreError as error:
        return _failed(error, True)


def _run(group: Group, given: Mapping[str, Any]) -> int:
    try:
        with build(given["sources"], given["directory"], group=group, **given["options"]) as ds:
            report = ds.report
    except RankStoreError as error:
        return _failed(error, group.rank == 0 or isinstance(error, PeerError), alone=group.world == 1)
    except KeyboardInterrupt:
        if group.rank == 0:
            print("rankstore build: interrupted\nrun the same command again to resume", file=sys.stderr)
        return _INTERRUPTED
    if group.rank == 0:
        print(_as_json(report, given["directory"]) if given["json"] else _as_text(report, given["directory"]))
        if report.bad_first:
            print(f"skipped:\n{report.bad_first.rstrip()}", file=sys.stderr)
    return 0


def _failed(error: RankStoreError, reports: bool, alone: bool = True) -> int:
    if reports:
        text = re.sub(r"^rank 0( \([^)]*\))?: ", "", str(error)) if alone else str(error)
        print(f"rankstore build: {text}", file=sys.stderr)
    return next((code for kind, code in _CODES if isinstance(error, kind)), _ENVIRONMENT)


def _as_json(report: Any, directory: str) -> str:
    names = ("samples", "filtered", "sampled_out", "duplicates", "bad", "bytes", "input_bytes", "units", "units_resumed", "unit_size",
             "collectives", "seconds", "dataset", "bad_first", "json_columns", "object_columns", "length", "kept", "shards_rebuilt",
             "units_rebuilt")
    found = {name: getattr(report, name) for name in names}
    return json.dumps({"schema_version": 1, "directory": directory, **found, "not_read": report.not_read}, indent=2)


def _as_text(report: Any, directory: str) -> str:
    text = f"{directory}: {_counted(report.samples, 'sample')}, {_bytes(report.bytes)}"
    for count, what in ((report.filtered, "filtered out"), (report.duplicates, "duplicates left out"),
                        (report.sampled_out, "not in the sample"), (report.bad, "malformed and skipped")):
        text += f"; {count:,} {what}" if count else ""
    if report.kept:
        text += f"\nthe finished dataset {report.dataset} was there: the input and the options are the same"
    else:
        text += f"\nbuilt in {report.seconds:.2f} s; dataset {report.dataset}; length: {report.length}"
    if report.shards_rebuilt:
        text += (f"\nrepaired: {_counted(report.shards_rebuilt, 'lost shard')} with {_counted(report.units_rebuilt, 'unit')} "
                 "were built again")
    if report.units_resumed and not report.kept:
        text += f"\nresumed: {report.units_resumed:,} of {_counted(report.units, 'unit')} were finished before"
    return text


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
