# SPDX-License-Identifier: Apache-2.0
"""What is done with datasets as wholes: merged, pruned, exported, compared. The command line has the same by the same
names, and its reports the same figures."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from . import _core, progress
from .dataset import Dataset
from .errors import ArgumentError, StateError
from .group import Group, current
from .opening import open as open_dataset

Path = str | os.PathLike[str]
Bar = progress.Report | bool | None


@dataclass(frozen=True)
class MergeReport:
    """samples and shards of the merged dataset, and its id (dataset); bytes of files that are links of the sources', and
    of copied ones: this rank's."""

    samples: int
    shards: int
    linked_bytes: int
    copied_bytes: int
    dataset: str


@dataclass(frozen=True)
class PruneReport:
    """generations that were forgotten, files that were removed with them, and their bytes: of all ranks' directories."""

    generations: int
    files: int
    bytes: int


@dataclass(frozen=True)
class ExportReport:
    """samples that were written, and filtered ones that `where` left out; bytes of the written ones' chosen columns and
    keys; seconds; the format (to); respelled: JSON values that are read back in another spelling; keys_left: derived
    keys were not written, since a column "__key__" is there; left_out: samples in quarantine, or of shards that no rank
    has."""

    samples: int
    filtered: int
    bytes: int
    seconds: float
    to: str
    respelled: int
    keys_left: bool
    left_out: int = 0


@dataclass(frozen=True)
class Difference:
    """A key that is in one dataset only, or has other contents in the other; sample ids where it is there."""

    kind: Literal["only_a", "only_b", "changed"]
    key: bytes
    id_a: int | None
    id_b: int | None


@dataclass(frozen=True)
class DiffReport:
    """How many keys are the same, in one only (only_a, only_b) or changed; columns that only one has or that differ in
    type, as text ("" for none); the first differences of each kind, on rank 0."""

    same: int
    only_a: int
    only_b: int
    changed: int
    columns: str
    differences: tuple[Difference, ...] = ()

    @property
    def equal(self) -> bool:
        """Nothing differs."""
        return not (self.only_a or self.only_b or self.changed or self.columns)


def merge(sources: Sequence[Path], directory: Path, *, copy: bool = False, group: Group | None = None,
          progress: Bar = None, no_lock: bool = False) -> MergeReport:
    """COLLECTIVE. Makes one dataset of two and more without reading a sample: it links or copies their sealed shards. Samples
    of the first source come first.

    sources: list of paths. May hold "{rank}" and "{node}"; "DIR@2" is generation 2 of DIR.
    directory: path. Where the merged dataset goes; may hold "{rank}" and "{node}".
    copy: bool. Copy shards also if they could be linked. Default: False (two file systems always copy).
    group: Group. Default: `current()`.
    progress: bool or callable. None or True: a bar on rank 0; False: none; or a callable (phase, done, total, samples).
        Default: None.
    no_lock: bool. As for `build`. Default: False.

    Returns a MergeReport. Raises ArgumentError if schemas, index columns, the kind of keys, `length` or `length_unit` of the
    builds differ, or a dataset is in `directory`; DataError naming a key that two of them have. Then nothing is left in
    `directory`. The same on all ranks.
    """
    if isinstance(sources, (str, bytes, os.PathLike)):
        raise ArgumentError("merge: sources are a list of directories")
    chosen = group if group is not None else current()
    with _shown(progress, chosen) as report:
        made = _core.merge(chosen.core, [os.fspath(source) for source in sources], os.fspath(directory), copy=copy,
                           progress=report, no_lock=no_lock)
    return MergeReport(**made)


def prune(directory: Path, *, keep: int | None = None, dry_run: bool = False, group: Group | None = None,
          no_lock: bool = False) -> PruneReport:
    """COLLECTIVE. Removes what no generation of the dataset names: unfinished parts and what killed processes left. Killed at
    any moment, it leaves each generation whole or forgotten.

    directory: path. The dataset's directory.
    keep: int, from 1. Removes all but the newest `keep` generations, with the shards that only they have. Default: all stay.
    dry_run: bool. Only count. Default: False.
    group: Group. Default: `current()`.
    no_lock: bool. As for `build`. Default: False.

    Returns a PruneReport. Raises StateError if a build runs there, NotFoundError if there is no dataset.
    """
    chosen = group if group is not None else current()
    return PruneReport(**_core.prune(chosen.core, os.fspath(directory), keep=keep, dry_run=dry_run,
                                     no_lock=no_lock))


def export(dataset: Dataset | Path, target: Path, *, to: str | None = None, where: str | None = None,
           columns: Sequence[str] | None = None, force: bool = False, group: Group | None = None,
           progress: Bar = None) -> ExportReport:
    """COLLECTIVE. Writes samples in id order into files that other tools read. Rank 0 writes; the others send what they serve, a
    few batches at a time. `target` is there when all of it is written, or not at all.

    dataset: Dataset or path. A directory is opened for the call, by `group`.
    target: path. The file or directory to write.
    to: str. "jsonl", "tar" (as WebDataset has it), "npz", "dir" or "lmdb". Default: by the ending of `target`.
    where: str. "COLUMN OP VALUE", as `build` takes it. Default: all samples.
    columns: list of str. Columns to write. Default: all.
    force: bool. Replaces a target that is there. Default: False, which is ArgumentError then.
    group: Group. The ranks that open `dataset`. Default: `current()`.
    progress: bool or callable. As for `merge`. Default: None.

    Returns an ExportReport. Raises ArgumentError if something is at `target`; DataError naming sample and column for what the
    format cannot hold. What is written as jsonl, tar and npz builds the same dataset again with its schema and key.
    """
    with _opened("export", dataset, group) as store, _shown(progress, store.group) as report:
        made = _core.export(store.store, os.fspath(target), to=to, where=where, columns=columns, force=force,
                            progress=report)
    return ExportReport(**made)


def diff(a: Dataset | Path, b: Dataset | Path, *, columns: Sequence[str] | None = None, head: int = 10,
         group: Group | None = None, progress: Bar = None) -> DiffReport:
    """COLLECTIVE. Compares two datasets by key and contents. The order of samples, lengths, shards and ranks do not matter;
    samples that a quarantine leaves out are not compared.

    a: Dataset or path. A directory is opened for the call.
    b: Dataset or path. Of the same group as `a`, if both are open.
    columns: list of str. Compare these alone. Default: all.
    head: int, from 0. How many differences of each kind to list. Default: 10.
    group: Group. The ranks that open directories. Default: `current()`.
    progress: bool or callable. As for `merge`. Default: None.

    Returns a DiffReport; its `equal` is True if nothing differs. Raises ArgumentError for a column that neither has;
    CorruptError naming a damaged sample.
    """
    with _opened("diff", a, group) as one, _opened("diff", b, group) as other, _shown(progress, one.group) as report:
        counts, found = _core.diff(one.store, other.store, columns=columns, head=head, progress=report)
    kinds: tuple[Literal["only_a", "only_b", "changed"], ...] = ("only_a", "only_b", "changed")
    return DiffReport(**counts, differences=tuple(Difference(kinds[kind], key, id_a, id_b) for kind, key, id_a, id_b in found))


@contextlib.contextmanager
def _opened(what: str, dataset: Dataset | Path, group: Group | None) -> Iterator[Dataset]:
    if not isinstance(dataset, Dataset):
        with open_dataset(dataset, group=group) as opened:
            yield opened
        return
    if not isinstance(dataset.group, Group):
        raise StateError(f"{what}: a worker process has no ranks; call it in the process that opened the dataset")
    if dataset.is_selection:
        raise ArgumentError(f"{what}: takes whole datasets, not a selection; `export` has where=")
    yield dataset


@contextlib.contextmanager
def _shown(given: Bar, group: object) -> Iterator[progress.Report | None]:
    report = progress.make(given, group.rank if isinstance(group, Group) else 0)
    try:
        yield report
    finally:
        progress.close(report)
