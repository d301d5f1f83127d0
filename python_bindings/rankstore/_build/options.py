# SPDX-License-Identifier: Apache-2.0
"""The arguments of `build`, and its report."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace as replaced
from typing import Any

from .. import _core
from .._distributed import progress
from .._provenance import code
from .._schema import infer
from .._sources.stored import Stored
from ..errors import ArgumentError


@dataclass(frozen=True)
class BuildReport:
    """What a build did, summed over all ranks.

    Attributes: samples (kept), filtered (dropped by where, filter, or a map that returned None) and bad (skip_bad), both including units
        that an interrupted build had finished; bytes (of columns and keys), input_bytes (of files that the core read), units, units_resumed
        (those that were already there), seconds (of this rank), dataset (its id), bad_first (the first bad samples that this call met, a
        line each; and how many members of archives only macOS reads), duplicates (that dedup dropped), sampled_out (that `sample` dropped),
        not_read (how many names of folders were not read: hidden, linked_folders, special_files), collectives (the core's collective
        calls), json_columns (for JSON files with an inferred schema, the columns that hold objects or lists as JSON, "a, b"),
        object_columns (those that flatten made of objects), unit_size (bytes of files in a unit; 0 if the core read none), kept (True if a
        finished dataset was there and nothing was built), length (what lengths count, in words: "items of tokens", "bytes of text", "1
        each"), shards_rebuilt and units_rebuilt (of a finished dataset, lost shards that were built again, and their units).
    """

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
    collectives: int = 0
    json_columns: str = ""
    object_columns: str = ""
    unit_size: int = 0
    kept: bool = False
    length: str = ""
    shards_rebuilt: int = 0
    units_rebuilt: int = 0


@dataclass(frozen=True)
class Options:
    """The arguments of `build`, except the source."""

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
    replace: bool | str = False
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
    json_path: str | None = None
    flatten: bool = False
    extra: str | None = None
    infer_all: bool = False
    dtype: str | None = None
    each_rank: bool = False
    same_on_all: bool = False
    no_lock: bool = field(default=False, compare=False)
    wait: bool = field(default=False, compare=False)
    threads: int | None = field(default=None, compare=False)
    check_source: bool = field(default=True, compare=False)
    max_shard: int | None = field(default=None, compare=False)
    shards: tuple[str, ...] = field(default=(), compare=False)
    storage: str | None = field(default=None, compare=False, repr=False)  # what stores need, as JSON, with secrets
    input_bytes: int | None = field(default=None, compare=False)
    home: str | None = field(default=None, compare=False)  # where shards go as soon as they are sealed
    version: str | None = None  # what counts instead of the functions' code
    counts: tuple[str, ...] = ()  # rules of count, as the library takes them
    keeps_schema: bool = field(default=False, compare=False)  # the schema is the dataset's: columns that it lacks are refused

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
            raise ArgumentError(f"unit_samples: {self.unit_samples}; it must be 1 to 2^32 - 1")
        if self.sample is not None and not _good_sample(self.sample):
            raise ArgumentError(f"sample: {self.sample!r}; it is a number of samples (an int), or a share above 0 and "
                                "below 1 (a float)")
        if self.replace not in (True, False, "if_changed"):
            raise ArgumentError(f'replace: {self.replace!r}; it is True, False or "if_changed"')
        if self.version is not None and not (isinstance(self.version, str) and self.version):
            raise ArgumentError(f'version: {self.version!r}; it is a text, such as "v3", and stands for the code of your functions')
        if self.extra not in (None, "error", "drop", "json"):
            raise ArgumentError(f'extra: {self.extra!r}; it is "error", "drop" or "json"')
        if self.flatten and self.needs_python:
            raise ArgumentError("flatten: not with map, or a function for key or count, which get the objects as they are in the "
                                "file; make the columns in map")
        if self.each_rank and self.same_on_all:
            raise ArgumentError("each_rank and same_on_all cannot be used together")
        if self.replace and self.reuse:
            raise ArgumentError("replace and reuse cannot be used together")
        if self.append and self.infer_all:
            raise ArgumentError('append: new samples take the dataset\'s schema; leave schema="auto:all" out')
        if self.append and (self.replace or self.reuse):
            raise ArgumentError(f"append and {'replace' if self.replace else 'reuse'} cannot be used together")

    @property
    def needs_python(self) -> bool:
        """Return True if samples of files also go to Python, which adds what it makes of them."""
        return self.map is not None or callable(self.key)

    def shown(self) -> dict[str, Any]:
        """Return what decides the result, as JSON values."""
        named = {name: value if isinstance(value := getattr(self, name), str) else None for name in ("length", "key")}
        return {**named, **self.selection(), "index": list(self.index), "schema": self.schema, "format": self.format,
                "where": self.where, "length_unit": self.length_unit, "max_sample": self.max_sample,
                **({"count": list(self.counts)} if self.counts else {}),
                "skip_bad": self.skip_bad, "max_total": self.max_total, "unit_samples": self.unit_samples,
                **{name: value for name in ("append", "unit_size", "columns", "json_path", "flatten",
                                                               "extra", "infer_all", "dtype", "version") if (value := getattr(self, name))}}

    def functions(self) -> dict[str, Any]:
        """Return the user's functions by the option that gives them; None for an option without one."""
        named = {name: getattr(self, name) for name in ("map", "filter", "length", "key")}
        return {name: value if callable(value) else None for name, value in named.items()}

    def uses(self) -> dict[str, Any]:
        """Return what these functions use, as JSON values: {"map": {"found": ..., "unfollowed": ..., "own": ...}, "filter": None, ...}."""
        of = code.of if self.version is None else lambda function: code.Uses()
        looked = {name: function and (of(function), code.own(function)) for name, function in self.functions().items()}
        return {name: one and {"found": one[0].found, "unfollowed": one[0].unfollowed, "own": one[1]} for name, one in looked.items()}

    def selection(self) -> dict[str, Any]:
        """Return the options for lengths, samples and duplicates, by the names of _core."""
        share = isinstance(self.sample, float)
        every = {"min_length": self.min_length, "max_length": self.max_length,
                 "sample": None if share else self.sample, "sample_rate": self.sample if share else None,
                 "seed": self.seed, "dedup": self.dedup}
        return {name: value for name, value in every.items() if value}

    def for_core(self) -> dict[str, Any]:
        """As _core.build_input and _core.build name them."""
        return {"key": self.key if isinstance(self.key, str) else None,
                "length": self.length if isinstance(self.length, str) else None, "length_unit": self.length_unit,
                "where": self.where, "index": self.index,
                "max_sample": self.max_sample, "replace": bool(self.replace), "append": self.append,
                "no_lock": self.no_lock, "wait": self.wait, "max_shard": self.max_shard, "shards": self.shards,
                "home": self.home, "storage_options": self.storage, "counts": self.counts,
                **self.selection()}

    def for_reading(self) -> dict[str, Any]:
        """As _core.Files and _core.build name them."""
        return {"max_sample": self.max_sample, "skip_bad": self.skip_bad, "max_total": self.max_total,
                "unit_size": self.unit_size, "columns": self.columns, "json_path": self.json_path,
                "extra": self.extra, "dtype": self.dtype, "unchecked": not self.check_source, "storage_options": self.storage,
                "input_bytes": self.input_bytes}

    def as_stored(self, source: Stored) -> Options:
        """A build's options from an open dataset: its own, for what they do not say. With a map only the units stay."""
        if self.map is not None:
            return self
        built = source.built
        source.brings_keys = self.key is None and source.keyed is None
        source.brings_lengths = self.length is None and bool(built.get("length_fn"))
        length = {} if self.length is not None or source.brings_lengths else \
            {"length": built.get("length"), "length_unit": built.get("length_unit", 1)}
        return replaced(self, key=self.key if self.key is not None or source.brings_keys else source.keyed,
                        index=self.index or tuple(source.dataset.index), **length)

    def as_there(self, shape: dict[str, Any] | None) -> Options:
        """An append's options, which default to the dataset's."""
        if shape is None:
            return self
        if self.length is None and shape["own_lengths"]:
            raise ArgumentError("append: the dataset's lengths came from a function; give length= again")
        counts = self.counts or tuple(shape["count"])
        there = _core.row_schema(shape["schema"], counts, False)
        other = self.schema is not None and infer.parse(self.schema)[0] != there  # the core refuses it
        length = {} if self.length is not None or other else {"length": shape["length"], "length_unit": shape["length_unit"]}
        return replaced(self, counts=counts, key=self.key or shape["key"], schema=self.schema or there,
                        keeps_schema=self.schema is None, index=self.index or tuple(shape["index"]), **length)

    @property
    def given_schema(self) -> str | None:
        """What leaves columns out in silence."""
        return None if self.keeps_schema else self.schema

    @property
    def asked_schema(self) -> str | None:
        """As the core takes it."""
        return "auto:all" if self.infer_all else self.given_schema

    @property
    def drops_extra(self) -> bool:
        """What the schema lacks is left out."""
        return self.extra == "drop" or (self.extra is None and self.given_schema is not None)


def _good_sample(sample: Any) -> bool:
    if isinstance(sample, bool):
        return False
    return 1 <= sample < 2**32 if isinstance(sample, int) else isinstance(sample, float) and 0 < sample < 1
