# SPDX-License-Identifier: Apache-2.0
"""A proxy before an object store that counts, limits and breaks: fault_proxy.py PORT UPSTREAM-PORT.

POST /-proxy/set with a JSON object: rules that hold from then on, of those below; GET /-proxy/counts says what went through.
Rules hold for GETs of *.rks (`where`: another expression for paths), the first `times` of them (0: all), and every `each`-th.
"""
from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sys
import time

USUAL = {"fault": None, "times": 0, "each": 1, "where": r"\.rks$", "method": "GET", "latency_ms": 0, "bytes_per_s": 0,
         "expired_key": ""}
ANSWERS = {"503": ("503 Service Unavailable", "SlowDown"), "429": ("429 Too Many Requests", "TooManyRequests"),
           "403": ("403 Forbidden", "AccessDenied"), "400": ("400 Bad Request", "ExpiredToken"),
           "301": ("301 Moved Permanently", "PermanentRedirect"),
           "500": ("500 Internal Server Error", "InternalError"), "412": ("412 Precondition Failed", "PreconditionFailed")}


class Proxy:
    def __init__(self, upstream: int) -> None:
        self.upstream, self.rules = upstream, dict(USUAL)
        self.seen, self.used, self.free_at = 0, 0, 0.0
        self.counts = {"requests": 0, "bytes": 0, "data_bytes": 0, "faults": 0, "under_way": 0, "most": 0, "unconditional": 0, "gets": 0,
                       "lists": 0}
        self.keys: dict[str, int] = {}  # requests by the key that signed them

    def fault_of(self, method: str, path: str, key: str = "") -> str | None:
        rules = self.rules
        if rules["expired_key"] and key == rules["expired_key"]:
            self.counts["faults"] += 1
            return "400"
        if rules["fault"] is None or method != rules["method"] or not re.search(rules["where"], path):
            return None
        self.seen += 1
        if self.seen % rules["each"] != 0 or (rules["times"] and self.used >= rules["times"]):
            return None
        self.used += 1
        self.counts["faults"] += 1
        return rules["fault"]

    async def link(self, size: int) -> None:
        """Wait until a link of the chosen rate has carried the bytes."""
        rate = self.rules["bytes_per_s"]
        if rate:
            now = time.monotonic()
            self.free_at = max(self.free_at, now) + size / rate
            if self.free_at - now > 0.002:
                await asyncio.sleep(self.free_at - now)

    async def ask(self, head: bytes, body: bytes) -> tuple[bytes, bytes]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.upstream)
        try:
            writer.write(re.sub(rb"\r\nConnection:[^\r]*", b"", head, flags=re.IGNORECASE)[:-2] + b"Connection: close\r\n\r\n" + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            return answer, await reader.read()
        finally:
            writer.close()

    async def own(self, path: str, body: bytes) -> bytes:
        if path.endswith("/set"):
            self.rules, self.seen, self.used = {**USUAL, **json.loads(body)}, 0, 0
        text = json.dumps({**self.counts, "keys": self.keys}).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text)

    def key_of(self, head: bytes) -> str:
        found = re.search(rb"Credential=([^/,]*)/", head)
        return found[1].decode() if found else ""

    async def broken(self, fault: str, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Answer with a fault. Return whether the connection goes on."""
        if fault in ANSWERS:
            status, code = ANSWERS[fault]
            text = f"<Error><Code>{code}</Code><Message>by the proxy</Message></Error>"
            writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode())
            return True
        if fault == "close":
            return False
        if fault == "stall":
            await asyncio.sleep(3600)
        if fault == "307":  # to another address here, which answers
            path = head.split(b" ", 2)[1].decode()
            writer.write(f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {path}?redirected\r\nContent-Length: 0\r\n\r\n".encode())
            return True
        if fault == "200":
            head = re.sub(rb"\r\n[Rr]ange:[^\r]*", b"", head)
        if fault == "conditions":  # they are not kept
            head = re.sub(rb"\r\n[Ii]f-(?:[Nn]one-)?[Mm]atch:[^\r]*", b"", head)
        answer, content = await self.ask(head, body)
        if fault == "etag":
            answer = re.sub(rb'(?i)\r\netag: "[^"]*"', b'\r\nETag: "another"', answer)
        if fault == "cut":
            content = content[:len(content) // 2]
        if fault == "short":  # a length that fits the cut body, and not the range
            content = content[:len(content) // 2]
            answer = re.sub(rb"(?i)\r\ncontent-length: \d+", b"\r\nContent-Length: %d" % len(content), answer)
        if fault == "long":  # more than the range
            content += b"x" * 1000
            answer = re.sub(rb"(?i)\r\ncontent-length: \d+", b"\r\nContent-Length: %d" % len(content), answer)
        if fault == "flip":
            content = content[:-1] + bytes([content[-1] ^ 1])
        writer.write(answer.replace(b"Connection: close\r\n", b"") + content)
        return fault not in ("cut",)

    async def one(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        method, path = head.split(b" ", 2)[0].decode(), head.split(b" ", 2)[1].decode().partition("?")[0]
        if path.startswith("/-proxy/"):
            writer.write(await self.own(path, body))
            return True
        counts = self.counts
        counts["requests"] += 1
        counts["gets"] += method == "GET"
        counts["lists"] += b"list-type=" in head.partition(b"\r\n")[0]
        ranged = b"\r\nrange:" in head.lower()
        counts["unconditional"] += ranged and path.endswith(".rks") and b"\r\nif-match:" not in head.lower()
        counts["under_way"] += 1
        counts["most"] = max(counts["most"], counts["under_way"])
        try:
            await asyncio.sleep(self.rules["latency_ms"] / 1000)
            key = self.key_of(head)
            self.keys[key] = self.keys.get(key, 0) + 1
            fault = None if b"?redirected" in head.partition(b"\r\n")[0] else self.fault_of(method, path, key)
            if fault is not None:
                return await self.broken(fault, head, body, writer)
            answer, content = await self.ask(head, body)
            counts["bytes"] += len(content) if method == "GET" else 0
            counts["data_bytes"] += len(content) if method == "GET" and path.endswith(".rks") else 0
            writer.write(answer.replace(b"Connection: close\r\n", b"").replace(b"connection: close\r\n", b""))
            for at in range(0, len(content), 1 << 16):
                await self.link(len(content[at:at + (1 << 16)]))
                writer.write(content[at:at + (1 << 16)])
                await writer.drain()
            return True
        finally:
            counts["under_way"] -= 1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            goes_on = True
            while goes_on:
                head = await reader.readuntil(b"\r\n\r\n")
                found = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
                body = await reader.readexactly(int(found[1])) if found else b""
                goes_on = await self.one(head, body, writer)
                await writer.drain()
        writer.close()


async def run(kind: type[Proxy]) -> None:
    """Serve at the port of the first argument, before the server at that of the second, until killed."""
    proxy = kind(int(sys.argv[2]))
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", int(sys.argv[1]), limit=1 << 26)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(run(Proxy))
