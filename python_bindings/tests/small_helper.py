#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A helper for RKS_HOME_HELPER: toy://top/FOLDER is a folder of SMALL_HELPER_TOP. It answers one request after the other."""
import json
import os
import sys


def version(path):
    info = os.stat(path)
    return f"{info.st_size}-{info.st_mtime_ns}", info.st_size


def answer(verb, words):
    path = os.path.join(top, words[-1])
    if verb == "get":
        at, first, end = map(int, words[:3])
        now, size = version(path)
        with open(path, "rb") as file:
            some = os.pread(file.fileno(), max(min(end, size) - first, 0), first)
        os.pwrite(3, some, at)
        return f"{len(some)} {now} {size}"
    if verb == "put":
        there, size = version(path)[0] if os.path.exists(path) else "-", int(words[0])
        if there != words[2]:
            raise FileExistsError(path)
        with open(path + ".part", "wb") as file:
            while file.tell() < size:
                print("more", number, flush=True)
                _, _, at, count = sys.stdin.readline().split()
                file.write(os.pread(3, int(count), int(at)))
        os.rename(path + ".part", path)
    if verb == "remove":
        os.unlink(path)
        return "0 - 0"
    return "0 {} {}".format(*version(path))


top = json.loads(sys.stdin.readline().split(" ", 3)[3])["url"].replace("toy://top", os.environ["SMALL_HELPER_TOP"])
print("ready 1", flush=True)
for line in sys.stdin:
    verb, number, *words = line.rstrip("\n").split(" ", 6)
    try:
        print("ok", number, answer(verb, words), flush=True)
    except OSError as error:
        kind = {FileNotFoundError: "missing", FileExistsError: "changed"}.get(type(error), "broken")
        print("fail", number, kind, error, flush=True)
