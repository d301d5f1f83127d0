# SPDX-License-Identifier: Apache-2.0
"""A newer version has published what this one cannot read (old and new versions on the page "Home")."""
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import stores

import rankstore

by_format = pytest.importorskip("by_format")

Files = Callable[[], dict[str, bytes]]


class Kept:
    """A home in a directory, or in a bucket."""

    def __init__(self, home: str, options: dict[str, Any], read: Files, write: Callable[[str, bytes], object]) -> None:
        self.home, self.options, self.files, self.write = home, options, read, write


@pytest.fixture(params=["directory", "store"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Kept:
    if request.param == "directory":
        home = tmp_path / "home"

        def replace(name: str, data: bytes) -> None:
            (home / "new").write_bytes(data)
            (home / "new").rename(home / name)

        return Kept(str(home), {}, lambda: {path.name: path.read_bytes() for path in home.iterdir()}, replace)
    obstore = pytest.importorskip("obstore")
    pytest.importorskip("moto")
    bucket: stores.Store = request.getfixturevalue("bucket")
    return Kept(bucket.url("home"), {"storage_options": bucket.options},
                lambda: {name: bucket.read(f"home/{name}") for name in bucket.names("home")},
                lambda name, data: obstore.put(bucket.client(), f"home/{name}", data))


def test_it_is_refused_and_left_alone(kept: Kept, tmp_path: Path) -> None:
    source = tmp_path / "source"
    for first, end in ((0, 10), (10, 15)):
        rankstore.build([{"i": i} for i in range(first, end)], source, append=first > 0, home=kept.home, **kept.options).close()
    with rankstore.open(kept.home, local=tmp_path / "l", **kept.options) as ds:
        text = kept.files()["dataset.json"]
        kept.write("dataset.json", by_format.reframed(text.replace(b'"requires":[', b'"requires":["colours",', 1).replace(b",]", b"]")))
        before = kept.files()
        for call in (lambda: rankstore.open(kept.home, local=tmp_path / "none", **kept.options), ds.refresh,
                     lambda: rankstore.publish(source, kept.home, **kept.options),
                     lambda: rankstore.prune(kept.home, keep=1, **kept.options)):
            with pytest.raises(rankstore.RankStoreError, match='dataset.json: needs the feature "colours", which this build lacks'):
                call()
        assert kept.files() == before
        assert sum(len(batch.ids) for batch in ds.loader(ds.plan(batch_size=2))) == 15  # what is open goes on
    with rankstore.open(kept.home, local=tmp_path / "l", **kept.options) as ds:  # the node has what was opened last
        assert len(ds) == 15
    with rankstore.open(kept.home + "@1", local=tmp_path / "l", **kept.options) as ds:
        assert [sample["i"] for sample in ds] == list(range(10))
