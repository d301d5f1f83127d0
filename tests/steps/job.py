# SPDX-License-Identifier: Apache-2.0
"""One process of a step, and what came of the tests so far."""
import dataclasses
import fnmatch
import os
import re
import typing

TEST_DONE = re.compile(rb"^(?:ok |FAIL |skip |\[  (?:     OK|SKIPPED|FAILED) \])", re.M)


@dataclasses.dataclass
class Job:
    step: str
    name: str
    command: list
    read: typing.Callable  # read(job, output, code, totals)
    limit_s: float         # after so long it is killed with all that it started; only ends what hangs
    environment: dict = dataclasses.field(default_factory=dict)
    directory: str = "."
    seconds: float = 5     # how long it takes, unless an earlier run has recorded it
    load: float = 1        # how many cores it keeps busy meanwhile, likewise
    measured: float = None  # the same of its last seconds, while it runs
    apart: frozenset = frozenset()  # jobs that share a word here do not run side by side
    alone: bool = False    # nothing runs beside it
    after: str = ""        # the name of the job of this step that must have succeeded before

    @property
    def key(self):
        return f"{self.step}/{self.name}" if self.name else self.step

    @property
    def log(self):
        return os.path.join("build", "test-logs", re.sub(r"[^\w.-]+", "_", self.key) + ".txt")


class Totals:
    """What passed, failed and was skipped. A skip that tests/skips.txt does not permit counts as a failure."""

    def __init__(self):
        self.passed, self.failed, self.skipped = 0, [], []
        self.permitted = []
        with open("tests/skips.txt", encoding="utf-8") as file:
            for line in file:
                line = line.split("#")[0].strip()
                if line:
                    self.permitted.append(line)

    def skip(self, name, reason):
        if any(fnmatch.fnmatchcase(one, pattern) for pattern in self.permitted for one in (name, f"{name}: {reason}")):
            self.skipped.append(name)
            print(f"  skipped {name}: {reason}")
        else:
            self.failed.append(f"{name} (skipped, and tests/skips.txt does not permit it: {reason})")
