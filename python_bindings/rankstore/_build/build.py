# SPDX-License-Identifier: Apache-2.0
"""Build datasets: `build` turns any source into a dataset on disk.

    files that the core reads ─────► _core.build, which calls filter and length
    the same, with map or key() ─► _core.Files ┐
    pieces (Parquet, lists, ...) ──────────────┴► units, the same on all ranks ─► map, filter ┐
    an iterable on each rank ───────────────────► units of its own             ─► map, filter ┴► _core.build_input"""
from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import _core
from .._batching.layouts import item_name
from .._dataset.dataset import Dataset
from .._dataset.maintenance import make_copies, publish
from .._dataset.open import check_copies, folders_of, open as open_dataset
from .._dataset.stores import for_store
from .._distributed import progress
from .._distributed.group import Group, current
from .._schema import infer
from .._schema.sizes import optional_bytes
from .._sources.opened import as_paths
from .._stores.address import is_url
from ..errors import ArgumentError
from . import count_columns
from .driver import build_here
from .options import Options
from .processes import build_with_workers

AUTO = ("auto", "auto:all")  # values of schema= that infer it


def build(source: Any, out: str | os.PathLike[str], *, map: Callable[[Any], Any] | None = None,  # noqa: A002
          filter: Callable[[Any], Any] | None = None, length: str | Callable[[Any], int] | None = None,  # noqa: A002
          key: str | Callable[[Any], str | bytes] | None = None, index: Sequence[str] | None = None,
          schema: Mapping[str, str] | str | None = None,
          format: str | None = None, where: str | None = None, workers: int = 0, length_unit: int = 1,  # noqa: A002
          max_sample: int | str | None = None, skip_bad: bool = False, replace: bool | str = False, reuse: bool | None = None,
          unit_samples: int | None = None, exchange: str | None = None, no_share: bool = False,
          progress: progress.Report | bool | None = None, group: Group | None = None, min_length: int = 0,
          max_length: int | None = None, sample: int | float | None = None, seed: int = 0,
          dedup: bool = False, max_total: int | str | None = None, append: bool = False,
          unit_size: int | str | None = None, columns: str | None = None,
          count: Mapping[str, count_columns.Rule] | None = None, each_rank: bool = False,
          same_on_all: bool = False, no_lock: bool = False, json_path: str | None = None, flatten: bool = False,
          extra: str | None = None, dtype: Any = None, wait: bool = False, threads: int | None = None, check_source: bool = True,
          version: str | None = None, max_shard: int | str | None = None,
          home: str | os.PathLike[str] | None = None, shards: Sequence[str | os.PathLike[str]] | None = None,
          storage_options: Mapping[str, Any] | None = None, copies: int = 1, input_bytes: int | str | None = None) -> Dataset:
    """Build a dataset on disk and open it (collective: call it on every rank).

    Repeat the same call to resume an interrupted build.

    source: what to read, one of
        - paths (str, Path, a list; globs) of .jsonl, .json (an array of objects, or one object a line), .txt (lines), .csv, .tsv, .npy,
          .npz, folders (one sample a file), .tar (WebDataset), .zip, Megatron's .bin with .idx, MDS folders, .parquet, .arrow, .feather;
          lines and tar also compressed (.gz, .zst, .xz, .bz2). A folder of .parquet, .arrow, .tar or .zip is these files: hidden ones,
          names that begin with `_`, checksums and READMEs are no data, and other files beside them are an ArgumentError;
          Hugging Face dataset;
        - an array or tensor (its rows become the column "data"); a dict of arrays of one length; a pandas DataFrame without its index; a
          structured array of numpy;
        - an open dataset of Rankstore: with the same samples in the same order the result is the same dataset (its id), since units, keys,
          lengths and index columns are taken over; not from a selection, or with map;
        - any dataset with __len__ and __getitem__, the same on all ranks (such as a list of dicts; ranks compare 16 samples of lists and
          tables to find differences);
        - an iterable or generator of samples; a list of Columns;
        - an open file, whose lines are samples, as jsonl or with format="text": `build(sys.stdin, out)`, or "-" for standard input. Each
          rank reads its own, as with an iterable; "-" is for one rank;
        - fsspec's OpenFiles: they stand for their paths or URLs, with the options of their file system as storage_options.
        A sample is a dict of columns. A str in a json column is a JSON string, and no JSON text. Arrays with masked or missing items are a
        DataError. An item Columns(...) holds many samples.
        Ranks share the work of paths, lists and datasets with __len__ and __getitem__, which must be the same on all ranks. An iterable is
        each rank's own part. If the parts of two ranks look equal (same count, first and last samples), the build fails and asks for
        each_rank or same_on_all.
    out: path. The dataset's directory. "{rank}" and "{node}" in it become numbers.
    map: callable. map(sample) returns a dict, None (drop the sample) or a list of dicts. It may be called twice for a sample, because the
        first samples decide the schema. Default: none.
    filter: callable. filter(sample) runs after map and drops the sample if it returns false. Default: none.
    length: str or callable. What lengths count: a column (items of an array, bytes of a str, the value of an integer), "chars:COLUMN", or
        length(sample) -> int. Default: the first array of variable size that is not the key; else the first str, bytes or json but
        "__key__"; else the first array of fixed size ("uint16[257]" has length 257); else 1. A line says which. dataset.json records it.
    key: str or callable. A column, or key(sample) -> str or bytes. Keys must be unique (DataError). "" derives keys from unit and row.
        Default: "__key__" of a tar or zip, else derived.
    index: list of str. Columns of single numbers that every rank keeps in memory. Default: none.
    schema: dict or str. {"tokens": "int32[*]"} or "tokens:int32[*],...". Columns that it does not name are dropped. "auto:all" infers it
        from all samples, which are read twice (not with append). Default: "auto", inferred from the first samples.
    format: str. The format of paths whose names do not show it. Default: by their endings.
    where: str. "COLUMN OP VALUE [and ...]". Quoted values compare as text. A missing value is == null and != everything else, never < or >.
        Default: none.
    workers: int. Processes of this machine to build with, if the group is one rank. Default: 0, build in this process.
    length_unit: int, at least 1. Lengths are divided by it and rounded up. Default: 1.
    max_sample: int or str, in bytes. The largest sample to accept; a larger one is a DataError. Default: 1 GiB, at most 2 GiB less 64 KiB.
    skip_bad: bool. Count and list bad samples in the BuildReport instead of failing. If the first rows disagree about a type, that is still
        an error unless schema gives the type. Default: False.
    replace: bool or "if_changed". Replace a finished dataset in `out`; with "if_changed" only if source, options or code differ. Default:
        False.
    reuse: bool. True opens a finished dataset in `out`, whatever it was built from. Default: None, which opens it if it was built from the
        same source with the same options and code, else ArgumentError. The same source means: files with the same names and sizes (use
        replace=True if you rewrote one without changing its size); lists, tuples and tables with equal contents (objects compare by type,
        except Python's and numpy's data and dataclasses); Hugging Face datasets with one fingerprint; other objects with __getitem__ of one
        type, length, code and state; iterables with the same samples after map and filter, for which they are read.
    unit_samples: int, at least 1. Samples in a unit, the step in which an interrupted build resumes. Default: 8,192 for iterables, counted
        before map; else by the number of samples.
    exchange: str. As for `open`. Default: "auto".
    no_share: bool. As for `open`. Default: False.
    progress: bool or callable. None shows a bar on rank 0's terminal if tqdm is installed; False shows none; a callable (phase, done,
        total, samples) is called on each rank. Default: None.
    group: Group. The ranks that build. Default: `current()`.
    min_length: int. Drop shorter samples. Default: 0.
    max_length: int. Drop longer samples. Default: none.
    sample: int or float. An int keeps that many random samples of those that the filters left. A float keeps that share of the source's
        rows, drawn before filter and where see them (after map and filter if Python adds the samples). Default: all.
    seed: int. Decides `sample`: the same choice on any number of ranks, except for iterables. Another unit_size or unit_samples, or the
        same rows in other files, changes the choice. Default: 0.
    dedup: bool. Keep only the first of samples with equal contents (all columns except the key's). If another column is the key, the
        "__key__" of a tar or zip counts as content and keeps equal members apart. Default: False.
    max_total: int or str, in bytes. What one compressed file may unpack to, if the C core reads it. Default: 1 TiB.
    append: bool. Add the samples after those of the dataset in `out`, as its next generation (`Dataset.generations`). Schema, key, length
        and index default to the dataset's. If `out` has no dataset, the samples become generation 1. Repeating the call that made the
        newest generation opens it, except for iterables and for objects with __getitem__ other than lists: these cannot be compared and are
        appended again. Default: False.
    unit_size: int or str, in bytes. The size of a unit of files that the C core reads. Default: the size that the dataset or the unfinished
        parts in `out` were built with (64 MiB if their samples came from memory), else about 1/64 of the files, between 1 and 64 MiB.
    columns: str. Column names of CSV or TSV files without a header, "a,b,c". Default: the header's.
    count: dict. Adds integer columns (int64) that are also index columns. A rule, {"learned": ("labels", "!=", -100)}, counts the items of
        the numeric column labels that are not -100; the library does it last, so where= and length= may name the column, and it is the
        schema's last one. A function, {"learned": function}, is called as function(sample) -> int after map, so filter sees what it adds.
        `batch.global_sum("learned")` sums one over a step. An append counts by the dataset's rules. Default: none.
    each_rank: bool. The source is this rank's own part, even if it is a list or equals another rank's: all parts are added. Default: False.
    same_on_all: bool. The source is an iterable that yields the same samples on all ranks: ranks split it, and each skips the samples of
        the others. Default: False.
    no_lock: bool. Let several ranks build on a file system without locks (Lustre without -o flock). Make sure that nothing else writes in
        `out`, because no lock prevents it. Default: False; a single rank needs no locks.
    json_path: str. The member of a JSON object that holds the array of samples: "data" or "outer.data". Default: the file is the array.
    flatten: bool. Turn members of objects into columns "outer.inner" (JSON files only; not with map, or a function for key or count).
        Default: False.
    extra: "error", "drop" or "json". What to do with a column that the schema lacks. "json" puts all such values of a sample into the
        column "extra", as an object. Default: "drop" if you give schema, else "error".
    dtype: str, torch or numpy type. Item type of a raw file, required with format="raw". Samples are runs of 1,024 items in the column
        "tokens"; `Dataset.windows` reads across them. Default: none.
    wait: bool. If another build runs in `out`, wait until it ends (a line names its host and process). Then open its dataset under the
        usual rules: if source, options and code are the same, or with reuse=True. If that build was killed, this call resumes it. If it
        shows no sign of life within the silence limit, that is a PeerError. Default: False, which raises StateError.
    threads: int. Threads that read files on this rank; they do not change the dataset. Each one beyond the first may hold 64 MiB, or two
        samples if these are larger. Default: the cores that this process may use divided by the node's ranks, at most 4. With filter, map,
        or a function for length or key, one thread reads.
    check_source: bool. Verify checksums that the source itself has: hashes in the index of MDS shards, and those of Parquet's pages.
        Default: True.
    version: str. A text of yours, such as "v3", that stands for the code of your functions: a finished dataset opens if it was built with
        the same version, whatever they use. Default: none; what they use is compared.
    max_shard: int or str, in bytes of samples. End a shard with the unit that brings it to this size and begin another, so that the shards
        of one rank can be spread over disks: move the files. The dataset does not depend on it. Default: a shard a rank.
    home: path. Where the dataset is published once it is built, as by `publish`; also if it was built before; a directory or a URL.
        Shards that `max_shard` ends are sent while others are built. Default: none.
    shards: list of paths. As for `open`: folders that may hold shards of the dataset in `out`. Shards that lie there are not lost, and are
        read; nothing is written or removed there. Default: none.
    storage_options: dict. What the stores of `home` and of sources that are URLs need, as for `open`. Default: what the environment and
        the machine give.
    copies: int, at least 1. On how many nodes each shard will be once the dataset is built; further copies are made between the nodes,
        over the ranks' connections. With 2, a node may be lost without a home. More than there are nodes are as many as there are.
        Default: 1.
    input_bytes: int or str, such as "64MiB"; at least 1 MiB. How many bytes of sources that are URLs each rank holds in memory, those that
        are sent ahead included, and samples parsed from them that wait to be written; more only while one sample is larger.
        Default: 256 MiB.

    Returns the open Dataset; its `report` is a BuildReport.
    Raises on all ranks: CallbackError (your function or the source raised), DataError, ArgumentError, NotFoundError, StateError,
    CancelledError, IOFailedError.
    """
    if where is not None and not isinstance(where, str):
        raise ArgumentError(f'where: a text such as "score > 0.5", not {where!r}; a function goes into filter=')
    source, storage_options = as_paths(source, storage_options)
    names, text = infer.names_of("index", index), infer.text_of(schema)
    rules: tuple[str, ...] = ()
    if count is not None:
        rules, functions = count_columns.check(count)
        map = count_columns.Counted(map, functions) if functions else map  # noqa: A001
        names = (*names, *(name for name in count if name not in names))
        text = text if text is None or text in AUTO else _core.row_schema(infer.with_counts(text, list(functions)), rules, False)
    infer_all = text == "auto:all"
    text = None if text in AUTO else text
    options = Options(map, filter, length, key, names, text, format,
                      where, length_unit, optional_bytes("max_sample", max_sample), skip_bad, replace, reuse, unit_samples,
                      progress, optional_bytes("max_total", max_total), min_length, max_length, sample, seed, dedup,
                      append, optional_bytes("unit_size", unit_size), columns, json_path, flatten, extra, infer_all,
                      item_name(dtype), each_rank, same_on_all, no_lock, wait, threads=threads, version=version, check_source=check_source,
                      max_shard=optional_bytes("max_shard", max_shard), shards=folders_of(shards),
                      storage=storage_for(home, source, storage_options), input_bytes=optional_bytes("input_bytes", input_bytes),
                      home=None if home is None else os.fspath(home), counts=rules)
    options.check()
    check_copies(copies)
    group = group or current()
    if isinstance(source, str) and source == "-" and max(group.world, workers) > 1:
        raise ArgumentError("-: standard input is read by one rank; build on one, or write the lines to a file")
    if not isinstance(out, (str, os.PathLike)):
        raise ArgumentError(f"out: a directory's path, not {type(out).__name__}; the source comes first: build(source, out)")
    directory = os.fspath(out)
    if workers:
        report = build_with_workers(group, workers, source, directory, options)
    else:
        report = build_here(group, source, directory, options)
    if home is not None:
        publish(directory, home, group=group, progress=progress, shards=options.shards,
                storage_options=storage_options if is_url(os.fspath(home)) else None)
    if copies > 1:
        make_copies(directory, copies, group=group, progress=progress)
    dataset = open_dataset(directory, group=group, exchange=exchange, no_share=no_share, shards=options.shards)
    dataset.report = report
    return dataset


def storage_for(home: str | os.PathLike[str] | None, source: Any, options: Mapping[str, Any] | None) -> str | None:
    """Return storage_options as the core takes them, found wrong before the build. They need a URL: `home`, or a source."""
    paths = [source] if isinstance(source, (str, os.PathLike)) else source if isinstance(source, (list, tuple)) else []
    names = [os.fspath(one) for one in (home, *paths) if isinstance(one, (str, os.PathLike))]
    return for_store(next(filter(is_url, names), ""), options)
