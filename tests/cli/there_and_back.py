# SPDX-License-Identifier: Apache-2.0
"""Exports a store, builds what came out, and compares: there_and_back.py STORE FORMAT...

A format is jsonl, tar, npz or dir, and packed jsonl.gz, tar.zst, ...; -j before them: by that many ranks.
The schema and the key are the store's; a store of derived keys is built with a column "__key__".
Prints "STORE FORMAT: equal", or what came instead.
"""
import json
import os
import shutil
import subprocess
import sys

PACKERS = {"gz": "gzip", "xz": "xz", "bz2": "bzip2", "zst": "zstd"}


def run(*command):
    done = subprocess.run(command, capture_output=True)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def schema_and_key(store):
    with open(f"{store}/dataset.json", encoding="utf-8") as file:
        dataset = json.load(file)
    schema, key = dataset["schema"], dataset["options"].get("key")
    if key is None and not dataset["derived_keys"]:
        key = "path"  # a folder's own
    if key is None:
        key = "__key__"
        schema = {key: "str", **schema}
    return json.dumps(schema), key


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.remove(path)


def there_and_back(store, to, ranks):
    to, _, packing = to.partition(".")
    schema, key = schema_and_key(store)
    target, again = f"{store}.out" + (f".{to}" if to != "dir" else ""), f"{store}.again"
    remove(target)
    remove(again)
    code, out, err = run("rankstore", "export", store, "-o", target, "--to", to)
    if code != 0 or "another spelling" in out:
        return out + err
    if packing:
        done = subprocess.run([PACKERS[packing], "-c", target], stdout=subprocess.PIPE, check=True)
        remove(target)
        target += "." + packing
        with open(target, "wb") as file:
            file.write(done.stdout)
    code, out, err = run("rankstore", "build", target, "-o", again, "--schema", schema, "--key", key, "--unit-size", "64k",
                         *ranks)
    if code == 0:
        code, out, err = run("rankstore", "diff", store, again)
    remove(target)
    remove(again)
    return "equal" if code == 0 and out.rstrip().endswith(": equal") else out + err


def main():
    store, *formats = sys.argv[1:]
    ranks = []
    if formats[0] == "-j":
        ranks, formats = formats[:2], formats[2:]
    for to in formats:
        print(f"{store} {to}: {there_and_back(store, to, ranks)}")


if __name__ == "__main__":
    main()
