# SPDX-License-Identifier: Apache-2.0
"""A picture for those who have ten seconds: how much each loader gives to a training loop, as bars of a linear scale."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from race import Result
from rows import ROWS

# Rows of which the picture tells, in this order: a heading, and a unit that needs no explanation.
PANELS = {"padded-loader": ("Text, in padded batches", "million tokens a second"),
          "images": ("Pictures, decoded", "pictures a second"),
          "epoch-blobs-loader": ("Blobs of 100 KB, shuffled", "MB a second")}
# What feeds a loop is two things for some of them.
FULL_NAMES = {"memmap": "memmap, DataLoader", "HF datasets": "HF datasets, DataLoader", "py-lmdb": "py-lmdb, DataLoader",
              "Lance": "Lance, DataLoader", "torchdata nodes": "memmap, torchdata nodes", "SPDL": "memmap, SPDL"}
OURS, OTHERS, TEXT, FAINT = "#c4432b", "#9aa5b1", "#1f2933", "#616e7c"
WIDTH, NAMES, BAR, GAP, HEAD = 760, 210, 18, 7, 46
LONGEST = WIDTH - NAMES - 90


def draw(path: Path, found: Mapping[str, Sequence[Result]], about: Mapping[str, Any]) -> bool:
    """Writes an SVG of the rows that it knows; False if there is none."""
    panels = [(key, _bars(key, found[key])) for key in PANELS if key in found]
    panels = [(key, bars) for key, bars in panels if len(bars) > 1]
    if not panels:
        return False
    parts, at = [_text(20, 34, "What a training loop gets from each loader", size=20, bold=True),
                 _text(20, 56, f"Two workers or threads, data in memory, {about['cores']} cores of {about['processor']}", colour=FAINT)], 66
    for key, bars in panels:
        heading, unit = PANELS[key]
        parts += [_text(20, at + 28, heading, size=15, bold=True),
                  _text(WIDTH - 20, at + 28, f"{unit}; longer is better", colour=FAINT, anchor="end")]
        at += HEAD
        for name, value in bars:
            length, colour = max(2.0, LONGEST * value / bars[0][1]), OURS if name == "Rankstore" else OTHERS
            parts += [_text(NAMES - 10, at + 13, FULL_NAMES.get(name, name), anchor="end", bold=name == "Rankstore"),
                      f'<rect x="{NAMES}" y="{at}" width="{length:.1f}" height="{BAR}" rx="2" fill="{colour}"/>',
                      _text(NAMES + length + 8, at + 13, f"{value:,.0f}" if value >= 10 else f"{value:.2g}", bold=name == "Rankstore")]
            at += BAR + GAP
    height = at + 16
    size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="system-ui, sans-serif" role="img">',
             f"<title>{escape(_told(panels))}</title>", f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>', *parts, "</svg>", ""]
    path.write_text("\n".join(lines), encoding="utf-8")
    return True


def _told(panels: Sequence[tuple[str, Sequence[tuple[str, float]]]]) -> str:
    """The picture in words."""
    return "; ".join(f"{PANELS[key][0]}, {PANELS[key][1]}: " + ", ".join(f"{FULL_NAMES.get(name, name)} {value:,.0f}"
                                                                       for name, value in bars) for key, bars in panels)


def _bars(key: str, results: Sequence[Result]) -> list[tuple[str, float]]:
    """(name, median) of each, the best first; of Rankstore its own loader alone."""
    row = ROWS[key]
    found = [("Rankstore" if result.name == row.ours else result.name, result.median(row)) for result in results
             if result.seconds and not result.error and (result.name == row.ours or not result.name.startswith("Rankstore"))]
    return sorted(found, key=lambda one: -one[1])


def _text(x: float, y: float, words: str, *, size: int = 13, colour: str = TEXT, anchor: str = "start", bold: bool = False) -> str:
    weight = ' font-weight="600"' if bold else ""
    return f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}"{weight}>{escape(words)}</text>'
