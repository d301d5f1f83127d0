#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole builds of each input, beside the library that reads the input and beside the floors of the machine, in one run.

A row is a process of its own, which reads its input from the page cache; a build ends when the dataset is durable. Rows
take turns, ROUNDS times. Printed: the median rate (MB of the input a second), its share of the row that it is compared with
(the median of each round's ratio, so that what else the machine does disturbs little), and seconds of processor.

Usage: tests/bench/inputs.py BUILD DIRECTORY [--size MB] [--rounds N] [--only NAME,...] [--json]
       BUILD holds the command line and floor_inputs; the Python package is what PYTHONPATH has. DIRECTORY needs about four
       times the size. Peers that are not installed (pyarrow, datasets) are left out.
"""
import argparse
import gzip
import io
import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import tarfile
import time

SCHEMA = "id:int64,text:str,n:float64,junk:json"


# ---- inputs ----------------------------------------------------------------------------------------------------------

def rows(count):
    """{id, text of some 350 bytes, a number with a fraction, an object}."""
    chance = random.Random(1)
    words = ["".join(chance.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(chance.randint(2, 10))) for _ in range(5000)]
    texts = [" ".join(chance.choice(words) for _ in range(chance.randint(10, 100))) for _ in range(20_000)]
    for i in range(count):
        yield {"id": i, "text": texts[i % len(texts)], "n": i * 0.37, "junk": {"a": [1, 2, 3], "b": "x" * (i % 97)}}


def make_lines(path, size):
    with open(path, "w", encoding="utf-8") as file:
        left = size
        for row in rows(1 << 40):
            line = json.dumps(row) + "\n"
            file.write(line)
            left -= len(line)
            if left <= 0:
                return row["id"] + 1


def make(inputs, size):
    """The files that are missing. JSON lines have `size` bytes; all others hold the first quarter of their rows."""
    os.makedirs(inputs, exist_ok=True)
    lines, note = os.path.join(inputs, "in.jsonl"), os.path.join(inputs, "made")
    if os.path.exists(note):
        with open(note, encoding="utf-8") as file:
            known, count = map(int, file.read().split())
        if known == size:
            return count
    count = make_lines(lines, size)
    part = count // 4
    with open(os.path.join(inputs, "in.csv"), "w", encoding="utf-8") as file:
        file.write("id,text,n\n")
        file.writelines(f'{row["id"]},{row["text"]},{row["n"]!r}\n' for row in rows(part))
    with gzip.open(os.path.join(inputs, "in.jsonl.gz"), "wt", compresslevel=1, encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows(part))
    with tarfile.open(os.path.join(inputs, "in.tar"), "w") as tar:
        for row in rows(part // 8):
            for ending, text in (("txt", row["text"] * 8), ("json", json.dumps(row["junk"]))):
                data = text.encode()
                member = tarfile.TarInfo(f"{row['id']:08}.{ending}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    make_mds(os.path.join(inputs, "mds"), part)
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
        table = pa.Table.from_pylist([{**row, "junk": json.dumps(row["junk"])} for row in rows(part)])
        pq.write_table(table, os.path.join(inputs, "in.parquet"), row_group_size=20_000)
    except ImportError:
        pass
    with open(note, "w", encoding="utf-8") as file:
        file.write(f"{size} {count}")
    return count


def make_mds(folder, count):
    """One shard a 64 MB, as MosaicML's StreamingDataset has them."""
    shutil.rmtree(folder, ignore_errors=True)  # of another size it may have more shards
    os.makedirs(folder)
    shards, samples, size = [], [], 0

    def flush():
        nonlocal samples, size
        name = f"shard.{len(shards):05}.mds"
        offsets = [4 * (len(samples) + 2)]
        for sample in samples:
            offsets.append(offsets[-1] + len(sample))
        with open(os.path.join(folder, name), "wb") as file:
            file.write(struct.pack("<I", len(samples)) + struct.pack(f"<{len(offsets)}I", *offsets) + b"".join(samples))
        shards.append({"column_encodings": ["int", "float64", "str"], "column_names": ["id", "n", "text"],
                       "column_sizes": [8, 8, None], "compression": None, "format": "mds", "hashes": [],
                       "raw_data": {"basename": name, "bytes": offsets[-1], "hashes": {}}, "samples": len(samples),
                       "size_limit": 1 << 26, "version": 2, "zip_data": None})
        samples, size = [], 0

    for row in rows(count):
        text = row["text"].encode()
        samples.append(struct.pack("<Iqd", len(text), row["id"], row["n"]) + text)
        size += len(samples[-1])
        if size > 60 << 20:
            flush()
    flush()
    with open(os.path.join(folder, "index.json"), "w", encoding="utf-8") as file:
        json.dump({"shards": shards, "version": 2}, file)


def size_of(path):
    if os.path.isdir(path):
        return sum(size_of(os.path.join(path, name)) for name in os.listdir(path))
    return os.path.getsize(path)


# ---- rows ------------------------------------------------------------------------------------------------------------

class Row:
    """Something that is timed: a command that prints {"seconds", "cpu"}, Python between "begin" and "end", or a build."""

    def __init__(self, name, source, command, beside=None, text_bytes=None, needs=()):
        self.name, self.source, self.command, self.beside = name, source, command, beside
        self.bytes = text_bytes if text_bytes is not None else size_of(source)
        self.needs = needs
        self.rates, self.cpus = [], []

    def run(self, out):
        shutil.rmtree(out, ignore_errors=True)
        if os.path.isfile(out):
            os.unlink(out)
        before, begun = os.times(), time.perf_counter()
        done = subprocess.run([part.replace("OUT", out) for part in self.command], capture_output=True, text=True, check=False)
        seconds, after = time.perf_counter() - begun, os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        if done.returncode != 0:
            raise SystemExit(f"{self.name}: exit code {done.returncode}\n{done.stderr[-2000:]}")
        last = done.stdout.strip().splitlines()[-1:]
        if last and last[0].startswith('{"seconds"'):
            told = json.loads(last[0])
            seconds, cpu = told["seconds"], told["cpu"]
        self.rates.append(self.bytes / seconds / 1e6)
        self.cpus.append(self.bytes / cpu / 1e6 if cpu > 0 else 0)


def python(code):
    """`code` is "imports ;; what is timed"."""
    imports, timed = code.split(";;")
    text = (f"import time, json\n{imports.strip()}\nbegun, used = time.perf_counter(), time.process_time()\n{timed.strip()}\n"
            'print("\\n" + json.dumps({"seconds": time.perf_counter() - begun, "cpu": time.process_time() - used}))')
    return [sys.executable, "-c", text]


def table(build, inputs, count, outputs):
    cli, floor = os.path.join(build, "tools/rankstore/rankstore"), os.path.join(build, "tests/bench/floor_inputs")
    lines, parquet = os.path.join(inputs, "in.jsonl"), os.path.join(inputs, "in.parquet")
    csv, packed, tar, mds = (os.path.join(inputs, name) for name in ("in.csv", "in.jsonl.gz", "in.tar", "mds"))
    part = count // 4
    made = f"import rankstore, sys; sys.path.insert(0, {os.path.dirname(os.path.abspath(__file__))!r}); import inputs"
    ours = "rankstore.build({!r}, 'OUT', progress=False{}).close()"
    text = size_of(lines) // 4
    return [
        Row("read", lines, ["dd", f"if={lines}", "of=/dev/null", "bs=4M", "status=none"]),
        Row("simdjson", lines, [floor, "parse", lines]),
        Row("write + fdatasync", lines, [floor, "write", "OUT", str(outputs)], text_bytes=outputs),
        Row("json.loads", lines, python(f";;\nfor line in open({lines!r}, 'rb'): json.loads(line)")),
        Row("pyarrow.json", lines, python(f"import pyarrow as pa; pa.set_cpu_count(1); import pyarrow.json as pj;;"
                                          f"pj.read_json({lines!r}, read_options=pj.ReadOptions(use_threads=False))"),
            needs=("pyarrow",)),
        Row("load_dataset", lines, python("import datasets; datasets.disable_progress_bars();;"
                                          f"datasets.load_dataset('json', data_files={lines!r}, cache_dir='OUT')"),
            needs=("datasets",)),
        Row("build --schema", lines, [cli, "build", lines, "-o", "OUT", "--schema", SCHEMA], "simdjson"),
        Row("build", lines, [cli, "build", lines, "-o", "OUT"], "simdjson"),
        Row("build, one core", lines, ["taskset", "-c", "0", cli, "build", lines, "-o", "OUT"], "simdjson"),
        Row("build -j 2", lines, [cli, "build", lines, "-o", "OUT", "-j", "2"], "build, one core"),
        Row("Python build", lines, python(f"{made};;{ours.format(lines, '')}"), "build"),
        Row("f alone", packed, python(f";;\nfor line in open({lines!r}, 'rb').readlines({text}): dict(json.loads(line), x=1)"),
            text_bytes=text),
        Row("Python build, map=f", packed, python(
            f"{made}\nimport itertools\nopen('OUT.jsonl', 'wb').writelines(open({lines!r}, 'rb').readlines({text}));;"
            "rankstore.build('OUT.jsonl', 'OUT', map=lambda row: dict(row, x=1), progress=False).close()"),
            "f alone", text_bytes=text),
        Row("pyarrow.csv", csv, python("import pyarrow as pa; import pyarrow.csv as pc;;"
                                       f"pc.read_csv({csv!r}, read_options=pc.ReadOptions(use_threads=False))"),
            needs=("pyarrow",)),
        Row("build CSV", csv, [cli, "build", csv, "-o", "OUT"], "pyarrow.csv"),
        Row("zlib", packed, [floor, "unzip", packed], text_bytes=text),
        Row("build lines.gz", packed, [cli, "build", packed, "-o", "OUT"], "zlib", text_bytes=text),
        Row("tarfile", tar, python(f"import tarfile;;\nwith tarfile.open({tar!r}) as tar:\n  for m in tar: tar.extractfile(m).read()")),
        Row("build tar", tar, [cli, "build", tar, "-o", "OUT"], "tarfile"),
        Row("build MDS", mds, [cli, "build", mds, "-o", "OUT"], "write + fdatasync"),
        Row("pyarrow.parquet", parquet, python("import pyarrow as pa; import pyarrow.parquet as pq;;"
                                               f"pq.read_table({parquet!r}, use_threads=False)"), text_bytes=text,
            needs=("pyarrow",)),
        Row("build Parquet", parquet, python(f"{made};;{ours.format(parquet, '')}"), "pyarrow.parquet", text_bytes=text,
            needs=("pyarrow",)),
        Row("pyarrow from_pylist", lines, python(f"{made}; import pyarrow as pa; data = list(inputs.rows({part}));;"
                                                "pa.Table.from_pylist(data)"), text_bytes=text, needs=("pyarrow",)),
        Row("build list of dicts", lines, python(f"{made}; data = list(inputs.rows({part}));;"
                                                 "rankstore.build(data, 'OUT', progress=False).close()"),
            "pyarrow from_pylist", text_bytes=text),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("directory")
    parser.add_argument("--size", type=int, default=1000, metavar="MB", help="of the JSON lines (default 1000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", metavar="NAME,...", help="rows whose names contain one of these")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    inputs, out = os.path.join(args.directory, "inputs"), os.path.join(args.directory, "out")
    count = make(inputs, args.size * 1_000_000)
    all_rows = table(os.path.abspath(args.build), inputs, count, int(args.size * 0.92e6))
    wanted = args.only.split(",") if args.only else [""]
    chosen = []
    for row in all_rows:
        missing = [name for name in row.needs if subprocess.run([sys.executable, "-c", f"import {name}"],
                                                                capture_output=True, check=False).returncode]
        if missing:
            print(f"left out: {row.name} ({', '.join(missing)} is not installed)", file=sys.stderr)
        elif any(one in row.name for one in wanted):
            chosen.append(row)
    for turn in range(args.rounds):
        for row in chosen:
            print(f"round {turn + 1}: {row.name}", file=sys.stderr)
            row.run(out)
            shutil.rmtree(out, ignore_errors=True)
            for name in (out, out + ".jsonl"):
                if os.path.isfile(name):
                    os.unlink(name)
    known = {row.name: row for row in chosen}
    if args.json:
        print(json.dumps({row.name: {"mb_s": row.rates, "mb_cpu_s": row.cpus, "beside": row.beside} for row in chosen}))
        return
    print(f"{'':24}{'MB/s':>8}{'MB/CPU-s':>10}   beside")
    for row in chosen:
        beside = known.get(row.beside)
        text = ""
        if beside is not None:
            ratio = statistics.median(a / b for a, b in zip(row.rates, beside.rates))
            by_cpu = statistics.median(row.cpus) / statistics.median(beside.cpus)
            text = f"{100 * ratio:.0f} % of {beside.name} ({100 * by_cpu:.0f} % by CPU)"
        print(f"{row.name:24}{statistics.median(row.rates):>8.0f}{statistics.median(row.cpus):>10.0f}   {text}")


if __name__ == "__main__":
    main()
