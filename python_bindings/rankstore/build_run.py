# SPDX-License-Identifier: Apache-2.0
"""`build` on the ranks of a group, without the opening: what is there, what is asked for, and which way it is built."""
from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from . import _core, fingerprint, progress
from .agreement import callback_failed, check_others, together
from .build_options import BuildReport, Options
from .build_units import build_python
from .errors import ArgumentError, CallbackError, DataError, RankStoreError
from .feeding import length_of
from .group import Group
from .sources import CoreFiles, Source, Stream, resolve
from .sources.core_files import plain


def build_here(group: Group, source: Any, directory: str, options: Options) -> BuildReport:
    """COLLECTIVE. `build` without the opening."""
    begun = time.monotonic()
    held: list[Source] = []

    def look() -> dict[str, Any]:
        held.append(resolve(source, format=options.format, unit_samples=options.unit_samples))
        return {"source": _identity(held[0], group), "items": _sampled(held[0]),
                "contents": _contents(held[0], group), "options": options.shown(),
                "there": fingerprint.finished(fingerprint.expand(directory, group.rank, group.node))}

    looks = together(group, "build: looking at the source", look)
    _check_alike(looks)
    every = {place: one for look in looks for place, one in look["contents"].items()}
    made_from = {"source": looks[0]["source"], "contents": fingerprint.digest(every), **looks[0]["options"]}
    found = held[0]
    there = [look["there"] for look in looks]
    base = next((one for one in there if one["dataset"] is not None), None)
    comparable = None if _is_own(found, options) else fingerprint.digest(made_from)
    if base is not None and not options.replace:
        if not options.append or (comparable is not None and all(one["made_from"] == comparable for one in there)):
            return _reuse(group, directory, there, comparable, options, begun)
        options = options.as_there(base["shape"])
    report = progress.make(options.progress, group.rank)
    try:
        files = found[0] if isinstance(found, list) and len(found) == 1 else None
        if isinstance(files, CoreFiles) and not options.needs_python:
            made = _build_core(group, files, directory, options, report)
        else:
            made = build_python(group, found, directory, options, base if options.append else None, made_from, report)
    finally:
        progress.close(report)
    own = fingerprint.expand(directory, group.rank, group.node)
    if comparable is not None:
        together(group, "build: python.json", lambda: fingerprint.write(own, made["dataset"], made_from))
    if made["samples"] == 0 and group.rank == 0:
        warnings.warn(f"{directory}: no sample was kept: {made['filtered']} were filtered out, {made['bad']} were bad",
                      stacklevel=4)
    return BuildReport(made["samples"], made["filtered"], made["bad"], made["bytes"], made["units"],
                       made["units_resumed"],
                       time.monotonic() - begun, made["dataset"], made["bad_first"], made["input_bytes"],
                       made["duplicates"], made["sampled_out"], made["not_read"])


def _is_own(source: Source, options: Options) -> bool:
    """What it gives cannot be compared with what a dataset was made from. A replacement or a first build is the user's
    word that names and counts do; not so an append, of which the next one may have as many."""
    if isinstance(source, list):
        return options.append and not all(piece.is_known for piece in source)
    return isinstance(source, Stream)


def _identity(source: Source, group: Group) -> list[Any]:
    if isinstance(source, Stream):
        return ["iterable", group.world]  # with other ranks its units are others
    return ["pieces", [piece.identity() for piece in source]]


def _sampled(source: Source) -> list[Any]:
    return [piece.sampled() for piece in source] if isinstance(source, list) else []


def _contents(source: Source, group: Group) -> dict[str, str]:
    """Digests of what lies in memory, of each rank those of its share: all of it would cost each rank what it costs
    one."""
    if not isinstance(source, list):
        return {}
    places = [(i, block) for i, piece in enumerate(source) for block in range(piece.blocks())]
    found = {}
    for i, block in places[group.rank::group.world]:
        check_others(group)
        found[f"{i}/{block}"] = source[i].contents(block)
    return found


def _check_alike(looks: Sequence[dict[str, Any]]) -> None:
    """All ranks build the same with the same options."""
    for rank, look in enumerate(looks):
        if look["source"] != looks[0]["source"]:
            raise ArgumentError(f"source: rank 0 and rank {rank} see different ones (names, sizes or counts); a source "
                                "that differs by rank is an iterable")
        for mine, first in zip(look["items"], looks[0]["items"], strict=True):
            place = next((place for place in first if first[place] != mine[place]), None)
            if place is not None:
                raise ArgumentError(f"source: sample {place} of rank 0 and of rank {rank} differ; a list is the same on "
                                    "all ranks, and is dealt out; a source that differs by rank is an iterable: "
                                    "iter(source)")
        for name, value in look["options"].items():
            if value != looks[0]["options"].get(name):
                if name == "code":
                    name = next(one for one in value if value[one] != looks[0]["options"]["code"][one])
                raise ArgumentError(f"{name}: rank 0 and rank {rank} give different ones")


def _reuse(group: Group, directory: str, there: Sequence[dict[str, Any]], made_from: str | None, options: Options,
           begun: float) -> BuildReport:
    """The report of a dataset that is there already; ArgumentError where it is not the one asked for. Alike on all
    ranks."""
    dataset = next(one["dataset"] for one in there if one["dataset"] is not None)
    same = made_from is not None and all(one["made_from"] == made_from for one in there)
    if not options.reuse and not same:
        why = ("and an iterable cannot be compared with it" if made_from is None else
               "built from another source, or with other options or code")
        raise ArgumentError(f"{directory}: a finished dataset is here, {why}; replace=True builds anew, append=True adds "
                            "to it, reuse=True opens what is there")

    def figures() -> dict[str, int]:
        return fingerprint.figures(fingerprint.expand(directory, group.rank, group.node))

    made = together(group, "build: what is there", figures)[0]
    return BuildReport(made["samples"], made["filtered"], made["bad"], made["bytes"], made["units"], made["units"],
                       time.monotonic() - begun, dataset or "", "", 0, made["duplicates"], made["sampled_out"])


# ---- files that the core reads ---------------------------------------------------------------------------------------

def _build_core(group: Group, files: CoreFiles, directory: str, options: Options,
                report: progress.Report | None) -> dict[str, Any]:
    raised: list[tuple[str, Exception]] = []

    def seen(what: str, function: Callable[[Any], Any]) -> Callable[[dict[str, Any]], Any]:
        def call(sample: dict[str, Any]) -> Any:
            try:
                return function({name: plain(value) for name, value in sample.items()})
            except Exception as failure:
                raised.append((what, failure))
                raise
        return call

    functions: dict[str, Any] = {}
    if options.filter is not None:
        functions["filter"] = seen("filter", options.filter)
    if callable(options.length):
        functions["length_fn"] = seen("length", length_of(options.length))
    try:
        return _core.build(group.core, files.paths, directory, schema=options.given_schema, format=files.format,
                           progress=report, **functions, **{**options.for_core(), **options.for_reading()})
    except RankStoreError as failed:
        found = re.match("(.+?): (filter|length): ", failed.text)
        if found is None or not functions:
            raise
        text, where = failed.text, found.group(1)

    def fail() -> None:
        if raised:
            what, error = raised[0]
            if isinstance(error, DataError):  # length_of's own
                raise DataError(f"{where}: {error}") from error
            raise callback_failed(error, group.rank, what, where) from error

    together(group, "build: functions", fail)
    raise CallbackError.of(text, -1, where, "")
