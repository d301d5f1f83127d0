# SPDX-License-Identifier: Apache-2.0
"""One tree of exceptions. Catch `RankStoreError` for all of them.

Each kind is also the exception that Python users expect (ValueError, TimeoutError, ...). All have these attributes: `status` ("peer
failed"), `code` (its number in rankstore.h), `rank` (where it happened, -1 if unknown), `host`, `cause` (errno, LMDB or MPI code; 0 if
there is none) and `text` (the line as the failing rank wrote it)."""
from __future__ import annotations

import builtins


class RankStoreError(Exception):
    """A call of Rankstore failed. A collective call raises the same error on every rank."""

    status: str = "error"
    code: int = -7
    rank: int = -1
    cause: int = 0
    host: str = ""
    text: str = ""

    def __init__(self, text: str = "") -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        if not self.text:
            return Exception.__str__(self)
        where = f"rank {self.rank}" if self.rank >= 0 else ""
        if where and self.text.startswith((f"{where}:", f"{where} (")):   # the text already names the rank, as for a lost one
            return self.text
        if where and self.host:
            where += f" ({self.host})"
        return f"{where}: {self.text}" if where else self.text

    def __reduce__(self) -> tuple[object, ...]:
        return (_remake, (type(self), self.code, self.status, self.rank, self.cause, self.host, self.text))


class ArgumentError(RankStoreError, ValueError):
    """An option or argument breaks a rule. The text names it."""


class OutOfMemoryError(RankStoreError, MemoryError):
    """An allocation or a mapping failed."""


class IOFailedError(RankStoreError, OSError):
    """The disk, file system, network or another system resource failed. `cause` is the errno."""


class CorruptError(RankStoreError):
    """Bytes do not match their checksum or format. The text names the file or sample."""


class PeerError(RankStoreError):
    """Another rank failed or went away."""


class TimeoutError(PeerError, builtins.TimeoutError):  # noqa: A001
    """A rank was silent for too long, or a time limit that the user set has passed."""


class StateError(RankStoreError):
    """The call does not fit the current state: a closed object, another plan, a build that already runs."""


class NotFoundError(RankStoreError, LookupError):
    """A file or dataset does not exist. (A missing key is a KeyError.)"""


class DataError(RankStoreError, ValueError):
    """The input cannot be stored: malformed, duplicate or too large."""


class UnsupportedError(RankStoreError):
    """This build, machine or format version lacks a feature."""


class CancelledError(RankStoreError):
    """The wait was interrupted."""


class CallbackError(RankStoreError):
    """A user's function (map, filter, length, key, a loader's collate) or the source raised.

    On the rank where that happened, __cause__ is the exception.

    Attributes: sample (where it happened, "train.jsonl:12" or "sample 17"; empty if unknown), traceback (the text of the traceback there).
    """

    status = "callback failed"
    sample: str = ""
    traceback: str = ""

    def __str__(self) -> str:
        return f"{super().__str__()} ({self.sample})" if self.sample else super().__str__()

    @classmethod
    def of(cls, text: str, rank: int, sample: str, traceback: str) -> CallbackError:
        """Return the error with these attributes."""
        error = cls(text)
        error.text, error.rank, error.sample, error.traceback = text, rank, sample, traceback
        return error

    def __reduce__(self) -> tuple[object, ...]:
        return (CallbackError.of, (self.text, self.rank, self.sample, self.traceback))


_KINDS: dict[int, tuple[str, type[RankStoreError]]] = {
    -1: ("wrong argument", ArgumentError),
    -2: ("out of memory", OutOfMemoryError),
    -3: ("input/output", IOFailedError),
    -4: ("corrupt", CorruptError),
    -5: ("peer failed", PeerError),
    -6: ("timeout", TimeoutError),
    -7: ("wrong state", StateError),
    -8: ("not found", NotFoundError),
    -9: ("bad data", DataError),
    -10: ("unsupported", UnsupportedError),
    -11: ("cancelled", CancelledError),
}


DAMAGED = ("`rankstore verify --full DIR` names all that is damaged; with `--quarantine FILE` it lists the samples, which "
           "open(quarantine=FILE) leaves out")


def _remake(kind: type[RankStoreError], code: int, status: str, rank: int, cause: int, host: str,
            text: str) -> RankStoreError:
    error = kind(text)
    error.code, error.status, error.rank, error.cause, error.host, error.text = code, status, rank, cause, host, text
    return error


def make(status: int, rank: int, cause: int, host: str, text: str) -> RankStoreError:
    """Return the exception for a status of librankstore."""
    name, kind = _KINDS.get(status, ("unknown", RankStoreError))
    error = _remake(kind, status, name, rank, cause, host, text)
    if kind is CorruptError:
        error.add_note(DAMAGED)
    return error


def code_of(error: RankStoreError) -> int:
    """Return the status of librankstore that an exception stands for."""
    return next((code for code, (_, kind) in _KINDS.items() if type(error) is kind), -9)


def name_of(error: RankStoreError) -> str:
    """Return the name of that status ("bad data")."""
    return next((name for name, kind in _KINDS.values() if type(error) is kind), error.status)
