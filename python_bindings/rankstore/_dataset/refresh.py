# SPDX-License-Identifier: Apache-2.0
"""What ranks tell each other of a store that they have opened, and the way to a later generation: `Dataset.refresh`.

A refresh replaces the store of a dataset's handle. Whatever is over that handle goes on with it: selections, plans, loaders, samplers and
worker processes. It is all or nothing: if a plan cannot be made of the larger dataset, everything stays as it was, on all ranks."""
from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .. import _core
from .._distributed.collectives import on_all
from .._distributed.group import Group
from .._distributed.stderr import say
from .._plan.plan import Plan
from .._provenance.dataset_json import expand

if TYPE_CHECKING:
    from .worker_store import Handle

Source = tuple[str, str, str, int, int, int]
Counted = tuple[tuple[str | None, int, str], ...]
_WHY = "ds.refresh() went on with a later generation of the dataset; iterate anew"


def look_around(group: Group, store: _core.Store, given: Sequence[str], shards: Sequence[str],
                several: bool) -> tuple[tuple[str | tuple[str, ...], ...], Counted, tuple[str, ...]]:
    """Return what the workers of this node need of a store: directories by rank, what lengths count, and folders of shards (collective).

    Rank 0 says how much is missing."""
    figures = store.stats()
    if figures["missing_shards"] and group.rank == 0:
        say(f"{', '.join(given)}: {figures['missing_shards']:,} of {figures['shards']:,} shards missing: "
            f"{figures['missing_samples']:,} of {store.count:,} samples left out")
    own = tuple(os.path.abspath(source[1]) for source in store.sources())
    searched = _searched(group, given, shards)
    places: list[tuple[str, ...]] = [own]
    if group.world > 1:
        mine = json.dumps([group.node, own, searched]).encode()
        others = [json.loads(one) for one in group.allgather("open: directories", mine)]
        places += [tuple(place) for node, place, _ in others if node == group.node]
        searched = [one for node, _, theirs in others if node == group.node for one in theirs]
    known = tuple((name, unit, name or ("of a function" if by_function else "1 each")) for name, unit, by_function in store.counted())
    return tuple(place if several else place[0] for place in dict.fromkeys(places)), known, tuple(dict.fromkeys(searched))


def _searched(group: Group, given: Sequence[str], shards: Sequence[str]) -> list[str]:
    """Return the patterns of folders where worker processes look for shards: those of names with a "*", of shards=, and of RKS_PATH."""
    patterns = [re.sub("@[0-9]+$", "", one) for one in given if "*" in one] + list(shards) + os.environ.get("RKS_PATH", "").split(":")
    return [os.path.abspath(expand(one, group.rank, group.node)) for one in patterns if one]


class _Before:
    """What a refresh changes of a handle and of its datasets, as it was."""

    def __init__(self, handle: Handle, datasets: list[Any]) -> None:
        self._handle, self._datasets = handle, datasets
        self.store = handle.store
        self._of_handle = handle.directories, handle.counted, handle.shards
        self._chosen = [one._chosen for one in datasets]

    def restore(self) -> None:
        self._handle.swap(self.store)
        self._handle.directories, self._handle.counted, self._handle.shards = self._of_handle
        for one, chosen in zip(self._datasets, self._chosen, strict=True):
            one._chosen = chosen
            one._forget()


def refresh(dataset: Any, group: Group) -> bool:
    """Go on with the newest generation (collective). Return True if there is a later one."""
    handle = dataset._handle
    wanted, options = handle.asked
    newer = handle.store.refresh(group.core, wanted, **options)
    if newer is None:
        return False
    datasets = list(handle.datasets)
    before = _Before(handle, datasets)
    try:
        plans = _plans(handle)
        followers = {one for each in datasets for one in each._followers}
        places = on_all(group, "refresh", lambda: [(one, one.place_after_growth()) for one in followers if one.plan in plans])
        carried = on_all(group, "refresh: states", lambda: [(plan, plan.carried()) for plan in plans])
        several = not isinstance(wanted, str)
        given = [wanted] if isinstance(wanted, str) else wanted
        handle.swap(newer)
        handle.directories, handle.counted, handle.shards = look_around(group, newer, given, options["shards"], several)
        for one in datasets:
            one._forget()
        on_all(group, "refresh", lambda: _grow(datasets, before.store.sources(), newer.sources()))
        made = _remade(group, carried)
    except BaseException:
        before.restore()
        newer.close(1)
        raise
    for plan, core in made:
        plan.replace_core(core)
    for follower in followers:
        follower.end_iterations(_WHY)
    for follower, place in places:
        follower.begin_at(*place)
    before.store.close()
    return True


def _plans(handle: Handle) -> list[Plan]:
    """Return the plans that are alive, in the order in which they were made."""
    handle.plans = [one for one in handle.plans if one() is not None]
    return [plan for plan in (one() for one in handle.plans) if plan is not None]


def _grow(datasets: list[Any], before: Sequence[Source], after: Sequence[Source]) -> None:
    """Keep the samples of selections, and give each part of a split the new samples that belong to it."""
    done: set[int] = set()
    for one in datasets:
        if one._chosen is not None and one._split_of is None:
            one._chosen = _moved(one._chosen, before, after)
    for one in datasets:
        _grow_one(one, done, {})


def _moved(chosen: Any, before: Sequence[Source], after: Sequence[Source]) -> Any:
    """Return the ids that samples have now. Those of a dataset move when one before it has grown."""
    import numpy
    first = numpy.array([source[3] for source in before], numpy.int64)
    now = numpy.array([source[3] for source in after], numpy.int64)
    if numpy.array_equal(first, now):
        return chosen
    # of datasets without samples, the last one has the id
    number = numpy.searchsorted(first, chosen, side="right") - 1
    return (chosen + (now - first)[number]).astype(numpy.uint32)


def _grow_one(dataset: Any, done: set[int], parts: dict[Any, Any]) -> None:
    split = dataset._split_of
    if split is None or id(dataset) in done:
        return
    done.add(id(dataset))
    _grow_one(split.whole, done, parts)
    dataset._chosen = split.whole.select(split.part_of() == split.number)._chosen


def _remade(group: Group, plans: list[tuple[Plan, str | None]]) -> list[tuple[Plan, _core.Plan]]:
    """Make the core of each plan of the larger dataset. Ranks may hold other plans: those that all have are made together."""
    numbers = {plan.number for plan, _ in plans}
    if group.world > 1:
        for theirs in group.allgather("refresh: plans", json.dumps(sorted(numbers)).encode()):
            numbers &= set(json.loads(theirs))
    made = [(plan, _made_again(plan, carried, shared=True)) for plan, carried in plans if plan.number in numbers]
    # The others are made by this rank alone. If one fails, so does the refresh of all ranks.
    return made + on_all(group, "refresh: plans made", lambda: [
        (plan, _made_again(plan, carried, shared=False)) for plan, carried in plans if plan.number not in numbers])


def _made_again(plan: Plan, carried: str | None, *, shared: bool) -> _core.Plan:
    dataset: Any = plan.dataset
    core: _core.Plan = dataset.core_like(plan, shared=shared)
    if carried is not None:
        there = json.loads(carried)
        core.know_earlier([(1, there["samples"], there["dataset"])])  # it is of the generation that is left
        core.resume(carried)
        core.know_earlier(dataset.store.earlier())
    return core


class SplitOf:
    """How a part of a split was chosen."""

    def __init__(self, whole: Any, asked: tuple[Any, int, str | None], number: int) -> None:
        self.whole, self._asked, self.number = whole, asked, number

    def part_of(self) -> Any:
        """Return the number of each sample's part."""
        import numpy
        return self.whole.chosen(numpy.frombuffer(self.whole.store.split(*self._asked), numpy.uint16))

