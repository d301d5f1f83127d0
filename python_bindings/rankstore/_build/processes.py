# SPDX-License-Identifier: Apache-2.0
"""Builds with several processes of this machine: a group of forked ranks builds, and the caller opens the result.

A worker is a rank, and not a part of an input: a group deals units, goes on with what is finished, and makes one worker's failure the same
error on all. An input that ran workers would need all three a second time."""
from __future__ import annotations

import json
import signal
import tempfile
import threading
from contextlib import ExitStack
from dataclasses import asdict
from typing import IO, Any

from .._distributed.collectives import describe, remake
from .._distributed.group import Group, launch
from .._sources.base import Stream
from .._sources.resolver import resolve
from ..errors import ArgumentError, CancelledError, RankStoreError, code_of
from .driver import build_here
from .options import BuildReport, Options


def build_with_workers(group: Group, workers: int, source: Any, directory: str, options: Options) -> BuildReport:
    """Build with forked workers and return their report.

    Raises the error of a worker, with its text and traceback. KeyboardInterrupt ends all workers and keeps the finished units. The same
    call resumes.
    """
    if workers < 1:
        raise ArgumentError(f"workers: {workers}; it must be at least 1")
    if group.world > 1:
        raise ArgumentError(f"workers: the group has {group.world} ranks already; start more ranks instead")
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()
              and not _is_tqdm(thread)]
    if others:
        raise ArgumentError(f"workers: this process has other threads ({', '.join(others[:3])}), which do not survive "
                            "a fork; start more "
                            "ranks instead")
    if isinstance(resolve(source, format=options.format, unit_samples=options.unit_samples), Stream):
        raise ArgumentError("workers: an iterable cannot be split between workers; give a dataset with __len__ and __getitem__, or "
                            "start more ranks "
                            "instead, each with its own part")
    with ExitStack() as files:
        notes = [files.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in range(workers)]
        code = launch(workers, lambda ranks: _work(ranks, notes[ranks.rank], source, directory, options))
        left = [note for file in notes if (note := _read(file)) is not None]
    failed = [note for note in left if "failed" in note]
    if code == 128 + signal.SIGINT or any(_is_interrupt(note["failed"]) for note in failed):
        raise KeyboardInterrupt
    for note in failed:
        error = remake(note["failed"])
        if note["traceback"]:
            error.add_note(f"In the worker:\n{note['traceback']}")
        raise error
    if code != 0 or len(left) < workers:
        raise RankStoreError(f"a worker ended with exit code {code}; the same call resumes what is finished")
    return BuildReport(**left[0]["report"])


def _is_interrupt(failed: dict[str, Any]) -> bool:
    """Return True if the worker was interrupted, or failed because another worker was."""
    return failed["kind"] == "interrupt" or failed.get("code") == code_of(CancelledError())


def _is_tqdm(thread: threading.Thread) -> bool:
    """Return True for tqdm's monitor thread, which holds no lock that a worker needs."""
    return type(thread).__module__.startswith("tqdm")


def _work(group: Group, file: IO[str], source: Any, directory: str, options: Options) -> int:
    """Run one worker; return its exit code. Its report or failure goes into the file, which has no name and so vanishes with the
    processes."""
    import traceback
    note: dict[str, Any]
    try:
        note = {"report": asdict(build_here(group, source, directory, options))}
    except (Exception, KeyboardInterrupt) as failure:
        note = {"failed": describe(failure, group.rank),
                "traceback": "".join(traceback.format_exception(failure))[-16384:]}
    file.write(json.dumps(note))
    file.flush()
    return 0 if "report" in note else 1


def _read(file: IO[str]) -> dict[str, Any] | None:
    """Return a worker's report or failure; None if the worker was killed before it had written all."""
    file.seek(0)
    try:
        note: dict[str, Any] = json.load(file)
        return note
    except ValueError:
        return None
