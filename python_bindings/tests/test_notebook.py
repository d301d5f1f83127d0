# SPDX-License-Identifier: Apache-2.0
"""A notebook without a launcher, in a real kernel: cells run again, the kernel is interrupted, and the dataset opened again."""
from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

BUILD = """
import numpy, time, rankstore
from rankstore import Pad
samples = [{"ids": numpy.arange(1 + i % 40, dtype=numpy.int32)} for i in range(400)]
ds = rankstore.build(samples, "store", length="ids")
print(len(ds), ds[7]["ids"].tolist())
"""
CHANGED = BUILD.replace("range(400)", "range(500)")
PLAN = """
plan = ds.plan("bucket", max_tokens=400, seed=1)
loader = ds.loader(plan, collate=Pad(), progress=True)
ds
"""
LOOP = """
seen = sorted(i for batch in loader for i in batch.ids.tolist())
print(loader.epoch, seen == list(range(400)), loader.plan is plan)
"""
EARLY = """
for batch in loader:
    break
print("at step", batch.step)
"""
HANGS = """
stop = False
def slow(samples):
    while not stop:
        time.sleep(0.05)
print("in it", flush=True)
for batch in ds.loader(plan, collate=slow):
    pass
"""
WAITS = """
print("in it", flush=True)
for batch in loader:
    time.sleep(600)
"""


class Notebook:
    """Cells in one kernel, each with its text, its error's name, and what it shows."""

    def __init__(self, path: Path) -> None:
        import nbformat
        self.client = nbclient.NotebookClient(nbformat.v4.new_notebook(), kernel_name="python3", timeout=400, allow_errors=True,
                                              resources={"metadata": {"path": str(path)}})

    async def run(self, source: str, *, interrupt: bool = False) -> tuple[str, str, dict[str, Any]]:
        import nbformat
        cells = self.client.nb.cells
        cells.append(nbformat.v4.new_code_cell(source))
        cell = cells[-1]
        running = asyncio.ensure_future(self.client.async_execute_cell(cell, len(cells) - 1))
        while interrupt and not running.done():
            if any("in it" in one.get("text", "") for one in cell.outputs):
                await asyncio.sleep(0.3)  # now it waits
                await self.client.km.interrupt_kernel()
                break
            await asyncio.sleep(0.05)
        await running
        text = "".join(one.text for one in cell.outputs if one.output_type == "stream")
        errors = [one.ename for one in cell.outputs if one.output_type == "error"]
        shown: dict[str, Any] = next((one.data for one in cell.outputs if one.output_type == "execute_result"), {})
        return text, "".join(errors), shown


def test_a_notebook(tmp_path: Path) -> None:
    asyncio.run(use(Notebook(tmp_path)))
    assert not [name for name in os.listdir(tmp_path) if name != "store"]


async def use(notebook: Notebook) -> None:
    async with notebook.client.async_setup_kernel(cwd=str(notebook.client.resources["metadata"]["path"])):
        run = notebook.run
        text, error, _ = await run(BUILD)
        assert error == "" and text.endswith("400 [0, 1, 2, 3, 4, 5, 6, 7]\n"), (text, error)
        text, error, _ = await run(BUILD)  # again, while the first dataset is open
        assert error == "" and "nothing is built" in text and text.endswith("400 [0, 1, 2, 3, 4, 5, 6, 7]\n"), (text, error)
        text, error, shown = await run(PLAN)
        assert error == "" and "<svg" in shown["text/html"] and "rankstore.Dataset" in shown["text/plain"], (text, error)
        _, error, shown = await run("plan")
        assert error == "" and "efficiency" in shown["text/html"]
        for epoch in (1, 2):  # the cell of the loop, again: the next epoch
            text, error, _ = await run(LOOP)
            assert error == "" and f"{epoch} True True" in text and f"epoch {epoch - 1}: " in text, (text, error)  # and the bar
        for _ in range(2):
            text, error, _ = await run(EARLY)
            assert error == "" and "at step 0" in text, (text, error)
        for source in (HANGS, WAITS):
            text, error, _ = await run(source, interrupt=True)
            assert error == "KeyboardInterrupt", (text, error)
            text, error, _ = await run("stop = True\nloader.set_epoch(5)\n" + LOOP)
            assert error == "" and "6 True True" in text, (text, error)
        text, error, _ = await run(CHANGED)
        assert error in ("ArgumentError", "StateError"), (text, error)
        text, error, _ = await run(CHANGED.replace('length="ids"', 'length="ids", replace=True'))
        assert error == "" and text.endswith("500 [0, 1, 2, 3, 4, 5, 6, 7]\n"), (text, error)
        text, error, _ = await run("ds.close()\nds = rankstore.open('store')\nprint(len(ds), sum(1 for _ in ds))")
        assert (text, error) == ("500 500\n", "")
