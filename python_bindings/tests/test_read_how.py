# SPDX-License-Identifier: Apache-2.0
"""docs/types.md: each row of its table is built. And one property: what several sources can carry, they give alike."""
from __future__ import annotations

import datetime
import decimal
import io
import json
import math
import re
import struct
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import numpy
import pytest
from built import build, read
from hypothesis import strategies

import rankstore
from rankstore.errors import DataError, UnsupportedError

PAGE = Path(__file__).parents[1] / "docs" / "types.md"


def rows() -> list[tuple[str, str, str, str]]:
    found, source = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split(" | ")] if line.startswith("| ") else []
        if len(cells) < 4 or cells[1] in ("given",):
            continue
        source = cells[0].lstrip("| ") or source
        found.append((source, cells[1].strip("`"), cells[2], cells[3].rstrip("| ").strip("`")))
    return found


def parts(given: str) -> tuple[str, Any]:
    """"NAME: VALUE" of an archive or MDS."""
    name, _, value = given.partition(": ")
    return name, evaluated(value)


def npy(values: Any, dtype: str) -> bytes:
    file = io.BytesIO()
    numpy.save(file, numpy.array(values, dtype))
    return file.getvalue()


def png(image: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def evaluated(text: str) -> Any:
    names: dict[str, Any] = {"numpy": numpy, "nan": math.nan, "inf": math.inf, "npy": npy, "png": png, "datetime": datetime,
                             "decimal": decimal}
    if "Image." in text:
        names["Image"] = pytest.importorskip("PIL.Image")
    for name, module in (("pa", "pyarrow"), ("pandas", "pandas"), ("torch", "torch")):
        if re.search(rf"\b{name}\.", text):
            names[name] = pytest.importorskip(module)
    if re.match(r"(Value|Sequence|Array2D|ClassLabel)\(", text):
        datasets = pytest.importorskip("datasets")
        names |= {name: getattr(datasets, name) for name in ("Value", "Sequence", "Array2D", "ClassLabel")}
    return eval(text, names)  # noqa: S307


def lines_of(given: str, folder: Path) -> list[Any]:
    (folder / "a.jsonl").write_text(f'{{"x": {given}}}\n')
    (folder / "b.json").write_text(f'[{{"x": {given}}}]')
    return [str(folder / "a.jsonl"), str(folder / "b.json")]


def csv_of(given: str, folder: Path) -> list[Any]:
    (folder / "a.csv").write_text(f"x,y\n{given},1\n")
    return [str(folder / "a.csv")]


def arrow_of(given: str, folder: Path) -> list[Any]:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as parquet
    table = pa.table({"x": evaluated(given)})
    parquet.write_table(table, folder / "a.parquet")
    with pa.OSFile(str(folder / "a.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return [table, str(folder / "a.parquet"), str(folder / "a.arrow")]


def values_of(given: str, folder: Path) -> list[Any]:
    return [[{"x": evaluated(given)}], iter([{"x": evaluated(given)}])]


def frame_of(given: str, folder: Path) -> list[Any]:
    return [pytest.importorskip("pandas").DataFrame({"x": evaluated(given)})]


def hugging_face_of(given: str, folder: Path) -> list[Any]:
    datasets = pytest.importorskip("datasets")
    kind, value = evaluated(given)
    return [datasets.Dataset.from_dict({"x": [value]}, features=datasets.Features({"x": kind}))]


def archive_of(given: str, folder: Path) -> list[Any]:
    import zipfile
    name, data = parts(given)
    with zipfile.ZipFile(folder / "a.zip", "w") as archive:
        archive.writestr(f"s.{name}", data)
    with tarfile.open(folder / "a.tar", "w") as tar:
        info = tarfile.TarInfo(f"s.{name}")
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))
    return [str(folder / "a.tar"), str(folder / "a.zip")]


def mds_of(given: str, folder: Path) -> list[Any]:
    kind, data = parts(given)
    fixed = 8 if kind == "int" else None
    sample = (b"" if fixed else struct.pack("<I", len(data))) + data
    (folder / "mds").mkdir()
    (folder / "mds/shard.00000.mds").write_bytes(struct.pack("<III", 1, 12, 12 + len(sample)) + sample)
    shard = {"format": "mds", "version": 2, "samples": 1, "column_names": ["x"], "column_encodings": [kind], "column_sizes": [fixed],
             "compression": None, "hashes": [], "zip_data": None, "size_limit": 1 << 26,
             "raw_data": {"basename": "shard.00000.mds", "bytes": 12 + len(sample), "hashes": {}}}
    (folder / "mds/index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))
    return [str(folder / "mds")]


def megatron_of(given: str, folder: Path) -> list[Any]:
    kind, values = evaluated(given)
    array = numpy.array(values, kind)
    code = {numpy.uint16: 8, numpy.int32: 4}[kind]
    (folder / "a.bin").write_bytes(array.tobytes())
    (folder / "a.idx").write_bytes(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, 1, 2) + struct.pack("<IQ", len(array), 0)
                                   + struct.pack("<QQ", 0, 1))
    return [str(folder / "a.bin")]


MAKERS: dict[str, Callable[[str, Path], list[Any]]] = {
    "JSON lines, arrays of JSON": lines_of, "CSV": csv_of, "Parquet, Arrow": arrow_of, "Python's values": values_of, "numpy": values_of,
    "torch": values_of, "PIL": values_of, "pandas": frame_of, "Hugging Face": hugging_face_of, "WebDataset (tar), zip": archive_of,
    "MDS": mds_of,
    "Megatron": megatron_of}


def test_the_table_has_all_sources() -> None:
    assert {source for source, *_ in rows()} == set(MAKERS) and len(rows()) > 70


def plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value


def same(a: Any, b: Any) -> bool:
    """Equal, also in type; NaN equals NaN."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(one, other) for one, other in zip(a, b))
    return type(a) is type(b) and (a == b or a != a and b != b)


@pytest.mark.parametrize(("source", "given", "stored", "shown"), rows())
def test_a_row_is_as_the_page_says(source: str, given: str, stored: str, shown: str, tmp_path: Path) -> None:
    for i, one in enumerate(MAKERS[source](given, tmp_path)):
        if "Error: " in stored:
            kind = UnsupportedError if "Unsupported" in stored else DataError
            with pytest.raises(kind, match=re.escape(stored.partition("`")[2].strip("`"))):
                build(one, tmp_path / str(i))
            continue
        build(one, tmp_path / str(i))
        with rankstore.open(tmp_path / str(i)) as ds:
            name = "tokens" if source == "Megatron" else "x" if "x" in ds.schema else next(one for one in ds.schema if one != "__key__")
            name = given.partition(":")[0] if given.partition(":")[0] in ds.schema else name
            assert ds.schema[name].text == stored.strip("`"), (source, given)
            assert same(plain(ds[0][name]), evaluated(shown)), (given, ds[0][name])


# ---- one value, several sources

texts = strategies.text(strategies.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=6)
names = strategies.text(strategies.characters(codec="utf-8", exclude_characters="\0"), max_size=6)  # JSON's names have no NUL
whole = strategies.integers(-2**63, 2**63 - 1)
reals = strategies.floats(allow_nan=False, allow_infinity=False)
nested = strategies.recursive(strategies.none() | strategies.booleans() | whole | strategies.integers(2**63, 2**64 - 1) | reals | texts,
                              lambda inner: strategies.lists(inner, max_size=3) | strategies.dictionaries(names, inner, max_size=3),
                              max_leaves=8)
KINDS: dict[str, tuple[Any, str]] = {  # values, and what Arrow calls them; "" if it cannot carry them
    "int": (whole, "int64"), "large": (strategies.integers(0, 2**64 - 1), "uint64"), "real": (reals | strategies.just(math.nan), "float64"),
    "bool": (strategies.booleans(), "bool_"), "text": (texts, "string"),
    "ints": (strategies.lists(whole, min_size=1, max_size=4), "list:int64"),
    "reals": (strategies.lists(reals, min_size=1, max_size=4), "list:float64"),
    "object": (strategies.dictionaries(names, nested, max_size=4), "")}


@strategies.composite
def tables(draw: Any) -> tuple[list[dict[str, Any]], dict[str, str]]:
    chosen = draw(strategies.lists(strategies.sampled_from(sorted(KINDS)), min_size=1, max_size=4, unique=True))
    missing = {kind for kind in chosen if kind != "object" and draw(strategies.booleans())}
    count = draw(strategies.integers(1, 6))
    samples = [{kind: draw(strategies.none() | KINDS[kind][0]) if kind in missing and i else draw(KINDS[kind][0]) for kind in chosen}
               for i in range(count)]
    return samples, {kind: KINDS[kind][1] for kind in chosen}


def arrow_table(samples: list[dict[str, Any]], kinds: dict[str, str]) -> Any:
    import pyarrow as pa
    types = {name: pa.list_(getattr(pa, kind[5:])()) if kind.startswith("list:") else getattr(pa, kind)() for name, kind in kinds.items()}
    return pa.table({name: pa.array([sample[name] for sample in samples], types[name]) for name in kinds})


@hypothesis.given(table=tables())
@hypothesis.settings(max_examples=25, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_list_generator_lines_map_and_arrow_give_equal_datasets(table: tuple[list[dict[str, Any]], dict[str, str]]) -> None:
    samples, kinds = table
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in.jsonl").write_text("".join(json.dumps(sample) + "\n" for sample in samples))
        sources: dict[str, tuple[Any, dict[str, Any]]] = {
            "list": (samples, {}), "generator": (iter(samples), {}), "lines": (str(folder / "in.jsonl"), {}),
            "map": (str(folder / "in.jsonl"), {"map": dict})}
        if all(kinds.values()):
            pytest.importorskip("pyarrow")
            sources["arrow"] = arrow_table(samples, kinds), {}
        for kind, (source, options) in sources.items():
            build(source, folder / kind, **options)
            found = [{column: plain(value) for column, value in sample.items()} for sample in read(folder / kind)]
            assert all(same(json_order(one), json_order(given)) for one, given in zip(found, samples, strict=True)), (kind, found, samples)


def json_order(sample: dict[str, Any]) -> Any:
    """A sample as lists, whose comparison knows NaN."""
    def listed(value: Any) -> Any:
        if isinstance(value, dict):
            return [["dict"], *([name, listed(one)] for name, one in sorted(value.items()))]
        return [listed(one) for one in value] if isinstance(value, list) else value
    return listed(sample)




# ---- Arrow's types

@strategies.composite
def arrow_columns(draw: Any) -> Any:
    """A column of a random type with random nulls, and the values that it holds."""
    pa = pytest.importorskip("pyarrow")
    numbers = {"int8": 8, "int32": 32, "uint16": -16, "int64": 64, "uint64": -64}
    item = draw(strategies.sampled_from([*numbers, "float64", "bool_", "string", "large_string", "binary"]))
    bits = abs(numbers.get(item, 0))
    one = (strategies.integers(0, 2**bits - 1) if numbers.get(item, 0) < 0 else strategies.integers(-2**(bits - 1), 2**(bits - 1) - 1)) \
        if bits else {"float64": reals, "bool_": strategies.booleans(), "binary": strategies.binary(max_size=5)}.get(item, texts)
    kind = getattr(pa, item)()
    shape = draw(strategies.sampled_from(["one", "list", "large", "fixed", "struct"] if item != "binary" else ["one"]))
    if shape in ("list", "large"):
        kind, one = (pa.list_ if shape == "list" else pa.large_list)(kind), strategies.lists(one, max_size=3)
    elif shape == "fixed":
        kind, one = pa.list_(kind, 2), strategies.lists(one, min_size=2, max_size=2)
    elif shape == "struct":
        kind, one = pa.struct([("a", kind), ("b", pa.string())]), strategies.fixed_dictionaries({"a": strategies.none() | one, "b": texts})
    values = draw(strategies.lists(strategies.none() | one, min_size=1, max_size=7))
    return pa.array(values, kind), values


@hypothesis.given(column=arrow_columns(), begin=strategies.integers(0, 3), file=strategies.booleans())
@hypothesis.settings(max_examples=40, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_arrow_columns_of_any_type_hold_what_they_held(column: Any, begin: int, file: bool) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet
    array, values = column
    begin = min(begin, len(values) - 1)
    table = pa.table({"x": array}).slice(begin)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if file:
            parquet.write_table(table, folder / "in.parquet", row_group_size=2)
        build(str(folder / "in.parquet") if file else table, folder / "out")
        found = [plain(sample["x"]) for sample in read(folder / "out")]
    pairs = zip(found, values[begin:], strict=True)
    assert all(same(json_order({"x": one}), json_order({"x": given})) for one, given in pairs), (found, values)
