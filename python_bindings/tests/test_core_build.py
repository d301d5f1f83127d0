# SPDX-License-Identifier: Apache-2.0
"""build and build_input on one rank: what is written, resumed, refused; what callbacks raise."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from made import Units, build_units

from rankstore import _core, errors

SCHEMA = "ids:int32[*],box:float32[2,3],n:int64,t:str,raw:bytes,j:json"


def lines(path: Path, rows: int) -> str:
    path.write_text("".join(json.dumps({"n": i, "t": "x" * i}) + "\n" for i in range(rows)))
    return str(path)


# ---- build_input --------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4),
            st.integers(-(2**63), 2**63 - 1),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
            st.binary(max_size=4),
        ),
        max_size=8,
    ),
    skip=st.integers(0, 2),
    own_keys=st.booleans(),
)
def test_arrays_make_the_same_dataset_as_samples(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], skip: int, own_keys: bool
) -> None:
    base = tmp_path_factory.mktemp("built")
    group = _core.Group(solo=True)
    keys = [f"k{i}".encode() if i % 2 else f"k{i}" for i in range(len(rows))]
    boxes = np.arange(6 * len(rows), dtype="float32").reshape(-1, 2, 3)

    def samples(sink: _core.Sink) -> None:
        for i, (ids, n, t, raw) in enumerate(rows):
            sink.add([ids, boxes[i], n, t, raw, t], *([keys[i]] if own_keys else []))

    wanted = build_units(group, base / "one", SCHEMA, {"u": samples}, own_keys=own_keys)

    def ragged(parts: list[bytes], item: int = 1) -> tuple[bytes, np.ndarray[Any, Any]]:
        offsets = np.cumsum([skip] + [len(part) // item for part in parts], dtype="int64")
        return b"\xff" * skip * item + b"".join(parts), offsets  # what lies before the first offset is not looked at

    ids_data, ids_offsets = ragged([np.array(row[0], "int32").tobytes() for row in rows], 4)
    arrays: list[Any] = [
        (np.frombuffer(ids_data, "int32"), ids_offsets),
        (boxes, None),
        (np.array([row[1] for row in rows], "int64"), None),
        ragged([row[2].encode() for row in rows]),
        ragged([row[3] for row in rows]),
        ragged([json.dumps(row[2], ensure_ascii=False).encode() for row in rows]),
    ]
    given_keys = keys if own_keys else None
    got = build_units(
        group, base / "other", SCHEMA, {"u": lambda sink: sink.add_arrays(arrays, len(rows), given_keys)}, own_keys=own_keys
    )
    group.close()
    assert got["dataset"] == wanted["dataset"] and got["samples"] == len(rows)
    assert _core.verify(str(base / "other"), 2) == (len(rows), [])


def test_a_unit_that_is_finished_is_not_read_after_an_interrupted_build(group: _core.Group, tmp_path: Path) -> None:
    units: dict[str, Any] = {f"part {unit}": [[unit]] for unit in range(3)}
    wanted = build_units(group, tmp_path / "whole", "n:int64", units)

    def fail(sink: _core.Sink) -> None:
        sink.add([2])
        raise Boom("here")

    with pytest.raises(Boom, match="here"):
        build_units(group, tmp_path / "cut", "n:int64", {**units, "part 2": fail})
    again = Units(units)
    report = _core.build_input(group, again, str(tmp_path / "cut"), schema="n:int64")
    assert again.read_units == [2] and report["units_resumed"] == 2
    assert report["dataset"] == wanted["dataset"] and report["samples"] == 3


@pytest.mark.parametrize("second, finished", [("tokens of a", True), ("tokens of b", False), (None, False)])
def test_parts_are_taken_over_from_the_same_source_alone(
    group: _core.Group, tmp_path: Path, second: str | None, finished: bool
) -> None:
    def fail(sink: _core.Sink) -> None:
        raise Boom

    with pytest.raises(Boom):
        build_units(group, tmp_path, "n:int64", {"u": [[7]], "v": fail}, source="tokens of a")
    again = Units({"u": [[7]], "v": [[8]]})
    _core.build_input(group, again, str(tmp_path), schema="n:int64", source=second)
    assert again.read_units == ([1] if finished else [0, 1])


def test_ranks_build_from_one_source(tmp_path: Path) -> None:
    script = """if True:
        import os, sys
        from rankstore import _core, errors
        def main(group):
            try:
                _core.build_input(group, None, sys.argv[1], schema="n:int64", source=f"part {group.rank}")
            except errors.ArgumentError as error:
                os.write(1, f"{error.text}\\n".encode())
        sys.exit(_core.launch(2, lambda group: main(group) or 0))
    """
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], text=True, capture_output=True, timeout=400)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["source differs between rank 0 and rank 1"] * 2), done.stderr


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("place", ["scan", "read"])
def test_what_an_input_raises_is_told_to_all_and_kept_by_nobody(
    group: _core.Group, tmp_path: Path, kind: type[BaseException], place: str
) -> None:
    class Failing(Units):
        def scan(self, base: str | None, generation: int) -> Any:
            if place == "scan":
                raise kind("now")
            return super().scan(base, generation)

        def read(self, number: int, sink: _core.Sink) -> None:
            raise kind("now")

    with pytest.raises(errors.RankStoreError, match=f"{_core.RAISED}: {kind.__name__}: now") as caught:
        _core.build_input(group, Failing({"u": []}), str(tmp_path / "d"), schema="n:int64")
    assert caught.value.rank == 0
    assert build_units(group, tmp_path / "d", "n:int64", {"u": [[1]]})["samples"] == 1


@pytest.mark.parametrize("found", [None, ([], 0), ([("u",)], 0, None), ([("u", 1)], 0, 7), ([("", 1)], 0, None), ([("u", -1)], 0, None)])
def test_what_scan_returns_is_checked(group: _core.Group, tmp_path: Path, found: Any) -> None:
    class Wrong(Units):
        def scan(self, base: str | None, generation: int) -> Any:
            return found

    with pytest.raises(errors.RankStoreError):
        _core.build_input(group, Wrong({"u": []}), str(tmp_path / "d"), schema="n:int64")


def test_a_sink_ends_with_its_unit(group: _core.Group, tmp_path: Path) -> None:
    kept: list[_core.Sink] = []
    build_units(group, tmp_path / "d", "n:int64", {"u": kept.append})
    for call in (lambda: kept[0].add([1]), lambda: kept[0].left_out(1, 0), lambda: kept[0].drops, lambda: kept[0].add_arrays([], 0)):
        with pytest.raises(errors.StateError, match="has ended"):
            call()


def test_samples_bring_their_lengths(group: _core.Group, tmp_path: Path) -> None:
    def build(directory: Path, **of: Any) -> str:
        def add(sink: _core.Sink) -> None:
            if "lengths" in of:
                sink.add_arrays([(np.arange(3, dtype=np.uint8), np.array([0, 1, 3, 3]))], 3, lengths=of["lengths"])
                return
            for values, length in zip(([0], [1, 2], []), of["each"], strict=True):
                sink.add([np.array(values, np.uint8)], length=length)

        return str(build_units(group, directory, "t:uint8[*]", {"u": add}, own_lengths=True, length_unit=10)["dataset"])

    one = build(tmp_path / "one", each=[0, 41, 2**31])
    assert build(tmp_path / "arrays", lengths=np.array([0, 41, 2**31], np.uint64)) == one
    assert build(tmp_path / "other", each=[0, 31, 2**31]) != one
    assert build(tmp_path / "same unit", each=[0, 50, 2**31]) == one
    with pytest.raises(errors.DataError, match="length"):
        build(tmp_path / "far", each=[0, 0, 2**40])
    with pytest.raises(TypeError, match="uint64"):
        build(tmp_path / "signed", lengths=np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="2 lengths for 3 samples"):
        build(tmp_path / "short", lengths=np.zeros(2, np.uint64))
    with pytest.raises(ValueError, match="no length is given"):
        build(tmp_path / "none", each=[None, 1, 2])
    with pytest.raises(ValueError, match="own_lengths is not set"):
        build_units(group, tmp_path / "without", "t:uint8[*]", {"u": lambda sink: sink.add([np.zeros(1, np.uint8)], length=3)})


def test_a_refused_sample_leaves_the_sink_usable(group: _core.Group, tmp_path: Path) -> None:
    def add(sink: _core.Sink) -> None:
        for values, key, kind in (
            ([1.5, "a"], "k", TypeError),
            ([2**63, "a"], "k", ValueError),
            ([1, "a"], None, errors.ArgumentError),
            ([1, "a"], b"", errors.DataError),
            ([1, "a"], b"k" * 512, errors.DataError),
            ([1, "a"], 7, TypeError),
            ([None, "a"], "k", errors.DataError),
            ([1], "k", ValueError),
        ):
            with pytest.raises(kind):
                sink.add(values, key)  # type: ignore[arg-type]
        sink.add([1, "a"], "k")

    assert build_units(group, tmp_path / "d", "n:int64,t:str", {"u": add}, own_keys=True)["samples"] == 1


def test_arrays_are_checked(group: _core.Group, tmp_path: Path) -> None:
    good: list[Any] = [
        (np.zeros(3, "int32"), np.array([0, 1, 3])),
        (np.zeros((2, 2), "float32"), np.array([0, 1, 2])),
        (np.zeros(2, "int64"), None),
        (b"abc", np.array([0, 1, 3])),
    ]
    bad: list[tuple[int, Any, type[Exception], str]] = [
        (0, (np.zeros(3, "int64"), np.array([0, 1, 3])), TypeError, "another type"),
        (0, (np.zeros(3, "int32"), np.array([0, 1, 3], "int32")), TypeError, "not int64"),
        (0, (np.zeros(3, "int32"), np.array([0, 1, 3.0])), TypeError, "not int64"),
        (0, (np.zeros(3, "int32"), np.array([0, 3])), ValueError, "2 offsets for 2 samples, not 3"),
        (0, (np.zeros(3, "int32"), np.array([0, 2, 1])), ValueError, "offset 2 is 1"),
        (0, (np.zeros(3, "int32"), np.array([-1, 2, 3])), ValueError, "offset 0 is -1"),
        (0, (np.zeros(3, "int32"), np.array([0, 2, 4])), ValueError, "offset 2 is 4"),
        (0, (np.zeros(3, "int32"), None), ValueError, "needs offsets"),
        (0, (np.zeros((3, 1), "int32"), np.array([0, 1, 3])), ValueError, "dimensions"),
        (0, np.zeros(3, "int32"), TypeError, "tuple"),
        (0, (np.zeros(6, "int32")[::2], np.array([0, 1, 3])), ValueError, "contiguous"),
        (1, (np.zeros((2, 3), "float32"), np.array([0, 1, 2])), ValueError, "dimensions"),
        (2, (np.zeros(3, "int64"), None), ValueError, "size"),
        (2, (np.zeros(2, "int64"), np.array([0, 1, 2])), ValueError, "fixed"),
        (3, (np.zeros(3, "int16"), np.array([0, 1, 3])), TypeError, "another type"),
    ]

    def add(sink: _core.Sink) -> None:
        for column, arrays, kind, text in bad:
            with pytest.raises(kind, match=text):
                sink.add_arrays([arrays if i == column else one for i, one in enumerate(good)], 2)
        with pytest.raises(ValueError, match="3 arrays for 4 columns"):
            sink.add_arrays(good[:3], 2)
        with pytest.raises(ValueError, match="keys: 1 for 2 samples"):
            sink.add_arrays(good, 2, ["k"])
        with pytest.raises(errors.ArgumentError, match="sample 0 of the arrays.*own_keys"):
            sink.add_arrays(good, 2, ["k", "l"])
        with pytest.raises(errors.DataError, match='sample 1 of the arrays: column "t"'):
            sink.add_arrays([*good[:3], (b"a\xff\xff", np.array([0, 1, 3]))], 2)
        sink.add_arrays(good, 2)

    made = build_units(group, tmp_path / "d", "a:int32[*],m:float32[*,2],f:int64,t:str", {"u": add})
    assert made["samples"] == 3  # and the one before the text that is not UTF-8


@pytest.mark.parametrize("type", ["int32[2,*]", "int32[*,*]"])
def test_only_a_first_dimension_varies_in_arrays(group: _core.Group, tmp_path: Path, type: str) -> None:
    def add(sink: _core.Sink) -> None:
        with pytest.raises(ValueError, match='column "a".*first dimension'):
            sink.add_arrays([(np.zeros(4, "int32"), np.array([0, 2]))], 1)

    build_units(group, tmp_path / "d", f"a:{type}", {"u": add})


def test_options_are_checked(group: _core.Group, tmp_path: Path) -> None:
    for kind, options in (
        (errors.ArgumentError, {"key": "m"}),
        (errors.ArgumentError, {"block_size": 1}),
        (ValueError, {"length_unit": 0}),
        (TypeError, {"length_unit": "1"}),
        (TypeError, {"index": "n"}),
        (TypeError, {"index": [1]}),
        (ValueError, {"index": ["n\0"]}),
        (TypeError, {"progress": 1}),
        (ValueError, {"max_sample": -1}),
        (TypeError, {"nonsense": 1}),
    ):
        with pytest.raises(kind):
            build_units(group, tmp_path / "d", "n:int64", {}, **options)
    with pytest.raises(TypeError, match="Group"):
        build_units(1, tmp_path / "d", "n:int64", {})  # type: ignore[arg-type]
    group.close()  # nothing is left open


class Calls:
    """A value whose conversion calls the sink that converts it."""

    def __init__(self, call: Any) -> None:
        self.call = call

    def __index__(self) -> int:
        self.call()
        return 1


def test_a_call_within_a_call_is_refused(group: _core.Group, tmp_path: Path) -> None:
    def add(sink: _core.Sink) -> None:
        for call in (lambda: sink.add([1]), lambda: sink.left_out(0, 0)):
            with pytest.raises(RuntimeError, match="in use"):
                sink.add([Calls(call)])
        sink.add([Calls(lambda: None)])

    assert build_units(group, tmp_path / "d", "n:int64", {"u": add})["samples"] == 1


def test_threads_that_share_a_sink_harm_nothing(group: _core.Group, tmp_path: Path) -> None:
    added = [0] * 4
    data = np.zeros(20000, "int64")

    def add(sink: _core.Sink) -> None:
        def work(me: int) -> None:
            for _ in range(50):
                try:
                    sink.add([data])
                    added[me] += 1
                except RuntimeError:
                    pass

        threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(200)

    assert build_units(group, tmp_path / "d", "a:int64[*]", {"u": add})["samples"] == sum(added) > 0


# ---- build ---------------------------------------------------------------------------------------


def test_build_filters_and_tells_of_its_progress(group: _core.Group, tmp_path: Path) -> None:
    source = lines(tmp_path / "in.jsonl", 2000)
    seen: list[Any] = []
    told: list[Any] = []

    def keep(sample: dict[str, Any]) -> bool:
        seen.append(sample)
        return int.from_bytes(sample["n"][0], "little") % 2 == 0

    report = _core.build(
        group,
        [source],
        str(tmp_path / "d"),
        filter=keep,
        index=["n"],
        unit_size=65536,
        progress=lambda *of: told.append(of),
    )
    assert (report["samples"], report["filtered"], len(seen)) == (1000, 1000, 2000)
    assert seen[3] == {"n": ((3).to_bytes(8, "little"), (), "int64"), "t": (b"xxx", (), "str")}
    assert all(phase == "build" and 0 < done <= total for phase, done, total, _ in told)
    assert _core.verify(str(tmp_path / "d"), 0) == (1000, [])


class Boom(Exception):
    pass


def test_what_a_filter_raises_is_the_cause(group: _core.Group, tmp_path: Path) -> None:
    source = lines(tmp_path / "in.jsonl", 10)
    boom = Boom("sample\n3 is cursed")

    def keep(sample: dict[str, Any]) -> bool:
        if sample["t"][0] == b"xxx":
            raise boom
        return True

    with pytest.raises(errors.DataError, match="in.jsonl:4: filter: Boom: sample 3 is cursed") as caught:
        _core.build(group, [source], str(tmp_path / "d"), filter=keep)
    assert caught.value.__cause__ is boom and boom.__traceback__ is not None
    assert _core.build(group, [source], str(tmp_path / "d"), filter=lambda sample: True)["samples"] == 10


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("callback", ["filter", "progress"])
def test_an_interrupt_in_a_callback_comes_through_as_it_is(
    group: _core.Group, tmp_path: Path, kind: type[BaseException], callback: str
) -> None:
    def interrupt(*_: Any) -> bool:
        raise kind("now")

    source = lines(tmp_path / "in.jsonl", 4000)
    with pytest.raises(kind, match="now"):
        options: Any = {callback: interrupt}
        _core.build(group, [source], str(tmp_path / "d"), unit_size=65536, **options)


def test_a_filter_can_neither_close_the_group_nor_be_no_callable(group: _core.Group, tmp_path: Path) -> None:
    source = lines(tmp_path / "in.jsonl", 3)
    with pytest.raises(errors.DataError, match="in use"):
        _core.build(group, [source], str(tmp_path / "d"), filter=lambda sample: group.close())
    with pytest.raises(TypeError, match="filter"):
        _core.build(group, [source], str(tmp_path / "d"), filter=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="sources"):
        _core.build(group, source, str(tmp_path / "d"))
    with pytest.raises(errors.RankStoreError, match="no-such"):
        _core.build(group, [str(tmp_path / "no-such.jsonl")], str(tmp_path / "d"))


# ---- the rest of the module -----------------------------------------------------------------------


def test_functions_of_the_module(tmp_path: Path, group: _core.Group) -> None:
    assert _core.status_name(-4) == "corrupt" and _core.status_name(7) == _core.status_name(-99) == "unknown"
    assert _core.parse_schema("a:int64,b: float16[80, *] ?") == (
        '{"a":"int64","b":"float16[80,*]?"}',
        [("a", "int64"), ("b", "float16[80,*]?")],
    )
    with pytest.raises(errors.ArgumentError, match='"a"'):
        _core.parse_schema("a:int65")
    for where in (None, str(tmp_path)):
        assert {one["name"] for one in json.loads(_core.doctor(group, where))} >= {"rankstore"}
    with pytest.raises(ValueError, match="level"):
        _core.verify(str(tmp_path), 3)
    with pytest.raises(errors.RankStoreError):
        _core.verify(str(tmp_path / "nothing"), 0)


def test_verify_tells_what_is_broken(group: _core.Group, tmp_path: Path) -> None:
    _core.build(group, [lines(tmp_path / "in.jsonl", 100)], str(tmp_path / "d"))
    [shard] = [path for path in (tmp_path / "d").rglob("*") if path.is_file() and path.stat().st_size > 8000][:1]
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 0x55
    shard.write_bytes(data)
    _, findings = _core.verify(str(tmp_path / "d"), 1)
    assert findings and all(
        set(one) == {"file", "offset", "key", "what", "leftover"} and isinstance(one["key"], bytes) for one in findings
    )
    assert any(str(shard) == one["file"] for one in findings)


# ---- references and memory -------------------------------------------------------------------------


def test_no_reference_is_kept(group: _core.Group, tmp_path: Path) -> None:
    value = np.arange(10, dtype="int64")
    wide = np.arange(10, dtype="int32")  # converted
    text, key, callback = "a text" * 10, "a key" * 3, lambda *item: None
    watched = [value, wide, text, key, callback, group]

    def add(sink: _core.Sink) -> None:
        sink.add([value, wide, text], key)
        for values, of in (([value, 1.5, text], key), ([value, wide], key), ([value, wide, text], 3)):
            with pytest.raises((TypeError, ValueError)):
                sink.add(values, of)  # type: ignore[arg-type]
        offsets = np.array([0, 10])
        sink.add_arrays([(value, offsets), (value, offsets), (text.encode(), offsets)], 1, [key + "2"])
        with pytest.raises(TypeError):
            sink.add_arrays([(value, offsets), (wide, offsets), (text.encode(), offsets)], 1, [key])

    def once(i: int) -> None:
        build_units(group, tmp_path / f"d{i}", "a:int64[*],b:int64[*],t:str", {"u": add}, own_keys=True, progress=callback)
        gather = _core.Gather(group, "a:int64[*]")
        gather.add("n", 0, [value])
        gather.run(0, callback)
        del gather

    once(0)
    gc.collect()
    before = [sys.getrefcount(one) for one in watched]
    for i in range(1, 9):
        once(i)
    gc.collect()
    assert [sys.getrefcount(one) for one in watched] == before


def test_memory_does_not_grow(group: _core.Group, tmp_path: Path) -> None:
    array = np.zeros(4, "int64")
    grown: list[int] = []

    def work(sink: _core.Sink) -> None:
        for _ in range(500):
            sink.add([array, "x"])
            sink.add([[1, 2], "y"])
            for values in ([["x"], "y"], [array, 3], [array]):
                try:
                    sink.add(values)
                except (TypeError, ValueError):
                    pass

    def measure(sink: _core.Sink) -> None:
        work(sink)
        gc.collect()
        tracemalloc.start()
        work(sink)
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        work(sink)
        gc.collect()
        grown.append(tracemalloc.get_traced_memory()[0] - before)
        tracemalloc.stop()

    build_units(group, tmp_path / "d", "a:int64[*],t:str", {"u": measure})
    assert grown[0] < 16 << 10, f"{grown} bytes more after 2500 calls"


def test_a_forked_child_is_told_and_harms_nothing(group: _core.Group, tmp_path: Path) -> None:
    gather = _core.Gather(group, "n:int64")
    gather.add("a", 0, [1])
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        told = []
        for call in (
            lambda: gather.add("a", 1, [2]),
            lambda: group.agree("x"),
        ):
            try:
                call()  # type: ignore[operator]
            except errors.StateError as error:
                told.append("fork" in str(error))
        gather.close()
        group.close()
        own = _core.Group(solo=True)  # the library works here
        told.append(own.allgather("x", b"y") == [b"y"])
        os.write(writer, bytes(told))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == bytes([True] * 3)
    assert os.waitpid(child, 0)[1] == 0
    assert gather.run(0, lambda *item: None)["items"] == 1
    gather.close()
