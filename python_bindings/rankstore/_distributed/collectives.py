# SPDX-License-Identifier: Apache-2.0
"""Agreement: a failure on one rank becomes the same error on all ranks."""
from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import (
    ArgumentError,
    CallbackError,
    CancelledError,
    DataError,
    IOFailedError,
    OutOfMemoryError,
    RankStoreError,
    StateError,
    code_of,
    make,
    name_of,
)
from .group import Group

_TRACE_SIZE = 16384


class Stopped(Exception):
    """Another rank has failed: work() ends early, and that rank's exception is raised."""


def check_others(group: Group) -> None:
    """Raise Stopped if another rank has failed. Long work of one rank calls it now and then (it takes tens of nanoseconds)."""
    if group.core.must_stop():
        raise Stopped


def together(group: Group, phase: str, work: Callable[[], Any]) -> list[Any]:
    """Run work() on every rank and return the results (JSON values) in rank order (collective).

    If it raises on a rank, all ranks raise: that rank its own exception, the others the same kind with its rank and text. If several ranks
    fail, the lowest counts. work() makes no collective calls. If it takes long it calls check_others(), because a rank that fails says so
    at once."""
    failure: BaseException | None = None
    try:
        record = json.dumps({"done": work()})
    except Stopped:
        record = json.dumps({"stopped": True})
    except (Exception, KeyboardInterrupt) as raised:
        failure = raised
        group.core.stop()
        record = json.dumps({"failed": describe(raised, group.rank)})
    records = [json.loads(text) for text in group.allgather(phase, record.encode())]
    failed = next((one["failed"] for one in records if "failed" in one), None)
    if failed is None and any("stopped" in one for one in records):
        raise StateError(f"{phase}: was ended early, but no rank failed")
    if failed is None:
        return [one["done"] for one in records]
    if failure is None:
        raise remake(failed)
    if isinstance(failure, (RankStoreError, KeyboardInterrupt)):
        if isinstance(failure, RankStoreError) and failure.rank < 0:
            failure.status, failure.rank, failure.text = name_of(failure), group.rank, failure.text or str(failure)
        raise failure
    raise remake(describe(failure, group.rank)) from failure


Made = TypeVar("Made")


def on_all(group: Group, phase: str, work: Callable[[], Made]) -> Made:
    """Run work() on this rank and return its result, any object (collective).

    If it raises on one rank, all ranks raise, as by together(). With several ranks a TypeError becomes an ArgumentError on all."""
    if group.world == 1:
        return work()
    made: list[Made] = []

    def tried() -> None:
        try:
            made.append(work())
        except TypeError as wrong:
            raise ArgumentError(str(wrong)) from wrong

    together(group, phase, tried)
    return made[0]


def describe(failure: BaseException, rank: int) -> dict[str, Any]:
    """Return an exception as JSON values, for other processes."""
    trace = "".join(traceback.format_exception(failure))[-_TRACE_SIZE:]
    if isinstance(failure, KeyboardInterrupt):
        return {"kind": "interrupt", "rank": rank,
                "text": "interrupted (Ctrl-C); the same call resumes what is finished"}
    if isinstance(failure, CallbackError):
        return {"kind": "callback", "rank": failure.rank, "text": failure.text, "sample": failure.sample,
                "traceback": failure.traceback}
    if isinstance(failure, RankStoreError):
        return {"kind": "store", "code": code_of(failure), "rank": rank if failure.rank < 0 else failure.rank,
                "cause": failure.cause,
                "host": failure.host, "text": failure.text or str(failure)}
    if isinstance(failure, OSError):
        return {"kind": "store", "code": code_of(IOFailedError()), "rank": rank, "cause": failure.errno or 0,
                "host": "",
                "text": str(failure)}
    if isinstance(failure, (MemoryError, ValueError, TypeError)):
        kind = OutOfMemoryError() if isinstance(failure, MemoryError) else DataError()
        return {"kind": "store", "code": code_of(kind), "rank": rank, "cause": 0, "host": "",
                "text": str(failure) or type(failure).__name__}
    return {"kind": "callback", "rank": rank, "text": f"{type(failure).__name__}: {failure}", "sample": "",
            "traceback": trace}


def remake(failed: dict[str, Any]) -> RankStoreError:
    """Return the exception that another process described."""
    if failed["kind"] == "callback":
        return CallbackError.of(failed["text"], failed["rank"], failed["sample"], failed["traceback"])
    if failed["kind"] == "interrupt":
        cancelled = CancelledError(failed["text"])
        cancelled.status, cancelled.rank, cancelled.text = "cancelled", failed["rank"], failed["text"]
        return cancelled
    return make(failed["code"], failed["rank"], failed["cause"], failed["host"], failed["text"])


def callback_failed(raised: Exception, rank: int, what: str, sample: str) -> CallbackError:
    """Return the CallbackError for an exception that `what` ("map") raised; the caller raises it from that one."""
    trace = "".join(traceback.format_exception(raised))[-_TRACE_SIZE:]
    return CallbackError.of(f"{what} raised {type(raised).__name__}: {raised}", rank, sample, trace)
