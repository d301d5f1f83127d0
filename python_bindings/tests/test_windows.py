# SPDX-License-Identifier: Apache-2.0
"""Raw token files, and windows over samples that lie one after another."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy
import pytest
from built import launched

import rankstore

COUNT = 5000
TOKENS = (numpy.arange(COUNT) * 7 % 60000).astype(numpy.uint16)


@pytest.fixture
def ds(tmp_path: Path) -> Any:
    TOKENS.tofile(tmp_path / "train.bin")
    with rankstore.build(str(tmp_path / "train.bin"), tmp_path / "store", format="raw", dtype=numpy.uint16) as opened:
        yield opened


def test_windows_stand_in_order(ds: Any) -> None:
    for length, stride in ((64, None), (65, 64), (1024, 1), (3000, 17), (COUNT, None), (1, None)):
        windows = ds.windows(length, stride)
        step = stride or length
        assert len(windows) == (COUNT - length) // step + 1
        places = sorted({0, len(windows) // 2, len(windows) - 1, max(0, len(windows) - 20)})
        wanted = numpy.stack([TOKENS[i * step:i * step + length] for i in places])
        assert windows[places].dtype == numpy.int64 and (windows[places] == wanted).all()
        assert (windows[-1] == wanted[-1]).all()
    with pytest.raises(IndexError, match="window 100 is out of range: there are 100"):
        ds.windows(50)[100]


def test_random_windows_repeat_by_seed_and_epoch(ds: Any) -> None:
    windows, again = ds.windows(100, 10, random=3), ds.windows(100, 10, random=3)
    starts = windows.starts(range(len(windows)))
    assert (starts == again.starts(range(len(windows)))).all() and starts.min() >= 0 and starts.max() <= COUNT - 100
    assert abs(starts.mean() / (COUNT - 100) - 0.5) < 0.06 and len(set(starts.tolist())) > 400
    assert (windows[7] == TOKENS[starts[7]:starts[7] + 100]).all()
    again.set_epoch(1)
    assert (starts != again.starts(range(len(windows)))).any()
    assert (starts != ds.windows(100, 10, random=4).starts(range(len(windows)))).any()


def test_documents_of_any_length_are_one_run(tmp_path: Path) -> None:
    documents = [list(range(i, i + i % 7)) for i in range(200)]
    flat = numpy.concatenate([numpy.array(one, numpy.int64) for one in documents])
    with rankstore.build([{"n": i, "ids": one} for i, one in enumerate(documents)], tmp_path / "store", length="ids") as ds:
        windows = ds.windows(11, 5)
        assert all((windows[i] == flat[5 * i:5 * i + 11]).all() for i in range(len(windows)))


def test_a_dataloader_takes_them(ds: Any) -> None:
    from torch.utils.data import DataLoader
    batches = list(DataLoader(ds.windows(50), batch_size=8, num_workers=1))
    assert [tuple(batch.shape) for batch in batches] == [(8, 50)] * 12 + [(4, 50)]
    assert batches[1][0].tolist() == TOKENS[400:450].tolist()


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_workers_that_persist_draw_the_windows_of_each_epoch(ds: Any, start: str) -> None:
    torch = pytest.importorskip("torch")
    windows, alone = ds.windows(100, 10, random=3), ds.windows(100, 10, random=3)
    loader = torch.utils.data.DataLoader(windows, batch_size=32, num_workers=2, persistent_workers=True,
                                         multiprocessing_context=start)
    for epoch in (0, 1, 7):
        windows.set_epoch(epoch)
        alone.set_epoch(epoch)
        assert (torch.cat(list(loader)).numpy() == alone[range(len(alone))]).all()


def test_ranks_share_an_epoch(tmp_path: Path, ds: Any) -> None:
    main = """
def main(group):
    windows = rankstore.open(OUT).windows(50, random=1)
    for epoch in range(2):
        for batch in windows.batches(6):
            say(epoch, tuple(batch.shape), *windows.starts(range(len(windows)))[:1], int(batch.sum()))
"""
    ds.close()
    lines = launched(3, main, tmp_path / "store")
    assert len(lines) == 2 * 3 * 5 and len(set(lines)) == len(lines)  # 100 windows, 18 a step
    assert sum(line.startswith("0 (6, 50)") for line in lines) == 15


def test_mistakes(tmp_path: Path, ds: Any) -> None:
    for options, says in (({"length": 0}, "windows: length is 0; it must be at least 1"),
                          ({"length": 5, "stride": -1}, "windows: stride is -1"),
                          ({"length": COUNT + 1}, "windows: length is 5001, and the dataset has 5000 items")):
        with pytest.raises(rankstore.ArgumentError, match=says):
            ds.windows(**options)
    with (rankstore.build([{"s": "abc"}], tmp_path / "text") as texts,
          pytest.raises(rankstore.ArgumentError, match="lengths here count s .str.")):
        texts.windows(2)
    with pytest.raises(rankstore.ArgumentError, match="dtype: a raw file does not say what it holds"):
        rankstore.build(str(tmp_path / "train.bin"), tmp_path / "never", format="raw")
    with pytest.raises(rankstore.ArgumentError, match='dtype: only for format="raw"'):
        rankstore.build([{"a": 1}], tmp_path / "never", dtype="uint16")


def test_missing_values_are_passed_over(tmp_path: Path) -> None:
    rows = [{"n": i, "ids": None if i % 3 == 1 else list(range(i, i + 4))} for i in range(30)]
    flat = numpy.array([item for row in rows if row["ids"] is not None for item in row["ids"]])
    with rankstore.build(rows, tmp_path / "store", length="ids", schema="n:int64,ids:int64[*]?") as ds:
        windows = ds.windows(9, 4)
        assert windows.items == len(flat)
        assert all((windows[i] == flat[4 * i:4 * i + 9]).all() for i in range(len(windows)))


def test_batches_that_cannot_be_filled_are_an_error(ds: Any) -> None:
    windows = ds.windows(COUNT // 4)
    assert len(list(windows.batches(4))) == 1
    with pytest.raises(rankstore.ArgumentError, match=r"windows: 4 windows do not fill one step of 1 x 5 \(ranks x batch_size\)"):
        next(windows.batches(5))


def test_arrays_of_places(ds: Any) -> None:
    windows = ds.windows(64)
    for places in (numpy.array([0, 1]), numpy.array([3])):
        assert (windows[places] == windows[places.tolist()]).all()
        assert windows[places].shape == (len(places), 64)
    assert (windows[numpy.int64(2)] == windows[2]).all() and windows[numpy.array(2)].shape == (64,)


@pytest.mark.parametrize("random", [None, 3])
def test_a_loader_gives_what_batches_gives_and_goes_on_from_its_state(ds: Any, random: int | None) -> None:
    wanted = [list(ds.windows(50, random=random).batches(8))]
    again = ds.windows(50, random=random)
    again.set_epoch(1)
    wanted.append(list(again.batches(8)))
    loader = ds.windows(50, random=random).loader(8, prefetch_batches=3)
    assert len(loader) == 12
    for epoch in (0, 1):
        found = list(loader)
        assert len(found) == 12 and all((one == other).all() for one, other in zip(found, wanted[epoch], strict=True))
    assert loader.epoch == 2
    for epoch in (0, 1):
        loader.set_epoch(epoch)
        states = []
        for _ in loader:
            states.append(json.loads(json.dumps(loader.state_dict())))
            if len(states) == 5:
                break
        rest = ds.windows(50, random=random).loader(8, start=states[4])
        rest.set_epoch(rest.epoch)
        assert all((one == other).all() for one, other in zip(rest, wanted[epoch][5:], strict=True)) and rest.epoch == epoch + 1
    loader.set_epoch(1)
    assert (next(iter(loader)) == wanted[1][0]).all(), "a loop that was left begins again"


def test_what_a_loader_of_windows_refuses(ds: Any) -> None:
    loader = ds.windows(50).loader(8)
    state = loader.state_dict()
    first = iter(loader)
    next(first)
    assert next(iter(loader)).shape == (8, 50)
    with pytest.raises(rankstore.StateError, match="ended by another one"):
        next(first)
    for windows, says in ((ds.windows(51), "length was 50, and is 51"), (ds.windows(50, 10), "stride was 50, and is 10"),
                          (ds.windows(50, random=1), "random was None, and is 1"), (ds.select(range(3)).windows(50), "lengths was")):
        with pytest.raises(rankstore.StateError, match=says):
            windows.loader(1, start=state)
    with pytest.raises(rankstore.StateError, match="not a state of a loader of windows"):
        loader.load_state_dict({"epoch": 1})
    for options in ({"batch_size": 0}, {"batch_size": 1, "prefetch_batches": 0}):
        with pytest.raises(rankstore.ArgumentError, match="it must be at least 1"):
            ds.windows(50).loader(**options)
    with pytest.raises(rankstore.ArgumentError, match="do not fill one step of 1 x 101"):
        ds.windows(50).loader(101)


RESUMED = '''
import json, os, sys
import rankstore
epoch, steps, size = (int(one) for one in sys.argv[1:])
with rankstore.open("store") as ds:
    windows = ds.windows(10, random=5 if epoch else None)
    loader = windows.loader(size)
    loader.set_epoch(epoch)
    if os.path.exists("state"):
        loader.load_state_dict(json.load(open("state")))
    ds.group.barrier()
    with open(f"rows.{epoch}.{ds.group.world}.{ds.group.rank}", "w") as file:
        for step, batch in enumerate(loader, 1):
            print(*("-".join(map(str, row)) for row in batch.tolist()), sep="\\n", file=file)
            if step == steps:
                break
    if ds.group.rank == 0:
        json.dump(loader.state_dict(), open("state", "w"))
'''


@pytest.mark.parametrize("epoch", [0, 2])
@pytest.mark.parametrize("before, after", [(2, 3), (3, 1)])
def test_a_loader_of_windows_goes_on_on_other_ranks(ranks: Any, ds: Any, tmp_path: Path, before: int, after: int, epoch: int) -> None:
    ranks(before, RESUMED, str(epoch), "7", "8")
    ranks(after, RESUMED, str(epoch), "-1", "4")
    windows = ds.windows(10, random=5 if epoch else None)
    windows.set_epoch(epoch)
    found = [row for path in tmp_path.glob("rows.*") for row in path.read_text().split()]
    wanted = ["-".join(map(str, row)) for row in windows[:].tolist()]
    assert len(wanted) - len(found) == (len(wanted) - 7 * 8 * before) % (4 * after)
    assert sorted(found) == sorted(wanted[:len(found)])
