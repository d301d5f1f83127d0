#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A helper for RKS_HOME_HELPER around rclone, one request after another. The options are its variables of a store named "store"."""
import json
import os
import subprocess
import sys


def rclone(*words, **more):
    done = subprocess.run(["rclone", "--retries", "1", *words], capture_output=True, **more)
    if done.returncode != 0:
        raise OSError("missing" if done.returncode in (3, 4) else "broken", done.stderr.decode().strip().rpartition("\n")[2])
    return done.stdout


def look(path):
    found = json.loads(rclone("lsjson", "--stat", path))
    if found["IsDir"]:
        raise OSError("missing", "a folder")
    return f"{found['Size']}-{found['ModTime']}", found["Size"]


def answer(verb, words):
    path = f"{top}/{words[-1]}"
    if verb == "get":
        at, first, end = map(int, words[:3])
        version, size = look(path)
        some = rclone("cat", "--offset", str(first), "--count", str(end - first), path) if min(end, size) > first else b""
        os.pwrite(3, some, at)
        return f"{len(some)} {version} {size}"
    if verb == "put":
        with subprocess.Popen(["rclone", "rcat", path], stdin=subprocess.PIPE) as upload:
            left = int(words[0])
            while left > 0:
                print("more", number, flush=True)
                _, _, at, count = sys.stdin.readline().split()
                upload.stdin.write(os.pread(3, int(count), int(at)))
                left -= int(count)
    return "0 {} {}".format(*look(path))


given = json.loads(sys.stdin.readline().split(" ", 3)[3])
os.environ.update({f"RCLONE_CONFIG_STORE_{name.upper()}": value for name, value in given["options"].items()})
top = "store:" + given["url"].partition("://")[2]
print("ready 1", flush=True)
for line in sys.stdin:
    verb, number, *words = line.rstrip("\n").split(" ", 6)
    try:
        print("ok", number, answer(verb, words), flush=True)
    except OSError as error:
        print("fail", number, error.errno, error.strerror, flush=True)
