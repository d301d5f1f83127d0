# SPDX-License-Identifier: Apache-2.0
"""Lines for people, on stderr."""
from __future__ import annotations

import contextlib
import sys


def say(text: str) -> None:
    """Print a line on stderr. If it is closed, print nothing: a line must not end the work."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(f"rankstore: {text}", file=sys.stderr, flush=True)
