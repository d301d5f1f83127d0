# SPDX-License-Identifier: Apache-2.0
"""Commands on a home in an object store: info, plan, stats, cat, doctor, verify."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import stores
from built import COMMAND
from stored_tokens import SAMPLES, build, shard_bytes

import rankstore

pytest.importorskip("obstore")
pytest.importorskip("moto")

def test_commands_look_into_a_url_without_a_local_directory(tokens: Path, stored_home: stores.Store, tmp_path: Path) -> None:
    """They bring the index and what they show, not the shards."""
    for name in ("tmp", "more"):
        (tmp_path / name).mkdir()
    build(tmp_path / "more" / "d", 0, 6000)
    rankstore.publish(tmp_path / "more" / "d", stored_home.url("more"), storage_options=stored_home.options)
    with stores.proxy(stored_home.address) as between:
        environ = {**os.environ, **stores.Store(between.address, stored_home.bucket).environment, "TMPDIR": str(tmp_path / "tmp"),
                   "RANKSTORE_PYTHON": sys.executable}

        def said(*words: str) -> str:
            return subprocess.run([str(COMMAND), *words], env=environ, check=True, capture_output=True, text=True, timeout=100).stdout

        assert json.loads(said("info", "--json", stored_home.url("more")))["directory"] == stored_home.url("more")
        assert "6,000 samples" in said("plan", stored_home.url("more"), "--batch-size", "10")
        assert "of 6,000 samples" in said("stats", stored_home.url("more"))
        assert "int64  5900" in said("cat", stored_home.url("more"), "#5900")
        assert between.counts()["data_bytes"] < shard_bytes(tmp_path / "more" / "d") / 4
    assert not list((tmp_path / "tmp").iterdir())


def findings(url: str, store: stores.Store) -> tuple[int, dict[str, Any]]:
    """What doctor finds of a store: the exit code, and the findings of the store by name."""
    environ = {**os.environ, **store.environment, "RANKSTORE_PYTHON": sys.executable}
    done = subprocess.run([str(COMMAND), "doctor", "--json", url], env=environ, capture_output=True, text=True, timeout=200)
    assert stores.without_secrets(done.stdout + done.stderr)
    report = json.loads(done.stdout)
    return done.returncode, {one["name"]: one for one in report["findings"]
                             if one["name"] in ("store", "credentials", "dataset", "requests", "ranges", "writes")}


def test_doctor_says_what_works_in_a_store(stored_home: stores.Store) -> None:
    there = stored_home.names("tokens")
    _, found = findings(stored_home.url("tokens"), stored_home)
    assert list(found) == ["credentials", "store", "dataset", "requests", "ranges", "writes"]
    assert all(one["ok"] for one in found.values()), found
    assert found["credentials"]["value"] == "of the environment: AWS_ACCESS_KEY_ID, AWS_ENDPOINT, AWS_REGION"
    assert f"{SAMPLES} samples" in found["dataset"]["value"] and "MB/s" in found["ranges"]["value"]
    assert found["writes"]["value"] == "possible, with conditions, and objects can be removed"
    assert stored_home.names("tokens") == there
    _, found = findings(stored_home.url("nothing"), stored_home)
    assert list(found) == ["credentials", "store", "dataset", "requests", "writes"]
    assert found["dataset"]["value"].startswith("none") and stored_home.names("nothing") == []


@pytest.mark.parametrize(("rules", "name", "ok", "text"), [
    ({"fault": "403", "where": "."}, "store", False, "403 Forbidden (AccessDenied, by the proxy)"),
    ({"fault": "200"}, "ranges", False, "the whole file (200)"),
    ({"fault": "403", "method": "PUT", "where": "."}, "writes", True, "not possible: "),
    ({"fault": "conditions", "method": "PUT", "where": "."}, "writes", False, "a condition (If-None-Match) is not kept"),
    ({"fault": "403", "method": "POST", "where": "."}, "writes", False, "was not removed: ")])
def test_doctor_says_what_does_not(rules: dict[str, Any], name: str, ok: bool, text: str,
                                   behind_faults: tuple[stores.Store, stores.Proxy]) -> None:
    store, between = behind_faults
    between.set(**rules)
    code, found = findings(store.url("tokens"), store)
    assert found[name]["ok"] == ok and text in found[name]["value"], found
    assert (code == 3) or ok
    assert name != "store" or list(found) == ["credentials", "store"]


def verified(url: str, store: stores.Store, *words: str) -> tuple[int, dict[str, Any], str]:
    """The exit code of verify, its JSON, and what it said besides."""
    environ = {**os.environ, **store.environment, "RANKSTORE_PYTHON": sys.executable}
    done = subprocess.run([str(COMMAND), "verify", "--json", *words, url], env=environ, capture_output=True, text=True, timeout=200)
    return done.returncode, json.loads(done.stdout), done.stderr


def test_verify_looks_at_what_lies_in_a_store(tokens: Path, stored_home: stores.Store) -> None:
    shard = next(path.name for path in tokens.glob("*.rks"))
    with stores.proxy(stored_home.address) as between:
        store = stores.Store(between.address, stored_home.bucket)
        code, report, _ = verified(store.url("tokens"), store)
        assert (code, report["ok"], report["samples"], report["errors"]) == (0, True, 0, [])
        assert between.counts()["data_bytes"] == 0  # sizes alone
        code, report, _ = verified(store.url("tokens"), store, "--full")
        assert (code, report["samples"]) == (0, SAMPLES) and between.counts()["data_bytes"] == shard_bytes(tokens)
        assert verified(store.url("tokens@1"), store)[0] == 0
        between.set(fault="flip", where=shard)
        code, report, _ = verified(store.url("tokens"), store, "--full")
        assert code == 1 and report["errors"][0]["file"] == store.url(f"tokens/{shard}")
        assert "are not those that were published" in report["errors"][0]["what"]
        between.set()
        code, _, said = verified(store.url("tokens"), store, "--deep")
        assert code == 2 and "stage the dataset" in said
        code, _, said = verified(store.url("nothing"), store)
        assert code == 1 and "no dataset here" in said
        code, _, said = verified(store.url("tokens@7"), store)
        assert code == 1 and "there is no generation 7" in said


def test_verify_names_each_object_that_lacks_or_is_another(tokens: Path, stored_home: stores.Store) -> None:
    import obstore
    client, name = stored_home.client(), next(path.stem for path in tokens.glob("*.rks"))
    kept = {ending: (tokens / f"{name}.{ending}").read_bytes() for ending in ("rks", "sums", "json")}

    def found(ending: str, content: bytes | None) -> str:
        if content is None:
            obstore.delete(client, f"tokens/{name}.{ending}")
        else:
            obstore.put(client, f"tokens/{name}.{ending}", content)
        code, report, _ = verified(stored_home.url("tokens"), stored_home)
        obstore.put(client, f"tokens/{name}.{ending}", kept[ending])
        assert code == 1 and len(report["errors"]) == 1
        return str(report["errors"][0]["what"])

    assert "404" in found("rks", None)
    assert f"{len(kept['rks'])} when it was sealed" in found("rks", kept["rks"][:-1])
    assert "not the sums that the manifest names" in found("sums", kept["sums"][:-1] + b"x")
    assert "not the sums that the manifest names" in found("sums", kept["sums"][:-1])
    assert "does not match its own digest" in found("json", kept["json"].replace(b'"samples"', b'"sampleS"', 1))
    assert verified(stored_home.url("tokens"), stored_home, "--full")[0] == 0
