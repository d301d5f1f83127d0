# SPDX-License-Identifier: Apache-2.0
"""Each source gives back what its own library reads from it."""
from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy
import pytest
from built import build, dataset_id, keys, lengths, read, same

import rankstore
from rankstore import Columns

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def rows(count: int) -> list[dict[str, Any]]:
    return [{"tokens": list(range(i % 5)), "text": f"sample é {i}", "n": i, "x": i / 2} for i in range(count)]


def wanted(samples: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**sample, "tokens": numpy.array(sample["tokens"], numpy.int64)} for sample in samples]


def jsonl(path: Path, samples: list[dict[str, Any]]) -> Path:
    opened = gzip.open(path, "wt") if path.suffix == ".gz" else open(path, "w")
    with opened as file:
        for sample in samples:
            file.write(json.dumps(sample) + "\n")
    return path


# ---- lines -------------------------------------------------------------------------------------

def test_jsonl_in_the_core_and_in_python_are_alike(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "a.jsonl", rows(100))
    build(source, tmp_path / "core")
    build(source, tmp_path / "python", map=dict)
    same(read(tmp_path / "core"), wanted(rows(100)))
    same(read(tmp_path / "python"), wanted(rows(100)))
    assert keys(tmp_path / "core") == keys(tmp_path / "python")


def test_jsonl_ranges_lose_no_line(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "a.jsonl", rows(1000))
    for size in (4096, 5000, 1 << 20):
        build(source, tmp_path / str(size), map=dict, unit_size=size)
        same(read(tmp_path / str(size)), wanted(rows(1000)))


def test_line_numbers_of_ranges(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "a.jsonl", rows(1000))
    for size in (4096, 5000, 1 << 20):
        with pytest.raises(rankstore.CallbackError) as raised:
            build(source, tmp_path / str(size), map=lambda sample: sample if sample["n"] != 777 else 1 // 0, unit_size=size)
        assert raised.value.sample == "a.jsonl:778"


def test_compressed_lines(tmp_path: Path) -> None:
    build(jsonl(tmp_path / "a.jsonl.gz", rows(50)), tmp_path / "gz")
    same(read(tmp_path / "gz"), wanted(rows(50)))
    assert keys(tmp_path / "gz")[49] == b"a.jsonl:49"  # the C core's, as of the file without its ending


@pytest.mark.parametrize("ending, pack", [(".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress),
                                          (".zst", lambda data: pyarrow.compress(data, "zstd", asbytes=True))])
def test_compressed(tmp_path: Path, ending: str, pack: Any) -> None:
    packed = pack(jsonl(tmp_path / "plain.jsonl", rows(3000)).read_bytes())
    (tmp_path / f"a.jsonl{ending}").write_bytes(packed)
    build(tmp_path / f"a.jsonl{ending}", tmp_path / "core")
    build(tmp_path / f"a.jsonl{ending}", tmp_path / "python", map=lambda sample: sample)
    same(read(tmp_path / "core"), wanted(rows(3000)))
    same(read(tmp_path / "python"), wanted(rows(3000)))
    (tmp_path / f"cut.jsonl{ending}").write_bytes(packed[:-20])
    with pytest.raises(rankstore.DataError, match=rf"cut.jsonl{ending}: damaged .*at about byte \d+ of {len(packed) - 20}"):
        build(tmp_path / f"cut.jsonl{ending}", tmp_path / "cut")
    with pytest.raises(rankstore.DataError, match=r"max_total \(1000 bytes\)"):
        build(tmp_path / f"a.jsonl{ending}", tmp_path / "small", max_total=1000)
    plain = jsonl(tmp_path / "b.jsonl", rows(50)).read_bytes()
    (tmp_path / "b.jsonl.zst").write_bytes(pyarrow.compress(plain, "zstd", asbytes=True))
    build(tmp_path / "b.jsonl.zst", tmp_path / "zst")
    same(read(tmp_path / "zst"), wanted(rows(50)))


def test_text_and_folder(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("eins\nzw\u00f6i\r\n\ndrei".encode())
    build(tmp_path / "a.txt", tmp_path / "text", map=lambda sample: sample)
    assert [sample["text"] for sample in read(tmp_path / "text")] == ["eins", "zw\u00f6i", "", "drei"]
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "b.png").write_bytes(b"\0b")
    (folder / "sub" / "a.png").write_bytes(b"\xffa")
    build(folder, tmp_path / "files", map=lambda sample: {"name": sample["path"], "data": sample["data"]})
    same(read(tmp_path / "files"), [{"name": "b.png", "data": b"\0b"}, {"name": "sub/a.png", "data": b"\xffa"}])


def test_globs_and_what_is_not_there(tmp_path: Path) -> None:
    jsonl(tmp_path / "b.jsonl", rows(20)[10:])
    jsonl(tmp_path / "a.jsonl", rows(20)[:10])
    build(str(tmp_path / "*.jsonl"), tmp_path / "out")
    same(read(tmp_path / "out"), wanted(rows(20)))
    with pytest.raises(rankstore.NotFoundError, match=r"\*.csv: matches no file"):
        build(str(tmp_path / "*.csv"), tmp_path / "none")


def test_filter_of_lines_sees_plain_values(tmp_path: Path) -> None:
    source = jsonl(tmp_path / "a.jsonl", rows(40))
    seen = []

    def keep(sample: dict[str, Any]) -> bool:
        seen.append(sample)
        return bool(sample["tokens"].sum() > 2 and sample["n"] % 2)

    report = build(source, tmp_path / "out", filter=keep)
    chosen = [sample for sample in rows(40) if sum(sample["tokens"]) > 2 and sample["n"] % 2]
    same(read(tmp_path / "out"), wanted(chosen))
    assert report.filtered == 40 - len(chosen)
    same(seen, wanted(rows(40)))


# ---- Arrow -------------------------------------------------------------------------------------

def table(count: int) -> Any:
    types = pyarrow.schema([("tokens", pyarrow.list_(pyarrow.uint16())), ("text", pyarrow.string()), ("raw", pyarrow.large_binary()),
                            ("flag", pyarrow.bool_()), ("x", pyarrow.float32()), ("pair", pyarrow.list_(pyarrow.int32(), 2)),
                            ("meta", pyarrow.struct([("a", pyarrow.int64())]))])
    return pyarrow.table({"tokens": [list(range(i % 7)) for i in range(count)], "text": [f"é{i}" for i in range(count)],
                          "raw": [bytes([i % 256]) * (i % 3) for i in range(count)], "flag": [i % 3 == 0 for i in range(count)],
                          "x": [i / 4 for i in range(count)], "pair": [[i, -i] for i in range(count)],
                          "meta": [{"a": i} for i in range(count)]}, schema=types)


def as_samples(table: Any) -> list[dict[str, Any]]:
    return [{**row, "tokens": numpy.array(row["tokens"], numpy.uint16), "pair": numpy.array(row["pair"], numpy.int32)}
            for row in table.to_pylist()]


def test_parquet(tmp_path: Path) -> None:
    parquet.write_table(table(1000), tmp_path / "a.parquet", row_group_size=300)
    report = build(tmp_path / "a.parquet", tmp_path / "out")
    assert (report.samples, report.units) == (1000, 4)
    same(read(tmp_path / "out"), as_samples(table(1000)))
    build(tmp_path / "a.parquet", tmp_path / "mapped", map=lambda sample: {**sample, "n": len(sample["tokens"])})
    same(read(tmp_path / "mapped"), [{**sample, "n": len(sample["tokens"])} for sample in as_samples(table(1000))])


def test_arrow_files_tables_and_slices(tmp_path: Path) -> None:
    import pyarrow.feather
    pyarrow.feather.write_feather(table(500), tmp_path / "a.feather", chunksize=100)
    with pyarrow.OSFile(str(tmp_path / "b.arrow"), "wb") as file, pyarrow.ipc.new_stream(file, table(1).schema) as writer:
        writer.write_table(table(500), max_chunksize=100)
    sliced = pyarrow.concat_tables([table(600).slice(0, 123), table(600).slice(123, 377)])
    for name, source in (("feather", tmp_path / "a.feather"), ("stream", tmp_path / "b.arrow"), ("table", sliced)):
        build(source, tmp_path / name)
        same(read(tmp_path / name), as_samples(table(500)))


def test_arrow_nulls_and_dictionaries(tmp_path: Path) -> None:
    given = pyarrow.table({"t": pyarrow.array([[1], None, []], pyarrow.list_(pyarrow.int32())), "s": ["a", None, "c"],
                           "n": pyarrow.array([1, None, 3], pyarrow.int8()), "d": pyarrow.array(["x", "y", "x"]).dictionary_encode()})
    parquet.write_table(given, tmp_path / "a.parquet")
    for name, source in (("table", given), ("parquet", tmp_path / "a.parquet")):
        build(source, tmp_path / name)
        found = read(tmp_path / name)
        assert found[1]["t"] is None and found[1]["s"] is None and found[1]["n"] is None
        assert found[0]["t"].dtype == numpy.int32 and found[2]["t"].shape == (0,)
        assert [sample["d"] for sample in found] == ["x", "y", "x"] and found[2]["n"] == 3
    with pytest.raises(rankstore.DataError, match='column "t": a null inside a list'):
        build(pyarrow.table({"t": [[1, None]]}), tmp_path / "inside")
    with pytest.raises(rankstore.UnsupportedError, match='column "when"'):
        build(pyarrow.table({"when": pyarrow.array([pyarrow.MonthDayNano([1, 2, 3])])}), tmp_path / "when")


def test_huggingface_with_indices(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_dict({"tokens": [[i, i + 1] for i in range(300)], "text": [f"t{i}" for i in range(300)],
                                       "label": [i % 3 for i in range(300)]}).cast_column("label", datasets.ClassLabel(3))
    chosen = made.shuffle(seed=3).filter(lambda row: row["label"] != 1, keep_in_memory=True)
    build(chosen, tmp_path / "out")
    same(read(tmp_path / "out"), [{**row, "tokens": numpy.array(row["tokens"])} for row in chosen])
    build(made.to_iterable_dataset(), tmp_path / "iterable")
    assert [sample["text"] for sample in read(tmp_path / "iterable")] == made["text"][:]
    transformed = made.with_transform(lambda rows: {"n": [text.upper() for text in rows["text"]]})
    build(transformed, tmp_path / "transform")
    assert [sample["n"] for sample in read(tmp_path / "transform")] == [f"T{i}" for i in range(300)]


# ---- Megatron, MDS, tar --------------------------------------------------------------------------

def megatron(base: Path, sequences: list[Any], code: int = 8) -> Path:
    sizes = numpy.array([len(one) for one in sequences], "<i4")
    data = numpy.concatenate(sequences)
    offsets = (numpy.cumsum(sizes, dtype="<i8") - sizes) * data.itemsize
    base.with_suffix(".bin").write_bytes(data.tobytes())
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, len(sizes), len(sizes) + 1)
    base.with_suffix(".idx").write_bytes(head + sizes.tobytes() + offsets.tobytes() + numpy.arange(len(sizes) + 1, dtype="<i8").tobytes())
    return base.with_suffix(".bin")


def test_megatron(tmp_path: Path) -> None:
    sequences = [numpy.arange(i % 50, dtype=numpy.uint16) for i in range(500)]
    megatron(tmp_path / "m", sequences)
    for out in both(tmp_path / "m", tmp_path, unit_size=4096):
        same(read(out), [{"tokens": sequence} for sequence in sequences])


@pytest.mark.parametrize("at, data, says", [(9, b"\2", "version 2"), (17, b"\x63", "dtype code 99"), (18, b"\xff" * 6, "do not fit"),
                                             (34, b"\xff\xff\xff\x7f", "sequence 0 lies outside"), (0, b"X", "not a Megatron index")])
def test_megatron_hostile(tmp_path: Path, at: int, data: bytes, says: str) -> None:
    megatron(tmp_path / "m", [numpy.arange(5, dtype=numpy.uint16)] * 3)
    index = bytearray((tmp_path / "m.idx").read_bytes())
    index[at:at + len(data)] = data
    (tmp_path / "m.idx").write_bytes(index)
    with pytest.raises(rankstore.RankStoreError, match=says):
        build(tmp_path / "m.bin", tmp_path / "out")


def mds(folder: Path, shards: list[list[dict[str, bytes]]], encodings: dict[str, tuple[str, int | None]], zipped: bool) -> Path:
    folder.mkdir()
    index: dict[str, Any] = {"version": 2, "shards": []}
    names = sorted(encodings)
    for number, samples in enumerate(shards):
        bodies = []
        for sample in samples:
            open_sizes = [len(sample[name]) for name in names if encodings[name][1] is None]
            bodies.append(struct.pack(f"<{len(open_sizes)}I", *open_sizes) + b"".join(sample[name] for name in names))
        head = 4 * (len(samples) + 2)
        ends = numpy.cumsum([head, *(len(body) for body in bodies)]).astype("<u4")
        raw = struct.pack("<I", len(samples)) + ends.tobytes() + b"".join(bodies)
        name = f"shard.{number:05}.mds"
        shard = {"format": "mds", "samples": len(samples), "column_names": names, "compression": "zstd" if zipped else None,
                 "column_encodings": [encodings[one][0] for one in names], "column_sizes": [encodings[one][1] for one in names],
                 "raw_data": {"basename": name, "bytes": len(raw)}, "zip_data": None}
        if zipped:
            raw = pyarrow.compress(raw, "zstd", asbytes=True)
            shard["zip_data"] = {"basename": name + ".zstd", "bytes": len(raw)}
            name += ".zstd"
        (folder / name).write_bytes(raw)
        index["shards"].append(shard)
    (folder / "index.json").write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize("zipped", [False, True])
def test_mds(tmp_path: Path, zipped: bool) -> None:
    encodings = {"b": ("bytes", None), "s": ("str", None), "i": ("int", 8), "f": ("float32", 4), "a": ("ndarray:uint16", None),
                 "j": ("json", None), "d": ("ndarray", None), "p": ("ndarray:int32:2", 8), "g": ("jpeg_array", None),
                 "q": ("str_decimal", None)}
    samples = [{"b": bytes([i]), "s": f"é{i}".encode(), "i": struct.pack("<q", -i), "f": struct.pack("<f", i / 2),
                "a": bytes([(1 << 2) | 0, i]) + numpy.arange(i, dtype="<u2").tobytes(), "j": json.dumps({"i": i}).encode(),
                "d": bytes([34, (2 << 2) | 1]) + struct.pack("<HH", 2, 3) + numpy.full(6, i, "<f4").tobytes(),
                "g": b"\xff\xd8%d" % i, "q": b"%d.25" % i, "p": numpy.array([i, -i], "<i4").tobytes()} for i in range(1, 9)]
    for out in both(mds(tmp_path / "mds", [samples[:5], samples[5:]], encodings, zipped), tmp_path):
        same(read(out), [
            {"a": numpy.arange(i, dtype=numpy.uint16), "b": bytes([i]), "d": numpy.full((2, 3), i, numpy.float32), "f": i / 2,
             "g": b"\xff\xd8%d" % i, "q": f"{i}.25", "i": -i, "j": {"i": i}, "p": numpy.array([i, -i], numpy.int32), "s": f"é{i}"}
            for i in range(1, 9)])


def test_mds_refuses_pickles_and_paths(tmp_path: Path) -> None:
    folder = mds(tmp_path / "mds", [[{"evil": b"x"}]], {"evil": ("pkl", None)}, False)
    with pytest.raises(rankstore.DataError, match='column "evil": pkl: reading a pickle runs what it holds'):
        build(folder, tmp_path / "out")
    text = (folder / "index.json").read_text().replace("shard.00000.mds", "../shard.00000.mds")
    (folder / "index.json").write_text(text)
    with pytest.raises(rankstore.DataError, match="index.json: shard 0 is in a file without a name, or of another directory"):
        build(folder, tmp_path / "out")


def write_tar(path: Path, members: list[tuple[str, bytes]], more: list[tarfile.TarInfo] | None = None) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
        for info in more or []:
            tar.addfile(info)
    return path


def both(source: Path, out: Path, **options: Any) -> list[Path]:
    """By the C core, and by Python."""
    build(source, out / "core", **options)
    build(source, out / "python", map=lambda sample: sample, **options)
    return [out / "core", out / "python"]


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
def test_tar(tmp_path: Path, name: str) -> None:
    members = []
    for i in range(20):
        array = io.BytesIO()
        numpy.save(array, numpy.arange(i, dtype=numpy.float32))
        members += [(f"d/{i:03}.jpg", bytes([i])), (f"d/{i:03}.cls", str(i).encode()), (f"d/{i:03}.txt", f"é{i}".encode()),
                    (f"d/{i:03}.json", b'{"i":%d}' % i), (f"d/{i:03}.x.npy", array.getvalue()), (f"d/{i:03}.n.json", b"%d" % i),
                    (f"d/{i:03}.l.JSON", b"[%d, 2]" % i)]
    for out in both(write_tar(tmp_path / name, members), tmp_path):
        assert keys(out) == [b"d/%03d" % i for i in range(20)]
        same(read(out), [{"__key__": f"d/{i:03}", "jpg": bytes([i]), "cls": i, "txt": f"é{i}", "json": {"i": i},
                          "x.npy": numpy.arange(i, dtype=numpy.float32), "n.json": i, "l.json": numpy.array([i, 2])}
                         for i in range(20)])


def test_the_names_of_members_are_keys_unless_told_otherwise(tmp_path: Path) -> None:
    source = write_tar(tmp_path / "a.tar", [(f"{i}.{ending}", str(10 + i).encode()) for i in range(3) for ending in ("cls", "txt")])
    for options, wanted in (({}, b"012"), ({"key": ""}, None), ({"key": "txt"}, [b"10", b"11", b"12"])):
        for out in both(source, tmp_path, replace=True, **options):
            assert keys(out) == [bytes([key]) if isinstance(key, int) else key
                                 for key in wanted or [f"a.tar:{i}".encode() for i in range(3)]]
    build(source, tmp_path / "fewer", map=lambda sample: {"n": sample["cls"]})
    assert keys(tmp_path / "fewer") == [b"0", b"1", b"2"]
    build(source, tmp_path / "given", schema="txt:str")
    assert keys(tmp_path / "given") == [b"a.tar:0", b"a.tar:1", b"a.tar:2"]


def test_tar_folder_and_zip(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for part in range(3):
        write_tar(tmp_path / "in" / f"{part}.tar", [(f"{part}-{i}.txt", str(i).encode()) for i in range(5)])
    build(tmp_path / "in", tmp_path / "out")
    assert keys(tmp_path / "out") == [f"{part}-{i}".encode() for part in range(3) for i in range(5)]
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("d/é.txt", "some text " * 100)
    build(tmp_path / "a.zip", tmp_path / "zip")
    same(read(tmp_path / "zip"), [{"__key__": "d/é", "txt": "some text " * 100}])
    build(tmp_path / "a.zip", tmp_path / "map", map=dict)
    same(read(tmp_path / "map"), read(tmp_path / "zip"))


def test_tar_hostile(tmp_path: Path) -> None:
    for name in ("../../etc/evil.txt", "/abs.txt"):
        source = write_tar(tmp_path / "a.tar", [("ok.txt", b"fine"), (name, b"x")])
        for way in ({}, {"map": dict}):
            with pytest.raises(rankstore.DataError, match=f"a.tar: .*{name}.*its name"):
                build(source, tmp_path / "deep" / "out", **way)
    assert not (tmp_path / "etc").exists()
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
        info = tarfile.TarInfo("bad.txt")
        info.type, info.linkname = kind, "/etc/passwd"
        source = write_tar(tmp_path / "b.tar", [("a.txt", b"x")], [info])
        for way in ({}, {"map": dict}):
            with pytest.raises(rankstore.DataError, match="bad.txt.*(a link or a device|a symbolic link|a hard link|a device|a FIFO)"):
                build(source, tmp_path / "b", **way)
    cut = (tmp_path / "a.tar").read_bytes()[:700]
    (tmp_path / "c.tar").write_bytes(cut)
    for way in ({}, {"map": dict}):
        with pytest.raises(rankstore.RankStoreError, match="c.tar"):
            build(tmp_path / "c.tar", tmp_path / "c", **way)


def test_recordings(tmp_path: Path) -> None:
    import wave
    members = []
    for i in range(1, 9):
        file = io.BytesIO()
        with wave.open(file, "wb") as made:
            made.setparams((2, 2, 8000, 0, "NONE", ""))
            made.writeframes(bytes(4 * 1000 * i))
        members.append((f"{i}.wav", file.getvalue()))
    source = write_tar(tmp_path / "a.tar", members)
    build(source, tmp_path / "frames", length="wav:wav")
    assert lengths(tmp_path / "frames") == [1000 * i for i in range(1, 9)]
    build(source, tmp_path / "seconds", length="wav:wav", length_unit=8000)
    assert lengths(tmp_path / "seconds") == [1] * 8


# ---- Python objects --------------------------------------------------------------------------------

class Squares:
    def __len__(self) -> int:
        return 250

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"i": i, "row": numpy.full((i % 3, 2), i, numpy.float32)}


def test_map_style_and_generators(tmp_path: Path) -> None:
    every = [Squares()[i] for i in range(250)]
    build(Squares(), tmp_path / "map")
    build((Squares()[i] for i in range(250)), tmp_path / "generator", unit_samples=60)
    build(every, tmp_path / "list")
    for name in ("map", "generator", "list"):
        same(read(tmp_path / name), every)
    assert lengths(tmp_path / "map") == [i % 3 for i in range(250)]
    assert dataset_id(tmp_path / "map") == dataset_id(tmp_path / "list")


def test_columns(tmp_path: Path) -> None:
    def batches() -> Any:
        for k in range(5):
            sizes = numpy.arange(k, k + 4)
            ends = numpy.concatenate([[0], numpy.cumsum(sizes)])
            yield Columns({"tokens": (numpy.arange(ends[-1], dtype=numpy.uint16), ends), "label": numpy.arange(4, dtype=numpy.int8) + k,
                           "pair": numpy.full((4, 2), k, numpy.float32), "text": [f"é{k}", "", "b", "c"],
                           "raw": (b"abcdef", [0, 1, 1, 3, 6])}, keys=[f"{k}.{i}" for i in range(4)])

    build(batches(), tmp_path / "out", unit_samples=8)
    samples = [sample for columns in batches() for sample in columns.rows()]
    samples = [{**sample, "raw": raw} for sample, raw in zip(samples, [b"a", b"", b"bc", b"def"] * 5, strict=True)]
    same(read(tmp_path / "out"), samples)
    assert keys(tmp_path / "out") == [f"{k}.{i}".encode() for k in range(5) for i in range(4)]
    build((Columns({"a": numpy.arange(3)}) for _ in range(2)), tmp_path / "mapped", map=lambda sample: {"b": sample["a"] * 2})
    assert [sample["b"] for sample in read(tmp_path / "mapped")] == [0, 2, 4] * 2


def test_columns_of_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    values = torch.arange(6).to(torch.bfloat16)
    build(iter([Columns({"h": (values, [0, 2, 6]), "n": torch.tensor([1, 2])})]), tmp_path / "out")
    assert [sample["n"] for sample in read(tmp_path / "out")] == [1, 2]
    with rankstore.init("solo") as group, rankstore.open(tmp_path / "out", group=group) as dataset:
        assert dataset.schema["h"].text == "bfloat16[*]"
        assert torch.equal(torch.cat([dataset[0]["h"], dataset[1]["h"]]), values)


@pytest.mark.parametrize("columns, says", [
    ({"a": numpy.arange(2), "b": numpy.arange(3)}, 'column "b": 3 samples, others have 2'),
    ({"a": numpy.array([object()])}, 'column "a": an array of object'), ({"a": [1, 2]}, 'column "a": a list holds str or bytes, not int'),
    ({"a": (numpy.arange(3), [0, 5])}, 'column "a"'), ({"a": (numpy.arange(3), [0, -1])}, 'column "a"'),
    ({"a": (numpy.arange(3), [2, 1])}, 'column "a"'), ({}, "no column was given")])
def test_columns_refused(tmp_path: Path, columns: dict[str, Any], says: str) -> None:
    with pytest.raises(rankstore.RankStoreError, match=says):
        build((Columns(one) for one in [columns]), tmp_path / "out")


class Labeled:
    """An array that looks numbers up among its labels, as a pandas Series."""

    def __init__(self, labels: list[int], values: Any) -> None:
        self.labels, self.iloc = labels, values
        self.dtype, self.shape = values.dtype, values.shape

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, label: int) -> Any:
        return self.iloc[self.labels.index(label)]


def test_columns_with_labels_are_taken_by_place(tmp_path: Path) -> None:
    source = {"a": Labeled([3, 2, 1, 0], numpy.arange(4)), "b": numpy.arange(4), "c": Labeled([7, 8, 9, 10], numpy.arange(4))}
    with rankstore.build(source, tmp_path / "out") as opened:
        assert [dict(opened[i]) for i in range(4)] == [{"a": i, "b": i, "c": i} for i in range(4)]


def test_arrays_of_numbers_keep_their_type(tmp_path: Path) -> None:
    kinds = ["float16", "float32", "float64", "uint8", "int16", "int32", "int64", "bool"]
    source = {kind: numpy.ones(3, kind) for kind in kinds} | {"text": numpy.array(["a", "b", "c"])}
    source["tensor"] = pytest.importorskip("torch").ones(3)
    with rankstore.build(source, tmp_path / "out") as opened:
        assert {name: column.text for name, column in opened.schema.items()} == {kind: kind for kind in kinds} | {
            "text": "str", "tensor": "float32"}
        assert opened[1]["float32"] == 1 and opened[2]["text"] == "c"
