# SPDX-License-Identifier: Apache-2.0
"""What `device="cuda"` does, over streams and events of threads: copies run ahead and beside the consumer's work, and no memory is
used anew too early, on either side. On a GPU, tests/gpu/loader.py shows the same."""
from __future__ import annotations

import collections
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from stand_in_gpu import LIMIT_S, POISON, Pinned, StandIn, made, made_arenas  # noqa: E402

import rankstore  # noqa: E402
from rankstore import Lists, Nested, Pack, Pad  # noqa: E402
from rankstore._batching import tensors  # noqa: E402
from rankstore._loader import device as on_device, iteration, loader as loaders  # noqa: E402


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(on_device, "Copies", StandIn)
    for module in (loaders, iteration):
        monkeypatch.setattr(module, "is_gpu", lambda device: True)
    made.clear()
    yield
    for one in made:
        one.copies.end()
        one.compute.end()


@pytest.fixture
def pins(gpu: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pinned]:
    """The same where memory can be pinned."""
    one = Pinned()
    monkeypatch.setattr(loaders, "pins_batches",
                        lambda pin_memory, device, out: pin_memory is True or (pin_memory == "auto" and device is not None))
    monkeypatch.setattr(on_device, "pinned_memory", one.make)
    monkeypatch.setattr(iteration, "pinned", one.pin)
    yield one
    made_arenas.clear()


@pytest.fixture
def dataset(tmp_path: Path) -> Iterator[Any]:
    rows = ({"tokens": np.arange(i % 37 + 1, dtype=np.int64) + i} for i in range(240))
    with rankstore.build(rows, tmp_path / "store", schema={"tokens": "int64[*]"}, progress=False) as ds:
        yield ds


def sums(value: Any, into: list[int]) -> None:
    """Of all tensors in a batch, in order."""
    if isinstance(value, dict):
        for one in value.values():
            sums(one, into)
    elif isinstance(value, (list, tuple)):
        for one in value:
            sums(one, into)
    elif getattr(value, "is_nested", False):
        into.append(int(value.values().sum()))
    elif hasattr(value, "sum"):
        into.append(int(value.sum()))


def consume(gpu: StandIn, batch: Any, into: list[list[int]]) -> None:
    """Puts the consumer's work on its stream; the tensors are not held until it has been done, as in a training loop."""
    found: list[int] = []
    into.append(found)
    kept: list[Any] = []

    def alias(value: Any) -> Any:
        kept.append(value.detach())
        return value

    tensors.each_tensor(batch, alias)
    gpu.compute.put(lambda: found.extend(int(one.sum()) for one in kept))


# ---- what is asked of torch.cuda -------------------------------------------------------------------


class FakeCuda:
    """torch.cuda as the copies use it, and what was asked of it, in order. The current device is 1."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.inside = ["consumer"]
        cuda = self

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                self.timing = enable_timing

            def record(self, stream: Any) -> None:
                cuda.log.append(("mark", stream.name, self.timing))

            def query(self) -> bool:
                return True

            def elapsed_time(self, end: Any) -> float:
                assert self.timing and end.timing
                return 250.0

        class Stream:
            def __init__(self, device: Any = None, name: str = "copies") -> None:
                self.device, self.name = torch.device("cuda", 1), name

            def record_event(self) -> Any:
                cuda.log.append(("event", self.name))
                return "the event"

            def wait_event(self, event: Any) -> None:
                cuda.log.append(("wait", self.name, event))

        class Tensor:
            def __init__(self, name: str) -> None:
                self.name = name

            def to(self, device: Any, non_blocking: bool = False) -> Any:
                cuda.log.append(("to", self.name, str(device), non_blocking, cuda.inside[-1]))
                return Tensor(self.name + " there")

            def record_stream(self, stream: Any) -> None:
                cuda.log.append(("hold", self.name, stream.name))

        self.Event, self.Stream, self.Tensor = Event, Stream, Tensor

    @contextlib.contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        self.inside.append(stream.name)
        yield
        self.inside.pop()

    def current_stream(self, device: Any) -> Any:
        assert str(device) == "cuda:1", device
        return self.Stream(name="consumer")


def test_torch_is_asked_for_what_the_laws_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allocated and copied on the stream of copies, with an event after; the consumer's stream waits for that, then the tensors are
    marked as in use by it. "cuda" is the device that was current when it began."""
    cuda = FakeCuda()
    monkeypatch.setattr(torch, "cuda", cuda)
    copies = on_device.Copies("cuda")
    there, event = copies.send([cuda.Tensor("a"), cuda.Tensor("b")])
    assert cuda.log == [("to", "a", "cuda:1", True, "copies"), ("to", "b", "cuda:1", True, "copies"), ("event", "copies")]
    cuda.log.clear()
    wait = copies.take(there, event)
    assert cuda.log == [("mark", "consumer", True), ("wait", "consumer", "the event"), ("mark", "consumer", True),
                        ("hold", "a there", "consumer"), ("hold", "b there", "consumer")]
    assert copies.waited(wait) == 0.25


# ---- order and reuse -------------------------------------------------------------------------------


def test_copies_are_ahead_and_memory_is_not_reused_early(dataset: Any, gpu: None) -> None:
    plan = dataset.plan("bucket", batch_size=12, seed=5)
    plain: list[list[int]] = []
    for batch in dataset.loader(plan, collate=Pad()):
        plain.append([])
        sums(batch, plain[-1])
    loader, found, go = dataset.loader(plan, collate=Pad(), device="cpu"), [], threading.Event()
    for step, batch in enumerate(loader):
        if step == 0:  # all of the consumer's work is done at the end alone, when its tensors have long been let go
            made[0].compute.put(lambda: go.wait(LIMIT_S))
        assert made[0].sent >= min(step + 3, plan.steps), "the copy for step n + 2 is queued before step n is yielded"
        assert made[0].sent <= step + 3, "and no more than two are ahead"
        consume(made[0], batch, found)
        del batch
    go.set()
    drain(made[0])
    assert len(found) == plan.steps and found == plain
    stats = loader.stats()
    assert stats["device_bytes"] == 0 and stats["copy_seconds"] >= 0 and 0 <= stats["copies_late"] <= plan.steps
    largest = max(12 * int(length) * 8 * 2 for length in [40])  # 12 rows of at most 40 items, ids and mask
    assert 0 < stats["device_peak_bytes"] <= 3 * largest


def drain(one: StandIn) -> None:
    reached = threading.Event()
    one.compute.put(reached.set)
    assert reached.wait(LIMIT_S)


def test_copies_do_not_wait_for_the_consumer(dataset: Any, gpu: None) -> None:
    """The consumer's stream is held up; what is ahead is copied all the same."""
    plan = dataset.plan("sequential", batch_size=12, shuffle=False)
    iteration = iter(dataset.loader(plan, collate=Pad(), device="cpu", prefetch_device=3))
    first = next(iteration)
    go = threading.Event()
    made[0].compute.put(lambda: go.wait(LIMIT_S))
    second = next(iteration)
    reached = threading.Event()
    made[0].copies.put(reached.set)
    assert reached.wait(LIMIT_S) and made[0].sent == 5
    assert int(first["input_ids" if "input_ids" in first else "tokens"][0, 0]) == 0
    go.set()
    drain(made[0])
    assert int(second["input_ids" if "input_ids" in second else "tokens"][0, 0]) == 12
    iteration.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("layout", [Pad(), Pack(), Nested(), Lists()], ids=lambda layout: type(layout).__name__)
def test_each_layout_arrives_whole(dataset: Any, gpu: None, layout: Any) -> None:
    plan = dataset.plan("sorted", batch_size=16)
    for plain, moved in zip(dataset.loader(plan, collate=layout), dataset.loader(plan, collate=layout, device="cpu"), strict=True):
        drain(made[0])
        expected: list[int] = []
        found: list[int] = []
        sums(plain, expected)
        sums(moved, found)
        assert found == expected and list(moved) == list(plain) and moved.step == plain.step
        assert moved.global_tokens == plain.global_tokens


# ---- arenas ------------------------------------------------------------------------------------------


def without(dataset: Any, plan: Any, layout: Any, epoch: int = 0) -> list[list[int]]:
    """What the tensors of each batch add up to, in memory of the library's."""
    found: list[list[int]] = []
    loader = dataset.loader(plan, collate=layout, pin_memory=False)
    loader.set_epoch(epoch)
    for batch in loader:
        found.append([])
        sums(batch, found[-1])
    return found


def test_the_library_collates_into_arenas_that_serve_again(dataset: Any, pins: Pinned) -> None:
    """Few arenas serve all batches, each as soon as its copies have ended, and those that came before there were any are copied by
    threads. What users keep of a batch does not keep its arena."""
    plan = dataset.plan("bucket", batch_size=4, seed=3)
    loader = dataset.loader(plan, collate=Pad(lengths=["tokens"]), device="cpu", prefetch_batches=2)
    for epoch in range(2):
        plain = without(dataset, plan, Pad(lengths=["tokens"]), epoch)
        loader.set_epoch(epoch)
        found: list[list[int]] = []
        kept: list[Any] = []
        for batch in loader:
            consume(made[-1], batch, found)
            kept.append((batch.ids, batch.lengths))
            del batch
        assert loader.stats()["memory"]["pinned"]["peak"] > 0
        drain(made[-1])
        assert found == plain and len(found) == plan.steps == 60
        assert sorted(int(index) for indices, _ in kept for index in indices) == list(range(240))
        assert all(pins.has(*one) for one in made[-1].sources)
        inside = sum(pins.find(*one) is not None for one in made[-1].sources)
        assert inside > len(made[-1].sources) // 2, (inside, len(made[-1].sources))
        assert 1 <= len(pins.arenas) <= 16 * (epoch + 1), len(pins.arenas)
    assert threading.get_ident() not in pins.threads
    assert pins.back == len(pins.arenas), "the end of an iteration lets go of all"


@pytest.mark.parametrize("way", ["to its end", "left", "fails", "begun anew", "dropped"])
def test_an_arena_waits_for_the_last_copies(dataset: Any, pins: Pinned, way: str) -> None:
    """However an iteration ends, what the copies that are still on their way read stays as it is until they have ended."""
    plan = dataset.plan("sequential", batch_size=12, shuffle=False)
    plain = without(dataset, plan, Pad())
    loader, go = dataset.loader(plan, collate=Pad(), device="cpu", prefetch_batches=2), threading.Event()
    iteration = iter(loader)
    found: list[list[int]] = []
    last = plan.steps - 1 if way == "to its end" else 12
    for step in range(last + 1):
        if step == last - 2:  # after it no copy ends
            drain_copies(made[0])
            made[0].copies.put(lambda: go.wait(LIMIT_S))
        batch = next(iteration)
        consume(made[0], batch, found)
    del batch
    assert not go.is_set() and any(pins.find(*one) is not None for one in made[0].sources[-6:]), "no copy is out of an arena"
    threading.Timer(0.1, go.set).start()
    if way == "to its end":
        assert next(iteration, None) is None
    elif way == "left":
        iteration.close()  # type: ignore[attr-defined]
    elif way == "fails":
        iteration._source = iter(lambda: 1 / 0, None)  # type: ignore[attr-defined]
        with pytest.raises(ZeroDivisionError):
            list(iteration)
    elif way == "begun anew":
        next(iter(loader))
    del iteration
    assert go.is_set(), "it ended before its copies had"
    drain(made[0])
    assert found == plain[:last + 1]


def drain_copies(one: StandIn) -> None:
    reached = threading.Event()
    one.copies.put(reached.set)
    assert reached.wait(LIMIT_S)


def test_what_a_lost_gpu_may_still_read_is_not_used_again(dataset: Any, pins: Pinned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_device, "_lost", [])
    iteration = iter(dataset.loader(dataset.plan("sequential", batch_size=12), collate=Pad(), device="cpu", prefetch_batches=2))
    for _ in range(8):
        next(iteration)
    made[0].lost = True
    iteration.close()  # type: ignore[attr-defined]
    sources = [(one.data_ptr(), one.numel() * one.element_size()) for held in on_device._lost for one in held]
    inside = [pins.find(*one) for one in sources]
    assert any(one is not None for one in inside) and not any((one == POISON).all() for one in inside if one is not None)
    assert pins.back < len(pins.arenas)


def test_a_fork_leaves_its_parent_s_copies_alone(dataset: Any, pins: Pinned, monkeypatch: pytest.MonkeyPatch) -> None:
    """It can ask nothing of the GPU, and its parent's copies may still read what it has."""
    monkeypatch.setattr(on_device, "_lost", [])
    iteration = iter(dataset.loader(dataset.plan("sequential", batch_size=12), collate=Pad(), device="cpu", prefetch_batches=2))
    for _ in range(8):
        next(iteration)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(LIMIT_S)
            made[0].finish = lambda event: os._exit(2)  # type: ignore[method-assign]
            iteration._moving.close()  # type: ignore[attr-defined]
            code = 0 if [len(held) >= 2 for held in on_device._lost] == [True] else 3
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    iteration.close()  # type: ignore[attr-defined]


def test_batches_that_are_kept_stay_as_they_are(dataset: Any, pins: Pinned) -> None:
    """On the GPU, and what of them lies in main memory."""
    plan = dataset.plan("random", batch_size=6, seed=2)
    kept = list(dataset.loader(plan, collate=Pad(), device="cpu", prefetch_batches=2))
    drain(made[0])
    found: list[list[int]] = [[] for _ in kept]
    for batch, into in zip(kept, found, strict=True):
        sums(batch, into)
    assert found == without(dataset, plan, Pad())
    assert sorted(int(one) for batch in kept for one in batch.ids) == list(range(240))


@pytest.mark.parametrize("layout", [Pack("flash"), Pack("titan"), Nested(), Lists(), Pad(mask={"tokens": "seen"})],
                         ids=["flash", "titan", "nested", "lists", "mask"])
def test_what_a_layout_adds_is_pinned_in_threads(dataset: Any, pins: Pinned, layout: Any) -> None:
    plan = dataset.plan("sorted", batch_size=8)
    plain = without(dataset, plan, layout)
    found: list[list[int]] = []
    for moved in dataset.loader(plan, collate=layout, device="cpu", prefetch_batches=1):
        drain(made[0])
        found.append([])
        sums(moved, found[-1])
    assert found == plain
    assert all(pins.has(*one) for one in made[0].sources) and pins.arenas
    assert any(pins.find(*one) is not None for one in made[0].sources if one[1])
    assert threading.get_ident() not in pins.threads


def test_memory_that_a_user_may_copy_is_in_no_arena(dataset: Any, pins: Pinned) -> None:
    """torch does not know of copies from an arena: only the loader's own may read one."""
    plan = dataset.plan("sorted", batch_size=16)
    for options in ({"pin_memory": True}, {"device": "cpu", "transform": lambda batch: batch}, {"pin_memory": False},
                    {"device": "cpu", "pin_memory": False}, {"device": "cpu", "collate": lambda samples: {"x": torch.zeros(3)}}):
        for _ in dataset.loader(plan, **{"collate": Pad(), **options}):
            pass
        assert not pins.arenas
    assert pins.copies


@pytest.mark.parametrize("layout", [Pad(), Lists(), Pad(missing="mask", fill={"raw": b"none"})], ids=["pad", "lists", "filled"])
def test_bytes_that_stay_in_main_memory_are_in_no_arena(tmp_path: Path, pins: Pinned, layout: Any) -> None:
    """Over them a user can make tensors of pinned memory, whose copies nobody would wait for."""
    rows = [{"x": np.arange(20) + i, "raw": None if i % 5 == 0 and layout.fill else b"%03d" % i * (i % 3)} for i in range(240)]
    schema = {"x": "int64[*]", "raw": "bytes?" if layout.fill else "bytes"}
    with rankstore.build(rows, tmp_path / "raw", schema=schema, progress=False) as ds:
        expected = [b"none" if row["raw"] is None else row["raw"] for row in rows]
        kept: list[tuple[Any, Any]] = []
        for batch in ds.loader(ds.plan("sequential", batch_size=6, shuffle=False), collate=layout, device="cpu", prefetch_batches=2):
            drain(made[-1])
            kept += zip(batch.ids.tolist(), batch["raw"], strict=True)
            for value in batch["raw"]:
                place = np.frombuffer(value, np.uint8)
                assert place.size == 0 or pins.find(place.ctypes.data, place.size) is None
        assert any(pins.find(*one) is not None for one in made[-1].sources)
        assert [bytes(value) for _, value in kept] == expected and [index for index, _ in kept] == list(range(240))
        assert all(isinstance(value, memoryview) or value == b"none" for _, value in kept)


def test_lists_of_another_world_are_pinned_without_arenas(dataset: Any, pins: Pinned) -> None:
    """What is not the library's own epoch is collated elsewhere, and pinned all the same."""
    plan = dataset.plan("sequential", batch_size=8, shuffle=False, world=2, rank=1)
    found: list[list[int]] = []
    for moved in dataset.loader(plan, collate=Pad(), device="cpu"):
        drain(made[0])
        found.append([])
        sums(moved, found[-1])
    assert found == without(dataset, plan, Pad()) and len(found) == plan.steps == 15
    assert not pins.arenas and len(pins.copies) == len(made[0].sources) and all(pins.has(*one) for one in made[0].sources)


@pytest.mark.parametrize("after", [0, 1])
def test_where_no_more_can_be_pinned_batches_are_copied(dataset: Any, pins: Pinned, monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    asked: list[int] = []

    def refuse(size: int) -> Any:
        asked.append(size)
        if len(asked) > after:
            raise RuntimeError("CUDA error: out of memory")
        return pins.make(size)

    monkeypatch.setattr(on_device, "pinned_memory", refuse)
    plan = dataset.plan("sorted", batch_size=8)
    found: list[list[int]] = []
    for moved in dataset.loader(plan, collate=Pad(), device="cpu", prefetch_batches=2):
        drain(made[0])
        found.append([])
        sums(moved, found[-1])
    assert found == without(dataset, plan, Pad()) and len(asked) == after + 1 and pins.copies
    assert pins.back == len(pins.arenas) == after


def test_what_a_transform_returns_is_moved(dataset: Any, gpu: None) -> None:
    plan = dataset.plan("sorted", batch_size=16)

    def transform(batch: Any) -> Any:
        return {"x": (batch["tokens"], [batch["tokens"] + 1]), "texts": ["a"] * 3, "step": batch.step}

    for plain, moved in zip(dataset.loader(plan, collate=Pad(), transform=transform),
                            dataset.loader(plan, collate=Pad(), transform=transform, device="cpu"), strict=True):
        drain(made[0])
        assert torch.equal(plain["x"][0], moved["x"][0]) and torch.equal(plain["x"][1][0], moved["x"][1][0])
        assert moved["texts"] == ["a"] * 3 and moved["step"] == plain["step"]
    assert made[0].sent == plan.steps


@pytest.mark.parametrize("first", [5, "a name", None])
def test_what_stands_behind_a_number_a_text_or_none_is_moved(dataset: Any, gpu: None, first: Any) -> None:
    def transform(batch: Any) -> Any:
        return first, batch["tokens"], [first, batch["tokens"]]

    plan = dataset.plan("sorted", batch_size=80)
    for plain, moved in zip(dataset.loader(plan, collate=Pad(), transform=transform),
                            dataset.loader(plan, collate=Pad(), transform=transform, device="cpu"), strict=True):
        drain(made[0])
        assert moved[0] == first and moved[2][0] == first
        assert torch.equal(plain[1], moved[1]) and torch.equal(plain[1], moved[2][1])
        assert moved[1].data_ptr() in made[0].places and moved[2][1].data_ptr() in made[0].places


class Encoding(collections.UserDict):  # type: ignore[type-arg]
    """As tokenizers return them: a mapping that is no dict, with something beside."""

    note = ""


class Parts(list):  # type: ignore[type-arg]
    pass


Named = collections.namedtuple("Named", "x y")  # noqa: PYI024


def test_containers_of_other_types_are_moved_and_keep_their_type(dataset: Any, gpu: None) -> None:
    def transform(batch: Any) -> Any:
        encoding = Encoding(ids=batch["tokens"])
        encoding.note = "kept"
        counted = collections.defaultdict(int, x=batch["tokens"] + 1)
        return collections.OrderedDict(b=encoding, a=Parts([Named(batch["tokens"] + 2, 5)]), c=counted)

    plan = dataset.plan("sorted", batch_size=80)
    for plain, moved in zip(dataset.loader(plan, collate=Pad(), transform=transform),
                            dataset.loader(plan, collate=Pad(), transform=transform, device="cpu"), strict=True):
        drain(made[0])
        assert type(moved) is collections.OrderedDict and list(moved) == ["b", "a", "c"]
        assert type(moved["b"]) is Encoding and moved["b"].note == "kept" and type(moved["a"]) is Parts and type(moved["a"][0]) is Named
        assert moved["c"]["nothing"] == 0 and moved["a"][0].y == 5
        for one, other in ((plain["b"]["ids"], moved["b"]["ids"]), (plain["a"][0].x, moved["a"][0].x), (plain["c"]["x"], moved["c"]["x"])):
            assert torch.equal(one, other) and other.data_ptr() in made[0].places and one.data_ptr() != other.data_ptr()


def test_what_cannot_be_pinned_stays() -> None:
    for tensor in (torch.empty(3, device="meta"), torch.eye(3).to_sparse()):
        assert tensors.pinned({"x": [tensor]})["x"][0] is tensor


def test_a_packed_sequence_is_moved_but_for_its_sizes() -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.arange(3.0), torch.arange(5.0)], enforce_sorted=False)
    for whole in (False, True):
        moved = tensors.each_tensor({"x": packed}, lambda tensor: tensor.to("meta"), whole=whole)["x"]
        assert type(moved) is type(packed) and torch.equal(moved.batch_sizes, packed.batch_sizes)
        assert {one.device.type for one in (moved.data, moved.sorted_indices, moved.unsorted_indices)} == {"meta"}


def test_nested_tensors_keep_their_shape() -> None:
    parts = [torch.arange(6.0).view(2, 3), torch.arange(9.0).view(3, 3)]
    turned = torch.nested.nested_tensor(parts, layout=torch.jagged).transpose(1, 2)
    windows = torch.nested.narrow(torch.arange(20.0).view(2, 10), 1, torch.tensor([1, 2]), torch.tensor([3, 4]), layout=torch.jagged)
    for nested in (turned, windows):
        same = tensors.each_tensor(nested, lambda tensor: tensor.clone())
        assert all(torch.equal(one, other) for one, other in zip(same.unbind(), nested.unbind(), strict=True))


def test_a_loop_that_is_left_early_and_one_that_goes_on(dataset: Any, gpu: None) -> None:
    plan = dataset.plan("random", batch_size=12, seed=1)
    loader = dataset.loader(plan, collate=Pad(), device="cpu")
    seen = []
    for batch in loader:
        seen.append(batch.ids.tolist())
        if len(seen) == 3:
            break
    state = loader.state_dict()
    for batch in dataset.loader(plan, collate=Pad(), device="cpu", start=state):
        seen.append(batch.ids.tolist())
    assert sorted(sum(seen, [])) == list(range(240)), "batches that were copied and not yielded come again"


def test_a_remix_holds_from_the_next_step_on(tmp_path: Path, gpu: None) -> None:
    """Batches of the old weights that are on the device already are not yielded."""
    sources = [tmp_path / name for name in ("a", "b")]
    for at, source in enumerate(sources):
        rankstore.build(({"x": np.arange(3) + i} for i in range(at * 20, at * 20 + 20)), source, schema={"x": "int64[*]"},
                        progress=False).close()
    with rankstore.open(sources) as ds:
        loader = ds.loader(ds.plan("random", batch_size=5, mix={"a": 1}, samples=100), collate=Pad(), device="cpu")
        seen = []
        for step, batch in enumerate(loader):
            seen.append(batch.ids.tolist())
            if step == 9:
                assert made[0].sent == 12
                loader.remix({"b": 1})
        assert len(seen) == 20 and [min(ids) >= 20 for ids in seen] == [step > 9 for step in range(20)]
        assert loader.stats()["device_bytes"] == 0


def test_waits_for_copies_and_for_data_are_told_apart(dataset: Any, gpu: None) -> None:
    """Slow copies stop the consumer's stream, and its thread only where it would hold more and more; slow data stops the thread."""
    plan = dataset.plan("sequential", batch_size=24, shuffle=False)
    loader, go = dataset.loader(plan, collate=Pad(mask=None), device="cpu"), threading.Event()
    iteration = iter(loader)
    next(iteration)
    drain(made[-1])
    late = loader.stats()["copies_late"]
    made[-1].copies.put(lambda: go.wait(LIMIT_S))
    for step, _ in enumerate(iteration, 1):
        if step == 3:  # its copy stands after the gate
            threading.Timer(0.2, go.set).start()
        assert len(loader._on_device._sent) <= 3, "what waits for its copy in main memory is bounded"
    drain(made[-1])
    slow = loader.stats()
    assert slow["copy_seconds"] > 0.15, "next() waited for a copy, and not for data"
    assert slow["copies_late"] > late and slow["copy_wait_seconds"] == made[-1].stood_still > 0
    loader = dataset.loader(plan, collate=lambda samples: time.sleep(0.05) or {"x": torch.zeros(4)}, device="cpu")
    for _ in loader:
        pass
    drain(made[-1])
    assert loader.stats()["wait_seconds_p99"] >= 0.05


def test_bytes_on_the_device_are_those_that_were_not_taken(gpu: None) -> None:
    moving = on_device.OnDevice("cpu", 2)
    moving.send(0, {"x": torch.zeros(100), "y": [torch.zeros(5, dtype=torch.int8)]})
    assert (moving.bytes, moving.peak_bytes) == (405, 405)
    moving.take()
    moving.send(1, torch.zeros(10))
    assert (moving.bytes, moving.peak_bytes) == (40, 405)
    moving.clear()
    assert (moving.bytes, moving.peak_bytes) == (0, 405)


def test_prefetch_device_is_checked(dataset: Any) -> None:
    for wrong in (0, -1, 1.5, "2"):
        with pytest.raises(rankstore.ArgumentError, match="prefetch_device: .*; it must be an int of at least 1"):
            dataset.loader(dataset.plan(batch_size=4), prefetch_device=wrong)
