# SPDX-License-Identifier: Apache-2.0
"""A subinterpreter that imports the package is refused, and the main interpreter's package works as before. Needs no other package."""
from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

# Two kinds: with a GIL of its own, where CPython itself refuses the extension, and one that shares the GIL, as mod_wsgi makes them.
COMMON = """
import sys
try:
    import _interpreters as subs  # 3.13 and newer
    def make(isolated): return subs.create("isolated" if isolated else "legacy")
except ImportError:
    import _xxsubinterpreters as subs
    def make(isolated): return subs.create(isolated=isolated)

def tries(isolated):
    one = make(isolated)
    code = '''
import os, sys
sys.path[:] = PATH
try:
    import rankstore
    rankstore.open
except ImportError as refused:
    os.write(1, f"refused: {refused}\\\\n".encode())
else:
    os.write(1, b"imported\\\\n")
'''.replace("PATH", repr(sys.path))
    raised = subs.run_string(one, code)
    assert raised is None, raised
    subs.destroy(one)

def works(place):
    import rankstore
    rankstore.build(({"n": i} for i in range(100)), sys.argv[1] + place, progress=False).close()
    with rankstore.open(sys.argv[1] + place) as ds:
        assert [ds[i]["n"] for i in range(100)] == list(range(100))
"""


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("order", ["main first", "subinterpreter first"])
def test_a_subinterpreter_is_refused(tmp_path: Path, isolated: bool, order: str) -> None:
    steps = [f"tries({isolated})", "works('b')"]
    if order == "main first":
        steps.insert(0, "works('a')")
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(COMMON) + "\n".join(steps), str(tmp_path / "dataset")],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused: ") and "subinterpreter" in done.stdout.replace("sub-interpreter", "subinterpreter"), done.stdout
