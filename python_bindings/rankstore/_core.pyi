# SPDX-License-Identifier: Apache-2.0
"""The C extension: a thin call for each of librankstore's, with Python's ownership and errors. Private: use `rankstore`.

Every call that waits or copies releases the GIL, and checks for signals at least every 100 ms. A failure raises the error that
`rankstore.errors.make` returns. Objects hold what they need: a batch its store, a store its group. Times are in milliseconds, sizes in
bytes. Options that are None have the defaults of include/rankstore.h.
"""
from collections.abc import Callable, Sequence
from typing import Any, Protocol

version: str

class Readable(Protocol):
    """Anything with the buffer protocol."""

    def __buffer__(self, flags: int, /) -> memoryview: ...

class Buffer:
    """Bytes of a C object, by the buffer protocol (format "B", one dimension). The object lives as long as a view of them."""

    writable: bool
    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

# ---- module.c ----
def check_interpreter() -> None:
    """Raise ImportError in a subinterpreter."""


def pid() -> int:
    """Return os.getpid(), without a system call."""
def status_name(status: int) -> str: ...
def row_schema(schema: str, counts: Sequence[str], inferred: bool) -> str:
    """rks_build_row_schema."""
def parse_schema(text: str) -> tuple[str, list[tuple[str, str]]]:
    """Return the canonical JSON text, and (name, type) of each column."""
def describe_type(type: str) -> tuple[str, str, int, tuple[int | None, ...], bool, str, str | None]:
    """Return (item, class, item size, dimensions, nullable, the items for numpy, meaning) of a type: ("float16", "float", 2, (80, None),
    True, "<f2", None) of "float16[80,*]?". The meaning of "int64(timestamp_us)" is "timestamp_us". A class is "bool", "int", "uint",
    "float", "complex", "str", "bytes" or "json"."""
def item_types() -> list[str]:
    """Return the names of all item types."""
def converts(stored: str, item: str) -> bool:
    """Return True if a collate may convert a column's items to `item`, which then holds every value of `stored`."""

def dataset_info(directory: str) -> str:
    """Return what dataset.json says, as JSON (rks_dataset_info_json)."""
def plan_limits(source: None, /, **options: Any) -> dict[str, Any]:
    """Return what bounds the batches of a plan with these options of Plan (rks_plan_limits): {"multiple", "budget", "sums", "cut",
    "longest", "split", "row"}. Without length_multiple, "multiple" is the default of padded batches."""
def nccl_library(path: str | None) -> None:
    """Set the libnccl.so.2 that exchange "nccl" loads if none is loaded yet; None: the system's."""

def verify(path: str, level: int) -> tuple[int, list[dict[str, Any]]]:
    """Return (samples, findings). A finding is {file, offset, key: bytes, what}. Level 0 is fast, 1 full, 2 deep."""

def write_quarantine(path: str, directory: str, samples: list[int]) -> None: ...

def doctor(group: Group | None, directory: str | None) -> str:
    """Return the findings as JSON."""

# ---- memory.c ----
def memory_use() -> dict[str, tuple[int, int]]:
    """Return (current, peak) of each kind, for this process."""

def memory_use_all(group: Group) -> tuple[list[dict[str, tuple[int, int]]], dict[str, tuple[int, int, int, int, int]]]:
    """COLLECTIVE. Return each rank's memory_use(), and (current, current_rank, peak, peak_rank, least_peak) of each kind over all ranks."""

# ---- group.c, launch.c ----
class Group:
    """COLLECTIVE. `allgather(record: bytes, timeout_ms: int) -> list[bytes]` is a launcher of one's own, for `rank` and `size`. It returns
    the records of all ranks in rank order, all of the same size. Without it: Open MPI's if mpirun set its variables, else one rank.
    `check() -> str | None` is called while waiting. It returns a text if the launcher has seen a rank end."""

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
                 secret_file: str | None = None, node: str | None = None, solo: bool = False,
                 arrival_ms: int | None = None) -> None: ...
    def agree(self, phase: str, status: int = 0, text: str = "") -> None:
        """COLLECTIVE. A status other than 0 is this rank's failure, and raises on all."""

    def allgather(self, phase: str, data: Readable, status: int = 0, text: str = "") -> list[bytes]:
        """COLLECTIVE. Return the data of each rank, at most 1 GiB together."""

    def stop(self) -> None:
        """Report to the others at once that this rank brings an error to the next collective call. Not collective."""

    def must_stop(self) -> bool:
        """Return True if another rank has called stop(), or was lost. Long work of this rank should then end, and make the collective
        call early. Never waits; takes tens of nanoseconds."""

    def announce(self, text: str) -> None:
        """Describe what this rank does before its next collective call, for the line of those that wait for it. Never waits."""

    def reading(self, reader: int, plan: int, changes: int, epoch: int, step: int, is_last: bool) -> None:
        """Note that a reader gave a batch. ArgumentError if ranks read different epochs or changes of the plan. Never waits. Does nothing
        if the group is closed."""

    def reading_ends(self, reader: int, gone: bool) -> None:
        """Note that a reader's iteration ended; `gone`: that it gives no further batch."""

    def change_begins(self, plan: int, changes: int, epoch: int, step: int, call: str) -> None:
        """Note that this rank waits for the others in a call that changes the plan: fails the group if one reads on without it."""

    def change_ends(self, plan: int) -> None:
        """Note the end of that call."""

    def leave(self, status: int = 0, text: str = "", rank: int = -1, host: str = "") -> None:
        """Make no further collective call on this rank. Those of the others fail, with this error if `status` is not 0. Never waits."""

    def close(self, briefly: bool = False) -> None:
        """Close the group. Its stores must be closed (RuntimeError otherwise). Serves stores that other ranks have not closed yet until
        they have; `briefly`: at most for the silence limit. May be called twice."""

    def close_at_exit(self) -> None:
        """For an atexit function, which does not know the exit code: closes after the interpreter's end. The other ranks learn of a code
        other than 0."""

def launch(ranks: int, main: Callable[[Group], int], *, silence_ms: int | None = None) -> int:
    """rks_launch: run `main(group)` in `ranks` forked processes. Return the exit code of the first that failed, else 0. If main raises,
    its process prints the exception and ends with 1. Other threads of this process may be in any state when it forks."""

# ---- reader.c ----
def unit_size_kept(directory: str) -> int:
    """rks_unit_size_kept."""

def has_other_names(value: Any) -> bool:
    """Return whether a dict in a value of dicts, lists and tuples has a name that is not a str."""

def source_format(sources: Sequence[str], format: str | None) -> str:
    """rks_source_format."""

def source_list(group: Group, sources: Sequence[str], format: str | None, storage_options: str | None) -> str | None:
    """COLLECTIVE. rks_source_list. None if no source is in a store."""

def source_look(sources: Sequence[str], format: str | None, storage_options: str | None,
                listing: str | None) -> tuple[str, list[tuple[str, int, str]]]:
    """rks_source_look: return the format, and (name, size, version) of each file."""

class Files:
    """COLLECTIVE. rks_files_open."""

    def __init__(self, group: Group, sources: Sequence[str], *, schema: str | None = None, format: str | None = None,
                 max_sample: int | None = None, skip_bad: bool = False, max_total: int | None = None,
                 unit_size: int | None = None, columns: str | None = None, json_path: str | None = None,
                 extra: str | None = None, dtype: str | None = None, key: str | None = None, unchecked: bool = False,
                 storage_options: str | None = None, input_bytes: int | None = None, listing: str | None = None) -> None: ...
    def units(self) -> list[tuple[str, int]]:
        """Return (name of the file, bytes) of each unit."""
    def unit_size(self) -> int: ...
    def schema(self) -> str: ...
    def read(self, unit: int, take: Callable[[dict[str, Any], bytes, int], Any]) -> dict[str, Any]:
        """Call take(values, key, row) for each sample. Return {filtered, bad, bad_first}. What `take` raises is
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
          wait: bool = False, threads: int | None = None, unchecked: bool = False,
          max_shard: int | None = None, shards: Sequence[str] = (), storage_options: str | None = None,
          input_bytes: int | None = None, listing: str | None = None, home: str | None = None,
          counts: Sequence[str] = ()) -> dict[str, Any]:
    """COLLECTIVE. rks_build, with only_ahead: return the report {samples, duplicates, sampled_out, filtered, bad, bytes, input_bytes,
    not_read, units, units_resumed, unit_size, collectives, seconds, dataset, bad_first, json_columns, object_columns, length}.
    `filter` gets a dict of the sample's columns, each (bytes, dims, type) or None, copied; a true result keeps the sample. What it
    raises is raised as DataError on all ranks, and is the cause of this rank's error. What `progress` raises ends the build on this
    rank."""

# ---- input.c ----
STREAM_NONE: int
STREAM_OWN: int
STREAM_SAME: int
RAISED: str
"""Stands before the text of an error that is an exception of an input."""

class Sink:
    """Takes the samples of a unit, during `read` of an input."""

    drops: bool
    """The unit is another rank's: its samples are dropped, and need not be made."""

    def add(self, values: Sequence[Any], key: bytes | str | None = None, length: int | None = None) -> None:
        """Add a sample: one value a column, in the schema's order. A value is None (missing); an object with the buffer protocol,
        C-contiguous, with the column's item type (bfloat16 and float8 as their unsigned integers); str for str and json columns; bytes;
        bool, int or float for scalars. Convert anything else with `rankstore._schema.values.convert(name, type, value)`, which returns
        one of these or raises TypeError. TypeError or ValueError for a wrong type, shape or range names the column; the sink stays
        usable."""

    def add_arrays(self, columns: Sequence[tuple[Readable, Readable | None]], count: int,
                   keys: Sequence[bytes | str] | None = None, lengths: Readable | None = None) -> None:
        """Add many samples in one call, without the GIL. `columns`: (values, offsets) for each column. Items along the first dimension of
        sample i are offsets[i]..offsets[i+1] of int64[count + 1] (for str, bytes, json: bytes). None for a column of fixed shape, whose
        values come one after another. Only the first dimension may vary. Offsets are checked. An error names the sample; those before it
        are added. `lengths`: uint64[count], with own_lengths."""

    def left_out(self, filtered: int, bad: int, lines: str | None = None) -> None:
        """Count samples of the unit that were not added, for the report. `lines` names bad ones."""

class Source(Protocol):
    """What build_input builds from."""

    def scan(self, base: str | None, generation: int, /) -> tuple[Sequence[tuple[str, int]], int, str | None]:
        """Return the units as (name, weight), the kind of stream, and the stream's identity: rks_scan."""

    def read(self, unit: int, sink: Sink, /) -> Any:
        """rks_input_ops.read."""

def build_input(group: Group, input: Source, directory: str, *, schema: str | None = None, key: str | None = None,
                length: str | None = None, length_unit: int = 1, where: str | None = None, index: Sequence[str] = (),
                max_sample: int | None = None,
                own_keys: bool = False, replace: bool = False, block_size: int | None = None,
                progress: Callable[[str, int, int, int], None] | None = None, own_lengths: bool = False,
                source: str | None = None, min_length: int | None = None, max_length: int | None = None,
                sample: int | None = None, sample_rate: float = 0, seed: int = 0, dedup: bool = False,
                append: bool = False, no_lock: bool = False, unit_size: int | None = None,
                made_from: str | None = None, wait: bool = False, keep: bool = False,
                max_shard: int | None = None, shards: Sequence[str] = (), home: str | None = None,
                storage_options: str | None = None, counts: Sequence[str] = ()) -> dict[str, Any]:
    """COLLECTIVE. rks_build_input. Return a report as build() does. `own_lengths`: each sample is added with its length."""

class Gather:
    """COLLECTIVE. rks_gather: `schema` describes one result."""

    def __init__(self, group: Group, schema: str, directory: str | None = None) -> None: ...
    def add(self, name: str | bytes, index: int, values: Sequence[Any]) -> None: ...
    def run(self, dst: int, receive: Callable[[bytes, int, int, list[Any]], None] | None,
            status: int = 0, text: str = "") -> dict[str, Any]:
        """COLLECTIVE. Call receive(name, index, rank, values) on `dst` for each result. A value is (bytes, dims) or None, copied; dims are
        () for scalars, str, bytes and json. Return {items, names, gaps, gap_first}."""

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
                 no_check: bool = False, missing: str | None = None, inflight_bytes: int | None = None,
                 quarantine: str | None = None, names: Sequence[str] | None = None,
                 columns: Sequence[str] | None = None, metrics: int = 0, index_dir: str | None = None,
                 shards: Sequence[str] | None = None, local: str | None = None, copies: int = 0, local_room: int = 0,
                 storage_options: str | None = None) -> None: ...
    def refresh(self, group: Group, directory: str | Sequence[str], **options: Any) -> Store | None: ...
    def earlier(self) -> list[tuple[int, int, str]]: ...
    def lengths(self) -> Buffer:
        """Return uint32[count], read-only, shared by the node. The store lives as long as a view of it."""

    def column(self, name: str) -> tuple[Buffer, str] | None:
        """Return an index column and its type; None if there is no such column."""

    def owner(self, sample: int) -> int: ...
    def key(self, sample: int) -> bytes: ...
    def find(self, key: bytes | str, source: int | None = None) -> int:
        """Return the sample with this key. KeyError if there is none; ArgumentError if several sources have it and none is named."""

    def sources(self) -> list[tuple[str, str, str, int, int, int]]:
        """Return (name, directory, dataset's id, first sample, samples, bytes) of each dataset that was opened."""

    def counted(self) -> list[tuple[str | None, int, bool]]:
        """rks_store_source_length of each: (column or None, unit, by a function)."""

    def units(self) -> bytes:
        """rks_store_units: the first sample id of each unit, as uint64."""

    def split(self, parts: tuple[tuple[str, float], ...], seed: int, by: str | None) -> bytes:
        """Return the number of each sample's part, as uint16."""

    def info(self) -> str:
        """Return a description as JSON."""

    def placement(self) -> str:
        """COLLECTIVE. rks_store_placement_json."""

    def stats(self) -> dict[str, Any]: ...
    def fetch(self, samples: Readable | Sequence[int]) -> Samples:
        """Fetch samples: ints, or an array of int64, uint64 or uint32. IndexError if one is out of range."""

    def view(self, sample: int) -> list[tuple[Buffer, tuple[int, ...]] | None]:
        """Return an entry for each column: read-only bytes in the map (or as fetched) and dims; None: missing."""

    def collate(self, samples: Readable | Sequence[int], collate: Collate, pieces: Readable | None = None,
                bins: Readable | None = None) -> Arrays: ...
    def close(self, timeout_ms: int = 0) -> None:
        """COLLECTIVE. Close the store and its epochs. Waits until all ranks have closed, at most `timeout_ms` (0: the silence limit); after
        that the group serves the others. May be called twice. Buffers of lengths and columns hold the index, so they stay valid."""

# ---- samples.c ----
class Samples:
    """rks_batch: fetched samples."""

    nbytes: int
    def __len__(self) -> int: ...
    def id(self, i: int) -> int: ...
    def length(self, i: int) -> int: ...
    def key(self, i: int) -> bytes: ...
    def value(self, i: int, column: int) -> tuple[Buffer, tuple[int, ...]] | None:
        """Return writable bytes in the batch, and dims; None: missing."""

    def values(self, i: int) -> list[tuple[Buffer, tuple[int, ...]] | None]: ...
    def digest(self) -> int: ...
    def collate(self, collate: Collate) -> Arrays: ...

class Rows:
    """Samples of a store as dicts. `columns`: (name, kind, function, dtype, dimensions) for each column of the schema. The kind decides the
    value: "y" bytes, "s" str, "j" function(str), a code of struct's for one number ("?bBhHiIqQfd"), "V" function(bytes, dtype),
    "A" function(dims, dtype, bytes), "O" function(bytes, dims). Bytes are a Buffer over a copy."""

    def __init__(self, store: Store, columns: tuple[tuple[str, str, Callable[..., Any] | None, Any, int], ...],
                 ids: Readable | None = None, /) -> None:
        """`ids`: the sample of each place, int64; None: all samples."""

    def one(self, sample: int, /) -> dict[str, Any] | None:
        """Return a sample, counted from the end if negative. None if it is not an int below `count`, and in a forked child."""

    def many(self, samples: Readable | Sequence[int], /) -> list[dict[str, Any]]:
        """Return samples by id."""

class Indexed:
    """Takes its items from `_rows`. If that is None, or returns None, it calls `self._item(place)`."""

    _rows: Rows | None
    def __getitem__(self, place: Any, /) -> Any: ...

class Collate:
    """rks_collate_options, copied. `columns`: (column, name, type, pad, first, missing, packed, items, exact), with None for defaults. The
    last four are bools and may be left out."""

    def __init__(self, *, layout: str = "pad",
                 columns: Sequence[tuple[Any, ...]] | None = None,
                 to_multiple: int = 1, max_length: int = 0, left: bool = False, mask: str | None = None,
                 positions: str | None = None, follows: str | None = None, cut_by_length: bool = False,
                 row_items: int = 0, each_multiple: int = 1, documents: str | None = None) -> None: ...

class SampleList:
    """rks_sample_list: samples of the user's own."""

    def __init__(self, schema: str) -> None: ...
    def add(self, values: Sequence[Any], id: int, length: int, /) -> None:
        """Add a sample, a value a column. TypeError, ValueError or DataError names the column."""

    def collate(self, collate: Collate, bins: Readable | None = None, /) -> Arrays:
        """`bins`: uint32 bounds of the rows of layout "rows"."""

class Arrays:
    """rks_arrays."""

    samples: int
    def ids(self) -> Buffer:
        """Return uint64[samples]."""

    def lengths(self) -> Buffer:
        """Return uint32[samples]."""

    def pieces(self) -> Buffer | None:
        """Return uint32[pieces, 3], place, start, count, or None if all samples are whole."""

    def arrays(self) -> list[tuple[str, str, tuple[int, ...], Buffer, Buffer | None]]:
        """Return (name, type, dims, data, offsets) of each array; offsets is int64[samples + 1] or None."""

# ---- plan.c ----
class Plan:
    """COLLECTIVE if `source` is a Store; not if it is lengths (a buffer of uint32)."""

    world: int
    has_absent: bool
    absent: bytes  # uint32[n, 2], runs of absent samples: first and count
    lengths: bytes  # uint32[n], those that it is over; of absent samples as they were sealed
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
                 balance: Any = None, skip: list[tuple[int, int, int]] | None = None, absent: Any = b"") -> None: ...
    def steps(self, epoch: int = 0) -> int: ...
    def batch(self, epoch: int, step: int, rank: int) -> list[int]: ...
    def bins(self, epoch: int, step: int, rank: int) -> bytes:
        """Strategy pack: return where the bins of batch() begin in it, and its end, as int64."""

    def pieces(self, epoch: int, rank: int, first: int = 0, last: int | None = None) -> bytes:
        """Return which samples of batches() are pieces: uint32[n, 3], their place among the ids, start, count."""

    def batches(self, epoch: int, rank: int, first: int = 0, last: int | None = None) -> tuple[bytes, bytes]:
        """Return steps first..last of a rank (-1: all ranks, step by step): (indptr int64[n + 1], ids uint32), as bytes."""

    def report(self, epoch: int = 0) -> dict[str, Any]: ...
    def change(self, epoch: int | None, step: int, weights: list[float] | None, longest: int, /) -> tuple[int, int]:
        """Change the weights of a mix from a step on. epoch None: the step counts from the first one of epoch 0. Return the place of the
        change as states have it: the epoch, and the step counted over all worlds of the epoch."""

    def skip(self, epoch: int, first: int, last: int, /) -> None: ...
    def next_step(self, epoch: int, step: int, /) -> int:
        """Return the first step from `step` on that is not skipped, or steps(epoch)."""

    def skipped(self, epoch: int, step: int, /) -> int:
        """Return how many steps before `step` are skipped."""

    def sources(self, epoch: int) -> dict[str, dict[str, Any]]: ...
    def state(self, epoch: int, step: int) -> str: ...
    def resume(self, state: str) -> tuple[int, int]: ...
    def know_earlier(self, generations: Sequence[tuple[int, int, str]], /) -> None:
        """rks_plan_know_earlier: (number, samples, dataset) of generations whose states resume accepts at an epoch's end."""
    def close(self) -> None: ...

# ---- epoch.c ----
class Arenas:
    """Memory for the arrays of an epoch, in buffers that Python makes. If no arena is free, a batch takes other memory. An arena is used
    again once its arrays are gone, so nothing may read them then."""

    def wanted(self) -> int:
        """Return the bytes of an arena that the last batch lacked, once; 0 if none did, or if batches have as many as they need at once."""

    def add(self, buffer: Any) -> None:
        """Add a writable buffer of at least so many bytes. It is held as long as arrays may lie in it."""

class Epoch:
    """An iterator over this rank's batches of an epoch in step order, fetched ahead: (step, Samples), or (step, Arrays) with `collate`."""

    def __init__(self, store: Store, plan: Plan, *, epoch: int = 0, first_step: int = 0,
                 prefetch_batches: int | None = None,
                 prefetch_bytes: int | None = None, collate: Collate | None = None,
                 arenas: Arenas | None = None) -> None: ...
    def __iter__(self) -> Epoch: ...
    def __next__(self) -> tuple[int, Samples | Arrays]: ...
    def close(self) -> None:
        """Cancel what is in flight. May be called twice."""

# ---- upkeep.c ----
def set_store_helper(words: Sequence[str]) -> None:
    """rks_set_store_helper: the program that reaches object stores, with its arguments."""

def merge(group: Group, sources: Sequence[str], directory: str, *, copy: bool = False,
          progress: Callable[[str, int, int, int], None] | None = None, no_lock: bool = False) -> dict[str, Any]:
    """COLLECTIVE. rks_merge: return {samples, shards, linked_bytes, copied_bytes, dataset}."""

def publish(group: Group, directory: str, home: str, *, dry_run: bool = False,
            progress: Callable[[str, int, int, int], None] | None = None, shards: Sequence[str] = (),
            storage_options: str | None = None) -> dict[str, Any]:
    """COLLECTIVE. rks_publish: return {dataset, generation, before, nothing_to_do, shards, sent_shards, sent_bytes, there_bytes}."""

def stage(group: Group, home: str | None, local: str, *, copies: int = 0, everywhere: bool = False, local_room: int = 0,
          progress: Callable[[str, int, int, int], None] | None = None, storage_options: str | None = None) -> dict[str, Any]:
    """COLLECTIVE. rks_stage: return {dataset, generation, shards, bytes, places, wanted_bytes, here_bytes, home_bytes}."""

def prune(group: Group, directory: str, *, keep: int | None = None, dry_run: bool = False,
          no_lock: bool = False, storage_options: str | None = None) -> dict[str, Any]:
    """COLLECTIVE. rks_prune: return {generations, files, bytes, names}."""

def prune_local(group: Group, local: str, *, dry_run: bool = False, storage_options: str | None = None) -> dict[str, Any]:
    """COLLECTIVE. rks_prune_local: return {datasets, shards, arrivals, files, bytes}."""

def lost(group: Group, directory: str, shards: Sequence[str], /) -> int:
    """COLLECTIVE. rks_repair without an input: how many shards of the dataset are on no rank's disk."""

def export(store: Store, target: str, *, to: str | None = None, where: str | None = None,
           columns: Sequence[str] | None = None, force: bool = False,
           progress: Callable[[str, int, int, int], None] | None = None) -> dict[str, Any]:
    """COLLECTIVE. rks_store_export: return {samples, filtered, bytes, seconds, to, respelled, keys_left, left_out}."""

def diff(a: Store, b: Store, *, columns: Sequence[str] | None = None, head: int | None = None,
         progress: Callable[[str, int, int, int], None] | None = None,
         ) -> tuple[dict[str, Any], list[tuple[int, bytes, int | None, int | None]]]:
    """COLLECTIVE. rks_diff: return {same, only_a, only_b, changed, columns}, and on rank 0 the differences: (rks_difference, key, id in a,
    id in b)."""

# ---- workers.c ----
class WorkerService:
    """rks_worker_service: `answer` gets a request and returns the parts of its reply, on threads of the library, several at a time."""

    name: str
    token: str
    def __init__(self, answer: Callable[[bytes], Sequence[Any]], silence_ms: int | None = None, max_request: int | None = None) -> None: ...
    def close(self) -> None: ...

class WorkerLink:
    """rks_worker_link. Threads may share it."""

    def __init__(self, name: str, token: str, silence_ms: int) -> None: ...
    def ask(self, parts: Sequence[Any], /) -> Buffer: ...
    def close(self) -> None: ...
