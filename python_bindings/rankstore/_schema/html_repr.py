# SPDX-License-Identifier: Apache-2.0
"""Datasets and plans for notebooks: a table and a histogram, at most one screen.

Every text is escaped, so that a column's name or a path cannot bring markup into the page."""
from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy

BARS = 24
ROWS = 12  # most rows of a table
_WIDTH, _HEIGHT = 480, 90


def count(number: float) -> str:
    """Return 1234567 as "1,234,567"."""
    return f"{number:,.0f}"


def size(number: float) -> str:
    """Return bytes as "1.2 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1024
    return ""


def table(rows: Sequence[tuple[str, str]]) -> str:
    """Return a table of names and values; rows above ROWS are only counted."""
    shown = [*rows[:ROWS], ("", f"and {len(rows) - ROWS} more")] if len(rows) > ROWS else rows
    cell = "text-align:left;padding:1px 12px 1px 0"
    body = "".join(f'<tr><th style="{cell};font-weight:normal;opacity:.7">{escape(name)}</th>'
                   f'<td style="{cell}">{escape(cut(value))}</td></tr>'
                   for name, value in shown)
    return f'<table style="border-collapse:collapse"><tbody>{body}</tbody></table>'


def cut(text: str, most: int = 100) -> str:
    return text if len(text) <= most else f"{text[:most - 1]}…"


def histogram(values: numpy.ndarray[Any, Any], what: str) -> str:
    """Return an inline SVG of how many values there are of each size, in BARS steps of equal width; "" for no values."""
    if len(values) == 0:
        return ""
    import numpy
    least, most = int(values.min()), int(values.max())
    bars = min(BARS, most - least + 1)
    edges = least + (most + 1 - least) * numpy.arange(bars + 1) / bars
    counts, _ = numpy.histogram(values, edges)
    highest, step = int(counts.max()), _WIDTH / bars
    parts = []
    for i, number in enumerate(counts.tolist()):
        height = 0 if number == 0 else max(1.0, number / highest * _HEIGHT)
        span = f"{int(numpy.ceil(edges[i]))} to {int(numpy.ceil(edges[i + 1])) - 1}"
        parts.append(f'<rect x="{i * step:.1f}" y="{_HEIGHT - height:.1f}" width="{max(1.0, step - 1):.1f}" height="{height:.1f}" '
                     f'fill="#4878a8"><title>{span}: {count(number)}</title></rect>')
    label = f"{escape(what)}: {count(least)} to {count(most)}, mean {values.mean(dtype='float64'):,.1f}, most {count(highest)} in a bar"
    return (f'<svg role="img" aria-label="{label}" width="{_WIDTH}" height="{_HEIGHT + 18}" viewBox="0 0 {_WIDTH} {_HEIGHT + 18}">'
            f'{"".join(parts)}<line x1="0" y1="{_HEIGHT}" x2="{_WIDTH}" y2="{_HEIGHT}" stroke="currentColor" stroke-opacity=".4"/>'
            f'<text x="0" y="{_HEIGHT + 14}" font-size="11" fill="currentColor">{label}</text></svg>')


def page(title: str, *parts: str) -> str:
    return f'<div style="font-size:13px;line-height:1.35"><b>{escape(title)}</b>{"".join(parts)}</div>'


def of_dataset(dataset: Any) -> str:
    """Return the HTML of `Dataset._repr_html_`."""
    title = f"rankstore.Dataset {dataset.directory}"
    if dataset.closed:
        return page(title, table([("state", "closed")]))
    rows = [("samples", count(len(dataset)) + (f" of {count(dataset.store.count)}" if dataset.is_selection else ""))]
    is_worker = dataset.is_worker
    if not is_worker:
        rows.append(("bytes" + (" of all" if dataset.is_selection else ""), size(dataset.nbytes)))
    rows += [("rank", f"{dataset.group.rank} of {dataset.group.world}"), ("id", dataset.id)]
    rows += [(name, column.text + (", length" if name == dataset.length_column else "")) for name, column in dataset.schema.items()]
    if is_worker:
        return page(title, table(rows))
    lengths = dataset.lengths
    there = lengths[lengths != 0xFFFFFFFF]
    if len(there) < len(lengths):
        rows.insert(1, ("absent", count(len(lengths) - len(there))))
    return page(title, table(rows), histogram(there, "lengths"))


def of_plan(plan: Any) -> str:
    """Return the HTML of `Plan._repr_html_`, for epoch 0."""
    found = plan.report(0)
    rows = [("options", ", ".join(f"{name}={value!r}" for name, value in plan.options.items())),
            ("steps", f"{count(plan.steps)} on {plan.world} ranks"), ("samples", count(found["samples"])),
            ("tokens", count(found["tokens"])),
            ("efficiency", f"{found['efficiency']:.1%} of the delivered tokens are not padding"),
            ("balance", f"{found['balance']:.1%}: mean cost of a step's ranks by the largest"),
            ("largest batch", f"{count(found['largest_batch'])} tokens with padding")]
    rows += [(name, count(found[name])) for name in ("dropped", "repeated", "truncated") if found.get(name)]
    return page("rankstore.Plan, epoch 0", table(rows), histogram(tokens_of(plan), "tokens of this rank's batches"))


def tokens_of(plan: Any, most: int = 10_000) -> numpy.ndarray[Any, Any]:
    """Return the sum of lengths of each of this rank's first `most` batches of epoch 0."""
    import numpy
    edges, ids = plan.epoch(0).batches(None, 0, min(most, len(plan.epoch(0))))
    lengths = plan.lengths_of(ids)
    if plan.rule.cut:
        lengths = lengths.clip(max=plan.rule.cut)
    sums = numpy.concatenate([numpy.zeros(1, numpy.int64), numpy.cumsum(lengths, dtype=numpy.int64)])
    return numpy.asarray(sums[edges[1:]] - sums[edges[:-1]])
