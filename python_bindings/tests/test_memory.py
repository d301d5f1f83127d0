# SPDX-License-Identifier: Apache-2.0
"""What memory is told to be held: by this process, by the ranks of a job, and by torch's allocator."""
from __future__ import annotations

import gc
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path

import made
import pytest

import rankstore
from rankstore._distributed import memory

COUNT = 2000
KINDS = ["index", "index_own", "plan", "staging", "batches", "in_flight", "pinned", "gpu_slots", "gpu_nccl", "resident"]
Ranks = Callable[..., list[subprocess.CompletedProcess[str]]]


def test_what_is_held_is_told_by_kind_and_given_back(tmp_path: Path) -> None:
    made.build(tmp_path / "store", COUNT)
    gc.collect()
    before = memory.of_process()
    assert list(before) == KINDS
    ds = rankstore.open(tmp_path / "store")
    index = ds.stats()["index_bytes_node"]
    assert ds.stats()["memory"]["index"]["current"] - before["index"]["current"] == index
    plan = ds.plan("bucket", max_tokens=512)
    for batch in ds.loader(plan):
        assert len(batch.lengths)
    found = ds.stats()["memory"]
    assert found["plan"]["current"] - before["plan"]["current"] >= 4 * COUNT  # an epoch's ids
    assert found["batches"]["peak"] > before["batches"]["current"]
    assert found["index"]["current"] - before["index"]["current"] >= index + 4 * COUNT  # and the sorted order
    own = found["index_own"]["current"]
    assert ds.keys[5] in ds.keys and ds.stats()["memory"]["index_own"]["current"] - own >= 4 * COUNT  # finds by key
    assert found["resident"]["peak"] >= found["resident"]["current"] > 1 << 20
    ds.close()
    del ds, plan, batch
    gc.collect()
    after = memory.of_process()
    assert {kind: after[kind]["current"] for kind in KINDS[:-1]} == {kind: before[kind]["current"] for kind in KINDS[:-1]}
    rankstore.current().close()


HEAVY = """
import os, rankstore
os.environ["RKS_NODE"] = os.environ["RANK"]  # a node each, so that the index travels
group = rankstore.init()
ds = rankstore.open(FOLDER, exchange="pull")
samples = [ds.store.fetch(range(500))] if group.rank == 1 else []
found = ds.memory()
assert len(found["batches"]["ranks"]) == group.world
assert found["batches"]["current_rank"] == 1 and found["batches"]["ranks"][1]["current"] == found["batches"]["current"]
assert found["batches"]["peak_rank"] == 1 and found["batches"]["least_peak"] < found["batches"]["peak"]
assert found["staging"]["peak"] >= 12 * len(ds)
for _ in range(100):  # a reply is freed when the engine's thread has sent it
    found = found if found["staging"]["current"] == 0 else ds.memory()
assert found["staging"]["current"] == 0
assert found["index"]["peak"] == found["index"]["least_peak"] == ds.stats()["index_bytes_node"]
print("told")
del samples
ds.close()
"""


def test_all_ranks_learn_which_of_them_holds_most(ranks: Ranks, tmp_path: Path) -> None:
    made.build(tmp_path / "store", COUNT)
    rankstore.current().close()
    done = ranks(3, HEAVY.replace("FOLDER", repr(str(tmp_path / "store"))))
    assert [one.stdout.strip() for one in done] == ["told"] * 3, done[0].stderr


def test_without_cuda_nothing_is_said_of_torch(ds: rankstore.Dataset) -> None:
    assert ds.stats()["torch_memory"] is None and memory.of_torch() is None


def test_torch_is_not_imported_for_it(tmp_path: Path) -> None:
    made.build(tmp_path / "store", COUNT)
    rankstore.current().close()
    program = f"import sys, rankstore; ds = rankstore.open({str(tmp_path / 'store')!r}); ds.stats(), ds.memory(); ds.close()\n"
    subprocess.run([sys.executable, "-c", program + "assert 'torch' not in sys.modules"], check=True, timeout=400)


def stand_in(blocks: list[tuple[int, int, str]], allocated: int) -> types.ModuleType:
    """A module with the few functions of torch.cuda that are asked, since there may be no GPU here: it proves the
    arithmetic alone, not that torch answers so."""
    module, cuda = types.ModuleType("torch"), types.ModuleType("torch.cuda")
    cuda.__dict__.update(
        is_initialized=lambda: True, is_current_stream_capturing=lambda: False, current_device=lambda: 1,
        graph=types.SimpleNamespace(),  # nothing was captured
        memory_allocated=lambda device: allocated,
        memory_reserved=lambda device: 1 << 30,
        memory_snapshot=lambda: [{"device": device, "blocks": [{"size": size, "state": state}]}
                                 for device, size, state in blocks])
    module.__dict__["cuda"] = cuda
    return module


def test_torchs_allocator_is_told_before_and_after(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made.build(tmp_path / "store", COUNT)
    blocks = [(0, 900, "inactive"), (1, 300, "active_allocated"), (1, 200, "inactive"), (1, 100, "inactive")]
    monkeypatch.setitem(sys.modules, "torch", stand_in(blocks, 300))
    with rankstore.open(tmp_path / "store") as ds:
        one = {"allocated": 300, "reserved": 1 << 30, "largest_free_block": 200}
        assert ds.stats()["torch_memory"] == {"before": one, "after": one}
        assert ds.select([1, 2]).stats()["torch_memory"] == {"before": one, "after": one}
    monkeypatch.setitem(sys.modules, "torch", stand_in([(1, 300, "active_allocated")], 300))
    found = memory.of_torch()
    assert found is not None and found["largest_free_block"] == 0
    rankstore.current().close()


def test_a_selection_takes_four_bytes_a_sample(tmp_path: Path) -> None:
    import tracemalloc

    import numpy
    count = 100_000
    (tmp_path / "in.txt").write_text("".join(f"{i}\n" for i in range(count)))
    rankstore.build(str(tmp_path / "in.txt"), tmp_path / "many", progress=False).close()
    places = numpy.random.default_rng(5).permutation(count)
    with rankstore.open(tmp_path / "many") as whole:
        assert whole[3] == {"text": "3"}
        tracemalloc.start()
        chosen = whole.select(places)
        values = [chosen[i]["text"] for i in (0, 7, -1)]
        assert chosen.place(int(places[5])) == 5 and chosen.sample_id(9) == places[9]
        del chosen.__dict__["_order"]  # `place` alone makes it: as much again
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert values == [str(places[i]) for i in (0, 7, -1)]
        assert held < 6 * count and peak < 21 * count, (held / count, peak / count)
        assert chosen.ids.dtype == numpy.int64 and (chosen.sorted_ids == numpy.arange(count)).all() and not chosen.has_repeats
        assert [one["text"] for one in chosen.select(numpy.arange(count)[::-1])[:2]] == [str(places[-1]), str(places[-2])]
        with pytest.raises(KeyError):
            chosen.place(-1)
    rankstore.current().close()
