# SPDX-License-Identifier: Apache-2.0
"""Gather on one rank: the order of results, what is refused, what a callback raises."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rankstore import _core, errors


def test_gather_hands_results_out_in_order(group: _core.Group) -> None:
    gather = _core.Gather(group, "loss:float32,out:int16[*]?")
    for index in (5, 0, 2):
        gather.add("b", index, [index / 2, [index] * index])
    gather.add("a", 1, [0.5, None])
    got: list[Any] = []
    report = gather.run(0, lambda *item: got.append(item))
    gather.close()
    assert [(name, index, rank) for name, index, rank, _ in got] == [(b"a", 1, 0), (b"b", 0, 0), (b"b", 2, 0), (b"b", 5, 0)]
    assert got[0][3] == [(np.float32(0.5).tobytes(), ()), None]
    assert got[2][3] == [(np.float32(1).tobytes(), ()), (np.array([2, 2], "int16").tobytes(), (2,))]
    assert report == {"items": 4, "names": 2, "gaps": 3, "gap_first": "b: 1..1; b: 3..4"}


def test_gather_refuses(group: _core.Group) -> None:
    gather = _core.Gather(group, "n:int64")
    for name, index, values, kind in (
        ("", 0, [1], errors.ArgumentError),
        ("a" * 512, 0, [1], errors.ArgumentError),
        ("a", -1, [1], ValueError),
        ("a", 2**64, [1], ValueError),
        ("a", 0, [1.5], TypeError),
        ("a", 0, [1, 2], ValueError),
    ):
        with pytest.raises(kind):
            gather.add(name, index, values)
    gather.add("a", 2**64 - 1, [1])
    with pytest.raises(errors.ArgumentError, match="no rank 3"):
        gather.run(3, None)
    gather.close()
    gather.close()
    with pytest.raises(errors.StateError, match="closed"):
        gather.add("a", 0, [1])


def test_what_receive_raises_is_the_cause(group: _core.Group) -> None:
    gather = _core.Gather(group, "n:int64")
    gather.add("a", 0, [1])
    with pytest.raises(errors.DataError, match="receive: ZeroDivisionError") as caught:
        gather.run(0, lambda *item: 1 // 0)  # type: ignore[arg-type, return-value]
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    gather.close()
