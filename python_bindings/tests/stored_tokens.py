# SPDX-License-Identifier: Apache-2.0
"""A dataset, its home in a bucket of moto's server, and a proxy before it: fixtures of the tests of object stores."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import stores

SAMPLES, SHARDS, TWICE = 600, 12, 65536


def build(out: Path, first: int, end: int, **more: Any) -> None:
    import rankstore
    rows = ({"i": i, "data": bytes([i % 251]) * (4000 + i % 97 * 50)} for i in range(first, end))
    size = "256KiB" if end - first <= SAMPLES else "16MiB"
    rankstore.build(rows, out, max_shard=size, unit_samples=20, **more).close()


def shard_bytes(home: Path) -> int:
    return sum(path.stat().st_size for path in home.glob("part-*.rks"))


def right(batch: Any) -> bool:
    return all(bytes(data) == bytes([i % 251]) * (4000 + i % 97 * 50) for i, data in zip(batch["i"].tolist(), batch["data"], strict=True))


def epoch(url: str, local: Path, options: dict[str, Any] | None) -> tuple[list[int], int]:
    """Return the ids of an epoch in the order of the plan, and the bytes that came from home."""
    import rankstore
    with rankstore.open(url, local=local, storage_options=options) as ds:
        ids = []
        for batch in ds.loader(ds.plan(batch_size=8, seed=3)):
            ids += batch["i"].tolist()
            assert right(batch)
        return ids, int(ds.stats()["home_bytes"])


@pytest.fixture(scope="module")
def store_server() -> Iterator[str]:
    with stores.moto() as address:
        yield address


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a dataset of SAMPLES samples in SHARDS shards."""
    home = tmp_path_factory.mktemp("built") / "tokens"
    build(home, 0, SAMPLES)
    assert len(list(home.glob("*.rks"))) == SHARDS
    return home


@pytest.fixture
def bucket(store_server: str, tmp_path: Path) -> stores.Store:
    return stores.make_bucket(store_server, "b" + str(abs(hash(str(tmp_path)))))


@pytest.fixture
def stored_home(tokens: Path, bucket: stores.Store) -> stores.Store:
    """Return a bucket with that dataset at "tokens"."""
    import rankstore
    rankstore.publish(tokens, bucket.url("tokens"), storage_options=bucket.options)
    return bucket


@pytest.fixture
def behind_faults(stored_home: stores.Store) -> Iterator[tuple[stores.Store, stores.Proxy]]:
    """Return the same bucket behind a proxy, and the proxy."""
    with stores.proxy(stored_home.address) as between:
        yield stores.Store(between.address, stored_home.bucket), between
