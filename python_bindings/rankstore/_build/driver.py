# SPDX-License-Identifier: Apache-2.0
"""`build` on the ranks of a group, up to the opening: find what exists, what is asked for, and how to build it."""
from __future__ import annotations

import errno
import re
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace as replaced
from typing import Any

from .. import _core
from .._distributed import progress
from .._distributed.collectives import callback_failed, check_others, together
from .._distributed.group import Group
from .._distributed.stderr import say
from .._provenance import code, dataset_json, fingerprint
from .._provenance.code import difference as code_difference
from .._sources.base import Piece, Stream
from .._sources.native import CoreFiles, plain
from .._sources.paths import has_urls
from .._sources.resolver import Source, resolve
from .._sources.sequence import Indexed
from .._sources.stored import Stored
from ..errors import ArgumentError, CallbackError, DataError, RankStoreError, StateError
from .inputs import BaseChanged
from .options import BuildReport, Options
from .pipeline import length_of
from .units import build_python

APPEND_UNITS = 4096  # most units of an append by the dataset's unit size: more would make dataset.json too large


def build_here(group: Group, source: Any, directory: str, options: Options) -> BuildReport:
    """Build without opening the dataset (collective)."""
    begun = time.monotonic()
    while True:
        try:
            return _build_once(group, source, directory, options, begun)
        except BaseChanged:
            pass  # the same on all ranks; the lock was released, so this build may now wait for a third one
        except ArgumentError as refused:
            if not (options.wait and refused.cause == errno.EEXIST):
                raise


def _build_once(group: Group, source: Any, directory: str, options: Options, begun: float) -> BuildReport:
    """Build, starting with a look at the directory (collective)."""
    held: list[Source] = []
    own = dataset_json.expand(directory, group.rank, group.node)

    def find() -> None:
        held.append(resolve(source, format=options.format, unit_samples=options.unit_samples,
                            each_rank=options.each_rank, same_on_all=options.same_on_all, storage=options.storage))

    def look() -> dict[str, Any]:
        if not held:
            find()
        for name, what in (("json_path", "JSON files"), ("flatten", "JSON files"), ("dtype", 'format="raw"')):
            if getattr(options, name) and not (isinstance(held[0], list) and all(isinstance(piece, CoreFiles) for piece in held[0])):
                raise ArgumentError(f"{name}: only for {what}")
        return {"source": _identity(held[0], group), "items": _sampled(held[0]),
                "contents": _contents(held[0], group), "options": options.shown(),
                "uses": {**options.uses(), **_objects(held[0], options)},
                "there": dataset_json.finished(own), "unit_size": _core.unit_size_kept(own)}

    group.core.announce("looks at its source")
    if has_urls(source):
        together(group, "build: sources", find)
        for piece in held[0] if isinstance(held[0], list) else ():
            if isinstance(piece, CoreFiles) and piece.in_store:
                piece.list_stores(group.core)
    looks = together(group, "build: looking at the source", look)
    _check_alike(looks)
    request = _BuildRequest(group, directory, looks)
    found = held[0]
    base = next((one for one in request.there if one["dataset"] is not None), None)
    comparable = not _is_own(found, options)
    if isinstance(found, list) and len(found) == 1 and isinstance(found[0], Stored) and not options.append:
        options = options.as_stored(found[0])
    if base is not None and options.replace is not True:
        same = comparable and request.is_there()
        if options.replace and not same:
            request.say(f"replacing the finished dataset: {request.why(comparable)}")
            options = replaced(options, replace=True)
        elif same and request.is_interrupted() and isinstance(found, list) and not options.append:
            request.say("ending the commit of a build that was interrupted")
        elif same and isinstance(found, list) and _core.lost(group.core, directory, options.shards):
            pass  # the core says how many, and builds those alone
        elif not options.append or same:
            read = isinstance(found, Stream) and not options.reuse
            if isinstance(found, Stream) and read:
                made = _compare(request, found, options)
                if made["shards_rebuilt"]:
                    return _report(made, begun)
            return _reuse(request, comparable, same, options, begun, read)
        else:
            options = options.as_there(base["shape"])
    elif options.wait and options.replace == "if_changed":
        options = replaced(options, replace=False)  # compare with the other build's dataset first
    made_from = request.made_from
    if isinstance(found, list) and (base is None or options.append or request.is_there()):
        options = _with_unit_size(options, found, next((look["unit_size"] for look in looks if look["unit_size"]), 0))
    note = fingerprint.note(made_from) if comparable else None
    report = progress.make(options.progress, group.rank)
    try:
        files = found[0] if isinstance(found, list) and len(found) == 1 else None
        if isinstance(files, CoreFiles) and not options.needs_python:
            made = _build_core(group, files, directory, options, note, report)
        else:
            made = build_python(group, found, directory, options, base if options.append else None, made_from, note,
                                report)
    except BaseChanged:
        if isinstance(found, Stream):
            raise StateError(f"{own}: another build changed the dataset while this one waited, and samples of the iterable were "
                             "read already; call build again with a new one") from None
        raise
    finally:
        progress.close(report)
        for piece in found if isinstance(found, list) else ():
            if isinstance(piece, CoreFiles):
                piece.close()
    if comparable:
        together(group, "build: python.json", lambda: fingerprint.write(own, made["dataset"], made_from))
    if made["shards_rebuilt"]:
        request.say(f"repaired: {made['shards_rebuilt']:,} lost shards with {made['units_rebuilt']:,} units were built again")
    if made["units_resumed"]:
        request.say(f"resumed: {made['units_resumed']:,} of {made['units']:,} units were there")
    if isinstance(files, CoreFiles) and files.is_folder():
        request.say("each file of the folder is a sample; to read what is in the files, give them: FOLDER/*.jsonl")
    if made.get("json_columns"):
        request.say(f"json columns: {made['json_columns']} (objects and lists as they stand; flatten=True makes columns of "
                    "objects)")
    if made.get("object_columns"):
        request.say(f"columns of objects: {made['object_columns']}")
    if options.length is None:
        request.say(f"length: {made['length']}")
    if made["samples"] == 0 and group.rank == 0:
        warnings.warn(f"{directory}: no sample was kept: {made['filtered']} were filtered out, {made['bad']} were bad",
                      stacklevel=4)
    return _report(made, begun)


def _report(made: dict[str, Any], begun: float) -> BuildReport:
    return BuildReport(made["samples"], made["filtered"], made["bad"], made["bytes"], made["units"],
                       made["units_resumed"],
                       time.monotonic() - begun, made["dataset"], made["bad_first"], made["input_bytes"],
                       made["duplicates"], made["sampled_out"], made["not_read"], made["collectives"],
                       made.get("json_columns", ""), made.get("object_columns", ""), made["unit_size"], length=made["length"],
                       shards_rebuilt=made["shards_rebuilt"], units_rebuilt=made["units_rebuilt"])


def _with_unit_size(options: Options, pieces: list[Piece], kept: int) -> Options:
    """Return options with the unit size of the dataset or the unfinished parts in the directory (`kept`; 0 if there are none).

    This is for files that Python adds; the core sees to it itself if it builds alone. A unit size that would make very many units is not
    kept."""
    files = next((piece for piece in pieces if isinstance(piece, CoreFiles)), None)
    if files is None or options.unit_size is not None or (len(pieces) == 1 and not options.needs_python):
        return options
    many = options.append and kept > 0 and files.size() // kept > APPEND_UNITS
    return options if kept == 0 or many else replaced(options, unit_size=kept)


class _BuildRequest:
    """What a build is asked to make, and what exists on each rank. The same on all ranks."""

    def __init__(self, group: Group, directory: str, looks: Sequence[dict[str, Any]]) -> None:
        self.group, self.directory = group, directory
        self.there = [look["there"] for look in looks]
        every = {place: one for look in looks for place, one in look["contents"].items()}
        first = looks[0]["uses"]
        self.made_from = {"source": looks[0]["source"], "contents": fingerprint.digest(every), **looks[0]["options"],
                          "code": {name: used and used["found"] for name, used in first.items()}}
        self.unfollowed = {name: used["unfollowed"] for name, used in first.items() if used and used["unfollowed"]}
        for rank, look in enumerate(looks):
            for name, used in first.items():
                text = used and code_difference(used["found"], look["uses"][name]["found"])
                if text:
                    self.say(f"{name}: from rank 0 to rank {rank}: {text}")

    def is_there(self) -> bool:
        """Return True if the existing dataset was made of the same. A rank whose directory is empty (a new node) has no say."""
        return any(one["dataset"] is not None for one in self.there) and not self._others()

    def is_interrupted(self) -> bool:
        """Return True if a rank has shards, but no dataset.json: the commit was interrupted, and the same build ends it."""
        return any(one["dataset"] is None and one["parts"] for one in self.there)

    def holder(self) -> int:
        """Return the lowest rank that has a dataset."""
        return next(rank for rank, one in enumerate(self.there) if one["dataset"] is not None)

    def _others(self) -> list[dict[str, Any]]:
        """Return the datasets that were made of something else."""
        digest = fingerprint.digest(self.made_from)
        return [one for one in self.there if one["dataset"] is not None
                and (one["rule"] != fingerprint.RULE or one["made_from"] != digest)]

    def why(self, comparable: bool) -> str:
        """Return what differs."""
        if not comparable:
            return "an iterable cannot be compared with it"
        one = next(iter(self._others()), self.there[self.holder()])
        if one["rule"] not in (None, fingerprint.RULE):
            return (f"{'an earlier' if one['rule'] < fingerprint.RULE else 'a later'} version of Rankstore built it, which compares by "
                    f"rule {one['rule']}, this one by rule {fingerprint.RULE}")
        return fingerprint.difference(one["options"], self.made_from, one["made_from"])

    def say(self, text: str) -> None:
        """Print a line on rank 0's stderr."""
        if self.group.rank == 0:
            say(f"{self.directory}: {text}")


def _is_own(source: Source, options: Options) -> bool:
    """Return True if the source cannot be compared with what a dataset was made from.

    A replacement or a first build is the user's word that names and counts do identify it. An append is not: the next one may have as many
    samples."""
    if isinstance(source, list):
        return options.append and not all(piece.is_known for piece in source)
    return isinstance(source, Stream)


def _objects(source: Source, options: Options) -> dict[str, Any]:
    """Return what an object with __getitem__ uses, as of a function: reading its samples may be slow or random. Ranks may differ in it."""
    if not isinstance(source, list) or options.version is not None:
        return {}
    found = [code.source(piece.dataset) for piece in source if isinstance(piece, Indexed) and not piece.is_known]
    return {"source": {"found": one.found, "unfollowed": one.unfollowed, "own": {}} for one in found}


def _identity(source: Source, group: Group) -> list[Any]:
    if isinstance(source, Stream):
        return ["iterable", group.world, *(["same on all"] if source.same else [])]  # its units depend on the number of ranks
    return ["pieces", [piece.identity() for piece in source]]


def _sampled(source: Source) -> list[Any]:
    return [piece.sampled() for piece in source] if isinstance(source, list) else []


def _contents(source: Source, group: Group) -> dict[str, str]:
    """Return digests of a source in memory, each rank those of its share: digesting all of it on every rank would take longer."""
    if not isinstance(source, list):
        return {}
    places = [(i, block) for i, piece in enumerate(source) for block in range(piece.blocks())]
    found = {}
    for i, block in places[group.rank::group.world]:
        check_others(group)
        found[f"{i}/{block}"] = source[i].contents(block)
    return found


def _check_alike(looks: Sequence[dict[str, Any]]) -> None:
    """Raise ArgumentError unless all ranks build the same with the same options."""
    for rank, look in enumerate(looks):
        if look["source"] != looks[0]["source"]:
            raise ArgumentError(f"source: rank 0 and rank {rank} see different ones (names, sizes or counts); each_rank=True "
                                "adds what ranks have in memory")
        for mine, first in zip(look["items"], looks[0]["items"], strict=True):
            place = next((place for place in first if first[place] != mine[place]), None)
            if place is not None:
                raise ArgumentError(f"source: sample {place} of rank 0 and of rank {rank} differ; a list is the same on "
                                    "all ranks, and is split between them; each_rank=True adds the lists of all ranks")
        first = looks[0]["uses"]
        differs = [name for name, value in look["options"].items() if value != looks[0]["options"].get(name)]
        differs += [name for name, used in look["uses"].items() if (used and used["own"]) != (first[name] and first[name]["own"])]
        if differs:
            raise ArgumentError(f"{differs[0]}: rank 0 and rank {rank} have different values; give all ranks the same")


def _refused(directory: str, why: str) -> ArgumentError:
    return ArgumentError(f'{directory}: a finished dataset is here, and {why}; replace=True or "if_changed" builds anew, '
                         "append=True adds to it, reuse=True opens what is there")


def _compare(request: _BuildRequest, stream: Stream, options: Options) -> dict[str, Any]:
    """Read an iterable, and compare its samples with those of the finished dataset (collective). Build its lost shards again.

    ArgumentError if the samples differ."""
    report = progress.make(options.progress, request.group.rank)
    try:
        return build_python(request.group, stream, request.directory, options, None, request.made_from, None, report, keep=True)
    except ArgumentError as failed:
        if failed.cause == errno.ESTALE:
            raise _refused(request.directory, f"the iterable has other samples now ({failed.text})") from None
        if failed.cause == errno.EEXIST:
            raise _refused(request.directory, "its source, options, code or number of ranks were others") from None
        raise
    finally:
        progress.close(report)


def _reuse(request: _BuildRequest, comparable: bool, same: bool, options: Options, begun: float, read: bool) -> BuildReport:
    """Return the report of an existing dataset. ArgumentError, on all ranks, if it is not the one asked for.

    read: the samples of an iterable were compared with it."""
    group, directory = request.group, request.directory
    dataset = request.there[request.holder()]["dataset"]
    if not options.reuse and not same and not read:
        raise _refused(directory, request.why(comparable))

    def figures() -> dict[str, Any]:
        own = dataset_json.expand(directory, group.rank, group.node)
        if same:  # the build that made it may have been killed after its commit
            fingerprint.settle(own, request.there[group.rank], request.made_from)
        return dataset_json.figures(own)

    made = together(group, "build: what is there", figures)[request.holder()]
    request.say(f"opening the finished dataset of {made['samples']:,} samples; nothing is built "
                f"({'the iterable was read, and its samples are the same' if read else _compared(request, comparable, same)})")
    return BuildReport(made["samples"], made["filtered"], made["bad"], made["bytes"], made["units"], made["units"],
                       time.monotonic() - begun, dataset or "", "", 0, made["duplicates"], made["sampled_out"], kept=True,
                       length=made["length"])


def _compared(request: _BuildRequest, comparable: bool, same: bool) -> str:
    """Return how much is known of a dataset that is opened."""
    if not same:
        return f"reuse=True, although {request.why(comparable)}"
    if "version" in request.made_from:
        return "source, options and version are the same"
    left = [f"{name}: {one}" for name, unfollowed in request.unfollowed.items() for one in unfollowed]
    if left:
        return f"source, options and code are the same; not compared: {', '.join(left[:4])}{', ...' * (len(left) > 4)}"
    return "source, options and code are the same"


# ---- files that the core reads ---------------------------------------------------------------------------------------

def _build_core(group: Group, files: CoreFiles, directory: str, options: Options, note: str | None,
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
        return _core.build(group.core, files.paths, directory, schema=options.asked_schema, format=files.format, listing=files.listing,
                           flatten=options.flatten, progress=report, made_from=note, threads=options.threads, **functions,
                           **{**options.for_core(), **options.for_reading()})
    except RankStoreError as failed:
        found = re.match("(.+?): (filter|length): ", failed.text)
        if found is None or not functions:
            raise
        text, where = failed.text, found.group(1)

    def fail() -> None:
        if raised:
            what, error = raised[0]
            if isinstance(error, DataError):  # length_of raised it
                raise DataError(f"{where}: {error}") from error
            raise callback_failed(error, group.rank, what, where) from error

    together(group, "build: functions", fail)
    raise CallbackError.of(text, -1, where, "")
