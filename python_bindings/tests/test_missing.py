# SPDX-License-Identifier: Apache-2.0
"""Shards that are on no rank's disk: the error says whose they are, and `missing="partial"` prints what it leaves out."""
import copy
import json
import pickle
import socket
import subprocess
import sys

import pytest
from built import launched

import rankstore


@pytest.fixture
def torn(tmp_path):
    directory = tmp_path / "d"
    with rankstore.build([{"x": [i] * 5, "t": "a" * 200} for i in range(1000)], directory, unit_samples=100):
        pass
    with rankstore.build([{"x": [i] * 5, "t": "b" * 200} for i in range(500)], directory, unit_samples=100, append=True):
        pass
    newest = max(directory.glob("part-*.rks"), key=lambda path: path.stat().st_mtime_ns)
    for ending in (".rks", ".json", ".sums"):
        newest.with_suffix(ending).unlink()
    return directory


def test_the_error_names_samples_host_and_option(torn):
    with pytest.raises(rankstore.NotFoundError) as failed:
        rankstore.open(torn)
    text = str(failed.value)
    assert "1 of 2 shards are on no rank's disk, with 500 of 1500 samples" in text
    assert f"built by {socket.gethostname()}:{torn}" in text
    assert 'missing="partial"' in text


def test_a_partial_opening_prints_what_it_leaves_out(torn, capfd):
    with rankstore.open(torn, missing="partial") as ds:
        assert "1 of 2 shards missing: 500 of 1,500 samples left out" in capfd.readouterr().err
        figures = ds.stats()
        assert (figures["shards"], figures["missing_shards"], figures["missing_samples"]) == (2, 1, 500)
        assert len(ds) == 1500
        assert ds[999]["x"][0] == 999
        with pytest.raises(rankstore.NotFoundError):
            ds[1000]


def test_a_whole_dataset_prints_nothing(tmp_path, capfd):
    with rankstore.build([{"x": [1]}] * 10, tmp_path / "d"):
        pass
    capfd.readouterr()
    for missing in ("error", "partial"):
        with rankstore.open(tmp_path / "d", missing=missing) as ds:
            assert ds.stats()["missing_shards"] == 0
    assert "missing" not in capfd.readouterr().err


def test_other_words_are_refused(torn):
    with pytest.raises(rankstore.ArgumentError, match='"some" is not "error" or "partial"'):
        rankstore.open(torn, missing="some")
    with pytest.raises(rankstore.ArgumentError, match='now missing="partial"'):
        rankstore.open(torn, partial=True)


GOES_ON = """
def main(group):
    how = json.loads(sys.argv[2])
    with rankstore.open(OUT + "/d", group=group, missing="partial", quarantine=how["quarantine"]) as ds:
        plan = ds.plan(**{"batch_size": 8, "seed": 3, **how["options"]})
        loader = ds.loader(plan)
        if how["state"] is not None:
            loader.load_state_dict(how["state"])
        seen, state, batches = [], None, 0
        for batch in loader:
            assert len(batch.ids) > 0
            seen += batch.ids.tolist()
            batches += 1
            if batches == how["stop"]:
                state = loader.state_dict()
                break
        report = plan.report(0)
        line = json.dumps({"rank": group.rank, "seen": seen, "state": state, "batches": batches, "length": len(loader),
                           "digest": report["digest"], "absent": report["absent"], "left_out": report["left_out"]})
        with open(f"{OUT}/seen-{group.rank}", "w") as out:
            out.write(line)
"""


def run_job(world, out, state=None, stop=None, quarantine=None, options=None):
    how = {"state": state, "stop": stop, "quarantine": quarantine, "options": options or {}}
    launched(world, GOES_ON, out, json.dumps(how))
    return [json.loads((out / f"seen-{rank}").read_text()) for rank in range(world)]


@pytest.mark.parametrize("options", [{}, {"strategy": "pack", "capacity": 64, "batch_size": 2}, {"max_length": 9, "too_long": "split"}],
                         ids=["bucket", "pack", "split"])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_a_state_goes_on_without_what_is_lost(tmp_path, world, options):
    lengths = [1 + i * 7 % 20 for i in range(900)]
    with rankstore.build([{"x": [i] * lengths[i]} for i in range(600)], tmp_path / "d", unit_samples=50):
        pass
    with rankstore.build([{"x": [i] * lengths[i]} for i in range(600, 900)], tmp_path / "d", unit_samples=50, append=True) as ds:
        ds.write_quarantine(tmp_path / "bad.json", [5, 17, 300])
        whole = ds.plan(**{"batch_size": 8, "seed": 3, "world": world, **options})
        steps = len(whole.epoch(0))
        planned = [[whole.core.batch(0, step, rank) for rank in range(world)] for step in range(steps)]
        digest = whole.report(0)["digest"]
    begun = run_job(world, tmp_path, stop=3, options=options)
    newest = max((tmp_path / "d").glob("part-*.rks"), key=lambda path: path.stat().st_mtime_ns)
    for ending in (".rks", ".json", ".sums"):
        newest.with_suffix(ending).unlink()
    rest = run_job(world, tmp_path, state=begun[0]["state"], quarantine=str(tmp_path / "bad.json"), options=options)
    there = [i for i in range(900) if i < 600 and i not in (5, 17, 300)]
    expected = [sample for step in planned[3:] for batch in step for sample in batch if sample in set(there)]
    seen = [sample for one in rest for sample in one["seen"]]
    assert {one["digest"] for one in rest} == {digest} == {one["digest"] for one in begun}
    assert len({one["batches"] for one in rest}) == 1
    assert rest[0]["absent"] >= 303 > begun[0]["absent"] == 0
    if rest[0]["left_out"] == 0:
        assert sorted(seen) == sorted(expected)
        assert rest[0]["length"] == steps
    else:
        assert not set(seen) - set(expected) and rest[0]["length"] == steps - rest[0]["left_out"]


@pytest.mark.parametrize("options", [{"batch_size": 8}, {"strategy": "random", "batch_size": 3, "skip": [(0, 4, 9)]},
                                     {"strategy": "pack", "capacity": 16}, {"batch_size": 4, "weights": "twice"}])
@pytest.mark.parametrize("made_by", [copy.copy, copy.deepcopy, lambda plan: pickle.loads(pickle.dumps(plan))])
def test_a_plan_with_absent_samples_is_copied(torn, tmp_path, options, made_by):
    with rankstore.open(torn, missing="partial") as ds:
        ds.write_quarantine(tmp_path / "q", [3, 4, 77])
    with rankstore.open(torn, missing="partial", quarantine=tmp_path / "q") as ds:
        if "weights" in options:
            options = {**options, "weights": [1 + i % 2 for i in range(1500)]}
        plan = ds.plan(seed=5, **options)
        state = plan.state(0, 40)
        plan.resume(state)
        made = made_by(plan)
        assert made.hash == plan.hash and made.steps == plan.steps and made.core.has_absent
        for epoch in (0, 1):
            assert made.steps_of(epoch) == plan.steps_of(epoch) and made.report(epoch) == plan.report(epoch)
            for one, other in zip(made.epoch(epoch).batches(), plan.epoch(epoch).batches(), strict=True):
                assert one.tolist() == other.tolist()
        assert made.state(0, 50) == plan.state(0, 50)
        again = made_by(made)
        assert again.samples(0, 3) == plan.samples(0, 3)


def test_a_loader_with_absent_samples_goes_to_another_process(torn, tmp_path):
    with rankstore.open(torn, missing="partial") as ds:
        loader = ds.loader(ds.plan(batch_size=8, seed=5), out="numpy")
        batches = iter(loader)
        begun = [i for _ in range(20) for i in next(batches).ids.tolist()]
        (tmp_path / "loader").write_bytes(pickle.dumps(loader))
        script = "import pickle, sys; print([i for batch in pickle.load(open(sys.argv[1], 'rb')) for i in batch.ids.tolist()])"
        done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "loader")], text=True, capture_output=True, timeout=400)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == [i for batch in batches for i in batch.ids.tolist()]
        assert sorted(begun + json.loads(done.stdout)) == list(range(1000))
