# SPDX-License-Identifier: Apache-2.0
"""Ranks that read different epochs, or of which one alone changes a plan, fail together; habits that only look like it do not."""
from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rankstore

HEAD = """
import os, sys, time
import rankstore
from rankstore.errors import ArgumentError

group = rankstore.init()
ds = rankstore.open(sys.argv[1])
rank = group.rank

def plan(**options):
    return ds.plan(**{"batch_size": 2, "seed": 3, **options})

def loader(of, **options):
    return ds.loader(of, out="numpy", collate=rankstore.Lists(), **options)

# Prints how many steps began after all files of `since` were there; without them, after all ranks had begun their first one: some begin
# later than others on a busy machine.
def steps_until_error(batches, most=200, since=()):
    steps = seen = 0
    since = since or [f"{sys.argv[2]}.{one}" for one in range(group.world)]
    try:
        for seen, batch in enumerate(batches, 1):
            open(f"{sys.argv[2]}.{rank}", "w").close()
            steps += all(map(os.path.exists, since))
            time.sleep(0.02)  # a step of training
            if seen == most:
                break
        print(steps, "no error")
    except ArgumentError as raised:
        print(steps, raised)
    sys.stdout.flush()

def train(batches, epochs, most=None, set_epoch=True):
    for epoch in epochs:
        if set_epoch:
            batches.set_epoch(epoch)
        for step, batch in enumerate(batches):
            assert batches.state_dict()["epoch"] == epoch
            if step == most:
                break

def at_the_same_time():
    group.barrier()
    time.sleep(0.05)
    group.barrier()

"""


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("same_batches") / "numbers"
    with rankstore.init("solo") as group:
        rankstore.build([{"kind": i % 2, "x": [i] * (1 + i % 5)} for i in range(1200)], path, index=["kind"], group=group).close()
    return path


def told(ranks: Callable[..., Any], world: int, script: str, numbers: Path) -> list[list[str]]:
    with tempfile.TemporaryDirectory() as place:
        return [one.stdout.splitlines() for one in ranks(world, HEAD + script, str(numbers), f"{place}/began", check=False)]


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_in_different_epochs_fail_within_a_few_steps(ranks: Any, numbers: Path, world: int) -> None:
    lines = told(ranks, world, """
batches = loader(plan())
batches.set_epoch(rank)
at_the_same_time()
steps_until_error(batches)
""", numbers)
    for (line,) in lines:
        steps, text = line.split(" ", 1)
        assert int(steps) <= 10, lines  # the machine may be busy
        assert "give all ranks the same epoch, as in loader.set_epoch(epoch)" in text and "reads epoch" in text
    assert len({line.split(" ", 1)[1] for (line,) in lines}) == 1  # the same words


def test_a_later_epoch_counts_too_and_so_does_an_epoch_of_one_step(ranks: Any, numbers: Path) -> None:
    for line, in told(ranks, 2, """
batches = loader(plan())
train(batches, range(2), most=20)
batches.set_epoch(2 if rank else 5)
at_the_same_time()
steps_until_error(batches)
""", numbers):
        assert "reads epoch" in line and int(line.split()[0]) <= 10
    for line, in told(ranks, 2, """
batches = loader(plan(batch_size=600))
assert len(batches) == 1
def epochs():
    for epoch in range(100):
        batches.set_epoch(epoch + rank)
        at_the_same_time()
        yield from batches
steps_until_error(epochs())
""", numbers):
        assert "reads epoch" in line and int(line.split()[0]) <= 10


@pytest.mark.parametrize("call", ["remix({0: 1, 1: 3})", "plan.remix({0: 1, 1: 3}, at=(4, 0))", "plan.skip(0, 150, 160)"])
def test_a_change_on_one_rank_alone_fails_all(ranks: Any, numbers: Path, call: str) -> None:
    """A training step waits for all ranks: so rank 0 hangs in its next one until rank 1 ends."""
    lines = told(ranks, 3, """
batches = loader(plan(strategy="random", mix={0: 1, 1: 1}, mix_by="kind", samples=1200))
def steps():
    for step, batch in enumerate(batches):
        if rank == 1 and step == 10:
            open(sys.argv[2], "w").close()
            batches.CALL
        yield batch
at_the_same_time()
steps_until_error(steps(), since=[sys.argv[2]])
""".replace("CALL", call), numbers)
    assert all("rank 1 (" in line and "without it: call it on all ranks after the same step" in line for line, in lines), lines
    assert len({line.split(" ", 1)[1] for (line,) in lines}) == 1
    assert all(int(line.split()[0]) <= 10 for line, in lines), lines


def test_a_change_before_an_epoch_on_one_rank_alone_fails_all(ranks: Any, numbers: Path) -> None:
    lines = told(ranks, 2, """
batches = loader(plan(strategy="random", mix={0: 1, 1: 1}, mix_by="kind", samples=100))
train(batches, [0])
if rank == 1:
    batches.remix({0: 1})
taken = iter(batches)
next(taken)
time.sleep(5)  # in the step's all-reduce, where it waits for rank 1
steps_until_error(taken)
""", numbers)
    assert any("rank 1 (" in " ".join(line) and "without it" in " ".join(line) for line in lines), lines


QUIET = {
    "a batch is looked at on one rank": """
batches = loader(plan())
if rank == 0:
    next(iter(batches))
    next(iter(loader(batches.plan)))
train(batches, range(3))
if rank == 0:
    next(iter(batches))
train(batches, range(3, 5))
""",
    "many batches are looked at on one rank": """
of = plan()
batches = loader(of)
if rank == 0:
    for epoch in (0, 4):
        other = loader(of)
        train(other, [epoch], most=20)
        batches.set_epoch(epoch)
        print(sum(len(batch) for batch in batches))
    batches.set_epoch(0)
group.barrier()
train(batches, range(4))
""",
    "an evaluation on one rank between epochs": """
batches, evaluated = loader(plan()), plan(batch_size=4)
for epoch in range(6):
    train(batches, [epoch])
    if rank == 0:
        for batch in loader(batches.plan):
            pass
        for batch in loader(evaluated):
            pass
    group.barrier()
""",
    "an evaluation on one rank within epochs": """
batches = loader(plan())
for epoch in range(4):
    batches.set_epoch(epoch)
    for step, batch in enumerate(batches):
        if rank == 1 and step == 30:
            for batch in loader(batches.plan):
                pass
later = loader(batches.plan)
train(later, range(4, 8))
""",
    "a loader an epoch": """
of = plan()
if rank == 0:
    train(loader(of), [0], most=10)
for epoch in range(80):
    batches = loader(of)
    train(batches, [epoch], most=5)
""",
    "two loaders of a plan side by side": """
one, other = loader(plan()), loader(plan())
for epoch in range(4):
    one.set_epoch(epoch)
    other.set_epoch(7 - epoch)
    for first, second in zip(one, other):
        pass
""",
    "ranks that leave an epoch at different steps": """
batches = loader(plan())
for epoch in range(8):
    train(batches, [epoch], most=10 + 7 * rank + epoch)
""",
    "ranks at their own pace": """
batches = loader(plan())
for epoch in range(12):
    train(batches, [epoch])
    time.sleep(0.05 * (rank == epoch % group.world))
""",
    "a state that is loaded, also after a look": """
batches = loader(plan())
if rank == 0:
    for step, batch in zip(range(4), batches):
        pass
of = plan()
state = of.state(3, 7)
batches.load_state_dict(state)
train(batches, [3, 4, 5])
batches.load_state_dict(state)
train(batches, [3], most=20)
fresh = loader(of, start=state)
train(fresh, [3, 4])
""",
    "loops that set no epoch": """
batches = loader(plan())
train(batches, range(4), set_epoch=False)
if rank == 1:
    for batch in batches:
        break
train(batches, range(4, 6), set_epoch=False)
""",
    "a group of its own": """
alone = rankstore.init("solo")
mine = rankstore.open(sys.argv[1], group=alone)
batches = mine.loader(mine.plan(batch_size=2), out="numpy", collate=rankstore.Lists())
train(batches, [rank, rank + 3])
mine.close()
alone.close()
""",
    "a world given by hand": """
for world, me in ((1, 0), (5, rank), (group.world, group.world - 1 - rank)):
    batches = loader(plan(world=world, rank=me))
    train(batches, [rank, 3 - rank], most=20)
""",
    "changes on all ranks": """
batches = loader(plan(strategy="random", mix={0: 1, 1: 1}, mix_by="kind", samples=400))
saved = batches.state_dict()
for epoch in range(4):
    if rank == 0:
        next(iter(loader(batches.plan)))
    if epoch == 2:
        batches.plan.skip(2, 3, 5)
        batches.plan.remix({0: 1, 1: 2}, at=(3, 0))
    batches.set_epoch(epoch)
    for step, batch in enumerate(batches):
        if step == 20:
            time.sleep(0.05 * rank)
            batches.remix({0: 1, 1: 1 + epoch})
        if step == 30 and epoch == 1:
            batches.plan.skip(0, 0, 3)  # long ago
    group.barrier()
""",
    "a change that is refused": """
batches = loader(plan(strategy="random", mix={0: 1, 1: 1}, mix_by="kind", samples=400))
for step, batch in enumerate(batches):
    if step == 10:
        for wrong in ({2: 1}, {0: 1, 1: 2 + rank}):
            try:
                batches.remix(wrong)
                print("taken")
            except ArgumentError:
                pass
""",
    "a loader in a thread": """
import threading
batches, other = loader(plan()), loader(plan(seed=4))
threads = [threading.Thread(target=train, args=(one, range(4))) for one in (batches, other)]
for one in threads:
    one.start()
for one in threads:
    one.join()
""",
}


@pytest.mark.parametrize("habit", QUIET)
@pytest.mark.parametrize("world", [2, 3])
def test_no_error_comes_of(ranks: Any, numbers: Path, habit: str, world: int) -> None:
    lines = ranks(world, HEAD + QUIET[habit] + "\nat_the_same_time()\nbatches = loader(plan(seed=99))\ntrain(batches, range(2))\n"
                  "at_the_same_time()\nprint('done')\n", str(numbers))
    assert all(one.stdout.splitlines()[-1] == "done" and "taken" not in one.stdout for one in lines)
