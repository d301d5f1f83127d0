# SPDX-License-Identifier: Apache-2.0
"""Questions and answers of uneven length in batches of like length, over all ranks; stopped and resumed, also on another number of ranks.

    torchrun --nproc-per-node 4 sorted_batches.py [--data FILES] [--out DIR] [--epochs N]
    torchrun --nproc-per-node 4 ... --stop-after 7       # saves resume.json in --out after 7 steps, and ends
    torchrun --nproc-per-node 2 ... --resume             # resumes there

--data: JSON lines with question and answer, as GSM8K has them. At the end of each epoch it is asserted that the ranks have seen each sample
once, those of before the stop included.
"""
from __future__ import annotations

import argparse
import json
import os
from typing import Any

import numpy as np

import rankstore


def made_samples(count: int = 2000) -> list[dict[str, str]]:
    return [{"question": f"What is {i} times {i % 97}? " * (1 + i * 31 % 17), "answer": f"#### {i * (i % 97)}"} for i in range(count)]


def tokenize(sample: dict[str, str]) -> dict[str, Any]:
    """Bytes are tokens; only the answer is learned."""
    question, answer = sample["question"].encode(), sample["answer"].encode()
    tokens = np.frombuffer(question + b"\n" + answer, np.uint8).astype(np.uint16)
    labels = np.where(np.arange(len(tokens)) <= len(question), -100, tokens.astype(np.int16)).astype(np.int16)
    return {"input_ids": tokens, "labels": labels}


def is_short(sample: dict[str, Any]) -> bool:
    return len(sample["input_ids"]) <= 1000


def everyones(group: rankstore.Group, ids: list[int]) -> list[int]:
    """The ids of all ranks."""
    parts = group.allgather("ids", np.asarray(ids, np.int64).tobytes())
    return np.frombuffer(b"".join(parts), np.int64).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="JSON lines with question and answer (made text)")
    parser.add_argument("--out", default="sorted_batches.store", help="directory of the dataset")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--max-tokens", type=int, default=8192, help="of a batch, padding included")
    parser.add_argument("--stop-after", type=int, default=-1, help="steps of this run")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--record", help="file (.RANK is added) for the samples of each step")
    arguments = parser.parse_args()
    group = rankstore.init()
    record = open(f"{arguments.record}.{group.rank}", "w", encoding="utf-8") if arguments.record else None
    place = os.path.join(arguments.out, "resume.json")

    with rankstore.build(arguments.data or made_samples(), arguments.out, map=tokenize, filter=is_short,
                         length="input_ids") as dataset:
        plan = dataset.plan("bucket", max_tokens=arguments.max_tokens, seed=17)
        loader = dataset.loader(plan, collate=rankstore.Pad(to_multiple=8))
        seen: list[int] = []
        if arguments.resume:
            with open(place, encoding="utf-8") as file:
                saved = json.load(file)
            loader.load_state_dict(saved["loader"])
            seen = saved["seen"]
        steps = 0
        for epoch in range(loader.epoch, arguments.epochs):
            loader.set_epoch(epoch)
            mine: list[int] = []
            for batch in loader:
                assert batch["input_ids"].numel() <= arguments.max_tokens
                mine += batch.ids.tolist()
                steps += 1
                if record:
                    print(epoch, batch.step, *batch.ids.tolist(), file=record, flush=True)
                if steps == arguments.stop_after:
                    break
            seen += everyones(group, mine)
            if steps == arguments.stop_after:
                if group.rank == 0:
                    with open(place, "w", encoding="utf-8") as file:
                        json.dump({"loader": loader.state_dict(), "seen": seen}, file)
                    print(f"stopped in epoch {epoch} after {steps} steps: {len(seen)} of {len(dataset)} samples seen")
                break
            assert sorted(seen) == list(range(len(dataset)))
            if group.rank == 0:
                print(f"epoch {epoch}: {len(seen)} samples, each once, in {len(loader)} steps on {group.world} ranks, "
                      f"efficiency {plan.report(epoch)['efficiency']:.2f}")
            seen = []
    group.close()


if __name__ == "__main__":
    main()
