# SPDX-License-Identifier: Apache-2.0
"""Lengths, costs, weights and sources of a plan that are no numbers in one dimension are refused by name, with the place of the first."""
from __future__ import annotations

import warnings
from typing import Any

import numpy
import pytest
import torch

import rankstore

WARNED = pytest.mark.filterwarnings("ignore")
NAMES = ("lengths", "balance", "weights", "sources")


def planned(option: str, values: Any) -> rankstore.Plan:
    """Plan with `values`, three of them, as one option."""
    if option == "lengths":
        return rankstore.plan(values)
    more: dict[str, Any] = {"mix": {"1": 1.0}} if option == "sources" else {}
    if option == "weights" and "int" not in str(getattr(values, "dtype", "int")):
        more["samples"] = 8
    return rankstore.plan([5, 6, 7], **{option: values}, **more)


def nested() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])


def masked() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.masked.masked_tensor(torch.ones(3), torch.tensor([True, False, True]))


class Sparse:
    """What is asked of an array of scipy.sparse."""

    nnz = 1

    def toarray(self) -> Any:
        return numpy.zeros((1, 3))


NO_ARRAYS: list[tuple[Any, str]] = [
    (nested, "a nested tensor; give one value a sample, in one dimension"),
    (masked, "a masked tensor; fill it, as with to_tensor"),
    (lambda: torch.tensor([1, 0, 2]).to_sparse(), r"a sparse tensor \(torch.sparse_coo\); give its to_dense\(\)"),
    (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8), r"a quantized tensor; give its dequantize\(\)"),
    (lambda: torch.ones(3, dtype=torch.int64, device="meta"), "a tensor on the device meta, which has no values; give one in memory"),
    (Sparse, r"a sparse array \(Sparse\); give its toarray\(\), in one dimension"),
    (lambda: numpy.ma.masked_array([1, 2, 3], [False, True, False]), "an array with masked items; give "),
    (lambda: numpy.ones((3, 1), int), r"an array of 2 dimensions, of shape \(3, 1\); give .* in one dimension"),
    (lambda: torch.ones(1, 3), r"an array of 2 dimensions, of shape \(1, 3\); give .* in one dimension"),
    (lambda: numpy.int64(3), r"an array of 0 dimensions, of shape \(\); give .* in one dimension"),
    (lambda: {3: 1, 4: 1, 5: 1}.keys(), "an array of 0 dimensions"),
    (lambda: {3, 4, 5}, "set: no array of .* in one dimension: a set has no order"),
]


@WARNED
@pytest.mark.parametrize("option", NAMES)
@pytest.mark.parametrize("make, words", NO_ARRAYS)
def test_what_is_no_array_in_memory_is_named(option: str, make: Any, words: str) -> None:
    with pytest.raises(rankstore.ArgumentError, match=f"^{option}: {words}"):
        planned(option, make())


@pytest.mark.parametrize("option", NAMES)
@pytest.mark.parametrize("values, place, words", [
    ([1, [2, 3], [4]], 1, "list of 2 items; give "), ([1, 2, [3]], 2, "list of 1 items; give "),
    ([torch.tensor(1), torch.tensor([2, 3]), torch.tensor(4)], 1, r"Tensor of shape \(2,\); give "),
    ([numpy.ones(2), numpy.ones(3), numpy.ones(1)], 0, r"ndarray of shape \(2,\); give "),
    ([1, None, 3], 1, "'None', NoneType; give "), ([3, 1j, 4], 1, "'1j', complex; give ")])
def test_the_place_of_what_is_not_one_number_is_named(option: str, values: list[Any], place: int, words: str) -> None:
    with pytest.raises(rankstore.ArgumentError, match=rf"^{option}\[{place}\]: {words}"):
        planned(option, values)


@pytest.mark.parametrize("option, values, words", [
    ("lengths", [4, 5, -3, -4], r"lengths\[2\]: -3; lengths are from 0 to 2\^32 - 2"),
    ("lengths", numpy.array([2**32 - 1, 4]), r"lengths\[0\]: 4294967295; lengths are from 0 to 2\^32 - 2"),
    ("lengths", iter([numpy.array([4, 5]), [7, -1]]), r"lengths\[3\]: -1; lengths are from"),
    ("lengths", iter([[4, 5], [7, 1.5]]), r"lengths\[3\]: '1.5', float; give integers"),
    ("lengths", iter([7, 1.5]), r"lengths\[1\]: '1.5', float; give integers"),
    ("lengths", [1, 2**70], r"lengths\[1\]: 1180591620717411303424, more than 63 bits; give integers"),
    ("lengths", [1, 2.5], r"lengths\[1\]: '2.5', float; give integers"),
    ("lengths", torch.tensor([1.0, 2.0]), "lengths: an array of float32; give integers in one dimension"),
    ("lengths", ["a", "b"], r"lengths\[0\]: 'a', str; give integers"),
    ("balance", [1.0, 2.0, -0.5], r"balance\[2\]: -0.5; costs must be finite and at least 0"),
    ("balance", torch.tensor([1.0, float("nan"), 1.0], dtype=torch.bfloat16), r"balance\[1\]: nan; costs must be finite"),
    ("weights", numpy.array([1.0, 0.5, float("inf")]), r"weights\[2\]: inf; weights are finite numbers from 0"),
    ("weights", torch.tensor([1.0, -0.5, 1.0]), r"weights\[1\]: -0.5; weights are finite numbers from 0"),
    ("weights", [3, -1, 2], r"weights\[1\]: -1; counts are from 0 to 2\^32 - 1"),
    ("weights", [3, 1, 2**32], r"weights\[2\]: 4294967296; counts are from 0 to 2\^32 - 1")])
def test_the_place_of_a_wrong_number_is_named(option: str, values: Any, words: str) -> None:
    with pytest.raises(rankstore.ArgumentError, match=f"^{words}"):
        planned(option, values)


SMALL = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float16"]


@pytest.mark.parametrize("kind", SMALL)
def test_small_floats_are_costs_and_weights(kind: str) -> None:
    lengths, values = numpy.arange(1, 401), [0.5, 1.5, 448.0, 0.25] * 100
    given = torch.tensor(values).to(getattr(torch, kind))
    exact = given.float().numpy()
    kept = [given]
    if kind != "float16":
        ml_dtypes = pytest.importorskip("ml_dtypes")
        kept.append(exact.astype(getattr(ml_dtypes, kind)))
        from rankstore._schema.bits import CLASSES
        kept.append(kept[1].view(f"uint{8 * kept[1].dtype.itemsize}").view(CLASSES[kind]))
    for made in kept:
        for options in ({"balance": made}, {"weights": made, "samples": 500}):
            same = {name: exact if value is made else value for name, value in options.items()}
            plan, wanted = (rankstore.plan(lengths, world=4, batch_size=4, **one) for one in (options, same))
            assert plan.report(1)["digest"] == wanted.report(1)["digest"] and len(plan.samples(1, 0)) == 4
    with pytest.raises(rankstore.ArgumentError, match="^lengths: an array of float"):
        rankstore.plan(kept[-1])


def test_lengths_of_other_kinds_plan_as_before() -> None:
    wanted = rankstore.plan([3, 4, 5]).hash
    for same in (numpy.array([3, 4, 5], "int8"), numpy.array([3, 4, 5], "uint64"), torch.tensor([3, 4, 5], requires_grad=False),
                 (3, 4, 5), [torch.tensor(3), 4, numpy.int16(5)], iter([torch.tensor(3), 4, 5]), range(3, 6),
                 numpy.ma.masked_array([3, 4, 5], [False] * 3)):
        assert rankstore.plan(same).hash == wanted


def test_names_and_numbers_are_not_mixed_in_sources() -> None:
    with pytest.raises(rankstore.ArgumentError, match="^sources: names and numbers are mixed"):
        planned("sources", numpy.array([1, "1", 2], dtype=object))
    sources = numpy.array(["web", "code", "web"], dtype=object)
    assert rankstore.plan([3, 4, 5], sources=sources, mix={"web": 1}).report(0)["samples"] == 2
