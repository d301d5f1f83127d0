# SPDX-License-Identifier: Apache-2.0
"""What a newcomer gets wrong: an error at once, which says what to do."""
from __future__ import annotations

import io
import re
import sys
import tarfile
import warnings
from pathlib import Path
from typing import Any

import numpy
import pytest

import rankstore
from rankstore import Pad


@pytest.fixture
def dataset(tmp_path: Path) -> Any:
    rows = [{"x": numpy.full(500, i, numpy.int32), "key": f"k{i}" * (60 if i == 43 else 1)} for i in range(100)]
    with rankstore.build(rows, tmp_path / "store", key="key") as opened:
        yield opened


@pytest.mark.parametrize("plan", [None, 5, "bucket"])
def test_a_loader_wants_a_plan(dataset: Any, plan: Any) -> None:
    with pytest.raises(TypeError, match=f"plan: a Plan, as Dataset.plan makes it, not {type(plan).__name__}"):
        dataset.loader(plan)


def test_a_device_that_is_not_there(dataset: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    plan = dataset.plan("random", batch_size=10)
    for device in (f"cuda:{there}", torch.device("cuda", there + 1), *(["cuda"] if there == 0 else [])):
        with pytest.raises(rankstore.ArgumentError, match=f"device: .*torch sees {there} CUDA devices"):
            dataset.loader(plan, device=device)
    with pytest.raises(rankstore.ArgumentError, match="device: 'gpu'"):
        dataset.loader(plan, device="gpu")
    assert next(iter(dataset.loader(plan, collate=Pad(), device="cpu")))["x"].device.type == "cpu"


def test_a_state_names_the_option_that_differs(dataset: Any) -> None:
    made = dataset.plan("bucket", batch_size=10, max_length=600, seed=3)
    state = made.state(0, 4)
    for options, says in (({"batch_size": 20, "max_length": 600, "seed": 3}, "batch_size is 10 in the state, 20 in this plan"),
                          ({"batch_size": 10, "seed": 3}, "max_length is 600 in the state, not given in this plan"),
                          ({"batch_size": 10, "max_length": 600, "seed": 3, "tail": "repeat"},
                           "tail is not given in the state, repeat in this plan"),
                          ({"batch_size": 10, "max_length": 600}, 'seed differs: "3" in the state, "0" in this plan')):
        with pytest.raises(rankstore.StateError, match=says):
            dataset.plan("bucket", **options).resume(state)
    assert made.resume(state) == (0, 4)


@pytest.mark.parametrize("bad, says",
                         [(None, "not a state of Rankstore"), ({}, "not a state of Rankstore"), ({"version": 1, "plan": "x"}, "not JSON"),
                                       ({"version": 1, "plan": "{}"}, "format: missing"), ({"version": 9, "plan": "{}"}, "not a state")])
def test_what_is_no_state(dataset: Any, bad: Any, says: str) -> None:
    loader = dataset.loader(dataset.plan("random", batch_size=10))
    with pytest.raises(rankstore.StateError, match=says):
        loader.load_state_dict(bad)
    assert sum(len(batch.lengths) for batch in loader) == 100  # it is as it was


def test_damage_names_sample_file_and_what_to_do(dataset: Any, tmp_path: Path) -> None:
    part = next((tmp_path / "store").glob("*.rks"))
    data = part.read_bytes()
    with open(part, "r+b") as file:
        for i in (42, 43):
            file.seek(data.index(numpy.full(500, i, numpy.int32).tobytes()) + 100)
            file.write(b"\xff")
    plan = dataset.plan("sequential", batch_size=10)
    for look in (lambda: dataset[42], lambda: dataset.view(42), lambda: list(dataset.loader(plan)),
                 lambda: list(dataset.loader(plan, collate=Pad()))):
        with pytest.raises(rankstore.CorruptError) as raised:
            look()
        assert str(raised.value) == f"sample 42 (key k42 in {part.name}): row 42: wrong checksum"
        assert "rankstore verify --full DIR" in raised.value.__notes__[0] and "quarantine" in raised.value.__notes__[0]
    with pytest.raises(rankstore.CorruptError) as raised:
        dataset[43]
    assert f"(key {'k43' * 60}"[:25] in str(raised.value) and f"... in {part.name})" in str(raised.value)


def test_a_filter_that_drops_everything(tmp_path: Path) -> None:
    rows = [{"x": 1}, {"x": 2}]
    with pytest.warns(UserWarning, match="none: no sample was kept: 2 were filtered out, 0 were bad"):
        rankstore.build(rows, tmp_path / "none", filter=lambda sample: False, schema="x:int64").close()
    (tmp_path / "b.jsonl").write_text('{"x": 1}\n{"x": 2}\n')
    for name, source, options, says in (
            ("unknown", rows, {"filter": lambda sample: False}, "filter dropped all 2 samples"),
            ("stream", iter(rows), {"map": lambda sample: None},
             r"map dropped all 2 samples \(None drops a sample: does map return one\?\)"),
            ("file", tmp_path / "b.jsonl", {"map": dict, "filter": lambda sample: False}, "map and filter dropped all 2 samples"),
            ("bad", rows, {"map": lambda sample: None if sample["x"] == 1 else sample["y"], "skip_bad": True},
             r"map dropped all 1 samples but 1 bad ones \(None drops a sample: does map return one\?\)"),
            ("nothing", iter([]), {}, "the source is empty")):
        with pytest.raises(rankstore.DataError, match=f"no sample to infer a schema from: {says}; give schema="):
            rankstore.build(source, tmp_path / name, **options)
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    with pytest.warns(UserWarning, match="files: no sample was kept: 2 were filtered out"):
        rankstore.build(tmp_path / "a.txt", tmp_path / "files", filter=lambda sample: False).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rankstore.build(rows, tmp_path / "some", filter=lambda sample: sample["x"] == 1).close()


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("")
    (tmp_path / "b.jsonl").write_text("\n\n")
    for source, says in ((tmp_path / "a.jsonl", "a.jsonl: empty"), (tmp_path / "*.jsonl", "a.jsonl and 1 more: empty")):
        with pytest.raises(rankstore.DataError, match=f"{says}: no row to infer a schema from"):
            rankstore.build(source, tmp_path / "out")


def test_a_bad_file_of_arrow_is_named(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet
    table = pyarrow.table({"x": list(range(5000)), "t": [f"text {i}" for i in range(5000)]})
    parquet.write_table(table, tmp_path / "good.parquet")
    whole = bytearray((tmp_path / "good.parquet").read_bytes())
    whole[100:4000] = b"\xee" * 3900
    for name, data in (("none.parquet", b""), ("short.parquet", b"PAR1"), ("text.parquet", b"no parquet at all" * 9),
                       ("pages.parquet", bytes(whole)), ("none.arrow", b""), ("text.arrow", b"no arrow at all" * 9)):
        (tmp_path / name).write_bytes(data)
        for source in (tmp_path / name, [tmp_path / "good.parquet", tmp_path / name]):
            with pytest.raises(rankstore.DataError, match=f"{name}: "):
                rankstore.build(source, tmp_path / "out", replace=True)


@pytest.mark.parametrize("index", ["score", b"x", 3])
def test_an_index_is_a_list_of_names(tmp_path: Path, index: object) -> None:
    with pytest.raises(rankstore.ArgumentError, match="index: a list of columns' names or None"):
        rankstore.build([{"score": 1}], tmp_path / "out", index=index)  # type: ignore[arg-type]
    rankstore.build([{"score": 1}], tmp_path / "none", index=None).close()


def test_sizes_are_texts_too(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(f'{{"x": {i}}}\n' for i in range(20_000)))
    sizes = {"unit_size": "64KiB", "max_sample": "1 MB", "max_total": "1GiB"}
    with rankstore.build(tmp_path / "a.jsonl", tmp_path / "out", **sizes) as ds:  # type: ignore[arg-type]
        assert ds.report.units > 1
    numbers = {"unit_size": 65536, "max_sample": 1_000_000, "max_total": 1 << 30}
    rankstore.build(tmp_path / "a.jsonl", tmp_path / "out", **numbers).close()  # type: ignore[arg-type]  # the same build
    with rankstore.open(tmp_path / "out", inflight_bytes="16MiB") as ds:
        assert ds[19_999]["x"] == 19_999
    for name in sizes:
        for wrong in (0, -1, "0", "many", 2**64, 1.5, True):
            with pytest.raises(rankstore.ArgumentError, match=f"{name}: "):
                rankstore.build(tmp_path / "a.jsonl", tmp_path / "wrong", **{name: wrong})  # type: ignore[arg-type]
    for wrong in (0, -1, "0", "many", 2**64, 1.5):
        with pytest.raises(rankstore.ArgumentError, match=r"inflight_bytes: .*(from 1 byte to 2\^64 - 1|512MiB)"):
            rankstore.open(tmp_path / "out", inflight_bytes=wrong)  # type: ignore[arg-type]


def test_an_epoch_that_is_none_is_refused_at_once(dataset: rankstore.Dataset) -> None:
    plan = dataset.plan(batch_size=8)
    loader, sampler = dataset.loader(plan), plan.sampler()
    for one in (loader, sampler, dataset):
        with pytest.raises(rankstore.ArgumentError, match="epoch: -1; it must be 0 to"):
            one.set_epoch(-1)
    assert len(list(loader)) == plan.steps


def test_what_a_dataloader_is_given(dataset: rankstore.Dataset) -> None:
    from torch.utils.data import DataLoader
    plan = dataset.plan(batch_size=8)
    for loader, says in (
            (DataLoader(dataset, sampler=plan.sampler()),  # type: ignore[arg-type]
             "DataLoader(sampler=plan.sampler()): a plan's sampler yields whole batches; use DataLoader(ds, "
             "batch_sampler=plan.sampler(), collate_fn=ds.collate), or ds.loader(plan)"),
            (DataLoader(dataset, batch_sampler=plan.sampler()),  # type: ignore[arg-type]
             "a batch's columns have names, and this asks for item 0; a DataLoader over a plan's sampler needs collate_fn=ds.collate, and "
             "a function of samples goes into ds.loader(plan, collate=function), or a DataLoader over ds, not ds.collating(...)"),
            (DataLoader(dataset.loader(plan)),  # type: ignore[arg-type]
             "a Loader yields ready batches, so it needs no DataLoader around it: `for batch in loader`; torch's own is DataLoader(ds, "
             "batch_sampler=plan.sampler(), collate_fn=ds.collate)")):
        with pytest.raises(rankstore.ArgumentError) as raised:
            next(iter(loader))
        assert str(raised.value) == says
    batch = next(iter(DataLoader(dataset, batch_sampler=plan.sampler(), collate_fn=dataset.collate)))  # type: ignore[arg-type]
    assert batch["x"].shape == (8, 504) and batch.get("y") is None
    with pytest.raises(KeyError):
        batch["y"]
    assert set(first := next(iter(DataLoader(dataset, batch_size=4)))) == {"x", "key"}  # type: ignore[arg-type]
    assert first["x"].shape == (4, 500)  # all have one size


@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataloader_pads_what_torch_cannot_stack(tmp_path: Path, workers: int) -> None:
    import torch
    from torch.utils.data import DataLoader, default_collate
    rows = [{"tokens": numpy.arange(i + 1, dtype=numpy.int32), "label": i, "info": {"i": i}, "name": f"n{i}"} for i in range(6)]
    with rankstore.build(rows, tmp_path / "store") as ds:
        assert type(ds.__getitems__([0, 1])) is list and set(ds.__getitems__([0, 1])[1]) == set(rows[0])
        for options in ({}, {"collate_fn": ds.collate}, {"collate_fn": default_collate}):
            batches = list(DataLoader(ds, batch_size=4, num_workers=workers, **options))  # type: ignore[arg-type]
            assert [batch["tokens"].shape for batch in batches] == [(4, 4), (2, 6)]
            assert batches[0]["tokens"].tolist()[1] == [0, 1, 0, 0] and batches[0]["attention_mask"].sum(1).tolist() == [1, 2, 3, 4]
            assert batches[1]["label"].tolist() == [4, 5] and batches[1]["info"] == [{"i": 4}, {"i": 5}]
            assert isinstance(batches[0], rankstore.Batch) and batches[0].lengths.tolist() == [1, 2, 3, 4]
        one, two = (rankstore.Batch(label=torch.tensor([i, i + 1]), name=["a", "b"]) for i in (0, 2))
        assert default_collate([one]) is one  # and several are stacked, as other dicts
        assert (both := default_collate([one, two]))["label"].tolist() == [[0, 1], [2, 3]] and both["name"] == [("a", "a"), ("b", "b")]
        loader: Any = DataLoader(ds, batch_size=4, collate_fn=list)  # type: ignore[arg-type]
        assert [sample["name"] for sample in next(iter(loader))] == ["n0", "n1", "n2", "n3"]  # own functions get samples
    with rankstore.build([{"y": 1}, {"y": None}], tmp_path / "missing") as ds:
        with pytest.raises(rankstore.DataError, match='sample 1: column "y" .* is missing; use Pad'):
            next(iter(DataLoader(ds, batch_size=2)))  # type: ignore[arg-type]


def test_arrays_are_samples(tmp_path: Path) -> None:
    import torch
    table = numpy.arange(12, dtype=numpy.int32).reshape(6, 2)
    sources: list[Any] = [table, torch.from_numpy(table.copy()), {"data": table}, {"data": table.tolist()}]
    for i, source in enumerate(sources):
        with rankstore.build(source, tmp_path / str(i)) as ds:
            assert [ds[j]["data"].tolist() for j in range(6)] == table.tolist() and ds.schema["data"].dims is not None
        rankstore.build(source, tmp_path / str(i)).close()  # known again
    with pytest.raises(rankstore.ArgumentError, match="a finished dataset is here"):
        rankstore.build(table + 1, tmp_path / "0")
    with rankstore.build({"x": numpy.ones((3, 2)), "y": torch.arange(3), "s": ["a", "b", "c"]}, tmp_path / "dict") as ds:
        assert ds[2]["x"].tolist() == [1, 1] and ds[2]["y"] == 2 and ds[2]["s"] == "c"


@pytest.mark.parametrize("source, says", [
    ({"x": numpy.ones(3), "y": numpy.ones(2)}, r"arrays of a dict must have one length, but have {'x': 3, 'y': 2}"),
    ({"x": 1}, r"a dict is taken as a dict of arrays of one length; 'x' is int. One sample is a list of one dict"),
    ({}, "a dict is taken as a dict of arrays of one length; it is empty"),
    (numpy.int64(3), "one number; give an array with one sample per row"),
    ([("a", 1), ("b", 2)], r'not tuple; name its parts: map=lambda sample: {"a": sample\[0\], "b": sample\[1\]}'),
    ([numpy.ones(3), numpy.ones(2)], r'not ndarray; name it: map=lambda sample: {"data": sample}'),
    ([[1, 2], [3]], r'not list; name it: map=lambda sample: {"data": sample}')])
def test_other_samples_get_the_right_call(tmp_path: Path, source: Any, says: str) -> None:
    with pytest.raises((rankstore.ArgumentError, rankstore.DataError), match=says):
        rankstore.build(source, tmp_path / "never")
    if isinstance(source, list):
        call = "lambda sample: {" + says.partition("{")[2].replace("\\", "")
        with rankstore.build(source, tmp_path / "made", map=eval(call)) as ds:
            assert len(ds) == 2


def test_a_tensor_dataset_gets_the_right_call(tmp_path: Path) -> None:
    import torch
    from torch.utils.data import TensorDataset
    source = TensorDataset(torch.ones(4, 3), torch.arange(4))
    with pytest.raises(rankstore.DataError, match=r'not tuple; name its parts: map=lambda sample: {"a": sample\[0\], "b": sample\[1\]}$'):
        rankstore.build(source, tmp_path / "never")
    with rankstore.build(source, tmp_path / "made", map=lambda sample: {"a": sample[0], "b": sample[1]}) as ds:
        assert ds[3]["a"].tolist() == [1, 1, 1] and ds[3]["b"] == 3


def test_a_loader_without_torch_says_what_to_do(dataset: rankstore.Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)  # as if it were not installed
    with pytest.raises(rankstore.UnsupportedError, match=r'out="torch" needs torch .*: pip install torch, or ask for out="numpy"'):
        dataset.loader(dataset.plan(batch_size=2))
    batches = [batch for batch in dataset.loader(dataset.plan(batch_size=2), out="numpy")]
    assert isinstance(batches[0].lengths, numpy.ndarray)


@pytest.mark.parametrize("kind, wrong, says", [
    (rankstore.ArgumentError, lambda ds: ds.loader(ds.plan(), batch_size=4),
     "loader(batch_size=...): a plan decides it: ds.plan(batch_size=...)"),
    (rankstore.ArgumentError, lambda ds: ds.loader(ds.plan(), num_workers=4),
     "loader(num_workers=...): threads of the library fetch and collate; worker processes, which call map=, are processes="),
    (rankstore.ArgumentError, lambda ds: ds.loader(ds.plan(), collate_fn=Pad()),
     "loader(collate_fn=...): collate=, a layout such as Pad(), or a function of a list of samples"),
    (rankstore.ArgumentError, lambda ds: ds.loader(ds.plan()).set_epoch(1.5), "epoch: 1.5; it must be an int of at least 0"),
    (rankstore.ArgumentError, lambda ds: ds.loader(ds.plan()).set_epoch("1"), "epoch: '1'; it must be an int of at least 0"),
    (rankstore.ArgumentError, lambda ds: ds.windows(4, random=False),
     "windows: random is False; it is a seed, an int, or None for windows in order"),
    (rankstore.ArgumentError, lambda ds: next(ds.windows(4).batches(0)), "windows: batch_size is 0; it must be at least 1"),
    (KeyError, lambda ds: ds.index["score"], '"score" is not an index column (there are: none); build with index=["score"]'),
    (KeyError, lambda ds: next(iter(ds.loader(ds.plan())))["y"], "'y': the batch has x, key"),
    (rankstore.ArgumentError, lambda ds: rankstore.build("out", [{"x": 1}]),
     "out: a directory's path, not list; the source comes first: build(source, out)"),
    (rankstore.DataError, lambda ds: rankstore.build([{"x": 1}], ds.directory + "-never", map=lambda sample: sample.update(y=1)),
     "no sample to infer a schema from: map dropped all 1 samples (None drops a sample: does map return one?); give schema=")])
def test_a_newcomers_mistake_in_full(dataset: Any, kind: type[Exception], wrong: Any, says: str) -> None:
    with pytest.raises(kind) as raised:
        wrong(dataset)
    assert (raised.value.args[0] if kind is KeyError else str(raised.value)) == says


def a_tar(path: Path) -> Path:
    with tarfile.open(path, "w") as file:
        member = tarfile.TarInfo("k.txt")
        member.size = 1
        file.addfile(member, io.BytesIO(b"x"))
    return path


def of_file(path: Path, text: str, **options: Any) -> Any:
    path.write_text(text)
    return rankstore.build(path, path.with_suffix(""), **options)


def named(option: str) -> dict[str, Any]:
    return {option: {"lables": "int64" if option == "dtype" else 1}}


# Each mistake with all of its words. Ranks and hosts in front are left out.
IN_FULL: list[tuple[type[Exception], Any, str]] = [
    # what was silently wrong
    (rankstore.DataError,
     lambda ds, at: next(iter(ds.loader(ds.plan(max_length=3, too_long="truncate", shuffle=False),
                                        collate=Pad(fill={"y": 0})))).global_sum("learned"),
     'global_sum: sample 4 has 5 items and is cut to 3, but "learned" counts all of them; use too_long="drop" or "alone", or cut in '
     "build(map=...)"),
    (rankstore.ArgumentError, lambda ds, at: next(iter(ds.loader(ds.plan(), collate=Pad(fill={"y": 0})))).global_sum("lerned"),
     'global_sum: "lerned" is not an index column; build it with index=["lerned"], or with count={"lerned": ("labels", "!=", -100)}'),
    (rankstore.ArgumentError, lambda ds, at: ds.loader(ds.plan(max_tokens=64), collate=Pad(to_multiple=64)),
     "Pad(to_multiple=64): the plan's budget counts widths in multiples of 8; give length_multiple=64 to plan(), or leave to_multiple out"),
    (rankstore.DataError, lambda ds, at: next(iter(ds.loader(ds.plan(), collate=Pad()))),
     'sample 1: column "y" (int64?) is missing; use Pad(missing="mask"), which adds batch.missing["y"], or Pad(fill={"y": VALUE}), or '
     "leave the column out by columns="),
    *[(rankstore.ArgumentError, lambda ds, at, option=option: ds.loader(ds.plan(), collate=Pad(**named(option))),
       f"{option}: there is no column 'lables'; did you mean 'labels'? there are ids, labels, y, learned")
      for option in ("pad_value", "dtype", "fill")],
    (rankstore.DataError, lambda ds, at: rankstore.build([{"x": numpy.ones(3)}, {"x": numpy.ones((2, 2))}], at / "out"),
     'column "x": float64[*] in one sample, float64[*,2] in another: a column has one number of dimensions; reshape in map=, or give '
     'schema={"x": "json"}'),
    # what was refused without a way out
    (rankstore.DataError, lambda ds, at: of_file(at / "late.jsonl", '{"a": 1}\n' * 3000 + '{"a": 1, "b": 1}\n'),
     "late.jsonl:3001: column \"b\" is not in the schema inferred from the first rows; give schema 'a:int64,b:int64?'"),
    (rankstore.DataError, lambda ds, at: of_file(at / "null.jsonl", '{"a": 1}\n' * 3000 + '{"a": null}\n'),
     "null.jsonl:3001: column \"a\": null does not fit int64; give schema 'a:int64?'"),
    (rankstore.DataError, lambda ds, at: rankstore.build([("a", 1)], at / "out"),
     'a sample is a dict of columns, not tuple; name its parts: map=lambda sample: {"a": sample[0], "b": sample[1]}'),
    (rankstore.DataError, lambda ds, at: of_file(at / "t.bin", "1234567", format="raw", dtype="uint16"),
     "t.bin: 7 bytes are not whole items of uint16"),
    (rankstore.ArgumentError, lambda ds, at: of_file(at / "t.bin", "12345678", format="raw"),
     "dtype: a raw file does not say what it holds; give the type of its items, as dtype=uint16"),
    (rankstore.DataError, lambda ds, at: rankstore.build([{"x": 1}, {"x": "a"}], at / "out"),
     'column "x": int64 in one sample, str in another: no type holds both; convert one of them in map='),
    (rankstore.ArgumentError, lambda ds, at: next(iter(ds.loader(ds.plan(), collate=Pad(dtype={"labels": "uint8"}, fill={"y": 0})))),
     "Pad(dtype=...): uint8 does not hold every value of int64, column 'labels'; leave it out of dtype="),
    (rankstore.ArgumentError, lambda ds, at: rankstore.build([{"x": 1}], at / "out", unit_size="1Mib"),
     "unit_size: '1Mib' is not a size such as 1048576, '512MiB' or '1.5GB'"),
    (rankstore.StateError, lambda ds, at: (ds.close(), ds[0]), "store: this dataset is closed; open it again"),
    (rankstore.DataError, lambda ds, at: rankstore.build([a_tar(at / "a.tar"), a_tar(at / "b.tar")], at / "out"),
     "key 'k' appears twice: row 0 of a.tar (rank 0) and row 0 of b.tar (rank 0); an empty name as key (key='') makes keys of path and "
     "row; if a sample's members lie apart: tar --sort=name"),
    (rankstore.NotFoundError, lambda ds, at: rankstore.open(at / "none"), "none: no dataset here"),
    (rankstore.ArgumentError, lambda ds, at: rankstore.build([{"x": 1}], at / "out", where=len),
     'where: a text such as "score > 0.5", not <built-in function len>; a function goes into filter='),
    (rankstore.ArgumentError, lambda ds, at: rankstore.init(rank=0, world=2),
     "rank= and world= are only for a torch store, as in init(store, rank=0, world=2); launchers tell them by themselves"),
    (IndexError, lambda ds, at: ds.source_of([0, 6]), "source_of: there is no sample id 6; ids are 0 to 5"),
    (IndexError, lambda ds, at: ds.source_of([-1]), "source_of: there is no sample id -1; ids are 0 to 5"),
    (rankstore.NotFoundError, lambda ds, at: rankstore.build(at / "none.jsonl", at / "out"), "none.jsonl: no such file"),
]


def test_each_mistake_says_what_to_do_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    at = Path()
    rows = [{"ids": numpy.arange(i + 1), "labels": numpy.full(i + 1, i), "y": None if i == 1 else i} for i in range(6)]
    rankstore.build(rows, "store", count={"learned": ("labels", "!=", -100)}).close()
    told = []
    for kind, wrong, _ in IN_FULL:
        with rankstore.open("store") as ds, pytest.raises(kind) as raised:
            wrong(ds, at)
        told.append(re.sub(r"^rank 0( \(\S+\))?: ", "", str(raised.value)))
    assert told == [says for _, _, says in IN_FULL]


def test_a_changed_constant_of_map_is_named_in_full(tmp_path: Path) -> None:
    most = 400

    def cut(sample: dict[str, Any]) -> dict[str, Any]:
        return {"x": sample["x"][:most]}

    rows = [{"x": numpy.arange(500)}]
    rankstore.build(rows, tmp_path / "out", map=cut).close()
    most = 100
    with pytest.raises(rankstore.ArgumentError) as raised:
        rankstore.build(rows, tmp_path / "out", map=cut)
    assert str(raised.value) == (f'{tmp_path}/out: a finished dataset is here, and map: most was 400, is 100; replace=True or "if_changed" '
                                 "builds anew, append=True adds to it, reuse=True opens what is there")
