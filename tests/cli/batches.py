# SPDX-License-Identifier: Apache-2.0
"""Reads a file of `rankstore plan -o` by FORMAT.md alone, checks all that stands there, and holds it against the JSON
lines and the plan's own report.

Usage: batches.py FILE LINES STORE OPTION...    (the options with which FILE was made)
"""
import json
import subprocess
import sys

import numpy as np
import xxhash

HEADER = np.dtype([("magic", "S8"), ("version", "<u2"), ("zero", "<u2"), ("world", "<u4"), ("epoch", "<u8"),
                   ("steps", "<u8"), ("ids", "<u8"), ("samples", "<u8"), ("dataset", "<u8", 2), ("digest", "<u8", 2),
                   ("size", "<u8"), ("options", "<u4"), ("zero2", "<u4")])


def hexadecimal(halves):
    return f"{int(halves[1]):016x}{int(halves[0]):016x}"


def read(path):
    """(header, options, batches as a list of arrays), each rule checked; ValueError names the broken one."""
    raw = np.fromfile(path, dtype=np.uint8)
    if raw.size < HEADER.itemsize:
        raise ValueError("shorter than a header")
    head = raw[:HEADER.itemsize].view(HEADER)[0]
    if head["magic"] != b"RKSPLAN" or head["version"] != 1 or head["zero"] != 0 or head["zero2"] != 0:
        raise ValueError("magic or version")
    count, ids = int(head["steps"]) * int(head["world"]), int(head["ids"])
    at = HEADER.itemsize + (int(head["options"]) + 7) // 8 * 8
    if head["size"] != raw.size or raw.size != at + 8 * count + 4 * ids:
        raise ValueError("size")
    options = json.loads(raw[HEADER.itemsize:HEADER.itemsize + int(head["options"])].tobytes())
    ends = raw[at:at + 8 * count].view("<u8").astype(np.int64)
    members = raw[at + 8 * count:].view("<u4")
    if np.any(np.diff(ends, prepend=0) < 1) or ends[-1] != ids or np.any(members >= head["samples"]):
        raise ValueError("ends or ids")
    batches = np.split(members, ends[:-1])
    digest = xxhash.xxh3_128()
    for place, batch in enumerate(batches):
        digest.update(np.uint64(place // head["world"]).tobytes())
        digest.update(np.array([place % head["world"], batch.size], "<u4").tobytes())
        digest.update(batch.tobytes())
    if digest.hexdigest() != hexadecimal(head["digest"]):
        raise ValueError("digest")
    return head, options, batches


def refuses(path, change):
    """A file that was changed or cut is found."""
    with open(path, "rb") as file:
        raw = bytearray(file.read())
    with open(path + ".bad", "wb") as file:
        file.write(change(raw))
    try:
        read(path + ".bad")
    except ValueError:
        return True
    return False


def flip(at):
    def change(raw):
        raw[at] ^= 1
        return raw
    return change


def main():
    path, lines, store, *asked = sys.argv[1:]
    head, options, batches = read(path)
    report = json.loads(subprocess.run(["rankstore", "plan", store, "--json", *asked], check=True, capture_output=True).stdout)
    info = json.loads(subprocess.run(["rankstore", "info", store, "--json"], check=True, capture_output=True).stdout)
    assert hexadecimal(head["digest"]) == report["digest"] and hexadecimal(head["dataset"]) == info["dataset"]
    assert (head["steps"], head["world"], head["ids"]) == (report["steps"], report["world"], report["samples"])
    assert options["strategy"] == "bucket" and options["max_tokens"] == 16384 and options["seed"] == 9
    assert np.array_equal(np.sort(np.concatenate(batches)), np.arange(info["samples"]))
    with open(lines, encoding="utf-8") as file:
        first, *rest = (json.loads(line) for line in file)
    assert first["digest"] == report["digest"] and first["options"] == options and first["schema_version"] == 1
    assert len(rest) == len(batches)
    for place, (line, batch) in enumerate(zip(rest, batches)):
        assert (line["step"], line["rank"]) == divmod(place, int(head["world"])) and line["ids"] == batch.tolist()
    size = int(head["size"])
    for change in [flip(0), flip(8), flip(32), flip(70), flip(size // 2), flip(size - 1), lambda raw: raw[:-4],
                   lambda raw: raw[:50], lambda raw: raw + b"\0"]:
        assert refuses(path, change)
    print(f"{head['world']} ranks, epoch {head['epoch']}: every sample once, the digest is right, the lines say the same")


if __name__ == "__main__":
    main()
