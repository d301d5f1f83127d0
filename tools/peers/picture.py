# SPDX-License-Identifier: Apache-2.0
"""The results as bars: a panel a row, Rankstore's in colour."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from race import Result
from rows import ROWS

OURS, OTHERS = "#c4432b", "#9aa5b1"
COLUMNS = 2


def draw(path: Path, found: Mapping[str, Sequence[Result]]) -> None:
    """Writes a PNG. Bars are medians, whiskers the least and the largest round; scales are logarithmic."""
    import matplotlib.pyplot as plot
    lines = -(-len(found) // COLUMNS)
    figure, axes = plot.subplots(lines, COLUMNS, figsize=(14, 0.8 + 3.4 * lines), squeeze=False, layout="constrained")
    for axis in axes.flat[len(found):]:
        axis.axis("off")
    for axis, (key, results) in zip(axes.flat, found.items()):
        _panel(axis, key, [result for result in results if result.seconds and not result.error])
    figure.savefig(path, dpi=110)
    plot.close(figure)


def _panel(axis: Any, key: str, results: Sequence[Result]) -> None:
    row = ROWS[key]
    axis.set_title(row.title, fontsize=10, loc="left")
    if not results:
        axis.axis("off")
        return
    results = sorted(results, key=lambda one: one.median(row), reverse=row.less_is_better)
    middles = [result.median(row) for result in results]
    whiskers = [[middle - min(result.values(row)) for middle, result in zip(middles, results)],
                [max(result.values(row)) - middle for middle, result in zip(middles, results)]]
    colours = [OURS if result.name.startswith("Rankstore") else OTHERS for result in results]
    bars = axis.barh([result.name for result in results], middles, color=colours, xerr=whiskers, ecolor="#444", error_kw={"lw": 0.8})
    axis.bar_label(bars, [f"{middle:,.3g}" if middle < 1000 else f"{middle:,.0f}" for middle in middles], padding=6, fontsize=8)
    axis.set_xscale("log")
    axis.set_xlabel(f"{'seconds' if row.unit == 's' else row.unit} ({'less' if row.less_is_better else 'more'} is better)", fontsize=8)
    axis.tick_params(labelsize=8)
    axis.margins(x=0.15)
    axis.spines[["top", "right"]].set_visible(False)
