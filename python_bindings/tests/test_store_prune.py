# SPDX-License-Identifier: Apache-2.0
"""`prune` of a home by URL: what goes, what stays, and what ends it before anything has gone."""
from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import stores
from built import COMMAND
from stored_tokens import build, epoch, shard_bytes

import rankstore

obstore = pytest.importorskip("obstore")
pytest.importorskip("moto")

LEFT = {"part-00-dead.rks": b"x" * 5000, "part-00-dead.sums": b"y" * 16, "list-99.units": b"z" * 30, "dataset.json.tmp": b"{}"}
MINE = {"notes.txt": b"mine", "part-of-my-notes.txt": b"mine", "below/part-00-dead.rks": b"in a folder of its own"}


class Quiet(SimpleHTTPRequestHandler):
    """A web server of a directory."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass


RANKS = """
import json, sys, rankstore
made = rankstore.prune(sys.argv[1], keep=1, storage_options=json.loads(sys.argv[2]))
print(json.dumps([made.generations, made.files, made.bytes, len(made.names)]))
"""


@pytest.fixture
def grown(bucket: stores.Store, tmp_path: Path) -> stores.Store:
    """Return a bucket whose "tokens" has three generations of 100, 160 and 200 samples, leftovers, and files of the user."""
    url = bucket.url("tokens")
    for first, end in ((0, 100), (100, 160), (160, 200)):
        build(tmp_path / "out", first, end, append=first > 0, home=url, storage_options=bucket.options)
    for name, content in {**LEFT, **MINE}.items():
        obstore.put(bucket.client(), f"tokens/{name}", content)
    return bucket


def prune(store: stores.Store, **options: Any) -> rankstore.PruneReport:
    return rankstore.prune(store.url("tokens"), storage_options=store.options, **options)


def count(store: stores.Store, name: str, local: Path) -> int:
    with rankstore.open(store.url(name), local=local, storage_options=store.options) as ds:
        assert int(ds[len(ds) - 1]["i"]) == len(ds) - 1
        return len(ds)


def test_what_no_generation_names_goes_and_nothing_else(grown: stores.Store, tmp_path: Path) -> None:
    before, size = grown.names("tokens"), sum(map(len, LEFT.values()))
    told = prune(grown, dry_run=True)
    assert sorted(told.names) == sorted(grown.url(f"tokens/{name}") for name in LEFT)
    assert (told.generations, told.files, told.bytes) == (0, len(LEFT), size) and grown.names("tokens") == before
    assert prune(grown) == told
    assert grown.names("tokens") == [name for name in before if name not in LEFT]
    for name, samples in (("tokens@1", 100), ("tokens@2", 160), ("tokens", 200)):
        assert count(grown, name, tmp_path / "local") == samples
    again = prune(grown)
    assert (again.generations, again.files, again.bytes, again.names) == (0, 0, 0, ())
    assert not stores.helpers()


def test_old_generations_go_and_the_newest_stays_whole(grown: stores.Store, tmp_path: Path) -> None:
    told = prune(grown, keep=2, dry_run=True)
    assert told.generations == 1 and grown.url("tokens/dataset.1.json") in told.names
    assert prune(grown, keep=2) == told
    with pytest.raises(rankstore.NotFoundError, match="there is no generation 1"):
        count(grown, "tokens@1", tmp_path / "one")
    assert count(grown, "tokens@2", tmp_path / "two") == 160
    assert prune(grown, keep=1).generations == 1
    names = grown.names("tokens")
    assert not [name for name in names if name.startswith("dataset.") and name != "dataset.json"] and set(MINE) <= set(names)
    ids, brought = epoch(grown.url("tokens"), tmp_path / "local", grown.options)
    assert sorted(ids) == list(range(200)) and brought >= shard_bytes(tmp_path / "out")
    build(tmp_path / "out", 200, 240, append=True, home=grown.url("tokens"), storage_options=grown.options)
    assert count(grown, "tokens", tmp_path / "local") == 240


def test_ranks_prune_it_once(grown: stores.Store, ranks: Callable[..., list[Any]]) -> None:
    found = [json.loads(one.stdout) for one in ranks(3, RANKS, grown.url("tokens"), json.dumps(grown.options))]
    assert found[0][:3] == found[1][:3] == found[2][:3] and found[0][0] == 2
    assert [names for *_, names in found] == [found[0][1], 0, 0]


def test_the_command_names_each_file_in_a_dry_run(grown: stores.Store) -> None:
    environ = {**os.environ, **grown.environment, "RANKSTORE_PYTHON": sys.executable}

    def said(*words: str) -> str:
        done = subprocess.run([str(COMMAND), "prune", grown.url("tokens"), *words], env=environ, check=True, capture_output=True, text=True)
        assert stores.without_secrets(done.stdout + done.stderr)
        return done.stdout

    *lines, last = said("--dry-run").splitlines()
    assert sorted(line.split("  ")[0] for line in lines) == sorted(grown.url(f"tokens/{name}") for name in LEFT)
    assert last.startswith("0 generations and 4 files would be removed, ")
    assert json.loads(said("--dry-run", "--json"))["files"] == 4
    assert said("--keep", "1").startswith("2 generations and ") and said() == "0 generations and 0 files removed, 0 B\n"


@pytest.mark.parametrize(("method", "text"), [
    ("POST", "nothing was removed: .*s3:DeleteObject.*403 Forbidden"), ("PUT", "403 Forbidden"), ("GET", "403 Forbidden")])
def test_without_a_permission_nothing_goes(grown: stores.Store, method: str, text: str) -> None:
    """A POST is how obstore removes."""
    before = grown.names("tokens")
    with stores.proxy(grown.address) as between:
        behind = stores.Store(between.address, grown.bucket)
        between.set(fault="403", method=method, where=".")
        with pytest.raises(rankstore.IOFailedError, match=text) as failed:
            prune(behind, keep=1)
        assert stores.without_secrets(str(failed.value))
        assert grown.names("tokens") == before and "dataset.claim" not in before
        if method != "GET":
            assert prune(behind, keep=1, dry_run=True).generations == 2


def test_it_does_not_run_while_somebody_publishes(grown: stores.Store) -> None:
    before = grown.names("tokens")
    obstore.put(grown.client(), "tokens/dataset.claim", b"digest 0123\npid 7 on elsewhere\nspace another-1\n")
    with pytest.raises(rankstore.StateError, match=r"another process changes this home \(pid 7 on elsewhere\).*dataset.claim"):
        prune(grown, keep=1)
    assert grown.names("tokens") == sorted([*before, "dataset.claim"])


def test_one_that_was_stopped_is_finished_by_the_next(grown: stores.Store, tmp_path: Path) -> None:
    with stores.proxy(grown.address) as between:
        behind = stores.Store(between.address, grown.bucket)
        between.set(fault="403", method="POST", where=".", each=4, times=1)  # the third file
        with pytest.raises(rankstore.IOFailedError, match="403 Forbidden"):
            prune(behind, keep=1)
        between.set()
        assert "dataset.claim" not in grown.names("tokens")
        assert count(grown, "tokens", tmp_path / "local") == 200
        assert prune(behind, keep=1).files > 0
    assert count(grown, "tokens", tmp_path / "other") == 200 and prune(grown).files == 0


@pytest.mark.parametrize(("name", "error", "text"), [
    ("nothing", rankstore.NotFoundError, "no dataset here"), ("tokens@2", rankstore.ArgumentError, "give the home itself")])
def test_what_is_no_home_is_named(grown: stores.Store, name: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        rankstore.prune(grown.url(name), storage_options=grown.options)
    assert grown.names("nothing") == []


def test_a_web_server_s_files_stay(tmp_path: Path) -> None:
    build(tmp_path / "out", 0, 40)
    before = sorted((tmp_path / "out").iterdir())
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            with pytest.raises(rankstore.IOFailedError, match="homes by http are read-only"):
                rankstore.prune(f"http://127.0.0.1:{server.server_address[1]}/out", keep=1)
        finally:
            server.shutdown()
    assert sorted((tmp_path / "out").iterdir()) == before


def test_a_file_url_is_the_directory(tmp_path: Path) -> None:
    build(tmp_path / "out", 0, 40)
    (tmp_path / "out" / "part-00-dead.rks").write_bytes(b"x" * 10)
    made = rankstore.prune(f"file://{tmp_path}/out")
    assert (made.files, made.bytes, made.names) == (1, 10, (f"{tmp_path}/out/part-00-dead.rks",))
