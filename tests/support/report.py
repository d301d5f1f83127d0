# SPDX-License-Identifier: Apache-2.0
"""Test scripts: functions named as sentences, run in order, one line each: "ok NAME", "FAIL NAME: WHY", "skip NAME: WHY"."""
import os
import random
import sys
import traceback

SEED = int(os.environ.get("SEED", "0")) or random.SystemRandom().randrange(1, 2**31)


class Skip(Exception):
    pass


def run_all(tests):
    chosen = sys.argv[2:]
    print(f"SEED={SEED}")
    for test in tests:
        if chosen and test.__name__ not in chosen:
            continue
        try:
            test()
            print(f"ok {test.__name__}", flush=True)
        except Skip as reason:
            print(f"skip {test.__name__}: {reason}", flush=True)
        except Exception as problem:  # a failing test must not end the others
            print(f"FAIL {test.__name__}: {problem!r} (SEED={SEED})")
            traceback.print_exc(file=sys.stdout)
            sys.stdout.flush()
