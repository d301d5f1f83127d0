# SPDX-License-Identifier: Apache-2.0
"""Inputs from Hugging Face's hub, hf://, by its own file system for fsspec; the hub is a server of this machine."""
from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import rankstore

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LINES = {f"data/{part}.jsonl": "".join(json.dumps({"i": part * 3000 + row, "text": "word " * (row % 50)}) + "\n"
                                       for row in range(3000)).encode() for part in range(2)}


class Hub(BaseHTTPRequestHandler):
    """What the hub's client asks for of one dataset, me/words: its revision, its tree, and ranges of its files."""

    protocol_version = "HTTP/1.1"
    files: dict[str, bytes] = {}
    ranges: list[str] = []

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def say(self, status: int, content: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), "X-Repo-Commit": COMMIT, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def entry(self, name: str) -> dict[str, Any]:
        content = self.files[name]
        return {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}  # noqa: S324

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        tree = re.fullmatch(rf"/api/datasets/me/words/tree/(?:main|{COMMIT})/?(.*)", path)
        file = re.fullmatch(rf"/datasets/me/words/resolve/(?:main|{COMMIT})/(.*)", path)
        if re.fullmatch(rf"/api/datasets/me/words(/revision/(main|{COMMIT}))?", path):
            self.say(200, json.dumps({"id": "me/words", "sha": COMMIT, "siblings": []}).encode(), Content_Type="application/json")
        elif tree:
            below = [self.entry(name) for name in sorted(self.files) if name.startswith(f"{tree[1]}/" if tree[1] else "")]
            folders = [] if tree[1] else [{"type": "directory", "path": "data", "size": 0, "oid": COMMIT}]
            self.say(200, json.dumps(folders + below).encode(), Content_Type="application/json")
        elif file and file[1] in self.files:
            found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            content = self.files[file[1]]
            if found is None:
                self.say(200, content)
                return
            self.ranges.append(self.headers["Range"])
            first, last = int(found[1]), min(int(found[2]), len(content) - 1)
            self.say(206, content[first:last + 1], Content_Range=f"bytes {first}-{last}/{len(content)}")
        else:
            self.say(404, b"{}", X_Error_Code="RepoNotFound")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.say(200, json.dumps([]).encode(), Content_Type="application/json")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    pytest.importorskip("huggingface_hub")
    Hub.files, Hub.ranges = dict(LINES), []
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        try:
            yield Hub
        finally:
            server.shutdown()


@pytest.mark.parametrize("source", ["hf://datasets/me/words/data/*.jsonl", "hf://datasets/me/words/data"])
def test_objects_of_the_hub_are_inputs(hub: type[Hub], source: str, tmp_path: Path) -> None:
    with rankstore.build(source, tmp_path / "out", key="i", format="jsonl", unit_size="64KiB") as ds:
        assert [int(ds[i]["i"]) for i in (0, 2999, 3000, 5999)] == [0, 2999, 3000, 5999] and len(ds) == 6000
        assert ds.report.units > 2
    assert len(hub.ranges) >= 2
    assert rankstore.build(source, tmp_path / "out", key="i", format="jsonl", unit_size="64KiB").report.kept
    for name, content in LINES.items():
        path = tmp_path / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with rankstore.build(tmp_path / "files" / "data", tmp_path / "same", key="i", format="jsonl", unit_size="64KiB") as plain, \
            rankstore.open(tmp_path / "out") as ds:
        assert ds.id == plain.id


def test_one_object_and_what_is_not_there(hub: type[Hub], tmp_path: Path) -> None:
    with rankstore.build("hf://datasets/me/words/data/1.jsonl", tmp_path / "one", key="i") as ds:
        assert len(ds) == 3000 and int(ds[0]["i"]) == 3000
    with pytest.raises(rankstore.RankStoreError, match="hf://datasets/me/words/data/7.jsonl"):
        rankstore.build("hf://datasets/me/words/data/7.jsonl", tmp_path / "none")
    with pytest.raises(rankstore.RankStoreError, match="hf://datasets/you/words"):
        rankstore.build("hf://datasets/you/words/data/1.jsonl", tmp_path / "none")


def test_a_missing_package_is_named_with_what_to_install(tmp_path: Path) -> None:
    """In a process whose huggingface_hub cannot be imported; the helper is one of it."""
    (tmp_path / "huggingface_hub.py").write_text("raise ImportError('no huggingface_hub here')\n")
    code = "import sys, rankstore; rankstore.build('hf://datasets/me/words/data/1.jsonl', sys.argv[1], progress=False)"
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "out")], env=environ, capture_output=True, text=True)
    assert done.returncode != 0 and "pip install fsspec huggingface_hub" in done.stderr, done.stderr
