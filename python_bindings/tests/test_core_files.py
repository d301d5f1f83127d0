# SPDX-License-Identifier: Apache-2.0
"""_core.Files: the core's samples, handed to a function."""
from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest

import rankstore
from rankstore import _core


@pytest.fixture
def group() -> Any:
    with rankstore.init("solo") as made:
        yield made.core


@pytest.fixture
def path(tmp_path: Path) -> str:
    (tmp_path / "a.jsonl").write_text("".join(f'{{"n": {i}, "t": [{i}, 2], "s": "é{i}", "m": {"null" if i % 2 else i}}}\n'
                                              for i in range(500)))
    return str(tmp_path / "a.jsonl")


def test_values_keys_and_rows(group: Any, path: str) -> None:
    files = _core.Files(group, [path], unit_size=4096)
    units = files.units()
    assert len(units) > 3 and {name for name, _ in units} == {"a.jsonl"} and sum(size for _, size in units) == os.path.getsize(path)
    assert dict(_core.parse_schema(files.schema())[1]) == {"n": "int64", "t": "int64[*]", "s": "str", "m": "int64?"}
    seen: list[tuple[Any, bytes, int]] = []
    for unit in range(len(units)):
        report = files.read(unit, lambda values, key, row: seen.append((values, key, row)))
        assert report == {"filtered": 0, "bad": 0, "bad_first": ""}
    assert [row for _, _, row in seen] == list(range(500)) and seen[7][1] == b"a.jsonl:7"
    values = seen[8][0]
    assert values["n"] == ((8).to_bytes(8, "little"), (), "int64") and values["s"] == ("é8".encode(), (), "str")
    assert seen[7][0]["m"] is None and values["m"][2] == "int64?"


def test_what_the_function_raises_is_raised(group: Any, path: str) -> None:
    files = _core.Files(group, [path])

    class Mine(Exception):
        pass

    for kind in (Mine, KeyboardInterrupt, SystemExit):
        calls: list[int] = []

        def take(values: Any, key: bytes, row: int, kind: type[BaseException] = kind, calls: list[int] = calls) -> None:
            calls.append(row)
            if row == 3:
                raise kind("here")

        with pytest.raises(kind, match="here"):
            files.read(0, take)
        assert calls == [0, 1, 2, 3]
    count: list[int] = []
    files.read(0, lambda *_: count.append(1))  # it is as it was
    assert len(count) == 500


def test_one_read_at_a_time(group: Any, path: str) -> None:
    files = _core.Files(group, [path])
    with pytest.raises(RuntimeError, match="files"):
        files.read(0, lambda *_: files.read(0, print))
    with pytest.raises(RuntimeError, match="files"):
        files.read(0, lambda *_: files.units())


@pytest.mark.parametrize("arguments, kind", [((99, print), rankstore.ArgumentError), ((-1, print), ValueError), (("x", print), TypeError),
                                             ((0, None), TypeError), ((0,), TypeError)])
def test_what_read_refuses(group: Any, path: str, arguments: tuple[Any, ...], kind: type[Exception]) -> None:
    with pytest.raises(kind):
        _core.Files(group, [path]).read(*arguments)


def test_what_opening_refuses(group: Any, path: str, tmp_path: Path) -> None:
    for options, kind in (({"format": "poem"}, rankstore.ArgumentError), ({"schema": "n:poem"}, rankstore.ArgumentError),
                          ({"unit_size": 1}, rankstore.ArgumentError), ({"max_sample": "x"}, TypeError)):
        with pytest.raises(kind):
            _core.Files(group, [path], **options)  # type: ignore[arg-type]
    for sources, kind in (([], rankstore.ArgumentError), ([str(tmp_path / "none")], rankstore.NotFoundError), ([1], TypeError),
                          ("x", TypeError)):
        with pytest.raises(kind):
            _core.Files(group, sources)  # type: ignore[arg-type]
        with pytest.raises(kind):
            _core.source_format(sources, None)  # type: ignore[arg-type]
    assert _core.source_format([path], None) == "jsonl" and _core.source_format([path], "text") == "text"


def test_texts_outlive_the_call(group: Any, path: str) -> None:
    """They point to its options' texts."""
    files = _core.Files(group, [path], schema="".join(["n:", "int32"]), format="".join(["js", "onl"]))
    for _ in range(3):
        gc.collect()
        [str(i) * 10 for i in range(1000)]
    seen: list[Any] = []
    files.read(0, lambda values, key, row: seen.append(values))
    assert seen[5] == {"n": ((5).to_bytes(4, "little"), (), "int32")}


def test_bad_rows_are_counted(group: Any, tmp_path: Path) -> None:
    (tmp_path / "b.jsonl").write_text('{"n": 1}\n{"n": "x"}\n{"n":\n{"n": 4}\n')
    files = _core.Files(group, [str(tmp_path / "b.jsonl")], schema="n:int64", skip_bad=True)
    rows: list[int] = []
    report = files.read(0, lambda values, key, row: rows.append(row))
    assert rows == [0, 3] and report["bad"] == 2 and report["bad_first"].count("\n") == 2
