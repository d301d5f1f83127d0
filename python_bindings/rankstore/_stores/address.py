# SPDX-License-Identifier: Apache-2.0
"""Names of places: paths, and URLs of object stores."""
from __future__ import annotations

import re


def is_url(name: str) -> bool:
    """Say whether a name is a URL, file:// too; src/home/address.c decides what it means."""
    return re.match(r"[A-Za-z0-9][A-Za-z0-9+.-]*://", name) is not None


def local_path(name: str) -> str:
    """Return the path of a file:// URL, and any other name as it is."""
    if not name.startswith("file://"):
        return name
    rest = name.removeprefix("file://")
    return rest.removeprefix("localhost") if rest.startswith("localhost/") else rest
