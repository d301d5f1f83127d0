# SPDX-License-Identifier: Apache-2.0
"""Whole jobs over real data, which lies beside the checkout or where SHARED_DATA says: two ranks train some steps and learn."""
from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from test_examples import Ranks, run
from trained import EXAMPLES

DATA = Path(os.environ.get("SHARED_DATA", Path(__file__).parents[3] / "shared/data"))
NAMES = ("sft_json", "char_model", "speech_ctc")


def rows() -> list[dict[str, Any]]:
    path = DATA / "gsm8k/train.jsonl"
    if not path.exists():
        pytest.skip("gsm8k is not there")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()[:500]]


def loss_of(said: str) -> float:
    found = re.search(r"loss ([0-9.]+)$", said.strip())
    assert found, said
    return float(found[1])


@pytest.mark.parametrize("name", NAMES)
def test_it_is_short(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) < 60


@pytest.mark.limit(900)
def test_fine_tuning_from_a_json_array(ranks: Ranks, tmp_path: Path) -> None:
    path = tmp_path / "alpaca.json"
    path.write_text(json.dumps([{"instruction": row["question"], "output": row["answer"]} for row in rows()], indent=1))
    said = run(ranks, 2, "sft_json", str(path), "--steps", "30")
    assert said.startswith("500 samples, 30 steps, padding 0.0") and loss_of(said) < 3.6  # ln 256 is 5.5


@pytest.mark.limit(900)
def test_a_model_of_characters_from_raw_text(ranks: Ranks, tmp_path: Path) -> None:
    path = tmp_path / "input.txt"
    path.write_text("\n".join(row["question"] for row in rows()), encoding="utf-8")
    said = run(ranks, 2, "char_model", str(path), "--steps", "30")
    assert f"{path.stat().st_size} characters, 30 steps" in said and loss_of(said) < 3.4


@pytest.mark.limit(900)
def test_speech_with_ctc_targets(ranks: Ranks) -> None:
    if not (DATA / "fsdd.tar").exists():
        pytest.skip("fsdd.tar is not there")
    said = run(ranks, 2, "speech_ctc", str(DATA / "fsdd.tar"), "--steps", "40")
    assert said.startswith("3000 recordings, 40 steps, padding 0.1") and loss_of(said) < 6
