# SPDX-License-Identifier: Apache-2.0
"""Reads every #include and fails on a breach of the layers (README, "A map of src/")."""
import os
import re

# folder -> folders it may include from, beside itself
MAY_SEE = {
    "base": [],
    "transport": ["base"],
    "shard": ["base"],
    "codec": ["base", "shard"],
    "index": ["base"],
    "plan": ["base"],
    "collate": ["base", "shard"],
    "group": ["base", "transport"],
    "mpi": ["base", "group"],
    "exchange": ["base", "transport", "group"],
    "ingest": ["base", "shard", "codec"],
    "export": ["base", "shard", "codec"],
    "fetch": ["base", "transport", "shard", "collate"],
    "dataset": ["base", "shard", "group"],
    "store": ["base", "shard", "index", "plan", "group", "exchange", "fetch", "dataset"],
    "builder": ["base", "shard", "group", "exchange", "ingest", "dataset", "store"],
    "manage": ["base", "transport", "shard", "codec", "group", "exchange", "export", "dataset", "store"],
}
ONE_FILE_ONLY = ["lmdb.h", "nccl.h", "cuda.h", "mpi.h", "uv.h", "xxhash.h", "xxh_x86dispatch.h", "sodium.h",
                 "archive.h", "archive_entry.h", "zlib.h"]


def includes(path):
    with open(path, encoding="utf-8") as file:
        return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', file.read(), re.M)


def sources(top):
    for folder, _, files in os.walk(top):
        for name in sorted(files):
            if name.endswith((".c", ".h")):
                yield os.path.join(folder, name)


def report(name, problems):
    print(f"FAIL {name}: {'; '.join(problems)}" if problems else f"ok {name}")


def main():
    breaches, users = [], {header: [] for header in ONE_FILE_ONLY}
    for path in sources("src"):
        own = path.split(os.sep)[1]
        for header in includes(path):
            if header in users:
                users[header].append(path)
            layer = header.split("/")[0] if "/" in header else None
            if layer in MAY_SEE and layer != own and layer not in MAY_SEE[own]:
                breaches.append(f"{path} includes {header}")
    report("each_folder_includes_only_from_the_layers_below", breaches)
    report("each_library_is_included_by_one_file",
           [f"{header}: {', '.join(paths)}" for header, paths in users.items() if len(paths) > 1])
    report("the_command_line_sees_only_the_public_header",
           [f"{path} includes {header}" for path in sources("tools") for header in includes(path)
            if header.split("/")[0] in MAY_SEE])
    missing = []
    for top in ("src", "include", "tools", "tests"):
        for path in sources(top):
            with open(path, encoding="utf-8") as file:
                if "SPDX-License-Identifier: Apache-2.0" not in file.read(200):
                    missing.append(path)
    report("every_file_names_its_licence", missing)


if __name__ == "__main__":
    main()
