# SPDX-License-Identifier: Apache-2.0
"""A job that trains while another appends. RKS_GROWTH_SECONDS: how long; tests/growth.py runs it for two minutes."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = float(os.environ.get("RKS_GROWTH_SECONDS", "10"))


def test_one_job_appends_and_another_refreshes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = subprocess.run([sys.executable, str(Path(__file__).with_name("growth.py")), str(SECONDS), str(tmp_path / "d")], text=True,
                          capture_output=True, timeout=10 * SECONDS + 120, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["refreshes"] <= figures["epochs"] and figures["shards"] > figures["refreshes"]
