# SPDX-License-Identifier: Apache-2.0
"""The C extension: one thin call for each of librankstore's, with Python's ownership and errors. Private: use
`rankstore`.

Every call that waits or copies releases the GIL, and looks for signals at least each 100 ms. A failure raises what
`rankstore.errors.make` makes of it. Objects keep what they need alive: a batch its store, a store its group. Times are
milliseconds, sizes bytes. Options that are None have the defaults of include/rankstore.h.
"""
from collections.abc import Callable, Sequence
from typing import Any, Protocol

version: str

class Readable(Protocol):
    """Anything with the buffer protocol."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

class Buffer:
    """Bytes of a C object, by the buffer protocol (format "B", one dimension); keeps the object alive while a view is
    held."""

    writable: bool
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

# ---- module.c ----
def pid() -> int:
    """os.getpid() without a system call."""
def status_name(status: int) -> str: ...
def parse_schema(text: str) -> tuple[str, list[tuple[str, str]]]:
    """The canonical JSON text, and (name, type) of each column."""

def nccl_library(path: str | None) -> None:
    """The libnccl.so.2 that exchange "nccl" loads where none is loaded yet; None: the system's."""

def verify(path: str, level: int) -> tuple[int, list[dict[str, Any]]]:
    """(samples, findings); a finding is {file, offset, key: bytes, what}. Level 0 fast, 1 full, 2 deep."""

def write_quarantine(path: str, directory: str, samples: list[int]) -> None: ...


def doctor(group: Group | None, directory: str | None) -> str:
    """JSON text."""

# ---- memory.c ----
def memory_use() -> dict[str, tuple[int, int]]:
    """(current, peak) by kind, of this process."""

def memory_use_all(group: Group) -> tuple[list[dict[str, tuple[int, int]]], dict[str, tuple[int, int, int, int, int]]]:
    """COLLECTIVE. That of each rank; (current, current_rank, peak, peak_rank, least_peak) by kind, of all."""

# ---- group.c, launch.c ----
class Group:
    """COLLECTIVE. `allgather(record: bytes, timeout_ms: int) -> list[bytes]` (in rank order, all of the record's size)
    makes a launcher of one's own with `rank` and `size`; without it Open MPI's where mpirun set its variables, or one
    rank. `check() -> str | None` is asked while waiting: the text of a rank's end that the launcher has seen."""

    rank: int
    size: int
    node: int
    nodes: int
    silence_ms: int
    closed: bool
    def __init__(self, *, name: str | None = None, rank: int = 0, size: int = 1,
                 allgather: Callable[[bytes, int], Sequence[bytes]] | None = None,
                 check: Callable[[], str | None] | None = None,
                 silence_ms: int | None = None, patience_ms: int | None = None, listen: str | None = None,
                 secret_file: str | None = None, node: str | None = None, solo: bool = False) -> None: ...
    def agree(self, phase: str, status: int = 0, text: str = "") -> None:
        """COLLECTIVE. A status other than 0 is this rank's failure, and raises on all."""

    def allgather(self, phase: str, data: Readable, status: int = 0, text: str = "") -> list[bytes]:
        """COLLECTIVE. At most 1 GiB of all ranks together."""

    def stop(self) -> None:
        """Tells the others at once that this rank brings an error to the next collective call. Not collective."""

    def must_stop(self) -> bool:
        """Another rank has said so, or was lost: long work of this rank's own ends, and makes that call early. Never
        waits; tens of nanoseconds."""

    def leave(self, status: int = 0, text: str = "", rank: int = -1, host: str = "") -> None:
        """This rank makes no further collective call: those of the others fail, with this error if `status` is not 0.
        Never waits."""

    def close(self, briefly: bool = False) -> None:
        """Stores of the group have been closed before (RuntimeError otherwise). Serves stores that other ranks have not
        closed yet until they have, `briefly`: at most for the silence limit. Twice is fine."""

    def close_at_exit(self) -> None:
        """In an atexit function, where the exit code is not known yet: as close(), behind the interpreter's end. The other
        ranks hear of a code other than 0."""

def launch(ranks: int, main: Callable[[Group], int], *, silence_ms: int | None = None) -> int:
    """rks_launch: `main(group)` in `ranks` forked processes; returns the exit code of the first that failed, else 0. An
    exception of main is printed by its process, which ends with 1. Where threads of this process run, fork is their
    risk."""

# ---- reader.c ----
def unit_size_kept(directory: str) -> int:
    """rks_unit_size_kept."""


def source_format(sources: Sequence[str], format: str | None) -> str:
    """rks_source_format."""

class Reader:
    """COLLECTIVE. rks_reader_open."""

    def __init__(self, group: Group, sources: Sequence[str], *, schema: str | None = None, format: str | None = None,
                 max_sample: int | None = None, skip_bad: bool = False, max_total: int | None = None,
                 unit_size: int | None = None, columns: str | None = None, json_path: str | None = None,
                 extra: str | None = None, dtype: str | None = None, key: str | None = None) -> None: ...
    def units(self) -> list[tuple[str, int]]:
        """(name of the file, bytes) of each."""
    def unit_size(self) -> int: ...
    def schema(self) -> str: ...
    def read(self, unit: int, take: Callable[[dict[str, Any], bytes, int], Any]) -> dict[str, Any]:
        """rks_reader_read: take(values, key, row) for each sample; {filtered, bad, bad_first}. What `take` raises is
        raised."""


# ---- build.c ----
def build(group: Group, sources: Sequence[str], directory: str, *, schema: str | None = None, format: str | None = None,
          key: str | None = None, length: str | None = None, length_unit: int = 1, where: str | None = None,
          index: Sequence[str] = (), filter: Callable[[dict[str, Any]], Any] | None = None,
          max_sample: int | None = None, skip_bad: bool = False, replace: bool = False, unit_size: int | None = None,
          block_size: int | None = None,
          progress: Callable[[str, int, int, int], None] | None = None, min_length: int | None = None,
          max_length: int | None = None, sample: int | None = None, sample_rate: float = 0, seed: int = 0,
          dedup: bool = False, max_total: int | None = None, append: bool = False,
          length_fn: Callable[[dict[str, Any]], int] | None = None, columns: str | None = None,
          no_lock: bool = False, json_path: str | None = None, flatten: bool = False,
          extra: str | None = None, made_from: str | None = None, dtype: str | None = None,
          wait: bool = False, threads: int | None = None) -> dict[str, Any]:
    """COLLECTIVE. rks_build: the report as a dict {samples, duplicates, sampled_out, filtered, bad, bytes, input_bytes, not_read,
    units, units_resumed, unit_size, collectives, seconds, dataset, bad_first, json_columns, object_columns, length}. `filter` sees a dict of the sample's columns, (bytes, dims, type)
    or None each, copies; truth keeps the sample. What it raises is raised on all ranks, as DataError, and is the cause of this
    rank's; what `progress` raises ends the build here."""

class Builder:
    """COLLECTIVE. Building from memory."""

    def __init__(self, group: Group, directory: str, schema: str, *, key: str | None = None, length: str | None = None,
                 length_unit: int = 1, where: str | None = None, index: Sequence[str] = (),
                 max_sample: int | None = None,
                 own_keys: bool = False, replace: bool = False, block_size: int | None = None,
                 progress: Callable[[str, int, int, int], None] | None = None, own_lengths: bool = False,
                 source: str | None = None, min_length: int | None = None, max_length: int | None = None,
                 sample: int | None = None, sample_rate: float = 0, seed: int = 0, dedup: bool = False,
                 append: bool = False, no_lock: bool = False, unit_size: int | None = None,
                 made_from: str | None = None, wait: bool = False) -> None:
        """`own_lengths`: each sample brings its length. `source`: rks_build_options.source."""

    def unit(self, number: int, name: str) -> bool:
        """True where an interrupted build has finished it: add nothing."""

    def left_out(self, filtered: int, bad: int) -> None:
        """rks_builder_left_out: samples of the current unit that were not added, for the report."""

    def add(self, values: Sequence[Any], key: bytes | str | None = None, length: int | None = None) -> None:
        """One value a column, in the schema's order: None (missing); an object with the buffer protocol, C-contiguous,
        whose item type is the column's (bfloat16 and float8 as their unsigned integers); str for str and json columns;
        bytes; bool, int or float for scalars. Anything else goes through `rankstore.values.convert(name, type, value)`
        first, which gives one of these or raises TypeError. A wrong type, shape or range raises TypeError or ValueError
        naming the column; the builder stays usable."""

    def add_arrays(self, columns: Sequence[tuple[Readable, Readable | None]], count: int,
                   keys: Sequence[bytes | str] | None = None, lengths: Readable | None = None) -> None:
        """Many samples in one call, without the GIL. For each column (values, offsets): `offsets` int64[count + 1],
        items along the first dimension of sample i being offsets[i]..offsets[i+1] (for str, bytes, json: bytes); None
        for a column of fixed shape, whose values lie one behind the other. Only the first dimension may vary. Offsets
        are checked. An error names the sample; those before it are added. `lengths`: uint64[count], with
        own_lengths."""

    def commit(self, status: int = 0, text: str = "") -> dict[str, Any]:
        """COLLECTIVE. As build's report."""

    def close(self) -> None: ...

class Gather:
    """COLLECTIVE. rks_gather: `schema` describes one result."""

    def __init__(self, group: Group, schema: str, directory: str | None = None) -> None: ...
    def add(self, name: str | bytes, index: int, values: Sequence[Any]) -> None: ...
    def run(self, dst: int, receive: Callable[[bytes, int, int, list[Any]], None] | None,
            status: int = 0, text: str = "") -> dict[str, Any]:
        """COLLECTIVE. On `dst` calls receive(name, index, rank, values); values are (bytes, dims) or None, copies; dims
        are () for scalars, str, bytes and json. The report:
        {items, names, gaps, gap_first}."""

    def close(self) -> None: ...

# ---- store.c ----
class Store:
    """COLLECTIVE."""

    group: Group
    count: int
    dataset: str
    schema: str
    closed: bool
    def __init__(self, group: Group, directory: str | Sequence[str], *, exchange: str | None = None, no_share: bool = False,
                 no_check: bool = False, partial: bool = False, inflight_bytes: int | None = None,
                 quarantine: str | None = None, names: Sequence[str] | None = None,
                 columns: Sequence[str] | None = None, metrics: int = 0, index_dir: str | None = None) -> None: ...
    def lengths(self) -> Buffer:
        """uint32[count], read-only, shared by the node; the store is not freed while a view is held."""

    def column(self, name: str) -> tuple[Buffer, str] | None:
        """An index column and its type."""

    def owner(self, sample: int) -> int: ...
    def key(self, sample: int) -> bytes: ...
    def find(self, key: bytes | str, source: int | None = None) -> int:
        """KeyError where there is none; ArgumentError where several sources have it and none is named."""

    def sources(self) -> list[tuple[str, str, str, int, int, int]]:
        """(name, directory, dataset's id, first sample, samples, bytes) of each dataset that was opened."""

    def split(self, parts: tuple[tuple[str, float], ...], seed: int, by: str | None) -> bytes:
        """uint16 of each sample: the number of its part."""

    def info(self) -> str:
        """JSON text."""

    def stats(self) -> dict[str, Any]: ...
    def fetch(self, samples: Readable | Sequence[int]) -> Samples:
        """`samples`: ints, or an int64/uint64/uint32 array. IndexError for one out of range."""

    def view(self, sample: int) -> list[tuple[Buffer, tuple[int, ...]] | None]:
        """One entry a column: read-only bytes in the map (or as fetched) and dims; None: missing."""

    def collate(self, samples: Readable | Sequence[int], collate: Collate, pieces: Readable | None = None,
                bins: Readable | None = None) -> Arrays: ...
    def close(self, timeout_ms: int = 0) -> None:
        """COLLECTIVE. Epochs of the store are closed by it. Waits until all ranks have closed, at most `timeout_ms` (0:
        the silence limit); after that the group serves the others. Twice is fine. Buffers of lengths and columns keep
        the index alive: what they show stays valid."""

# ---- samples.c ----
class Samples:
    """rks_batch: len(), and what each sample has."""

    nbytes: int
    def __len__(self) -> int: ...
    def id(self, i: int) -> int: ...
    def length(self, i: int) -> int: ...
    def key(self, i: int) -> bytes: ...
    def value(self, i: int, column: int) -> tuple[Buffer, tuple[int, ...]] | None:
        """Writable bytes in the batch, and dims."""

    def values(self, i: int) -> list[tuple[Buffer, tuple[int, ...]] | None]: ...
    def digest(self) -> int: ...
    def collate(self, collate: Collate) -> Arrays: ...

class Rows:
    """Samples of a store as dicts. `columns`, one a column of the schema: (name, kind, function, dtype, dimensions). kind "y"
    bytes, "s" str, "j" function(str), a code of struct's for one number ("?bBhHiIqQfd"), "V" function(bytes, dtype), "A"
    function(dims, dtype, bytes), "O" function(bytes, dims); bytes are a Buffer over a copy."""

    def __init__(self, store: Store, columns: tuple[tuple[str, str, Callable[..., Any] | None, Any, int], ...],
                 ids: Readable | None = None, /) -> None:
        """`ids`: int64, the sample of each place."""

    def one(self, sample: int, /) -> dict[str, Any] | None:
        """None for what is no int below `count`, and in a fork. Negative ones count from the end."""

    def many(self, samples: Readable | Sequence[int], /) -> list[dict[str, Any]]:
        """By id."""

class Indexed:
    """Its items are those of `_rows`; where that is None, or gives None, what `self._item(place)` returns."""

    _rows: Rows | None
    def __getitem__(self, place: Any, /) -> Any: ...

class Collate:
    """rks_collate_options, copied. `columns`: (column, name, type, pad, first, missing, packed, items) with None for defaults;
    the last three, bools, may be left out."""

    def __init__(self, *, layout: str = "pad",
                 columns: Sequence[tuple[Any, ...]] | None = None,
                 to_multiple: int = 1, max_length: int = 0, left: bool = False, mask: str | None = None,
                 positions: str | None = None, follows: str | None = None, cut_by_length: bool = False,
                 row_items: int = 0, each_multiple: int = 1, documents: str | None = None) -> None: ...

class Arrays:
    """rks_arrays."""

    samples: int
    def ids(self) -> Buffer:
        """uint64[samples]"""

    def lengths(self) -> Buffer:
        """uint32[samples]"""

    def pieces(self) -> Buffer:
        """uint32[pieces, 3]: place, start, count"""

    def arrays(self) -> list[tuple[str, str, tuple[int, ...], Buffer, Buffer | None]]:
        """(name, type, dims, data, offsets: int64[samples + 1])"""

# ---- plan.c ----
class Plan:
    """COLLECTIVE where `source` is a Store; over lengths (uint32 buffer) it is not."""

    world: int
    mix: tuple[Any, ...] | None
    balance: bytes | None
    def __init__(self, source: Store | Readable, *, dataset: str | None = None, strategy: str | None = None,
                 batch_size: int = 0, max_tokens: int = 0, cost: str | None = None, max_length: int = 0,
                 too_long: str | None = None, tail: str | None = None, steps: str | None = None,
                 batch_multiple: int = 1,
                 no_shuffle: bool = False, world: int = 0, seed: int = 0, capacity: int = 0, length_multiple: int = 1,
                 micro_batches: int = 1, mixed: bool = False, cost_linear: float = 0,
                 cost_quadratic: float = 0, pack_window: int = 0, order: str | None = None,
                 mix: tuple[Any, ...] | None = None,
                 balance: Any = None, skip: list[tuple[int, int, int]] | None = None) -> None: ...
    def steps(self, epoch: int = 0) -> int: ...
    def batch(self, epoch: int, step: int, rank: int) -> list[int]: ...
    def bins(self, epoch: int, step: int, rank: int) -> bytes:
        """Strategy pack: where the bins of batch() begin in it, and its end; int64."""

    def pieces(self, epoch: int, rank: int, first: int = 0, last: int | None = None) -> bytes:
        """Which of the samples of batches() are pieces: uint32[n, 3], place among their ids, start, count."""

    def batches(self, epoch: int, rank: int, first: int = 0, last: int | None = None) -> tuple[bytes, bytes]:
        """Steps first..last of a rank (-1: all ranks, step-major): (indptr int64[n + 1], ids uint32) as bytes."""

    def report(self, epoch: int = 0) -> dict[str, Any]: ...
    def change(self, epoch: int | None, step: int, weights: list[float] | None, longest: int, /) -> tuple[int, int]:
        """epoch None: the step is counted from the first one of epoch 0. Returns the place of the change as states have it:
        the epoch, and the step counted over all ranks that were in it."""

    def skip(self, epoch: int, first: int, last: int, /) -> None: ...
    def next_step(self, epoch: int, step: int, /) -> int:
        """The first from `step` on that is not skipped, or steps(epoch)."""

    def skipped(self, epoch: int, step: int, /) -> int:
        """How many steps before `step` are skipped."""

    def sources(self, epoch: int) -> dict[str, dict[str, Any]]: ...
    def state(self, epoch: int, step: int) -> str: ...
    def resume(self, state: str) -> tuple[int, int]: ...
    def close(self) -> None: ...

# ---- epoch.c ----
class Arenas:
    """Memory in which the arrays of one epoch lie, one batch's behind another's: buffers that Python makes. Batches lie elsewhere
    while no arena is free. The memory of arrays that are gone holds the next ones: nothing may still read it."""

    def wanted(self) -> int:
        """The bytes of an arena that a batch lacked, reported once; 0: none did, or more would be more than batches needed at once."""

    def add(self, buffer: Any) -> None:
        """A writable buffer of so many bytes. It is held as long as arrays may lie in it."""


class Epoch:
    """This rank's batches of an epoch in step order, fetched ahead; an iterator of (step, Samples), or (step, Arrays)
    with `collate`."""

    def __init__(self, store: Store, plan: Plan, *, epoch: int = 0, first_step: int = 0,
                 prefetch_batches: int | None = None,
                 prefetch_bytes: int | None = None, collate: Collate | None = None,
                 arenas: Arenas | None = None) -> None: ...
    def __iter__(self) -> Epoch: ...
    def __next__(self) -> tuple[int, Samples | Arrays]: ...
    def close(self) -> None:
        """Cancels what is in flight; twice is fine."""

# ---- upkeep.c ----
def merge(group: Group, sources: Sequence[str], directory: str, *, copy: bool = False,
          progress: Callable[[str, int, int, int], None] | None = None, no_lock: bool = False) -> dict[str, Any]:
    """COLLECTIVE. rks_merge: {samples, shards, linked_bytes, copied_bytes, dataset}."""

def prune(group: Group, directory: str, *, keep: int | None = None, dry_run: bool = False,
          no_lock: bool = False) -> dict[str, Any]:
    """COLLECTIVE. rks_prune: {generations, files, bytes}."""

def export(store: Store, target: str, *, to: str | None = None, where: str | None = None,
           columns: Sequence[str] | None = None, force: bool = False,
           progress: Callable[[str, int, int, int], None] | None = None) -> dict[str, Any]:
    """COLLECTIVE. rks_store_export: {samples, filtered, bytes, seconds, to, respelled, keys_left, left_out}."""

def diff(a: Store, b: Store, *, columns: Sequence[str] | None = None, head: int | None = None,
         progress: Callable[[str, int, int, int], None] | None = None,
         ) -> tuple[dict[str, Any], list[tuple[int, bytes, int | None, int | None]]]:
    """COLLECTIVE. rks_diff: {same, only_a, only_b, changed, columns}, and on rank 0 the differences: (rks_difference,
    key, id in a, id in b)."""
