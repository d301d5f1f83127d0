# SPDX-License-Identifier: Apache-2.0
"""Values into columns: what is taken, bit by bit, and what is refused. They come back through a gather of one rank."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from rankstore import _core
from rankstore._schema.values import convert, infer, merge


@pytest.fixture(scope="module")
def group() -> Iterator[_core.Group]:
    one = _core.Group(solo=True)
    yield one
    one.close()


def store(group: _core.Group, type: str, *values: Any) -> Any:
    """What a column of `type` holds after taking a value: (bytes, dims) or None; a list of these for several values."""
    gather = _core.Gather(group, f"x:{type}")
    got: list[Any] = []
    try:
        for place, value in enumerate(values):
            gather.add("one", place, [value])
        gather.run(0, lambda name, index, rank, values: got.extend(values))
    finally:
        gather.close()
    return got if len(values) > 1 else got[0]


def as_array(group: _core.Group, type: str, value: Any, dtype: Any) -> np.ndarray[Any, Any]:
    data, dims = store(group, type, value)
    return np.frombuffer(data, dtype=dtype).reshape(dims)


SCALARS = {
    "bool": (True, "?"),
    "int8": (-128, "b"),
    "int16": (-(2**15), "h"),
    "int32": (2**31 - 1, "i"),
    "int64": (-(2**63), "q"),
    "uint8": (255, "B"),
    "uint16": (2**16 - 1, "H"),
    "uint32": (2**32 - 1, "I"),
    "uint64": (2**64 - 1, "Q"),
    "float16": (0.5, "e"),
    "float32": (-1.25, "f"),
    "float64": (math.pi, "d"),
}


@pytest.mark.parametrize("type", SCALARS)
def test_a_python_scalar(group: _core.Group, type: str) -> None:
    value, format = SCALARS[type]
    assert store(group, type, value) == (struct.pack("<" + format, value), ())


@pytest.mark.parametrize("type", SCALARS)
def test_a_numpy_and_a_torch_scalar(group: _core.Group, type: str) -> None:
    value, format = SCALARS[type]
    wanted = (struct.pack("<" + format, value), ())
    assert store(group, type, np.dtype(type).type(value)) == wanted
    assert store(group, type, torch.tensor(value, dtype=getattr(torch, type))) == wanted


@pytest.mark.parametrize("type", [type for type in SCALARS if "int" in type])
def test_an_int_out_of_range_is_named(group: _core.Group, type: str) -> None:
    info = np.iinfo(type)
    for value in (int(info.min) - 1, int(info.max) + 1, 10**30):
        with pytest.raises(ValueError, match=f'column "x".*{value}'):
            store(group, type, value)
        with pytest.raises(ValueError, match='column "x"'):
            store(group, type + "[*]", [value])


@settings(max_examples=10, deadline=None)
@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=6, max_size=20))
def test_any_int64_comes_back(values: list[int]) -> None:
    group = _core.Group(solo=True)
    assert store(group, "int64", *values) == [(struct.pack("<q", value), ()) for value in values]
    assert store(group, "int64[*]", *([value, 0] for value in values)) == [(struct.pack("<qq", value, 0), (2,)) for value in values]
    group.close()


REFUSED = [
    ("int64", 1.5),
    ("int64", True),
    ("int64", "1"),
    ("int64", b"12345678"),
    ("bool", 1),
    ("float64", "1"),
    ("float64", True),
    ("str", b"x"),
    ("str", 1),
    ("bytes", "x"),
    ("bytes", 1),
    ("bytes", [1, 2]),
    ("json", b"x"),
    ("json", {1, 2}),
    ("int64[*]", [1.0]),
    ("int64[*]", np.array([1.0])),
    ("int64[*]", "12"),
    ("int64[*]", {"a": 1}),
    ("int64[*]", np.array([True])),
    ("int64[*]", np.array([1, None])),
    ("int64[*]", object()),
    ("int64[*]", [object()]),
    ("int64[*]", ["1"]),
    ("float32[*]", np.array([0.1])),
    ("float32[*]", torch.zeros(2, dtype=torch.float64)),
    ("float32[*]", np.array(["a"])),
    ("bfloat16[*]", np.zeros(2, "float32")),
    ("float8_e5m2[*]", [1.0]),
    ("uint16[*]", torch.zeros(2, dtype=torch.bfloat16)),
    ("complex64[*]", np.zeros(2, "complex128")),
    ("float32[*]", np.zeros(2, "complex64")),
    ("int64[*]", np.array([1], "M8[s]")),
    ("int64[*]", torch.zeros(2, 2).to_sparse()),
]


@pytest.mark.parametrize(("type", "value"), REFUSED, ids=lambda one: repr(one)[:40])
def test_another_kind_is_a_type_error_with_the_column(group: _core.Group, type: str, value: Any) -> None:
    with pytest.raises(TypeError, match='column "x"'):
        store(group, type, value)


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("int64", [1]),
        ("int64[2]", [1, 2, 3]),
        ("int64[*]", [[1]]),
        ("int64[*,2]", np.zeros((2, 3), "int64")),
        ("int64", np.zeros(1, "int64")),
        ("float32[80,*]", np.zeros((79, 4), "float32")),
        ("bytes", np.zeros((2, 2), "uint8")),
        ("int64[*]", [[1], [1, 2]]),
        ("float32", 1e39),
        ("float16", 1e6),
        ("float64", 2**53 + 1),
        ("float32", 2**24 + 1),
        ("float64[*]", [2**53 + 1]),
        ("float32[*]", [1e39]),
        ("bfloat16[*]", [3.4e38 * 1.01]),
        ("str", "\ud800"),
        ("int64", None),
        ("json", float("nan")),
        ("json", {"a": "\ud800"}),
        ("int64[*]", [2**64]),
        ("uint64[*]", [-1]),
    ],
    ids=lambda one: repr(one)[:40],
)
def test_a_wrong_shape_or_range_is_a_value_error_with_the_column(group: _core.Group, type: str, value: Any) -> None:
    with pytest.raises(ValueError, match='column "x"'):
        store(group, type, value)


def test_arrays_that_need_no_conversion(group: _core.Group) -> None:
    data = np.arange(12, dtype="int32").reshape(3, 4)
    for value in (data, memoryview(data), torch.from_numpy(data)):
        assert store(group, "int32[*,*]", value) == (data.tobytes(), (3, 4))
    assert store(group, "uint8[*]", b"abc") == (b"abc", (3,))
    assert store(group, "bytes", bytearray(b"abc")) == (b"abc", ())
    assert store(group, "bytes", b"") == (b"", ())
    assert store(group, "str", "\u00e4\0\U0001f600") == ("\u00e4\0\U0001f600".encode(), ())
    assert store(group, "complex64[*]", np.array([1 + 2j], "complex64")) == (struct.pack("<ff", 1, 2), (1,))
    assert store(group, "int64?", None) is None


LAYOUTS = {
    "other byte order": np.arange(12, dtype=">i4").reshape(3, 4),
    "fortran": np.asfortranarray(np.arange(12, dtype="int32").reshape(3, 4)),
    "strided": np.arange(24, dtype="int32").reshape(3, 8)[:, ::2] // 2,
    "reversed": np.arange(11, -1, -1, dtype="int32")[::-1].reshape(3, 4),
    "wider": np.arange(12, dtype="int64").reshape(3, 4),
    "unsigned": np.arange(12, dtype="uint8").reshape(3, 4),
    "list": np.arange(12).reshape(3, 4).tolist(),
    "tuples": tuple(tuple(row) for row in np.arange(12).reshape(3, 4).tolist()),
    "transposed tensor": torch.arange(12).reshape(4, 3).t().contiguous().t().reshape(3, 4).sort().values,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_does_not_matter(group: _core.Group, layout: str) -> None:
    value = LAYOUTS[layout]
    wanted = np.asarray(value).astype("<i4")
    assert store(group, "int32[*,4]", value) == (wanted.tobytes(), (3, 4))


def test_empty_lists_take_the_columns_shape(group: _core.Group) -> None:
    assert store(group, "int32[*]", []) == (b"", (0,))
    assert store(group, "float32[*,80]", []) == (b"", (0, 80))
    assert store(group, "float32[*]", np.zeros(0, "float32")) == (b"", (0,))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_types_that_numpy_lacks(group: _core.Group, name: str) -> None:
    dtype = getattr(torch, name)
    tensor = torch.tensor([0.5, -2.0, 1.75, 0.0]).to(dtype)
    bits = tensor.view(torch.uint8).numpy().tobytes()
    assert store(group, name + "[*]", tensor) == (bits, (4,))
    assert store(group, name + "[*]", tensor[::2])[0] == tensor[::2].contiguous().view(torch.uint8).numpy().tobytes()
    assert store(group, name, tensor[1])[1] == ()
    raw = np.frombuffer(bits, "uint16" if name == "bfloat16" else "uint8")
    assert store(group, name + "[*]", raw) == (bits, (4,))  # their bits
    wide = as_array(group, "float32[*]", tensor, "float32")
    assert wide.tolist() == [0.5, -2.0, 1.75, 0.0]


@settings(max_examples=200, deadline=None)
@given(value=st.floats(width=32, allow_nan=True, allow_infinity=True))
def test_python_floats_are_rounded_to_bfloat16_as_torch_does(value: float) -> None:
    wanted = torch.tensor([value], dtype=torch.float32).to(torch.bfloat16)
    if torch.isinf(wanted).item() and not math.isinf(value):
        with pytest.raises(ValueError, match='column "x"'):
            convert("x", "bfloat16[*]", [value])
        return
    got = torch.from_numpy(convert("x", "bfloat16[*]", [value]).view("int16")).view(torch.bfloat16)
    assert torch.equal(got, wanted) or torch.isnan(got).item() and torch.isnan(wanted).item()


@settings(max_examples=20, deadline=None)
@given(values=st.lists(st.floats(allow_nan=False), min_size=10, max_size=30))
def test_python_floats_are_rounded_to_float32_alike_alone_and_in_lists(values: list[float]) -> None:
    group = _core.Group(solo=True)
    with np.errstate(over="ignore"):
        wanted = np.array(values).astype("float32")
    fits = ~np.isinf(wanted) | np.isinf(values)
    for value in np.array(values)[~fits].tolist():
        for type, given_value in (("float32", value), ("float32[1]", [value])):
            with pytest.raises(ValueError, match='column "x"'):
                store(group, type, given_value)
    kept = np.array(values)[fits].tolist() + [0.0, 1.0]
    bits = [one.tobytes() for one in wanted[fits]] + [np.float32(one).tobytes() for one in (0.0, 1.0)]
    assert [data for data, _ in store(group, "float32", *kept)] == bits
    assert [data for data, _ in store(group, "float32[1]", *([one] for one in kept))] == bits
    group.close()


def test_tensors_of_all_sorts(group: _core.Group) -> None:
    tensor = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    assert store(group, "float32[*,*]", tensor.clone().requires_grad_())[0] == tensor.numpy().tobytes()
    assert store(group, "float32[*,*]", tensor.t())[0] == tensor.t().contiguous().numpy().tobytes()
    conjugate = torch.tensor([1 + 2j], dtype=torch.complex64).conj()
    assert as_array(group, "complex64[*]", conjugate, "complex64").tolist() == [1 - 2j]
    assert store(group, "bytes", torch.tensor([1, 2], dtype=torch.uint8)) == (b"\x01\x02", ())


def test_json(group: _core.Group) -> None:
    value = {"a": [1, 2.5, None, True], "b": np.arange(2), "c": torch.tensor(3), "\u00e4": np.float32(0.5)}
    data, dims = store(group, "json", value)
    assert dims == ()
    assert json.loads(data) == {"a": [1, 2.5, None, True], "b": [0, 1], "c": 3, "\u00e4": 0.5}
    assert store(group, "json", '{"no": "JSON text"}')[0] == json.dumps('{"no": "JSON text"}').encode()


def test_the_values_are_a_list_or_tuple_of_the_right_size(group: _core.Group) -> None:
    gather = _core.Gather(group, "a:int64,b:int64")
    with pytest.raises(ValueError, match="1 values for 2 columns"):
        gather.add("n", 0, [1])
    for wrong in ("ab", {1: 2, 3: 4}, 7):
        with pytest.raises(TypeError, match="list or tuple"):
            gather.add("n", 0, wrong)  # type: ignore[arg-type]
    gather.add("n", 0, (1, 2))
    assert gather.run(0, lambda *item: None)["items"] == 1
    gather.close()


# ---- a schema from samples ---------------------------------------------------------------------


def test_infer() -> None:
    sample = {
        "flag": True,
        "n": 3,
        "big": 2**63,
        "x": 0.5,
        "z": 1j,
        "text": "t",
        "raw": b"r",
        "ids": [1, 2],
        "weights": (0.5, 1),
        "mask": [True],
        "matrix": [[1, 2], [3, 4]],
        "ragged": [[1], [2, 3]],
        "words": ["a"],
        "meta": {"a": [None]},
        "nothing": None,
        "empty": [],
        "np": np.zeros((3, 80), "float16"),
        "np0": np.int16(1),
        "np64": np.float64(1),
        "bf": torch.zeros(2, 4, dtype=torch.bfloat16),
        "f8": torch.zeros(2, dtype=torch.float8_e5m2),
        "hollow": np.zeros((0, 0), "uint8"),
        "swapped": np.zeros(1, ">i4"),
    }
    assert infer(sample) == {
        "flag": "bool",
        "n": "int64",
        "big": "uint64",
        "x": "float64",
        "z": "complex64",
        "text": "str",
        "raw": "bytes",
        "ids": "int64[*]",
        "weights": "float64[*]",
        "mask": "bool[*]",
        "matrix": "int64[*,2]",
        "ragged": "json",
        "words": "json",
        "meta": "json",
        "nothing": "json?",
        "empty": "json?",
        "np": "float16[*,80]",
        "np0": "int16",
        "np64": "float64",
        "bf": "bfloat16[*,4]",
        "f8": "float8_e5m2[*]",
        "hollow": "uint8[*,*]",
        "swapped": "int32[*]",
    }


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1},
        lambda: 0,
        json,
        np.array([object()]),
        np.array(["a"]),
        [object()],
        {"a": object()},
        {"a": b"x"},
        np.zeros(1, "complex128"),
        iter([1]),
        np.zeros((1,) * 9, "int8"),
    ],
    ids=repr,
)
def test_infer_refuses_with_the_column(value: Any) -> None:
    with pytest.raises(TypeError, match='column "x"'):
        infer({"x": value})


def test_infer_wants_a_dict_and_64_bits() -> None:
    with pytest.raises(TypeError, match="dict"):
        infer([1])  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="name"):
        infer({1: 1})  # type: ignore[dict-item]
    assert infer({"x": [2**63]}) == {"x": "uint64[*]"}
    for value in (2**64, [2**64], [2**63, -1], -(2**63) - 1):
        with pytest.raises(ValueError, match='column "x"'):
            infer({"x": value})


def test_merge() -> None:
    def join(*types: str) -> str:
        return merge(*({"x": type} for type in types))["x"]

    assert join("float16[*,80]", "float16[*,80]") == "float16[*,80]"
    assert join("float16[*,80]", "float16[*,64]", "float16[*,80]") == "float16[*,*]"
    assert join("int64", "float64") == "float64"
    assert join("int64[*,2]", "float64[*,3]?") == "float64[*,*]?"
    assert join("int64[*]", "json") == join("json", "int64[*]") == "json"
    assert join("int64[*]", "int64[*,2]", "json") == "json"
    assert join("int64", "uint64", "float64") == "float64"
    assert join("int64", "uint64") == join("uint64?", "int64").rstrip("?") == "uint64"
    assert join("json?", "int64[*]") == join("int64[*]", "json?") == "int64[*]?"
    assert join("json?", "json?") == "json?"
    assert join("json", "json?") == "json"
    assert merge({"a": "int64", "b": "str"}, {"c": "json", "a": "int64"}) == {"a": "int64", "b": "str?", "c": "json"}
    for one, other in (("int64", "str"), ("json", "str"), ("int64", "int64[*]"), ("bool", "int64"),
                       ("int64[*]", "int64[*,2]"), ("float64[*]", "float64[*,4]"), ("bool[*]", "int64[*]")):
        with pytest.raises(ValueError, match=f'column "x": {re.escape(one)} in one sample, {re.escape(other)} in'):
            join(one, other)


TYPES = st.sampled_from(
    ["int64", "float64", "int64[*]", "float64[*]", "int64[*,2]", "int64[*,3]", "json", "json?", "int64[*]?", "bool[*]", "uint64",
     "int32", "float32", "uint8[*]", "float16[*]", "bfloat16[*]"]
)


@settings(max_examples=300, deadline=None)
@given(types=st.lists(TYPES, min_size=1, max_size=5), data=st.data())
def test_the_order_of_samples_does_not_change_a_merged_type(types: list[str], data: st.DataObject) -> None:
    def join(order: list[str]) -> str:
        try:
            return merge(*({"x": type} for type in order))["x"]
        except ValueError:
            return "conflict"

    assert join(types) == join(data.draw(st.permutations(types)))


@settings(max_examples=100, deadline=None)
@given(
    value=st.one_of(
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False),
        st.text(),
        st.binary(),
        st.lists(st.integers(-(2**63), 2**63 - 1), max_size=5),
        st.lists(st.floats(allow_nan=False), min_size=1, max_size=5),
    )
)
def test_what_infer_says_takes_the_value(value: Any) -> None:
    try:
        if isinstance(value, str):
            value.encode()
    except UnicodeEncodeError:
        return
    type = infer({"x": value})["x"]
    group = _core.Group(solo=True)
    data, dims = store(group, type, value)
    group.close()
    if isinstance(value, (str, bytes)):
        assert data == (value.encode() if isinstance(value, str) else value)
    elif isinstance(value, list) and value:
        assert np.frombuffer(data, type.split("[")[0]).tolist() == value and dims == (len(value),)
    elif not isinstance(value, list):
        assert np.frombuffer(data, type).item() == value
