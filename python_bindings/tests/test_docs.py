# SPDX-License-Identifier: Apache-2.0
"""The pages: what they print works as it is printed, in order, in an empty directory."""
from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import paged
import pytest
import stores

import rankstore

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
TABLES = ("install.md", "troubleshooting.md")  # nothing in them is a program
LIMIT_S = 1400
Ranks = Callable[..., list[subprocess.CompletedProcess[str]]]


@pytest.mark.limit(1500)
@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in TABLES], ids=lambda page: page.name)
def test_a_page_runs_as_printed(page: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    if page.name == "mpi.md":
        pytest.importorskip("mpi4py")
    allowed = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
               "OMP_NUM_THREADS": "1", "RANKSTORE_PYTHON": sys.executable}
    with contextlib.ExitStack() as servers:
        if page.name == "stores.md":
            pytest.importorskip("moto")
            store = stores.make_bucket(servers.enter_context(stores.moto()), "bucket")
            allowed.update(store.environment)
        done = subprocess.run([sys.executable, paged.__file__, str(page)], cwd=tmp_path, env={**os.environ, **allowed}, text=True,
                              timeout=LIMIT_S, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_block_says_how_it_runs(page: Path) -> None:
    for block in paged.blocks_of(page):
        kind = f"{block.language} {block.how}".strip()
        assert kind in paged.KINDS or kind.startswith("python save="), f"{page.name}:{block.line}: ```{kind}"
        assert kind != "sh" or re.search(r"\b(apt-get|pip) install\b", block.text), f"{page.name}:{block.line} is not run"
    assert page.name in TABLES or any(block.language == "python" for block in paged.blocks_of(page))


def test_the_first_page_leads_to_each_other_one() -> None:
    linked = set(re.findall(r"\]\(docs/(\w+\.md)\)", (ROOT / "README.md").read_text(encoding="utf-8")))
    assert linked == {page.name for page in PAGES if page.parent.name == "docs"}


def test_a_block_that_fails_fails_its_page(tmp_path: Path) -> None:
    for text in ("```python\nassert 1 == 2\n```\n", "```sh run\nfalse\n```\n",
                 "```python save=a.py\nraise SystemExit(3)\n```\n\n```sh srun\nsrun -n 2 python a.py\n```\n"):
        (tmp_path / "page.md").write_text(text)
        done = subprocess.run([sys.executable, paged.__file__, "page.md"], cwd=tmp_path, capture_output=True, timeout=400)
        assert done.returncode != 0, text


def program_of(page: Path) -> str:
    return "".join(block.text for block in paged.blocks_of(page) if block.language == "python")


READMES = [page for page in sorted([*ROOT.parent.glob("*.md"), *ROOT.parent.glob("*/README.md")]) if program_of(page)]


def test_both_readmes_have_a_program() -> None:
    assert {ROOT.parent / "README.md", ROOT / "README.md"} <= set(READMES)


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("page", READMES, ids=[str(page.relative_to(ROOT.parent)) for page in READMES])
def test_the_program_of_a_readme_runs_twice(ranks: Ranks, page: Path, world: int) -> None:
    pytest.importorskip("torch")
    for _ in range(2):
        done = ranks(world, program_of(page))
        if page.parent == ROOT.parent:
            shapes = [json.loads(line.partition(" torch.Size(")[2].rstrip(")")) for one in done for line in one.stdout.splitlines()]
            assert sum(count for count, _ in shapes) == 10_000 and max(width for _, width in shapes) == 504


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / link).exists(), f"{page.name}: {link}"


def test_the_table_of_errors_has_each_of_them() -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `(\w+Error)`", text, re.M))
    assert named == {name for name in rankstore.__all__ if name.endswith("Error")}


def test_the_messages_of_the_troubleshooting_page_are_ours() -> None:
    sources = [*(ROOT.parent / "src").rglob("*.c"), *(ROOT / "src").glob("*.c"), *(ROOT / "rankstore").rglob("*.py")]
    code = "".join(re.sub(r'"\s*f?"', "", path.read_text(encoding="utf-8")) for path in sources)
    rows = re.findall(r"^\| (`.*?`) \|", (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8"), re.M)
    quoted = [text for row in rows for text in re.findall(r"`([^`]+)`", row)]
    assert len(quoted) > 15 and [text for text in quoted if text not in code] == []


def test_the_system_packages_are_those_of_the_setup() -> None:
    wanted = re.search(r"apt-get install ([^\n]+)", (ROOT / "docs" / "install.md").read_text(encoding="utf-8"))
    known = re.search(r'^setup_build_packages="([^"]+)"', (ROOT.parent / "tools" / "setup").read_text(encoding="utf-8"), re.M)
    assert wanted and known and set(wanted[1].split()) <= set(known[1].split())
