# SPDX-License-Identifier: Apache-2.0
"""The nccl exchange from Python: on a machine without a GPU it says why not, and a graph capture is not disturbed. What it does on
a GPU is tried by tests/gpu/run."""
from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import rankstore
from rankstore._distributed import nccl

Run = Callable[..., list[subprocess.CompletedProcess[str]]]


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = str(tmp_path / "store")
    rankstore.build([{"text": "a" * i} for i in range(50)], path, progress=False).close()
    return path


@pytest.mark.skipif(os.path.exists("/dev/nvidiactl"), reason="this machine has a GPU")
def test_without_a_gpu_it_says_why(store: str) -> None:
    with pytest.raises(rankstore.UnsupportedError, match="no CUDA driver|no NCCL"):
        rankstore.open(store, exchange="nccl")
    with rankstore.open(store) as dataset:
        assert dataset.stats()["exchange_why"] == "auto: all ranks share a node"


def test_odd_options_are_named(store: str) -> None:
    with pytest.raises(rankstore.ArgumentError, match="fast"):
        rankstore.open(store, exchange="nccl:fast")


def test_the_package_beside_the_interpreter_is_found() -> None:
    path = nccl.package_library()
    assert path is None or os.path.basename(path) == "libnccl.so.2"
    try:
        import nvidia.nccl  # noqa: F401
    except ImportError:
        assert path is None
    else:
        assert path is not None


# torch.cuda as it is while a graph is captured: there is no GPU here to capture one on.
CAPTURING = """
import contextlib, os, sys, types
torch = types.ModuleType("torch")
mine = os.environ["RANK"] == "1"
current = ["main"]
@contextlib.contextmanager
def stream(name):
    current.append(name)
    yield
    current.pop()
captures = os.environ["CAPTURES"]
torch.cuda = types.SimpleNamespace(is_initialized=lambda: True, is_current_stream_capturing=lambda: mine and current[-1] == captures,
                                   stream=stream, graph=types.SimpleNamespace(default_capture_stream="of captures"))
import rankstore
rankstore.init()
store = os.path.join(os.environ["TESTS"], "..", "no store is looked for")
real, sys.modules["torch"] = sys.modules.get("torch"), torch
try:
    rankstore.open(store, exchange="nccl")
except rankstore.StateError as raised:
    print(raised)
sys.modules["torch"] = real
"""


@pytest.mark.parametrize(("captures", "says"), [("main", "this thread captures a CUDA graph"),
                                                ("of captures", "another thread captures a CUDA graph")])
def test_a_capture_on_one_rank_ends_the_open_on_all(ranks: Run, captures: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAPTURES", captures)
    for one in ranks(2, CAPTURING):
        assert says in one.stdout and "rank 1" in one.stdout, one.stdout + one.stderr


def test_a_gpu_that_failed_before_is_named(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a kernel's assertion torch raises at each call of CUDA."""
    torch = pytest.importorskip("torch")

    def fail() -> bool:
        raise RuntimeError("CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert' ...")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", fail)
    with pytest.raises(rankstore.IOFailedError, match=r"has failed before: CUDA error: device-side assert triggered; restart") as raised:
        rankstore.open(store, exchange="nccl")
    assert "cudaErrorAssert" not in str(raised.value)
