# SPDX-License-Identifier: Apache-2.0
"""Ports for ranks that meet at one. A rank listens only seconds after its port was chosen: until then nobody else may get it."""
from __future__ import annotations

import random
import socket

HELD: list[socket.socket] = []


def free_port(low: int = 10000, high: int = 32000, count: int = 1) -> int:
    """A port that nobody listens on, below those that Linux gives to connections; `count`: the first of so many in a row. Other
    processes that ask here do not get them while this one lives, which holds a name of each."""
    for port in random.sample(range(low, high - count + 1), min(high - low - count + 1, 200)):
        names = [socket.socket(socket.AF_UNIX) for _ in range(count)]
        try:
            for place, name in enumerate(names):
                name.bind(f"\0rankstore-test-port-{port + place}")
                with socket.socket() as probe:
                    probe.bind(("", port + place))
        except OSError:
            for name in names:
                name.close()
            continue
        HELD.extend(names)
        return port
    raise RuntimeError(f"no free port from {low} to {high}")
