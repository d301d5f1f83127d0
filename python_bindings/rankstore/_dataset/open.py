# SPDX-License-Identifier: Apache-2.0
"""Open datasets: `open` opens those on disk, `concat` joins open ones."""
from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from .. import _core
from .._distributed import nccl
from .._distributed.group import Group, current
from .._distributed.memory import of_torch
from .._provenance.dataset_json import expand
from .._schema.sizes import optional_bytes
from .._stores.address import is_url
from ..errors import ArgumentError, StateError
from .dataset import Dataset
from .indexing import ABSENT
from .refresh import look_around
from .stores import for_store
from .worker_store import Handle


def check_copies(copies: Any) -> None:
    """Raise ArgumentError unless it is a number of nodes."""
    if isinstance(copies, bool) or not isinstance(copies, int) or not 1 <= copies < 1 << 32:
        raise ArgumentError(f"copies: {copies!r} is not a number of nodes; give an int of at least 1")


def open(directory: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], *, group: Group | None = None,  # noqa: A001
         exchange: str | None = None, no_share: bool = False, check: bool = True, missing: str | None = None,
         inflight_bytes: int | str | None = None, quarantine: str | os.PathLike[str] | None = None,
         names: Sequence[str] | None = None, columns: Sequence[str] | None = None, metrics: int | None = None,
         index_dir: str | os.PathLike[str] | None = None, shards: Sequence[str | os.PathLike[str]] | None = None,
         local: str | os.PathLike[str] | None = None, copies: int = 1, local_room: int | str | None = None,
         room: str = "error", partial: None = None, storage_options: Mapping[str, Any] | None = None) -> Dataset:
    """Open a dataset, or several as one (collective: call it on every rank).

    Each rank serves the shards that it can read to the other ranks.

    directory: path, or a list of paths. "{rank}" and "{node}" in it become numbers. "DIR@2" is generation 2 of DIR, unless a directory has
        that name. A path with a "*", such as "/nvme*/rks", is one dataset whose shards lie in all the folders that it fits; StateError if
        two of them have different datasets. A URL (s3://, gs://, az://, https://) is a home in an object store, and needs
        `local`. A list opens one dataset over all of them without copying: the first one's samples come first. Samples have the columns of
        all sources; a column that a source lacks is None in its samples.
    group: Group. The ranks that open it. Default: `current()`.
    exchange: str. How the index travels: "auto", "local", "nccl", "mpi" or "pull". nccl takes options, such as "nccl:rails=off,timeout=60"
        (seconds for one chunk of all ranks), and uses the libnccl of this process or of NVIDIA's package beside this interpreter. Default:
        "auto".
    no_share: bool. Fetch other ranks' samples over TCP even on the same node. Slower; for tests and measurements. Default: False.
    check: bool. Compare each sample with its checksum when it is read. Default: True.
    missing: str. What to do if shards are on no rank's disk. "error" raises NotFoundError, which says which hosts built them. "partial"
        opens the rest and prints how much is left out; ids do not change, samples that are missing have the length 4294967295, are in no
        batch, and raise NotFoundError when read; plans and states stay those of the whole dataset. `stats()` counts missing_shards and
        missing_samples. Default: "error"; with `local`, or if `directory` is the folder that it made, "fetch": shards that no rank has are
        read from home.
    inflight_bytes: int or str ("16MiB"), in bytes, at least 1. Limit for replies on their way to this rank. Default: 256 MiB.
    quarantine: path. A list of bad samples, as `rankstore verify --quarantine FILE` writes it; may contain "{rank}" and "{node}". These
        samples keep their ids, are in no batch, have the length 4294967295, and raise NotFoundError when read, so `for sample in ds` ends
        at the first one. `ds.select(ds.lengths != 0xFFFFFFFF)` is the dataset without them; `stats()["quarantined"]` counts them. With
        several datasets, the list may be of any one. Default: none.
    names: list of str, one a directory. Names of the sources. Default: the last parts of the directories, which must then differ
        (ArgumentError).
    columns: list of str. The columns that samples have; sources may differ in others. Default: all; ArgumentError if two sources have one
        with different types.
    metrics: int, 1 to 65535. Port on which Prometheus reads this rank's figures, at http://127.0.0.1:PORT/metrics, until the dataset is
        closed. The node's next rank uses PORT + 1, and so on. Any user of the machine can read them. `rankstore top` needs no port.
        Default: the port in the variable RKS_METRICS, else none.
    index_dir: path. Directory for an unnamed file that holds the node's index, and the sorted order of plans, if they exceed 1 GiB or
        half of the available memory (also of the control group's); may contain "{rank}" and "{node}". Default: memory, also above 1 GiB if
        that takes less than a quarter of what is available, else the first of TMPDIR, /tmp and /var/tmp that is on a disk of
        the node; IOFailedError if there is none.
    shards: list of paths. Folders that may hold more of the dataset's shards, such as ["/nvme*/rks"]: a rank opens every shard file there
        that the dataset names, whatever the folder is called, and leaves other datasets' files alone. "*" stands for any text in one part
        of a path; "{rank}" and "{node}" become numbers. A folder that a rank lacks is skipped. Of several files of a shard the first
        counts: that in the directory, then in these folders, then in those of the variable RKS_PATH, patterns with ":" between them.
        Default: none.
    local: path. Open a dataset that is kept at a home, which is `directory`, from local directories: this is one on a disk of the rank's
        node, such as "/nvme/rks"; may contain "{rank}" and "{node}". The shards are spread over the ranks' local directories; those that
        none has are read from home. What has come stays there, in LOCAL/DATASET-ID, and later jobs find it, on whatever ranks.
        Shards of the same dataset in another folder of it, such as /nvme/rks/speech, where this node built them, are linked there (hard
        links) instead. ArgumentError if it is on a network file system. If home is away, and all shards are local, the generation that was
        opened last opens. `stats()["home_bytes"]` counts what this rank has read from home. Default: `directory` itself is read.
    copies: int, at least 1. With `local`: on how many nodes each shard will be; more than there are nodes are as many as there are. With
        2, a job goes on without home after a node is lost. A further copy comes from a rank that has the shard, and from home only if
        that fails. Default: 1.
    local_room: int or str ("200GiB"), in bytes. With `local`: what the dataset may add to this rank's disk. IOFailedError, with the
        numbers, if the parts do not fit, unless `room` says otherwise. Default: three quarters of what is free.
    room: str. With `local`: what to do with shards for which the local disks have no room. "error" raises IOFailedError with the numbers.
        "through" reads them through: the nodes map them at home, which must be a directory (ArgumentError for a URL), and keep nothing of
        them. They are chosen anew at each opening; what is local already stays. `stats()["home_bytes"]` does not count what is read
        through. Default: "error".
    partial: the earlier name of missing="partial"; ArgumentError. Default: None.
    storage_options: dict. For a URL: what its store needs, as in obstore, such as {"region": ..., "endpoint": ..., "access_key_id": ...,
        "secret_access_key": ...}. No message and no file shows its secrets. Default: what the environment and the machine give.

    Returns the Dataset.
    Raises NotFoundError, CorruptError, UnsupportedError or ArgumentError, the same on all ranks.
    """
    given = [os.fspath(directory)] if isinstance(directory, (str, os.PathLike)) else [os.fspath(one) for one in directory]
    several = not isinstance(directory, (str, os.PathLike)) or names is not None
    inflight = optional_bytes("inflight_bytes", inflight_bytes)
    if metrics is not None and (isinstance(metrics, bool) or not isinstance(metrics, int) or not 1 <= metrics <= 65535):
        raise ArgumentError(f"metrics: {metrics!r} is not a port; give an int, 1 to 65535, or leave it out")
    if partial is not None:
        raise ArgumentError('partial: this option is now missing="partial"')
    in_store = any(is_url(one) for one in given)
    if room not in ("error", "through"):
        raise ArgumentError(f'room: {room!r} is not known; give "error" or "through"')
    needs_local = {"copies": copies != 1, "local_room": local_room is not None, "room": room != "error"}
    if local is None and not in_store and any(needs_local.values()):
        first = next(name for name, is_given in needs_local.items() if is_given)
        raise ArgumentError(f"{first}: needs local=, a directory on a disk of this node")
    check_copies(copies)
    room_bytes = optional_bytes("local_room", local_room)
    folders = folders_of(shards)
    chosen = group if group is not None else current()
    nccl.prepare(chosen, exchange)
    before = of_torch()
    wanted: str | list[str] = given if several else given[0]
    options: dict[str, Any] = {
        "exchange": exchange, "no_share": no_share, "no_check": not check, "missing": missing, "inflight_bytes": inflight, "names": names,
        "columns": columns, "metrics": metrics or 0, "index_dir": None if index_dir is None else os.fspath(index_dir), "shards": folders,
        "local": None if local is None else os.fspath(local), "copies": copies, "local_room": room_bytes or 0,
        "room": None if room == "error" else room,
        "storage_options": for_store(next((one for one in given if is_url(one)), given[0] if given else ""), storage_options),
        "quarantine": None if quarantine is None else os.fspath(quarantine)}
    store = _core.Store(chosen.core, wanted, **options)
    after = of_torch()
    called = tuple(source[0] for source in store.sources()) if several else None
    places, known, searched = look_around(chosen, store, given, folders, several)
    handle = Handle(store, places, chosen.rank, chosen.world, not check, called, None if columns is None else tuple(columns), known,
                    None if index_dir is None else os.path.abspath(expand(os.fspath(index_dir), chosen.rank, chosen.node)), searched)
    handle.asked = wanted, options
    opened = Dataset(handle, ", ".join(given), chosen)
    opened.given, opened.shards_given = tuple(given), folders
    opened.torch_memory = None if before is None or after is None else {"before": before, "after": after}
    return opened


def folders_of(shards: Sequence[str | os.PathLike[str]] | None) -> tuple[str, ...]:
    """Return the folders that the option `shards` names. ArgumentError for one path."""
    if isinstance(shards, (str, bytes, os.PathLike)):
        raise ArgumentError(f'shards: a list of folders, such as ["{os.fsdecode(shards)}"], not one path')
    return tuple(os.fspath(one) for one in shards or ())


def concat(datasets: Sequence[Dataset], *, names: Sequence[str] | None = None,
           columns: Sequence[str] | None = None, index_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Join several open datasets into one without copying (collective: call it on every rank).

    The first dataset's samples come first. `concat` opens the directories again, so close the result too. It checks checksums if one of the
    datasets does (`open(check=True)`).

    datasets: list of Dataset, all of one group. Selections stay selections, with their order and repeats. Quarantined samples stay out.
    names: list of str, one a dataset. The sources of a dataset that has several are called "NAME/SOURCE". Default: the names of the
        sources, which must then differ (ArgumentError).
    columns: list of str. The columns that samples have. Default: the columns of all datasets, as they were opened; ArgumentError if two
        datasets have one with different types.
    index_dir: path. As in `open`. Default: that of the first dataset that was opened with one.

    Returns the Dataset.
    Raises TypeError for an item that is not a Dataset, StateError if a directory now holds another dataset or generation, and what `open`
    raises.
    """
    given: list[str] = []
    called: list[str] = []
    wholes = list(datasets)
    for number, one in enumerate(wholes):
        if not isinstance(one, Dataset):
            hint = "; use rankstore.from_torch(...)" if type(one).__name__ in ("Subset", "ConcatDataset") else ""
            raise TypeError(f"concat: dataset {number} is a {type(one).__name__}, not a rankstore.Dataset{hint}")
        if not isinstance(one.group, Group) or one.group is not wholes[0].group:
            raise ArgumentError(f"concat: dataset {number} ({one.directory}) is open on another group than dataset 0")
        if one.functions:
            raise ArgumentError(f"concat: dataset {number} has functions of ds.map or ds.decode; join the datasets before, "
                                "and map the whole")
        given += one.given
        own = [source.name for source in one.sources]
        called += own if names is None or number >= len(names) else (
            [names[number]] if len(own) == 1 else [f"{names[number]}/{source}" for source in own])
    if not wholes:
        raise ArgumentError("concat: no dataset was given")
    if names is not None and len(names) != len(wholes):
        raise ArgumentError(f"concat: {len(names)} names for {len(wholes)} datasets; give one name per dataset")
    if columns is None and any(one.columns is not None for one in wholes):
        columns = list(dict.fromkeys(name for one in wholes for name in one.schema))
    if index_dir is None:
        index_dir = next((one._handle.index_dir for one in wholes if one._handle.index_dir is not None), None)
    whole = open(given, group=wholes[0].group, names=called, columns=columns, index_dir=index_dir,  # type: ignore[arg-type]
                 shards=tuple(dict.fromkeys(pattern for one in wholes for pattern in one.shards_given)),
                 check=any(one.is_checked for one in wholes), missing="partial" if any(one.lacks_samples for one in wholes) else None,
                 **_at_stores(wholes))
    there = [source for one in wholes for source in one.sources]
    for now, source in zip(whole.sources, there, strict=True):
        if (now.id, now.samples) != (source.id, source.samples):
            whole.close()
            raise StateError(f"concat: {source.directory or source.name} holds another generation now than the dataset that is "
                             "open; open it anew, or as DIR@N")
    return _chosen(wholes, whole)


def _at_stores(wholes: Sequence[Dataset]) -> dict[str, Any]:
    """Return the options of the first dataset that lies in an object store, if one does."""
    for one in wholes:
        if any(is_url(name) for name in one.given):
            asked = one._handle.asked[1]
            options = asked["storage_options"]
            return {"local": asked["local"], "copies": asked["copies"], "storage_options": None if options is None else json.loads(options)}
    return {}


def _chosen(parts: Sequence[Dataset], whole: Dataset) -> Dataset:
    """Return the whole dataset, or the selection of it that the parts had chosen."""
    if not any(one.is_selection or one.lacks_samples for one in parts):
        return whole
    import numpy
    first, kept = 0, []
    for one in parts:
        ids = numpy.arange(len(one.all_lengths)) if not one.is_selection else one.ids
        kept.append(first + ids[one.lengths != ABSENT])
        first += len(one.all_lengths)
    return whole.select(numpy.concatenate(kept))
