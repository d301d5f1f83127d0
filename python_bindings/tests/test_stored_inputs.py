# SPDX-License-Identifier: Apache-2.0
"""Builds from objects in a store, served by moto's server on this machine, and from a web server."""
from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import lzma
import struct
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stores
from built import COMMAND
from pytest import MonkeyPatch

import rankstore

pytest.importorskip("obstore")
pytest.importorskip("moto")
pyarrow = pytest.importorskip("pyarrow")

ROWS = [{"i": i, "text": f"row {i} " + "word " * (i % 13)} for i in range(400)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with stores.moto() as address:
        yield address


@pytest.fixture
def store(server: str, tmp_path: Path) -> Iterator[stores.Store]:
    """A bucket. No helper is left at the end."""
    yield stores.make_bucket(server, "i" + str(abs(hash(str(tmp_path)))))
    assert not stores.helpers()


class Ranged(SimpleHTTPRequestHandler):
    """Files with ranges and ETags, as web servers have them."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_HEAD(self) -> None:
        self.answer(False)

    def do_GET(self) -> None:
        self.answer(True)

    def answer(self, with_body: bool) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(404)
            return
        content = path.read_bytes()
        tag = f'"{hash(content) & 0xFFFFFFFF:x}"'
        wanted = self.headers.get("Range")
        if self.headers.get("If-Match", tag) != tag:
            self.send_error(412)
            return
        first, end = 0, len(content)
        if wanted:
            low, _, high = wanted.removeprefix("bytes=").partition("-")
            first, end = int(low), min(int(high) + 1 if high else end, end)
        self.send_response(206 if wanted else 200)
        self.send_header("ETag", tag)
        self.send_header("Content-Length", str(end - first))
        if wanted:
            self.send_header("Content-Range", f"bytes {first}-{end - 1}/{len(content)}")
        self.end_headers()
        if with_body:
            self.wfile.write(content[first:end])


@pytest.fixture
def web(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    folder = tmp_path / "web"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Ranged, directory=str(folder))) as one:
        thread = threading.Thread(target=one.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{one.server_address[1]}", folder
        one.shutdown()
        thread.join()


def upload(store: stores.Store, folder: Path, below: str) -> None:
    import obstore
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            obstore.put(store.client(), f"{below}/{path.relative_to(folder)}", path.read_bytes())


def samples(out: Path) -> list[tuple[Any, Any]]:
    with rankstore.open(out) as ds:
        keys = ds.keys
        return [(keys[i], {name: np.asarray(value).tolist() if isinstance(value, np.ndarray) else value for name, value in ds[i].items()})
                for i in range(len(ds))]


# ---- what is read: each makes a folder, and says what to give of it, and options ---------------------

def tar_of(members: dict[str, bytes], mode: str = "w") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return made.getvalue()


def zip_of(members: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as one:
        for name, content in members.items():
            one.writestr(name, content)
    return made.getvalue()


def npz_of() -> bytes:
    made = io.BytesIO()
    np.savez(made, a=np.arange(600).reshape(200, 3), b=np.arange(200) / 7)
    return made.getvalue()


def npy_of() -> bytes:
    made = io.BytesIO()
    np.save(made, np.arange(900_000, dtype=np.uint16).reshape(300, 3000))
    return made.getvalue()


def megatron_of() -> dict[str, bytes]:
    sizes = [5 + i % 9 for i in range(300)]
    places = np.cumsum([0, *sizes[:-1]]) * 2
    index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(sizes), len(sizes) + 1) + np.array(sizes, "<i4").tobytes() \
        + places.astype("<i8").tobytes() + np.arange(len(sizes) + 1, dtype="<i8").tobytes()
    return {"m.idx": index, "m.bin": np.arange(sum(sizes), dtype="<u2").tobytes()}


def mds_of() -> dict[str, bytes]:
    made: list[bytes] = []
    for i in range(50):
        text = f"sample {i}".encode()
        made.append(struct.pack("<I", len(text)) + text + struct.pack("<q", i))
    head = 4 + 4 * (len(made) + 1)
    ends = np.cumsum([head, *map(len, made)]).astype("<u4")
    shard = struct.pack("<I", len(made)) + ends.tobytes() + b"".join(made)
    entry = {"format": "mds", "version": 2, "column_names": ["text", "i"], "column_encodings": ["str", "int"], "column_sizes": [None, 8],
             "compression": None, "hashes": [], "samples": len(made), "size_limit": 1 << 26, "zip_data": None,
             "raw_data": {"basename": "shard.00000.mds", "bytes": len(shard), "hashes": {}}}
    return {"index.json": json.dumps({"version": 2, "shards": [entry]}).encode(), "shard.00000.mds": shard}


def zst_of(content: bytes) -> bytes:
    return bytes(pyarrow.compress(content, codec="zstd", asbytes=True))


def wav_of(i: int) -> bytes:
    data = np.arange(100 + i, dtype="<i2").tobytes()
    return b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 1, 1, 8000, 16000, 2, 16) \
        + b"data" + struct.pack("<I", len(data)) + data


MEMBERS = {f"{i:03}.{ending}": content for i in range(60) for ending, content in
           (("json", json.dumps({"i": i}).encode()), ("txt", f"text {i}".encode() * (i % 7)))}
Case = tuple[dict[str, bytes], str, dict[str, Any]]  # files, what to give of their folder, options
CASES: dict[str, Case] = {
    "jsonl": ({"a.jsonl": LINES, "b.jsonl": LINES}, "*.jsonl", {"unit_size": "4KiB"}),
    "text": ({"a.txt": LINES, "sub/b.txt": LINES}, "**/*.txt", {"unit_size": "8KiB"}),
    "csv": ({"a.csv": b"x,y\n" + b"".join(b'%d,"a, b %d"\n' % (i, i) for i in range(500))}, "a.csv", {"unit_size": "4KiB"}),
    "json": ({"a.json": json.dumps(ROWS).encode()}, "a.json", {}),
    "gz": ({"a.jsonl.gz": gzip.compress(LINES)}, "a.jsonl.gz", {}),
    "zst": ({"a.jsonl.zst": zst_of(LINES)}, "a.jsonl.zst", {}),
    "xz": ({"a.jsonl.xz": lzma.compress(LINES)}, "a.jsonl.xz", {}),
    "bz2": ({"a.txt.bz2": bz2.compress(LINES)}, "a.txt.bz2", {}),
    "tar": ({"a.tar": tar_of(MEMBERS)}, "*.tar", {"unit_size": "4KiB"}),
    "tgz": ({"a.tgz": tar_of(MEMBERS, "w:gz")}, "a.tgz", {}),
    "zip": ({"a.zip": zip_of(MEMBERS)}, "a.zip", {}),
    "npy": ({"a.npy": npy_of()}, "a.npy", {"unit_size": "256KiB"}),
    "npz": ({"a.npz": npz_of()}, "a.npz", {}),
    "megatron": (megatron_of(), "m", {}),
    "raw": ({"a.bin": np.arange(5000, dtype="<u2").tobytes()}, "a.bin", {"format": "raw", "dtype": "uint16"}),
    "mds": (mds_of(), "", {}),
    "folder": ({"one/a": b"x" * 9000, "two/b": b"", "c": b"z"}, "", {}),
    "wav": ({f"{i}.wav": wav_of(i) for i in range(5)}, "", {"length": "wav:data"}),
}


def fill(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.mark.parametrize("case", CASES)
def test_objects_of_each_format_are_the_samples_of_the_files(case: str, store: stores.Store, tmp_path: Path) -> None:
    files, source, options = CASES[case]
    folder = tmp_path / "in"
    fill(folder, files)
    upload(store, folder, "in")
    rankstore.build(str(folder / source) if source else str(folder), tmp_path / "local", **options).close()
    url = f"s3://{store.bucket}/in/{source}"
    with rankstore.build(url, tmp_path / "stored", storage_options=store.options, **options) as ds:
        assert not ds.report.kept and ds.report.input_bytes == sum(map(len, files.values()))
    wanted = samples(tmp_path / "local")
    assert samples(tmp_path / "stored") == wanted and wanted
    with rankstore.build(url, tmp_path / "stored", storage_options=store.options, **options) as ds:
        assert ds.report.kept


# ---- more than one source, ranks, the command --------------------------------------------------------

def test_a_folder_a_file_and_a_web_server_in_one_build(store: stores.Store, web: tuple[str, Path], tmp_path: Path) -> None:
    address, folder = web
    fill(folder, {"w b.jsonl": LINES})
    fill(tmp_path / "in", {"s.jsonl": LINES})
    fill(tmp_path / "disk", {"d.jsonl": LINES})
    upload(store, tmp_path / "in", "in")
    sources = [f"file://{tmp_path}/disk/d.jsonl", f"{address}/w%20b.jsonl", f"s3://{store.bucket}/in/s.jsonl"]
    options = {"unit_size": "4KiB", "progress": False}
    with rankstore.build(sources, tmp_path / "out", storage_options=store.options, input_bytes="1MiB", **options) as ds:
        assert [sample["i"] for sample in map(ds.__getitem__, range(len(ds)))] == [row["i"] for row in ROWS] * 3


def test_a_map_gets_the_objects_lines(store: stores.Store, tmp_path: Path) -> None:
    fill(tmp_path / "in", {"a.jsonl": LINES})
    upload(store, tmp_path / "in", "in")
    with rankstore.build(f"s3://{store.bucket}/in/*.jsonl", tmp_path / "out", storage_options=store.options, unit_size="4KiB",
                         map=lambda sample: {"twice": 2 * sample["i"]}) as ds:
        assert [ds[i]["twice"] for i in range(len(ds))] == [2 * row["i"] for row in ROWS]


RANK = """
import json, os, sys
import rankstore
source, out, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
with rankstore.build(source, out, storage_options=options, unit_size="4KiB") as ds:
    print(json.dumps([ds[i]["i"] for i in range(len(ds))]))
"""


def test_ranks_share_the_units(store: stores.Store, tmp_path: Path, ranks: Callable[..., list[Any]]) -> None:
    fill(tmp_path / "in", {"a.jsonl": LINES, "b.jsonl": LINES})
    upload(store, tmp_path / "in", "in")
    found = ranks(2, RANK, f"s3://{store.bucket}/in/*.jsonl", str(tmp_path / "out{rank}"), json.dumps(store.options))
    for one in found:
        assert json.loads(one.stdout) == [row["i"] for row in ROWS] * 2


def test_one_rank_lists_the_store_once_for_all(store: stores.Store, tmp_path: Path, ranks: Callable[..., list[Any]]) -> None:
    fill(tmp_path / "in", {f"{i}.jsonl": LINES for i in range(9)})
    upload(store, tmp_path / "in", "in")
    with stores.proxy(store.address) as proxy:
        options = {**store.options, "endpoint": proxy.address}
        found = ranks(4, RANK, f"s3://{store.bucket}/in/*.jsonl", str(tmp_path / "out{rank}"), json.dumps(options))
        counts = proxy.counts()
    assert counts["lists"] == 1
    for one in found:
        assert json.loads(one.stdout) == [row["i"] for row in ROWS] * 9


@pytest.mark.parametrize(("objects", "count", "schema"), [(3, 1, None), (4, 2, {"i": "int64", "text": "str"}),
                                                          (1, 2, {"i": "int64", "text": "str"})])
def test_lines_leave_the_store_once(objects: int, count: int, schema: dict[str, str] | None, store: stores.Store, tmp_path: Path,
                                    ranks: Callable[..., list[Any]]) -> None:
    """What a look or a count has read is kept for the reader; units overlap by 64 KiB of each MiB."""
    rows = LINES * (12 * (1 << 20) // objects // len(LINES))
    fill(tmp_path / "in", {f"{i}.jsonl": rows for i in range(objects)})
    upload(store, tmp_path / "in", "in")
    script = RANK.replace('unit_size="4KiB"', "schema=json.loads(sys.argv[4])").replace('[ds[i]["i"] for i in range(len(ds))]', "len(ds)")
    with stores.proxy(store.address) as proxy:
        options = {**store.options, "endpoint": proxy.address}
        before = proxy.counts()["bytes"]
        found = ranks(count, script, f"s3://{store.bucket}/in/*.jsonl", str(tmp_path / "out{rank}"), json.dumps(options),
                      json.dumps(schema))
        read = proxy.counts()["bytes"] - before
    assert read <= 1.12 * objects * len(rows)
    rankstore.build([str(tmp_path / "in" / f"{i}.jsonl") for i in range(objects)], tmp_path / "local", schema=schema).close()
    wanted = json.loads((tmp_path / "local" / "dataset.json").read_text())["dataset"]
    for rank, one in enumerate(found):
        assert json.loads(one.stdout) == objects * len(rows) // len(LINES) * len(ROWS)
        assert json.loads((tmp_path / f"out{rank}" / "dataset.json").read_text())["dataset"] == wanted


def test_the_command_reads_urls(store: stores.Store, tmp_path: Path, monkeypatch: MonkeyPatch) -> None:
    fill(tmp_path / "in", {"a.jsonl": LINES})
    upload(store, tmp_path / "in", "in")
    for name, value in store.environment.items():
        monkeypatch.setenv(name, value)
    subprocess.run([COMMAND, "build", f"s3://{store.bucket}/in/*.jsonl", "-o", str(tmp_path / "out"), "--input-bytes", "2M"], check=True,
                   stdin=subprocess.DEVNULL, timeout=300)
    with rankstore.open(tmp_path / "out") as ds:
        assert [ds[i]["i"] for i in range(len(ds))] == [row["i"] for row in ROWS]


# ---- what changes, lacks or is refused ---------------------------------------------------------------

def test_a_replaced_object_ends_the_build_and_is_another_source(store: stores.Store, tmp_path: Path) -> None:
    import obstore
    fill(tmp_path / "in", {"a.jsonl": LINES, "b.jsonl": LINES})
    upload(store, tmp_path / "in", "in")
    seen = []

    def replace(sample: Any) -> Any:
        if not seen:
            obstore.put(store.client(), "in/b.jsonl", LINES.replace(b"word", b"WORD"))
        seen.append(sample)
        return sample

    url = f"s3://{store.bucket}/in/*.jsonl"
    with pytest.raises(rankstore.DataError, match=r"in/b\.jsonl: changed during the build"):
        rankstore.build(url, tmp_path / "out", storage_options=store.options, map=replace, unit_size="4KiB")
    with rankstore.build(url, tmp_path / "out", storage_options=store.options, unit_size="4KiB") as ds:
        assert "WORD" in ds[799]["text"] or "WORD" in ds[798]["text"]
    obstore.put(store.client(), "in/a.jsonl", LINES.replace(b"row", b"ROW"))
    with pytest.raises(rankstore.ArgumentError):
        rankstore.build(url, tmp_path / "out", storage_options=store.options, unit_size="4KiB")


def test_an_interrupted_build_goes_on(store: stores.Store, tmp_path: Path) -> None:
    fill(tmp_path / "in", {"a.jsonl": LINES, "b.jsonl": LINES})
    upload(store, tmp_path / "in", "in")
    url, calls = f"s3://{store.bucket}/in/*.jsonl", []

    def fails_once(sample: Any) -> bool:
        calls.append(sample)
        if len(calls) == 500:
            raise KeyboardInterrupt
        return True

    with contextlib.suppress(KeyboardInterrupt):
        rankstore.build(url, tmp_path / "out", storage_options=store.options, filter=fails_once, unit_size="4KiB")
    with rankstore.build(url, tmp_path / "out", storage_options=store.options, filter=fails_once, unit_size="4KiB") as ds:
        assert 0 < ds.report.units_resumed < ds.report.units and len(ds) == 800


def test_errors_name_the_url_and_what_to_do(store: stores.Store, web: tuple[str, Path], tmp_path: Path) -> None:
    address, folder = web
    fill(folder, {"w.jsonl": LINES})
    fill(tmp_path / "in", {"many/a.tar": b"x" * 2000, "p/a.parquet": b"PAR1", "data/part-0.rks": b"x"})
    upload(store, tmp_path / "in", "in")
    out, top = tmp_path / "out", f"s3://{store.bucket}/in"
    for source, kind, text in (
            (f"{top}/none.jsonl", rankstore.NotFoundError, f"{top}/none.jsonl: no such object or folder"),
            (f"{top}/*.none", rankstore.NotFoundError, f"{top}/*.none: matches no object"),
            (f"{top}/many", rankstore.ArgumentError, f"{top}/many/*.tar"),
            (f"{top}/p", rankstore.ArgumentError, "pyarrow.dataset.dataset"),
            (f"{top}/p/a.parquet", rankstore.ArgumentError, "pyarrow.dataset.dataset"),
            (f"{top}/data", rankstore.ArgumentError, "open or stage it"),
            (f"{address}/*.jsonl", rankstore.IOFailedError, "a web server lists nothing"),
            (f"{address}/none.jsonl", rankstore.NotFoundError, f"{address}/none.jsonl: no such object")):
        with pytest.raises(kind) as caught:
            rankstore.build(source, out, storage_options=store.options)
        assert text in str(caught.value) and stores.without_secrets(str(caught.value)), source
    with pytest.raises(rankstore.ArgumentError, match="only for a URL"):
        rankstore.build(str(folder / "w.jsonl"), out, storage_options=store.options)
    with pytest.raises(rankstore.ArgumentError, match="input_bytes: 5 is below 1 MiB"):
        rankstore.build(f"{address}/w.jsonl", out, input_bytes=5)


def test_what_the_store_denies_is_named(store: stores.Store, tmp_path: Path) -> None:
    fill(tmp_path / "in", {"a.jsonl": LINES})
    upload(store, tmp_path / "in", "in")
    with stores.proxy(store.address) as proxy:
        options = {**store.options, "endpoint": proxy.address}
        proxy.set(fault="403", where=r"\.jsonl$")
        with pytest.raises(rankstore.IOFailedError, match="403") as caught:
            rankstore.build(f"s3://{store.bucket}/in/a.jsonl", tmp_path / "out", storage_options=options)
        assert "in/a.jsonl" in str(caught.value) and stores.without_secrets(str(caught.value))
        proxy.set(fault="503", where=r"\.jsonl$", times=2)
        with rankstore.build(f"s3://{store.bucket}/in/a.jsonl", tmp_path / "out", storage_options=options) as ds:
            assert len(ds) == len(ROWS)


PEAK = """
import json, sys, rankstore
source, out, options, threads = sys.argv[1:]
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) << 10
rankstore.build([{"i": 1}], out + ".first", progress=False).close()
before, options = peak(), json.loads(options)
more = {"storage_options": options, "input_bytes": "2MiB"} if options else {}
rankstore.build(source, out, progress=False, threads=int(threads), unit_size="16MiB", **more).close()
print(peak() - before)
"""


def test_a_large_object_is_not_held_in_memory(store: stores.Store, tmp_path: Path) -> None:
    """What a build by URL takes beyond one of the same file is bounded by input_bytes, not by the object, nor by the units that wait."""
    import obstore
    line = json.dumps({"text": "x" * 4000}).encode() + b"\n"
    (tmp_path / "a.jsonl").write_bytes(line * ((64 << 20) // len(line)))
    obstore.put(store.client(), "large/a.jsonl", tmp_path / "a.jsonl")

    def grown(source: str, out: str, options: dict[str, Any], threads: int) -> int:
        done = subprocess.run([sys.executable, "-c", PEAK, source, str(tmp_path / out), json.dumps(options), str(threads)], check=True,
                              capture_output=True, text=True)
        return int(done.stdout)

    alone = grown(store.url("large/a.jsonl"), "stored", store.options, 1)
    assert alone < grown(str(tmp_path / "a.jsonl"), "file", {}, 1) + (32 << 20)
    many = grown(store.url("large/a.jsonl"), "many", store.options, 4)
    assert many < alone + (24 << 20), "samples that wait for the turn of their unit count, too"
