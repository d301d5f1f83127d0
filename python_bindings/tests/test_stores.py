# SPDX-License-Identifier: Apache-2.0
"""Homes in an object store, served by moto's server on this machine."""
from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import stores
from built import COMMAND

import rankstore

pytest.importorskip("obstore")
pytest.importorskip("moto")

SAMPLES, SHARDS, TWICE = 600, 12, 65536
Ranks = Callable[..., list[Any]]
SCRIPT = """
import json, os, sys
os.environ["RKS_NODE"] = os.environ["RANK"]
import numpy, rankstore
url, local, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
with rankstore.open(url, local=local, storage_options=options) as ds:
    plan = ds.plan(batch_size=8, seed=3)
    ids, right = [], True
    for batch in ds.loader(plan):
        ids += batch["i"].tolist()
        for i, data in zip(batch["i"].tolist(), batch["data"]):
            right = right and bytes(data) == bytes([i % 251]) * (4000 + i % 97 * 50)
    ds.group.barrier()
    print(json.dumps([ids, ds.stats()["home_bytes"], right]))
"""


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with stores.moto() as address:
        yield address


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("built") / "tokens"
    build(home, 0, SAMPLES)
    assert len(list(home.glob("*.rks"))) == SHARDS
    return home


@pytest.fixture
def store(server: str, tmp_path: Path) -> stores.Store:
    return stores.make_bucket(server, "b" + str(abs(hash(str(tmp_path)))))


@pytest.fixture
def home(built: Path, store: stores.Store) -> stores.Store:
    rankstore.publish(built, store.url("tokens"), storage_options=store.options)
    return store


def build(out: Path, first: int, end: int, **more: Any) -> None:
    rows = ({"i": i, "data": bytes([i % 251]) * (4000 + i % 97 * 50)} for i in range(first, end))
    size = "256KiB" if end - first <= SAMPLES else "16MiB"
    rankstore.build(rows, out, max_shard=size, unit_samples=20, **more).close()


def shard_bytes(home: Path) -> int:
    return sum(path.stat().st_size for path in home.glob("part-*.rks"))


def right(batch: Any) -> bool:
    return all(bytes(data) == bytes([i % 251]) * (4000 + i % 97 * 50) for i, data in zip(batch["i"].tolist(), batch["data"], strict=True))


def epoch(url: str, local: Path, options: dict[str, Any]) -> tuple[list[int], int]:
    with rankstore.open(url, local=local, storage_options=options) as ds:
        ids = []
        for batch in ds.loader(ds.plan(batch_size=8, seed=3)):
            ids += batch["i"].tolist()
            assert right(batch)
        return ids, int(ds.stats()["home_bytes"])


# ---- publish, open, stage ----------------------------------------------------------------------------

def test_what_is_published_is_the_directory_and_opens_with_the_same_plan(built: Path, home: stores.Store, tmp_path: Path) -> None:
    names = home.names("tokens")
    assert "rankstore.home" in names and "dataset.claim" not in names
    for name in names:
        if name != "rankstore.home":
            assert home.read(f"tokens/{name}") == (built / name).read_bytes(), name
    with rankstore.open(built) as ds:
        ids = [i for batch in ds.loader(ds.plan(batch_size=8, seed=3)) for i in batch["i"].tolist()]
    found, brought = epoch(home.url("tokens"), tmp_path / "local", home.options)
    assert found == ids
    assert shard_bytes(built) <= brought <= shard_bytes(built) + SHARDS * TWICE
    assert epoch(home.url("tokens"), tmp_path / "local", home.options) == (ids, 0)
    again = rankstore.publish(built, home.url("tokens"), storage_options=home.options)
    assert (again.sent_shards, again.sent_bytes) == (0, 0)
    assert not stores.helpers()


def test_four_ranks_bring_each_byte_once(built: Path, home: stores.Store, tmp_path: Path, ranks: Ranks) -> None:
    found = ranks(4, SCRIPT, home.url("tokens"), str(tmp_path / "l{rank}"), json.dumps(home.options))
    answers = [json.loads(one.stdout) for one in found]
    assert sorted(i for ids, *_ in answers for i in ids) == list(range(SAMPLES)) and all(right for *_, right in answers)
    brought = sum(one for _, one, _ in answers)
    assert shard_bytes(built) <= brought <= shard_bytes(built) + SHARDS * TWICE
    again = ranks(4, SCRIPT, home.url("tokens"), str(tmp_path / "l{rank}"), json.dumps(home.options))
    assert sum(json.loads(one.stdout)[1] for one in again) == 0


def test_later_generations_and_older_ones(built: Path, store: stores.Store, tmp_path: Path) -> None:
    out, url = tmp_path / "out", store.url("tokens")
    build(out, 0, 100, home=url, storage_options=store.options)
    build(out, 100, 160, append=True, home=url, storage_options=store.options)
    for name, count in ((url, 160), (url + "@1", 100), (url + "@2", 160)):
        with rankstore.open(name, local=tmp_path / "local", storage_options=store.options) as ds:
            assert len(ds) == count and int(ds[count - 1]["i"]) == count - 1
    with pytest.raises(rankstore.NotFoundError, match="there is no generation 7"):
        rankstore.open(url + "@7", local=tmp_path / "other", storage_options=store.options)


GROWN = """
import json, os, sys
os.environ["RKS_NODE"] = os.environ["RANK"]
import rankstore
url, local, out, options = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
with rankstore.open(url, local=local, storage_options=options) as ds:
    loader = ds.loader(ds.plan(batch_size=8, seed=3))
    said = [ds.refresh(), len(ds)]
    ds.group.barrier()
    if ds.group.rank == 0:
        import subprocess
        subprocess.run([sys.executable, "-c", sys.argv[5], out, url, sys.argv[4]], check=True, env={
            name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
                                                                              "LOCAL_RANK", "LOCAL_WORLD_SIZE", "RKS_NODE")})
    ds.group.barrier()
    said += [ds.refresh(), len(ds), ds.refresh()]
    ids = [i for batch in loader for i in batch["i"].tolist()]
    ds.group.barrier()
    print(json.dumps([said, ids]))
"""
APPEND = """
import json, sys, rankstore
rows = ({"i": i, "data": bytes([i % 251]) * 40} for i in range(100, 160))
rankstore.build(rows, sys.argv[1], unit_samples=20, append=True, home=sys.argv[2], storage_options=json.loads(sys.argv[3])).close()
"""


def test_a_dataset_that_was_opened_by_url_grows(store: stores.Store, tmp_path: Path, ranks: Ranks) -> None:
    out, url = tmp_path / "out", store.url("tokens")
    build(out, 0, 100, home=url, storage_options=store.options)
    with stores.proxy(store.address) as between:
        behind = stores.Store(between.address, store.bucket)
        found = ranks(2, GROWN, behind.url("tokens"), str(tmp_path / "l{rank}"), str(out), json.dumps(behind.options), APPEND)
    answers = [json.loads(one.stdout) for one in found]
    assert all(said == [False, 100, True, 160, False] for said, _ in answers)
    assert sorted(i for _, ids in answers for i in ids) == list(range(160))
    with rankstore.open(url, local=tmp_path / "l0", storage_options=store.options) as ds:
        build(tmp_path / "other", 0, 30)
        import obstore
        for path in (tmp_path / "other").iterdir():
            if path.is_file():
                obstore.put(store.client(), f"tokens/{path.name}", path.read_bytes())
        with pytest.raises(rankstore.StateError, match="did not grow out of dataset"):
            ds.refresh()
        assert len(ds) == 160 and int(ds[159]["i"]) == 159


def test_local_copies_are_removed_if_the_store_has_them(built: Path, home: stores.Store, tmp_path: Path) -> None:
    import obstore
    rankstore.stage(home.url("tokens"), tmp_path / "local", storage_options=home.options)
    prune = [str(COMMAND), "prune", "--local", str(tmp_path / "local"), "--json"]
    environ = {**os.environ, **home.environment, "RANKSTORE_PYTHON": sys.executable}
    name = next(built.glob("part-*.json")).name
    content = home.read(f"tokens/{name}")
    obstore.put(home.client(), f"tokens/{name}", content.replace(b"1", b"2"))
    with pytest.raises(rankstore.RankStoreError, match="nothing is removed"):
        rankstore.prune_local(tmp_path / "local", storage_options=home.options)
    assert len(list((tmp_path / "local").glob("*/part-*.rks"))) == SHARDS
    obstore.put(home.client(), f"tokens/{name}", content)
    done = subprocess.run(prune, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["shards"] == SHARDS and stores.without_secrets(done.stdout + done.stderr)
    assert not list((tmp_path / "local").glob("*/part-*.rks")) and not stores.helpers()
    assert epoch(home.url("tokens"), tmp_path / "local", home.options)[1] > 0


def test_stage_brings_all_and_the_job_nothing(built: Path, home: stores.Store, tmp_path: Path) -> None:
    report = rankstore.stage(home.url("tokens"), tmp_path / "local", storage_options=home.options)
    assert report.bytes >= shard_bytes(built) and report.here_bytes == 0
    for path in built.glob("part-*"):
        found = list((tmp_path / "local").glob(f"*/{path.name}"))
        assert len(found) == 1 and found[0].read_bytes() == path.read_bytes()
    assert epoch(home.url("tokens"), tmp_path / "local", home.options)[1] == 0


def test_local_is_needed_or_the_variable(home: stores.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(rankstore.ArgumentError, match=r"local= .*RKS_LOCAL"):
        rankstore.open(home.url("tokens"), storage_options=home.options)
    monkeypatch.setenv("RKS_LOCAL", str(tmp_path / "named"))
    with rankstore.open(home.url("tokens"), storage_options=home.options) as ds:
        assert len(ds) == SAMPLES
    assert (tmp_path / "named").is_dir()


def test_a_file_url_is_a_directory(built: Path, tmp_path: Path) -> None:
    rankstore.publish(built, f"file://{tmp_path}/home")
    assert (tmp_path / "home" / "dataset.json").exists()
    with rankstore.open(f"file://{tmp_path}/home") as ds:
        assert len(ds) == SAMPLES
    assert epoch(f"file://{tmp_path}/home", tmp_path / "local", None)[1] > 0  # type: ignore[arg-type]


def test_two_that_publish_at_once(store: stores.Store, tmp_path: Path) -> None:
    """The same dataset: both succeed. Two datasets: one does, and the home is whole."""
    for k in range(2):
        build(tmp_path / f"d{k}", 1000 * k, 1000 * k + 60)

    def both(sources: list[Path], url: str) -> list[str]:
        code = ("import sys, json, rankstore\ntry:\n"
                "    rankstore.publish(sys.argv[1], sys.argv[2], storage_options=json.loads(sys.argv[3]))\n"
                "    print('done')\nexcept rankstore.StateError as e:\n    print('refused', e)")
        options = json.dumps(store.options)
        running = [subprocess.Popen([sys.executable, "-c", code, str(one), url, options], stdout=subprocess.PIPE, text=True)
                   for one in sources]
        return sorted(one.communicate(timeout=120)[0].split(" ")[0].strip() for one in running)

    assert both([tmp_path / "d0", tmp_path / "d1"], store.url("other")) == ["done", "refused"]
    with rankstore.open(store.url("other"), local=tmp_path / "local", storage_options=store.options) as ds:
        assert len(ds) == 60 and int(ds[0]["i"]) in (0, 1000)
    assert both([tmp_path / "d0", tmp_path / "d0"], store.url("same")) == ["done", "done"]


def test_a_publish_that_ends_early_leaves_no_upload(store: stores.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = ({"i": i, "data": os.urandom(1 << 20)} for i in range(80))
    rankstore.build(rows, tmp_path / "large", unit_samples=20).close()
    path = next((tmp_path / "large").glob("*.rks"))
    at = path.stat().st_size - (8 << 20)  # found when most of it was sent
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(rankstore.CorruptError, match="does not match its sum"):
        rankstore.publish(tmp_path / "large", store.url("large"), storage_options=store.options)
    assert store.uploads() == 0 and not [name for name in store.names("large") if name.endswith(".rks")]
    with path.open("r+b") as file:
        file.seek(at)
        file.write(byte)
    rankstore.publish(tmp_path / "large", store.url("large"), storage_options=store.options)
    assert store.read(f"large/{path.name}") == path.read_bytes() and store.uploads() == 0


# ---- the helper ---------------------------------------------------------------------------------------

def test_a_killed_helper_is_started_again(home: stores.Store, tmp_path: Path) -> None:
    stop = threading.Event()

    def kill() -> None:
        killed = 0
        while not stop.is_set() and killed < 3:
            for one in stores.helpers():
                os.kill(one, signal.SIGKILL)
                killed += 1
            stop.wait(0.3)

    killer = threading.Thread(target=kill)
    killer.start()
    ids, _ = epoch(home.url("tokens"), tmp_path / "local", home.options)
    stop.set()
    killer.join()
    assert sorted(ids) == list(range(SAMPLES))


def test_the_helper_ends_with_its_rank(home: stores.Store, tmp_path: Path) -> None:
    """Also if a forked process of the rank lives on, which has the socket open."""
    code = ("import os, sys, json, time, rankstore\n"
            "ds = rankstore.open(sys.argv[1], local=sys.argv[2], storage_options=json.loads(sys.argv[3]))\n"
            "if os.fork() == 0:\n    time.sleep(30)\n    os._exit(0)\n"
            "from pathlib import Path\n"
            "print(*[p.parent.name for p in Path('/proc').glob('[0-9]*/stat')"
            " if p.read_text().rpartition(')')[2].split()[1] == str(os.getpid())"
            " and b'store_helper' in (p.parent / 'cmdline').read_bytes()], flush=True)\n"
            "time.sleep(30)\n")
    with subprocess.Popen([sys.executable, "-c", code, home.url("tokens"), str(tmp_path / "local"), json.dumps(home.options)],
                          stdout=subprocess.PIPE, text=True, start_new_session=True) as rank:
        assert rank.stdout is not None
        helper = rank.stdout.readline().strip()
        assert helper, "no helper"
        rank.kill()
        for _ in range(100):
            if not Path(f"/proc/{helper}").exists():
                break
            threading.Event().wait(0.1)
        gone = not Path(f"/proc/{helper}").exists()
        os.killpg(rank.pid, signal.SIGKILL)
    assert gone


def test_workers_of_a_loader_are_forked_beside_it(home: stores.Store, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with rankstore.open(home.url("tokens"), local=tmp_path / "local", storage_options=home.options) as ds:
        loader = torch.utils.data.DataLoader(ds, batch_size=10, num_workers=2, multiprocessing_context="fork",
                                             collate_fn=lambda rows: [int(row["i"]) for row in rows])
        assert sorted(i for batch in loader for i in batch) == list(range(SAMPLES))


def test_secrets_appear_nowhere(built: Path, home: stores.Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with rankstore.open(home.url("tokens"), local=tmp_path / "local", storage_options=home.options) as ds:
        shown = repr(ds) + str(ds.given) + str(ds.loader(ds.plan(batch_size=8)).state_dict())
        running = b"".join((Path("/proc") / str(one) / part).read_bytes() for one in stores.helpers() for part in ("cmdline", "environ"))
        assert stores.without_secrets(shown) and stores.without_secrets(running) and running
        assert stores.without_secrets(pickle.dumps(ds))
    assert stores.without_secrets(stores.everything_in(tmp_path / "local"))
    said = json.loads(next((tmp_path / "local").glob("*/home.json")).read_text())
    assert home.url("tokens") in said.values()
    wrong = {**home.options, "endpoint": "http://127.0.0.1:1", "session_token": stores.SECRET}
    with pytest.raises(rankstore.RankStoreError) as failed:
        rankstore.open(home.url("tokens"), local=tmp_path / "none", storage_options={**wrong, "no_such_option": stores.SECRET})
    assert stores.without_secrets(str(failed.value)) and "no_such_option" in str(failed.value)
    assert stores.without_secrets("".join(capfd.readouterr()))


def test_another_program_may_be_the_helper(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 30 lines over a directory; any scheme is its own business."""
    program = Path(__file__).with_name("small_helper.py")
    monkeypatch.setenv("RKS_HOME_HELPER", str(program))
    monkeypatch.setenv("SMALL_HELPER_TOP", str(tmp_path / "top"))
    (tmp_path / "top" / "tokens").mkdir(parents=True)
    rankstore.publish(built, "toy://top/tokens")
    ids, brought = epoch("toy://top/tokens", tmp_path / "local", None)  # type: ignore[arg-type]
    assert sorted(ids) == list(range(SAMPLES)) and brought >= shard_bytes(built)


def test_what_no_library_knows_is_told(tmp_path: Path) -> None:
    with pytest.raises(rankstore.RankStoreError, match="(?i)protocol not known: nosuch|No module"):
        rankstore.open("nosuch://bucket/x", local=tmp_path / "local")


# ---- Google's API -------------------------------------------------------------------------------------

def test_a_home_and_inputs_in_google_s_store(built: Path, server: str, tmp_path: Path) -> None:
    """By its XML API, which is S3's but for generations, so moto serves it behind generation_front.py."""
    import obstore
    import obstore.store
    bucket = stores.make_bucket(server, "g" + str(abs(hash(str(tmp_path))))).bucket
    port = stores.free_port()
    front = [sys.executable, str(Path(__file__).with_name("generation_front.py")), str(port), server.rpartition(":")[2]]
    with stores.started(front, port) as address:
        account = json.dumps({"gcs_base_url": address, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""})
        options = {"service_account_key": account, "client_options": {"allow_http": True}}
        client = obstore.store.from_url(f"gs://{bucket}", config={"service_account_key": account}, client_options={"allow_http": True})
        out, url = tmp_path / "out", f"gs://{bucket}/tokens"
        build(out, 0, 100, home=url, storage_options=options)
        build(out, 100, 160, append=True, home=url, storage_options=options)
        build(tmp_path / "other", 0, 30)
        with pytest.raises(rankstore.StateError, match="publish it to another home"):
            rankstore.publish(tmp_path / "other", url, storage_options=options)
        with rankstore.open(url, local=tmp_path / "local", storage_options=options) as ds:
            ids = [i for batch in ds.loader(ds.plan(batch_size=8, seed=3)) for i in batch["i"].tolist()]
            assert sorted(ids) == list(range(160)) and not ds.refresh()
        assert rankstore.prune_local(tmp_path / "local", storage_options=options).shards > 0
        lines = "".join(json.dumps({"i": i}) + "\n" for i in range(5000)).encode()
        obstore.put(client, "in/a.jsonl", lines)
        with rankstore.build(f"gs://{bucket}/in/*.jsonl", tmp_path / "in", unit_size="8KiB", storage_options=options) as ds:
            assert [int(ds[i]["i"]) for i in (0, 4999)] == [0, 4999] and len(ds) == 5000
    assert not stores.helpers()


# ---- faults -------------------------------------------------------------------------------------------

@pytest.fixture
def broken(home: stores.Store) -> Iterator[tuple[stores.Store, stores.Proxy]]:
    with stores.proxy(home.address) as between:
        yield stores.Store(between.address, home.bucket), between


@pytest.mark.parametrize("rules", [
    {"fault": "503", "times": 10}, {"fault": "429", "times": 3}, {"fault": "500", "each": 7}, {"fault": "close", "each": 5},
    {"fault": "cut", "each": 5}, {"fault": "short", "each": 9}, {"fault": "long", "each": 7}, {"fault": "307", "each": 2},
    {"fault": "etag"}], ids=lambda rules: str(rules["fault"]))
def test_faults_that_pass_cost_time_alone(broken: tuple[stores.Store, stores.Proxy], rules: dict[str, Any], tmp_path: Path) -> None:
    store, between = broken
    between.set(**rules)
    ids, _ = epoch(store.url("tokens"), tmp_path / "local", store.options)
    counts = between.counts()
    assert sorted(ids) == list(range(SAMPLES)) and counts["faults"] > 0 and counts["under_way"] == 0
    assert counts["requests"] < 400


@pytest.mark.parametrize(("fault", "text"), [
    ("403", r"GET at http://127.0.0.1:\d+: 403 Forbidden \(AccessDenied, by the proxy\).*AWS_ACCESS_KEY_ID"),
    ("400", "ExpiredToken.*has expired"), ("301", "redirect without LOCATION.*is the region right"),
    ("200", r"the whole file \(200\)"), ("412", "412 Precondition Failed"), ("flip", "is not the one that was published")])
def test_faults_that_last_are_told_at_once(broken: tuple[stores.Store, stores.Proxy], fault: str, text: str, tmp_path: Path) -> None:
    store, between = broken
    with rankstore.open(store.url("tokens"), local=tmp_path / "first", storage_options=store.options):
        pass
    between.set(fault=fault)
    before = between.counts()["requests"]
    with pytest.raises(rankstore.RankStoreError, match=text) as failed:
        epoch(store.url("tokens"), tmp_path / "local", store.options)
    assert store.url("tokens")[:12] in str(failed.value) and stores.without_secrets(str(failed.value))
    assert between.counts()["requests"] - before < 150


def test_a_fault_in_mid_epoch_ends_it_with_the_store_s_words(broken: tuple[stores.Store, stores.Proxy], tmp_path: Path) -> None:
    store, between = broken
    build(tmp_path / "more", 0, 6000)
    rankstore.publish(tmp_path / "more", store.url("more"), storage_options=store.options)
    between.set(bytes_per_s=5_000_000)
    with pytest.raises(rankstore.RankStoreError, match="403 Forbidden"), \
            rankstore.open(store.url("more"), local=tmp_path / "local", storage_options=store.options) as ds:
        for number, batch in enumerate(ds.loader(ds.plan(batch_size=8, seed=3))):
            assert right(batch)
            if number == 2:
                between.set(fault="403")


def test_each_range_names_the_version_that_was_read_first(broken: tuple[stores.Store, stores.Proxy], tmp_path: Path) -> None:
    store, between = broken
    epoch(store.url("tokens"), tmp_path / "local", store.options)
    assert between.counts()["unconditional"] <= SHARDS  # the first of each shard


def test_a_request_that_stalls_is_made_again(broken: tuple[stores.Store, stores.Proxy], tmp_path: Path) -> None:
    store, between = broken
    between.set(fault="stall", times=1)
    ids, _ = epoch(store.url("tokens"), tmp_path / "local", store.options)
    assert sorted(ids) == list(range(SAMPLES)) and between.counts()["faults"] == 1


def test_a_storm_of_503_is_waited_for_with_few_requests(broken: tuple[stores.Store, stores.Proxy], tmp_path: Path) -> None:
    store, between = broken
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


def test_credentials_that_expire_are_renewed_in_mid_epoch(broken: tuple[stores.Store, stores.Proxy], tmp_path: Path) -> None:
    store, between = broken
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


def test_commands_look_into_a_url_without_a_local_directory(built: Path, home: stores.Store, tmp_path: Path) -> None:
    """They bring the index and what they show, not the shards."""
    for name in ("tmp", "more"):
        (tmp_path / name).mkdir()
    build(tmp_path / "more" / "d", 0, 6000)
    rankstore.publish(tmp_path / "more" / "d", home.url("more"), storage_options=home.options)
    with stores.proxy(home.address) as between:
        environ = {**os.environ, **stores.Store(between.address, home.bucket).environment, "TMPDIR": str(tmp_path / "tmp"),
                   "RANKSTORE_PYTHON": sys.executable}

        def said(*words: str) -> str:
            return subprocess.run([str(COMMAND), *words], env=environ, check=True, capture_output=True, text=True, timeout=100).stdout

        assert json.loads(said("info", "--json", home.url("more")))["directory"] == home.url("more")
        assert "6,000 samples" in said("plan", home.url("more"), "--batch-size", "10")
        assert "of 6,000 samples" in said("stats", home.url("more"))
        assert "int64  5900" in said("cat", home.url("more"), "#5900")
        assert between.counts()["data_bytes"] < shard_bytes(tmp_path / "more" / "d") / 4
    assert not list((tmp_path / "tmp").iterdir())


def test_a_store_that_fails_now_and_then_gives_the_same_samples(broken: tuple[stores.Store, stores.Proxy], tmp_path: Path) -> None:
    """Epochs from home and builds by URL, while GETs fail: 1 in 20; with RKS_FAULT_SECONDS, 1 in 100 for so long."""
    import obstore
    store, between = broken
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


def findings(url: str, store: stores.Store) -> tuple[int, dict[str, Any]]:
    """What doctor finds of a store: the exit code, and the findings of the store by name."""
    environ = {**os.environ, **store.environment, "RANKSTORE_PYTHON": sys.executable}
    done = subprocess.run([str(COMMAND), "doctor", "--json", url], env=environ, capture_output=True, text=True, timeout=200)
    assert stores.without_secrets(done.stdout + done.stderr)
    report = json.loads(done.stdout)
    return done.returncode, {one["name"]: one for one in report["findings"]
                             if one["name"] in ("store", "credentials", "dataset", "requests", "ranges", "writes")}


def test_doctor_says_what_works_in_a_store(home: stores.Store) -> None:
    there = home.names("tokens")
    _, found = findings(home.url("tokens"), home)
    assert list(found) == ["credentials", "store", "dataset", "requests", "ranges", "writes"]
    assert all(one["ok"] for one in found.values()), found
    assert found["credentials"]["value"] == "of the environment: AWS_ACCESS_KEY_ID, AWS_ENDPOINT, AWS_REGION"
    assert f"{SAMPLES} samples" in found["dataset"]["value"] and "MB/s" in found["ranges"]["value"]
    assert found["writes"]["value"] == "possible, with conditions, and objects can be removed"
    assert home.names("tokens") == there
    _, found = findings(home.url("nothing"), home)
    assert list(found) == ["credentials", "store", "dataset", "requests", "writes"]
    assert found["dataset"]["value"].startswith("none") and home.names("nothing") == []


@pytest.mark.parametrize(("rules", "name", "ok", "text"), [
    ({"fault": "403", "where": "."}, "store", False, "403 Forbidden (AccessDenied, by the proxy)"),
    ({"fault": "200"}, "ranges", False, "the whole file (200)"),
    ({"fault": "403", "method": "PUT", "where": "."}, "writes", True, "not possible: "),
    ({"fault": "conditions", "method": "PUT", "where": "."}, "writes", False, "a condition (If-None-Match) is not kept"),
    ({"fault": "403", "method": "POST", "where": "."}, "writes", False, "was not removed: ")])
def test_doctor_says_what_does_not(rules: dict[str, Any], name: str, ok: bool, text: str,
                                   broken: tuple[stores.Store, stores.Proxy]) -> None:
    store, between = broken
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


def test_verify_looks_at_what_lies_in_a_store(built: Path, home: stores.Store) -> None:
    shard = next(path.name for path in built.glob("*.rks"))
    with stores.proxy(home.address) as between:
        store = stores.Store(between.address, home.bucket)
        code, report, _ = verified(store.url("tokens"), store)
        assert (code, report["ok"], report["samples"], report["errors"]) == (0, True, 0, [])
        assert between.counts()["data_bytes"] == 0  # sizes alone
        code, report, _ = verified(store.url("tokens"), store, "--full")
        assert (code, report["samples"]) == (0, SAMPLES) and between.counts()["data_bytes"] == shard_bytes(built)
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


def test_verify_names_each_object_that_lacks_or_is_another(built: Path, home: stores.Store) -> None:
    import obstore
    client, name = home.client(), next(path.stem for path in built.glob("*.rks"))
    kept = {ending: (built / f"{name}.{ending}").read_bytes() for ending in ("rks", "sums", "json")}

    def found(ending: str, content: bytes | None) -> str:
        if content is None:
            obstore.delete(client, f"tokens/{name}.{ending}")
        else:
            obstore.put(client, f"tokens/{name}.{ending}", content)
        code, report, _ = verified(home.url("tokens"), home)
        obstore.put(client, f"tokens/{name}.{ending}", kept[ending])
        assert code == 1 and len(report["errors"]) == 1
        return str(report["errors"][0]["what"])

    assert "404" in found("rks", None)
    assert f"{len(kept['rks'])} when it was sealed" in found("rks", kept["rks"][:-1])
    assert "not the sums that the manifest names" in found("sums", kept["sums"][:-1] + b"x")
    assert "not the sums that the manifest names" in found("sums", kept["sums"][:-1])
    assert "does not match its own digest" in found("json", kept["json"].replace(b'"samples"', b'"sampleS"', 1))
    assert verified(home.url("tokens"), home, "--full")[0] == 0
