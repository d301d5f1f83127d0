# SPDX-License-Identifier: Apache-2.0
"""Ports for ranks that meet at one. A rank listens only seconds after its port was chosen: until then nobody else may get it."""
from __future__ import annotations

import random
import socket

HELD: list[socket.socket] = []


def free_port(low: int = 10000, high: int = 32000) -> int:
    """A port that nobody listens on, below those that Linux gives to connections. Other processes that ask here do not get
    it while this one lives, which holds a name of it."""
    for port in random.sample(range(low, high), min(high - low, 200)):
        name = socket.socket(socket.AF_UNIX)
        try:
            name.bind(f"\0rankstore-test-port-{port}")
            with socket.socket() as probe:
                probe.bind(("", port))
        except OSError:
            name.close()
            continue
        HELD.append(name)
        return port
    raise RuntimeError(f"no free port from {low} to {high}")
