# SPDX-License-Identifier: Apache-2.0
"""One contestant of a row, in a process of its own: prepares, says so, and runs a round each time it is told to.

Usage: contestant.py ROW NAME FOLDER QUICK. Lines on standard input: "round" or "end"; on standard output JSON, a line each.
"""
from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import measures
import stores
from memory import peak_rss
from rows import ROWS
from workload import Place


def main() -> None:
    row, name, folder, quick = sys.argv[1:5]
    answers = os.fdopen(os.dup(1), "w")  # libraries print: what they say goes to standard error
    os.dup2(2, 1)

    def say(**line: Any) -> None:
        print(json.dumps(line), file=answers, flush=True)

    try:
        measure = getattr(measures, ROWS[row].measure)(Place(Path(folder), quick == "1"), name, *ROWS[row].arguments)
        say(ready=True)
        for order in sys.stdin:
            if order.strip() != "round":
                break
            seconds, work = measure.round()
            say(seconds=seconds, work=work, peak_rss=peak_rss(), notes=measure.notes)
    except Exception as failed:  # the run goes on without this one, and says why
        import traceback
        traceback.print_exc()
        say(error=f"{type(failed).__name__}: {failed}"[:300])
    answers.flush()
    stores.end()
    os._exit(0)  # some keep threads and semaphores that hold an exit up


if __name__ == "__main__":
    main()
