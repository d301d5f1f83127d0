# SPDX-License-Identifier: Apache-2.0
"""Three training scripts' data beside the way that such scripts are usually written: fine-tuning from a JSON array, a model of
characters from raw text, speech with CTC. Of each: lines of data code, seconds until the first batch, padding and tokens (frames) a
second of one epoch, which the two ways read in turns; the median counts. Then the examples train some steps on two ranks.

    PYTHONPATH=build/python/site python tests/bench/training_scripts.py [--samples N] [--rounds N] [--steps N]
"""
import argparse
import inspect
import io
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import wave

import numpy
import torch
from torch.utils.data import DataLoader, Dataset

import rankstore

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python_bindings/examples")
sys.path.insert(0, EXAMPLES)
import sft_json  # noqa: E402
import speech_ctc  # noqa: E402

CONTEXT, BATCH, WORKERS = 128, 32, 2


# ---- data, made here -----------------------------------------------------------------------------------------------------

def make_data(folder, samples):
    chance = random.Random(0)
    words = ["the", "model", "reads", "its", "samples", "from", "a", "list", "of", "long", "and", "short", "texts"]
    text = [" ".join(chance.choices(words, k=int(chance.lognormvariate(3, 0.8)) + 1)) for _ in range(2 * samples)]
    rows = [{"instruction": question, "output": answer} for question, answer in zip(text[::2], text[1::2])]
    with open(os.path.join(folder, "sft.json"), "w") as file:
        json.dump(rows, file, indent=1)
    with open(os.path.join(folder, "input.txt"), "w") as file:
        file.write("\n".join(text))
    with tarfile.open(os.path.join(folder, "speech.tar"), "w") as tar:
        for i in range(samples // 8):
            whole, count = io.BytesIO(), int(chance.lognormvariate(8.2, 0.5)) + 800
            with wave.open(whole, "wb") as out:
                out.setparams((1, 2, 8000, count, "NONE", ""))
                out.writeframes(numpy.random.default_rng(i).integers(-9999, 9999, count, numpy.int16).tobytes())
            member = tarfile.TarInfo(f"{i % 10}_speaker_{i}.wav")
            member.size = whole.tell()
            tar.addfile(member, io.BytesIO(whole.getvalue()))


# ---- the usual way -------------------------------------------------------------------------------------------------------

class UsualText(Dataset):
    def __init__(self, path):
        with open(path) as file:
            self.samples = [sft_json.tokenize(row) for row in json.load(file)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return {name: torch.as_tensor(value, dtype=torch.long) for name, value in self.samples[i].items()}


def usual_text_batch(samples):
    pad = torch.nn.utils.rnn.pad_sequence
    ids = pad([sample["input_ids"] for sample in samples], batch_first=True, padding_value=0)
    labels = pad([sample["labels"] for sample in samples], batch_first=True, padding_value=-100)
    lengths = torch.tensor([len(sample["input_ids"]) for sample in samples])
    mask = torch.arange(ids.shape[1])[None] < lengths[:, None]
    return {"input_ids": ids, "labels": labels, "attention_mask": mask.long()}


def usual_text(folder):
    loader = DataLoader(UsualText(os.path.join(folder, "sft.json")), batch_size=16, shuffle=True, collate_fn=usual_text_batch,
                        num_workers=WORKERS, drop_last=True)
    for batch in loader:
        yield int(batch["attention_mask"].sum()), batch["input_ids"].numel()


def usual_characters(folder):
    data = numpy.memmap(os.path.join(folder, "input.txt"), numpy.uint8, "r")
    for _ in range(len(data) // CONTEXT // BATCH):
        at = torch.randint(len(data) - CONTEXT - 1, (BATCH,))
        x = torch.stack([torch.from_numpy(data[i:i + CONTEXT].astype(numpy.int64)) for i in at])
        y = torch.stack([torch.from_numpy(data[i + 1:i + 1 + CONTEXT].astype(numpy.int64)) for i in at])
        yield x.numel(), y.numel()


class UsualSpeech(Dataset):
    def __init__(self, path):
        self.path, self.tar = path, None
        with tarfile.open(path) as tar:
            self.members = tar.getmembers()

    def __len__(self):
        return len(self.members)

    def __getitem__(self, i):
        self.tar = self.tar or open(self.path, "rb")
        member = self.members[i]
        self.tar.seek(member.offset_data)
        made = speech_ctc.features({"wav": self.tar.read(member.size), "__key__": member.name})
        return torch.from_numpy(made["frames"].astype(numpy.float32)), made["targets"]


def usual_speech_batch(samples):
    samples.sort(key=lambda sample: len(sample[0]), reverse=True)
    frames = torch.zeros(len(samples), len(samples[0][0]), samples[0][0].shape[1])
    for i, (one, _) in enumerate(samples):
        frames[i, :len(one)] = one
    lengths = torch.tensor([len(one) for one, _ in samples])
    targets = torch.tensor([letter for _, word in samples for letter in word])
    return frames, targets, lengths, torch.tensor([len(word) for _, word in samples])


def usual_speech(folder):
    loader = DataLoader(UsualSpeech(os.path.join(folder, "speech.tar")), batch_size=16, shuffle=True,
                        collate_fn=usual_speech_batch, num_workers=WORKERS)
    for frames, _, lengths, _ in loader:
        yield int(lengths.sum()), frames.shape[0] * frames.shape[1]


# ---- Rankstore's ---------------------------------------------------------------------------------------------------------

def rankstore_text(folder):
    with rankstore.build(os.path.join(folder, "sft.json"), os.path.join(folder, "text"), map=sft_json.tokenize, length="input_ids",
                         count={"learned": ("labels", "!=", -100)}, progress=False) as ds:
        for batch in ds.loader(ds.plan("bucket", max_tokens=8192), collate=rankstore.Pad()):
            yield int(batch.lengths.sum()), batch["input_ids"].numel()


def rankstore_characters(folder):
    with rankstore.build(os.path.join(folder, "input.txt"), os.path.join(folder, "characters"), format="raw", dtype=numpy.uint8,
                         progress=False) as ds:
        for batch in ds.windows(CONTEXT + 1, CONTEXT, random=1).batches(BATCH):
            x, y = batch[:, :-1], batch[:, 1:]
            yield x.numel(), y.numel()


def rankstore_speech(folder):
    layout = rankstore.Pad(layouts={"targets": "concat"}, lengths=["frames", "targets"], dtype={"frames": "float32"}, mask=None)
    with rankstore.build(os.path.join(folder, "speech.tar"), os.path.join(folder, "speech"), map=speech_ctc.features, length="frames",
                         progress=False) as ds:
        for batch in ds.loader(ds.plan("bucket", max_tokens=2000), collate=layout):
            yield int(batch["frames_lengths"].sum()), batch["frames"].shape[0] * batch["frames"].shape[1]


WAYS = {"fine-tuning": ((usual_text, UsualText, usual_text_batch), (rankstore_text,)),
        "characters": ((usual_characters,), (rankstore_characters,)),
        "speech": ((usual_speech, UsualSpeech, usual_speech_batch), (rankstore_speech,))}


# ---- measuring -----------------------------------------------------------------------------------------------------------

def epoch(way, folder):
    """Seconds until the first batch, tokens a second from then on, and the part of what is delivered that is padding."""
    begun, first, tokens, padded = time.monotonic(), 0.0, 0, 0
    for real, whole in way(folder):
        if not first:
            first = time.monotonic()
            early = real
        tokens, padded = tokens + real, padded + whole
    return first - begun, (tokens - early) / (time.monotonic() - first), 1 - tokens / padded


def lines(parts):
    return sum(1 for part in parts for line in inspect.getsource(part).splitlines() if line.strip())


def train(name, data, folder, steps):
    """The example's last line, of two ranks."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = [subprocess.Popen(
        [sys.executable, os.path.join(EXAMPLES, f"{name}.py"), data, "--out", os.path.join(folder, f"{name}.store"), "--steps", str(steps)],
        env={**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
             "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for rank in range(2)]
    done = [process.communicate() for process in running]
    if any(process.returncode for process in running):
        sys.exit(f"{name}: " + "\n".join(err for _, err in done))
    return done[0][0].strip().splitlines()[-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=20000, help="of the JSON array; an eighth of it are recordings")
    parser.add_argument("--rounds", type=int, default=3, help="epochs of each way, in turns")
    parser.add_argument("--steps", type=int, default=50, help="of training on two ranks; 0: none")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print(f"{'script':<12} {'way':<10} {'lines':>5} {'first batch s':>13} {'again s':>8} {'padding':>8} {'tokens/s':>12}")
    with tempfile.TemporaryDirectory() as folder:
        make_data(folder, asked.samples)
        for name, ways in WAYS.items():
            found = [[epoch(parts[0], folder) for parts in ways] for _ in range(asked.rounds)]
            for i, (way, parts) in enumerate(zip(("usual", "rankstore"), ways)):
                each = [one[i] for one in found]
                again, rate, padding = (statistics.median(one[field] for one in each) for field in range(3))
                print(f"{name:<12} {way:<10} {lines(parts):>5} {each[0][0]:>13.2f} {again:>8.2f} {padding:>8.3f} {rate:>12,.0f}",
                      flush=True)
        for script, data in (("sft_json", "sft.json"), ("char_model", "input.txt"), ("speech_ctc", "speech.tar")):
            if asked.steps:
                print(f"{script}, 2 ranks: {train(script, os.path.join(folder, data), folder, asked.steps)}", flush=True)


if __name__ == "__main__":
    main()
