# SPDX-License-Identifier: Apache-2.0
"""Files of an object store by obstore: S3 and what speaks it, Google, Azure, HTTP."""
from __future__ import annotations

import hashlib
import os
import time
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote

from .failures import Failure

ONE_PUT = 64 << 20  # larger files are uploaded in parts, and without a condition
PART = 8 << 20
PARTS_MOST = 9000
CALLED = {"key": "access_key_id", "secret": "secret_access_key", "token": "session_token", "anon": "skip_signature",
          "endpoint_url": "endpoint", "region_name": "region"}  # fsspec's and boto's names of them
NEEDED = {"hf": "huggingface_hub", "s3": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs", "oss": "ossfs",
          "sftp": "paramiko"}  # what fsspec imports for a scheme
Come = Callable[[int, Any], None]


def version_of(meta: Any, with_generation: bool) -> str:
    """Return one word that another content of the file does not have."""
    tag = meta.get("e_tag")
    if not tag:
        tag = f"t{meta['last_modified'].timestamp():.0f}-{meta['size']}" if meta.get("last_modified") else "-"
    if with_generation and meta.get("version"):
        tag = f"{tag}#{meta['version']}"
    if len(tag) > 63 or any(not " " < one < "\x7f" for one in tag):
        tag = "h" + hashlib.sha256(tag.encode()).hexdigest()[:40]
    return str(tag)


class ObjectStore:
    """The files below a URL. All methods raise what obstore raises, or Failure."""

    def __init__(self, url: str, options: dict[str, Any], inputs: bool = False) -> None:
        import obstore
        import obstore.store
        self.obstore: Any = obstore
        from_url: Any = obstore.store.from_url
        scheme, _, rest = url.partition("://")
        self.scheme = {"gcs": "gs", "s3a": "s3", "azure": "az", "abfs": "az", "abfss": "az", "adl": "az"}.get(scheme, scheme)
        url = f"{'gs' if scheme == 'gcs' else scheme}://{rest}"
        called = CALLED if self.scheme == "s3" else {}
        config = {called.get(name, name): value for name, value in options.items()
                  if name not in ("client_options", "retry_config", "client_kwargs")}
        config.update({called.get(name, name): value for name, value in options.get("client_kwargs", {}).items()})
        client: dict[str, Any] = {"connect_timeout": "5s", "timeout": "900s", "user_agent": "rankstore"}
        plain = [str(value) for name, value in [*os.environ.items(), *config.items()] if "endpoint" in name.lower()] + [url]
        if any(one.startswith("http://") for one in plain):
            client["allow_http"] = True
        client.update(options.get("client_options", {}))
        made: dict[str, Any] = {"client_options": client}
        self.has_generations = self.scheme == "gs" and not inputs  # a listing, which is what inputs are compared with, names none
        self.web = self.scheme in ("http", "https")
        if self.web and inputs:  # the options may be those of another source
            from_url = obstore.store.HTTPStore.from_url
        elif not self.web or config:
            made["config"] = config
        self.store = from_url(url, retry_config={"max_retries": 0}, **made)  # the rank makes tries
        backoff = {"init_backoff": timedelta(seconds=0.2), "max_backoff": timedelta(seconds=20), "base": 2}
        self.uploads = from_url(url, retry_config={"max_retries": 8, "backoff": backoff}, **made)  # but for parts of a large file

    def _version(self, meta: Any) -> str:
        tag = meta.get("e_tag")
        if self.scheme == "az" and tag and not tag.startswith(('"', "W/")):  # Azure's listings leave the quotes out
            meta = {**meta, "e_tag": f'"{tag}"'}
        return version_of(meta, self.has_generations)

    def _path(self, name: str) -> str:
        return unquote(name) if self.web else name  # obstore quotes it again

    async def stat(self, name: str) -> tuple[str, int]:
        """Return version and size."""
        meta = await self.obstore.head_async(self.store, self._path(name))
        return self._version(meta), meta["size"]

    async def get(self, name: str, first: int, end: int, version: str, come: Come) -> tuple[int, str, int]:
        """Call `come(place, chunk)` for the bytes of a range that are there. Return their count, version and size."""
        if first == end:
            return 0, *await self.stat(name)
        options: dict[str, Any] = {"range": (first, end)}
        if version.startswith('"'):
            options["if_match"] = version.partition("#")[0]
        try:
            found = await self.obstore.get_async(self.store, self._path(name), options=options)
        except self.obstore.exceptions.GenericError as error:
            if "status code: 416" not in str(error):
                raise
            return 0, *await self.stat(name)
        came, size = 0, found.meta["size"]
        wanted = max(min(end, size) - first, 0)
        async for chunk in found.stream(min_chunk_size=min(1 << 20, max(wanted, 1))):
            if came + len(chunk) > wanted:
                raise Failure("broken", f"more than {wanted} bytes came")
            come(came, chunk)
            came += len(chunk)
        return came, self._version(found.meta), size

    def _must_write(self) -> None:
        if self.web:
            raise Failure("denied", "homes by http are read-only; name the store itself (s3://, gs://, az://)")

    async def put(self, name: str, size: int, rule: str, version: str,
                  parts: AsyncIterator[bytes]) -> tuple[str, int]:
        """Write a file if the rule holds. Return version and size."""
        self._must_write()
        if size <= ONE_PUT:
            whole = b"".join([part async for part in parts])
            mode: Any = "create"
            if rule == "same":
                tag, _, generation = version.partition("#")
                mode = {"e_tag": tag, **({"version": generation} if generation else {})}
            made = await self.obstore.put_async(self.store, name, whole, mode=mode, use_multipart=False)
            return self._version({**made, "size": size}), size
        if rule == "same":
            raise Failure("denied", f"a file of {size} bytes is not replaced on a condition")
        try:
            await self.stat(name)
        except FileNotFoundError:
            chunk = max(PART, -(-size // PARTS_MOST))
            made = await self.obstore.put_async(self.uploads, name, parts, use_multipart=True, chunk_size=chunk, max_concurrency=4)
            return self._version({**made, "size": size}), size
        raise Failure("changed", f"PUT {name}: is there already")

    async def listing(self, prefix: str, each: Callable[[str, int, int, str], None]) -> None:
        """Call `each(name, size, age in seconds, version)` for files whose names begin so."""
        now = datetime.now(UTC)
        async for page in self.obstore.list(self.store, chunk_size=1000):
            for meta in page:
                if meta["path"].startswith(prefix) and "/" not in meta["path"]:
                    age = max(int((now - meta["last_modified"]).total_seconds()), 0)
                    each(meta["path"], meta["size"], age, self._version(meta))

    async def tree(self, prefix: str, each: Callable[[str, int, int, str], None]) -> None:
        """Call `each` as `listing` does, for files in folders below, too. `prefix` ends with a slash, or is empty."""
        if self.web:
            raise Failure("denied", "a web server lists nothing; give the URL of each file, without * or [")
        now = datetime.now(UTC)
        async for page in self.obstore.list(self.store, prefix=prefix or None, chunk_size=1000):
            for meta in page:
                age = max(int((now - meta["last_modified"]).total_seconds()), 0)
                each(meta["path"], meta["size"], age, self._version(meta))

    async def remove(self, name: str, version: str) -> None:
        """Remove a file of that version, or of any ("")."""
        self._must_write()
        if version:
            try:
                there, _ = await self.stat(name)
            except FileNotFoundError:
                return
            if version not in (there, there.partition("#")[0]):
                raise Failure("changed", f"DELETE {name}: was replaced meanwhile")
        await self.obstore.delete_async(self.store, name)


class FileSystem:
    """The same by fsspec, for schemes that obstore does not have. It has no conditions: a look comes first."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        import fsspec
        self.scheme = url.partition("://")[0]
        self.files, self.root = fsspec.core.url_to_fs(url, **options)

    async def _run(self, call: Callable[..., Any], *values: Any, **named: Any) -> Any:
        import asyncio
        return await asyncio.to_thread(call, *values, **named)

    def _path(self, name: str) -> str:
        return f"{self.root.rstrip('/')}/{name}"

    def _version(self, info: dict[str, Any]) -> str:
        names = ("ETag", "etag", "blob_id", "mtime", "LastModified", "last_modified", "created")
        written = next((info[one] for one in names if info.get(one)), "")
        return version_of({"e_tag": "f" + hashlib.sha256(f"{written} {info.get('size')}".encode()).hexdigest()[:32]}, False)

    async def stat(self, name: str) -> tuple[str, int]:
        """Return version and size."""
        info = await self._run(self._info, name)
        return self._version(info), int(info["size"])

    def _info(self, name: str) -> dict[str, Any]:
        self.files.invalidate_cache()
        info: dict[str, Any] = self.files.info(self._path(name))
        if info.get("type") == "directory":
            raise FileNotFoundError(f"{name}: a folder")
        return info

    async def get(self, name: str, first: int, end: int, version: str, come: Come) -> tuple[int, str, int]:
        """Call `come(place, chunk)` for the bytes of a range. Return their count, version and size; the file is looked at twice."""
        before, size = await self.stat(name)
        wanted = max(min(end, size) - first, 0)
        chunk = await self._run(self.files.cat_file, self._path(name), start=first, end=first + wanted) if wanted > 0 else b""
        if len(chunk) > wanted:
            raise Failure("broken", f"more than {wanted} bytes came")
        come(0, chunk)
        after, _ = await self.stat(name)
        if (version or before) != before or before != after:
            raise Failure("changed", f"GET {name}: was replaced meanwhile")
        return len(chunk), before, size

    async def put(self, name: str, size: int, rule: str, version: str, parts: AsyncIterator[bytes]) -> tuple[str, int]:
        """Write a file if the rule holds, as far as a look tells. Return version and size."""
        try:
            there, _ = await self.stat(name)
        except FileNotFoundError:
            there = ""
        if there != ("" if rule == "absent" else version):
            raise Failure("changed", f"PUT {name}: is there already, or was replaced")
        writer = await self._run(self.files.open, self._path(name), "wb")
        try:
            async for part in parts:
                await self._run(writer.write, part)
        except BaseException:
            await self._run(getattr(writer, "discard", writer.close))
            await self._run(self.files.rm_file, self._path(name))
            raise
        await self._run(writer.close)
        return await self.stat(name)

    async def listing(self, prefix: str, each: Callable[[str, int, int, str], None]) -> None:
        """Call `each(name, size, age in seconds, version)` for files whose names begin so."""
        for info in await self._run(self.files.ls, self.root, detail=True):
            name = str(info["name"]).rpartition("/")[2]
            written = info.get("mtime") or info.get("LastModified") or time.time()
            written = written.timestamp() if isinstance(written, datetime) else float(written)
            if info.get("type") == "file" and name.startswith(prefix):
                each(name, int(info["size"]), max(int(time.time() - written), 0), self._version(info))

    async def tree(self, prefix: str, each: Callable[[str, int, int, str], None]) -> None:
        """Call `each` as `listing` does, for files in folders below, too. `prefix` ends with a slash, or is empty."""
        top = self.files._strip_protocol(self.root).rstrip("/") + "/"
        try:
            found = await self._run(self.files.find, self._path(prefix).rstrip("/"), detail=True)
        except FileNotFoundError:
            found = {}
        for path, info in found.items():
            if info.get("type") == "file" and path.startswith(top):
                each(path.removeprefix(top), int(info["size"]), 0, self._version(info))

    async def remove(self, name: str, version: str) -> None:
        """Remove a file of that version, or of any ("")."""
        try:
            there, _ = await self.stat(name)
        except FileNotFoundError:
            return
        if version and there != version:
            raise Failure("changed", f"DELETE {name}: was replaced meanwhile")
        await self._run(self.files.rm_file, self._path(name))


def open_store(url: str, options: dict[str, Any], inputs: bool = False) -> ObjectStore | FileSystem:
    """Open the store of a URL. `options`: those of obstore; or of fsspec, under the name "fsspec", if the scheme is one of its own.
    inputs: no home is meant, but objects to build from; then http is a web server, whatever its name.

    Raises Failure("denied") naming what to install, or the option that is not known.
    """
    scheme = url.partition("://")[0]
    of_obstore = scheme in ("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl", "http", "https") and "fsspec" not in options
    try:
        if of_obstore:
            return ObjectStore(url, options, inputs)
        return FileSystem(url, options.get("fsspec", options))
    except ImportError as error:
        needed = "pip install 'rankstore[store]'" if of_obstore else f"pip install fsspec {NEEDED.get(scheme, '')}".rstrip()
        raise Failure("denied", f"{error}: {needed}") from error
