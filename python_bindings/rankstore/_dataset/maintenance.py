# SPDX-License-Identifier: Apache-2.0
"""Merge, publish, stage, prune, export and compare whole datasets. The commands of these names do the same, with the same figures."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .. import _core
from .._distributed import progress
from .._distributed.group import Group, current
from .._schema.sizes import optional_bytes
from ..errors import ArgumentError, StateError
from .dataset import Dataset
from .open import check_copies, folders_of, open as open_dataset
from .stores import for_store

Path = str | os.PathLike[str]
Bar = progress.Report | bool | None


@dataclass(frozen=True)
class MergeReport:
    """What `merge` made.

    Attributes: samples and shards (of the merged dataset), linked_bytes (of this rank's files that are links to the sources' files),
        copied_bytes (of those that are copies), dataset (its id).
    """

    samples: int
    shards: int
    linked_bytes: int
    copied_bytes: int
    dataset: str


@dataclass(frozen=True)
class PublishReport:
    """What `publish` sent.

    Attributes: dataset (its id), generation (that home has now), before (the generation that home had; 0 for none), nothing_to_do (True if
        home had this generation or a later one from somewhere else), shards (of the dataset), sent_shards, sent_bytes (of all files that
        were sent, by all ranks), there_bytes (of all files that home had).
    """

    dataset: str
    generation: int
    before: int
    nothing_to_do: bool
    shards: int
    sent_shards: int
    sent_bytes: int
    there_bytes: int


@dataclass(frozen=True)
class StageReport:
    """What `stage` brought.

    Attributes: dataset (its id), generation, shards, bytes (of the shards, each once), places (local directories), wanted_bytes (of all
        copies), here_bytes (of them that were in a local directory before), home_bytes (that were read from home now).
    """

    dataset: str
    generation: int
    shards: int
    bytes: int
    places: int
    wanted_bytes: int
    here_bytes: int
    home_bytes: int


@dataclass(frozen=True)
class PruneReport:
    """What `prune` removed from the directories of all ranks, or from a home.

    Attributes: generations, files, bytes (of those files), names (of those files that this rank removed; of a home by URL, rank 0 does).
    """

    generations: int
    files: int
    bytes: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class PruneLocalReport:
    """What `prune_local` removed from the local directories of all ranks.

    Attributes: datasets (that were looked at), shards (removed), arrivals (removed shards of which only a part had come), files, bytes
        (that this frees on the disks: none for a shard that was linked from where it was built).
    """

    datasets: int
    shards: int
    arrivals: int
    files: int
    bytes: int


@dataclass(frozen=True)
class ExportReport:
    """What `export` wrote.

    Attributes: samples (written), filtered (dropped by `where`), bytes (of the chosen columns and keys that were written), seconds, to (the
        format), respelled (JSON values that are spelled differently when they are read back), keys_left (True if derived keys were not
        written, because there is a column "__key__"), left_out (samples in quarantine, or of shards that no rank has).
    """

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
    """A key that only one dataset has, or whose contents differ.

    Attributes: kind ("only_a", "only_b" or "changed"), key, id_a and id_b (its sample id in each dataset; None if it is not there).
    """

    kind: Literal["only_a", "only_b", "changed"]
    key: bytes
    id_a: int | None
    id_b: int | None


@dataclass(frozen=True)
class DiffReport:
    """What `diff` found.

    Attributes: same, only_a, only_b and changed (numbers of keys), columns (those that only one has or that differ in type, as text; "" if
        there are none), differences (the first of each kind, on rank 0).
    """

    same: int
    only_a: int
    only_b: int
    changed: int
    columns: str
    differences: tuple[Difference, ...] = ()

    @property
    def equal(self) -> bool:
        """Return True if nothing differs."""
        return not (self.only_a or self.only_b or self.changed or self.columns)


def merge(sources: Sequence[Path], directory: Path, *, copy: bool = False, group: Group | None = None,
          progress: Bar = None, no_lock: bool = False) -> MergeReport:
    """Merge two or more datasets into one without reading a sample (collective: call it on every rank).

    It links or copies their sealed shards. Samples of the first source come first.

    sources: list of paths. May contain "{rank}" and "{node}"; "DIR@2" is generation 2 of DIR.
    directory: path. Where to put the merged dataset; may contain "{rank}" and "{node}".
    copy: bool. Copy shards even if they could be linked. Default: False; between two file systems they are always copied.
    group: Group. The ranks that merge. Default: `current()`.
    progress: bool or callable. None or True shows a bar on rank 0; False shows none; a callable gets (phase, done, total, samples).
        Default: None.
    no_lock: bool. As for `build`. Default: False.

    Returns a MergeReport.
    Raises, the same on all ranks, ArgumentError if schemas, index columns, the kind of keys, `length` or `length_unit` of the builds
    differ, or if `directory` holds a dataset; DataError naming a key that two of them have. Then nothing is left in `directory`.
    """
    if isinstance(sources, (str, bytes, os.PathLike)):
        raise ArgumentError("merge: sources are a list of directories")
    chosen = group if group is not None else current()
    with _shown(progress, chosen) as report:
        made = _core.merge(chosen.core, [os.fspath(source) for source in sources], os.fspath(directory), copy=copy,
                           progress=report, no_lock=no_lock)
    return MergeReport(**made)


def publish(directory: Path, home: Path, *, dry_run: bool = False, group: Group | None = None, progress: Bar = None,
            shards: Sequence[Path] | None = None, storage_options: Mapping[str, Any] | None = None) -> PublishReport:
    """Copy a dataset to its home, a directory that all nodes see (collective: call it on every rank).

    Each rank sends the shards that are on its disk, and compares every MiB with the shard's sums as it sends it. What home has is not sent
    again: repeat the call after an append, or after it was killed. Readers of home see the dataset of before until all of the new one is
    there. `rankstore.open(home)` opens it.

    directory: path. The dataset's directory. "{rank}" and "{node}" in it become numbers; with a "*", as for `open`.
    home: path. The same directory on all ranks; it is made if it is not there. Or a URL of an object store, such as s3://bucket/tokens.
    dry_run: bool. Only count. Default: False.
    group: Group. The ranks that publish. Default: `current()`.
    progress: bool or callable. As for `merge`. Default: None.
    shards: list of paths. As for `open`: more folders that may hold shards of the dataset. Default: none, and those of RKS_PATH.
    storage_options: dict. As for `open`: what the store of a URL needs. Default: what the environment and the machine give.

    Returns a PublishReport.
    Raises, the same on all ranks, StateError if home has another dataset, or if another process publishes something else there;
    ArgumentError if home lies in the directory, or if ranks see different directories as home; CorruptError naming damage, which is not
    published; NotFoundError if a shard is neither on a rank's disk nor at home.
    """
    chosen = group if group is not None else current()
    with _shown(progress, chosen) as report:
        made = _core.publish(chosen.core, os.fspath(directory), os.fspath(home), dry_run=dry_run, progress=report,
                             shards=folders_of(shards), storage_options=for_store(os.fspath(home), storage_options))
    return PublishReport(**made)


def stage(home: Path, local: Path, *, copies: int = 1, everywhere: bool = False, local_room: int | str | None = None,
          group: Group | None = None, progress: Bar = None, storage_options: Mapping[str, Any] | None = None) -> StageReport:
    """Bring a dataset from its home to local disks ahead of a job (collective: call it on every rank).

    The shards are spread over the ranks' local directories, as `open(home, local=)` does while a job runs; this returns when they are
    there. Shards that are there already are not read again.

    home: path. The directory or URL where the dataset is kept whole; "DIR@2" is its generation 2.
    local: path. A directory on a disk of the rank's node; may contain "{rank}" and "{node}".
    copies: int, at least 1. On how many nodes each shard will be. Further copies come from ranks that have the shard. Default: 1.
    everywhere: bool. Bring all shards to each node. Default: False.
    local_room: int or str ("200GiB"), in bytes. What the dataset may add to this rank's disk. Default: three quarters of what is free.
    group: Group. The ranks that bring it. Default: `current()`.
    progress: bool or callable. As for `merge`. Default: None.
    storage_options: dict. As for `open`: what the store of a URL needs. Default: what the environment and the machine give.

    Returns a StageReport.
    Raises what `open` raises, the same on all ranks.
    """
    check_copies(copies)
    room = optional_bytes("local_room", local_room)
    chosen = group if group is not None else current()
    with _shown(progress, chosen) as report:
        made = _core.stage(chosen.core, os.fspath(home), os.fspath(local), copies=copies, everywhere=everywhere, local_room=room or 0,
                           progress=report, storage_options=for_store(os.fspath(home), storage_options))
    return StageReport(**made)


def make_copies(directory: Path, copies: int, *, group: Group, progress: Bar = None) -> None:
    """Bring each shard of the dataset in the ranks' directories to `copies` nodes (collective)."""
    with _shown(progress, group) as report:
        _core.stage(group.core, None, os.fspath(directory), copies=copies, progress=report)


def prune(directory: Path, *, keep: int | None = None, dry_run: bool = False, group: Group | None = None,
          no_lock: bool = False, storage_options: Mapping[str, Any] | None = None) -> PruneReport:
    """Remove files that no generation of a dataset names (collective: call it on every rank).

    These are unfinished parts and leftovers of killed processes. If it is killed itself, each generation is whole or gone.

    directory: path, or the URL of a home. The dataset's directory.
    keep: int, at least 1. Also remove all but the newest `keep` generations, with the shards that only they have. Default: keep all.
    dry_run: bool. Only name and count. Default: False.
    group: Group. The ranks that prune. Default: `current()`.
    no_lock: bool. As for `build`. Default: False.
    storage_options: dict. As for `open`, if the directory is a URL. Default: what the environment and the machine give.

    Returns a PruneReport.
    Raises StateError if a build runs there or somebody publishes to it, NotFoundError if there is no dataset. By URL: IOFailedError if the
    credential may not list, write and remove files there (then nothing was removed), TimeoutError if the store is away.
    """
    chosen = group if group is not None else current()
    made = _core.prune(chosen.core, os.fspath(directory), keep=keep, dry_run=dry_run, no_lock=no_lock,
                       storage_options=for_store(os.fspath(directory), storage_options))
    return PruneReport(**{**made, "names": tuple(made["names"])})


def prune_local(local: Path, *, dry_run: bool = False, group: Group | None = None,
                storage_options: Mapping[str, Any] | None = None) -> PruneLocalReport:
    """Make room on local disks: remove shards that their home has, too (collective: call it on every rank).

    Asks the home of each dataset in `local` first. Nothing is removed on any rank unless home names each shard, and has it with the same
    digests. Shards of which only a part had come go without that question.

    local: path. What `open` and `stage` got as `local`, or the folder of one dataset in it; may contain "{rank}" and "{node}".
    dry_run: bool. Only look and count. Default: False.
    group: Group. The ranks that prune. Default: `current()`.
    storage_options: dict. As for `open`, of homes that are URLs. Default: what the environment and the machine give.

    Returns a PruneLocalReport.
    Raises StateError if a process has a dataset open from there (it names the one that opened it last), or if home lacks a shard;
    NotFoundError if there is no such directory, or no dataset at home; TimeoutError if home is away.
    """
    chosen = group if group is not None else current()
    return PruneLocalReport(**_core.prune_local(chosen.core, os.fspath(local), dry_run=dry_run,
                                                storage_options=for_store("any://home", storage_options)))


def export(dataset: Dataset | Path, target: Path, *, to: str | None = None, where: str | None = None,
           columns: Sequence[str] | None = None, force: bool = False, group: Group | None = None,
           progress: Bar = None) -> ExportReport:
    """Write samples in id order into files that other tools read (collective: call it on every rank).

    Rank 0 writes; the others send what they serve, a few batches at a time. `target` appears when all of it is written, or not at all.

    dataset: Dataset or path. A path is opened for the call, by `group`.
    target: path. The file or directory to write.
    to: str. "jsonl", "tar" (as for WebDataset), "npz", "dir" or "lmdb". Default: by the ending of `target`.
    where: str. "COLUMN OP VALUE", as for `build`. Default: all samples.
    columns: list of str. Columns to write. Default: all.
    force: bool. Replace an existing target. Default: False, which raises ArgumentError if there is one.
    group: Group. The ranks that open `dataset`. Default: `current()`.
    progress: bool or callable. As for `merge`. Default: None.

    Building from the written jsonl, tar or npz with the dataset's schema and key makes the same dataset again.

    Returns an ExportReport.
    Raises ArgumentError if `target` exists; DataError naming the sample and column that the format cannot hold.
    """
    with _opened("export", dataset, group) as store, _shown(progress, store.group) as report:
        made = _core.export(store.store, os.fspath(target), to=to, where=where, columns=columns, force=force,
                            progress=report)
    return ExportReport(**made)


def diff(a: Dataset | Path, b: Dataset | Path, *, columns: Sequence[str] | None = None, head: int = 10,
         group: Group | None = None, progress: Bar = None) -> DiffReport:
    """Compare two datasets by key and contents (collective: call it on every rank).

    The order of samples, lengths, shards and ranks do not matter. Quarantined samples are not compared.

    a: Dataset or path. A path is opened for the call.
    b: Dataset or path. Of the same group as `a`, if both are open.
    columns: list of str. Compare only these columns. Default: all.
    head: int, at least 0. How many differences of each kind to list. Default: 10.
    group: Group. The ranks that open paths. Default: `current()`.
    progress: bool or callable. As for `merge`. Default: None.

    Returns a DiffReport; its `equal` is True if nothing differs.
    Raises ArgumentError for a column that neither has, CorruptError naming a damaged sample.
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
    if dataset.functions:
        raise ArgumentError(f"{what}: takes what is stored, and ds.map and ds.decode change samples; give the dataset before them")
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
