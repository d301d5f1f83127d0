# SPDX-License-Identifier: Apache-2.0
"""What notebooks show of a dataset and a plan: sound markup, the numbers, at most a screen."""
from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy
import pytest

import rankstore
from rankstore._schema import html_repr


def read(html: str) -> tuple[dict[str, str], list[int], str]:
    """The table, the counts of the bars, and all text. It is well-formed, without a script or anything from outside."""
    root = ElementTree.fromstring(html)
    assert len(html) < 16_000 and not re.search(r"<script|href|src=|url\(", html)
    rows = root.findall(".//tr")
    assert len(rows) <= html_repr.ROWS + 1
    bars = [int((title.text or "").split(": ")[1].replace(",", "")) for title in root.findall(".//rect/title")]
    return {row[0].text or "": row[1].text or "" for row in rows}, bars, "".join(root.itertext())


def test_a_dataset_and_its_plan(tmp_path: Path) -> None:
    sizes = numpy.random.default_rng(0).integers(1, 900, 2000)
    samples = [{"input_ids": numpy.zeros(size, numpy.int32), "<b>&\"": size} for size in sizes]
    with rankstore.build(samples, tmp_path / "<i>store", length="input_ids") as ds:
        table, bars, text = read(ds._repr_html_())
        assert table["samples"] == "2,000" and table["input_ids"] == "int32[*], length" and table['<b>&"'] == "int64"
        assert table["bytes"].endswith("MiB") and table["id"] == ds.id and str(tmp_path / "<i>store") in text
        assert sum(bars) == 2000 and len(bars) == html_repr.BARS and f"lengths: {sizes.min()} to {sizes.max()}, mean" in text
        table, bars, _ = read(ds.select(sizes < 30)._repr_html_())
        assert table["samples"] == f"{(sizes < 30).sum()} of 2,000" and sum(bars) == (sizes < 30).sum() and table["bytes of all"]
        plan = ds.plan("bucket", max_tokens=4096, seed=1)
        table, bars, text = read(plan._repr_html_())
        assert table["samples"] == "2,000" and table["steps"] == f"{plan.steps} on 1 ranks" and "max_tokens=4096" in table["options"]
        assert sum(bars) == plan.steps and float(table["efficiency"].split("%")[0]) > 50 and table["tokens"] == f"{sizes.sum():,}"
        cut = ds.plan(batch_size=8, max_length=10, too_long="truncate")
        assert html_repr.tokens_of(cut).sum() == sizes.clip(max=10).sum()
        table, bars, _ = read(pickle.loads(pickle.dumps(ds))._repr_html_())
        assert table["samples"] == "2,000" and not bars
    assert read(ds._repr_html_())[0] == {"state": "closed"}


def test_many_columns_and_samples_that_are_absent(tmp_path: Path) -> None:
    samples = [{f"c{k}": k for k in range(40)} | {"x": "t" * i} for i in range(9)]
    with rankstore.build(samples, tmp_path / "store", length="x") as ds:
        table, _, _ = read(ds._repr_html_())
        assert len(table) == html_repr.ROWS + 1 and table[""] == f"and {40 + 5 - html_repr.ROWS} more"
        ds.write_quarantine(tmp_path / "bad.json", [3, 4])
    with rankstore.open(tmp_path / "store", quarantine=tmp_path / "bad.json") as ds:
        table, bars, _ = read(ds._repr_html_())
        assert table["absent"] == "2" and sum(bars) == 7
        with rankstore.open(tmp_path / "store") as other:
            assert "absent" not in read(other.select([])._repr_html_())[0]


@pytest.mark.parametrize(("values", "bars"), [([5], [1]), ([1, 1, 2], [2, 1]), ([0, 0xFFFFFFFE], [1] + [0] * 22 + [1]), ([], [])])
def test_bars_of_few_values(values: list[int], bars: list[int]) -> None:
    made: Any = html_repr.histogram(numpy.array(values, numpy.uint32), "lengths")
    assert (read(f"<div>{made}</div>")[1] if made else []) == bars


def test_numbers() -> None:
    assert [html_repr.size(one) for one in (5, 2048, 3 * 1024**3, 2e15)] == ["5 bytes", "2.0 KiB", "3.0 GiB", "1819.0 TiB"]
    assert html_repr.cut("x" * 300) == "x" * 99 + "…" and html_repr.count(1234567) == "1,234,567"
