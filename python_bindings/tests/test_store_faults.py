# SPDX-License-Identifier: Apache-2.0
"""A home in an object store whose requests fail: behind a proxy that breaks them."""
from __future__ import annotations

import json
import os
import shutil
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import stores
from stored_tokens import SAMPLES, SHARDS, build, epoch, right

import rankstore

pytest.importorskip("obstore")
pytest.importorskip("moto")

@pytest.mark.parametrize("rules", [
    {"fault": "503", "times": 10}, {"fault": "429", "times": 3}, {"fault": "500", "each": 7}, {"fault": "close", "each": 5},
    {"fault": "cut", "each": 5}, {"fault": "short", "each": 9}, {"fault": "long", "each": 7}, {"fault": "307", "each": 2},
    {"fault": "etag"}], ids=lambda rules: str(rules["fault"]))
def test_faults_that_pass_cost_time_alone(behind_faults: tuple[stores.Store, stores.Proxy], rules: dict[str, Any], tmp_path: Path) -> None:
    store, between = behind_faults
    between.set(**rules)
    ids, _ = epoch(store.url("tokens"), tmp_path / "local", store.options)
    counts = between.counts()
    assert sorted(ids) == list(range(SAMPLES)) and counts["faults"] > 0 and counts["under_way"] == 0
    assert counts["requests"] < 400


@pytest.mark.parametrize(("fault", "text"), [
    ("403", r"GET at http://127.0.0.1:\d+: 403 Forbidden \(AccessDenied, by the proxy\).*AWS_ACCESS_KEY_ID"),
    ("400", "ExpiredToken.*has expired"), ("301", "redirect without LOCATION.*is the region right"),
    ("200", r"the whole file \(200\)"), ("412", "412 Precondition Failed"), ("flip", "is not the one that was published")])
def test_faults_that_last_are_told_at_once(behind_faults: tuple[stores.Store, stores.Proxy], fault: str, text: str, tmp_path: Path) -> None:
    store, between = behind_faults
    with rankstore.open(store.url("tokens"), local=tmp_path / "first", storage_options=store.options):
        pass
    between.set(fault=fault)
    before = between.counts()["requests"]
    with pytest.raises(rankstore.RankStoreError, match=text) as failed:
        epoch(store.url("tokens"), tmp_path / "local", store.options)
    assert store.url("tokens")[:12] in str(failed.value) and stores.without_secrets(str(failed.value))
    assert between.counts()["requests"] - before < 150


def test_a_fault_in_mid_epoch_ends_it_with_the_store_s_words(behind_faults: tuple[stores.Store, stores.Proxy], tmp_path: Path) -> None:
    store, between = behind_faults
    build(tmp_path / "more", 0, 6000)
    rankstore.publish(tmp_path / "more", store.url("more"), storage_options=store.options)
    between.set(bytes_per_s=5_000_000)
    with pytest.raises(rankstore.RankStoreError, match="403 Forbidden"), \
            rankstore.open(store.url("more"), local=tmp_path / "local", storage_options=store.options) as ds:
        for number, batch in enumerate(ds.loader(ds.plan(batch_size=8, seed=3))):
            assert right(batch)
            if number == 2:
                between.set(fault="403")


def test_each_range_names_the_version_that_was_read_first(behind_faults: tuple[stores.Store, stores.Proxy], tmp_path: Path) -> None:
    store, between = behind_faults
    epoch(store.url("tokens"), tmp_path / "local", store.options)
    assert between.counts()["unconditional"] <= SHARDS  # the first of each shard


def test_a_request_that_stalls_is_made_again(behind_faults: tuple[stores.Store, stores.Proxy], tmp_path: Path) -> None:
    store, between = behind_faults
    between.set(fault="stall", times=1)
    ids, _ = epoch(store.url("tokens"), tmp_path / "local", store.options)
    assert sorted(ids) == list(range(SAMPLES)) and between.counts()["faults"] == 1


def test_a_storm_of_503_is_waited_for_with_few_requests(behind_faults: tuple[stores.Store, stores.Proxy], tmp_path: Path) -> None:
    store, between = behind_faults
    between.set(fault="503", where=".")
    calm = threading.Timer(5, between.set)
    calm.start()
    try:
        ids, _ = epoch(store.url("tokens"), tmp_path / "local", store.options)
    finally:
        calm.join()
    assert sorted(ids) == list(range(SAMPLES))
    assert 2 <= between.counts()["faults"] <= 150


class Metadata(BaseHTTPRequestHandler):
    """A machine's metadata service: credentials that are renewed a second after they were given."""

    number = 1

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_PUT(self) -> None:
        self.say(b"a-token")

    def do_GET(self) -> None:
        if self.path.rstrip("/").endswith("security-credentials"):
            self.say(b"role")
            return
        until = datetime.now(UTC) + timedelta(seconds=301)  # obstore asks anew five minutes before
        self.say(json.dumps({"AccessKeyId": f"KEY{type(self).number}", "SecretAccessKey": "s" * 20, "Token": "t" * 20, "Code": "Success",
                             "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z",
                             "Expiration": until.strftime("%Y-%m-%dT%H:%M:%SZ")}).encode())

    def say(self, content: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def test_credentials_that_expire_are_renewed_in_mid_epoch(behind_faults: tuple[stores.Store, stores.Proxy], tmp_path: Path) -> None:
    store, between = behind_faults
    build(tmp_path / "more", 0, 6000)
    rankstore.publish(tmp_path / "more", store.url("more"), storage_options=store.options)
    Metadata.number = 1
    with ThreadingHTTPServer(("127.0.0.1", 0), Metadata) as service:
        threading.Thread(target=service.serve_forever).start()
        options = {"endpoint": store.address, "region": "us-east-1", "metadata_endpoint": f"http://127.0.0.1:{service.server_address[1]}"}
        try:
            between.set(bytes_per_s=2_000_000)
            with rankstore.open(store.url("more"), local=tmp_path / "local", storage_options=options) as ds:
                ids = []
                for number, batch in enumerate(ds.loader(ds.plan(batch_size=8, seed=3))):
                    assert right(batch)
                    ids += batch["i"].tolist()
                    if number == 2:
                        Metadata.number = 2
                        while between.counts()["keys"].get("KEY2", 0) < 3:
                            time.sleep(0.05)
                        time.sleep(2)  # no request of the old key is on its way
                        between.set(expired_key="KEY1")
        finally:
            service.shutdown()
    assert sorted(ids) == list(range(6000)) and between.counts()["faults"] == 0
    keys = between.counts()["keys"]
    assert keys["KEY1"] > 0 and keys["KEY2"] > 5


def test_a_store_that_fails_now_and_then_gives_the_same_samples(behind_faults: tuple[stores.Store, stores.Proxy], tmp_path: Path) -> None:
    """Epochs from home and builds by URL, while GETs fail: 1 in 20; with RKS_FAULT_SECONDS, 1 in 100 for so long."""
    import obstore
    store, between = behind_faults
    seconds = float(os.environ.get("RKS_FAULT_SECONDS", "0"))
    kinds = ["503", "cut", "close", "500", "short", "etag", "429", *(["stall"] if seconds else [])]
    text = "".join(json.dumps({"n": n, "words": "word " * (n % 50)}) + "\n" for n in range(20000)).encode()
    for name in ("a", "b"):
        obstore.put(store.client(), f"in/{name}.jsonl", text)
    wanted, begun, faults, stalled, rounds = set(), time.monotonic(), 0, 0, 0
    while rounds < len(kinds) or time.monotonic() - begun < seconds:
        kind = kinds[rounds % len(kinds)]  # an input that is another one is an error
        between.set(fault=kind, each=100 if seconds else 20, where=r"\.rks$" if kind == "etag" else ".")
        before = between.counts()["faults"]
        for again in range(20):  # until one has failed
            local, out = tmp_path / f"l{rounds}.{again}", tmp_path / f"o{rounds}.{again}"
            ids, _ = epoch(store.url("tokens"), local, store.options)
            assert sorted(ids) == list(range(SAMPLES))
            rankstore.build(store.url("in/*.jsonl"), out, storage_options=store.options, progress=False, unit_size="256KiB").close()
            wanted.add(json.loads((out / "dataset.json").read_text())["dataset"])
            assert not [path for path in local.rglob("*") if path.suffix in (".arriving", ".pieces", ".manifest")]
            shutil.rmtree(local)
            shutil.rmtree(out)
            if between.counts()["faults"] > before:
                break
        now = between.counts()["faults"] - before
        faults, stalled, rounds = faults + now, stalled + (now if kind == "stall" else 0), rounds + 1
    assert faults >= rounds and len(wanted) == 1
    assert between.counts()["under_way"] == stalled  # the proxy sleeps on
    if seconds:
        print(f"{rounds} rounds, {faults} faults, {between.counts()['requests']} requests")
