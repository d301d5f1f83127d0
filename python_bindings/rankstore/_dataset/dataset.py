# SPDX-License-Identifier: Apache-2.0
"""An open dataset: its samples (reader.py), selections of them, and their batches (torch_items.py has those of torch's DataLoader)."""
from __future__ import annotations

import functools
import json
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from .. import _core
from .._batching.batch import Batch
from .._batching.layouts import Layout
from .._batching.limits import Rule
from .._distributed.collectives import together
from .._distributed.group import Group
from .._loader.decoding import decoder_of
from .._loader.loader import Loader
from .._loader.options import LoaderOptions, names_dataloaders
from .._loader.sample_map import how_to_draw
from .._loader.user_functions import Own
from .._plan.mixture import Groups, core_mix, groups_of, stages_of
from .._plan.options import names_synonyms, plan_rank
from .._plan.plan import Plan
from .._plan.sampler import PlanBatch
from .._schema.completion import hides
from ..errors import ArgumentError, StateError
from .index import Index, Keys
from .indexing import places_of
from .plan_asked import PlanAsked
from .reader import WorkerGroup
from .refresh import SplitOf, refresh
from .torch_items import TorchItems
from .windows import Windows
from .worker_messages import WorkerStoreSpec
from .worker_store import Handle, WorkerStore

if TYPE_CHECKING:
    from types import TracebackType


Made = TypeVar("Made")


@hides("all_lengths", "chosen", "collate_ids", "collator", "core_like", "earlier_selection", "follow_epoch", "functions", "given",
       "has_repeats", "index_of", "is_checked", "is_selection", "is_worker", "lacks_samples", "length_shown", "lengths_are_items",
       "mix_option", "planned_lengths", "shards_given", "sorted_ids", "source_number", "store", "torch_memory")
class Dataset(TorchItems):
    """The samples 0 to len - 1 of an open dataset, the same on every rank, each read when you ask for it.

    - ds[i] is a dict of columns: numpy arrays that own their memory, numbers, str, bytes. ds[[...]] is a list of such dicts, chosen by
      places or by a mask of one bool a sample (IndexError if it has another size).
    - ds.get(key) finds a sample by key, ds.view(i) reads one without a copy, ds.select(mask or places) chooses some.
    - ds.lengths (uint32[len], shared by the node), ds.keys, ds.index["duration"], ds.schema, ds.owner(i) and ds.stats() describe them.
    - ds.plan(...) and ds.loader(...) make batches.

    Close it on all ranks, or use it as a context manager."""

    def __init__(self, handle: Handle, directory: str, group: Group | WorkerGroup) -> None:
        super().__init__(handle, directory, group)
        self.report: Any = None
        self.given: tuple[str, ...] = ()  # the directories as passed to `open`, and
        self.shards_given: tuple[str, ...] = ()  # its `shards`
        self._unmapped: Dataset | None = None  # the same samples without them
        self._split_of: SplitOf | None = None  # the split that this is a part of

    def _like(self) -> Dataset:
        """Return another dataset over the same open store."""
        made = Dataset(self._handle, self.directory, self.group)
        made.report, made._chosen, made.torch_memory = self.report, self._chosen, self.torch_memory
        made.given, made.shards_given = self.given, self.shards_given
        made._collator, made._is_collating = self._collator, self._is_collating
        made._set_functions(self.functions)
        made._epoch, made._split_of = self._epoch, self._split_of
        return made

    def _forget(self) -> None:
        """Forget what depends on the generation: the store is another one now."""
        self._rows = None
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None
        for name in ("sources", "_order", "length_column", "lengths_are_items"):
            self.__dict__.pop(name, None)

    def refresh(self) -> bool:
        """Go on with the newest generation of a dataset that grows (collective: call it on every rank, between two epochs).

        The newest one is the newest that all ranks see. This dataset and all that was made of it have the new samples after those that
        they had: plans are made anew, so the next epoch of each loader and sampler has them too, and DataLoader's workers, persistent
        ones as well, read them. Sample ids stay, selections stay as they are, and parts of `split` get the new samples that belong to
        them. If the dataset was opened as "DIR@2", this is the newest generation of DIR.

        What you hold (samples, views, batches, tensors) stays valid. A loop over a loader that is not at its end is over: its next step
        raises StateError. An epoch that was left early begins again. States: one at the end of an epoch passes to a later generation, by
        load_state_dict, too; one within an epoch belongs to its generation, and StateError names it.

        `open`'s options hold, and so do its rules for missing shards and quarantine lists. If the refresh fails, everything stays as it
        was, on all ranks.

        Returns True if there is a later generation, False if nothing changed.
        Raises StateError if the directory now holds a dataset that did not grow out of this one, or if a loader has a state within an epoch
        loaded; ArgumentError if a plan has weights= or balance= with a number for each sample: give a function of the dataset, or make a
        new plan after closing the old one's loaders; DataError if a plan cannot be made (a new sample is too long); what `open` raises.
        """
        if not isinstance(self.group, Group):
            raise StateError("refresh: call it in the process that opened the dataset; its workers follow")
        return refresh(self, self.group)

    def placement(self) -> dict[str, Any]:
        """Say where the shards lie (collective: call it on every rank), as a dict. `rankstore info --where` shows it of directories.

        - dataset, generation, home: the dataset's id; its home, or None if it has none or none is known
        - places: a list of dicts, one for each directory: node, host, directory, home (where its shards come from; None: they were built
          there, or moved), ranks, whole (shards), bytes
        - shards: a list of dicts: name, id, bytes, built ("HOST:DIRECTORY" of the build that made it, or None), places (a list of
          dicts: place, its number above, and bytes, how much is there; of a shard that still arrives a part)
        """
        if not isinstance(self.group, Group):
            raise StateError("placement: call it in the process that opened the dataset")
        found: dict[str, Any] = json.loads(self.store.placement())
        return found

    def _item(self, which: Any) -> Any:
        return self._planned(which) if isinstance(which, PlanBatch) else super()._item(which)

    @property
    def keys(self) -> Keys:
        """Return the keys, a sequence of bytes; each is read when you ask for it."""
        return Keys(self)

    @property
    def index(self) -> Index:
        """Return the index columns, a mapping of names to numpy arrays [len]."""
        return Index(self)

    # ---- selections

    def select(self, which: Any) -> Dataset:
        """Return a dataset of some samples, in the given order, each as often as it is given. Nothing is copied.

        which: list or array of places, or a boolean mask [len]. `ds.select([5, 2, 2])` has 3 samples: `ds[5]`, then `ds[2]` twice. A mask
            keeps the order of the dataset. The selection takes 4 bytes a sample.

        The order matters for `sel[i]`, iteration, `keys`, `lengths` and `windows`. Plans treat the samples as a set with repeats, so equal
        samples in another order make the same plan, and "sequential" goes by sample id. Sample ids (`ids`, `batch.ids`) stay those of
        the whole dataset.

        Raises IndexError for a place out of range, ArgumentError for anything that is neither places nor a mask.
        """
        made = self._like()
        made._split_of = None
        places = places_of(which, len(self))
        made._chosen = places if self._chosen is None else self._chosen[places]
        return made

    def windows(self, length: int, stride: int | None = None, *, random: int | None = None) -> Windows:
        """Return windows of `length` items over all samples laid end to end, as language models read tokens.

        length: int, at least 1. Items of a window.
        stride: int, at least 1. From one window's first item to the next one's. Default: length.
        random: int, a seed. Draw as many windows, each from a random item: the same on any number of ranks, others in each epoch. Default:
            none, windows stand in order.

        Returns Windows, a map-style dataset of arrays [length] with `batches(batch_size)`.
        Raises ArgumentError if lengths do not count the items of a column of numbers, or if the items are fewer than `length`.
        """
        return Windows(self, length, stride, random)

    def split(self, parts: Mapping[str, float], *, seed: int = 0, by: str | None = None) -> tuple[Dataset, ...]:
        """Split the samples into parts by the hash of their keys, one dataset a part, in the order of `parts`.

        `train, val = ds.split({"train": 0.98, "val": 0.02})`. Only the key, names, weights and seed decide: a sample keeps its part when
        the dataset grows, and the same key is in the same part in every dataset. Nothing is copied. Not collective.

        parts: dict of str to float, at least 0. Names and their relative shares; 0 makes an empty part.
        seed: int, at least 0. Another seed makes another split. Default: 0.
        by: str. A column whose equal values stay together, such as a speaker or a document; a missing value counts as a value. A column
            that is not in the index is read from every sample. Default: the key.

        Returns a tuple of Datasets.
        Raises ArgumentError naming the part or the column.
        """
        import numpy
        if isinstance(self.group, WorkerGroup):
            raise StateError("split: call it in the process that opened the dataset; a worker process only reads samples")
        if not isinstance(parts, Mapping) or not all(isinstance(name, str) for name in parts):
            raise ArgumentError('split: parts are a dict of names and weights, {"train": 0.98, "val": 0.02}')
        shares = tuple((name, float(weight)) for name, weight in parts.items())
        part_of = self.chosen(numpy.frombuffer(self.store.split(shares, seed, by), numpy.uint16))
        made = tuple(self.select(part_of == number) for number in range(len(shares)))
        for number, one in enumerate(made):
            one._split_of = SplitOf(self, (shares, seed, by), number)
        return made

    def map(self, function: Callable[..., Any]) -> Dataset:
        """Return this dataset with samples that a function changes: in `ds[i]`, iteration, loaders and a DataLoader. Nothing is copied.

        function: callable. function(sample) or function(sample, rng) -> sample, a dict of columns, which may be others, of other types and
            sizes. rng is a numpy.random.Generator, valid during the call; its numbers depend only on the plan's seed, the epoch and the
            sample's id, so they repeat on any number of ranks and after a resume. Outside of plans the seed is 0, and the epoch that of
            `set_epoch`, at first 0.

        Several calls are applied one after another, and `loader(map=)` after them. Plans, `lengths`, `schema`, `index`, `view` and
        `windows` are of what is stored, so a batch may be larger than its budget if the function makes samples longer. A layout's batches
        have what the function returns; loaders call it ahead, in `threads=` or `processes=`.

        Raises ArgumentError if it is not such a function. If it raises, that is a CallbackError with the sample's key.
        """
        if not callable(function):
            raise ArgumentError(f"map: a function of a sample, or of a sample and rng, not {type(function).__name__}")
        how_to_draw(function)
        made = self._like()
        made._set_functions((*self.functions, function))
        made._followers = self._followers  # a trainer that gets `made` sets the epoch of samplers of both
        return made

    def _set_functions(self, functions: tuple[Callable[..., Any], ...]) -> None:
        self.functions, self._unmapped = (), None
        if functions:
            self._unmapped, self.functions = self._like(), functions

    def _list(self, ids: list[int]) -> list[dict[str, Any]]:
        if not self.functions:
            return super()._list(ids)
        assert self._unmapped is not None
        found = self._unmapped._list(ids)
        return self._of_samples.mapped(found, ids, self._epoch, -1)

    @functools.cached_property
    def _of_samples(self) -> Own:
        return Own(self.collate, None, self, None, None, Rule(), 0)

    # ---- batches

    @names_synonyms
    def plan(self, strategy: str = "bucket", *, batch_size: int | None = None, max_tokens: int | str | None = None,
             cost: str | tuple[float, float] = "padded", max_length: int | str | None = None, too_long: str = "error",
             shuffle: bool = True, seed: int = 0, tail: str = "split", batch_multiple: int = 1, steps: str = "constant",
             world: int | None = None, rank: int | None = None, capacity: int | str | None = None,
             length_multiple: int | None = None, micro_batches: int = 1, mixed: bool = False, pack_window: int = 0,
             order: str = "plan", balance: Any = None,
             mix: Mapping[Any, float] | None = None, samples: int | None = None, mix_by: str | None = None,
             mix_unit: str = "samples", weights: Any = None,
             curriculum: Sequence[tuple[Any, Any, Any]] | None = None,
             skip: Sequence[tuple[int, int, int]] | None = None) -> Plan:
        """Plan batches: which samples form which batch, at which step, on which rank (collective: call it on every rank).

        strategy: str. "bucket" (similar lengths together, shuffled), "sorted" (longest first), "random", "sequential", or "pack" (bins of
            samples that together have at most `capacity` tokens). Default: "bucket".
        batch_size: int, at least 1. Most samples in a batch, or most bins with "pack". Default: 64 if max_tokens is not given, else
            unlimited; 1 for "pack".
        max_tokens: int or str, at least 1, in units of `length`; "16k" is 16,384. Limit for longest length x samples of a batch, padding
            included; with cost "tokens", for the sum of lengths. Default: unlimited.
        cost: str or tuple. What the budget and the balance over ranks count: "padded", "tokens", "quadratic" (padded for the budget,
            longest squared x samples for the balance, as attention costs), or (a, b) (padded for the budget, a L + b L^2 for the balance;
            transformer_cost derives it). "pack" sums it over the samples of a bin, and treats "padded" as "tokens". Default: "padded".
        max_length: int or str, at least 1. The longest sample that is planned unchanged. Default: max_tokens, or unlimited.
        too_long: str. What to do with longer samples: "error" (a DataError that names one), "drop", "alone" (in a batch of its own),
            "truncate" (to that length, by every layout) or "split" (into pieces of that length and one with the rest, which may be in
            different batches: `batch.pieces`). Only values with as many items as the sample is long are cut. Default: "error".
        shuffle: bool. Draw another order in each epoch. Default: True.
        seed: int, at least 0. Seed of everything random. Default: 0.
        tail: str. The last step's batches "split" what is left, "repeat" samples, or "drop" what is left. Default: "split".
        batch_multiple: int, at least 1. Batches hold a multiple of it if possible. Default: 1.
        steps: str. "constant" over all epochs, or "per_epoch" (only "random" with max_tokens: batches are filled, and their number varies).
            Default: "constant".
        world: int, at least 1. How many (data-parallel) ranks to plan for. Default: the group's.
        rank: int, from 0 to world - 1. The rank whose batches loaders and samplers yield. Default: the group's.
        capacity: int or str, from 1 to 2^24, in units of `length`. Size of a bin of "pack", which requires it. Default: none.
        length_multiple: int, from 1 to 65536. Round lengths up to it in budgets, bins and reports; Pad rounds its widths up to it. Default:
            1 for "pack" or cost="tokens"; otherwise gcd(8, max_tokens).
        micro_batches: int, from 1 to 65536. "pack": this many batches of each rank make one optimizer step, over which cost is even. Steps
            count batches, and states fall between optimizer steps. Default: 1.
        mixed: bool. "pack": an optimizer step combines any bins, not bins of similar cost. Default: False.
        pack_window: int, at least 0, in bins. "pack": each epoch draws another order and packs each stretch that fills this many bins on
            its own, so samples meet others even if no other sample is as long. It takes a few more bins, and up to 40 bytes a sample; 128
            fills bins to 99.7 % on chat lengths. Default: 0, all at once.
        order: str. Order of samples in a batch, or in a bin of "pack": "plan" (as the plan draws them) or "longest_first". Default: "plan".
        balance: dict, tuple, list of numbers or callable. What to balance over ranks instead of `cost`: a dict of index columns and
            weights, (a, b) for a L + b L^2, or a number for each sample, also by balance(ds), which a refresh calls again. A piece
            (too_long="split") costs its share of its sample's, by items. Default: by `cost`.
        mix: dict of name and weight. How many of an epoch's draws each source has: of N draws, a source with weight w has N w / (sum of
            weights), exact to one. Each of its samples occurs equally often, and a random part of them, another in each epoch, once more.
            Names are those of `sources` (rankstore.concat), or with mix_by the values of a column. A source that it does not name is not
            drawn. Default: each sample once.
        samples: int, at least 1. N, the draws of an epoch. Default: the fewest in which every sample of a source with a weight occurs;
            without a mix, all samples.
        mix_by: str. An index column with few distinct values, which become the sources. Default: the datasets of a concat.
        mix_unit: str. Weights count "samples" or "tokens" (the sum of lengths). Default: "samples".
        weights: array or callable. One number a sample, also by weights(ds), which a refresh calls again; not with mix. Integers say how
            often a sample occurs. Floats, which need samples=, are probabilities of any sum; each sample occurs its share of N times,
            rounded down or up at random. With a mix too, a draw of a sample that is split is a draw of each of its pieces. Default: none.
        curriculum: list of (from_step, mix, max_length). What to draw from a step on, as by Plan.remix. mix: as above, or None for the
            weights before. max_length: longer samples wait for a later stage; or None. from_step: (epoch, step), or an int, the steps since
            epoch 0 began, as counted by the ranks that began; a job that resumes on another number of ranks keeps the place in its state.
            If epochs differ in steps (max_tokens, pack), those before it are planned: ArgumentError if they have about 2^30 draws. A stage
            draws from what the epoch has left. Default: none.
        skip: list of (epoch, first, last). Steps to leave out, both ends included, as by Plan.skip; for example after a run whose loss
            jumped. Other steps keep their numbers and samples, and states hold the list. Default: none.

        With a mix or weights the number of steps may differ between epochs, never between ranks: call `plan.steps_of(epoch)`.

        Returns a Plan.
        Raises ArgumentError naming the option, or DataError if no plan exists, the same on all ranks.
        """
        if isinstance(self.group, WorkerGroup):
            raise StateError("plan: make it in the process that opened the dataset; a worker process only reads samples")
        planned = self.group.world if world is None else world
        given = {"strategy": strategy, "batch_size": batch_size, "max_tokens": max_tokens, "cost": cost, "max_length": max_length,
                 "too_long": too_long, "shuffle": shuffle, "seed": seed, "tail": tail, "batch_multiple": batch_multiple, "steps": steps,
                 "world": planned, "capacity": capacity, "length_multiple": length_multiple, "micro_batches": micro_batches, "mixed": mixed,
                 "pack_window": pack_window, "order": order, "skip": skip}
        drawing = {"mix": mix, "samples": samples, "mix_by": mix_by, "mix_unit": mix_unit, "weights": weights}
        asked = PlanAsked(given, drawing, balance, bool(curriculum))
        core, options, drawn = asked.core(self, shared=True)
        stages = [] if drawn is None else _agreed_stages(self.group, curriculum or (), drawn[0])
        # raised only now, when the other ranks are in the same call
        made = Plan(self, core, plan_rank(self.group.rank if rank is None else rank, planned), options)
        made.follow(stages)
        self._handle.note_plan(made, replace(asked, made_for=len(self)))
        return made

    def core_like(self, plan: Plan, *, shared: bool) -> _core.Plan:
        """Return the core of a plan like this one, of the dataset as it is now (collective if `shared`)."""
        asked: PlanAsked = plan.asked
        return asked.core(self, shared=shared)[0]

    def mix_option(self, mix: Mapping[Any, float] | None, samples: int | None, mix_by: str | None, mix_unit: str,
                    weights: Any, changes: bool) -> tuple[Any, ...] | None:
        """Return the mix for _core.Plan. A selection with repeated samples becomes one with counts."""
        if self.has_repeats:
            if mix is not None or samples is not None:
                raise ArgumentError("plan: the selection has samples more than once, so they have counts already; mix= and samples= "
                                    "need a selection without repeats")
            weights = [1] * len(self) if weights is None else weights
        sources = self.sources
        groups = Groups([one.name for one in sources], bounds=[0] + [one.first + one.samples for one in sources])
        if mix_by is not None:
            values = self.index_of(mix_by)
            if mix is None:
                raise ArgumentError("mix_by: names the column whose values are the sources of mix=; give mix= too")
            if values is None:
                raise ArgumentError(f'mix_by: "{mix_by}" is not an index column; build it with index=["{mix_by}"]')
            groups = groups_of(values, "mix_by")
        return core_mix(groups, mix=mix, samples=samples, mix_unit=mix_unit, weights=weights, count=len(self),
                        whole=self.store.count, chosen=self._chosen, changes=changes)

    def planned_lengths(self) -> tuple[Any, str]:
        """Return what a plan of this dataset is over: (uint32 by sample id, 0xFFFFFFFF for samples that are not chosen; the id)."""
        return (self.all_lengths, self.id) if self._chosen is None else (self._masked_lengths(), self._selection_id())

    def _masked_lengths(self) -> Any:
        """Return lengths by sample id. Samples that are not chosen have the length of an absent one, which no plan uses."""
        import numpy
        lengths = numpy.full(self.store.count, 0xFFFFFFFF, numpy.uint32)
        lengths[self._chosen] = self.lengths
        return lengths

    def earlier_selection(self, samples: Any) -> list[tuple[int, int, str]]:
        """Return (number, samples, id) of this selection in the generation that had so many samples; empty if none had."""
        if self.is_worker:
            return []
        ids = self._sorted()
        return [(number, count, _selection_id(whole, ids[ids < count]))
                for number, count, whole in self.store.earlier() if count == samples]

    def _selection_id(self) -> str:
        return _selection_id(self.id, self._sorted())

    def decode(self, columns: str | Mapping[str, str]) -> Dataset:
        """Return this dataset with images or audio as arrays: in `ds[i]`, iteration, loaders and a DataLoader. Stored bytes stay.

        columns: str or dict. "image" or "audio" for all columns of bytes, or one of them by column: {"jpg": "image"}.
            - "image": uint8[height, width, 3], RGB, by Pillow. Transparency and EXIF's orientation are dropped; an image of more than 8
              bits a channel is an error.
            - "audio": float32[frames, channels], from -1 to 1, by soundfile, and the int column NAME_rate, frames a second.

        It comes before all functions of `map`. Loaders decode ahead, in `threads=` or `processes=`, beside the copies to a device.

        Raises ArgumentError for another encoding, or a column that is not bytes; UnsupportedError if the package is missing. Bytes that
        cannot be decoded are a CallbackError with the sample's key.
        """
        made = self._like()
        made._set_functions((decoder_of(columns, self.schema, self.functions), *self.functions))
        made._followers = self._followers  # a trainer that gets `made` sets the epoch of samplers of both
        return made

    @overload
    def loader(self, plan: Plan, *, collate: Layout | None = None, transform: None = None,
               **options: Unpack[LoaderOptions]) -> Loader[Batch]: ...
    @overload
    def loader(self, plan: Plan, *, transform: Callable[[Any], Made], collate: Layout | Callable[[list[Any]], Any] | None = None,
               **options: Unpack[LoaderOptions]) -> Loader[Made]: ...
    @overload
    def loader(self, plan: Plan, *, collate: Callable[[list[Any]], dict[str, Any]], transform: None = None,
               **options: Unpack[LoaderOptions]) -> Loader[Batch]: ...
    @overload
    def loader(self, plan: Plan, *, collate: Callable[[list[Any]], Made], transform: None = None,
               **options: Unpack[LoaderOptions]) -> Loader[Made]: ...
    @names_dataloaders
    def loader(self, plan: Plan, *, collate: Layout | Callable[[list[Any]], Any] | None = None, map: Callable[..., Any] | None = None,
               columns: Sequence[str] | None = None, rename: Mapping[str, str] | None = None,
               transform: Callable[[Any], Any] | None = None, device: Any = None, prefetch_device: int = 2,
               pin_memory: bool | str = "auto", out: str = "torch", prefetch_batches: int | str = "auto",
               prefetch_bytes: int | str = "auto", threads: int = 1, processes: int = 0, start: dict[str, Any] | None = None,
               progress: bool = False, decode: str | Mapping[str, str] | None = None) -> Loader[Any]:
        """Return a loader of a plan's batches. Threads of the library fetch and collate them ahead, without worker processes.

        plan: Plan. It must be of this dataset (ArgumentError).
        collate: Layout or callable. Pad(), Pack(), Nested(), Lists(), or collate(samples): a function of a list of dicts as `ds[i]` returns
            them (arrays are writable), cut as the plan says, called ahead in threads. A dict that it returns becomes a Batch, anything else
            is yielded unchanged. If it raises, that is a CallbackError with step and keys. A layout that contradicts the plan is an
            ArgumentError that says what to change. Default: Lists().
        map: callable. map(sample) or map(sample, rng) -> sample, called ahead, after the fetch; see `Dataset.map`. If it raises, that is a
            CallbackError with epoch, step and the sample's key. With a layout, the layout's options name columns as the function returns
            them, and a value that no column holds is a DataError with the sample's key. Default: none.
        columns: list of str. The columns of a batch (ArgumentError for an unknown one). Default: all.
        rename: dict of str. New names of columns in a batch. Default: their own names.
        transform: callable. transform(batch), called ahead in threads of its own. Default: none.
        device: str or torch.device. Where to put tensors, such as "cuda"; ArgumentError if this process has no such device. They are copied
            on a stream of their own, beside the consumer's work; the consumer's stream waits for a copy that has not ended. Default: main
            memory.
        prefetch_device: int, at least 1. Batches to copy to the device ahead. They and the yielded one use its memory. Default: 2.
        pin_memory: bool or "auto". Pin the host memory of batches, and of what transform returns, in threads of its own. Default: "auto",
            if there is a GPU.
        out: str. "torch" or "numpy". Default: "torch".
        prefetch_batches: int, at least 1. Most batches to fetch ahead. Default: "auto", as many as prefetch_bytes hold.
        prefetch_bytes: int or str, in bytes. Memory of the batches fetched ahead; one batch is always allowed. The disk is read further
            ahead, up to 1,024 batches. Default: "auto", four batches within 1 GiB, or up to 64 within 2 MiB; with more than 64 ranks, as
            many batches as ranks, up to 512, with 32 KiB for each.
        threads: int, at least 1. Threads that call collate(samples), map and transform. They hold up to threads + 1 batches, within the
            bounds of prefetch. Default: 1.
        processes: int, at least 0. Worker processes that call map instead, for Python code that keeps other threads waiting; each has a
            thread of its own here. Batches are the same for any number. They begin with an iteration, by multiprocessing's start method,
            and end with it, at once if it ends early. One that dies is a CallbackError. Samples must be picklable. ArgumentError without a
            map. Default: 0, threads call it.
        start: dict. A state (`Loader.state_dict`) to resume from; StateError if it is another plan's. Default: none.
        progress: bool. Rank 0 draws a bar on stderr: steps, samples/s, tokens/s, and the share of time that the loop waited for batches.
            There is none without tqdm, or if stderr is not a terminal. Default: False.
        decode: str or dict. Columns of images or audio, as for `decode`, before map. Default: none.

        Returns a Loader: iterable, with a length. Not collective.
        """
        return Loader(self, plan, collate=collate, map=map, columns=columns, rename=rename, transform=transform, device=device,
                      prefetch_device=prefetch_device, pin_memory=pin_memory, out=out, prefetch_batches=prefetch_batches,
                      prefetch_bytes=prefetch_bytes, threads=threads, processes=processes, start=start, progress=progress, decode=decode)

    def follow_epoch(self, sampler: Any) -> None:
        """Pass `set_epoch` on to this sampler or loader as long as it lives."""
        self._followers.add(sampler)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of all samplers and loaders of this dataset, for trainers that know only the dataset, and of what `map` draws
        outside of plans."""
        self._epoch = operator.index(epoch)
        for follower in self._followers:
            follower.set_epoch(epoch)

    # ---- its end

    def close(self, timeout: float | None = None) -> None:
        """Close the dataset (collective): wait until all ranks have closed it.

        timeout: float, in seconds. Longest wait. Ranks that need longer are served until the group is closed. Default: the group's silence
            limit.

        May be called twice. Batches, views and arrays that you hold stay valid.
        """
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None
        self._handle.close(0 if timeout is None else max(1, int(timeout * 1000)))

    @property
    def closed(self) -> bool:
        """Return True once the dataset is closed."""
        return bool(self.store.closed)

    def __getstate__(self) -> dict[str, Any]:
        return {"spec": self._handle.spec(), "directory": self.directory, "chosen": self._chosen,
                "collator": self._collator, "is_collating": self._is_collating, "functions": self.functions, "epoch": self._epoch}

    def __setstate__(self, state: dict[str, Any]) -> None:
        spec: WorkerStoreSpec = state["spec"]
        handle = Handle(WorkerStore(spec), spec.directories, spec.rank, spec.world, spec.no_check, spec.names,
                        spec.columns, spec.counted, spec.index_dir, spec.shards)
        self.__init__(handle, state["directory"], WorkerGroup(spec.rank, spec.world))  # type: ignore[misc]
        self._chosen, self._collator, self._is_collating = state["chosen"], state["collator"], state["is_collating"]
        self._set_functions(state["functions"])
        self._epoch = state["epoch"]

    def __copy__(self) -> Dataset:
        """Return the same open dataset in this process: closing one closes both. (Unpickling opens it again, as a worker process does.)"""
        made = type(self).__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._ahead = None
        self._handle.datasets.add(made)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Dataset:
        return self.__copy__()

    def __enter__(self) -> Dataset:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close(None if kind is None else 0.001)

    @property
    def is_worker(self) -> bool:
        """Return True in a worker process, which reads samples for the process that opened the dataset and knows no lengths."""
        return self._handle.is_worker

    def _repr_html_(self) -> str:
        """Return columns, sizes and a histogram of lengths for notebooks."""
        from .._schema import html_repr
        return html_repr.of_dataset(self)

    def __repr__(self) -> str:
        if self.closed:
            return f"<rankstore.Dataset {self.directory!r}, closed>"
        columns = ", ".join(f"{name}: {column.text}" for name, column in self.schema.items())
        part = "" if self._chosen is None else f"{len(self)} of "
        size = "in a worker process" if self._handle.is_worker else f"{self.nbytes} bytes"
        if not self._handle.is_worker and self.length_shown:
            size += f", length {self.length_shown}"
        return (f"<rankstore.Dataset {self.directory!r}: {part}{self.store.count} samples, {size}, {{{columns}}}, "
                f"rank {self.group.rank} of {self.group.world}, id {self.id}>")


def _selection_id(dataset: str, ids: Any) -> str:
    """Return the id of a selection: of its dataset's id, and the sorted ids of its samples."""
    import hashlib
    digest = hashlib.sha256(dataset.encode())
    for first in range(0, len(ids), 1 << 20):  # as int64: states store this digest
        digest.update(ids[first:first + (1 << 20)].astype("<i8").tobytes())
    return digest.hexdigest()[:32]


def _agreed_stages(group: Group, curriculum: Sequence[tuple[Any, Any, Any]], names: list[str]) -> list[list[Any]]:
    """Return the stages of a curriculum. ArgumentError on all ranks if they differ."""
    if group.world == 1:
        return stages_of(curriculum, names)
    gathered: list[list[list[Any]]] = together(group, "plan", lambda: stages_of(curriculum, names))
    for rank, other in enumerate(gathered):
        if other != gathered[0]:
            raise ArgumentError(f"curriculum differs: rank 0 has {gathered[0]}, rank {rank} has {other}; give all ranks the same")
    return gathered[0]
