# SPDX-License-Identifier: Apache-2.0
"""`build`: from any source to a dataset on disk.

    files that the core reads ─────► _core.build, which asks filter and length
    the same, with map or key() ─► _core.Reader ┐
    pieces (Parquet, lists, ...) ───────────────┴► units, dealt to ranks ─► map, filter ─► _core.Builder
    an iterable on each rank ────────────────────► units of its own      ─► map, filter ─► _core.Builder
"""
from __future__ import annotations

import functools
import heapq
import itertools
import os
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any

from . import _core, fingerprint, progress, schemas
from .agreement import callback_failed, check_others, together
from .errors import ArgumentError, CallbackError, DataError, RankStoreError
from .feeding import Feeder, Steps, first_rows, length_of
from .group import Group, current
from .sizes import optional_bytes
from .sources import Columns, CoreFiles, Piece, Source, Stream, Unit, resolve
from .sources.core_files import plain

if TYPE_CHECKING:
    from .dataset import Dataset

PROBES, PROBE = 16, 25  # places that are looked at for a schema, and samples in each
STREAM_UNIT = 8192  # samples of an iterable in a unit
_END = object()


@dataclass(frozen=True)
class BuildReport:
    """What a build did, all ranks together: samples kept; filtered (by where, filter, or a map that gave None) and bad
    ones (skip_bad), also those of units that an interrupted build had finished; bytes of columns and keys, and of the
    files that the core read (input_bytes); units, and how many of them were there already; seconds of this rank; the dataset's id; the first bad ones that this call came
    upon, a line each; duplicates that dedup left out; what a sample left out; how many names of folders were not read
    (hidden, linked_folders, special_files)."""

    samples: int
    filtered: int
    bad: int
    bytes: int
    units: int
    units_resumed: int
    seconds: float
    dataset: str
    bad_first: str
    input_bytes: int = 0
    duplicates: int = 0
    sampled_out: int = 0
    not_read: dict[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Options:
    """The arguments of `build`, but for the source."""

    map: Callable[[Any], Any] | None = None
    filter: Callable[[Any], Any] | None = None
    length: str | Callable[[Any], Any] | None = None
    key: str | Callable[[Any], Any] | None = None
    index: tuple[str, ...] = ()
    schema: str | None = None
    format: str | None = None
    where: str | None = None
    length_unit: int = 1
    max_sample: int | None = None
    skip_bad: bool = False
    replace: bool = False
    reuse: bool | None = None
    unit_samples: int | None = None
    progress: progress.Report | bool | None = field(default=None, compare=False)
    max_total: int | None = None
    min_length: int = 0
    max_length: int | None = None
    sample: int | float | None = None
    seed: int = 0
    dedup: bool = False
    append: bool = False
    unit_size: int | None = None
    columns: str | None = None
    keeps_schema: bool = field(default=False, compare=False)  # it is the dataset's: columns that it lacks are refused

    def check(self) -> None:
        """ArgumentError for what can never be."""
        for name in ("map", "filter"):
            if getattr(self, name) is not None and not callable(getattr(self, name)):
                raise ArgumentError(f"{name}: a callable, not {type(getattr(self, name)).__name__}")
        for name in ("length", "key"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str) and not callable(value):
                raise ArgumentError(f"{name}: a column's name or a callable, not {type(value).__name__}")
        if self.unit_samples is not None and not 1 <= self.unit_samples < 2**32:
            raise ArgumentError(f"unit_samples: {self.unit_samples}; it is from 1 to 2^32 - 1")
        if self.sample is not None and not _good_sample(self.sample):
            raise ArgumentError(f"sample: {self.sample!r}; it is a number of samples (an int), or a share above 0 and "
                                "below 1 (a float)")
        if self.replace and self.reuse:
            raise ArgumentError("replace and reuse exclude each other")
        if self.append and (self.replace or self.reuse):
            raise ArgumentError(f"append and {'replace' if self.replace else 'reuse'} exclude each other")

    @property
    def needs_python(self) -> bool:
        """Files too give their samples to Python, which adds what it makes of them."""
        return self.map is not None or callable(self.key)

    def shown(self) -> dict[str, Any]:
        """What decides the result, as JSON values."""
        named = {name: value if isinstance(value := getattr(self, name), str) else None for name in ("length", "key")}
        return {**named, **self.selection(), "index": list(self.index), "schema": self.schema, "format": self.format,
                "where": self.where, "length_unit": self.length_unit, "max_sample": self.max_sample,
                "skip_bad": self.skip_bad, "max_total": self.max_total, "unit_samples": self.unit_samples,
                **{name: value for name in ("append", "unit_size", "columns") if (value := getattr(self, name))},
                "code": {name: fingerprint.code(value) if callable(value := getattr(self, name)) else None
                         for name in ("map", "filter", "length", "key")}}

    def selection(self) -> dict[str, Any]:
        """What is asked for of lengths, samples and duplicates, as _core names it."""
        share = isinstance(self.sample, float)
        every = {"min_length": self.min_length, "max_length": self.max_length,
                 "sample": None if share else self.sample, "sample_rate": self.sample if share else None,
                 "seed": self.seed, "dedup": self.dedup}
        return {name: value for name, value in every.items() if value}

    def for_core(self) -> dict[str, Any]:
        """As _core.Builder and _core.build name them."""
        return {"key": self.key if isinstance(self.key, str) else None,
                "length": self.length if isinstance(self.length, str) else None, "length_unit": self.length_unit,
                "where": self.where, "index": self.index,
                "max_sample": self.max_sample, "replace": self.replace, "append": self.append, **self.selection()}

    def for_reading(self) -> dict[str, Any]:
        """As _core.Reader and _core.build name them."""
        return {"max_sample": self.max_sample, "skip_bad": self.skip_bad, "max_total": self.max_total,
                "unit_size": self.unit_size, "columns": self.columns}

    def as_there(self, shape: dict[str, Any] | None) -> Options:
        """What an append is not told is as the dataset has it."""
        if shape is None:
            return self
        length = {} if self.length is not None else {"length": shape["length"], "length_unit": shape["length_unit"]}
        return replaced(self, key=self.key or shape["key"], schema=self.schema or shape["schema"],
                        keeps_schema=self.schema is None, index=self.index or tuple(shape["index"]), **length)

    @property
    def given_schema(self) -> str | None:
        """What leaves columns out in silence."""
        return None if self.keeps_schema else self.schema


def _good_sample(sample: Any) -> bool:
    if isinstance(sample, bool):
        return False
    return 1 <= sample < 2**32 if isinstance(sample, int) else isinstance(sample, float) and 0 < sample < 1


def build(source: Any, out: str | os.PathLike[str], *, map: Callable[[Any], Any] | None = None,  # noqa: A002
          filter: Callable[[Any], Any] | None = None, length: str | Callable[[Any], int] | None = None,  # noqa: A002
          key: str | Callable[[Any], str | bytes] | None = None, index: Sequence[str] | None = None,
          schema: Mapping[str, str] | str | None = None,
          format: str | None = None, where: str | None = None, workers: int = 0, length_unit: int = 1,  # noqa: A002
          max_sample: int | str | None = None, skip_bad: bool = False, replace: bool = False, reuse: bool | None = None,
          unit_samples: int | None = None, exchange: str | None = None, no_share: bool = False,
          progress: progress.Report | bool | None = None, group: Group | None = None, min_length: int = 0,
          max_length: int | None = None, sample: int | float | None = None, seed: int = 0,
          dedup: bool = False, max_total: int | str | None = None, append: bool = False,
          unit_size: int | str | None = None, columns: str | None = None) -> Dataset:
    """COLLECTIVE. Builds a dataset in the directory `out` and opens it.

    source: one of
        paths (str, Path, a list; globs) of .jsonl, .txt (lines), .csv, .tsv, .npy, .npz, folders (a file a sample),
            .tar (WebDataset), .zip, Megatron's .bin with .idx, MDS folders, .parquet, .arrow, .feather; lines and tar
            also compressed (.gz, .zst, .xz, .bz2);
        a pyarrow Table; a Hugging Face dataset;
        any dataset with __len__ and __getitem__, the same on all ranks (a list of dicts is one; of lists and tables, 16
            samples are looked at, so that different ones are found out);
        an iterable or generator of samples: each rank gives its own part.
        A sample is a dict of columns; an item Columns(...) is many of them.
    out: the directory; "{rank}" and "{node}" in it become numbers.
    map: map(sample) gives a dict, None (dropped) or a list of dicts. It may see a sample twice: the first ones are
        looked at for the schema.
    filter: filter(sample), after map; what is not true is dropped.
    length: a column (items of an array, bytes of a str, an integer as it is), "chars:COLUMN", or length(sample) -> int.
        Default: the first column of variable size. length_unit: lengths are divided by it, rounded up.
    key: a column or key(sample) -> str or bytes, unique. Default: derived from unit and row.
    index: names of columns of single numbers that all ranks hold in memory.
    schema: {"tokens": "int32[*]"} or "tokens:int32[*],..."; columns that it lacks are left out. Default: inferred from
        first samples.
    format: of paths whose names do not say it. where: "COLUMN OP VALUE [and ...]";
        a str is < or > a number in quotes only, as text; a missing value is == null, != all else, not < or >.
    workers: processes of this machine to build with, where the group is one rank.
    max_sample: bytes of the largest sample that is taken (1 GiB). skip_bad: count and list bad samples (BuildReport) in
        place of failing; first rows that disagree about a type are an error still, where schema does not say it.
        max_total: bytes that one compressed file may unpack to (1 TiB), where the C core reads it.
        Sizes, unit_size too, are ints or texts, "300KiB".
    replace: a finished dataset in `out` is replaced. reuse: True: it is opened, whatever it was built from; None: where
        it was built from the same source with the same options and code; else ArgumentError. The same are: files of the
        same names and sizes (replace=True after writing one anew at its size); lists, tuples and tables all of whose
        contents are equal (of objects in them that are no data of Python's or numpy's, or dataclasses, the type
        counts); Hugging Face datasets of one fingerprint; other objects with __getitem__ of one type and length.
    append: the samples come behind those of the dataset in `out`, as its next generation (`Dataset.generations`);
        schema, key, length and index are by default that one's. Without a dataset there they are generation 1. The call
        that made the newest generation opens it when it is repeated, but where its source is an iterable or an object
        with __getitem__ that is no list: these cannot be compared, and are appended again.
    min_length, max_length: samples of other lengths are filtered out.
    sample: an int: so many of the samples that are left, by chance; a float: this share of the source's rows, by
        chance, before filter and where look at them (behind map and filter, where Python adds the samples). seed: of
        the sample, which is the same for any number of ranks, but for iterables; another unit_size or unit_samples, or
        the same rows in other files, gives others.
    dedup: of samples with equal contents (all columns but the key's) only the first counts. The "__key__" of a tar or
        zip keeps equal members apart unless it is the key (key="__key__"); a folder's path is the key by itself.
    unit_samples: samples in a unit, by which an interrupted build resumes (iterables: 8,192, counted before map).
        unit_size: bytes of a unit of files that the C core reads (64 MiB). columns: names of the columns of CSV or TSV
        files that have no header, "a,b,c".
    exchange, no_share: as for `open`. progress: None: a bar on rank 0's terminal, where tqdm is there; False: none; or
        a callable (phase, done, total, samples) on each rank. group: default: current().

    The same call resumes an interrupted build. Returns the open Dataset, its `report` a BuildReport. Raises on all
    ranks: CallbackError (a function of yours or the source raised), DataError, ArgumentError, NotFoundError,
    StateError, CancelledError, IOFailedError.
    """
    options = Options(map, filter, length, key, schemas.names_of("index", index), schemas.text_of(schema), format,
                      where, length_unit, optional_bytes("max_sample", max_sample), skip_bad, replace, reuse, unit_samples,
                      progress, optional_bytes("max_total", max_total), min_length, max_length, sample, seed, dedup,
                      append, optional_bytes("unit_size", unit_size), columns)
    options.check()
    group = group or current()
    directory = os.fspath(out)
    if workers:
        from .workers import build_with_workers
        report = build_with_workers(group, workers, source, directory, options)
    else:
        report = build_here(group, source, directory, options)
    from .dataset import open as open_dataset
    dataset = open_dataset(directory, group=group, exchange=exchange, no_share=no_share)
    dataset.report = report
    return dataset


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
            made = _build_python(group, found, directory, options, base if options.append else None, made_from, report)
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


# ---- pieces and iterables --------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Task:
    """A unit of a piece, and its number."""

    number: int
    piece: Piece
    unit: Unit


def _build_python(group: Group, source: Stream | list[Piece], directory: str, options: Options,
                  base: dict[str, Any] | None, made_from: dict[str, Any],
                  report: progress.Report | None) -> dict[str, Any]:
    """COLLECTIVE. `base`: the dataset that is appended to. Units of what is in memory are named after its generation, so
    that derived keys are not those that are there."""
    # Where the dataset derives its keys, those of appended files are derived too, of unit and place.
    named = "" if base is None else f"{base['generation'] + 1}/"
    origin = made_from if base is None else {**made_from, "base": base["dataset"]}
    steps = Steps(group, options.map, options.filter, options.skip_bad)
    stream: Iterator[Any] | None = None
    tasks: list[Task] = []
    derives = False  # keys that the core gives are handed on
    text: str | None
    if isinstance(source, Stream):
        text, stream, own_keys = _stream_schema(group, source, options)
    else:
        for piece in source:
            if isinstance(piece, CoreFiles):
                piece.open(group.core, mapped=options.map is not None, schema=options.given_schema,
                           **options.for_reading())
                derives = options.key is None and not (base is not None and base["shape"]["derived_keys"])
        tasks, known = _scan(group, source)
        known = known if options.map is None else None
        text, own_keys = options.schema or schemas.text_of(known or _probe(group, tasks, options)), derives
    assert text is not None
    canonical, columns = together_parse(group, text)
    key: Any = options.key if callable(options.key) else None
    builder = _core.Builder(group.core, directory, canonical, own_keys=own_keys or key is not None,
                            own_lengths=callable(options.length),
                            source=fingerprint.digest(origin), progress=report, **options.for_core())
    try:
        feeder = Feeder(builder, columns, steps, loose=options.given_schema is not None, key=key,
                        length=options.length if callable(options.length) else None, derives=derives)
        tick = progress.Ticker(report)

        def read() -> list[str]:
            if stream is not None:
                _feed_stream(builder, feeder, stream, group, options.unit_samples or STREAM_UNIT, named, tick)
            else:
                _feed_tasks(builder, feeder, deal(tasks, group.world)[group.rank], named, tick)
            return steps.bad_first

        done = together(group, "build: samples", read)
        made = builder.commit()
    finally:
        builder.close()
    made["bad_first"] = "\n".join(itertools.chain.from_iterable(done))
    return made


def together_parse(group: Group, text: str) -> tuple[str, schemas.Schema]:
    """COLLECTIVE. The schema parsed, its errors raised on all ranks."""
    parsed: list[tuple[str, schemas.Schema]] = []
    together(group, "build: schema", lambda: parsed.append(schemas.parse(text)))
    return parsed[0]


def _scan(group: Group, pieces: list[Piece]) -> tuple[list[Task], dict[str, str] | None]:
    """COLLECTIVE. All units, numbered in the order of pieces, and the schema where all pieces know it. Each piece is
    opened by one rank."""
    def scan() -> list[Any]:
        found = []
        for i in range(group.rank, len(pieces), group.world):
            units, schema = pieces[i].scan()
            found.append([i, [[unit.name, unit.weight, unit.at] for unit in units], schema])
        return found

    each = sorted(itertools.chain.from_iterable(
        ([*one, rank] for one in found) for rank, found in enumerate(together(group, "build: units", scan))),
                  key=lambda one: int(one[0]))
    tasks = [Task(number, pieces[i], Unit(name, weight, tuple(at)))
             for number, (i, (name, weight, at)) in enumerate((i, unit) for i, units, _, _ in each for unit in units)]
    known = all(schema is not None for _, _, schema, _ in each)
    return tasks, schemas.merge([(rank, schema) for _, _, schema, rank in each]) if known else None


def _probe(group: Group, tasks: list[Task], options: Options) -> dict[str, str]:
    """COLLECTIVE. The schema of the first samples of PROBES equal spans of units; the same for any number of ranks."""
    spans = [tasks[len(tasks) * i // PROBES:len(tasks) * (i + 1) // PROBES] for i in range(PROBES)]

    steps = Steps(group, options.map, options.filter, options.skip_bad)

    def probe() -> list[Any]:
        found = [[i, schemas.infer(itertools.chain.from_iterable(_first(steps, task) for task in spans[i]), PROBE)]
                 for i in range(group.rank, PROBES, group.world)]
        return [found, steps.filtered, steps.bad]

    looks = together(group, "build: first samples", probe)
    found = sorted(((i, rank, schema) for rank, (each, _, _) in enumerate(looks) for i, schema in each),
                   key=lambda one: int(one[0]))
    return schemas.merge(((rank, schema) for _, rank, schema in found),
                         _why_nothing(options, sum(look[1] for look in looks), sum(look[2] for look in looks)))


def _why_nothing(options: Options, filtered: int, bad: int) -> str:
    """Why no sample is left to infer a schema from, where none is: then all have been looked at."""
    functions = " and ".join(name for name in ("map", "filter") if getattr(options, name) is not None)
    if filtered:
        return f"{functions} dropped all {filtered} samples" + (f" but {bad} bad ones" if bad else "")
    return f"all {bad} samples are bad" if bad else "the source is empty"


def _first(steps: Steps, task: Task) -> Iterable[Any]:
    """The first PROBE samples of a unit, or more."""
    if isinstance(task.piece, CoreFiles):
        return first_rows(steps, task.piece, task.unit, PROBE)
    steps.label = functools.partial(task.piece.label, task.unit)
    return steps.samples(task.piece.read(task.unit), task.piece.decode)


def deal(tasks: Sequence[Task], world: int) -> list[list[Task]]:
    """Units to ranks: the largest first, each to the rank that has least; a rank's in their order."""
    dealt: list[list[Task]] = [[] for _ in range(world)]
    heap = [(0, rank) for rank in range(world)]
    for task in sorted(tasks, key=lambda task: (-task.unit.weight, task.number)):
        load, rank = heapq.heappop(heap)
        dealt[rank].append(task)
        heapq.heappush(heap, (load + max(1, task.unit.weight), rank))
    return [sorted(mine, key=lambda task: task.number) for mine in dealt]


def _feed_tasks(builder: _core.Builder, feeder: Feeder, tasks: Sequence[Task], named: str,
                tick: progress.Ticker) -> None:
    total, done = sum(task.unit.weight for task in tasks), 0
    for task in tasks:
        name = named * task.piece.in_memory + task.unit.name
        if builder.unit(task.number, name):
            pass
        elif isinstance(task.piece, CoreFiles):
            feeder.feed_rows(task.piece, task.unit, functools.partial(tick, "reading", done, total))
        else:
            feeder.steps.label = functools.partial(task.piece.label, task.unit)
            for samples in feeder.feed(task.piece.read(task.unit), task.piece.decode, name):
                tick("reading", done, total, samples)
        done += task.unit.weight
    tick("reading", done, total, feeder.samples, last=True)


def _stream_schema(group: Group, source: Stream, options: Options) -> tuple[str, Iterator[Any], bool]:
    """COLLECTIVE. The schema, the iterator with what was looked at put back, and whether samples bring keys."""
    held: list[Iterator[Any]] = []
    steps = Steps(group, options.map, options.filter, options.skip_bad)

    def look() -> list[Any]:
        first: list[Any] = []

        def taken(items: Iterator[Any]) -> Iterator[Any]:
            for item in items:
                first.append(item)
                yield item

        try:
            items = iter(source.items)
        except Exception as raised:
            raise callback_failed(raised, group.rank, "the source", "") from raised
        found = None
        if options.schema is None:
            found = schemas.infer(steps.samples(taken(items), None), PROBE * 4)
        else:
            next(steps.samples(taken(items), None), None)
        held.append(itertools.chain(first, items))
        return [found, any(isinstance(item, Columns) and item.keys is not None for item in first), steps.filtered,
                steps.bad]

    looks = together(group, "build: first samples", look)
    nothing = _why_nothing(options, sum(look[2] for look in looks), sum(look[3] for look in looks))
    found = ((rank, look[0]) for rank, look in enumerate(looks))
    text = options.schema or schemas.text_of(schemas.merge(found, nothing))
    assert text is not None
    return text, held[0], any(look[1] for look in looks)


def _feed_stream(builder: _core.Builder, feeder: Feeder, items: Iterator[Any], group: Group, unit_samples: int,
                 named: str, tick: progress.Ticker) -> None:
    """Units end behind the item that fills them, also where a finished one is skipped: so they are the same in a
    resumed build."""
    seen = 0
    for k in itertools.count():
        try:
            first = next(items, _END)
        except RankStoreError:
            raise
        except Exception as raised:
            raise callback_failed(raised, group.rank, "the source", f"sample {seen}") from raised
        if first is _END:
            break
        number = group.rank + group.world * k
        unit = _StreamUnit(itertools.chain([first], items), unit_samples)
        start = seen
        feeder.steps.label = lambda row, start=start: f"sample {start + row}"  # type: ignore[misc]
        if builder.unit(number, f"{named}part {number}"):
            feeder.steps.unseen(unit)
        else:
            for samples in feeder.feed(unit, None):
                tick("reading", 0, 0, samples)
        seen += unit.taken
    tick("reading", 0, 0, feeder.samples, last=True)


class _StreamUnit:
    """The items of one unit."""

    def __init__(self, items: Iterable[Any], size: int) -> None:
        self.items, self.size, self.taken = items, size, 0

    def __iter__(self) -> Iterator[Any]:
        for item in self.items:
            self.taken += len(item) if isinstance(item, Columns) else 1
            yield item
            if self.taken >= self.size:
                return
