# SPDX-License-Identifier: Apache-2.0
"""Reads Arrow tables and Parquet files column by column, as arrays, without Python objects.

    Arrow type                                            column type
    numbers, bool                                         the same
    string                                                str
    binary                                                bytes
    list<number>                                          "T[*]"
    fixed_size_list<number, n>                            "T[n]"
    struct of bytes and path (a file, as datasets does)   bytes
    other lists and structs                               json
    dictionary                                            that of its values
    anything else                                         refused; the error names the column. Not if schema= leaves it out; and `map`
                                                          and other functions get it, as Python's value

A column that schema= leaves out is not read, unless functions get the samples."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import Any

from .._schema.columns import Columns, check_column_names
from .._schema.types import ITEMS, describe
from .._schema.values import json_text
from ..errors import DataError, UnsupportedError
from . import digest, sample_digest
from .base import Piece, Unit

BATCH = 4096  # rows read at once


def import_pyarrow(why: str) -> Any:
    try:
        import pyarrow
    except ImportError as missing:
        raise UnsupportedError(f"{why} needs pyarrow, which cannot be imported") from missing
    return pyarrow


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Turn Arrow's errors about a file into a DataError that names the file."""
    pa = import_pyarrow(path)
    try:
        yield
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, OSError) as refused:  # Parquet raises OSErrors without a number
        if isinstance(refused, OSError) and refused.errno and path in str(refused):
            raise
        raise DataError(f"{path}: {(str(refused) or type(refused).__name__).splitlines()[0][:300]}") from refused


def _number(pa: Any, kind: Any) -> str | None:
    types = pa.types
    if types.is_boolean(kind):
        return "bool"
    if types.is_integer(kind) or types.is_floating(kind):
        return {"halffloat": "float16", "float": "float32", "double": "float64"}.get(str(kind), str(kind))
    return None


def _is_file(pa: Any, kind: Any) -> bool:
    """Return True for a struct of the bytes and the path of a file."""
    if not pa.types.is_struct(kind) or {field.name for field in kind} != {"bytes", "path"}:
        return False
    data = kind.field("bytes").type
    return bool(pa.types.is_binary(data) or pa.types.is_large_binary(data))


def column_type(name: str, kind: Any) -> str:
    """Return the column type of an Arrow column. Raises UnsupportedError naming the column if there is none."""
    pa = import_pyarrow("an Arrow table")
    types = pa.types
    tensor = _tensor(pa, kind)
    if tensor is not None:
        return tensor
    while isinstance(kind, pa.BaseExtensionType) or types.is_dictionary(kind):
        kind = kind.value_type if types.is_dictionary(kind) else kind.storage_type
    number = _number(pa, kind)
    if number is not None:
        return number
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "str"
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind) or _is_file(pa, kind):
        return "bytes"
    if types.is_fixed_size_list(kind) and _number(pa, kind.value_type):
        return f"{_number(pa, kind.value_type)}[{kind.list_size}]"
    if (types.is_list(kind) or types.is_large_list(kind)) and _number(pa, kind.value_type):
        return f"{_number(pa, kind.value_type)}[*]"
    if types.is_nested(kind) and _is_json(pa, kind):
        return "json"
    raise UnsupportedError(f'column "{name}": no column type stores Arrow\'s {kind}; cast it, or convert it in '
                           'map=')


def _tensor(pa: Any, kind: Any) -> str | None:
    """Return the type of a column of tensors: Arrow's fixed shapes, and Hugging Face's Array2D to Array5D. None for anything else."""
    shape, order = getattr(kind, "shape", None), getattr(kind, "permutation", None)
    if not isinstance(kind, pa.BaseExtensionType) or not shape or list(order or ()) != list(range(len(order or ()))):
        return None
    item = kind.value_type if isinstance(kind.value_type, str) else _number(pa, kind.value_type)
    if item not in ITEMS or any(size is None for size in shape[1:]):
        return None
    return f"{item}[{','.join('*' if size is None else str(size) for size in shape)}]"


def _take_tensors(pa: Any, numpy: Any, name: str, kind: str, array: Any) -> tuple[Any, Any]:
    """Return (values, offsets) of a column of tensors, whose lists are nested, or one list of a fixed size. Missing ones are zeros."""
    dims, flat = describe(kind).dims, array
    while pa.types.is_nested(flat.type):
        flat = flat.flatten()
    numbers = _numbers(pa, numpy, flat, name)
    try:
        if dims[0] is None:
            sizes = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
            return numbers.reshape(-1, *dims[1:]), numpy.concatenate([[0], numpy.cumsum(sizes)]).astype(numpy.int64)
        given = numbers.reshape(len(array) - array.null_count, *dims)
    except ValueError:
        raise DataError(f'column "{name}": tensors of other shapes than {kind}') from None
    if not array.null_count:
        return given, None
    whole = numpy.zeros((len(array), *dims), given.dtype)
    whole[array.is_valid().to_numpy(zero_copy_only=False)] = given
    return whole, None


def _is_json(pa: Any, kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_json(pa, field.type) for field in kind)
    if pa.types.is_nested(kind):
        return not pa.types.is_map(kind) and hasattr(kind, "value_type") and _is_json(pa, kind.value_type)
    return bool(_number(pa, kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
                or pa.types.is_null(kind))


def _is_stored(field: Any) -> bool:
    try:
        column_type(field.name, field.type)
    except UnsupportedError:
        return False
    return True


class _Rows(Columns):
    """Columns whose rows have more: values of Python that no column type stores."""

    values: dict[str, list[Any]]

    def rows(self) -> Iterator[dict[str, Any]]:
        stored = super().rows() if self.columns else ({} for _ in range(self.count))
        for i, sample in enumerate(stored):
            yield {**sample, **{name: each[i] for name, each in self.values.items()}}


def to_columns(batch: Any, rows: bool = False) -> Columns:
    """Return a RecordBatch as Columns. rows: columns that no type stores are values in its rows; else they are an UnsupportedError."""
    import numpy
    pa = import_pyarrow("an Arrow table")
    made = _Rows.__new__(_Rows) if rows else Columns.__new__(Columns)
    made.columns, made.types, made.missing, made.keys, made.count = {}, {}, {}, None, batch.num_rows
    if not isinstance(made, _Rows):
        for field, array in zip(batch.schema, batch.columns, strict=True):
            _add_column(pa, numpy, made, field, array)
        return made
    made.values = {}
    for field, array in zip(batch.schema, batch.columns, strict=True):
        try:
            _add_column(pa, numpy, made, field, array)
        except (DataError, UnsupportedError):
            made.values[field.name] = array.to_pylist()
            made.missing.pop(field.name, None)
    return made


def _add_column(pa: Any, numpy: Any, made: Columns, field: Any, array: Any) -> None:
    """Add a column of a RecordBatch."""
    kind = column_type(field.name, field.type)
    while isinstance(array, pa.ExtensionArray) or pa.types.is_dictionary(array.type):
        array = array.dictionary_decode() if pa.types.is_dictionary(array.type) else array.storage
    if array.null_count > 0 and kind != "json":
        made.missing[field.name] = numpy.asarray(array.is_null().to_numpy(zero_copy_only=False))
    if _is_file(pa, array.type):
        array = array.field("bytes")
        if array.null_count > 0:
            raise DataError(f'column "{field.name}": a file holds a path but no bytes; embed the files (datasets: '
                            'embed_external_files)')
    made.columns[field.name] = _take(pa, numpy, field.name, kind, array)
    made.types[field.name] = kind


def _take(pa: Any, numpy: Any, name: str, kind: str, array: Any) -> tuple[Any, Any]:
    """Return (values, offsets) of an Arrow array, as views if Arrow's memory has the layout of Columns."""
    if kind == "json":
        try:
            parts = [json_text(name, value).encode() for value in array.to_pylist()]
        except ValueError as refused:
            raise DataError(f"{refused}; leave the column out by schema= or columns=, or change the value in map=") from None
        offsets = numpy.zeros(len(parts) + 1, dtype=numpy.int64)
        numpy.cumsum([len(part) for part in parts], out=offsets[1:])
        return b"".join(parts), offsets
    if kind in ("str", "bytes"):
        large = pa.large_string() if kind == "str" else pa.large_binary()
        if pa.types.is_string_view(array.type) or pa.types.is_fixed_size_binary(array.type):
            array = array.cast(large)
        wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
        _, ends, data = array.buffers()
        return (b"" if data is None else data), _offsets(numpy, ends, array.offset, len(array), wide)
    if "," in kind or pa.types.is_fixed_size_list(array.type):
        return _take_tensors(pa, numpy, name, kind, array)
    if "[" in kind:
        wide = pa.types.is_large_list(array.type)
        return _numbers(pa, numpy, array.values, name), _offsets(numpy, array.buffers()[1], array.offset, len(array), wide)
    return _numbers(pa, numpy, array.fill_null(False if kind == "bool" else 0) if array.null_count else array,
                    name), None


def _numbers(pa: Any, numpy: Any, array: Any, name: str) -> Any:
    if array.null_count > 0:
        raise DataError(f'column "{name}": a null inside a list; fill it, or convert the list in map=')
    return numpy.ascontiguousarray(array.to_numpy(zero_copy_only=False))


def _offsets(numpy: Any, data: Any, first: int, count: int, wide: bool) -> Any:
    if data is None or count == 0:
        return numpy.zeros(count + 1, dtype=numpy.int64)
    item = numpy.int64 if wide else numpy.int32
    return numpy.frombuffer(data, dtype=item)[first:first + count + 1].astype(numpy.int64)


def _stored(table: Any) -> list[Any]:
    """Return what a build would store of a table of one column, as arrays and bytes."""
    pa = import_pyarrow("an Arrow table")
    found: list[Any] = []
    for batch in table.to_batches():
        field = batch.schema.field(0)
        if column_type(field.name, field.type) == "json":  # Arrow's own bytes: many times faster than JSON
            sink = pa.BufferOutputStream()
            plain = batch.replace_schema_metadata(None)
            with pa.ipc.new_stream(sink, plain.schema) as stream:
                stream.write_batch(plain)
            found.append(memoryview(sink.getvalue()))
            continue
        taken = to_columns(batch)
        values, offsets = taken.columns[field.name]
        if offsets is not None:
            values = (values if hasattr(values, "dtype") else memoryview(values))[offsets[0]:offsets[-1]]
            offsets = offsets - offsets[0]
        found.append([field.name, taken.types[field.name], values, offsets, taken.missing.get(field.name)])
    return found


class ArrowPiece(Piece):
    """A source of record batches."""

    wanted: frozenset[str] | None = None
    rows = False

    def choose(self, columns: frozenset[str] | None, *, rows: bool) -> None:
        self.wanted, self.rows = columns, rows

    def chosen(self, names: Iterable[str]) -> list[str]:
        """Return the names of columns that are read, of those that there are."""
        return [name for name in names if self.wanted is None or name in self.wanted]

    def table_schema(self, schema: Any, missing: set[str]) -> dict[str, str] | None:
        """Return the schema for an Arrow schema; None if functions make the samples. Columns in `missing` hold nulls."""
        check_column_names(field.name for field in schema)
        fields = [field for field in schema if self.wanted is None or field.name in self.wanted]
        if self.rows and not all(map(_is_stored, fields)):
            return None
        return {field.name: column_type(field.name, field.type) + ("?" if field.name in missing else "") for field in fields}

    def batches(self, unit: Unit) -> Iterator[Any]:
        raise NotImplementedError

    def read(self, unit: Unit) -> Iterator[Any]:
        for batch in self.batches(unit):
            names = self.chosen(batch.schema.names)
            batch = batch if len(names) == batch.num_columns else batch.select(names)
            for start in range(0, batch.num_rows, BATCH):
                yield batch.slice(start, BATCH)

    def decode(self, raw: Any) -> Any:
        return to_columns(raw, self.rows)


class Table(ArrowPiece):
    """A pyarrow Table or RecordBatch in memory, the same on all ranks. A unit is 64 Ki rows."""

    ROWS = 65536
    in_memory = True

    def __init__(self, table: Any, name: str = "table") -> None:
        pa = import_pyarrow("an Arrow table")
        self.table = pa.Table.from_batches([table]) if isinstance(table, pa.RecordBatch) else table
        self.name = name

    def identity(self) -> list[Any]:
        return ["table", self.table.num_rows, self.table.nbytes, str(self.table.schema.remove_metadata())]

    def sampled(self) -> dict[str, str]:
        return sample_digest.items(lambda row: self.table.slice(row, 1).to_pylist()[0], self.table.num_rows)

    def blocks(self) -> int:
        return int(-(-self.table.num_rows // self.ROWS))

    def contents(self, block: int) -> str:
        """Digest the columns as a build stores them, so that neither the table's chunks nor the bytes under nulls change the digest."""
        rows = self.table.slice(block * self.ROWS, self.ROWS).combine_chunks()
        return digest.of_items(lambda: [_stored(rows.select([column])) for column in range(rows.num_columns)])

    def scan(self) -> tuple[list[Unit], dict[str, str] | None]:
        rows = self.table.num_rows
        missing = {name for name, column in zip(self.table.column_names, self.table.columns, strict=True)
                   if column.null_count}
        units = [Unit(f"{self.name}@{start}", min(self.ROWS, rows - start), (start, min(self.ROWS, rows - start)))
                 for start in range(0, rows, self.ROWS)]
        return units, self.table_schema(self.table.schema, missing)

    def batches(self, unit: Unit) -> Iterator[Any]:
        yield from self.table.slice(*unit.at).to_batches(max_chunksize=BATCH)


class ArrowFile(ArrowPiece):
    """An IPC file (.arrow, .feather) or stream. A unit is a record batch of a file, or a whole stream."""

    def __init__(self, path: str, name: str) -> None:
        self.path, self.name = path, name

    def identity(self) -> list[Any]:
        return ["arrow", self.name, os.path.getsize(self.path)]

    def _open(self) -> tuple[Any, bool]:
        pa = import_pyarrow(self.path)
        file = pa.memory_map(self.path)
        try:
            return pa.ipc.open_file(file), True
        except pa.ArrowInvalid:
            file.seek(0)
            return pa.ipc.open_stream(file), False

    def scan(self) -> tuple[list[Unit], dict[str, str] | None]:
        with _named(self.path):
            return self._scan()

    def _scan(self) -> tuple[list[Unit], dict[str, str] | None]:
        reader, is_file = self._open()
        missing: set[str] = set()
        units = []
        each = (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else reader
        for i, batch in enumerate(each):
            missing.update(name for name, column in zip(batch.schema.names, batch.columns, strict=True)
                           if column.null_count)
            units.append(Unit(f"{self.name}#{i}", batch.nbytes, (i,)))
        schema = self.table_schema(reader.schema, missing)
        return units if is_file else [Unit(self.name, sum(unit.weight for unit in units), (-1,))], schema

    def batches(self, unit: Unit) -> Iterator[Any]:
        with _named(self.path):
            reader, is_file = self._open()
            if is_file:
                yield reader.get_batch(unit.at[0])
            else:
                yield from reader


class Parquet(ArrowPiece):
    """A Parquet file. A unit is a row group."""

    def __init__(self, path: str, name: str) -> None:
        self.path, self.name = path, name

    def identity(self) -> list[Any]:
        return ["parquet", self.name, os.path.getsize(self.path)]

    def _open(self) -> Any:
        import_pyarrow(self.path)
        import pyarrow.parquet
        return pyarrow.parquet.ParquetFile(self.path, memory_map=True, page_checksum_verification=True)

    def scan(self) -> tuple[list[Unit], dict[str, str] | None]:
        with _named(self.path), self._open() as file:
            footer = file.metadata
            units = [Unit(f"{self.name}#{i}", footer.row_group(i).total_byte_size, (i,))
                     for i in range(footer.num_row_groups)]
            check_column_names(file.schema_arrow.names)
            return units, self.table_schema(file.schema_arrow, self._missing(file))

    def _missing(self, file: Any) -> set[str]:
        """Return the columns with nulls. Reads a column only if its statistics are missing or unclear (they count empty lists as nulls)."""
        footer, missing, unknown = file.metadata, set(), set()
        for group in range(footer.num_row_groups):
            for leaf in range(footer.num_columns):
                chunk = footer.row_group(group).column(leaf)
                name = chunk.path_in_schema.partition(".")[0]
                if self.wanted is not None and name not in self.wanted:
                    continue
                nested = chunk.path_in_schema != name
                known = chunk.statistics is not None and chunk.statistics.has_null_count
                if known and chunk.statistics.null_count == 0:
                    continue
                if known and not nested:
                    missing.add(name)
                elif file.schema_arrow.field(name).nullable:
                    unknown.add(name)
        for name in unknown - missing:
            batches = file.iter_batches(batch_size=65536, columns=[name])
            if any(batch.column(name).null_count for batch in batches if name in batch.schema.names):
                missing.add(name)
        return missing

    def batches(self, unit: Unit) -> Iterator[Any]:
        with _named(self.path), self._open() as file:
            names = None if self.wanted is None else self.chosen(file.schema_arrow.names)
            yield from file.iter_batches(batch_size=BATCH, row_groups=[unit.at[0]], columns=names)


class HuggingFace(ArrowPiece):
    """A datasets.Dataset (rows by its indices), read in its Arrow form. A unit is 16 Ki rows."""

    ROWS = 16384
    in_memory = True

    def __init__(self, dataset: Any, name: str = "dataset") -> None:
        self.dataset = dataset.with_format("arrow", columns=dataset.format["columns"])
        self.name = name
        self.origin = dataset

    def identity(self) -> list[Any]:
        return ["datasets", len(self.dataset), str(self.dataset.features), getattr(self.origin, "_fingerprint", "")]

    def scan(self) -> tuple[list[Unit], dict[str, str] | None]:
        rows = len(self.dataset)
        units = [Unit(f"{self.name}@{start}", min(self.ROWS, rows - start), (start, min(start + self.ROWS, rows)))
                 for start in range(0, rows, self.ROWS)]
        table = self.dataset.data.table  # all rows, also those that the indices skip
        shown = self.dataset.format["columns"]  # a format may hide columns
        missing = {name for name in shown if table.column(name).null_count}
        schema = self.dataset.features.arrow_schema
        return units, self.table_schema([field for field in schema if field.name in shown], missing)

    def batches(self, unit: Unit) -> Iterator[Any]:
        start, stop = unit.at
        for first in range(start, stop, BATCH):
            yield from self.dataset[first:min(first + BATCH, stop)].combine_chunks().to_batches()
