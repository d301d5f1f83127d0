# SPDX-License-Identifier: Apache-2.0
"""Sources that are open already: standard input, file objects, and fsspec's OpenFiles."""
from __future__ import annotations

import email.utils
import gzip
import io
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import stores
from test_stored_inputs import Ranged

import rankstore

ROWS = [{"i": i, "text": f"row {i} ü"} for i in range(300)]
LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)


def rows_of(ds: Any) -> list[dict[str, Any]]:
    return [{"i": int(ds[i]["i"]), "text": ds[i]["text"]} for i in range(len(ds))]


@pytest.mark.parametrize("opened", ["text", "bytes", "gzip", "buffer"])
def test_lines_of_an_open_file_are_samples(opened: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(LINES, encoding="utf-8")
    (tmp_path / "a.gz").write_bytes(gzip.compress(("\ufeff" + LINES).encode()))
    makers: dict[str, Callable[[], Any]] = {
        "text": lambda: open(tmp_path / "a.jsonl", encoding="utf-8"),
        "bytes": lambda: open(tmp_path / "a.jsonl", "rb"),
        "gzip": lambda: gzip.open(tmp_path / "a.gz", "rb"),
        "buffer": lambda: io.StringIO(LINES + "\n  \n")}
    with makers[opened]() as file, rankstore.build(file, tmp_path / "out", key="i") as ds:
        assert rows_of(ds) == ROWS
    with rankstore.build(tmp_path / "a.jsonl", tmp_path / "of_path", key="i") as ds:
        assert rows_of(ds) == ROWS and ds.schema == rankstore.open(tmp_path / "out").schema


def test_an_open_file_is_compared_when_it_is_built_again(tmp_path: Path) -> None:
    rankstore.build(io.StringIO(LINES), tmp_path / "out").close()
    rankstore.build(io.StringIO(LINES), tmp_path / "out").close()
    with pytest.raises(rankstore.ArgumentError, match="other samples"):
        rankstore.build(io.StringIO(LINES.replace("row 7 ", "row 8 ")), tmp_path / "out")


def test_text_lines_and_functions(tmp_path: Path) -> None:
    with rankstore.build(io.BytesIO(b"one\r\n\nthree"), tmp_path / "out", format="text", map=lambda s: {"n": len(s["text"])}) as ds:
        assert [int(ds[i]["n"]) for i in range(3)] == [3, 0, 5]


@pytest.mark.parametrize(("lines", "format", "error", "text"), [
    ('{"a": 1}\n{"a": \n', None, rankstore.RankStoreError, ":2: invalid JSON"),
    ('{"a": 1}\n[2]\n', None, rankstore.RankStoreError, ":2: not a JSON object"),
    ('a,b\n1,2\n', "csv", rankstore.ArgumentError, "format: an open file is read as lines"),
    (b'{"a": "\xff"}\n', None, rankstore.RankStoreError, ":1: not UTF-8")])
def test_what_is_wrong_is_named(lines: Any, format: str | None, error: type[Exception], text: str, tmp_path: Path) -> None:  # noqa: A002
    with pytest.raises(error, match=text):
        rankstore.build(io.StringIO(lines) if isinstance(lines, str) else io.BytesIO(lines), tmp_path / "out", format=format)


PROGRAM = """
import sys, rankstore
with rankstore.build(sys.stdin if sys.argv[2] == "file" else "-", sys.argv[1], key="i") as ds:
    print(len(ds), int(ds[299]["i"]))
"""


@pytest.mark.parametrize("given", ["file", "dash"])
def test_standard_input(given: str, tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path / "out"), given], input=LINES.encode(), capture_output=True,
                           check=False, env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == [b"300", b"299"]


def test_standard_input_is_for_one_rank(tmp_path: Path) -> None:
    with pytest.raises(rankstore.ArgumentError, match="read by one rank"):
        rankstore.build("-", tmp_path / "out", workers=2)


# ---- fsspec --------------------------------------------------------------------------------------

fsspec = pytest.importorskip("fsspec")


def test_open_files_of_this_machine_are_paths(tmp_path: Path) -> None:
    for part in range(3):
        (tmp_path / f"{part}.jsonl").write_text("".join(LINES.splitlines(True)[100 * part:100 * part + 100]), encoding="utf-8")
    with rankstore.build(fsspec.open_files(f"{tmp_path}/*.jsonl"), tmp_path / "out", key="i") as ds:
        assert rows_of(ds) == ROWS
    with rankstore.build(fsspec.open(f"{tmp_path}/1.jsonl"), tmp_path / "one") as ds:
        assert rows_of(ds) == ROWS[100:200]
    with rankstore.build([*fsspec.open_files(f"{tmp_path}/[01].jsonl")], tmp_path / "list", key="i") as ds:
        assert rows_of(ds) == ROWS[:200]


class Busy(Ranged):
    """Answers the first requests for bytes with 503, and says when to come again."""

    times: list[float] = []
    refused = 0
    as_date = False

    def do_GET(self) -> None:
        kind = type(self)
        kind.times.append(time.monotonic())
        if len(kind.times) > kind.refused:
            super().do_GET()
            return
        self.send_response(503)
        self.send_header("Retry-After", email.utils.formatdate(time.time() + 5, usegmt=True) if kind.as_date else "3")
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    pytest.importorskip("aiohttp")
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "a.jsonl").write_text(LINES, encoding="utf-8")
    Busy.times, Busy.refused = [], 0
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Busy, directory=str(tmp_path / "web"))) as one:
        thread = threading.Thread(target=one.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{one.server_address[1]}/a.jsonl"
        one.shutdown()
        thread.join()


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_a_server_that_says_when_to_come_again_is_heard(form: str, web: str, tmp_path: Path) -> None:
    Busy.as_date, Busy.refused = form == "date", 1
    with rankstore.build(web, tmp_path / "out", key="i", format="jsonl", storage_options={"fsspec": {}}, progress=False) as ds:
        assert rows_of(ds) == ROWS
    assert Busy.times[1] - Busy.times[0] >= 2.9  # a second and up to 0.2 s without it


def test_open_files_of_a_web_server_are_read_by_fsspec(web: str, tmp_path: Path) -> None:
    with rankstore.build(fsspec.open_files([web]), tmp_path / "out", key="i") as ds:
        assert rows_of(ds) == ROWS
    assert not stores.helpers()


def test_files_that_only_this_process_reaches_are_refused_by_name(tmp_path: Path) -> None:
    with fsspec.open("memory://a.jsonl", "w") as file:
        file.write(LINES)
    with pytest.raises(rankstore.ArgumentError, match="files of memory are read in a process of its own.*give the file object"):
        rankstore.build(fsspec.open_files("memory://a.jsonl"), tmp_path / "out")
    with fsspec.open("memory://a.jsonl", "r") as file, rankstore.build(file, tmp_path / "out", key="i") as ds:
        assert rows_of(ds) == ROWS
    (tmp_path / "b").write_bytes(gzip.compress(LINES.encode()))
    with pytest.raises(rankstore.ArgumentError, match="compressed by gzip, which its name does not show"):
        rankstore.build(fsspec.open_files(f"{tmp_path}/b", compression="gzip"), tmp_path / "out2")
