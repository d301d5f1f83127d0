# SPDX-License-Identifier: Apache-2.0
"""Speech with CTC: recordings in a tar, DIGIT_SPEAKER_TAKE.wav of 8 kHz, batches of a budget of frames, targets concatenated.

    torchrun --nproc-per-node 2 speech_ctc.py fsdd.tar [--out DIR] [--steps N]
"""
import argparse

import numpy
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import rankstore

WORDS = "zero one two three four five six seven eight nine".split()


def features(sample):
    """The spectrum of each 10 ms, and the spelled digit; a real job has its filter bank."""
    sound = numpy.frombuffer(sample["wav"], "<i2", offset=44)
    frames = numpy.log(numpy.abs(numpy.fft.rfft(sound[:len(sound) // 80 * 80].reshape(-1, 80))) + 1).astype(numpy.float16)
    word = WORDS[int(sample["__key__"][0])]
    return {"frames": frames, "targets": [ord(letter) - ord("a") + 1 for letter in word]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--out", default="speech.store", help="directory of the dataset")
    parser.add_argument("--steps", type=int, default=50)
    arguments = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(41, 64), torch.nn.ReLU(), torch.nn.Linear(64, 27)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    layout = rankstore.Pad(layouts={"targets": "concat"}, lengths=["frames", "targets"], dtype={"frames": "float32"}, mask=None)
    with rankstore.build(arguments.data, arguments.out, map=features, length="frames") as ds:
        loader = ds.loader(ds.plan("bucket", max_tokens=2000, seed=1), collate=layout)
        done, padding = 0, 0.0
        while done < arguments.steps:
            for batch in loader:
                scores = functional.log_softmax(model(batch["frames"]), -1).transpose(0, 1)
                loss = functional.ctc_loss(scores, batch["targets"], batch["frames_lengths"], batch["targets_lengths"],
                                           zero_infinity=True)
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                done, padding = done + 1, padding + batch.padding_ratio
                if done == arguments.steps:
                    break
        if dist.get_rank() == 0:
            print(f"{len(ds)} recordings, {done} steps, padding {padding / done:.3f}, loss {loss.item():.3f}")
    del model, scores, loss  # one that outlives its process group can make torch's gloo hang
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
