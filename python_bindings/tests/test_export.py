# SPDX-License-Identifier: Apache-2.0
"""What an export writes, read by other libraries; and from Python out and back, without a difference."""
from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import lmdb
import numpy
import pytest
from built import build, command, equal, read

COUNT = 200


def sample(i: int) -> dict[str, Any]:
    return {"tokens": numpy.arange(i % 13, dtype=numpy.uint16) + i, "mel": numpy.full((i % 5, 3), i / 8, numpy.float32),
            "text": f"é {i}" * (i % 4), "blob": bytes([i, 0, 255]) * (i % 3), "score": i / 8, "n": 2**40 + i,
            "fixed": numpy.array([[i, -i]], numpy.int64), "maybe": None if i % 3 == 0 else i, "flag": i % 2 == 0,
            "note": {"i": [i, None, "x"]}}


SCHEMA = ("tokens:uint16[*],mel:float32[*,3],text:str,blob:bytes,score:float64,n:int64,fixed:int64[1,2],maybe:int32?,flag:bool,"
          "note:json")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keyed as files are named, hostile ones among them."""
    out = tmp_path_factory.mktemp("export") / "store"
    build([sample(i) for i in range(COUNT)], out, schema=SCHEMA, length="tokens", key=key_of)
    return out


def key_of(one: dict[str, Any]) -> str:
    i = one["n"] - 2**40
    return {0: "../up", 1: "a b.c%d", 2: "ünï", 3: "deep/in/side"}.get(i, f"k{i:03}")


def keys() -> list[bytes]:
    return [key_of(sample(i)).encode() for i in range(COUNT)]


def test_npz_is_numpys(made: Path, tmp_path: Path) -> None:
    command("export", made, "-o", tmp_path / "all.npz")
    with numpy.load(tmp_path / "all.npz", allow_pickle=False) as arrays:
        found = {name: arrays[name] for name in arrays.files}
    columns = [name.partition(":")[0] for name in SCHEMA.split(",") if ":" in name]
    for name in columns:
        wanted = [sample(i)[name] for i in range(COUNT)]
        array = found.pop(name)
        if name == "maybe":
            assert found.pop("maybe.missing").tolist() == [one is None for one in wanted]
            assert array.dtype == numpy.int32 and array.tolist() == [one or 0 for one in wanted]
        elif name in ("score", "n", "flag", "fixed"):
            assert numpy.array_equal(array, numpy.array(wanted)) and array.dtype == numpy.array(wanted).dtype
        else:
            offsets = found.pop(f"{name}.offsets")
            assert offsets.dtype == numpy.int64 and offsets.shape == (COUNT + 1,)
            parts = [array[offsets[i]:offsets[i + 1]] for i in range(COUNT)]
            if name == "mel":
                shapes = found.pop("mel.shapes")
                parts = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
            for part, one in zip(parts, wanted, strict=True):
                if isinstance(one, numpy.ndarray):
                    assert equal(part, one), name
                else:
                    text = part.tobytes()
                    assert (json.loads(text) if name == "note" else text if name == "blob" else text.decode()) == one
    raw, offsets = found.pop("__key__").tobytes(), found.pop("__key__.offsets")
    assert [raw[offsets[i]:offsets[i + 1]] for i in range(COUNT)] == keys()
    assert found == {}


def records(path: Path) -> dict[bytes, bytes]:
    with lmdb.open(str(path), readonly=True, lock=False, subdir=path.is_dir()) as environment, environment.begin() as transaction:
        return dict(transaction.cursor())


def test_lmdb_is_py_lmdbs(made: Path, tmp_path: Path) -> None:
    command("export", made, "-o", tmp_path / "tokens.lmdb", "--to", "lmdb", "--column", "tokens")
    found = records(tmp_path / "tokens.lmdb")
    assert set(found) == set(keys())
    for i, key in enumerate(keys()):
        assert numpy.array_equal(numpy.frombuffer(found[key], numpy.uint16), sample(i)["tokens"])
    command("export", made, "-o", tmp_path / "two.lmdb", "--to", "lmdb", "--column", "text", "--column", "n", "--where",
            "n != 1099511627777")
    found = records(tmp_path / "two.lmdb")
    assert {key: json.loads(value) for key, value in found.items()} == {
        key: {"__key__": key.decode(), "text": sample(i)["text"], "n": sample(i)["n"]} for i, key in enumerate(keys()) if i != 1}


def test_tar_and_files(made: Path, tmp_path: Path) -> None:
    """Names lead nowhere, and hold what the columns do. A tar keeps the keys that are no names of files beside them."""
    for to in ("tar", "dir"):
        command("export", made, "-o", tmp_path / f"out.{to}", "--to", to, "--column", "text", "--column", "blob", "--column", "tokens")
    with tarfile.open(tmp_path / "out.tar") as tar:
        members = {}
        for member in tar.getmembers():
            assert member.isreg() and not member.name.startswith("/") and ".." not in member.name.split("/")
            file = tar.extractfile(member)
            assert file is not None
            members[member.name] = file.read()
    files = {str(path.relative_to(tmp_path / "out.dir")): path.read_bytes() for path in (tmp_path / "out.dir").rglob("*")
             if path.is_file() and not path.name.startswith(".")}
    assert sorted(members.pop(name).decode() for name in list(members) if name.endswith(".__key__.txt")) == [
        "../up", "a b.c%d", "ünï"]
    assert {name.replace("%C3%BCn%C3%AF", "ünï"): data for name, data in members.items()} == files and len(files) == 3 * COUNT
    for i in range(4, COUNT):
        assert members[f"k{i:03}.text.txt"] == sample(i)["text"].encode() and members[f"k{i:03}.blob"] == sample(i)["blob"]
        array = numpy.load(io.BytesIO(members[f"k{i:03}.tokens.npy"]), allow_pickle=False)
        assert equal(array, sample(i)["tokens"])


WAYS = ["all.jsonl", "all.tar", "all.npz"]


@pytest.mark.parametrize("name", WAYS)
def test_out_and_back(made: Path, tmp_path: Path, name: str) -> None:
    """All columns and keys, in the same order, by the core and with Python's keys."""
    command("export", made, "-o", tmp_path / name)
    for way, key in (("core", "__key__"), ("python", lambda one: one["__key__"])):
        build(tmp_path / name, tmp_path / way, key=key, schema=f"__key__:str,{SCHEMA}", length="tokens")
        assert "equal" in command("diff", made, tmp_path / way), way
        for i, one in enumerate(read(tmp_path / way)):
            assert one.pop("__key__").encode() == keys()[i]
            assert one.keys() == sample(i).keys() and all(equal(one[column], value) for column, value in sample(i).items())


def test_a_folder_out_and_back(tmp_path: Path) -> None:
    """A folder's samples become the same files again; what an export wrote is a folder of them."""
    (tmp_path / "in" / "deep").mkdir(parents=True)
    for i in range(30):
        (tmp_path / "in" / ("deep" if i % 2 else "") / f"{i}.dat").write_bytes(bytes([i, 0]) * i)
    build(tmp_path / "in", tmp_path / "store", map=dict)
    command("export", tmp_path / "store", "-o", tmp_path / "again", "--to", "dir")
    files = [{str(path.relative_to(tmp_path / top)): path.read_bytes() for path in (tmp_path / top).rglob("*")
              if path.is_file() and not path.name.startswith(".")} for top in ("in", "again")]
    assert files[0] == files[1]
    build(tmp_path / "again", tmp_path / "rebuilt")
    assert "equal" in command("diff", tmp_path / "store", tmp_path / "rebuilt")


def test_lmdb_out_and_back(made: Path, tmp_path: Path) -> None:
    """Records of several columns are lines of JSON; what a Python dataset makes of them is the same again."""
    command("export", made, "-o", tmp_path / "out.lmdb", "--to", "lmdb")
    found = records(tmp_path / "out.lmdb")
    lines = "".join(json.dumps({"__key__": key.decode(), **json.loads(found[key])}) + "\n" for key in keys())
    (tmp_path / "back.jsonl").write_text(lines)
    build(tmp_path / "back.jsonl", tmp_path / "back", key="__key__", schema=f"__key__:str,{SCHEMA}", length="tokens")
    assert "equal" in command("diff", made, tmp_path / "back")
