# SPDX-License-Identifier: Apache-2.0
"""Memory of this process and its children, by /proc."""
from __future__ import annotations

import os


def _status(field: str, pid: int) -> int:
    try:
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith(field + ":"):
                    return int(line.split()[1]) * 1024
    except OSError:  # it has ended
        pass
    return 0


def _tree(pid: int) -> list[int]:
    found = [pid]
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                for child in file.read().split():
                    found += _tree(int(child))
    except OSError:
        pass
    return found


def peak_rss() -> int:
    """Bytes: the most that this process and each of its living children had resident, added up. Mapped files count, as far as they were
    touched."""
    return sum(_status("VmHWM", pid) for pid in _tree(os.getpid()))
