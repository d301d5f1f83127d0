# SPDX-License-Identifier: Apache-2.0
"""Gather results: `gather` brings uneven results of all ranks to one, in memory or into a file.

Nothing is pickled, and nothing goes through a GPU.

    pass 1 (files, stack)  name, index, dtype, shape ─► dst: what the file's header needs
    pass 2                 the data, ordered, one result at a time ─► dst"""
from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, overload

from .. import _core
from .._distributed.collectives import check_others, together
from .._distributed.group import Group, current
from .._schema.types import BITS, ITEMS, missing_items
from ..errors import ArgumentError, DataError
from .entries import Entry, Result, name_bytes, name_text, plan_entries
from .writers import Directory, File, Npz, Safetensors

_SCHEMA = json.dumps({"dtype": "str", "shape": "int64[*]", "data": "bytes"})
_DTYPES = frozenset((*ITEMS, "complex128"))


@dataclass(frozen=True)
class GatherReport:
    """What `gather` wrote.

    Attributes: items (results), names, bytes (of data), gaps (indices missing between a name's lowest and highest), gap_first (the first
        gap, "loss: 3..5"), seconds (of this rank), path.
    """

    items: int
    names: int
    bytes: int
    gaps: int
    gap_first: str
    seconds: float
    path: str


@overload
def gather(results: Mapping[Any, Any], dst: int = 0, out: None = None, *, stack: Literal[False] = False, group: Group | None = None,
           directory: str | os.PathLike[str] | None = None) -> dict[Any, list[tuple[int, Any]]] | None: ...
@overload
def gather(results: Mapping[Any, Any], dst: int = 0, out: None = None, *, stack: bool, group: Group | None = None,
           directory: str | os.PathLike[str] | None = None) -> dict[Any, Any] | None: ...
@overload
def gather(results: Mapping[Any, Any], dst: int = 0, *, out: str | os.PathLike[str], stack: bool = False, group: Group | None = None,
           directory: str | os.PathLike[str] | None = None) -> GatherReport | None: ...
@overload
def gather(results: Mapping[Any, Any], dst: int, out: str | os.PathLike[str], *, stack: bool = False, group: Group | None = None,
           directory: str | os.PathLike[str] | None = None) -> GatherReport | None: ...
def gather(results: Mapping[Any, Any], dst: int = 0, out: str | os.PathLike[str] | None = None, *, stack: bool = False,
           group: Group | None = None,
           directory: str | os.PathLike[str] | None = None) -> dict[Any, Any] | GatherReport | None:
    """Bring the results of all ranks to rank `dst`, ordered by name and index (collective: call it on every rank).

    results: dict. {name: (index, array)} or {name: [(index, array), ...]}: this rank's results, which may be none. name: str or bytes, any
        1 to 511 bytes, such as a sample's key; "a" and b"a" are one name. index: an int of at least 0, unique for a name over all ranks,
        such as a sample's place. array: numpy array, torch tensor (copied to the host first if it is on a GPU) or number, at most 2 GiB
        less 64 KiB; dtypes and shapes may differ between results.
    dst: int. The rank that receives them. Default: 0.
    out: path. `dst` writes this file and returns a GatherReport; its memory is bounded by the largest result. The ending decides the
        format. .safetensors and .npz hold tensors called "name" if the name has one result or with stack, else "name/index". Any other path
        is a new directory for a Rankstore dataset with columns name, index, dtype, shape, data and keys "name/index"; a key longer than 511
        bytes is the name's SHA-256 and "/index". A name that is not UTF-8 is written with %XX, as urllib.parse.quote does; in an .npz so is
        one that has a NUL or would lead out of the folder that it is unpacked into ("../a", "/a"). The file is complete or absent. Default:
        none, and `dst` returns {name: [(index, array), ...]}, with tensors and bytes names as they were given.
    stack: bool. Return or write one array a name, with results along a new first dimension in the order of index. dtypes and shapes of a
        name must be equal (DataError). Default: False.
    group: Group. The ranks that gather. Default: `current()`.
    directory: path. Where ranks keep results meanwhile. Default: TMPDIR, else /tmp.

    Returns None on other ranks. If indices of a name have gaps, `dst` warns.
    Raises on all ranks: DataError (a result given twice, naming both ranks; strings or objects; unequal shapes), ArgumentError,
    IOFailedError.
    """
    begun = time.monotonic()
    group = group or current()
    mine: list[tuple[Result, Any]] = []
    asked = together(group, "gather: results", lambda: _take(results, mine, dst, out, stack))
    for rank, one in enumerate(asked):
        if one != asked[0]:
            raise ArgumentError(f"gather: dst, out and stack differ: {asked[0]} on rank 0, {one} on rank {rank}")
    dst, path, stack = asked[0]
    if not 0 <= dst < group.world:
        raise ArgumentError(f"dst: {dst}; ranks are 0 to {group.world - 1}")
    move = _Move(group, dst, None if directory is None else os.fspath(directory), mine)
    if path is None and not stack:
        return _in_memory(group, move)
    heads: list[Result] = []
    move.run(lambda head, data: heads.append(head), heads_only=True)
    entries: list[list[Entry]] = []
    together(group, "gather: shapes", lambda: entries.append(plan_entries(heads, stack)))
    if path is None:
        return _stacked(group, move, entries[0])
    return _to_file(group, move, path, entries[0], begun)


def _take(results: Mapping[Any, Any], mine: list[tuple[Result, Any]], dst: Any, out: Any, stack: Any) -> list[Any]:
    """Check the results and append them to `mine`. Return dst, out and stack as JSON values."""
    if not hasattr(dst, "__index__"):
        raise ArgumentError(f"dst: a rank, not {dst!r}")
    if out is not None and not isinstance(out, (str, os.PathLike)):
        raise ArgumentError(f"out: a path or None, not {type(out).__name__}")
    if not isinstance(results, Mapping):
        raise ArgumentError(f"results: a dict {{name: (index, array)}}, not {type(results).__name__}")
    for name, each in results.items():
        if not isinstance(name, (str, bytes)):
            raise ArgumentError(f"results: names are str or bytes, not {type(name).__name__}")
        text = name if isinstance(name, str) else name_text(name)
        try:
            name_bytes(text)
        except UnicodeEncodeError as error:
            raise ArgumentError(f"results: {name!r} cannot be encoded as bytes: {error.reason}") from None
        for item in each if isinstance(each, list) else [each]:
            if not isinstance(item, tuple) or len(item) != 2 or \
                    not hasattr(item[0], "__index__") or item[0].__index__() < 0:
                raise ArgumentError(f'results["{text}"]: must be (index, array) or a list of these, with an int of at least 0 as index')
            head, array = _host(text, item[0].__index__(), item[1])
            mine.append((replace(head, raw=isinstance(name, bytes)), array))
    return [dst.__index__(), None if out is None else os.fsdecode(out), bool(stack)]


def _host(name: str, index: int, value: Any) -> tuple[Result, Any]:
    """Return a result and its array on the host; types that numpy lacks are integers with the same bits."""
    import numpy
    if hasattr(value, "detach") and hasattr(value, "layout"):
        import torch
        dtype = str(value.dtype).removeprefix("torch.")
        if value.layout != torch.strided or dtype not in _DTYPES:
            raise DataError(f'results["{name}"], index {index}: a tensor of {dtype}, {value.layout} cannot be gathered')
        tensor = value.detach().cpu().resolve_conj().resolve_neg().contiguous()
        if dtype in BITS:
            tensor = tensor.view(torch.int16 if BITS[dtype] == "uint16" else torch.uint8)
        return Result(name, index, dtype, tuple(value.shape), True), tensor.numpy()
    if not isinstance(value, (bool, int, float, complex)) and not hasattr(value, "__array__"):
        raise DataError(f'results["{name}"], index {index}: {type(value).__name__} cannot be gathered; give numpy '
                        'arrays, tensors, numbers')
    missing = missing_items(value)
    if missing is not None:
        raise DataError(f'results["{name}"], index {index}: an array with {missing} items; fill them, or give the mask '
                        'as a result of its own')
    array = numpy.asarray(value)
    if array.dtype.name not in _DTYPES:
        raise DataError(f'results["{name}"], index {index}: an array of {array.dtype} cannot be gathered; only numbers '
                        'can')
    if array.dtype.byteorder == ">" or not array.flags.c_contiguous:
        array = numpy.array(array, dtype=array.dtype.newbyteorder("="), order="C")
    return Result(name, index, array.dtype.name, array.shape, False), array


class _Move:
    """Moves the results of all ranks to `dst`: first their heads if a file or stack needs them, then the data."""

    def __init__(self, group: Group, dst: int, directory: str | None, mine: list[tuple[Result, Any]]) -> None:
        self.group, self.dst, self.directory, self.mine = group, dst, directory, mine
        self.report: dict[str, Any] = {}

    def run(self, receive: Callable[[Result, bytes], None], heads_only: bool = False) -> None:
        """Pass each result to `receive(head, data)` on dst, in the order of (name, index). Collective; what it raises, all ranks raise."""
        raised: list[Exception] = []

        def take(name: bytes, index: int, rank: int, values: list[Any]) -> None:
            try:
                dtype, shape, data = (one[0] for one in values)
                dims = tuple(memoryview(shape).cast("B").cast("q")) if len(shape) else ()
                kind = bytes(dtype).decode()
                raw, kind = kind.startswith("bytes."), kind.removeprefix("bytes.")
                receive(Result(name_text(name), index, kind.removeprefix("torch."), dims, kind.startswith("torch."), raw), data)
            except Exception as failure:
                raised.append(failure)
                raise

        mover = _core.Gather(self.group.core, _SCHEMA, self.directory)
        try:
            together(self.group, "gather: adding", lambda: self._add(mover, heads_only))
            self.report = mover.run(self.dst, take)
        except Exception as failure:
            if raised:
                raise failure from raised[0]
            raise
        finally:
            mover.close()

    def _add(self, mover: _core.Gather, heads_only: bool) -> None:
        import numpy
        for head, array in self.mine:
            check_others(self.group)
            data = b"" if heads_only else numpy.ascontiguousarray(array).reshape(-1).view(numpy.uint8)
            kind = ("bytes." if head.raw else "") + ("torch." if head.torch else "") + head.dtype
            mover.add(name_bytes(head.name), head.index, (kind, numpy.array(head.shape, dtype=numpy.int64), data))

    def warn(self) -> None:
        if self.report.get("gaps"):
            warnings.warn(f"gather: {self.report['gaps']} results are missing: {self.report['gap_first']}",
                          stacklevel=4)


# ---- in memory ------------------------------------------------------------------------------------------------------

def _array(dtype: str, shape: tuple[int, ...], torch: bool, data: bytes | bytearray) -> Any:
    """Return an array or tensor over its own copy of the bytes."""
    import numpy
    array = numpy.frombuffer(bytearray(data), dtype=BITS.get(dtype, dtype)).reshape(shape)
    if not torch:
        return array
    import torch as torch_module
    if dtype in BITS:
        bits = array.view("int16") if BITS[dtype] == "uint16" else array
        return torch_module.from_numpy(bits).view(getattr(torch_module, dtype))
    return torch_module.from_numpy(array)


def _in_memory(group: Group, move: _Move) -> dict[Any, list[tuple[int, Any]]] | None:
    found: dict[str, tuple[str | bytes, list[tuple[int, Any]]]] = {}

    def receive(head: Result, data: bytes) -> None:
        array = _array(head.dtype, head.shape, head.torch, data)
        found.setdefault(head.name, (head.key, []))[1].append((head.index, array))

    move.run(receive)
    if group.rank != move.dst:
        return None
    move.warn()
    return dict(found.values())


def _stacked(group: Group, move: _Move, entries: list[Entry]) -> dict[Any, Any] | None:
    room = {entry.name: bytearray(entry.size) for entry in entries}
    filled = dict.fromkeys(room, 0)

    def receive(head: Result, data: bytes) -> None:
        at = filled[head.name]
        room[head.name][at:at + len(data)] = data
        filled[head.name] = at + len(data)

    move.run(receive)
    if group.rank != move.dst:
        return None
    move.warn()
    return {name_bytes(entry.name) if entry.raw else entry.name:
            _array(entry.dtype, entry.shape, entry.torch, room.pop(entry.name)) for entry in entries}


# ---- files ---------------------------------------------------------------------------------------------------------

def _to_file(group: Group, move: _Move, path: str, entries: list[Entry], begun: float) -> GatherReport | None:
    made: list[File] = []
    written = 0
    kinds: dict[str, type[File]] = {".safetensors": Safetensors, ".npz": Npz}
    kind = kinds.get(os.path.splitext(path)[1], Directory)

    def receive(head: Result, data: bytes) -> None:
        nonlocal written
        written += len(data)
        made[0].add(head, data)

    def begin() -> None:
        if group.rank == move.dst:
            made.append(kind(path, entries))

    def end() -> None:
        for file in made:
            file.end()

    try:
        together(group, "gather: file", begin)
        move.run(receive)
        together(group, "gather: end of file", end)
    finally:
        for file in made:
            file.close()
    if group.rank != move.dst:
        return None
    move.warn()
    report = move.report
    return GatherReport(report["items"], report["names"], written, report["gaps"], report["gap_first"],
                        time.monotonic() - begun, path)
