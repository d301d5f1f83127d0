# SPDX-License-Identifier: Apache-2.0
"""gather: what arrives is what was given, in order, in memory and in files, from uneven ranks."""
from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy
import pytest
from built import HEAD, launched, read

import rankstore
from rankstore._gather.safetensors import SafetensorsWriter, Tensor

MADE = """
DTYPES = ["float32", "uint8", "int64", "bool", "complex64", "float16"]
def made(i):
    return np.arange(i * 3).reshape(i, 3).astype(DTYPES[i % len(DTYPES)])
def of_rank(rank, world):
    return {"a": [(i, made(i)) for i in range(40) if i * i % world == rank], "only": (7, made(2))} if rank == 0 else \\
        {"a": [(i, made(i)) for i in range(40) if i * i % world == rank]} if rank == 1 else {}
"""
exec("import numpy as np\n" + MADE)  # noqa: S102  # the same in this process


def solo(results: dict[str, Any], **options: Any) -> Any:
    with rankstore.init("solo") as group:
        return rankstore.gather(results, group=group, **options)


@pytest.mark.parametrize("name", ["r", "r.npz", "r.safetensors"])
def test_a_result_that_is_not_durable_can_be_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def fails(handle: int) -> None:
        if os.path.samefile(f"/proc/self/fd/{handle}", tmp_path):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    given = {"a": (0, numpy.arange(5))}
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fails)
        with pytest.raises(OSError, match="Input/output error"):
            solo(given, out=tmp_path / name)
    assert not [one for one in os.listdir(tmp_path) if one.startswith(".")]
    solo(given, out=tmp_path / name)
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("world, dst", [(1, 0), (2, 1), (3, 2)])
def test_in_memory(tmp_path: Path, world: int, dst: int) -> None:
    launched(world, MADE + f"""
def main(group):
    mine = [of_rank(rank, 2) for rank in range(2)]
    mine = dict(mine[0], a=mine[0]["a"] + mine[1]["a"]) if group.world == 1 else mine[group.rank] if group.rank < 2 else {{}}
    found = rankstore.gather(mine, {dst}, group=group)
    if group.rank != {dst}:
        assert found is None
        return
    assert [index for index, _ in found["a"]] == list(range(40)) and found["only"][0][0] == 7
    for i, array in found["a"]:
        assert array.dtype == made(i).dtype and np.array_equal(array, made(i)) and array.flags.writeable
""", tmp_path)


def test_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    given = {"h": [(i, (torch.arange(i * 2).view(2, i) / 3).to(torch.bfloat16)) for i in range(4)],
             "g": (0, torch.tensor(3.5, requires_grad=True)),
             "e": (1, torch.arange(4).to(torch.float8_e4m3fn)), "t": (0, torch.arange(6).view(2, 3).T)}
    found = solo(given)
    assert all(found["h"][i][1].dtype == torch.bfloat16 and torch.equal(found["h"][i][1], given["h"][i][1]) for i in range(4))
    assert torch.equal(found["g"][0][1], torch.tensor(3.5)) and torch.equal(found["t"][0][1], given["t"][1])
    assert found["e"][0][1].dtype == torch.float8_e4m3fn
    load = pytest.importorskip("safetensors.torch").load_file
    solo(given, out=tmp_path / "r.safetensors")
    loaded = load(tmp_path / "r.safetensors")
    assert torch.equal(loaded["h/3"], given["h"][3][1]) and torch.equal(loaded["t"], given["t"][1])
    assert loaded["e"].dtype == torch.float8_e4m3fn
    stacked = solo({"h": [(i, torch.full((2,), i)) for i in (2, 0, 1)]}, stack=True)["h"]
    assert torch.equal(stacked, torch.tensor([[0, 0], [1, 1], [2, 2]]))
    with pytest.raises(rankstore.DataError, match="e: numpy has no float8_e4m3fn"):
        solo(given, out=tmp_path / "r.npz")
    assert not list(tmp_path.glob("*.npz*")) and not list(tmp_path.glob(".*"))


def test_files(tmp_path: Path) -> None:
    load = pytest.importorskip("safetensors.numpy").load_file
    launched(3, MADE + """
def main(group):
    for ending in (".safetensors", ".npz", ""):
        report = rankstore.gather(of_rank(group.rank, 2), 1, OUT + "/r" + ending, group=group)
        assert (report is None) == (group.rank != 1)
        if report:
            say(report.items, report.names, report.gaps, report.bytes)
""", tmp_path)
    wanted = {f"a/{i}": made(i) for i in range(40)} | {"only": made(2)}  # type: ignore[name-defined]  # noqa: F821
    for found in (load(tmp_path / "r.safetensors"), dict(numpy.load(tmp_path / "r.npz", allow_pickle=False))):
        assert found.keys() == wanted.keys()
        for name, array in wanted.items():
            assert found[name].dtype == array.dtype and numpy.array_equal(found[name], array), name
    samples = read(tmp_path / "r")
    assert [(sample["name"], sample["index"]) for sample in samples] == [("a", i) for i in range(40)] + [("only", 7)]
    for sample in samples:
        array = wanted["only" if sample["name"] == "only" else f"a/{sample['index']}"]
        assert numpy.array_equal(numpy.frombuffer(sample["data"], sample["dtype"]).reshape(sample["shape"]), array)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r", "r.npz", "r.safetensors"]


@pytest.mark.parametrize(("mask", "file", "folder"), [(0o077, 0o600, 0o700), (0o022, 0o644, 0o755), (0o007, 0o660, 0o770)])
def test_what_is_gathered_has_the_umask_s_mode(mask: int, file: int, folder: int, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", f"""
import os, sys, numpy, rankstore
os.umask({mask})
os.umask = None  # it is the whole process's: asking for it changes it for other threads
group = rankstore.init("solo")
for name in ("r.npz", "r.safetensors", "r"):
    rankstore.gather({{"a": (0, numpy.ones(3))}}, 0, sys.argv[1] + "/" + name, group=group)
""", str(tmp_path)], timeout=400, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"r.npz": file, "r.safetensors": file, "r": folder}


def test_members_of_an_archive_lead_nowhere_else(tmp_path: Path) -> None:
    names = ["../up", "a/../../up", "/root", "a//b", "c:\\x", "..", "a/./b", "%2e%2e/x", "100%", "a/b", "\u00e9"]
    given = {name: (0, numpy.full(3, i)) for i, name in enumerate(names)}
    solo(given, out=tmp_path / "r.npz")
    found = dict(numpy.load(tmp_path / "r.npz", allow_pickle=False))
    assert {unquote(name): int(array[0]) for name, array in found.items()} == {name: i for i, name in enumerate(names)}
    assert {"a/b", "100%", "\u00e9"} <= found.keys()
    for name in zipfile.ZipFile(tmp_path / "r.npz").namelist():
        assert not any(part in ("", ".", "..") for part in name.split("/")) and "\\" not in name and ":" not in name, name


ANY_KEYS = ["a\0b", "a\0", "\0", "a", b"\xff\xfe", "a\nb", b"\x1b[2J", b"k" * 511, b"k" * 510 + b"l", "\u20ac" * 170, "%00",
            "%FF%FE", b"../\xff",
            "CON", "#0"]


def test_any_key_of_a_dataset_is_a_name(tmp_path: Path) -> None:
    given = {name: [(i, numpy.full(2, i)) for i in (3, 4)] for name in ANY_KEYS}
    found = solo(given)
    assert found.keys() == given.keys()
    for name, items in found.items():
        assert [(index, array.tolist()) for index, array in items] == [(3, [3, 3]), (4, [4, 4])], name
    stacked = solo(given, stack=True)
    assert stacked.keys() == given.keys() and all(array.shape == (2, 2) for array in stacked.values())
    assert solo({b"a": [(0, 1.0)], "b": (0, 1.0)}).keys() == {b"a", "b"}

    def whole(name: str) -> bytes:
        return unquote(name, errors="surrogateescape").encode("utf-8", "surrogateescape")

    wanted = {(name if isinstance(name, bytes) else name.encode()) + b"/%d" % i for name in ANY_KEYS for i in (3, 4)}
    solo(given, out=tmp_path / "r.npz")
    assert {whole(name) for name in numpy.load(tmp_path / "r.npz", allow_pickle=False)} == wanted
    for name in zipfile.ZipFile(tmp_path / "r.npz").namelist():
        assert "\0" not in name and ".." not in name.split("/") and name.encode()
    solo(given, out=tmp_path / "r.safetensors")
    load = pytest.importorskip("safetensors.numpy").load_file
    assert {whole(name) for name in load(tmp_path / "r.safetensors")} == wanted
    solo(given, out=tmp_path / "r")
    samples = read(tmp_path / "r")
    assert {whole(sample["name"]) + b"/%d" % sample["index"] for sample in samples} == wanted and len(samples) == 2 * len(ANY_KEYS)


def test_keys_as_they_are_read_are_names(tmp_path: Path) -> None:
    keys = [b"\xff" * 511, b"a\0b", b"plain"]
    with rankstore.build([{"key": key, "n": i} for i, key in enumerate(keys)], tmp_path / "d", key="key",
                         schema={"key": "bytes", "n": "int64"},
                         group=rankstore.init("solo")) as dataset:
        given = {key: (i, float(i)) for i, key in enumerate(dataset.keys)}
    assert solo(given).keys() == set(keys)


@pytest.mark.parametrize(("name", "says"), [("\ud800", "cannot be encoded as bytes"), (b"", "1 to 511 bytes, not 0"),
                                            (b"k" * 512, "1 to 511 bytes, not 512")])
def test_no_key_is_no_name(name: Any, says: str) -> None:
    with pytest.raises(rankstore.ArgumentError, match=says):
        solo({name: (0, 1.0)})


def test_stack(tmp_path: Path) -> None:
    given = {"a": [(i, numpy.full((2, 3), i, numpy.int16)) for i in (5, 0, 3)], "b": (1, 2.5)}
    with pytest.warns(UserWarning, match="a: 1..2"):
        found = solo(given, stack=True)
    assert numpy.array_equal(found["a"][:, 0, 0], [0, 3, 5]) and found["a"].dtype == numpy.int16 and found["b"].shape == (1,)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = solo(given, stack=True, out=tmp_path / "r.npz")
        assert (report.gaps, report.items, report.names) == (3, 4, 2)
        assert numpy.array_equal(numpy.load(tmp_path / "r.npz")["a"], found["a"])
        solo(given, stack=True, out=tmp_path / "r.safetensors")
        assert numpy.array_equal(pytest.importorskip("safetensors.numpy").load_file(tmp_path / "r.safetensors")["a"], found["a"])
        with pytest.raises(rankstore.DataError, match=r"index 1 is float32\[3\], index 0 is float32\[2\]"):
            solo({"a": [(0, numpy.zeros(2, "f4")), (1, numpy.zeros(3, "f4"))]}, stack=True)
        with pytest.raises(rankstore.ArgumentError, match="stack"):
            solo(given, stack=True, out=tmp_path / "directory")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.npz", "r.safetensors"]


def test_nothing_at_all(tmp_path: Path) -> None:
    assert solo({}) == {} and solo({}, stack=True) == {}
    assert solo({}, out=tmp_path / "r.safetensors").items == 0
    assert pytest.importorskip("safetensors.numpy").load_file(tmp_path / "r.safetensors") == {}


@pytest.mark.parametrize("value, says", [("x", "str cannot"), ([1], "list cannot"), (numpy.array(["a"]), "only numbers"),
                                         (numpy.array([object()]), "only numbers"), (numpy.zeros(1, "V4"), "only numbers"),
                                         (None, "NoneType")])
def test_refused(value: Any, says: str) -> None:
    with pytest.raises(rankstore.DataError, match=says) as raised:
        solo({"some": [(3, value)]})
    assert 'results["some"], index 3' in str(raised.value)


@pytest.mark.parametrize("results", [{"a": (-1, 1.0)}, {"a": (1.5, 1.0)}, {"a": 3}, {3: (0, 1.0)}, [1]])
def test_wrong_results(results: Any) -> None:
    with pytest.raises(rankstore.ArgumentError):
        solo(results)


def test_errors_reach_all_ranks_and_leave_no_file(tmp_path: Path) -> None:
    lines = launched(2, """
def main(group):
    for what, out in (({"a": [(5, np.zeros(3))]}, "twice.npz"), ({"a": (group.rank, "x" if group.rank else 1.0)}, "refused.npz"),
                      ({"a": (group.rank, 1.0)}, "none/there.npz")):
        try:
            rankstore.gather(what, 0, OUT + "/" + out, group=group)
        except rankstore.RankStoreError as error:
            say(json.dumps([out, type(error).__name__, str(error)]))
    try:
        rankstore.gather({}, group.rank, group=group)
    except rankstore.ArgumentError as error:
        say(json.dumps(["dst", "ArgumentError", str(error)]))
""", tmp_path)
    seen = sorted(json.loads(line) for line in lines)
    assert [one[0] for one in seen] == ["dst", "dst", "none/there.npz", "none/there.npz", "refused.npz", "refused.npz", "twice.npz",
                                        "twice.npz"]
    assert all(one == other for one, other in zip(seen[::2], seen[1::2], strict=True))
    assert "rank 0" in seen[6][2] and "rank 1" in seen[6][2] and "('a', 5)" in seen[6][2]
    assert seen[4][1] == "DataError" and "rank 1" in seen[4][2] and seen[2][1] == "IOFailedError"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending, room", [(".safetensors", 160), (".npz", 160), ("", 320)])
def test_memory_of_dst_is_bounded(tmp_path: Path, ending: str, room: int) -> None:
    """600 MiB of results pass a process that may take `room` MiB more than it has (a dataset's writer queues blocks)."""
    text = """
import resource
with rankstore.init("solo") as group:
    rankstore.gather({"warm": (0, np.zeros(1000))}, out=OUT + "-warm" + sys.argv[2], group=group)
    results = {"a": [(i, big) for big in [np.ones(8 << 20, np.uint8)] for i in range(75)]}
    used = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData")) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (used + (int(sys.argv[3]) << 20),) * 2)
    try:
        np.ones(400 << 20, np.uint8)
        print("no limit")
    except MemoryError:
        pass
    print(rankstore.gather(results, out=OUT + sys.argv[2], group=group, directory=os.path.dirname(OUT)).bytes >> 20)
"""
    done = subprocess.run([sys.executable, "-c", HEAD.format(tests=str(Path(__file__).parent)) + text, str(tmp_path / "r"),
                           ending, str(room)],
                          text=True, capture_output=True, timeout=400, stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stdout) == (0, "600\n"), (done.stdout, done.stderr)


def test_writer_checks_what_it_is_given(tmp_path: Path) -> None:
    with open(tmp_path / "f", "wb") as file:
        with pytest.raises(rankstore.DataError, match="of this name already"):
            SafetensorsWriter(file, [Tensor("a", "uint8", (1,), 1)] * 2)
        with pytest.raises(rankstore.DataError, match="cannot store complex128"):
            SafetensorsWriter(file, [Tensor("a", "complex128", (1,), 16)])
        writer = SafetensorsWriter(file, [Tensor("a", "uint8", (3,), 3)])
        writer.write(b"ab")
        with pytest.raises(rankstore.DataError, match="-1 bytes"):
            writer.end()
