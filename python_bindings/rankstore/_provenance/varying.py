# SPDX-License-Identifier: Apache-2.0
"""Values that are others in each run and decide no sample: they are not compared."""
from __future__ import annotations

import datetime
import io
import logging
import os
import random
import socket
import sys
import tempfile
import time
import types
from typing import Any

_KINDS = (logging.Logger, logging.LoggerAdapter, logging.Handler, io.IOBase, socket.socket, types.GeneratorType, random.Random,
          tempfile._TemporaryFileWrapper)
_LIVE = ("rankstore._core", "rankstore._dataset", "rankstore._distributed", "rankstore._loader", "rankstore._plan")  # Group, Dataset, ...
_DAY = 24 * 3600
_CHOSEN = 2**64  # seeds that somebody chose are below; numpy draws those of its own from 128 bits


def varies(name: str, value: Any) -> bool:
    """Return True for a logger, a handle, a generator, an object of Rankstore's, the process's number, and a time of the last day."""
    if isinstance(value, (bool, str, bytes, type)):
        return False
    if isinstance(value, (int, float)):
        return _is_pid(name, value) or _is_recent(value)
    if isinstance(value, datetime.datetime):
        return value.microsecond != 0 and abs((datetime.datetime.now(value.tzinfo) - value).total_seconds()) < _DAY
    return isinstance(value, _KINDS) or str(type(value).__module__).startswith(_LIVE) or _is_unseeded(value)


def _is_pid(name: str, value: float) -> bool:
    return value in (os.getpid(), os.getppid()) and "pid" in name.lower()


def _is_recent(value: float) -> bool:
    """Return True for time.time() or time.time_ns() of the last day: with a fraction of a second, as nobody writes it down."""
    now = time.time()
    if isinstance(value, int):
        return (now - _DAY) * 1e9 < value < (now + 1) * 1e9 and value % 10**6 != 0
    return now - _DAY < value < now + 1 and value != int(value)


def _is_unseeded(value: Any) -> bool:
    """Return True for a generator of numpy's that got no seed, or is of the old kind, which does not tell."""
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, (numpy.random.Generator, numpy.random.BitGenerator, numpy.random.RandomState)):
        return False
    seeds = getattr(getattr(value, "bit_generator", value), "seed_seq", None)
    entropy = getattr(seeds, "entropy", None)
    return not isinstance(entropy, (int, list, tuple)) or isinstance(entropy, int) and entropy >= _CHOSEN
