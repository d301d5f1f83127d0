# SPDX-License-Identifier: Apache-2.0
"""`open`: a dataset on disk as a Dataset."""
from __future__ import annotations

import json
import os

from . import _core, nccl
from .dataset import Dataset
from .group import Group, current
from .loader_workers import Handle
from .memory import of_torch
from .sizes import optional_bytes


def open(directory: str | os.PathLike[str], *, group: Group | None = None, exchange: str | None = None,  # noqa: A001
         no_share: bool = False, check: bool = True, partial: bool = False,
         inflight_bytes: int | str | None = None, quarantine: str | os.PathLike[str] | None = None) -> Dataset:
    """COLLECTIVE. Opens a dataset. Each rank serves the shards that it sees.

    directory: path. "{rank}" and "{node}" in it become numbers. "DIR@2" is generation 2 of DIR, unless a directory has
        that name.
    group: Group. The ranks that open it. Default: `current()`.
    exchange: str. How the index travels: "auto", "local", "nccl", "mpi" or "pull". Default: "auto". nccl takes options,
        "nccl:rails=off,timeout=60" (seconds that one chunk of all ranks may take), and uses the libnccl of this process or
        of NVIDIA's package beside this interpreter.
    no_share: bool. Fetch over TCP what other ranks own, even on the same node. For tests and measurements; slower.
        Default: False.
    check: bool. Compare each sample with its checksum when it is read. Default: True.
    partial: bool. Open although shards are missing; their samples raise NotFoundError or PeerError. Default: False, which
        is NotFoundError for a missing shard.
    inflight_bytes: int or str ("16MiB"), in bytes, from 1. Replies on their way to this rank. Default: 256 MiB.
    quarantine: path. A list of bad samples, as `rankstore verify --quarantine FILE` writes it; may hold "{rank}" and
        "{node}". Default: none. These samples keep their ids, are never planned, have the length 4294967295, and raise
        NotFoundError if you ask for them, so `for sample in ds` ends at the first one.
        `ds.select(ds.lengths != 0xFFFFFFFF)` is the dataset without them; `stats()["quarantined"]` counts them.

    Returns the Dataset. Raises NotFoundError, CorruptError, UnsupportedError, ArgumentError; the same on all ranks.
    """
    inflight = optional_bytes("inflight_bytes", inflight_bytes)
    chosen = group if group is not None else current()
    nccl.prepare(chosen, exchange)
    before = of_torch()
    store = _core.Store(chosen.core, os.fspath(directory), exchange=exchange, no_share=no_share, no_check=not check,
                        partial=partial, inflight_bytes=inflight,
                        quarantine=None if quarantine is None else os.fspath(quarantine))
    after = of_torch()
    own = os.fspath(directory).replace("{rank}", str(chosen.rank)).replace("{node}", str(chosen.node))
    places = [os.path.abspath(own)]
    if chosen.world > 1:
        mine = json.dumps([chosen.node, places[0]]).encode()
        others = [json.loads(one) for one in chosen.allgather("open: directories", mine)]
        places += [place for node, place in others if node == chosen.node]
    handle = Handle(store, tuple(dict.fromkeys(places)), chosen.rank, chosen.world, not check)
    opened = Dataset(handle, os.fspath(directory), chosen)
    opened.torch_memory = None if before is None or after is None else {"before": before, "after": after}
    return opened
