# SPDX-License-Identifier: Apache-2.0
"""Worker processes that call a loader's map, for Python code that holds the interpreter's lock.

The loader's threads fetch a batch's samples and send them to an idle process, which sends back what map makes of them. So a batch does not
depend on the number of processes. Messages, both ways: a pickle with the sizes of its large buffers, then these buffers.

No process outlives its loader: `close` ends all of them at once, daemon processes end with the interpreter, and each process looks every
second whether its parent is still there. They ignore Ctrl-C, which a terminal sends to all of them, and leave it to the parent.
"""
from __future__ import annotations

import io
import os
import pickle
import queue
import sys
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import _core
from ..errors import ArgumentError, CallbackError, StateError
from .sample_map import MapFailed, SampleMap

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

_LOOK_SECONDS = 1.0  # how often a process looks for its parent
_END_SECONDS = 5.0  # how long a process may take to end


class _Pickler(pickle.Pickler):
    """Pickles tensors of main memory as arrays: torch's own way copies them twice."""

    def reducer_override(self, value: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or type(value) is not torch.Tensor or value.requires_grad or value.layout is not torch.strided or \
                value.device.type != "cpu" or value.is_complex() or value.is_neg():
            return NotImplemented
        try:
            array = value.numpy()
        except TypeError:  # numpy lacks the type
            return NotImplemented
        return _tensor_of, (array,)


def _tensor_of(array: Any) -> Any:
    import torch
    return torch.from_numpy(array)


def _send(connection: Connection, value: Any) -> None:
    buffers: list[pickle.PickleBuffer] = []
    head = io.BytesIO()
    _Pickler(head, 5, buffer_callback=buffers.append).dump(value)
    views = [buffer.raw() for buffer in buffers]
    connection.send_bytes(pickle.dumps((head.getvalue(), [len(view) for view in views])))
    for view in views:
        connection.send_bytes(view)


def _receive(connection: Connection) -> Any:
    head, sizes = pickle.loads(connection.recv_bytes())
    buffers = []
    for size in sizes:
        buffers.append(bytearray(size))
        connection.recv_bytes_into(buffers[-1])
    return pickle.loads(head, buffers=buffers)


# ---- the worker's side ----------------------------------------------------------------------------------------------

def _end_with_parent(parent: int) -> None:
    wait = threading.Event().wait
    while os.getppid() == parent:
        wait(_LOOK_SECONDS)
    os._exit(1)


def _serve(connection: Connection, parent: int | None, mapped: SampleMap) -> None:
    import signal
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, args=(os.getppid() if parent is None else parent,), daemon=True).start()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    while True:
        try:
            request = _receive(connection)
        except (EOFError, OSError):
            return
        try:
            made: Any = mapped(*request)
        except MapFailed as failed:
            made = failed if _why_not_sent(failed) is None else MapFailed(failed.place, failed.error)
        try:
            _send(connection, made)
        except OSError:
            return
        except Exception:  # whatever the samples' own code raises when they are pickled, before anything was sent
            _send(connection, _not_sent(made))


def _not_sent(made: list[Any]) -> MapFailed:
    place, why = next((place, why) for place, sample in enumerate(made) if (why := _why_not_sent(sample)) is not None)
    return MapFailed(place, CallbackError.of(f"map returned what cannot be pickled ({why}), as processes= needs; use threads=", -1, "", ""))


def _why_not_sent(value: Any) -> Exception | None:
    """Return what pickling the value, or making it again, raises."""
    try:
        pickle.loads(pickle.dumps(value))
    except Exception as refused:
        return refused
    return None


# ---- the loader's side ----------------------------------------------------------------------------------------------

class MapProcesses:
    """Processes that call a SampleMap. Any thread may call it; more threads than processes wait for their turn."""

    def __init__(self, count: int, mapped: SampleMap) -> None:
        import multiprocessing
        if multiprocessing.current_process().daemon:
            raise ArgumentError("processes: this is a worker process itself, and those start no others; leave processes out")
        self._pid = _core.pid()
        self._idle: queue.SimpleQueue[tuple[BaseProcess, Connection] | None] = queue.SimpleQueue()
        self._workers: list[tuple[BaseProcess, Connection]] = []
        self._closed = False
        self._lost: str | None = None  # what ended a process: its calls, and all later ones, fail with it
        try:
            for _ in range(count):
                self._start(multiprocessing.get_context(), mapped)
        except BaseException:
            self.close()
            raise

    def _start(self, context: Any, mapped: SampleMap) -> None:
        ours, theirs = context.Pipe()
        # A forked or spawned process is a child of this one; a fork server's is not.
        parent = None if context.get_start_method() == "forkserver" else os.getpid()
        process = context.Process(target=_serve, args=(theirs, parent, mapped), name="rankstore-map", daemon=True)
        self._workers.append((process, ours))
        try:
            process.start()
        except (pickle.PicklingError, AttributeError, TypeError) as refused:
            raise ArgumentError(f"map: processes of the start method {context.get_start_method()!r} need functions of a module, which can "
                                f"be pickled ({refused}); use threads=") from refused
        finally:
            theirs.close()
        self._idle.put((process, ours))

    def __call__(self, samples: Sequence[Any], ids: Sequence[int], epoch: int) -> list[Any]:
        """Return the samples, changed. MapFailed if a function or a process failed, StateError after close()."""
        worker = self._idle.get()
        if worker is None:
            self._idle.put(None)
            if self._lost is not None and not self._closed:
                raise MapFailed(-1, CallbackError.of(self._lost, -1, "", ""))
            raise StateError("loader: the iteration has ended")
        process, connection = worker
        try:
            _send(connection, (samples, ids, epoch))
            made = _receive(connection)
        except (EOFError, OSError):
            if self._closed:
                raise StateError("loader: the iteration has ended") from None
            process.join(_END_SECONDS)
            text = self._lost = f"map: worker process {process.pid} ended with exit code {process.exitcode}"
            self._idle.put(None)  # wakes who waits for a process: none comes in place of this one
            raise MapFailed(-1, CallbackError.of(text, -1, "", "")) from None
        self._idle.put(worker)
        if isinstance(made, MapFailed):
            raise made
        found: list[Any] = made
        return found

    def close(self) -> None:
        """End all processes, also in the middle of a sample. May be called twice."""
        if self._closed or _core.pid() != self._pid:
            return
        self._closed = True
        self._idle.put(None)
        for process, _ in self._workers:
            if process.pid is not None:
                process.terminate()
        for process, connection in self._workers:
            if process.pid is not None:
                process.join(_END_SECONDS)
                if process.exitcode is None:
                    process.kill()
                    process.join()
            connection.close()
