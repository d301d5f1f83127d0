# SPDX-License-Identifier: Apache-2.0
"""Reads Arrow tables and Parquet files column by column, as arrays, without Python objects.

    Arrow type                                            column type
    numbers, bool                                         the same
    timestamp, date, time, duration                       integers that say what they stand for (_schema/times.py); text if schema= has str
    string                                                str
    decimal                                               str; a number if schema= has one
    binary                                                bytes
    list<number>                                          "T[*]"
    fixed_size_list<number, n>                            "T[n]"
    struct of bytes and path (a file, as datasets does)   bytes
    map, other lists and structs                          json
    null, list<null>                                      "json?", which any type of another file replaces
    dictionary, run-end encoded                           that of the values
    anything else                                         refused; the error names the column. Not if schema= leaves it out

`map` and other functions get Python's values of times, decimals, maps and what no type stores. A column that schema= leaves out is not
read, unless functions get the samples."""
from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .._schema import times
from .._schema.columns import Columns, check_column_names
from .._schema.types import ITEMS, TypeInfo, describe
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
    """Return the type of numbers and times; None for anything else."""
    types = pa.types
    if types.is_timestamp(kind):
        return f"int64(timestamp_{kind.unit}{'' if kind.tz is None else '_utc'})"
    if types.is_date(kind):
        return "int32(date)"
    if types.is_time(kind) or types.is_duration(kind):
        return f"int64({'time' if types.is_time(kind) else 'duration'}_{kind.unit})"
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
    kind = _plain(pa, kind)
    number = _number(pa, kind)
    if number is not None:
        return number
    if _is_text(pa, kind) or types.is_decimal(kind):
        return "str"
    if types.is_null(kind):
        return "json?"
    if types.is_binary(kind) or types.is_large_binary(kind) or _is_view(pa, kind, "binary") or types.is_fixed_size_binary(kind) or \
            _is_file(pa, kind):
        return "bytes"
    if types.is_fixed_size_list(kind) and _number(pa, kind.value_type):
        return f"{_number(pa, kind.value_type)}[{kind.list_size}]"
    if (types.is_list(kind) or types.is_large_list(kind) or _is_view(pa, kind, "list")) and _number(pa, kind.value_type):
        return f"{_number(pa, kind.value_type)}[*]"
    if (types.is_list(kind) or types.is_large_list(kind)) and types.is_null(kind.value_type):
        return "json?"  # empty lists
    if types.is_nested(kind) and _is_json(pa, kind):
        return "json"
    raise UnsupportedError(f'column "{name}": no column type stores Arrow\'s {kind}; cast it, or convert it in '
                           'map=')


def _plain(pa: Any, kind: Any) -> Any:
    """Return the type of the values behind a dictionary, an extension or run ends."""
    while True:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        elif pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
            kind = kind.value_type
        else:
            return kind


def _is_view(pa: Any, kind: Any, of: str) -> bool:
    """Return True for binary_view, list_view and large_list_view, which older versions lack."""
    return any(is_view(kind) for name in (f"is_{of}_view", f"is_large_{of}_view") if (is_view := getattr(pa.types, name, None)))


def _is_text(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or _is_view(pa, kind, "string"))


def _is_python(pa: Any, kind: Any) -> bool:
    """Return True for what functions get as Python's value, and not as it is stored."""
    kind = _plain(pa, kind)
    if pa.types.is_nested(kind):
        return pa.types.is_map(kind) or any(_is_python(pa, kind.field(i).type) for i in range(kind.num_fields))
    return bool(pa.types.is_temporal(kind) or pa.types.is_decimal(kind))


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
    kind = _plain(pa, kind)
    if pa.types.is_struct(kind):
        return all(_is_json(pa, field.type) for field in kind)
    if pa.types.is_map(kind):
        return _is_json(pa, kind.key_type) and _is_json(pa, kind.item_type)
    if pa.types.is_nested(kind):
        return hasattr(kind, "value_type") and _is_json(pa, kind.value_type)
    return bool(_number(pa, kind) or _is_text(pa, kind) or pa.types.is_null(kind) or pa.types.is_decimal(kind))


def _is_stored(field: Any) -> bool:
    try:
        column_type(field.name, field.type)
    except UnsupportedError:
        return False
    return True


class _Rows(Columns):
    """Columns whose rows have more: values of Python."""

    values: dict[str, list[Any]]
    names: list[str]

    def rows(self, functions: bool = False) -> Iterator[dict[str, Any]]:
        stored = super().rows(functions) if self.columns else ({} for _ in range(self.count))
        for i, sample in enumerate(stored):
            yield {name: self.values[name][i] if name in self.values else sample[name] for name in self.names}


def to_columns(batch: Any, given: Mapping[str, str] | None = None, functions: bool = False, rows: bool = False) -> Columns:
    """Return a RecordBatch as Columns.

    given: types that the user gave. functions: rows have Python's values of times, decimals and maps. rows: and of columns that no type
    stores; else these are an UnsupportedError."""
    import numpy
    pa = import_pyarrow("an Arrow table")
    made = _Rows.__new__(_Rows)
    made.columns, made.types, made.missing, made.keys, made.count = {}, {}, {}, None, batch.num_rows
    made.values, made.names = {}, batch.schema.names
    for field, array in zip(batch.schema, batch.columns, strict=True):
        wanted = describe(given[field.name]) if given and field.name in given else None
        try:
            if (functions or wanted is not None and wanted.item == "json") and _is_python(pa, field.type):
                made.values[field.name] = _python(field.name, array)
            else:
                _add_column(pa, numpy, made, field, array, wanted)
        except (DataError, UnsupportedError):
            if not rows:
                raise
            made.values[field.name] = array.to_pylist()
            made.missing.pop(field.name, None)
    return made


def _python(name: str, array: Any) -> list[Any]:
    """Return a column as Python's values, maps as dicts."""
    try:
        return list(array.to_pylist(maps_as_pydicts="strict"))
    except (KeyError, ValueError, OverflowError, ImportError) as refused:
        raise DataError(f'column "{name}": {refused.args[0] if refused.args else refused}') from None


def _add_column(pa: Any, numpy: Any, made: Columns, field: Any, array: Any, wanted: TypeInfo | None = None) -> None:
    """Add a column of a RecordBatch. wanted: the type that the user gave."""
    kind = column_type(field.name, field.type)
    while not array.type.equals(_plain(pa, array.type)):
        array = _decoded(pa, array)
    item = "" if wanted is None else wanted.item
    if item not in ("", "str") and pa.types.is_decimal(array.type):
        array, kind = _cast(pa, field.name, array, item), item
    elif kind == "str" and pa.types.is_decimal(array.type) or item == "str" and pa.types.is_temporal(array.type):
        as_text = str if pa.types.is_decimal(array.type) else times.as_text
        texts = [None if value is None else as_text(value) for value in _python(field.name, array)]
        array, kind = pa.array(texts, pa.large_string()), "str"
    if wanted is not None and describe(kind).meaning and not wanted.meaning:
        raise DataError(f'column "{field.name}" holds times, {kind}, and schema= has {item}; give it this type, or str')
    if array.null_count > 0 and kind != "json":  # also "json?", whose type other files may know
        made.missing[field.name] = numpy.asarray(array.is_null().to_numpy(zero_copy_only=False))
    if _is_file(pa, array.type):
        array = array.field("bytes")
        if array.null_count > 0:
            raise DataError(f'column "{field.name}": a file holds a path but no bytes; embed the files (datasets: '
                            'embed_external_files)')
    made.columns[field.name] = _take(pa, numpy, field.name, kind, array)
    made.types[field.name] = kind


def _decoded(pa: Any, array: Any) -> Any:
    if isinstance(array, pa.ExtensionArray):
        return array.storage
    if pa.types.is_dictionary(array.type):
        return array.dictionary_decode()
    import pyarrow.compute
    return pyarrow.compute.run_end_decode(array)


def _cast(pa: Any, name: str, array: Any, wanted: str) -> Any:
    """Return decimals as the numbers that the user asked for: floats round, integers are exact."""
    try:
        return array.cast({"float32": pa.float32(), "float64": pa.float64()}.get(wanted) or getattr(pa, wanted)())
    except (pa.ArrowException, AttributeError) as refused:
        raise DataError(f'column "{name}": decimals as {wanted}: {str(refused).splitlines()[0][:200]}') from None


def _take(pa: Any, numpy: Any, name: str, kind: str, array: Any) -> tuple[Any, Any]:
    """Return (values, offsets) of an Arrow array, as views if Arrow's memory has the layout of Columns."""
    if kind in ("json", "json?"):
        try:
            parts = [json_text(name, value).encode() for value in _python(name, array)]
        except ValueError as refused:
            raise DataError(f"{refused}; leave the column out by schema= or columns=, or change the value in map=") from None
        offsets = numpy.zeros(len(parts) + 1, dtype=numpy.int64)
        numpy.cumsum([len(part) for part in parts], out=offsets[1:])
        return b"".join(parts), offsets
    if kind in ("str", "bytes"):
        large = pa.large_string() if kind == "str" else pa.large_binary()
        if _is_view(pa, array.type, "string") or _is_view(pa, array.type, "binary") or pa.types.is_fixed_size_binary(array.type):
            array = array.cast(large)
        wide = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
        _, ends, data = array.buffers()
        return (b"" if data is None else data), _offsets(numpy, ends, array.offset, len(array), wide)
    if "," in kind or pa.types.is_fixed_size_list(array.type):
        return _take_tensors(pa, numpy, name, kind, array)
    if "[" in kind:
        if _is_view(pa, array.type, "list"):  # casts to lists give wrong offsets (pyarrow 26)
            sizes = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
            return _numbers(pa, numpy, array.flatten(), name), numpy.concatenate([[0], numpy.cumsum(sizes)]).astype(numpy.int64)
        wide = pa.types.is_large_list(array.type)
        return _numbers(pa, numpy, array.values, name), _offsets(numpy, array.buffers()[1], array.offset, len(array), wide)
    array = _integers(pa, array)
    return _numbers(pa, numpy, array.fill_null(False if kind == "bool" else 0) if array.null_count else array,
                    name), None


def _integers(pa: Any, array: Any) -> Any:
    """Return times as the integers that are stored, other arrays as they are."""
    types = pa.types
    if not types.is_temporal(array.type):
        return array
    if types.is_date(array.type):
        return array.cast(pa.date32()).view(pa.int32())
    return array.view(pa.int32()).cast(pa.int64()) if types.is_time32(array.type) else array.view(pa.int64())


def _numbers(pa: Any, numpy: Any, array: Any, name: str) -> Any:
    if array.null_count > 0:
        raise DataError(f'column "{name}": a null inside a list; fill it, or convert the list in map=')
    return numpy.ascontiguousarray(_integers(pa, array).to_numpy(zero_copy_only=False))


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
        if column_type(field.name, field.type).startswith("json"):  # Arrow's own bytes: many times faster than JSON
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

    given: Mapping[str, str] | None = None
    wanted: frozenset[str] | None = None
    functions = rows = False
    checked = True

    def choose(self, schema: Mapping[str, str] | None, *, only: bool, functions: bool, rows: bool, checked: bool) -> None:
        self.given, self.functions, self.rows, self.checked = schema, functions, rows, checked
        self.wanted = frozenset(schema) if schema is not None and only else None

    def chosen(self, names: Iterable[str]) -> list[str]:
        """Return the names of columns that are read, of those that there are."""
        return [name for name in names if self.wanted is None or name in self.wanted]

    def table_schema(self, schema: Any, missing: set[str]) -> dict[str, str] | None:
        """Return the schema for an Arrow schema; None if functions make the samples. Columns in `missing` hold nulls."""
        check_column_names(field.name for field in schema)
        fields = [field for field in schema if self.wanted is None or field.name in self.wanted]
        if self.rows and not all(map(_is_stored, fields)):
            return None
        types = {field.name: column_type(field.name, field.type) for field in fields}
        return {name: kind + ("?" if name in missing and kind != "json?" else "") for name, kind in types.items()}

    def batches(self, unit: Unit) -> Iterator[Any]:
        raise NotImplementedError

    def read(self, unit: Unit) -> Iterator[Any]:
        for batch in self.batches(unit):
            names = self.chosen(batch.schema.names)
            batch = batch if len(names) == batch.num_columns else batch.select(names)
            for start in range(0, batch.num_rows, BATCH):
                yield batch.slice(start, BATCH)

    def decode(self, raw: Any) -> Any:
        return to_columns(raw, self.given, self.functions, self.rows)


def read_table(source: Any) -> Any:
    """Return what a pyarrow Dataset, Scanner, ParquetFile or RecordBatchReader reads, as a Table in memory; anything else as it is. A
    reader and a scanner can be read once."""
    name = next((one.__name__ for one in type(source).__mro__ if one.__name__ in _READ_BY and one.__module__.startswith("pyarrow.")), None)
    return source if name is None else getattr(source, _READ_BY[name])()


# What reads all of an object of pyarrow.
_READ_BY = {"Dataset": "to_table", "Scanner": "to_table", "ParquetFile": "read", "RecordBatchReader": "read_all"}


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
        return pyarrow.parquet.ParquetFile(self.path, memory_map=True, page_checksum_verification=self.checked)

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
