# SPDX-License-Identifier: Apache-2.0
"""Whether a finished dataset is what a build would make: from what source, with which options and which code.

The commit writes {"made_from": "RULE:DIGEST"} into dataset.json. `python.json` beside it, written after the commit, records in words what
may differ later: {"dataset": id, "rule": 3, "made_from": digest, "options": {...}}. If it is lost, the next identical build writes it
again. Code is what `code.of` finds, {"map": {"MAX": "400", ...}}, or with version=
nothing of it. Datasets of another rule are not compared: a new build must replace them."""
from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
from typing import Any

from .code import difference as code_difference
from .dataset_json import FILE

RULE = 3


def digest(value: Any) -> str:
    """Return 32 hexadecimal digits for a JSON value."""
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def write(directory: str, dataset: str, made_from: dict[str, Any]) -> None:
    """Write python.json atomically; ranks that share the directory write the same."""
    path = os.path.join(directory, FILE)
    # containers have pids of their own, hence the random part; the next build removes the file if this process has died
    temporary = f"{path}.{secrets.token_hex(8)}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump({"dataset": dataset, "rule": RULE, "made_from": digest(made_from), "options": made_from}, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    _sync(directory)


def note(made_from: dict[str, Any]) -> str:
    """Return what the commit writes into dataset.json."""
    return f"{RULE}:{digest(made_from)}"


def settle(directory: str, there: dict[str, Any], made_from: dict[str, Any]) -> None:
    """Make a finished dataset that is reused durable, and write its python.json if that was lost. On a read-only disk it stays as it is."""
    if there["dataset"] is None:
        return
    with contextlib.suppress(PermissionError):
        _sync(os.path.join(directory, "dataset.json"))
        _sync(directory)
    if there["options"] is None:
        with contextlib.suppress(OSError):
            write(directory, there["dataset"], made_from)


def _sync(path: str) -> None:
    opened = os.open(path or ".", os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EINVAL):
            raise OSError(error.errno, f"in place, but not durable: a power cut may lose it; run again ({error.strerror})",
                          path) from error
    finally:
        os.close(opened)


def difference(before: Any, now: dict[str, Any], made_from: str | None) -> str:
    """Return the first of `options` in a python.json that differs: "map: MAX was 400, is 100".

    made_from: the digest, which is known even if python.json is lost.
    """
    if not isinstance(before, dict):
        return ("nobody wrote down what it was built from" if made_from is None
                else "it was built from another source, or with other options or code")
    for name in ("source", "contents"):
        if before.get(name) != now[name]:
            return "it was built from another source" if name == "source" else "the contents of the source differ"
    for name in sorted(dict.fromkeys([*now, *before]), key=lambda name: name == "code"):  # the code last, which a version stands for
        was, is_now = before.get(name), now.get(name)
        if name == "code":
            for function in dict.fromkeys([*now["code"], *(was or ())]):
                text = _code_difference((was or {}).get(function), now["code"].get(function))
                if text:
                    return f"{function}: {text}"
        elif was != is_now and name != "base":
            return f"{name}: was {json.dumps(was)}, is {json.dumps(is_now)}"
    return "it was built from another source, or with other options or code"


def _code_difference(was: Any, now: Any) -> str:
    if was is None or now is None:
        return "" if was == now else "it was given, and is not" if now is None else "it was not given"
    if not isinstance(was, dict):  # a damaged file
        return "its code differs"
    return code_difference(was, now)
