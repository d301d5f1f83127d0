# SPDX-License-Identifier: Apache-2.0
"""Plans and their samplers: which samples form which batch, at which step, on which rank."""
from __future__ import annotations

import contextlib
import dataclasses
import json
import operator
import os
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import _core
from .._batching.batch import live
from .._batching.limits import rule_of
from .._batching.protocols import Samples
from .._distributed.collectives import together
from .._schema.completion import hides
from .._schema.types import as_array
from ..errors import ArgumentError, DataError, StateError
from .mixture import weights_of
from .options import core_options
from .reading import changing
from .sampler import PlanSampler

if TYPE_CHECKING:
    import numpy

STATE_VERSION = 1


class Epoch:
    """One epoch of a plan."""

    def __init__(self, plan: Plan, number: int, all_steps: bool = False) -> None:
        self.plan, self.number = plan, number
        self.all_steps = all_steps  # includes skipped steps

    def batches(self, rank: int | None = None, first: int = 0,
                last: int | None = None) -> tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]:
        """Return the batches of a rank at steps first..last: (indptr int64[n + 1], indices uint32[...]).

        Batch i is indices[indptr[i]:indptr[i + 1]]. rank: this one if None; -1 for all, step-major. Skipped steps are left out."""
        core, number, parts = self.plan.core, self.plan.rank if rank is None else rank, []
        for begin, end in self._kept(first, last):
            bounds, ids = core.batches(self.number, number, begin, end)
            parts.append((as_array(bounds, "int64"), as_array(ids, "uint32")))
        if len(parts) == 1:
            return parts[0]
        import numpy
        sizes = [numpy.diff(bounds) for bounds, _ in parts]
        indptr = numpy.concatenate([numpy.zeros(1, "int64"), *sizes]).cumsum()
        return indptr, numpy.concatenate([ids for _, ids in parts] or [numpy.zeros(0, "uint32")])

    def _kept(self, first: int, last: int | None) -> list[tuple[int, int | None]]:
        """Return the ranges of first..last that are not skipped; one range if nothing is skipped there."""
        core, steps = self.plan.core, self.plan.core.steps(self.number)
        if not core.skipped(self.number, steps) or self.all_steps:
            return [(first, last)]
        kept: list[tuple[int, int | None]] = []
        begin, last = first, min(steps, steps if last is None else last)
        while (begin := core.next_step(self.number, begin)) < last:
            end = begin + 1
            while end < last and core.next_step(self.number, end) == end:
                end += 1
            kept.append((begin, end))
            begin = end
        return kept

    def pieces(self, rank: int | None = None, first: int = 0, last: int | None = None) -> numpy.ndarray[Any, Any]:
        """Return which indices of batches() are pieces of their samples (too_long="split"): uint32[n, 3].

        Each row is (place among the indices, first item, number of items). Indices without a row are whole samples."""
        import numpy
        number, parts, before = self.plan.rank if rank is None else rank, [numpy.zeros((0, 3), "uint32")], 0
        stretches = self._kept(first, last)
        for begin, end in stretches:
            made = as_array(self.plan.core.pieces(self.number, number, begin, end), "uint32").reshape(-1, 3)
            if before:
                made = made + numpy.array([before, 0, 0], "uint32")
            parts.append(made)
            if len(stretches) > 1:
                before += len(self.plan.core.batches(self.number, number, begin, end)[1]) // 4
        return parts[1] if len(parts) == 2 else numpy.concatenate(parts)

    def __len__(self) -> int:
        return self.plan.core.steps(self.number)


@hides("asked", "carried", "changes", "check_dataset", "core", "follow", "lengths_of", "number", "parts", "replace_core", "rule",
       "samples_there", "skips", "step_sum", "step_tokens", "token", "digests")
class Plan:
    """A plan of batches, made by `Dataset.plan`: equal steps on every rank, no empty batch, each sample once an epoch.

    Attributes: steps (of an epoch), world and rank (which it plans for), hash (of the dataset and all options), options.
    """

    def __init__(self, dataset: Samples, core: _core.Plan, rank: int, options: dict[str, Any]) -> None:
        self.dataset, self.core, self.rank = dataset, core, rank
        self.options = {name: value for name, value in options.items() if value}
        self._asked = dict(options)
        self._resumed: dict[str, Any] | None = None  # the state that was resumed last
        self._at = (0, 0)  # epoch and step of that state
        self._over: tuple[Any, str] | None = None  # lengths and id, if the plan was pickled or copied
        self.rule = dataclasses.replace(rule_of(core_options(self.options)), unit=dataset.length_unit)
        self.world = core.world
        self.steps = self.steps_of(0)
        self.skips = "skip" in self.options or core.has_absent  # some steps may be skipped, or left out
        self.changes = 0  # count of changes; iterations read the steps again after one
        self._stages: dict[tuple[int, int], Sequence[Any]] = {}  # stages of a curriculum by place, without those that a remix replaced
        self.asked: Any = None  # what `Dataset.plan` was asked for, and
        self.number = 0  # its place among the plans that ranks made together
        self._checked: weakref.ref[Samples] | None = None  # the last dataset that passed check_dataset
        self.digests: tuple[int, Any, tuple[int, int]] | None = None  # see reading.py; and what they were made of
        self.token = int.from_bytes(os.urandom(8), "little") >> 2  # random, so that a saved batch finds no other plan
        live[self.token] = self

    @property
    def hash(self) -> str:
        """Return a digest that is equal for plans with the same batches.

        It covers dataset, options, seed, planner version, skipped steps and changes of weights, but no epoch. skip() and remix() change it.
        """
        import hashlib
        whole = json.loads(self.core.state(0, 0))
        whole.pop("epoch", None), whole.pop("segments", None)
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:32]

    def check_dataset(self, dataset: Samples) -> None:
        """Raise ArgumentError if this is not the plan of `dataset`. One over lengths alone fits any whole dataset of that size."""
        if self._checked is not None and self._checked() is dataset:
            return
        mine, there = self.dataset, len(dataset)
        if not mine.id:
            planned = len(mine.all_lengths)
            if dataset.is_selection:
                raise ArgumentError(f"plan: it is over {planned} lengths alone, and this dataset is a selection of {there} samples; "
                                    "use ds.plan")
            if planned != there:
                raise ArgumentError(f"plan: it is over {planned} lengths, and this dataset has {there} samples")
        elif mine.id != dataset.id:
            raise ArgumentError(f"plan: it was made for dataset {mine.id}, and this is {dataset.id}; make one with ds.plan")
        elif (mine.is_selection or dataset.is_selection) and mine is not dataset:
            import numpy
            if not numpy.array_equal(mine.sorted_ids, dataset.sorted_ids):
                raise ArgumentError(f"plan: it is of {len(mine)} of the dataset's samples, and this is a selection of others, "
                                    f"{there} in all; use the plan() of the selection that is read")
        self._checked = weakref.ref(dataset)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle or copy: over the same lengths (4 bytes a sample), of the same dataset, at the state that was resumed."""
        lengths, name = self._over or self.dataset.planned_lengths()
        if self.core.has_absent:  # the dataset shows them without their lengths
            lengths = as_array(self.core.lengths, "uint32")
        state = self.state(*self._at) if self.changes else self._resumed
        return _remade, (self.dataset, lengths, name, self.rank, self._asked, state, self.hash, self.core.mix,
                         self.core.balance, self.steps, list(self._stages.values()), self.core.absent)

    @property
    def samples_there(self) -> int:
        """Return the number of samples of the whole dataset, planned or not."""
        return len(self.dataset.all_lengths if self._over is None else self._over[0])

    def lengths_of(self, ids: Any) -> Any:
        """Return the whole lengths of samples by id (uint32), also in a process without the dataset's index."""
        return (self.dataset.all_lengths if self._over is None else self._over[0])[ids]

    def epoch(self, number: int) -> Epoch:
        """Return an epoch's batches."""
        return Epoch(self, number)

    @property
    def varies(self) -> bool:
        """Return True if epochs may differ in steps: with steps "per_epoch", a mix, samples or weights, or skipped steps."""
        return self.options.get("steps") == "per_epoch" or self.core.mix is not None or self.skips

    def steps_of(self, epoch: int) -> int:
        """Return how many batches each rank has in an epoch, without skipped ones. It is `steps` unless `varies`, or other ranks began it.
        """
        steps = self.core.steps(epoch)
        return steps - self.core.skipped(epoch, steps)

    def report(self, epoch: int = 0) -> dict[str, Any]:
        """Return figures of an epoch's plan, as a dict.

        - samples, dropped, repeated, truncated, steps, batches, tokens, padded_tokens, tokens_per_step, digest
        - largest_batch (padded tokens): size GPU memory by it. It is at largest_batch_step on largest_batch_rank.
        - smallest_batch (padded tokens); median_batch and p95_batch: padded tokens that half, or 95 %, of the batches do not exceed;
          least_largest_of_ranks, least_largest_of_steps: each rank (step) has a largest batch, and this is the smallest of these
        - efficiency: tokens / padded tokens
        - balance: mean over steps of mean cost / largest cost over ranks; token_balance: the same for sums of lengths; lost: the share of
          all ranks' time spent waiting for the costliest rank, if time is as cost
        - bins and fill (tokens / (bins x capacity)) of "pack", else 0; pieces: how many of the samples are pieces of longer ones

        With mix, samples or weights, repeated counts draws of samples that the epoch had before. sources then has for each source: share
        (planned, of all draws), samples (that can be drawn), draws, distinct, repeats, tokens and deviation (the most that its share of any
        100 steps differs from its share of the epoch, 0 to 1); deviation is the largest of these."""
        found = self.core.report(epoch)
        if self.core.mix is not None:
            found["sources"] = self.core.sources(epoch)
            found["deviation"] = max(one["deviation"] for one in found["sources"].values())
        return found

    def bins(self, epoch: int, step: int, rank: int | None = None) -> list[list[int]]:
        """Return the sample ids of each bin of a batch. StateError unless the strategy is "pack". rank: this one if None."""
        rank = self.rank if rank is None else rank
        ids, edges = self.core.batch(epoch, step, rank), as_array(self.core.bins(epoch, step, rank), "int64").tolist()
        return [ids[begin:end] for begin, end in zip(edges, edges[1:])]

    def samples(self, epoch: int, step: int, *, pieces: bool = False) -> list[list[Any]]:
        """Return what each rank has at a step: one list of sample ids a rank.

        With `pieces`, lists of (id, start, count): the items of the sample that it has, all unless too_long="split" cut it. For a skipped
        step, what it would have."""
        bounds, ids = Epoch(self, epoch, all_steps=True).batches(-1, step, step + 1)
        found: list[Any] = ids.tolist()
        if pieces:
            parts = self.parts(epoch, step, step + 1, all_steps=True)
            found = list(zip(found, parts[:, 0].tolist(), parts[:, 1].tolist(), strict=True))
        return [found[begin:end] for begin, end in zip(bounds[:-1], bounds[1:])]

    def parts(self, epoch: int, first: int, last: int, all_steps: bool = False) -> Any:
        """Return (start, count) of each sample of all ranks, step-major (int64[n, 2]). all_steps: include steps that are skipped."""
        import numpy
        asked = Epoch(self, epoch, all_steps)
        _, ids = asked.batches(-1, first, last)
        lengths = self.lengths_of(ids).astype("int64")
        found = numpy.stack([numpy.zeros_like(lengths), lengths.clip(max=self.rule.cut) if self.rule.cut else lengths], axis=1)
        pieces = asked.pieces(-1, first, last)
        found[pieces[:, 0]] = pieces[:, 1:]
        return found

    @property
    def micro_batches(self) -> int:
        """Return how many batches of a rank make one optimizer step."""
        return int(self.options.get("micro_batches", 1))

    def step_tokens(self, epoch: int, step: int, *, cut: int = 0) -> int:
        """Return the sum of lengths of the optimizer step that batch `step` belongs to, over all ranks.

        For a skipped step, what it would be. cut: samples are also cut to this many items; 0 for no cut."""
        first = step // self.micro_batches * self.micro_batches
        counts = self.parts(epoch, first, min(first + self.micro_batches, self.core.steps(epoch)), all_steps=True)[:, 1]
        return int((counts.clip(max=cut) if cut else counts).sum())

    def step_sum(self, column: str, epoch: int, step: int, *, accumulate: int | None = None, cut: int = 0,
                 dataset: Samples | None = None) -> int | float:
        """Return the sum of an index column over the batches of a step on all ranks, from the index, without communication.

        accumulate: sum over this many steps, those of one optimizer step (0-3, 4-7, ... for 4). Skipped steps do not count; for a skipped
            step the sum is as if none were. Default: the plan's micro_batches.
        cut: samples are cut to this many items; 0 for no cut. Default: 0.
        dataset: whose index to use for a plan over lengths alone. Default: the plan's.

        The column that lengths count gives the sum of lengths, of pieces and cut samples too.

        Raises ArgumentError if another column is not in the index; DataError if a sample is cut, because the index has the sum over all of
        it, unless all its pieces are in these batches; StateError if the plan is over lengths alone and there is no dataset.
        """
        asked = self.dataset if self.dataset.id else dataset
        if asked is None:
            raise StateError("global_sum: this plan is over lengths alone, and the batch does not know its dataset; use ds.plan")
        accumulate = self.micro_batches if accumulate is None else accumulate
        if accumulate < 1:
            raise ArgumentError(f"accumulate: {accumulate}; it must be at least 1")
        steps = Epoch(self, epoch, all_steps=self._is_skipped(epoch, step))
        first, last = self._accumulated(epoch, step, accumulate)
        if column == asked.length_column and (not cut or cut == self.rule.cut or asked.lengths_are_items):
            counts = self.parts(epoch, first, last, steps.all_steps)[:, 1]
            return int((counts.clip(max=cut) if cut else counts).sum())
        _, ids = steps.batches(-1, first, last)
        if self.rule.split:
            ids = self._joined(column, steps, first, last, ids)
        if cut and cut != self.rule.cut and not asked.lengths_are_items:
            raise DataError(f"global_sum: the layout cuts samples to {cut} items, and lengths count something else, so the "
                            'index does not tell which are cut; use the plan\'s max_length with too_long="drop", or cut in '
                            "build(map=...)")
        return sum_of(asked, column, ids, min((cap for cap in (cut, self.rule.cut) if cap), default=0))

    def _accumulated(self, epoch: int, step: int, accumulate: int) -> tuple[int, int]:
        """Return the range of steps of `step`'s optimizer step of `accumulate` delivered steps. If `step` is skipped, all count."""
        steps = self.core.steps(epoch)
        if not self.core.skipped(epoch, steps) or self._is_skipped(epoch, step):
            first = step // accumulate * accumulate
            return first, min(first + accumulate, steps)
        kept = [one for one in range(steps) if self.core.next_step(epoch, one) == one]
        place = (step - self.core.skipped(epoch, step)) // accumulate * accumulate
        return kept[place], kept[min(place + accumulate, len(kept)) - 1] + 1

    def _is_skipped(self, epoch: int, step: int) -> bool:
        return self.core.next_step(epoch, step) != step

    def skip(self, epoch: int, first: int, last: int) -> None:
        """Skip steps: no loader or sampler yields them. Collective if the plan is of a dataset.

        Other steps keep their numbers and samples. Samples of skipped steps count as used, also for other ranks that resume in that epoch.
        States hold the skips; a plan that resumes one skips what either of them skips. In an epoch that other ranks began, steps count from
        where these ranks resumed. A loader or sampler that is in the epoch sees the skip at its next step; then call it after the same step
        on all ranks.

        epoch: int, at least 0. Which epoch.
        first: int, at least 0. The first step to skip.
        last: int, at least `first`. The last step to skip. With micro_batches, both ends are those of optimizer steps.

        Raises ArgumentError on all ranks if they differ, or if the epoch has no such steps; StateError if states have no room for it (256
        ranges, 6,144 bytes with the changes of a mix).
        """
        group = getattr(self.dataset, "group", None)
        if group is not None and group.world > 1:
            with changing(self, group, "skip", (epoch, first)):
                gathered = together(group, "skip", lambda: [operator.index(number) for number in (epoch, first, last)])
            for rank, other in enumerate(gathered):
                if other != gathered[0]:
                    raise ArgumentError(f"skip differs: rank 0 has {tuple(gathered[0])}, rank {rank} has {tuple(other)}; "
                                        "give all ranks the same")
        self.core.skip(epoch, first, last)
        self.skips = True
        self._note_change()

    def remix(self, mix: Mapping[Any, float], *, at: tuple[int, int]) -> None:
        """Change the weights of sources from a step on. Collective if the plan is of a dataset.

        The rest of that epoch is its draws minus those before the step, at the new weights; samples that were drawn least come first. Later
        epochs use the new weights throughout. Steps keep counting, their number may change, and states hold the change. The max_length of a
        curriculum's stage stays. A loader or sampler that is in the epoch sees it at its next step, so `at` must be a step that it has not
        reached; `loader.remix` uses its next one.

        mix: dict of name and weight. Names as for Dataset.plan. A source that it does not name is no longer drawn.
        at: (epoch, step). The first step of the new weights.

        Raises ArgumentError on all ranks if they differ in mix or step, or if the epoch ends before the step; StateError if the plan has
        no sources, or if states have no room for another change (64 changes, 6,144 bytes, which one change of about 300 sources takes).
        A plan over lengths alone has no group, so it cannot check that ranks make the same change.
        """
        if self.core.mix is None:
            raise StateError("remix: the plan has no sources; make it with mix=")
        names: list[str] = self.core.mix[0]

        def asked() -> list[Any]:
            weights_of(mix, names, "remix")
            epoch, step = at
            return [{str(name): float(weight) for name, weight in mix.items()}, operator.index(epoch), operator.index(step)]

        group = getattr(self.dataset, "group", None)
        if group is not None and group.world > 1:
            with changing(self, group, "remix", at):
                gathered = together(group, "remix", asked)
            for rank, other in enumerate(gathered):
                if other != gathered[0]:
                    shown = [f"{one[0]} at epoch {one[1]}, step {one[2]}" for one in (gathered[0], other)]
                    raise ArgumentError(f"remix differs: rank 0 has {shown[0]}, rank {rank} has {shown[1]}")
        _, epoch, step = asked()
        number, longest = self._place_of(epoch, step)
        self.core.change(epoch, step, weights_of(mix, names, "remix"), longest)
        self._stages.pop((epoch, number), None)
        self._note_change()

    def _place_of(self, epoch: int, step: int) -> tuple[int, int]:
        """Return a step's number, counted over all ranks that were in the epoch before, and the max_length that a curriculum set there (0:
        none)."""
        state, longest = json.loads(self.core.state(epoch, 0)), 0
        number = step + sum(steps for _, steps in state["segments"][:-1])
        for of, since, most, _ in state.get("changes", ()):
            longest = most if (of, since) <= (epoch, number) else longest
        return number, longest

    def follow(self, stages: Sequence[Sequence[Any]]) -> None:
        """Apply the changes of a curriculum, in the order of their steps; see mixing.stages_of."""
        for epoch, step, weights, longest in stages:
            self._stages[self.core.change(epoch, step, weights, longest)] = epoch, step, weights, longest
        if stages:
            self._note_change()

    def _note_change(self) -> None:
        self.steps = self.steps_of(0)
        self.changes += 1

    def _joined(self, column: str, steps: Epoch, first: int, last: int, ids: Any) -> Any:
        """Return the ids with one entry for all pieces of a sample. DataError if some pieces are missing."""
        import numpy
        parts, pieces = self.parts(steps.number, first, last, steps.all_steps), steps.pieces(-1, first, last)
        is_piece = numpy.zeros(len(ids), bool)
        is_piece[pieces[:, 0]] = True
        cut, numbers = numpy.unique(ids[is_piece], return_inverse=True)
        here = numpy.bincount(numbers, parts[is_piece, 1], len(cut)) if len(cut) else numpy.zeros(0)
        lengths = self.lengths_of(cut)
        if (here != lengths).any():
            place = int((here != lengths).argmax())
            raise DataError(f'global_sum: sample {int(cut[place])} has {int(lengths[place])} items and {int(here[place])} of them are '
                            f'in these batches, but "{column}" counts all of them; use global_tokens for a sum of lengths, too_long="drop"'
                            ", or split in build(map=...)")
        return numpy.concatenate([ids[~is_piece], cut])

    def sampler(self, view: str = "rank") -> PlanSampler:
        """Return a batch sampler.

        view: "rank" yields this rank's batches; "global" yields those of all ranks, step-major and rank-minor, for loaders that give batch
            i to rank i % world themselves, as Accelerate's prepare does. Default: "rank".
        """
        return PlanSampler(self, view)

    def state(self, epoch: int, step: int) -> dict[str, Any]:
        """Return the state of a job before step `step` of `epoch`: JSON-able, equal on all ranks."""
        return {"version": STATE_VERSION, "epoch": epoch, "step": step, "plan": self.core.state(epoch, step)}

    def resume(self, state: dict[str, Any]) -> tuple[int, int]:
        """Apply a state, also of another number of ranks. Return the (epoch, step) to go on from. StateError names what differs."""
        if not isinstance(state, dict) or state.get("version") != STATE_VERSION or \
                not isinstance(state.get("plan"), str):
            raise StateError(f"state: {str(state)[:80]!r} is not a state of Rankstore (version {STATE_VERSION})")
        self._know_earlier(state["plan"])
        found: tuple[int, int] = self.core.resume(state["plan"])
        self._resumed, self._at = state, found
        self.skips = self.skips or '"skip": [' in state["plan"]
        return found

    def _know_earlier(self, state: str) -> None:
        """Tell the core which selection of an earlier generation is this plan's. It knows those of whole datasets."""
        earlier = getattr(self.dataset, "earlier_selection", None)
        if earlier is None or not self.dataset.is_selection:
            return
        with contextlib.suppress(ValueError, AttributeError):
            self.core.know_earlier(earlier(json.loads(state).get("samples")))

    def replace_core(self, core: _core.Plan) -> None:
        """Go on with the core of a later generation, which has the changes and skips of this one's."""
        live.pop(self.token, None)
        self.token = int.from_bytes(os.urandom(8), "little") >> 2  # batches of the generation before find no plan
        live[self.token] = self
        self.core, self._resumed, self._at, self._over, self._checked, self.digests = core, None, (0, 0), None, None, None
        self._note_change()

    def carried(self) -> str | None:
        """Return a state, at the beginning of an epoch, with the changes and skips of this plan; None if it has none."""
        if not self.skips and self.core.mix is None:
            return None
        text: str = self.core.state(self._at[0] + 1, 0)
        return text if any(name in json.loads(text) for name in ("changes", "skip")) else None

    def _repr_html_(self) -> str:
        """Return options, efficiency and balance of epoch 0, and a histogram of this rank's batches, for notebooks."""
        from .._schema import html_repr
        return html_repr.of_plan(self)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"<rankstore.Plan {shown}: {self.steps} steps on {self.world} ranks>"


def _remade(dataset: Samples, lengths: Any, name: str, rank: int, options: dict[str, Any], resumed: dict[str, Any] | None,
            digest: str, mix: tuple[Any, ...] | None = None, balance: Any = None, steps: int | None = None,
            stages: Sequence[Sequence[Any]] = (), absent: bytes = b"") -> Plan:
    """Return the plan that Plan.__reduce__ pickled. StateError if it differs, as after another version of Rankstore."""
    given = {**core_options(options), **({"dataset": name} if name else {})}
    made = Plan(dataset, _core.Plan(lengths, mix=mix, balance=balance, absent=absent, **given), rank, options)
    made._over = lengths, name
    try:
        made.follow(stages)  # a state does not record which stages keep the weights before them
        if resumed is not None:
            made.resume(resumed)
    except (ArgumentError, StateError):
        if not stages:
            raise
        # A remix moved a stage, so that its place differs here: the state alone describes all batches.
        return _remade(dataset, lengths, name, rank, options, resumed, digest, mix, balance, steps, absent=absent)
    made.steps = made.steps if steps is None else steps
    if made.hash != digest:
        raise StateError("plan: this copy has other batches than its original; make it by ds.plan in the process that needs it")
    return made


def sum_of(dataset: Samples, column: str, ids: Any, cut: int) -> int | float:
    """Return the sum of an index column over samples. DataError if one of them is longer than `cut` (0: none is cut)."""
    values = dataset.index_of(column)
    if values is None:
        raise ArgumentError(f'global_sum: "{column}" is not an index column; build it with index=["{column}"], or with '
                            f'count={{"{column}": ("labels", "!=", -100)}}')
    lengths = dataset.all_lengths[ids]
    if cut and (lengths > cut).any():
        place = int((lengths > cut).argmax())
        raise DataError(f'global_sum: sample {int(ids[place])} has {int(lengths[place])} items and is cut to {cut}, but '
                        f'"{column}" counts all of them; use too_long="drop" or "alone", or cut in build(map=...)')
    total = values[ids].sum(dtype="int64" if values.dtype.kind in "biu" else "float64")
    return int(total) if values.dtype.kind in "biu" else float(total)
