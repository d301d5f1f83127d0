# SPDX-License-Identifier: Apache-2.0
"""Homes in an object store, served by moto's server on this machine."""
from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import stores
from built import COMMAND
from stored_tokens import SAMPLES, SHARDS, TWICE, build, epoch, shard_bytes

import rankstore

pytest.importorskip("obstore")
pytest.importorskip("moto")

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


# ---- publish, open, stage ----------------------------------------------------------------------------

def test_what_is_published_is_the_directory_and_opens_with_the_same_plan(tokens: Path, stored_home: stores.Store, tmp_path: Path) -> None:
    names = stored_home.names("tokens")
    assert "rankstore.home" in names and "dataset.claim" not in names
    for name in names:
        if name != "rankstore.home":
            assert stored_home.read(f"tokens/{name}") == (tokens / name).read_bytes(), name
    with rankstore.open(tokens) as ds:
        ids = [i for batch in ds.loader(ds.plan(batch_size=8, seed=3)) for i in batch["i"].tolist()]
    found, brought = epoch(stored_home.url("tokens"), tmp_path / "local", stored_home.options)
    assert found == ids
    assert shard_bytes(tokens) <= brought <= shard_bytes(tokens) + SHARDS * TWICE
    assert epoch(stored_home.url("tokens"), tmp_path / "local", stored_home.options) == (ids, 0)
    again = rankstore.publish(tokens, stored_home.url("tokens"), storage_options=stored_home.options)
    assert (again.sent_shards, again.sent_bytes) == (0, 0)
    assert not stores.helpers()


def test_four_ranks_bring_each_byte_once(tokens: Path, stored_home: stores.Store, tmp_path: Path, ranks: Ranks) -> None:
    found = ranks(4, SCRIPT, stored_home.url("tokens"), str(tmp_path / "l{rank}"), json.dumps(stored_home.options))
    answers = [json.loads(one.stdout) for one in found]
    assert sorted(i for ids, *_ in answers for i in ids) == list(range(SAMPLES)) and all(good for *_, good in answers)
    brought = sum(one for _, one, _ in answers)
    assert shard_bytes(tokens) <= brought <= shard_bytes(tokens) + SHARDS * TWICE
    again = ranks(4, SCRIPT, stored_home.url("tokens"), str(tmp_path / "l{rank}"), json.dumps(stored_home.options))
    assert sum(json.loads(one.stdout)[1] for one in again) == 0


def test_later_generations_and_older_ones(tokens: Path, bucket: stores.Store, tmp_path: Path) -> None:
    out, url = tmp_path / "out", bucket.url("tokens")
    build(out, 0, 100, home=url, storage_options=bucket.options)
    build(out, 100, 160, append=True, home=url, storage_options=bucket.options)
    for name, count in ((url, 160), (url + "@1", 100), (url + "@2", 160)):
        with rankstore.open(name, local=tmp_path / "local", storage_options=bucket.options) as ds:
            assert len(ds) == count and int(ds[count - 1]["i"]) == count - 1
    with pytest.raises(rankstore.NotFoundError, match="there is no generation 7"):
        rankstore.open(url + "@7", local=tmp_path / "other", storage_options=bucket.options)


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


def test_a_dataset_that_was_opened_by_url_grows(bucket: stores.Store, tmp_path: Path, ranks: Ranks) -> None:
    out, url = tmp_path / "out", bucket.url("tokens")
    build(out, 0, 100, home=url, storage_options=bucket.options)
    with stores.proxy(bucket.address) as between:
        behind = stores.Store(between.address, bucket.bucket)
        found = ranks(2, GROWN, behind.url("tokens"), str(tmp_path / "l{rank}"), str(out), json.dumps(behind.options), APPEND)
    answers = [json.loads(one.stdout) for one in found]
    assert all(said == [False, 100, True, 160, False] for said, _ in answers)
    assert sorted(i for _, ids in answers for i in ids) == list(range(160))
    with rankstore.open(url, local=tmp_path / "l0", storage_options=bucket.options) as ds:
        build(tmp_path / "other", 0, 30)
        import obstore
        for path in (tmp_path / "other").iterdir():
            if path.is_file():
                obstore.put(bucket.client(), f"tokens/{path.name}", path.read_bytes())
        with pytest.raises(rankstore.StateError, match="did not grow out of dataset"):
            ds.refresh()
        assert len(ds) == 160 and int(ds[159]["i"]) == 159


def test_local_copies_are_removed_if_the_store_has_them(tokens: Path, stored_home: stores.Store, tmp_path: Path) -> None:
    import obstore
    rankstore.stage(stored_home.url("tokens"), tmp_path / "local", storage_options=stored_home.options)
    prune = [str(COMMAND), "prune", "--local", str(tmp_path / "local"), "--json"]
    environ = {**os.environ, **stored_home.environment, "RANKSTORE_PYTHON": sys.executable}
    name = next(tokens.glob("part-*.json")).name
    content = stored_home.read(f"tokens/{name}")
    obstore.put(stored_home.client(), f"tokens/{name}", content.replace(b"1", b"2"))
    with pytest.raises(rankstore.RankStoreError, match="nothing is removed"):
        rankstore.prune_local(tmp_path / "local", storage_options=stored_home.options)
    assert len(list((tmp_path / "local").glob("*/part-*.rks"))) == SHARDS
    obstore.put(stored_home.client(), f"tokens/{name}", content)
    done = subprocess.run(prune, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["shards"] == SHARDS and stores.without_secrets(done.stdout + done.stderr)
    assert not list((tmp_path / "local").glob("*/part-*.rks")) and not stores.helpers()
    assert epoch(stored_home.url("tokens"), tmp_path / "local", stored_home.options)[1] > 0


def test_stage_brings_all_and_the_job_nothing(tokens: Path, stored_home: stores.Store, tmp_path: Path) -> None:
    report = rankstore.stage(stored_home.url("tokens"), tmp_path / "local", storage_options=stored_home.options)
    assert report.bytes >= shard_bytes(tokens) and report.here_bytes == 0
    for path in tokens.glob("part-*"):
        found = list((tmp_path / "local").glob(f"*/{path.name}"))
        assert len(found) == 1 and found[0].read_bytes() == path.read_bytes()
    assert epoch(stored_home.url("tokens"), tmp_path / "local", stored_home.options)[1] == 0


def test_local_is_needed_or_the_variable(stored_home: stores.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(rankstore.ArgumentError, match=r"local= .*RKS_LOCAL"):
        rankstore.open(stored_home.url("tokens"), storage_options=stored_home.options)
    monkeypatch.setenv("RKS_LOCAL", str(tmp_path / "named"))
    with rankstore.open(stored_home.url("tokens"), storage_options=stored_home.options) as ds:
        assert len(ds) == SAMPLES
    assert (tmp_path / "named").is_dir()


def test_a_file_url_is_a_directory(tokens: Path, tmp_path: Path) -> None:
    rankstore.publish(tokens, f"file://{tmp_path}/home")
    assert (tmp_path / "home" / "dataset.json").exists()
    with rankstore.open(f"file://{tmp_path}/home") as ds:
        assert len(ds) == SAMPLES
    assert epoch(f"file://{tmp_path}/home", tmp_path / "local", None)[1] > 0  # type: ignore[arg-type]


def test_two_that_publish_at_once(bucket: stores.Store, tmp_path: Path) -> None:
    """The same dataset: both succeed. Two datasets: one does, and the home is whole."""
    for k in range(2):
        build(tmp_path / f"d{k}", 1000 * k, 1000 * k + 60)

    def both(sources: list[Path], url: str) -> list[str]:
        code = ("import sys, json, rankstore\ntry:\n"
                "    rankstore.publish(sys.argv[1], sys.argv[2], storage_options=json.loads(sys.argv[3]))\n"
                "    print('done')\nexcept rankstore.StateError as e:\n    print('refused', e)")
        options = json.dumps(bucket.options)
        running = [subprocess.Popen([sys.executable, "-c", code, str(one), url, options], stdout=subprocess.PIPE, text=True)
                   for one in sources]
        return sorted(one.communicate(timeout=120)[0].split(" ")[0].strip() for one in running)

    assert both([tmp_path / "d0", tmp_path / "d1"], bucket.url("other")) == ["done", "refused"]
    with rankstore.open(bucket.url("other"), local=tmp_path / "local", storage_options=bucket.options) as ds:
        assert len(ds) == 60 and int(ds[0]["i"]) in (0, 1000)
    assert both([tmp_path / "d0", tmp_path / "d0"], bucket.url("same")) == ["done", "done"]


def test_a_publish_that_ends_early_leaves_no_upload(bucket: stores.Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        rankstore.publish(tmp_path / "large", bucket.url("large"), storage_options=bucket.options)
    assert bucket.uploads() == 0 and not [name for name in bucket.names("large") if name.endswith(".rks")]
    with path.open("r+b") as file:
        file.seek(at)
        file.write(byte)
    rankstore.publish(tmp_path / "large", bucket.url("large"), storage_options=bucket.options)
    assert bucket.read(f"large/{path.name}") == path.read_bytes() and bucket.uploads() == 0


# ---- the helper ---------------------------------------------------------------------------------------

def test_a_killed_helper_is_started_again(stored_home: stores.Store, tmp_path: Path) -> None:
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
    ids, _ = epoch(stored_home.url("tokens"), tmp_path / "local", stored_home.options)
    stop.set()
    killer.join()
    assert sorted(ids) == list(range(SAMPLES))


def test_the_helper_ends_with_its_rank(stored_home: stores.Store, tmp_path: Path) -> None:
    """Also if a forked process of the rank lives on, which has the socket open."""
    code = ("import os, sys, json, time, rankstore\n"
            "ds = rankstore.open(sys.argv[1], local=sys.argv[2], storage_options=json.loads(sys.argv[3]))\n"
            "if os.fork() == 0:\n    time.sleep(30)\n    os._exit(0)\n"
            "from pathlib import Path\n"
            "print(*[p.parent.name for p in Path('/proc').glob('[0-9]*/stat')"
            " if p.read_text().rpartition(')')[2].split()[1] == str(os.getpid())"
            " and b'store_helper' in (p.parent / 'cmdline').read_bytes()], flush=True)\n"
            "time.sleep(30)\n")
    with subprocess.Popen([sys.executable, "-c", code, stored_home.url("tokens"), str(tmp_path / "local"), json.dumps(stored_home.options)],
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


def test_workers_of_a_loader_are_forked_beside_it(stored_home: stores.Store, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    with rankstore.open(stored_home.url("tokens"), local=tmp_path / "local", storage_options=stored_home.options) as ds:
        loader = torch.utils.data.DataLoader(ds, batch_size=10, num_workers=2, multiprocessing_context="fork",
                                             collate_fn=lambda rows: [int(row["i"]) for row in rows])
        assert sorted(i for batch in loader for i in batch) == list(range(SAMPLES))


def test_secrets_appear_nowhere(tokens: Path, stored_home: stores.Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with rankstore.open(stored_home.url("tokens"), local=tmp_path / "local", storage_options=stored_home.options) as ds:
        shown = repr(ds) + str(ds.given) + str(ds.loader(ds.plan(batch_size=8)).state_dict())
        running = b"".join((Path("/proc") / str(one) / part).read_bytes() for one in stores.helpers() for part in ("cmdline", "environ"))
        assert stores.without_secrets(shown) and stores.without_secrets(running) and running
        assert stores.without_secrets(pickle.dumps(ds))
    assert stores.without_secrets(stores.everything_in(tmp_path / "local"))
    said = json.loads(next((tmp_path / "local").glob("*/home.json")).read_text())
    assert stored_home.url("tokens") in said.values()
    wrong = {**stored_home.options, "endpoint": "http://127.0.0.1:1", "session_token": stores.SECRET}
    with pytest.raises(rankstore.RankStoreError) as failed:
        rankstore.open(stored_home.url("tokens"), local=tmp_path / "none", storage_options={**wrong, "no_such_option": stores.SECRET})
    assert stores.without_secrets(str(failed.value)) and "no_such_option" in str(failed.value)
    assert stores.without_secrets("".join(capfd.readouterr()))


def test_another_program_may_be_the_helper(tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of 30 lines over a directory; any scheme is its own business."""
    program = Path(__file__).with_name("small_helper.py")
    monkeypatch.setenv("RKS_HOME_HELPER", str(program))
    monkeypatch.setenv("SMALL_HELPER_TOP", str(tmp_path / "top"))
    (tmp_path / "top" / "tokens").mkdir(parents=True)
    rankstore.publish(tokens, "toy://top/tokens")
    ids, brought = epoch("toy://top/tokens", tmp_path / "local", None)  # type: ignore[arg-type]
    assert sorted(ids) == list(range(SAMPLES)) and brought >= shard_bytes(tokens)


def test_what_no_library_knows_is_told(tmp_path: Path) -> None:
    with pytest.raises(rankstore.RankStoreError, match="(?i)protocol not known: nosuch|No module"):
        rankstore.open("nosuch://bucket/x", local=tmp_path / "local")


# ---- Google's API -------------------------------------------------------------------------------------

def test_a_home_and_inputs_in_google_s_store(tokens: Path, store_server: str, tmp_path: Path) -> None:
    """By its XML API, which is S3's but for generations, so moto serves it behind generation_front.py."""
    import obstore
    import obstore.store
    bucket = stores.make_bucket(store_server, "g" + str(abs(hash(str(tmp_path))))).bucket
    port = stores.free_port()
    front = [sys.executable, str(Path(__file__).with_name("generation_front.py")), str(port), store_server.rpartition(":")[2]]
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
