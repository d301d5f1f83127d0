# SPDX-License-Identifier: Apache-2.0
"""What training runs recorded: lines "epoch step [synced] id id ..." in a file of each rank."""
from __future__ import annotations

import importlib.util
from collections import defaultdict
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def needs(framework: str) -> None:
    """Skips the test where the framework is not there; tests/skips.txt knows these words."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed, and pip could not install it")


class Record:
    """Of each rank, its lines as lists of numbers. `flags`: how many columns lie between the step and the ids."""

    def __init__(self, path: Path, world: int, flags: int = 0) -> None:
        self.flags = flags
        self.ranks = [[[int(word) for word in line.split()] for line in Path(f"{path}.{rank}").read_text().splitlines()]
                      for rank in range(world)]

    def batches(self, rank: int) -> list[list[int]]:
        return [line[2 + self.flags:] for line in self.ranks[rank]]

    def epochs(self) -> dict[int, list[list[list[int]]]]:
        """Of each epoch, of each rank, the batches; the steps are checked to be 0, 1, ... and as many on all ranks."""
        found: dict[int, list[list[list[int]]]] = defaultdict(lambda: [[] for _ in self.ranks])
        for rank, lines in enumerate(self.ranks):
            for epoch, step, *rest in lines:
                assert step == len(found[epoch][rank])
                found[epoch][rank].append(rest[self.flags:])
        for each in found.values():
            assert len({len(batches) for batches in each}) == 1, "ranks have different numbers of steps"
        return dict(found)

    def check(self, samples: int, epochs: int = 2) -> int:
        """Each epoch has each sample once, in another order than the one before. Returns the steps of an epoch."""
        found = self.epochs()
        assert sorted(found) == list(range(epochs))
        for each in found.values():
            assert sorted(one for batches in each for batch in batches for one in batch) == list(range(samples))
            assert all(batch for batches in each for batch in batches)
        assert all(found[epoch] != found[epoch - 1] for epoch in range(1, epochs))
        return len(found[0][0])
