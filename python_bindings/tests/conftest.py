# SPDX-License-Identifier: Apache-2.0
"""What the tests share: ranks as processes, ports for them, and an outer limit for each test. Limits end what hangs: they
are far above what a slow and busy machine needs."""
from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import hypothesis
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from kept_at_home import built, home, slowed  # noqa: E402, F401 fixtures of the tests of homes
from ports import free_port  # noqa: E402
from stored_tokens import behind_faults, bucket, store_server, stored_home, tokens  # noqa: E402, F401 fixtures of the tests of stores
from warm import Rank, Warm  # noqa: E402

LIMIT_S = 1200


@pytest.fixture(autouse=True)
def outer_limit(request: pytest.FixtureRequest) -> Iterator[None]:
    """End a test that waits too long by SIGALRM, and print where it was."""
    marker = request.node.get_closest_marker("limit")
    seconds = marker.args[0] if marker else LIMIT_S

    def late(number: int, frame: Any) -> None:
        raise TimeoutError(f"the test took more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and so would all children
    config.addinivalue_line("markers", "limit(seconds): the test's own outer limit")
    # The same values in each run, however slow the machine; others by hand: RKS_TEST_ALL=1.
    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile("rankstore", deadline=None, derandomize="RKS_TEST_ALL" not in os.environ, database=None,
                                         suppress_health_check=slow)
    hypothesis.settings.load_profile("rankstore")


class Kept:
    """The processes that fork ranks. Each has run what the one before it ran, and one statement more."""

    def __init__(self) -> None:
        self.chain: list[Warm] = []

    def of(self, statements: Sequence[str]) -> Warm:
        while [one.statement for one in self.chain] != list(statements[:len(self.chain)]):
            self.chain.pop().close()
        for statement in statements[len(self.chain):]:
            self.chain.append(Warm(statement, self.chain[-1] if self.chain else None))
        return self.chain[-1]

    def close(self) -> None:
        while self.chain:
            self.chain.pop().close()


@pytest.fixture(scope="session")
def kept() -> Iterator[Kept]:
    made = Kept()
    yield made
    made.close()


@pytest.fixture
def ranks(tmp_path: Path, kept: Kept) -> Callable[..., list[subprocess.CompletedProcess[str]]]:
    """Runs a script's text as `world` ranks that find each other as torchrun's do; returns what each printed and ended with.
    `warm`: statements that import what the script will, after torch, over which ranks meet; none is run anew by each rank (warm.py),
    unless RKS_TEST_ALL is set. None: each rank imports all."""

    def run(world: int, script: str, *arguments: str, timeout: float = 400, env: dict[str, str] | None = None,
            check: bool = True, warm: Sequence[str] | None = ()) -> list[subprocess.CompletedProcess[str]]:
        path = tmp_path / "script.py"
        path.write_text(script)
        port = free_port()
        running: list[subprocess.Popen[str] | Rank] = []
        for rank in range(world):
            environ = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank),
                       "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                       "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1", "TESTS": str(Path(__file__).parent), **(env or {})}
            if warm is not None and "RKS_TEST_ALL" not in os.environ:
                ready = kept.of(["import numpy, torch.distributed", *warm])
                running.append(ready.start(rank, [str(path), *arguments], environ, str(tmp_path)))
                continue
            running.append(subprocess.Popen([sys.executable, str(path), *arguments], env=environ, text=True, cwd=tmp_path,
                                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL))
        done = []
        try:
            for process in running:
                out, err = process.communicate(timeout=timeout)
                done.append(subprocess.CompletedProcess(process.args, process.returncode, out, err))
        except subprocess.TimeoutExpired:
            pytest.fail(f"after {timeout} s ranks are still there:\n" + "\n".join(
                where_it_is(rank, process) for rank, process in enumerate(running)))
        finally:
            for process in running:
                process.kill()
                process.wait()
        if check:
            for rank, one in enumerate(done):
                assert one.returncode == 0, f"rank {rank} ended with {one.returncode}:\n{one.stdout}\n{one.stderr}"
        return done

    return run


def where_it_is(rank: int, process: subprocess.Popen[str] | Rank) -> str:
    """What each thread of a process waits for, by the kernel and by the interpreter (faulthandler's dump); ends it."""
    if process.poll() is not None:
        out, err = process.communicate(timeout=10)
        return f"rank {rank} has ended with {process.returncode}:\n{out[-2000:]}{err[-8000:]}"
    threads = []
    for task in sorted(Path(f"/proc/{process.pid}/task").iterdir()):
        try:
            name, where, call = ((task / file).read_text().strip() for file in ("comm", "wchan", "syscall"))
            threads.append(f"  thread {task.name} {name}: {where}, {call}")
        except OSError as gone:
            threads.append(f"  thread {task.name}: {gone}")
    process.send_signal(signal.SIGABRT)
    try:
        out, err = process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        out, err = "", "it does not end by SIGABRT"
    return "\n".join([f"rank {rank}, process {process.pid}:", *threads, out[-2000:], err[-8000:]])


def is_listening(port: int) -> bool:
    """Return True if a process of this machine listens there."""
    tables = [Path(name).read_text() for name in ("/proc/net/tcp", "/proc/net/tcp6") if Path(name).exists()]
    return any(row.split()[1].endswith(f":{port:04X}") and row.split()[3] == "0A"
               for table in tables for row in table.splitlines()[1:])


@pytest.fixture
def group() -> Iterator[Any]:
    """Return a core group of one rank."""
    from rankstore import _core
    one = _core.Group(solo=True)
    yield one
    gc.collect()
    one.close()


@pytest.fixture
def ds(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Return an open dataset of the module's COUNT samples (made.py)."""
    import made

    import rankstore
    made.build(tmp_path / "store", request.module.COUNT)
    with rankstore.open(tmp_path / "store") as opened:
        yield opened
    rankstore.current().close()
