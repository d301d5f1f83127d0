# SPDX-License-Identifier: Apache-2.0
"""Ranks that need not import torch or a trainer anew: a process that has imported it forks them.

A rank is an interpreter as any other from there on: its own `__main__`, arguments, environment, directory, files and exit. What
would be the same in all forks of one process is not: ranks take turns between two of them, which hash strings differently, and
numpy's own generator is seeded anew. Rankstore itself is imported by each rank.

As a program: warm.py SOCKET STATEMENT, where SOCKET is a descriptor of SOCK_SEQPACKET. A request is JSON. For a rank it comes with the
descriptors of its standard output and error and of a pipe that gets its exit code. For a further process, which runs one more statement
and then forks ranks itself, it comes with the socket that this one serves."""
from __future__ import annotations

import array
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

LARGEST = 1 << 17
# One thread: libraries start no others, pyarrow's allocator neither.
ALONE = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "JE_ARROW_MALLOC_CONF": "background_thread:false"}


class Warm:
    """Two processes that have run `statement` and fork ranks; both are forks of `base`'s if there is one."""

    def __init__(self, statement: str, base: Warm | None = None) -> None:
        self.statement = statement
        self._sockets: list[socket.socket] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        for place, seed in enumerate((11, 22)):
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            for end in (ours, theirs):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * LARGEST)
            if base is not None:
                base._ask(place, {"statement": statement}, [theirs.fileno()])
            else:
                environ = {**os.environ, "PYTHONHASHSEED": str(seed), **ALONE}
                self._processes.append(subprocess.Popen(
                    [sys.executable, __file__, str(theirs.fileno()), statement], env=environ, pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
            theirs.close()
            self._sockets.append(ours)

    def _ask(self, place: int, request: dict[str, Any], descriptors: list[int]) -> int:
        """The id of the process that one of the two has forked."""
        try:
            socket.send_fds(self._sockets[place], [json.dumps(request).encode()], descriptors)
            answer = self._sockets[place].recv(64)
        except ConnectionError:
            answer = b""
        if not answer:
            raise RuntimeError(f"the process that runs {self.statement!r} has ended; its standard error says why")
        return int(answer)

    def start(self, rank: int, arguments: Sequence[str], environ: Mapping[str, str], directory: str) -> Rank:
        made = Rank(arguments)
        try:
            made.pid = self._ask(rank % 2, {"arguments": list(arguments), "environ": dict(environ), "directory": directory},
                                 made.their_ends)
        finally:
            for end in made.their_ends:
                os.close(end)
        return made

    def close(self) -> None:
        for end in self._sockets:
            end.close()
        for process in self._processes:
            process.wait()


class Rank:
    """What the tests use of subprocess.Popen."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.args, self.pid, self.returncode = list(arguments), 0, None
        pipes = [os.pipe() for _ in range(3)]
        self.their_ends = [theirs for _, theirs in pipes]
        self._ours = [ours for ours, _ in pipes]
        self._read = [b"", b"", b""]  # output, error, exit code

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        until = None if timeout is None else time.monotonic() + timeout
        with selectors.DefaultSelector() as waiting:
            for place, end in enumerate(self._ours):
                if end >= 0:
                    waiting.register(end, selectors.EVENT_READ, place)
            while waiting.get_map():
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise subprocess.TimeoutExpired(self.args, timeout or 0)
                for key, _ in waiting.select(left):
                    got = os.read(key.fd, 1 << 16)
                    self._read[key.data] += got
                    if not got:
                        waiting.unregister(key.fd)
                        os.close(key.fd)
                        self._ours[key.data] = -1
        self.returncode = int(self._read[2] or b"-9")
        return self._read[0].decode(), self._read[1].decode()

    def poll(self) -> int | None:
        try:
            self.communicate(0.01)
        except subprocess.TimeoutExpired:
            pass
        return self.returncode

    def send_signal(self, number: int) -> None:
        """The forking process is its parent and waits for it only once it has told its exit code, so the id is still its own."""
        if self.returncode is None and not self._read[2]:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self) -> int | None:
        self.communicate(60)
        return self.returncode


# ---- the process that forks ---------------------------------------------------------------------


def receive(end: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    descriptors = array.array("i")
    body, more, _, _ = end.recvmsg(LARGEST, socket.CMSG_SPACE(3 * descriptors.itemsize))
    for _, _, data in more:
        descriptors.frombytes(data[:len(data) - len(data) % descriptors.itemsize])
    return (json.loads(body), list(descriptors)) if body else None


def become(request: dict[str, Any], ends: Sequence[int]) -> str:
    """In the child: descriptors, environment and arguments of the rank; returns its script's path."""
    os.dup2(ends[0], 1)
    os.dup2(ends[1], 2)
    os.closerange(3, 1 << 12)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environ"])
    sys.argv = request["arguments"]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if os.environ.get("PYTHONFAULTHANDLER"):
        import faulthandler
        faulthandler.enable()
    return str(sys.argv[0])


def tell_end(pid: int, to: int | None) -> None:
    """The exit code is told first: until the child is waited for, its id is nobody else's."""
    state = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert state is not None
    if to is not None:
        code = state.si_status if state.si_code == os.CLD_EXITED else -state.si_status
        os.write(to, str(code).encode())
        os.close(to)
    os.waitpid(pid, 0)


def serve(end: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Forks a child for each request and returns the request there. None: there are no more."""
    codes: dict[int, tuple[int, int | None]] = {}  # the child's pidfd: its id, and where its exit code goes
    with selectors.DefaultSelector() as waiting:
        waiting.register(end, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fd in codes:
                    waiting.unregister(key.fd)
                    tell_end(*codes.pop(key.fd))
                    os.close(key.fd)
                    continue
                asked = receive(end)
                if asked is None:
                    return None
                if len(os.listdir("/proc/self/task")) != 1:
                    raise SystemExit("a module that was imported has started a thread: it cannot be forked")
                pid = os.fork()
                if pid == 0:
                    return asked
                end.send(str(pid).encode())
                ends = asked[1]
                to = ends.pop() if len(ends) == 3 else None
                for other in ends:
                    os.close(other)
                watched = os.pidfd_open(pid)
                codes[watched] = (pid, to)
                waiting.register(watched, selectors.EVENT_READ)


def go_on(end: socket.socket, statement: str) -> str | None:
    """Runs the statement and serves; what is asked of a child that is such a process, too, that child does. In a rank: its script."""
    while True:
        exec(statement, {})
        gc.collect()
        gc.freeze()  # a rank's collections leave these objects' pages to all
        asked = serve(end)
        if asked is None:
            return None
        request, ends = asked
        end.detach()
        if "statement" not in request:
            return become(request, ends)
        os.closerange(3, ends[0])
        os.closerange(ends[0] + 1, 1 << 12)
        end, statement = socket.socket(fileno=ends[0]), request["statement"]


if __name__ == "__main__":
    _path = go_on(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
    if _path is not None:  # a rank: its script runs as if the interpreter had just begun
        with open(_path, encoding="utf-8") as _file:
            _code = compile(_file.read(), _path, "exec", dont_inherit=True)
        for _name in [name for name in globals() if not (name.startswith("__") or name == "_code")]:
            del globals()[_name]
        __file__ = _code.co_filename
        globals().pop("annotations", None)
        exec(_code, globals())
