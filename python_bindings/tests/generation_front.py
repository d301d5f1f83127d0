# SPDX-License-Identifier: Apache-2.0
"""Google's XML API before moto's S3, which is much the same: objects get generations, and x-goog-if-generation-match is kept.

generation_front.py PORT UPSTREAM-PORT, as fault_proxy.py, whose rules it keeps.
"""
from __future__ import annotations

import asyncio
import re

import fault_proxy

SIGNED = (b"Authorization: AWS4-HMAC-SHA256 Credential=user/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, "
          b"Signature=none\r\n\r\n")  # moto compares none, but wants to see one


class Front(fault_proxy.Proxy):
    def __init__(self, upstream: int) -> None:
        super().__init__(upstream)
        self.generations: dict[str, int] = {}
        self.last = 1000

    async def ask(self, head: bytes, body: bytes) -> tuple[bytes, bytes]:
        method, target = head.split(b" ", 2)[0].decode(), head.split(b" ", 2)[1].decode()
        path, _, query = target.partition("?")
        wanted = re.search(rb"(?i)\r\nx-goog-if-generation-match: *(\d+)", head)
        if wanted and int(wanted[1]) != self.generations.get(path, 0):
            text = b"<Error><Code>PreconditionFailed</Code><Message>by generation</Message></Error>"
            return b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: %d\r\n\r\n" % len(text), text
        head = re.sub(rb"(?i)\r\nauthorization:[^\r]*", b"", head)[:-2] + SIGNED
        writes = path.count("/") > 1 and ((method == "PUT" and not query) or (method == "POST" and "uploadId" in query))
        before = self.generations.get(path)
        if writes:  # now: whoever compares while the store works comes later
            self.last += 1
            self.generations[path] = self.last
        answer, content = await super().ask(head, body)
        if writes and b" 200 " not in answer.partition(b"\r\n")[0]:
            self.generations.pop(path)
            if before:
                self.generations[path] = before
        if method == "DELETE" and not query:
            self.generations.pop(path, None)
        if path in self.generations:
            answer = answer[:-2] + b"x-goog-generation: %d\r\n\r\n" % self.generations[path]
        return answer, content


if __name__ == "__main__":
    asyncio.run(fault_proxy.run(Front))
