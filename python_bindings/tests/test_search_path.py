# SPDX-License-Identifier: Apache-2.0
"""One dataset whose shards lie in several folders, whatever they are called: open("d-*"), shards=, RKS_PATH."""
from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from built import launched

import rankstore

COUNT = 240


@pytest.fixture
def spread(tmp_path: Path) -> Path:
    """A dataset that four ranks built, each in a folder of its own."""
    out = tmp_path / "s"
    launched(4, f"""
def main(group):
    build([{{"i": i, "x": [i] * (i % 7 + 1)}} for i in range({COUNT})], OUT + "/d-{{rank}}", group=group, unit_samples=20).close()
""", out)
    assert [len(list((out / f"d-{rank}").glob("part-*.rks"))) for rank in range(4)] == [1] * 4
    return out


def items(ds: Any) -> list[int]:
    return [int(sample["i"]) for sample in ds]


def test_a_star_is_one_dataset(spread: Path) -> None:
    with rankstore.open(spread / "d-*") as ds:
        assert items(ds) == list(range(COUNT))
        assert [source.directory for source in ds.sources] == [str(spread / "d-0")]
        assert ds.generations == [{"generation": 1, "samples": COUNT, "bytes": ds.nbytes, "id": ds.id}]
    (spread / "d-0" / "dataset.json").unlink()  # its shard counts, and the next folder describes the dataset
    with rankstore.open(spread / "d-*") as ds:
        assert items(ds) == list(range(COUNT))
        assert [source.directory for source in ds.sources] == [str(spread / "d-1")]


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_find_what_was_moved(spread: Path, world: int) -> None:
    """The folders have names that no rank is called by, and one rank has none at all."""
    node = spread / "n0"
    node.mkdir()
    for rank in range(4):
        (spread / f"d-{rank}").rename(node / f"disk{rank}")
    read = launched(world, """
def main(group):
    for given in ({"directory": OUT + "/n{rank}/disk*"}, {"directory": OUT + "/n{rank}/disk0", "shards": [OUT + "/n{rank}/*"]}):
        with rankstore.open(**given, group=group) as ds:
            os.write(1, f"{[int(sample['i']) for sample in ds] == list(range(len(ds)))} {len(ds)}\\n".encode())
""", spread)
    assert read == [f"True {COUNT}"] * 2 * world


def test_shards_of_a_rank_are_read_without_the_network(spread: Path) -> None:
    lines = launched(2, """
def main(group):
    with rankstore.open(OUT + "/d-0", shards=[OUT + "/d-*"], group=group) as ds:
        assert [int(sample["i"]) for sample in ds] == list(range(len(ds)))
        os.write(1, f"{ds.stats()['remote_bytes']}\\n".encode())
""", spread)
    assert lines == ["0", "0"]


def test_the_variable_adds_folders(spread: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(rankstore.NotFoundError, match="3 of 4 shards are on no rank's disk"):
        rankstore.open(spread / "d-0")
    monkeypatch.setenv("RKS_PATH", f"/nowhere/*:{spread}/d-1:{spread}/d-[23]")
    with pytest.raises(rankstore.NotFoundError, match=r"2 of 4 .*; no folder is named /nowhere/\*;"):
        rankstore.open(spread / "d-0")
    monkeypatch.setenv("RKS_PATH", f"{spread}/d-*")
    with rankstore.open(spread / "d-0") as ds:
        assert items(ds) == list(range(COUNT))


def test_partly(spread: Path, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(spread / "d-2")
    with rankstore.open(spread / "d-*", missing="partial") as ds:
        assert "1 of 4 shards missing" in capfd.readouterr().err
        assert 0 < ds.stats()["missing_samples"] < COUNT
    with rankstore.open(spread / "d-1", missing="partial", shards=[spread / "d-3", spread / "d-2"]) as ds:
        assert ds.stats()["missing_shards"] == 2


def test_errors_name_the_pattern(spread: Path) -> None:
    with pytest.raises(rankstore.NotFoundError, match=r"e-\*: no folder has such a name"):
        rankstore.open(spread / "e-*")
    (spread / "empty-1").mkdir()
    with pytest.raises(rankstore.NotFoundError, match=r"empty-\*: no dataset in .*empty-1"):
        rankstore.open(spread / "empty-*")
    rankstore.build([{"i": 1}], spread / "d-7").close()
    with pytest.raises(rankstore.StateError, match=r"d-\*: .*/d-0 has dataset \w{8}, generation 1, and .*/d-7 has dataset \w{8}"):
        rankstore.open(spread / "d-*")
    with rankstore.open(spread / "d-0", shards=[spread / "d-*"]) as ds:  # there, another dataset is left alone
        assert items(ds) == list(range(COUNT))
    for write in (lambda: rankstore.build([{"i": 1}], spread / "d-*"), lambda: rankstore.build([{"i": 1}], spread / "d-*", append=True),
                  lambda: rankstore.prune(spread / "d-*")):
        with pytest.raises(rankstore.ArgumentError, match=r"d-\*: a name with \* stands for several folders"):
            write()
    with pytest.raises(rankstore.ArgumentError, match='shards: a list of folders, such as'):
        rankstore.open(spread / "d-0", shards="/nvme*/rks")


@pytest.mark.parametrize("start", ["fork", "spawn"])
@pytest.mark.parametrize("way", ["star", "shards", "variable"])
def test_workers_find_the_same(spread: Path, monkeypatch: pytest.MonkeyPatch, way: str, start: str) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(spread)  # relative names
    given: dict[str, Any] = {"star": {"directory": "d-*"}, "shards": {"directory": "d-1", "shards": ["d-*"]},
                             "variable": {"directory": "d-1"}}[way]
    if way == "variable":
        monkeypatch.setenv("RKS_PATH", "d-*")
    with rankstore.open(**given) as ds:
        loader = torch.utils.data.DataLoader(ds, batch_sampler=ds.plan(batch_size=8).sampler(), collate_fn=ds.collate, num_workers=2,
                                             multiprocessing_context=start)
        seen = sorted(int(i) for batch in loader for i in batch["i"])
        assert seen == list(range(COUNT))
        before = ds.stats()["samples"]
        assert before == 0, "workers asked the parent for samples that lie in folders which they can read"


def test_a_state_goes_on_when_folders_move(spread: Path) -> None:
    def plan_of(ds: Any) -> Any:
        return ds.loader(ds.plan("random", batch_size=8, seed=3), out="numpy")

    with rankstore.open(spread / "d-*") as ds:
        loader = plan_of(ds)
        batches = iter(loader)
        seen = [i for _ in range(7) for i in next(batches)["i"].tolist()]
        state = loader.state_dict()
        del batches
    (spread / "moved").mkdir()
    for rank in range(4):
        (spread / f"d-{rank}").rename(spread / "moved" / f"{rank}-x")
    with rankstore.open(spread / "moved" / "*-x") as ds:
        loader = plan_of(ds)
        loader.load_state_dict(state)
        assert sorted(seen + [i for batch in loader for i in batch["i"].tolist()]) == list(range(COUNT))


def test_an_append_writes_to_its_directory_alone(spread: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RKS_PATH", f"{spread}/d-*")
    others = {path: path.stat().st_mtime_ns for rank in (0, 2, 3) for path in (spread / f"d-{rank}").iterdir()}
    with rankstore.build([{"i": i, "x": [i]} for i in range(COUNT, COUNT + 10)], spread / "d-1", append=True) as ds:
        assert items(ds) == list(range(COUNT + 10))
    report = rankstore.prune(spread / "d-1", keep=1)
    assert report.generations == 1
    assert others == {path: path.stat().st_mtime_ns for rank in (0, 2, 3) for path in (spread / f"d-{rank}").iterdir()}
    with rankstore.open(spread / "d-1") as ds:
        assert items(ds) == list(range(COUNT + 10))
    monkeypatch.delenv("RKS_PATH")
    with pytest.raises(rankstore.StateError, match=r"generation 1, and .*d-1 has .*generation 2; if one grew .*@1 opens what both have"):
        rankstore.open(spread / "d-*")
    with rankstore.open(spread / "d-1", shards=[spread / "d-*"]) as ds:
        assert items(ds) == list(range(COUNT + 10))


def test_the_same_build_finds_them(spread: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RKS_PATH", f"{spread}/moved-*")
    for rank in (1, 2, 3):
        (spread / f"d-{rank}").rename(spread / f"moved-{rank}")
    before = sorted((spread / "d-0").iterdir())
    with rankstore.build([{"i": i, "x": [i] * (i % 7 + 1)} for i in range(COUNT)], spread / "d-0", unit_samples=20) as ds:
        assert ds.report.kept and items(ds) == list(range(COUNT))
    assert sorted((spread / "d-0").iterdir()) == before  # nothing was built again


def test_several_datasets_and_their_folders(spread: Path) -> None:
    rankstore.build([{"i": COUNT + i, "x": [i]} for i in range(30)], spread / "more").close()
    with rankstore.open([spread / "d-*", spread / "more"], names=["old", "new"]) as ds:
        assert items(ds) == list(range(COUNT + 30))
    with rankstore.open(spread / "d-0", shards=[spread / "d-*"]) as old, rankstore.open(spread / "more") as new, \
            rankstore.concat([old, new]) as ds:
        assert items(ds) == list(range(COUNT + 30))
