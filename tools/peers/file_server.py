# SPDX-License-Identifier: Apache-2.0
"""Files of a folder as the objects of a bucket, to be read: GET and HEAD with ranges, ETags and conditions, and listings; no signature is
checked. A range costs its bytes alone, however large the file is. Usage: file_server.py PORT BUCKET PREFIX FOLDER
"""
from __future__ import annotations

import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from wsgiref.handlers import format_date_time
from xml.sax.saxutils import escape

PIECE = 1 << 20


class Objects(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    bucket, prefix, folder = "", "", Path()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def begin(self, status: int, size: int, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(size), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def fail(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
        self.begin(status, len(text), Content_Type="application/xml")
        if self.command != "HEAD":
            self.wfile.write(text)

    def tag(self, path: Path) -> str:
        info = path.stat()
        return f'"{info.st_size:x}-{info.st_mtime_ns:x}"'

    def listing(self, prefix: str) -> None:
        entries = "".join(
            f"<Contents><Key>{escape(self.prefix + path.name)}</Key><Size>{path.stat().st_size}</Size>"
            f"<ETag>{escape(self.tag(path))}</ETag><LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for path in sorted(self.folder.iterdir()) if (self.prefix + path.name).startswith(prefix))
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>".encode()
        self.begin(200, len(text), Content_Type="application/xml")
        self.wfile.write(text)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        path = self.folder / key.removeprefix(self.prefix)
        if bucket == self.bucket and not key and self.command == "GET":
            self.listing(parse_qs(url.query).get("prefix", [""])[0])
        elif bucket != self.bucket or not key.startswith(self.prefix) or path.parent != self.folder or not path.is_file():
            self.fail(404, "NoSuchKey")
        elif self.headers.get("If-Match", self.tag(path)) != self.tag(path):
            self.fail(412, "PreconditionFailed")
        else:
            self.send_file(path)

    def send_file(self, path: Path) -> None:
        size = path.stat().st_size
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        first, end = (int(asked[1]), min(int(asked[2]) + 1 if asked[2] else size, size)) if asked else (0, size)
        if asked and first >= size:
            self.fail(416, "InvalidRange")
            return
        more = {"Content_Range": f"bytes {first}-{end - 1}/{size}"} if asked else {}
        self.begin(206 if asked else 200, end - first, ETag=self.tag(path), Last_Modified=format_date_time(path.stat().st_mtime),
                   Accept_Ranges="bytes", **more)
        if self.command == "HEAD":
            return
        with path.open("rb") as file:
            file.seek(first)
            while first < end:
                first += self.wfile.write(file.read(min(PIECE, end - first)))


def main() -> None:
    Objects.bucket, Objects.prefix, Objects.folder = sys.argv[2], sys.argv[3], Path(sys.argv[4])
    ThreadingHTTPServer.request_queue_size = 128
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Objects).serve_forever()


if __name__ == "__main__":
    main()
