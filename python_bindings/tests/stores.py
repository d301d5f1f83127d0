# SPDX-License-Identifier: Apache-2.0
"""Object stores of this machine: moto's server, and a proxy before it that counts, slows and breaks."""
from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

KEY, SECRET = "user-of-tests", "hunter2-secret-of-tests"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def started(command: list[str], port: int) -> Iterator[str]:
    """Run a server until the block ends. Yield its address once it answers."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(600):
                with socket.socket() as one:
                    if one.connect_ex(("127.0.0.1", port)) == 0:
                        break
                assert server.poll() is None, "the server has ended"
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
        finally:
            server.kill()


@contextmanager
def moto() -> Iterator[str]:
    port = free_port()
    with started([sys.executable, "-c", "from moto.server import main; main()", "-p", str(port)], port) as address:
        yield address


@dataclass
class Store:
    """A bucket of a server, and how to reach it."""

    address: str
    bucket: str

    @property
    def options(self) -> dict[str, Any]:
        return {"endpoint": self.address, "region": "us-east-1", "access_key_id": KEY, "secret_access_key": SECRET}

    @property
    def environment(self) -> dict[str, str]:
        return {"AWS_ENDPOINT": self.address, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET,
                "AWS_ALLOW_HTTP": "true"}

    def url(self, name: str) -> str:
        return f"s3://{self.bucket}/{name}"

    def client(self) -> Any:
        """Return an obstore store of the whole bucket, without a helper between."""
        from obstore.store import S3Store
        return S3Store(self.bucket, client_options={"allow_http": True}, **self.options)

    def names(self, prefix: str) -> list[str]:
        import obstore
        return sorted(meta["path"].removeprefix(prefix + "/") for page in obstore.list(self.client(), prefix=prefix) for meta in page)

    def read(self, name: str) -> bytes:
        import obstore
        return bytes(obstore.get(self.client(), name).bytes())

    def uploads(self) -> int:
        """Return how many uploads in parts were begun and not ended."""
        with urllib.request.urlopen(f"{self.address}/{self.bucket}?uploads") as answer:  # noqa: S310 moto checks no signature
            return len(re.findall(rb"<Upload>", answer.read()))


def make_bucket(address: str, bucket: str) -> Store:
    request = urllib.request.Request(f"{address}/{bucket}", method="PUT")  # noqa: S310
    urllib.request.urlopen(request).close()  # noqa: S310
    return Store(address, bucket)


class Proxy:
    """A running fault_proxy.py: `set` changes what it does, `counts` says what went through."""

    def __init__(self, address: str) -> None:
        self.address = address

    def _ask(self, path: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(f"{self.address}/-proxy/{path}", data=body, method="GET" if body is None else "POST")  # noqa: S310
        with urllib.request.urlopen(request) as answer:  # noqa: S310
            return json.loads(answer.read())

    def set(self, **rules: Any) -> None:
        self._ask("set", json.dumps(rules).encode())

    def counts(self) -> dict[str, Any]:
        found: dict[str, Any] = self._ask("counts")
        return found


@contextmanager
def proxy(upstream: str) -> Iterator[Proxy]:
    port = free_port()
    program = Path(__file__).with_name("fault_proxy.py")
    with started([sys.executable, str(program), str(port), upstream.rpartition(":")[2]], port) as address:
        yield Proxy(address)


def helpers() -> list[int]:
    """Return this process's helpers."""
    found = []
    for one in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = one.read_text().rpartition(")")[2].split()
            if int(words[1]) == os.getpid() and words[0] not in "ZX" and b"store_helper" in (one.parent / "cmdline").read_bytes():
                found.append(int(one.parent.name))
        except OSError:
            continue
    return found


def without_secrets(text: str | bytes) -> bool:
    return SECRET not in (text if isinstance(text, str) else text.decode("latin-1"))


def everything_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file() and os.path.getsize(path) < 1 << 20)
