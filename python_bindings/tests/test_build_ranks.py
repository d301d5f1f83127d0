# SPDX-License-Identifier: Apache-2.0
"""Building on several ranks and in worker processes: the same dataset, and the same errors everywhere."""
from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from built import HEAD, build, command, dataset_id, launched, read

import rankstore
from rankstore._provenance import fingerprint

SQUARES = """
class Squares:
    def __len__(self):
        return 300
    def __getitem__(self, i):
        return {"i": i, "row": np.full(i % 7, i, np.float32)}
"""


def squares() -> list[dict[str, Any]]:
    import numpy
    return [{"i": i, "row": numpy.full(i % 7, i, numpy.float32)} for i in range(300)]


@pytest.mark.parametrize("world", [1, 2, 3])
def test_ids_do_not_depend_on_ranks(tmp_path: Path, world: int) -> None:
    build(squares(), tmp_path / "alone", map=lambda sample: sample if sample["i"] % 4 else None)
    launched(world, SQUARES + """
def main(group):
    with build(Squares(), OUT, group=group, map=lambda s: s if s["i"] % 4 else None) as ds:
        assert len(ds) == ds.report.samples == 225 and ds.report.filtered == 75, ds.report
""", tmp_path / "ranks")
    assert dataset_id(tmp_path / "alone") == dataset_id(tmp_path / "ranks")


@pytest.mark.parametrize("attempt", range(3))  # shards have ids at random, and so an order
def test_a_key_of_two_ranks_names_both(tmp_path: Path, attempt: int) -> None:
    lines = launched(4, """
def main(group):
    rows = [{"key": f"{group.rank}-{i}", "n": i} for i in range(20)]
    if group.rank in (1, 3):
        rows[5 + group.rank]["key"] = "twin"
    try:
        build(iter(rows), OUT, group=group, key="key", each_rank=True)
    except rankstore.DataError as error:
        say(error.text)
""", tmp_path)
    assert len(lines) == 4 and all("'twin' appears twice: " in line for line in lines), lines
    assert all("6" in one and "(rank 1)" in one and "8" in other and "(rank 3)" in other
               for one, other in (line.partition("twice: ")[2].split(" and ") for line in lines)), lines


@pytest.mark.parametrize("world", [2, 3])
def test_files_on_ranks(tmp_path: Path, world: int) -> None:
    for k in range(5):
        with open(tmp_path / f"{k}.jsonl", "w") as file:
            file.writelines(json.dumps({"i": i, "t": [i] * (i % 5)}) + "\n" for i in range(k * 10, k * 10 + k * 3))
    build(str(tmp_path / "*.jsonl"), tmp_path / "alone", map=lambda sample: [sample, sample])
    for name, more in (("map", "map=lambda s: [s, s]"), ("core", "")):
        launched(world, f"""
def main(group):
    build(sys.argv[2], OUT, group=group, {more}).close()
""", tmp_path / name, str(tmp_path / "*.jsonl"))
    assert dataset_id(tmp_path / "alone") == dataset_id(tmp_path / "map")
    assert [sample["i"] for sample in read(tmp_path / "core")] == [i for k in range(5) for i in range(k * 10, k * 10 + k * 3)]


def test_iterables_uneven_and_empty(tmp_path: Path) -> None:
    launched(3, """
def main(group):
    mine = ({"i": i, "rank": group.rank} for i in range([0, 5, 200][group.rank]))
    build(mine, OUT, group=group, unit_samples=50).close()
""", tmp_path / "out")
    found = [(sample["rank"], sample["i"]) for sample in read(tmp_path / "out")]
    assert sorted(found) == [(1, i) for i in range(5)] + [(2, i) for i in range(200)]
    assert [i for rank, i in found if rank == 2] == list(range(200))


def test_own_directories(tmp_path: Path) -> None:
    launched(2, SQUARES + """
def main(group):
    with build(Squares(), OUT + "/{rank}", group=group) as ds:
        assert [int(ds[i]["i"]) for i in range(300)] == list(range(300))
    with build(Squares(), OUT + "/{rank}", group=group) as ds:
        assert ds.report.units_resumed == ds.report.units > 1
""", tmp_path)
    assert (tmp_path / "0" / "python.json").read_text() == (tmp_path / "1" / "python.json").read_text()


def test_schema_conflict_names_ranks(tmp_path: Path) -> None:
    lines = launched(2, """
def main(group):
    try:
        build(iter([{"a": 1} if group.rank == 0 else {"a": "x"}]), OUT, group=group)
    except rankstore.DataError as error:
        say(str(error))
""", tmp_path / "out")
    assert len(lines) == 2 and all('column "a"' in line and "rank 0 and rank 1" in line and "schema=" in line for line in lines)


def test_nothing_to_infer_from(tmp_path: Path) -> None:
    with pytest.raises(rankstore.DataError, match="schema="):
        build(iter([]), tmp_path / "out")
    build(iter([]), tmp_path / "given", schema={"a": "int64"})
    assert read(tmp_path / "given") == []


@pytest.mark.parametrize("what", ["map", "filter", "length", "key", "source", "getitem"])
def test_errors_of_callbacks_reach_all(tmp_path: Path, what: str) -> None:
    lines = launched(3, SQUARES + f"""
WHAT = {what!r}
def bad(sample):
    if sample["i"] == 250:
        raise KeyError("not so")
    return sample["i"] + 1
def items():
    for i in range(300):
        if i == 250:
            raise KeyError("not so")
        yield {{"i": i}}
class Broken(Squares):
    def __getitem__(self, i):
        bad({{"i": i}})
        return super().__getitem__(i)
def main(group):
    options = {{"map": {{"map": lambda s: dict(s, j=bad(s))}}, "filter": {{"filter": bad}}, "length": {{"length": bad}},
               "key": {{"key": lambda s: str(bad(s))}}}}.get(WHAT, {{}})
    source = Squares() if WHAT not in ("source", "getitem") else Broken() if WHAT == "getitem" else \\
        items() if group.rank == 1 else iter([{{"i": 1}}])
    try:
        build(source, OUT, group=group, **options)
    except rankstore.CallbackError as error:
        say(json.dumps([group.rank, error.rank, error.sample, error.text, "KeyError" in error.traceback,
                          type(error.__cause__).__name__]))
""", tmp_path / what)
    seen = sorted(json.loads(line) for line in lines)
    assert [one[0] for one in seen] == [0, 1, 2]
    assert len({one[1] for one in seen}) == 1 and all(one[4] and "KeyError: 'not so'" in one[3] for one in seen)
    assert all(one[2] == "sample 250" for one in seen)
    assert [one[5] == "KeyError" for one in seen] == [one[0] == one[1] for one in seen]


@pytest.mark.parametrize("what", ["map", "length", "source", "columns"])
def test_a_failure_ends_the_others_at_once(tmp_path: Path, what: str) -> None:
    """Rank 1 fails; the others have an hour's work before them."""
    lines = launched(3, f"""
WHAT = {what!r}
done = 0
def work(rank, i):
    global done
    done += 1
    if rank == 1 and i == 9000:
        raise KeyError("not so")
    if i >= 9000:
        time.sleep(0.05)
def items(rank):
    for i in range(80000):
        if WHAT == "source":
            work(rank, i)
        yield {{"i": i, "rank": rank}}
def main(group):
    slow = lambda sample: work(sample["rank"], sample["i"]) or sample
    options = {{"map": {{"map": slow}}, "columns": {{"map": slow}},
               "length": {{"length": lambda s: work(s["rank"], s["i"]) or 1}}}}.get(WHAT, {{}})
    source = items(group.rank)
    if WHAT == "columns":
        source = iter([Columns({{"i": np.arange(80000), "rank": np.full(80000, group.rank)}})])
    try:
        build(source, OUT, group=group, schema="i:int64,rank:int64", **options)
    except rankstore.CallbackError as error:
        say(json.dumps([group.rank, error.rank, "KeyError: 'not so'" in error.text, "in work" in error.traceback, done < 80000]))
""", tmp_path / what, timeout=400)
    assert sorted(json.loads(line) for line in lines) == [[rank, 1, True, True, True] for rank in range(3)]


def test_bad_samples_are_counted_on_all_ranks(tmp_path: Path) -> None:
    launched(2, SQUARES + """
def main(group):
    with build(Squares(), OUT, group=group, skip_bad=True, map=lambda s: s if s["i"] % 100 != 7 else 1 // 0) as ds:
        assert ds.report.bad == 3 and ds.report.samples == 297, ds.report
        assert "sample 107: map raised ZeroDivisionError" in ds.report.bad_first, ds.report
""", tmp_path / "out")


def test_options_that_differ_are_named(tmp_path: Path) -> None:
    lines = launched(2, SQUARES + """
def main(group):
    for name, options in (("skip_bad", {"skip_bad": group.rank == 1}), ("map", {"map": (lambda s: s) if group.rank else (lambda s: None)})):
        try:
            build(Squares(), OUT, group=group, **options)
        except rankstore.ArgumentError as error:
            say(str(error).split(": ")[-2])
    try:
        build([{"a": 1}] * (5 + group.rank), OUT, group=group)
    except rankstore.ArgumentError as error:
        say(str(error).split(":")[0])
""", tmp_path / "out")
    assert sorted(lines) == ["map", "map", "skip_bad", "skip_bad", "source", "source"]


LISTS = {
    "numbers": '[{"a": i + (i == 39) * group.rank} for i in range(40)]',
    "arrays": '[{"a": np.full((3, 4), i + group.rank, np.int16)} for i in range(40)]',
    "tensors": '[{"a": torch.full((2, 2), i + group.rank, dtype=torch.bfloat16)} for i in range(40)]',
    "texts": '[{"a": "x" * 5000 + str(i * 3 + group.rank)} for i in range(40)]',
    "nested": '[{"a": 1, "b": {"c": [1, [2, group.rank]]}} for i in range(40)]',
    "columns": '[{"a" if group.rank == 0 else "b": i} for i in range(40)]',
    "table": 'pyarrow.table({"a": [i + group.rank for i in range(40)]})',
}


@pytest.mark.parametrize("kind", LISTS)
def test_lists_that_differ_by_rank_are_named(tmp_path: Path, kind: str) -> None:
    if kind in ("tensors", "table"):
        pytest.importorskip("torch" if kind == "tensors" else "pyarrow")
    lines = launched(2, f"""
if {kind!r} == "tensors":
    import torch
if {kind!r} == "table":
    import pyarrow
def main(group):
    try:
        build({LISTS[kind]}, OUT, group=group)
    except rankstore.ArgumentError as error:
        say(str(error))
""", tmp_path / kind)
    place = {"numbers": 39}.get(kind, 0)
    assert len(lines) == 2 and all(f"source: sample {place} of rank 0 and of rank 1 differ" in line for line in lines), lines


def test_lists_that_are_alike_are_dealt_out(tmp_path: Path) -> None:
    """Also with what has no value to compare, what cannot be read, and a dataset that draws."""
    launched(2, """
class Odd:
    shape, dtype = (3,), "odd"
    def __getitem__(self, i):
        raise OSError("not now")
class Draws:
    def __len__(self):
        return 20
    def __getitem__(self, i):
        return {"a": int.from_bytes(os.urandom(2), "little")}
def main(group):
    many = [{"a": i, "b": float("nan"), "c": None, "d": {1, 2}, "e": Odd(), "f": np.array([object()])} for i in range(40)]
    for name, source in (("odd", many), ("draws", Draws()), ("one", [{"a": 1}]), ("none", [])):
        with build(source, OUT + name, group=group, schema="a:int64") as ds:
            assert len(ds) == len(source)
""", tmp_path / "out")


def test_interrupt_of_one_rank_ends_all(tmp_path: Path) -> None:
    lines = launched(2, SQUARES + """
def stop(sample):
    if sample["i"] == 250:
        raise KeyboardInterrupt
    return sample
def main(group):
    try:
        build(Squares(), OUT, group=group, map=stop)
    except KeyboardInterrupt:
        say("interrupted")
    except rankstore.CancelledError as error:
        say(str(error))
""", tmp_path / "out")
    assert sorted(lines)[0] == "interrupted" and "interrupted (Ctrl-C)" in sorted(lines)[1]


# ---- worker processes -----------------------------------------------------------------------------

def script(text: str, *arguments: str, timeout: float = 400, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", HEAD.format(tests=str(Path(__file__).parent)) + SQUARES + text, *arguments], text=True,
                          capture_output=True, timeout=timeout, **more)


def test_workers(tmp_path: Path) -> None:
    done = script("""
with build(Squares(), OUT, workers=2, map=lambda s: s) as ds:
    say(len(ds), ds.report.units, int(ds[299]["i"]))
""", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "300" and done.stdout.split()[2] == "299"
    build(squares(), tmp_path / "alone", map=lambda sample: sample)
    assert dataset_id(tmp_path / "alone") == dataset_id(tmp_path / "out")


def test_errors_of_workers(tmp_path: Path) -> None:
    done = script("""
import threading
for what, options in ((Squares(), {"map": lambda s: {"i": 1 // (s["i"] - 250)}}), (iter([{"a": 1}]), {})):
    try:
        build(what, OUT, workers=2, **options)
    except rankstore.RankStoreError as error:
        say(type(error).__name__, str(error), "In the worker:" in "".join(getattr(error, "__notes__", [])))
event = threading.Event()
threading.Thread(target=event.wait, name="mine", daemon=True).start()
try:
    build(Squares(), OUT, workers=2)
except rankstore.ArgumentError as error:
    say(error)
""", str(tmp_path / "out"))
    lines = done.stdout.splitlines()
    assert "CallbackError" in lines[0] and "(sample 250) True" in lines[0], (lines, done.stderr)
    assert "start more ranks instead" in lines[1] and "start more ranks instead" in lines[2]


def test_interrupt_of_workers_is_resumable(tmp_path: Path) -> None:
    text = """
def slow(sample):
    if sys.argv[2:] and sample["i"] == 100:
        open(sys.argv[2], "w").close()
    if sys.argv[2:] and os.path.exists(sys.argv[2]):
        time.sleep(1)
    return sample
try:
    with build(Squares(), OUT, workers=2, map=slow) as ds:
        say(ds.report.units_resumed, ds.id)
except KeyboardInterrupt:
    say("interrupted")
"""
    command = [sys.executable, "-c", HEAD.format(tests=str(Path(__file__).parent)) + SQUARES + text, str(tmp_path / "out"),
               str(tmp_path / "begun")]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        while not (tmp_path / "begun").exists() and running.poll() is None:
            time.sleep(0.01)
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=400)
    finally:
        running.kill()
    assert out.strip() == "interrupted", (out, err)
    done = script(text, str(tmp_path / "out"))
    build(squares(), tmp_path / "alone")
    assert done.stdout.split()[-1] == dataset_id(tmp_path / "alone"), done.stderr


def test_an_interrupt_of_workers_that_still_start_is_one(tmp_path: Path) -> None:
    """Ctrl-C reaches them before they have met."""
    done = script("""
import signal
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGINT))
try:
    build(Squares(), OUT, workers=2)
except KeyboardInterrupt:
    say("interrupted")
""", str(tmp_path / "out"))
    assert done.stdout == "interrupted\n", done.stderr


# ---- resume -----------------------------------------------------------------------------------------

def test_a_report_counts_units_that_were_taken_over(tmp_path: Path) -> None:
    """Also that of a finished dataset that is opened."""
    text = """
def main(group):
    def keep(sample):
        if os.environ["LATE"] == "1" and sample["i"] == 290:
            raise KeyboardInterrupt
        return sample if sample["i"] % 4 else None
    def even(sample):
        return 1 // (sample["i"] % 50 != 49)
    with build(Squares(), OUT, group=group, map=lambda s: dict(keep(s), j=even(s)) if keep(s) else None, skip_bad=True,
               schema="i:int64,row:float32[*],j:int64") as ds:
        say(ds.report.units_resumed > 0, ds.report.samples, ds.report.filtered, ds.report.bad)
sys.exit(rankstore.launch(2, main, silence=10))
"""
    late = script(text, str(tmp_path / "out"), env={**os.environ, "LATE": "1"})
    assert late.returncode != 0 and not (tmp_path / "out" / "dataset.json").exists()
    for _ in range(2):
        done = script(text, str(tmp_path / "out"), env={**os.environ, "LATE": "0"})
        assert done.stdout.splitlines() == ["True 219 75 6"] * 2, (done.stdout, done.stderr)


@pytest.mark.limit(1500)
@pytest.mark.parametrize("source", ["Squares()", "(Squares()[i] for i in range(300))"])
def test_resume_after_kills(tmp_path: Path, source: str) -> None:
    """Killed at any time, again and again, the build ends as the one that nobody killed."""
    text = f"""
def slow(sample):
    time.sleep(0.002)
    return dict(sample, twice=sample["i"] * 2)
with build({source}, OUT, map=slow, unit_samples=16, progress=False) as ds:
    say(ds.report.units_resumed)
"""
    command = [sys.executable, "-c", HEAD.format(tests=str(Path(__file__).parent)) + SQUARES + text]
    subprocess.run([*command, str(tmp_path / "whole")], check=True, timeout=400)
    killed = 0
    for k in range(30):
        running = subprocess.Popen([*command, str(tmp_path / "killed")], stdout=subprocess.PIPE, text=True)
        try:
            out, _ = running.communicate(timeout=0.3 + 0.17 * (k % 9))
        except subprocess.TimeoutExpired:
            os.kill(running.pid, signal.SIGKILL)
            running.communicate()
            killed += 1
            if (tmp_path / "killed" / "dataset.json").exists():  # killed after the commit
                break
            continue
        assert running.returncode == 0
        break
    else:
        subprocess.run([*command, str(tmp_path / "killed")], check=True, timeout=400)
    assert killed > 0
    assert dataset_id(tmp_path / "whole") == dataset_id(tmp_path / "killed")


def test_parts_of_another_source_are_not_taken_over(tmp_path: Path) -> None:
    def broken(sample: dict[str, Any]) -> dict[str, Any]:
        if sample["i"] == 290:
            raise ValueError
        return {"j": sample["i"]}

    for _ in range(2):
        with pytest.raises(rankstore.CallbackError):
            build(squares(), tmp_path / "out", map=broken)
    report = build(squares(), tmp_path / "out", map=lambda sample: {"j": sample["i"] + 1})
    assert report.units_resumed == 0
    assert [sample["j"] for sample in read(tmp_path / "out")] == list(range(1, 301))


def test_finished_datasets(tmp_path: Path) -> None:
    first = build(squares(), tmp_path / "out")
    assert build(squares(), tmp_path / "out").units_resumed == first.units
    with pytest.raises(rankstore.ArgumentError, match="replace=True"):
        build(squares()[:200], tmp_path / "out")
    with pytest.raises(rankstore.ArgumentError, match="its source, options, code or number of ranks were others"):
        build(iter(squares()), tmp_path / "out")
    assert build(iter([]), tmp_path / "out", reuse=True).samples == 300
    assert build(squares()[:200], tmp_path / "out", replace=True).samples == 200
    assert build(squares()[:200], tmp_path / "out").samples == 200
    command("build", made_lines(tmp_path), "-o", tmp_path / "by-command")
    with pytest.raises(rankstore.ArgumentError, match="nobody wrote down"):
        build(tmp_path / "in.jsonl", tmp_path / "by-command")


def made_lines(folder: Path) -> Path:
    (folder / "in.jsonl").write_text('{"i": 1}\n')
    return folder / "in.jsonl"


@pytest.mark.parametrize("replaces", [False, True])
def test_a_kill_behind_the_commit_loses_nothing(replaces: bool, tmp_path: Path) -> None:
    """dataset.json alone decides; what it says in words is written again."""
    out = tmp_path / "out"
    if replaces:
        build(squares()[:100], out)
    script = f"""
import os, rankstore
from rankstore._provenance import fingerprint
fingerprint.write = lambda *_: os.kill(os.getpid(), 9)
rankstore.build([{{"i": i, "text": "x" * (i % 37)}} for i in range(300)], {str(out)!r}, replace=True,
                group=rankstore.init("solo"))
"""
    killed = subprocess.run([sys.executable, "-c", script], timeout=400, capture_output=True, text=True)
    assert killed.returncode == -9, killed.stderr
    again = [{"i": i, "text": "x" * (i % 37)} for i in range(300)]
    with pytest.raises(rankstore.ArgumentError, match="another source"):
        build(again[:299], out)
    assert build(again, out).units_resumed > 0
    assert json.loads((out / "python.json").read_text())["dataset"] == dataset_id(out)
    with pytest.raises(rankstore.ArgumentError, match="contents|another source|source"):
        build(again[:299], out)


def test_a_finished_dataset_is_made_durable_before_it_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever made it may have been told that it is not."""
    build(squares(), tmp_path / "out")

    def fails(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fails)
        for _ in range(2):
            with pytest.raises(OSError, match="in place, but not durable"):
                build(squares(), tmp_path / "out")
    assert build(squares(), tmp_path / "out").units_resumed > 0


def test_the_name_of_python_json_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First its bytes, then its name, which is the directory's."""
    (tmp_path / "out").mkdir()
    steps, sync, replace = [], os.fsync, os.replace

    def fsync(handle: int) -> None:
        steps.append("sync " + os.path.basename(os.readlink(f"/proc/self/fd/{handle}"))[:len(fingerprint.FILE)])
        sync(handle)

    def rename(source: str, target: str) -> None:
        steps.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", rename)
    fingerprint.write(str(tmp_path / "out"), "0" * 32, {})
    assert steps == ["sync python.json", "rename", "sync out"]


def test_two_containers_write_python_json_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their processes may have the same pid. What a killed one leaves goes with the next build."""
    replace, out, names = os.replace, tmp_path / "out", []
    build(squares()[:3], out)

    def late(source: str, target: str) -> None:
        names.append(Path(source).name)
        if len(names) == 1:  # the other one writes at the same time
            fingerprint.write(str(out), dataset_id(out), {})
        replace(source, target)

    monkeypatch.setattr(os, "replace", late)
    fingerprint.write(str(out), dataset_id(out), {})
    monkeypatch.undo()
    assert len(set(names)) == 2 and not list(out.glob("*.tmp"))
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = out / names[0].replace(f".{os.getpid()}.", f".{gone.pid}.")
    left.write_text("{")
    build(squares()[:4], out, replace=True)
    assert left.name.startswith("python.json.") and not left.exists()


def test_code_tells_datasets_apart(tmp_path: Path) -> None:
    def times(factor: int) -> Any:
        return lambda sample: {"j": sample["i"] * factor}

    build(squares(), tmp_path / "out", map=times(2))
    assert build(squares(), tmp_path / "out", map=times(2)).units_resumed > 0
    with pytest.raises(rankstore.ArgumentError, match="map: factor was 2, is 3; replace=True"):
        build(squares(), tmp_path / "out", map=times(3))
