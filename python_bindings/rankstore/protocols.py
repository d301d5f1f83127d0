# SPDX-License-Identifier: Apache-2.0
"""What the modules below `dataset` use of a dataset, a plan and a sampler, so that they need not import those."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .types import Column


class Ranks(Protocol):
    """A Group, or that of a worker process."""

    @property
    def rank(self) -> int: ...
    @property
    def world(self) -> int: ...


class Batches(Protocol):
    """A Collator."""

    @property
    def core(self) -> Any: ...
    def batch(self, arrays: Any) -> Any: ...


class Samples(Protocol):
    """A Dataset."""

    id: str
    schema: dict[str, Column]

    @property
    def group(self) -> Ranks: ...
    @property
    def store(self) -> Any: ...
    @property
    def all_lengths(self) -> Any: ...
    @property
    def length_column(self) -> str | None: ...
    @property
    def collate(self) -> Callable[[Any], Any]: ...
    @property
    def collator(self) -> Batches: ...
    def __len__(self) -> int: ...
    def sample_id(self, place: Any) -> int: ...
    def place(self, sample_id: int) -> int: ...
    def chosen(self, whole: Any) -> Any: ...
    def collate_ids(self, ids: Sequence[int], collator: Any) -> Any: ...
    def index_of(self, name: str) -> Any: ...
    def follow_epoch(self, sampler: Any) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def loader(self, plan: Any, **options: Any) -> Any: ...


class Planned(Protocol):
    """A Plan, to a batch of it."""

    @property
    def dataset(self) -> Samples: ...
    def step_tokens(self, epoch: int, step: int) -> int: ...
    def step_sum(self, column: str, epoch: int, step: int, *, accumulate: int = 1, cut: int = 0) -> int | float: ...


class World(Protocol):
    """A Plan, to what checks its samplers."""

    world: int


class Sampler(Protocol):
    """A PlanSampler."""

    view: str

    @property
    def plan(self) -> World: ...
