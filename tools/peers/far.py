# SPDX-License-Identifier: Apache-2.0
"""Jobs of several nodes whose data lie in an object store: which bytes leave it, by a proxy's count.

A node is a process with a cache folder of its own, and a /dev/shm of its own where this user may make one. The store is file_server.py,
behind the proxy of the Python package's tests. Usage, by this module itself: far.py NAME URL CACHE ENDPOINT EPOCHS BATCH
"""
from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NODES, EPOCHS, BATCH = 4, 3, 64
SIZE = 2_000  # bytes of a sample
TESTS = Path(__file__).resolve().parents[2] / "python_bindings" / "tests"
KEY, SECRET, BUCKET = "user", "secret-of-the-race", "race"
LIMIT_S = 500


def samples(count: int) -> Iterator[dict[str, Any]]:
    for i in range(count):
        yield {"i": i, "x": (i.to_bytes(4, "little") * (SIZE // 4))}


# ---- a node --------------------------------------------------------------------------------------

def ours(url: str, cache: str, endpoint: str, epochs: int, copies: int = 1) -> tuple[list[int], bool]:
    import rankstore
    os.environ["RKS_NODE"] = os.environ["RANK"]
    options = {"endpoint": endpoint, "region": "us-east-1", "access_key_id": KEY, "secret_access_key": SECRET}
    seen, right = [], True
    with rankstore.open(url, local=cache, copies=copies, storage_options=options) as ds:
        loader = ds.loader(ds.plan("random", batch_size=BATCH))
        for _ in range(epochs):
            for batch in loader:
                seen += batch["i"].tolist()
                right = right and all(bytes(x[:4]) == i.to_bytes(4, "little") for i, x in zip(batch["i"].tolist(), batch["x"]))
        ds.group.barrier()
    return seen, right


def streaming(url: str, cache: str, endpoint: str, epochs: int) -> tuple[list[int], bool]:
    import torch.distributed
    from stores import Streaming
    Streaming.prepare()
    from streaming import StreamingDataset
    os.environ["S3_ENDPOINT_URL"] = endpoint
    torch.distributed.init_process_group("gloo")
    dataset = StreamingDataset(remote=url, local=cache, shuffle=True, batch_size=BATCH, num_canonical_nodes=NODES)
    seen, right = [], True
    for _ in range(epochs):
        for sample in dataset:
            seen.append(int(sample["i"]))
            right = right and sample["x"][:4] == int(sample["i"]).to_bytes(4, "little")
    torch.distributed.barrier()
    return seen, right


def litdata(url: str, cache: str, endpoint: str, epochs: int) -> tuple[list[int], bool]:
    import torch.distributed
    from litdata import StreamingDataLoader, StreamingDataset
    from litdata.streaming import downloader
    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # it has no option for a store without TLS
    torch.distributed.init_process_group("gloo")
    dataset = StreamingDataset(url, cache_dir=cache, shuffle=True, storage_options={"endpoint_url": endpoint, "region_name": "us-east-1",
                               "aws_access_key_id": KEY, "aws_secret_access_key": SECRET})
    loader = StreamingDataLoader(dataset, batch_size=BATCH, num_workers=0)
    seen, right = [], True
    for _ in range(epochs):
        for batch in loader:
            seen += batch["i"].tolist()
            right = right and all(x[:4] == int(i).to_bytes(4, "little") for i, x in zip(batch["i"].tolist(), batch["x"]))
    torch.distributed.barrier()
    return seen, right


def ours_twice(url: str, cache: str, endpoint: str, epochs: int) -> tuple[list[int], bool]:
    return ours(url, cache, endpoint, epochs, 2)


READERS = {"Rankstore": ours, "Rankstore, 2 copies": ours_twice, "streaming": streaming, "LitData": litdata}


# ---- the job -------------------------------------------------------------------------------------

def write(name: str, count: int, folder: Path) -> None:
    """Write the store's files, as its manual has it, in shards of 64 MB or less, eight at least."""
    shard = max(1 << 20, min(64 << 20, count * SIZE // 8))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if name.startswith("Rankstore"):
        import rankstore
        rankstore.build(samples(count), folder, max_shard=shard, unit_samples=max(1, shard // SIZE), progress=False).close()
    elif name == "streaming":
        from stores import Streaming
        Streaming.prepare()
        from streaming import MDSWriter
        with MDSWriter(out=str(folder), columns={"i": "int", "x": "bytes"}, size_limit=shard) as writer:
            for sample in samples(count):
                writer.write(sample)
    else:
        import litdata
        litdata.optimize(fn=_Made(count), inputs=[0], output_dir=str(folder), chunk_bytes=shard, num_workers=1, mode="overwrite",
                         verbose=False)


class _Made:
    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, _: Any) -> Iterator[dict[str, Any]]:
        yield from samples(self.count)


def own_shm() -> list[str]:
    """Return the words that give a command a /dev/shm of its own; none if this user may not."""
    words = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /dev/shm && exec "$@"', "sh"]
    return words if subprocess.run([*words, "true"], capture_output=True).returncode == 0 else []


class Far:
    """A dataset in a store, and jobs over it. `round` gives the bytes that left the store, over those of the shard files."""

    def __init__(self, place: Any, name: str) -> None:
        import importlib.util
        found = importlib.util.spec_from_file_location("tests_stores", TESTS / "stores.py")
        assert found is not None and found.loader is not None
        self.servers: Any = importlib.util.module_from_spec(found)
        sys.modules["tests_stores"] = self.servers
        found.loader.exec_module(self.servers)
        self.name, self.notes = name, dict[str, Any]()
        self.count = 10_000 if place.quick else 500_000
        self.top = place.folder / ("quick" if place.quick else "full") / f"far-{name.lower().replace(', ', '-').replace(' ', '-')}"
        self.files = self.top / "files"
        if not (self.top / "written").exists():
            write(name, self.count, self.files)
            (self.top / "written").touch()
        self.bytes = sum(path.stat().st_size for path in self.files.iterdir() if path.suffix in (".rks", ".mds", ".bin"))
        self.shm = own_shm()

    def round(self) -> tuple[float, float]:
        with contextlib.ExitStack() as stack:
            port = self.servers.free_port()
            served = [sys.executable, str(Path(__file__).with_name("file_server.py")), str(port), BUCKET, "data/", str(self.files)]
            between = stack.enter_context(self.servers.proxy(stack.enter_context(self.servers.started(served, port))))
            begin = time.monotonic()
            self._job(between, EPOCHS, True)
            first = between.counts()
            self.notes["seconds"] = round(time.monotonic() - begin, 1)
            self._job(between, 1, False)
            again = between.counts()["bytes"] - first["bytes"]
        self.notes["x in a second job"] = round(again / self.bytes, 3)
        self.notes["requests"] = first["requests"]
        return first["bytes"] / self.bytes, first["bytes"]

    def _job(self, between: Any, epochs: int, anew: bool) -> None:
        port = self.servers.free_port()
        job = []
        for node in range(NODES):
            cache = self.top / f"cache{node}"
            if anew:
                shutil.rmtree(cache, ignore_errors=True)
            environ = {**os.environ, "RANK": str(node), "WORLD_SIZE": str(NODES), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1",
                       "NODE_RANK": str(node), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "AWS_ACCESS_KEY_ID": KEY,
                       "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": between.address,
                       "AWS_ALLOW_HTTP": "true"}
            job.append(subprocess.Popen([*self.shm, sys.executable, __file__, self.name, f"s3://{BUCKET}/data", str(cache), between.address,
                                         str(epochs)], env=environ, stdout=subprocess.PIPE))
        seen: list[int] = []
        try:
            for one in job:
                text, _ = one.communicate(timeout=LIMIT_S)
                if one.returncode != 0:
                    raise RuntimeError(f"a node ended with {one.returncode}; see log.txt")
                ids, right = json.loads(text.splitlines()[-1])
                if not right:
                    raise RuntimeError("a node read other samples than were written")
                seen += ids
        finally:
            for one in job:
                one.kill()
        if len(set(seen)) < self.count * 0.99:  # some drop a few at the end, to make ranks equal
            raise RuntimeError(f"{len(set(seen))} of {self.count} samples came")


def main() -> None:
    name, url, cache, endpoint, epochs = sys.argv[1:6]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps(READERS[name](url, cache, endpoint, int(epochs))), file=answers, flush=True)
    answers.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
