# SPDX-License-Identifier: Apache-2.0
"""Builds samples that Python reads: pieces (Parquet, lists, files that `map` sees), split between the ranks, and iterables."""
from __future__ import annotations

import errno
from typing import Any

from .. import _core
from .._distributed import progress
from .._distributed.collectives import together
from .._distributed.group import Group
from .._provenance import fingerprint
from .._schema import infer
from .._sources.base import Piece, Stream
from .._sources.native import CoreFiles
from ..errors import ArgumentError, RankStoreError
from .inputs import BaseChanged, Input, Items, Pieces
from .options import Options
from .pipeline import Feeder, Steps
from .scan import probe, scan, stream_schema, together_parse


def build_python(group: Group, source: Stream | list[Piece], directory: str, options: Options,
                 base: dict[str, Any] | None, made_from: dict[str, Any], note: str | None,
                 report: progress.Report | None, keep: bool = False) -> dict[str, Any]:
    """Build from units that Python reads (collective).

    base: the dataset that is appended to. keep: rks_build_options.keep. note: what the commit writes into dataset.json. Raises BaseChanged,
    on all ranks, if another build changed the dataset meanwhile."""
    steps = Steps(group, options.map, options.filter, options.skip_bad)
    key: Any = options.key if callable(options.key) else None
    derives = False  # True: use the keys that the core derives
    unit_size: int | None = None  # bytes, if the core reads the files
    text: str | None
    if isinstance(source, Stream):
        text, items, own_keys = stream_schema(group, source, options)
    else:
        for piece in source:
            if isinstance(piece, CoreFiles):
                piece.open(group.core, mapped=options.map is not None, schema=options.asked_schema,
                           key="" if options.key == "" else None, **options.for_reading())
                unit_size = piece.files.unit_size()
                # If the dataset derives its keys, those of appended files are derived too, from unit and place.
                derives = not options.key and not (base is not None and base["shape"]["derived_keys"])
        functions = options.map is not None or options.filter is not None or any(map(callable, (options.key, options.length)))
        given = dict(infer.parse(options.given_schema)[1]) if options.given_schema else None
        for piece in source:
            piece.choose(given, only=given is not None and options.drops_extra and not functions,
                         functions=functions or options.extra == "json",
                         rows=functions and (options.map is not None or options.schema is not None), checked=options.check_source)
        tasks, known = scan(group, source)
        known = known if options.map is None else None
        text, own_keys = options.schema or infer.text_of(known or probe(group, tasks, options)), derives
    assert text is not None
    if options.extra == "json":
        text = infer.with_extra(text)
    canonical, columns = together_parse(group, text, options.counts, options.schema is None)
    feeder = Feeder(columns, steps, loose=options.drops_extra, rest=options.extra == "json",
                    given=options.given_schema is not None, key=key,
                    length=options.length if callable(options.length) else None, derives=derives)
    seen = None if base is None else base["dataset"]
    made: Input = Pieces(group, feeder, seen, tasks) if not isinstance(source, Stream) else \
        Items(group, feeder, seen, items, options.unit_samples, source.same, compared=not options.each_rank)
    origin = made_from if base is None else {**made_from, "base": base["dataset"]}
    core = options.for_core()
    core["key"] = core["key"] or None
    brings_keys, brings_lengths = ((any(getattr(piece, name) for piece in source) if isinstance(source, list) else False)
                                   for name in ("brings_keys", "brings_lengths"))
    return build_input(group, made, directory, schema=canonical, own_keys=own_keys or key is not None or brings_keys,
                       own_lengths=callable(options.length) or brings_lengths, source=fingerprint.digest(origin), progress=report,
                       unit_size=unit_size, made_from=note, keep=keep, **core)


def build_input(group: Group, made: Input, directory: str, **options: Any) -> dict[str, Any]:
    """Build from an input (collective). What it raises on a rank is raised on all."""
    try:
        return _core.build_input(group.core, made, directory, **options)
    except RankStoreError as failed:  # the same on all ranks
        if failed.cause == errno.ENOTUNIQ:
            raise ArgumentError(f"{failed.text}; same_on_all=True splits them between ranks, each_rank=True adds them all the "
                                "same") from None
        if not failed.text.startswith(_core.RAISED):
            raise
        error = failed

    def own() -> bool:
        if made.failure is not None and not isinstance(made.failure, BaseChanged):
            raise made.failure
        return made.failure is not None

    if any(together(group, "build: samples", own)):
        raise BaseChanged
    raise error
