# SPDX-License-Identifier: Apache-2.0
"""Groups: launchers written in Python, forked ranks, failures, signals. What may hang runs in a process with a limit."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from made import build_units

from rankstore import _core, errors

LIMIT_S = 400


def run_script(text: str, *arguments: str) -> tuple[int, str, str]:
    """A Python program of its own: exit code, stdout, stderr."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), *arguments], capture_output=True, text=True, timeout=LIMIT_S
    )
    return done.returncode, done.stdout, done.stderr


class Meeting:
    """An all-gather for ranks that are threads of this process: a launcher of one's own."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.records: list[bytes] = [b""] * size
        self.barrier = threading.Barrier(size)

    def seat(self, rank: int) -> Any:
        def allgather(record: bytes, timeout_ms: int) -> Sequence[bytes]:
            self.records[rank] = record
            self.barrier.wait(timeout_ms / 1000)
            all = list(self.records)
            self.barrier.wait(timeout_ms / 1000)
            return all

        return allgather


def run_ranks(size: int, main: Any, **options: Any) -> list[Any]:
    """main(group) on threads that are ranks; what each returned or raised."""
    meeting = Meeting(size)
    ended: list[Any] = [None] * size

    def rank_main(rank: int) -> None:
        try:
            group = _core.Group(rank=rank, size=size, allgather=meeting.seat(rank), **options)
            try:
                ended[rank] = main(group)
            finally:
                group.close()
        except Exception as error:
            ended[rank] = error

    threads = [threading.Thread(target=rank_main, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
        assert not thread.is_alive()
    return ended


# ---- a launcher written in Python -----------------------------------------------------------------


def test_ranks_meet_by_a_launcher_of_their_own() -> None:
    def main(group: _core.Group) -> Any:
        group.agree("begin")
        return group.rank, group.size, group.node, group.nodes, group.allgather("bytes", bytes(group.rank * 3))

    assert run_ranks(3, main) == [(rank, 3, 0, 1, [b"", b"\0" * 3, b"\0" * 6]) for rank in range(3)]


def test_one_rank_s_failure_is_raised_on_all() -> None:
    def main(group: _core.Group) -> None:
        group.agree("work", *((-9, "the seventh row is odd\n") if group.rank == 1 else ()))

    ended = run_ranks(2, main)
    assert all(
        isinstance(one, errors.DataError) and one.rank == 1 and "the seventh row is odd" in one.text for one in ended
    )
    assert ended[0].status == "bad data" and ended[0].host and f"rank 1 ({ended[0].host}): " in str(ended[0])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (lambda record: [record, record, record], "3 records for 2 ranks"),
        (lambda record: [record, b"x"], "1 bytes, not"),
        (lambda record: [record, None], "TypeError"),
        (lambda record: None, "TypeError"),
        (lambda record: 1 // 0, "ZeroDivisionError"),
    ],
)
def test_a_launcher_that_answers_wrongly(answer: Any, text: str) -> None:
    with pytest.raises(errors.PeerError, match=f"allgather: .*{text}") as caught:
        _core.Group(rank=0, size=2, allgather=lambda record, timeout_ms: answer(record))
    assert caught.value.__cause__ is not None and caught.value.__cause__.__class__.__name__ in str(caught.value)


def test_what_the_launcher_sees_ends_a_wait() -> None:
    ends = threading.Event()

    def main(group: _core.Group) -> None:
        if group.rank == 1:
            ends.wait(LIMIT_S)  # never comes to the phase while the other waits
            return
        try:
            group.agree("nobody else comes")
        finally:
            ends.set()

    asked = []

    def check() -> str | None:
        asked.append(1)
        return "rank 1 was seen to end with 137" if len(asked) > 2 else None

    ended = run_ranks(2, main, check=check)
    assert isinstance(ended[0], errors.PeerError) and "seen to end with 137" in str(ended[0])
    assert len(asked) > 2


def test_what_check_raises_is_the_cause() -> None:
    ends = threading.Event()

    def main(group: _core.Group) -> None:
        if group.rank == 1:
            ends.wait(LIMIT_S)
            return
        try:
            group.agree("nobody else comes")
        finally:
            ends.set()

    ended = run_ranks(2, main, check=lambda: 1 // 0)  # type: ignore[arg-type, return-value]
    assert isinstance(ended[0], errors.PeerError) and isinstance(ended[0].__cause__, ZeroDivisionError)


def test_arguments_are_checked() -> None:
    def gather(record: bytes, timeout_ms: int) -> list[bytes]:
        return [record]

    for options in (
        {"rank": 1},
        {"size": 2},
        {"check": lambda: None},
        {"rank": 2, "size": 2, "allgather": gather},
        {"size": 0},
        {"silence_ms": 1},
        {"solo": True, "allgather": gather},
        {"rank": -1, "size": 2, "allgather": gather},
    ):
        with pytest.raises(ValueError):
            _core.Group(**options)  # type: ignore[arg-type]
    for options in ({"allgather": 1}, {"allgather": gather, "check": 1}, {"silence_ms": 0.5}, {"nonsense": 1}):
        with pytest.raises(TypeError):
            _core.Group(**options)  # type: ignore[arg-type]
    with _closing(_core.Group(name="mine", allgather=gather)) as group:
        assert (group.rank, group.size, group.closed) == (0, 1, False)
        with pytest.raises(ValueError, match="status"):
            group.agree("x", 3)


def _closing(group: _core.Group) -> contextlib.closing[_core.Group]:
    return contextlib.closing(group)


def test_a_closed_group_says_so() -> None:
    group = _core.Group(solo=True)
    group.close()
    group.close()
    assert group.closed and group.size == 1
    for call in (
        lambda: group.agree("x"),
        lambda: group.allgather("x", b""),
        lambda: _core.doctor(group, None),
        lambda: _core.Gather(group, "n:int64"),
        lambda: _core.build(group, ["x"], "y"),
    ):
        with pytest.raises(errors.StateError, match="closed"):
            call()


def test_a_group_in_use_is_not_closed(tmp_path: Path) -> None:
    group = _core.Group(solo=True)
    gather = _core.Gather(group, "n:int64")
    with pytest.raises(errors.StateError, match="in use"):
        group.close()
    assert not group.closed
    gather.close()
    group.close()


# ---- launch ------------------------------------------------------------------------------------------


def test_launched_ranks_build_and_gather(tmp_path: Path) -> None:
    def main(group: _core.Group) -> int:
        units = {f"rank {rank}": [[rank * 10 + i] for i in range(10)] for rank in range(2)}
        report = build_units(group, tmp_path / "d", "n:int64", units)
        gather = _core.Gather(group, "n:int64")
        gather.add("r", group.rank, [group.rank])
        got: list[Any] = []
        gather.run(1, lambda *item: got.append(item[:3]))
        gather.close()
        if group.rank == 1:
            (tmp_path / "got").write_text(repr((report["samples"], got)))
        return 0

    assert _core.launch(2, main) == 0
    assert (tmp_path / "got").read_text() == "(20, [(b'r', 0, 0), (b'r', 1, 1)])"
    assert _core.verify(str(tmp_path / "d"), 1) == (20, [])


def test_what_one_rank_s_filter_raises_is_raised_on_all(tmp_path: Path) -> None:
    """Units over two ranks; the filter fails on one row, in the rank that reads it, which alone has the cause."""
    (tmp_path / "in.jsonl").write_text("".join(f'{{"n": {i}, "t": "{"x" * 90}"}}\n' for i in range(1000)))

    def keep(sample: dict[str, Any]) -> bool:
        return bool(1 / (700 - int.from_bytes(sample["n"][0], "little")))

    def main(group: _core.Group) -> int:
        try:
            _core.build(group, [str(tmp_path / "in.jsonl")], str(tmp_path / "d"), filter=keep, unit_size=8192)
        except errors.DataError as error:
            caused = isinstance(error.__cause__, ZeroDivisionError)
            told = "in.jsonl:701: filter: ZeroDivisionError: division by zero" in str(error)
            (tmp_path / f"caught {group.rank}").write_text(
                f"{told} {caused == (error.rank == group.rank)} {error.rank}"
            )
            return 0
        return 1

    assert _core.launch(2, main) == 0
    caught = [(tmp_path / f"caught {rank}").read_text() for rank in range(2)]
    assert caught[0] == caught[1] and caught[0][:-1] == "True True "


def test_a_filter_that_raises_while_another_rank_is_busy_is_no_interrupt(tmp_path: Path) -> None:
    """The rank waits for the other with its own exception at hand; only Ctrl-C ends that wait."""
    (tmp_path / "in.jsonl").write_text("".join(f'{{"n": {i}, "t": "{"x" * 90}"}}\n' for i in range(1000)))

    def keep(sample: dict[str, Any]) -> bool:
        number = int.from_bytes(sample["n"][0], "little")
        if number == 100:  # of the second unit
            (tmp_path / "raised").touch()
            raise ValueError("no luck")
        until = time.monotonic() + (30 if number == 0 else 0)
        while time.monotonic() < until and not (tmp_path / "raised").exists():
            time.sleep(0.01)
        time.sleep(1 if number == 0 else 0)
        return True

    def main(group: _core.Group) -> int:
        try:
            _core.build(group, [str(tmp_path / "in.jsonl")], str(tmp_path / "d"), filter=keep, unit_size=8192)
        except errors.DataError as error:
            (tmp_path / f"caught {group.rank}").write_text(f"{error.rank} {error.__cause__!r}")
        return 0

    assert _core.launch(2, main) == 0
    assert (tmp_path / "caught 0").read_text() == "1 None"
    assert (tmp_path / "caught 1").read_text() == "1 ValueError('no luck')"


def test_exit_codes_of_launched_ranks() -> None:
    def interrupted(group: _core.Group) -> None:
        raise KeyboardInterrupt

    for main, code in (
        (lambda group: None, 0),
        (lambda group: 5 * group.rank, 5),
        (lambda group: sys.exit(7), 7),
        (lambda group: 256, 1),
        (lambda group: sys.exit(), 0),
        (lambda group: "text", 1),
        (interrupted, 130),
    ):
        assert _core.launch(2, main) == code  # type: ignore[arg-type]
    for wrong in ((0, print), (5000, print)):
        with pytest.raises(ValueError):
            _core.launch(*wrong)
    with pytest.raises(TypeError):
        _core.launch(1, 3)  # type: ignore[arg-type]


def test_a_rank_that_raises_is_printed_once_and_named_to_the_others() -> None:
    code, out, err = run_script("""
        import sys, rankstore._core as core
        print("said once")
        def main(group):
            if group.rank == 1:
                try:
                    raise ValueError("row 7")
                except ValueError as error:
                    group.agree("work", -9, str(error))
            try:
                group.agree("work")
            except Exception as error:
                print(f"rank {group.rank} learns: {error}")
                raise
        sys.exit(core.launch(2, main))
    """)
    assert code == 1
    assert out.count("said once") == 1
    assert "rank 0 learns: rank 1" in out and "row 7" in out
    assert err.count("Traceback") == 3 and "rankstore.errors.DataError" in err  # rank 1's has a context


def test_tracebacks_of_ranks_that_fail_together_are_whole() -> None:
    """Eight ranks raise at once; the lines of each traceback stand together."""
    for _ in range(5):
        code, _, err = run_script("""
            import sys, rankstore._core as core
            def main(group):
                group.agree("ready")
                raise KeyError(f"of rank {group.rank}")
            sys.exit(core.launch(8, main))
        """)
        assert code == 1
        told = err.split("Traceback (most recent call last):\n")
        assert told[0] == ""
        frame = '  File "<string>", line 5, in main\n'
        if sys.version_info >= (3, 13):
            frame += '    raise KeyError(f"of rank {group.rank}")\n'
        assert sorted(told[1:]) == [f"{frame}KeyError: 'of rank {rank}'\n" for rank in range(8)]


def test_a_rank_that_is_killed_is_named_to_the_others() -> None:
    code, out, _ = run_script("""
        import os, signal, sys, rankstore._core as core
        def main(group):
            if group.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                group.agree("work")
            except core_error as error:
                print(type(error).__name__, error)
                return 3
        from rankstore.errors import PeerError as core_error
        sys.exit(core.launch(2, main))
    """)
    assert code == 128 + signal.SIGKILL
    assert "PeerError" in out and "rank 1" in out


def test_python_works_in_launched_ranks() -> None:
    """Locks, hooks and threads are as after os.fork(), also where another thread of the parent holds them."""
    code, out, err = run_script("""
        import os, sys, threading, logging, rankstore._core as core
        told = []
        os.register_at_fork(before=lambda: told.append("before"), after_in_child=lambda: told.append("child"),
                            after_in_parent=lambda: told.append("parent"))
        end = threading.Event()
        def busy():
            while not end.is_set():
                sum(range(1000))
        thread = threading.Thread(target=busy)
        thread.start()
        def main(group):
            assert told[-1] == "child" and threading.main_thread() is threading.current_thread(), told
            worker = threading.Thread(target=lambda: logging.warning("rank %d", group.rank))
            worker.start(); worker.join(10)
            pid = os.fork()  # once more, by Python
            if pid == 0:
                os._exit(told.count("child") != 2)
            return os.waitpid(pid, 0)[1]
        for _ in range(10):
            assert core.launch(3, main) == 0
        end.set(); thread.join()
        assert told == ["before", "parent"] * 30, told
        print("done")
    """)
    assert (code, out) == (0, "done\n"), err
    assert err.count("WARNING:root:rank 2") == 10


# ---- signals -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("handler", ["default", "own"])
def test_ctrl_c_ends_a_wait(handler: str) -> None:
    """Rank 0 waits for a rank that does not come before that wait has ended."""
    code, out, err = run_script(
        """
        import os, signal, sys, threading, rankstore._core as core
        class Stop(Exception): ...
        def stop(*_): raise Stop("by signal")
        def main(group):
            if group.rank == 1:
                os.read(end, 1)  # until the other has no more use for it
                return 0
            if sys.argv[1] == "own":
                signal.signal(signal.SIGINT, stop)
            try:
                threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                group.agree("nobody else comes")
            except (KeyboardInterrupt, Stop) as error:
                print(type(error).__name__)
            os.write(ended, b".")
        end, ended = os.pipe()
        sys.exit(core.launch(2, main, silence_ms=60000))
    """,
        handler,
    )
    assert out == ("KeyboardInterrupt\n" if handler == "default" else "Stop\n"), err
    assert code == 0


def test_ctrl_c_ends_long_work(tmp_path: Path) -> None:
    """No wait, but a long loop: many samples as arrays."""
    code, out, err = run_script(
        """
        import os, signal, sys, threading, numpy as np, rankstore._core as core
        group = core.Group(solo=True)
        count = 20_000_000
        columns = [(np.zeros(count, "int64"), None), (b"", np.zeros(count + 1, "int64"))]
        class Input:
            def scan(self, base, generation):
                return [("u", 1)], 0, None
            def read(self, unit, sink):
                try:
                    threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                    sink.add_arrays(columns, count)
                    print("too fast")
                except KeyboardInterrupt:
                    print("interrupted")
        core.build_input(group, Input(), sys.argv[1], schema="n:int64,t:str")
        group.close()
    """,
        str(tmp_path / "d"),
    )
    assert out == "interrupted\n", err
    assert code == 0


def test_a_group_that_is_dropped_is_closed() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        _core.Group(rank=0, size=1, allgather=lambda record, timeout_ms: [record])
    assert len(os.listdir("/proc/self/fd")) <= before


def test_no_reference_to_callbacks_is_kept() -> None:
    def gather(record: bytes, timeout_ms: int) -> list[bytes]:
        return [record]

    def once() -> None:
        with _closing(_core.Group(allgather=gather)) as group:
            for _ in range(5):
                assert group.allgather("x", data) == [data]
        for wrong in ({"silence_ms": 1}, {"check": 1}):
            with pytest.raises((TypeError, ValueError)):
                _core.Group(allgather=gather, **wrong)  # type: ignore[arg-type]

    data = b"some data" * 10
    once()
    before = sys.getrefcount(gather), sys.getrefcount(data)
    for _ in range(10):
        once()
    assert (sys.getrefcount(gather), sys.getrefcount(data)) == before
