# SPDX-License-Identifier: Apache-2.0
"""The helper's process: it reads requests, runs them side by side, and ends with its rank."""
from __future__ import annotations

import asyncio
import json
import mmap
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from .failures import Failure, Secrets, failure_of
from .objects import FileSystem, ObjectStore, open_store

MEMORY = 3  # the descriptor of the slots
TELL_S = 1.0
END_S = 2.0  # for uploads that are ended
TEXT = 500
OBJECT_NAME = 1024  # bytes


class Rank:
    """The other end: its lines, and the memory where files' bytes lie."""

    def __init__(self) -> None:
        self.lines = socket.socket(fileno=os.dup(0))
        os.dup2(2, 1)  # what libraries print is not an answer
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        self.memory = mmap.mmap(MEMORY, 0)
        self.rest = b""

    def say(self, text: str) -> None:
        """Write a line; the rank always reads."""
        self.lines.sendall(text.encode("utf-8", "replace") + b"\n")

    def first_line(self) -> str:
        """Wait for the first line."""
        while b"\n" not in self.rest:
            got = self.lines.recv(1 << 16)
            if not got:
                sys.exit(0)
            self.rest += got
        line, _, self.rest = self.rest.partition(b"\n")
        return line.decode()

    def more_lines(self) -> list[str] | None:
        """Return the lines that have come; None at the end of the input."""
        try:
            got = self.lines.recv(1 << 16, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            return None
        if not got:
            return None
        *lines, self.rest = (self.rest + got).split(b"\n")
        return [line.decode() for line in lines]


class Upload:
    """The parts of a put, as they come from the rank."""

    def __init__(self, rank: Rank, number: str, size: int) -> None:
        self.rank, self.number, self.size = rank, number, size
        self.came: asyncio.Queue[tuple[int, int] | None] = asyncio.Queue()

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the bytes of each part, and free its slot."""
        done = 0
        while done < self.size:
            self.rank.say(f"more {self.number}")
            came = await self.came.get()
            if came is None:
                raise Failure("broken", "the rank has left the upload")  # then what was uploaded of it is removed
            at, size = came
            part = self.rank.memory[at:at + size]
            done += size
            yield part


class Server:
    """Requests under way, by number."""

    def __init__(self, rank: Rank, store: ObjectStore | FileSystem, secrets: Secrets) -> None:
        self.rank, self.store, self.secrets = rank, store, secrets
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.uploads: dict[str, Upload] = {}

    async def get(self, number: str, words: list[str]) -> str:
        at, first, end = (int(word) for word in words[:3])
        version, name = words[3].replace("-", "", 1) if words[3] == "-" else words[3], words[4]
        told = time.monotonic()

        def come(place: int, chunk: Any) -> None:
            nonlocal told
            size = len(chunk)
            self.rank.memory[at + place:at + place + size] = chunk
            if time.monotonic() - told >= TELL_S:
                told = time.monotonic()
                self.rank.say(f"at {number} {place + size}")

        came, now, size = await self.store.get(name, first, end, version, come)
        return f"{came} {now} {size}"

    async def stat(self, number: str, words: list[str]) -> str:
        version, size = await self.store.stat(words[1])
        if words[0] not in ("-", version):
            raise Failure("changed", f"HEAD {words[1]}: was replaced since it was first read")
        return f"0 {version} {size}"

    async def put(self, number: str, words: list[str]) -> str:
        size, rule, version, name = int(words[0]), words[1], words[2], words[3]
        upload = self.uploads[number] = Upload(self.rank, number, size)
        now, size = await self.store.put(name, size, rule, "" if version == "-" else version, upload.parts())
        return f"0 {now} {size}"

    async def listing(self, number: str, words: list[str]) -> str:
        def each(name: str, size: int, age: int, version: str) -> None:
            if name and len(name.encode()) < 256 and name.isprintable():
                self.rank.say(f"item {number} {size} {age} {version} {name}")
        await self.store.listing(words[0] if words else "", each)
        return "0 - 0"

    async def tree(self, number: str, words: list[str]) -> str:
        def each(name: str, size: int, age: int, version: str) -> None:
            if len(name.encode()) > OBJECT_NAME or not name.isprintable():
                raise Failure("denied", f"the name {name[:80]!r} has more than {OBJECT_NAME} bytes, or characters that no line can hold")
            self.rank.say(f"item {number} {size} {age} {version} {name}")
        await self.store.tree(words[0] if words else "", each)
        return "0 - 0"

    async def remove(self, number: str, words: list[str]) -> str:
        await self.store.remove(words[1], "" if words[0] == "-" else words[0])
        return "0 - 0"

    async def run(self, verb: str, number: str, words: list[str]) -> None:
        """Run a request, and answer it."""
        try:
            answer = await (self.listing if verb == "list" else getattr(self, verb))(number, words)
            self.rank.say(f"ok {number} {answer}")
        except asyncio.CancelledError:
            self.rank.say(f"fail {number} broken nobody waits for it")
        except Exception as error:
            failure = failure_of(error, self.store.scheme, self.secrets)
            text = " ".join(str(failure).split())[:TEXT]
            wait = f"={failure.wait_ms}" if failure.wait_ms else ""
            self.rank.say(f"fail {number} {failure.kind}{wait} {text}")
        finally:
            self.tasks.pop(number, None)
            self.uploads.pop(number, None)

    def hear(self, line: str) -> None:
        """Start what a line asks for."""
        words_of = {"get": 6, "stat": 3, "put": 5, "part": 3, "list": 2, "tree": 2, "remove": 3, "drop": 1}  # after the verb
        verb, _, rest = line.partition(" ")
        if verb not in words_of:
            raise ValueError(f"not a request: {line[:80]!r}")
        number, *words = rest.split(" ", words_of[verb] - 1)
        if verb == "part":
            upload = self.uploads.get(number)
            if upload is not None:
                upload.came.put_nowait((int(words[0]), int(words[1])))
        elif verb == "drop":
            if number in self.uploads:
                self.uploads[number].came.put_nowait(None)
            elif number in self.tasks:
                self.tasks[number].cancel()
        else:
            self.tasks[number] = asyncio.get_running_loop().create_task(self.run(verb, number, words))

    async def serve(self, parent: int) -> None:
        """Serve until the input ends, or the parent is another process: the rank is gone, whoever has its end open still."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def readable() -> None:
            lines = self.rank.more_lines()
            for line in lines or []:
                self.hear(line)
            if lines is None:
                loop.remove_reader(self.rank.lines.fileno())
                ended.set()

        rest, self.rank.rest = self.rank.rest, b""
        *lines, self.rank.rest = rest.split(b"\n")
        for line in lines:
            self.hear(line.decode())
        loop.add_reader(self.rank.lines.fileno(), readable)
        while not ended.is_set() and os.getppid() == parent:
            try:
                await asyncio.wait_for(ended.wait(), TELL_S)
            except TimeoutError:
                continue
        under_way = [self.tasks[number] for number in self.uploads if number in self.tasks]
        for upload in self.uploads.values():
            upload.came.put_nowait(None)
        if under_way:
            await asyncio.wait(under_way, timeout=END_S)


def main() -> None:
    """Serve one rank, which has started this process."""
    rank = Rank()
    words = rank.first_line().split(" ", 3)
    if words[:2] != ["home", "1"]:
        rank.say("bad this helper speaks version 1 of its lines; install the helper of this release")
        sys.exit(1)
    given = json.loads(words[3])
    secrets = Secrets(given["options"])
    try:
        store = open_store(given["url"], given["options"], bool(given.get("inputs")))
    except Exception as error:
        failure = failure_of(error, given["url"].partition("://")[0], secrets)
        rank.say("bad " + " ".join(str(failure).split())[:TEXT])
        sys.exit(1)
    rank.say("ready 1")
    try:
        asyncio.run(Server(rank, store, secrets).serve(int(words[2])))
    except (BrokenPipeError, ConnectionResetError):
        pass
    os._exit(0)  # no thread of a library keeps it
