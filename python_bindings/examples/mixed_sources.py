# SPDX-License-Identifier: Apache-2.0
"""Word problems and source code in one plan, by weights that change on the way; killed, and resumed on another number of ranks.

    torchrun --nproc-per-node 3 mixed_sources.py [--data gsm8k/train.jsonl] [--out DIR]
    torchrun --nproc-per-node 3 ... --die-after 21       # ranks kill themselves; the last checkpoint is a few steps old
    torchrun --nproc-per-node 2 ... --resume             # goes on at the checkpoint

--data: JSON lines with question and answer, as GSM8K has them. The code is that of Python's own library.
"""
from __future__ import annotations

import argparse
import email
import json
import os
import signal
from pathlib import Path

import rankstore


def problems() -> list[dict[str, str]]:
    return [{"question": f"What is {i} times {i % 97}? " * (1 + i * 31 % 17), "answer": f"#### {i * (i % 97)}"} for i in range(2000)]


def code() -> list[dict[str, str]]:
    files = sorted(Path(email.__file__).parent.glob("*.py"))
    return [{"text": "def " + part} for file in files for part in file.read_text("utf-8").split("\ndef ")[1:]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="JSON lines with question and answer (made text)")
    parser.add_argument("--out", default="mixed_sources.store", help="directory of the datasets")
    parser.add_argument("--die-after", type=int, default=-1, help="steps of this run")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--record", help="file (.RANK is added) for the samples of each step")
    arguments = parser.parse_args()
    group, out = rankstore.init(), Path(arguments.out)
    record = open(f"{arguments.record}.{group.rank}", "w", encoding="utf-8") if arguments.record else None
    rankstore.build(arguments.data or problems(), out / "math", length="text",
                    map=lambda row: {"text": row["question"] + "\n" + row["answer"]}).close()
    rankstore.build(code(), out / "code", length="text").close()
    with rankstore.open([out / "math", out / "code"]) as dataset:
        loader = dataset.loader(dataset.plan("random", batch_size=8, mix={"math": 0.7, "code": 0.3}, samples=1200, seed=17))
        if arguments.resume:
            loader.load_state_dict(json.loads((out / "saved.json").read_text("utf-8")))
        epoch = loader.epoch
        for steps, batch in enumerate(loader, 1):
            group.barrier()  # ranks meet at each step, as they do for gradients
            if record:
                print(epoch, batch.step, *batch.ids.tolist(), file=record, flush=True)
            if steps % 8 == 0 and group.rank == 0:
                (out / "new.json").write_text(json.dumps(loader.state_dict()), "utf-8")
                (out / "new.json").rename(out / "saved.json")
            if steps == 12 and not arguments.resume:
                loader.remix({"math": 0.4, "code": 0.6})  # from the next step on; the checkpoints know it
            if steps == arguments.die_after:
                os.kill(os.getpid(), signal.SIGKILL)
        if group.rank == 0:
            sources = loader.plan.report(epoch)["sources"]  # after --resume: of the rest of the epoch
            draws = sum(found["draws"] for found in sources.values())
            for name, found in sources.items():
                print(f"{name}: {found['draws'] / draws:.1%} of {draws} draws, {found['draws']} of {found['samples']} samples")


if __name__ == "__main__":
    main()
