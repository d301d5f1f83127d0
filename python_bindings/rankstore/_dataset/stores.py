# SPDX-License-Identifier: Apache-2.0
"""Homes that are object stores: the program that reaches them, and what it needs to know."""
from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from .. import _core
from .._stores.address import is_url
from ..errors import ArgumentError


@functools.cache
def _set_helper() -> None:
    """Make this interpreter, with this package, the program that reaches stores; not what lies in the working directory."""
    top = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    code = "import sys; sys.path[0] = sys.argv[1]; from rankstore.store_helper import main; main()"
    if sys.executable:
        _core.set_store_helper([sys.executable, "-c", code, top])


def for_store(name: str, options: Mapping[str, Any] | None) -> str | None:
    """Return the options for a home's store as the core takes them. ArgumentError if they are no dict of what JSON has."""
    if is_url(name):
        _set_helper()
    if options is None:
        return None
    if not isinstance(options, Mapping):
        raise ArgumentError(f"storage_options: a dict, such as {{'region': 'eu-west-1'}}, not {type(options).__name__}")
    if not is_url(name):
        raise ArgumentError("storage_options: only for a URL, such as s3://bucket/name")
    try:
        return json.dumps(dict(options))
    except (TypeError, ValueError) as error:
        raise ArgumentError("storage_options: values are str, numbers, bool, None, and lists and dicts of them") from error
