# SPDX-License-Identifier: Apache-2.0
"""`build`: from any source to a dataset on disk.

    files that the core reads ─────► _core.build, which asks filter and length
    the same, with map or key() ─► _core.Reader ┐
    pieces (Parquet, lists, ...) ───────────────┴► units, dealt to ranks ─► map, filter ─► _core.Builder
    an iterable on each rank ────────────────────► units of its own      ─► map, filter ─► _core.Builder
"""
from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import progress, schemas
from .build_options import BuildReport, Options
from .build_run import build_here
from .dataset import Dataset
from .group import Group, current
from .opening import open as open_dataset
from .sizes import optional_bytes
from .workers import build_with_workers

__all__ = ["BuildReport", "build"]


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
        report = build_with_workers(group, workers, source, directory, options)
    else:
        report = build_here(group, source, directory, options)
    dataset = open_dataset(directory, group=group, exchange=exchange, no_share=no_share)
    dataset.report = report
    return dataset
