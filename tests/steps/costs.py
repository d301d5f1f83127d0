# SPDX-License-Identifier: Apache-2.0
"""What builds and jobs took when they last succeeded: build/test-durations.json, {key: [seconds, seconds of processor time]}.

The time on the clock depends on what runs beside a job, processor time hardly does: its sum over the cores is the least that a run
can take. It counts all that a job has started and waited for."""
import json
import os
import resource
import typing

from steps.builds import CORES

PATH = os.path.join("build", "test-durations.json")
DEAREST = 30  # jobs that `--costs` lists


class Cost(typing.NamedTuple):
    seconds: float
    processor: float

    @property
    def load(self):
        """How many cores it keeps busy."""
        return round(min(self.processor / max(self.seconds, 0.1), CORES), 2)


def of_children():
    """Seconds of processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def load():
    try:
        with open(PATH, encoding="utf-8") as file:
            return {key: Cost(float(seconds), float(processor)) for key, (seconds, processor) in json.load(file).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def save(recorded):
    os.makedirs(os.path.dirname(PATH), exist_ok=True)
    with open(PATH, "w", encoding="utf-8") as file:
        json.dump(recorded, file, indent=0, sort_keys=True)


def table(recorded, steps):
    """Lines: the builds and `steps` by processor time, then the dearest jobs."""
    sums = {}
    for key, cost in recorded.items():
        step, count, processor = key.split("/")[0], *sums.get(key.split("/")[0], (0, 0.0))
        sums[step] = (count + 1, processor + cost.processor)
    shown = {name: one for name, one in sums.items() if name in steps or name.startswith("build ")}
    total = sum(processor for _, processor in shown.values())
    lines = [f"{processor:8.1f} s  {name}, {count} jobs" if count > 1 else f"{processor:8.1f} s  {name}"
             for name, (count, processor) in sorted(shown.items(), key=lambda one: -one[1][1])]
    jobs = sorted(((cost.processor, key) for key, cost in recorded.items() if "/" in key and key.split("/")[0] in steps), reverse=True)
    return [*lines, f"{total:8.1f} s  of processor time in all; {total / CORES / 60:.1f} minutes on {CORES} cores at least", "",
            *(f"{processor:8.1f} s  {key}" for processor, key in jobs[:DEAREST])]
