# SPDX-License-Identifier: Apache-2.0
"""The rows of the comparison: what is measured, of whom, and in which unit."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# The peers, and the modules that they need.
MODULES = {"memmap": "numpy", "py-lmdb": "lmdb", "streaming": "streaming", "LitData": "litdata", "WebDataset": "webdataset",
           "HF datasets": "datasets", "Grain": "grain", "Lance": "lance", "Ray Data": "ray", "Energon": "megatron.energon",
           "SPDL": "spdl.pipeline", "torchdata nodes": "torchdata.nodes"}
PEERS = tuple(MODULES)
FILES_OF = {"SPDL": "memmap", "torchdata nodes": "memmap"}  # loaders without files of their own
LOADERS_ALONE = ("Ray Data", "Energon")  # they read their files in sequence, through a shuffle buffer, by their own loader alone
PACKERS = {"TRL": "trl", "transformers": "transformers", "seqpacker": "seqpacker"}  # peers that plan or collate, and store nothing
HOLDERS = {"DDStore": "pyddstore"}  # it holds samples in memory; its sources are no package
STORED = tuple(name for name in PEERS if name not in FILES_OF and name not in LOADERS_ALONE)
RANDOM = tuple(name for name in STORED if name != "WebDataset")  # WebDataset reads in sequence only
WORKING = (*RANDOM, *FILES_OF)  # they make given batches by threads or processes


def peer_of(name: str) -> str | None:
    """The peer that a contestant is; None for Rankstore and for what needs no module."""
    found = name.partition(", ")[0].removesuffix(" synced")
    return found if found in MODULES or found in PACKERS or found in HOLDERS else None


@dataclass(frozen=True)
class Row:
    """`unit` "s": seconds, less is better; else a rate, `scale` units of work making one, or a figure, if `less` is
    better. `made_by`: the row that writes its files.
    `ours`: whose ratio to the others is told. `measure`: a class of measures.py, and its `arguments`. `fresh`: each round is a process of
    its own. `ranks`: measured by a job of 4 ranks (ranks.py), in place of `measure`. `in_c`: it needs bench_pack."""

    title: str
    contestants: tuple[str, ...]
    ours: str
    measure: str = ""
    arguments: tuple[Any, ...] = ()
    unit: str = "s"
    scale: float = 1
    made_by: str | None = None
    fresh: bool = False
    ranks: bool = False
    in_c: bool = False
    note: str = ""
    less: bool = False

    @property
    def less_is_better(self) -> bool:
        return self.unit == "s" or self.less


_BUILDERS = ("memmap", "memmap synced", "py-lmdb", "py-lmdb synced", *STORED[2:], *LOADERS_ALONE, "Rankstore dicts", "Rankstore arrays")
_OWN = ("Rankstore, loader", "Rankstore, DataLoader 0", "Rankstore, DataLoader 2")
_UNSYNCED = "Rankstore's builds are synced to disk, sealed and checksummed; the others are not synced, but for those that say so."
_AHEAD = ("Rankstore's own loader, SPDL, torchdata nodes and Grain have threads (two, if they ask how many), the others two worker "
          "processes. SPDL and torchdata nodes read memmap's files. streaming, LitData, WebDataset, Energon and Ray Data shuffle blobs by "
          "their own loaders, most of them within a buffer.")
_TOKENS = {"unit": "M tokens/s", "scale": 1e6, "made_by": "build-tokens"}
_BLOBS = {"unit": "MB/s", "scale": 1e6, "made_by": "build-blobs"}


def _reads(kind: str, each: int) -> Row:
    how = "one by one" if each == 1 else f"{each} a call"
    views = ("Rankstore view",) if each == 1 else ()
    return Row(f"{kind}: random reads, {how}", (*(STORED if each == 1 else RANDOM), "Rankstore", *views), "Rankstore", "Reading",
               (kind, each),
               "k samples/s", 1e3, f"build-{kind}", note="WebDataset reads in sequence: it has no access by number." if each == 1 else "")


_PACKING = ("Best-fit decreasing. Balance is the mean over optimizer steps of mean / largest cost of the ranks, of a cost of "
            "L + L^2 / 49,152; bins of the others go to ranks in turn. TRL packs what samples contain, the others their ids.")
_IN_C = ("histogram in C is the plain algorithm of bench_pack.c: no shuffle, no ranks. Rankstore's batches are not copied into arrays "
         "here.")


_STEPWISE = ("greedy a step", "WLB-LLM's rule", "sorted chunks", "Rankstore, mixed", "Rankstore")
_PAPERS = {"papers-32k": "32,768, 8 ranks of 4 micro-batches", "papers-32k-256": "32,768, 256 ranks of 4 micro-batches",
           "papers-128k": "131,072, 64 ranks of 4 micro-batches", "papers-256k": "262,144, 8 ranks of 4 micro-batches",
           "papers-256k-256": "262,144, 256 ranks of 2 micro-batches"}
_WHOLE = ("The others see one global batch at a time, as documents arrive, by rules of papers (tools/peers/stepwise.py, in Python, so "
          "their seconds say little); Rankstore plans the epoch, so nothing waits. Balance as above. Lengths: 99 % below 4,096, the "
          "longest 300,000, clipped to the capacity. A step has bins of like cost; mixed: of any cost.")


def _packs() -> dict[str, Row]:
    """By what stands behind "pack" in a row's name."""
    peers = ("numpy + loop", "TRL", "seqpacker", "seqpacker, obfd", "Rankstore")
    large = ("histogram in C", "seqpacker, obfd", "Rankstore, first plan", "Rankstore, later epoch")

    def row(title: str, case: str, names: tuple[str, ...] = peers, note: str = _PACKING) -> Row:
        return Row(title, names, names[-1] if names is not large else "Rankstore, first plan", "Packing", (case,), note=note,
                   in_c=case not in ("gamma", "uniform", *_PAPERS))

    return {"": row("packing 100,000 lengths of gamma(5, 20) into bins of 2,048, 8 ranks", "gamma"),
            "-uniform": row("packing 10,000 lengths from 1 to 512 into bins of 512", "uniform"),
            "-chat": row("packing 20,000 lengths of chat into bins of 8,192, 8 ranks", "chat"),
            "-long": row("packing 20,000 lengths of long documents into bins of 131,072, 16 ranks", "long"),
            "-mixed": row("packing 1 M lengths of long documents into bins of 131,072, 16 ranks of 8 micro-batches", "mixed", large,
                          f"{_PACKING} {_IN_C}"),
            "-large": row("packing 10 M lengths of chat into bins of 8,192, 8 ranks", "large", large, f"{_PACKING} {_IN_C}"),
            **{f"-{case}": row(f"packing chat with a long tail into bins of {title}", case, _STEPWISE, _WHOLE)
               for case, title in _PAPERS.items()},
            "-histogram": row("packing lengths by a histogram (--histogram) into bins of 512, 8 ranks", "histogram", large,
                              f"{_PACKING} {_IN_C}")}


ROWS: dict[str, Row] = {
    "build-tokens": Row("tokens: building", _BUILDERS, "Rankstore arrays", "Build", ("tokens",), "k samples/s", 1e3, note=_UNSYNCED),
    "build-blobs": Row("blobs: building", _BUILDERS, "Rankstore arrays", "Build", ("blobs",), "samples/s", note=_UNSYNCED),
    "open": Row("tokens: import, open, first sample, in a new process that has torch", (*STORED, "Rankstore"), "Rankstore", "Opening",
                ("tokens",),
                made_by="build-tokens", fresh=True),
    "read-tokens": _reads("tokens", 1),
    "read-tokens-64": _reads("tokens", 64),
    "read-blobs": _reads("blobs", 1),
    "read-blobs-64": _reads("blobs", 64),
    "padded": Row("tokens: padded int64 batches of 64, like lengths together, one process", (*RANDOM, *_OWN[:2]), _OWN[0], "Epoch",
                  ("tokens", None), **_TOKENS),  # type: ignore[arg-type]
    "padded-loader": Row("tokens: padded int64 batches of 64, through DataLoader with 2 workers, or by own loaders",
                         (*WORKING, *_OWN), _OWN[0], "Epoch", ("tokens", 2),
                         **_TOKENS, note=_AHEAD),  # type: ignore[arg-type]
    "epoch-blobs": Row("blobs: a shuffled epoch, batches of 64, one process", (*STORED, *_OWN[:2]), _OWN[0], "Epoch", ("blobs", None),
                       **_BLOBS, note="streaming, LitData and WebDataset by their own shuffling loaders."),  # type: ignore[arg-type]
    "epoch-blobs-loader": Row("blobs: a shuffled epoch, batches of 64, through DataLoader with 2 workers, or by own loaders",
                              (*PEERS, *_OWN), _OWN[0], "Epoch", ("blobs", 2),
                              **_BLOBS, note=_AHEAD),  # type: ignore[arg-type]
    "first-batch": Row("blobs: import, open, first batch of 64 of a shuffled epoch, 2 workers, in a new process that has torch",
                       (*PEERS, _OWN[0]), _OWN[0], "FirstBatch", ("blobs", 2), made_by="build-blobs", fresh=True, note=_AHEAD),
    "beside-blobs": Row("blobs: a shuffled epoch through 2 workers, beside a training thread that keeps one of the cores busy",
                        (*PEERS, _OWN[0]), _OWN[0], "Beside", ("blobs", 2), **_BLOBS, note=_AHEAD),  # type: ignore[arg-type]
    "build-images": Row("images: building", _BUILDERS, "Rankstore arrays", "Build", ("images",), "samples/s", note=_UNSYNCED),
    "images": Row("images: JPEG files of 100 KB, decoded, a shuffled epoch, batches of 64, 2 workers or threads",
                  (*PEERS, _OWN[0]), _OWN[0], "Pictures", (2,), "images/s", made_by="build-images",
                  note="All decode by Pillow; SPDL's own decoder needs FFmpeg's libraries. " + _AHEAD),
    "plan": Row("planning an epoch of 10 M lengths, 16,384 tokens a batch",
                ("numpy argsort alone", "numpy", "torch.sort + loop", "Rankstore"), "Rankstore", "Planning", ("",),
                note="numpy argsort alone makes no batches: it is the floor of a planner that sorts by comparing."),
    **{f"pack{key}": row for key, row in _packs().items()},
    "resume": Row("20,000 long documents in pieces of 8,192: an epoch's rest on 12 ranks, in place of 8",
                  ("Rankstore", "Rankstore, the rest alone"), "Rankstore", "Resuming", in_c=True,
                  note="A plan that takes a state of the middle of an epoch over, beside a plan of what is left as if there were nothing "
                  "else. Each piece that was left comes exactly once."),
    "group": Row("planning 102,400 lengths in batches of 64 of like length, 8 ranks", ("transformers, group_by_length",
                 "transformers, batch_rebalance", "Rankstore", "Rankstore, budget"), "Rankstore", "Grouping",
                 note="What one rank does for an epoch. Balance is the mean over steps of mean / largest batch of the ranks, in padded "
                 "tokens; of cost, in n (L + L^2 / 1,000), which batch_rebalance and the budget even out. Their batches differ in "
                 "their number of samples; the budget is 32,768 padded tokens."),
    "flatten": Row("tokens: batches of 64 without padding, with labels, positions and cu_seqlens, one process",
                   ("transformers", "Rankstore, loader"), "Rankstore, loader", "Flattening", **_TOKENS,  # type: ignore[arg-type]
                   note="transformers by DataCollatorWithFlattening, given arrays in memory; Rankstore reads its dataset, and checks."),
    "far": Row("bytes out of an object store: 4 nodes, 3 epochs of a random plan, 1 GB of samples of 2 KB", ("streaming", "LitData",
               "Rankstore", "Rankstore, 2 copies"), "Rankstore", "Far", unit="x the shard files", less=True, fresh=True,
               note="Counted by a proxy; Rankstore's count has its index, 16 bytes a sample. Each node has a folder of its own, which a "
               "second job of one epoch finds again. streaming by its defaults but for 4 canonical nodes: it shuffles within a node's "
               "part, and parts stay; LitData by its defaults: it deals chunks to nodes anew each epoch. Rankstore draws from the whole."),
    "held": Row("4 ranks read random samples of 2 KB that they hold together", ("DDStore", "Rankstore", "Rankstore, loader",
                "Rankstore, a node each", "Rankstore, loader, a node each"), "Rankstore", "Held", unit="k samples/s", scale=1e3, fresh=True,
                note="All ranks together, over mpirun on this machine. DDStore copies its samples into memory that MPI reads from other "
                "ranks (MPI RMA), a sample a call. Rankstore's lie in files, which ranks of a machine share; by calls of 64, or an epoch "
                "of its loader, and with ranks as if on four machines, over TCP and with checksums."),
    "exchange": Row("exchange of an index of 1 M samples, 4 ranks", ("all_gather_object", "tensors", "Rankstore, pull", "Rankstore"),
                    "Rankstore, pull", ranks=True,
                    note="Lengths and keys over gloo; lengths and key hashes by Rankstore, which on one node "
                    "by itself shares them without an exchange. Peak memory is of the largest rank."),
    "gather": Row("all token samples at hand on 4 ranks", ("all_gather_object", "Rankstore"), "Rankstore", ranks=True,
                  note="Until every rank can read any sample: all_gather_object of all of them, against building (synced) and opening. One "
                  "round, since the first takes long. Peak memory is of the largest rank."),
}
