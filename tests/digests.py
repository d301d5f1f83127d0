# SPDX-License-Identifier: Apache-2.0
"""Shows that a change leaves plans, dataset ids and batches as they are, bit for bit: prints a digest of each of some thousand cases, or
compares two installed packages.

Usage: tests/digests.py NEW OLD            folders with the package, such as build/python/site of two checkouts; exit 1 if they differ
       PYTHONPATH=SITE tests/digests.py    prints "CASE DIGEST" lines
"""
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile

LIMIT_S = 1800
PLANS = int(os.environ.get("PLANS", 3000))


def digest(*parts):
    found = hashlib.sha256()
    for part in parts:
        found.update(part if isinstance(part, bytes) else part.tobytes() if hasattr(part, "tobytes")
                     else json.dumps(part, sort_keys=True).encode())
    return found.hexdigest()[:16]


# ---- plans

def draw_lengths(draw):
    import numpy
    numbers = numpy.random.default_rng(draw.randrange(2**32))
    count = draw.choice([7, 300, 1000, 2000, 4000])
    kind = draw.choice(["lognormal", "equal", "few", "uniform"])
    if kind == "lognormal":
        return numpy.clip(numbers.lognormal(4, 1, count), 1, 3000).astype("uint32")
    if kind == "equal":
        return numpy.full(count, 17, "uint32")
    return numbers.integers(0 if kind == "few" else 1, 5 if kind == "few" else 2000, count).astype("uint32")


def draw_options(draw, count):
    """Options of rankstore.plan but world: often valid ones, sometimes a combination that it refuses."""
    options = {"strategy": draw.choice(["bucket", "sorted", "random", "sequential", "pack"]), "seed": draw.randrange(5),
               "tail": draw.choice(["split", "repeat", "drop"]), "shuffle": draw.random() < 0.8}
    if draw.random() < 0.6:
        options["max_tokens"] = draw.choice([512, 2000, 4096, 16384])
    if draw.random() < 0.5:
        options["batch_size"] = draw.choice([8, 16, 64])
    if draw.random() < 0.7:
        options["too_long"] = draw.choice(["drop", "alone", "truncate", "split"])
        options["max_length"] = draw.choice([16, 100, 512, 1000])
    if draw.random() < 0.4:
        options["cost"] = draw.choice(["tokens", "quadratic", (1.0, 0.001), "padded"])
    if options["strategy"] == "pack":
        options.update(capacity=draw.choice([512, 2048, 4096]), micro_batches=draw.choice([1, 1, 2, 4]), mixed=draw.random() < 0.3)
        options.pop("max_tokens", None)
        if draw.random() < 0.3:
            options["pack_window"] = draw.choice([4, 128])
        if "batch_size" in options:
            options["batch_size"] = draw.choice([1, 2, 4])
    if options["strategy"] == "random" and "max_tokens" in options and draw.random() < 0.5:
        options["steps"] = "per_epoch"
    if options["strategy"] != "pack" and draw.random() < 0.2:
        options["batch_multiple"] = draw.choice([2, 8])
    if draw.random() < 0.2:
        options["length_multiple"] = draw.choice([1, 8, 64])
    if draw.random() < 0.2:
        options["order"] = "longest_first"
    if draw.random() < 0.1:
        options["skip"] = [(0, 0, 3)]
    if draw.random() < 0.1:
        options["balance"] = draw.choice([(1.0, 0.01), [draw.randrange(1, 99) for _ in range(count)]])
    options.update(draw_mix(draw, count))
    return options


def draw_mix(draw, count):
    kind = draw.random()
    if kind < 0.75:
        return {}
    if kind < 0.85:
        return {"weights": [draw.randrange(4) for _ in range(count)]}
    sources = [draw.choice("abc") for _ in range(count)]
    options = {"sources": sources, "mix": {"a": 0.5, "b": 0.3, "c": 0.2}, "mix_unit": draw.choice(["samples", "tokens"])}
    if draw.random() < 0.5:
        options["samples"] = draw.choice([count, 2 * count + 3, count // 2 + 1])
    if draw.random() < 0.3:
        options["curriculum"] = [(3, {"a": 0.1, "b": 0.9}, None)]
    return options


def digest_epoch(plan, number):
    epoch = plan.epoch(number)
    bounds, ids = epoch.batches(-1)
    parts = [bounds, ids, epoch.pieces(-1)]
    if plan.options["strategy"] == "pack":
        parts += [plan.core.bins(number, step, plan.world - 1) for step in range(min(len(epoch), 20))]
    return digest(*(bytes(part) if isinstance(part, memoryview) else part for part in parts))


def without_over(state):
    """Without the member that newer states have where the epoch is over."""
    return {**state, "plan": state["plan"].replace(', "over": true', "")}


def without_absent(report):
    """Without what newer reports count: nothing is absent here."""
    return {name: value for name, value in report.items() if name not in ("absent", "left_out")}


def digest_plan(rankstore, lengths, options, draw):
    """Fresh epochs; then one that is resumed by another number of ranks, and by a third."""
    worlds = [draw.choice([1, 1, 2, 3, 4, 8, 16, 64]) for _ in range(3)]
    seen = []
    try:
        plan = rankstore.plan(lengths, world=worlds[0], **options)
        seen += [plan.hash, plan.steps, *(digest_epoch(plan, number) for number in (0, 1, 5)), without_absent(plan.report(1))]
        epoch = draw.choice([0, 3])
        for world in worlds[1:]:
            multiple = plan.micro_batches
            step = draw.randrange(plan.core.steps(epoch) + 1) // multiple * multiple
            state = plan.state(epoch, step)
            plan = rankstore.plan(lengths, world=world, **options)
            plan.resume(state)
            seen += [without_over(state), digest_epoch(plan, epoch), digest_epoch(plan, epoch + 1)]
    except rankstore.RankStoreError as error:
        return digest(seen, type(error).__name__) + "-refused"
    return digest(seen)


def plans(rankstore):
    for number in range(PLANS):
        draw = random.Random(number)
        lengths = draw_lengths(draw)
        options = draw_options(draw, len(lengths))
        yield f"plan {number} {options['strategy']}", digest_plan(rankstore, lengths, options, draw)


# ---- datasets and batches

def rows(draw, count):
    return [{"id": f"row-{i}", "tokens": [draw.randrange(50000) for _ in range(draw.randrange(1, 60))], "score": draw.random(),
             "text": "é" * draw.randrange(9), "more": {"a": [i, None, "x"]}, "flag": draw.random() < 0.5} for i in range(count)]


def write_inputs(folder):
    """{name: (source, options of build)}"""
    import numpy
    draw = random.Random(7)
    made = rows(draw, 700)
    inputs = {"list": (made, {"key": "id", "index": ["score"]}), "generator": ((one for one in made), {"length": "tokens"}),
              "map": (made, {"map": lambda row: {"tokens": row["tokens"][:9], "n": len(row["tokens"])}, "length": "n"}),
              "arrays": ({"x": numpy.arange(600, dtype="float32").reshape(200, 3), "y": numpy.arange(200)}, {}),
              "filter": (made, {"filter": lambda row: row["flag"], "length": "tokens"})}
    with open(os.path.join(folder, "rows.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in made)
    with open(os.path.join(folder, "rows.json"), "w", encoding="utf-8") as file:
        json.dump(made, file)
    with open(os.path.join(folder, "rows.csv"), "w", encoding="utf-8") as file:
        file.write("name,n,x\n" + "".join(f"r{i},{draw.randrange(99)},{draw.random()}\n" for i in range(900)))
    with open(os.path.join(folder, "lines.txt"), "w", encoding="utf-8") as file:
        file.writelines("word " * draw.randrange(1, 30) + "\n" for _ in range(800))
    numpy.save(os.path.join(folder, "rows.npy"), numpy.random.default_rng(1).random((300, 5)).astype("float32"))
    numpy.savez(os.path.join(folder, "rows.npz"), a=numpy.arange(50), b=numpy.ones((50, 2), "int16"))
    os.mkdir(os.path.join(folder, "files"))
    for i in range(40):
        with open(os.path.join(folder, "files", f"{i}.bin"), "wb") as file:
            file.write(draw.randbytes(draw.randrange(400)))
    subprocess.run(["tar", "--sort=name", "-cf", "files.tar", "files"], cwd=folder, check=True, timeout=60)
    for name in ("rows.jsonl", "rows.json", "rows.csv", "lines.txt", "rows.npy", "rows.npz", "files", "files.tar"):
        inputs[name] = (os.path.join(folder, name), {"length": "tokens"} if name in ("rows.jsonl", "rows.json") else {})
    inputs["small units"] = (os.path.join(folder, "rows.jsonl"), {"unit_size": 65536, "key": "id", "index": ["score"], "length": "tokens"})
    inputs["where"] = (os.path.join(folder, "rows.jsonl"), {"where": "score > 0.25", "dedup": True, "max_length": 40, "length": "tokens"})
    inputs["sampled"] = (os.path.join(folder, "lines.txt"), {"sample": 0.5, "seed": 3, "max_total": 2000})
    return inputs


def layouts(rankstore):
    return {"pad": rankstore.Pad(), "left": rankstore.Pad(side="left", to_multiple=16), "pack": rankstore.Pack(),
            "lists": rankstore.Lists()}


def digest_batches(dataset, layout):
    """The first epoch of one column, in batches of the default strategy."""
    plan = dataset.plan(batch_size=16, seed=1)
    column = next((name for name, kind in dataset.schema.items() if not kind.is_text), None)
    if column is None:
        return "text-alone"
    seen = []
    for batch in dataset.loader(plan, collate=layout, columns=[column], out="numpy"):
        for name, values in sorted(batch.items()):
            for array in values if isinstance(values, (list, tuple)) else [values]:
                seen.append(f"{name} {getattr(array, 'dtype', type(array).__name__)} {getattr(array, 'shape', '')}")
                seen.append(digest(array if hasattr(array, "tobytes") else repr(array).encode()))
    return digest(seen)


def datasets(rankstore):
    with tempfile.TemporaryDirectory() as folder:
        for name, (source, options) in write_inputs(folder).items():
            with rankstore.build(source, os.path.join(folder, "made-" + name.replace(" ", "-")), progress=False, **options) as dataset:
                schema = {column: kind.text for column, kind in dataset.schema.items()}
                yield f"dataset {name}", digest(dataset.id, schema, dataset.lengths, *dataset.keys[-3:])
                for kind, layout in layouts(rankstore).items():
                    try:
                        yield f"batches {name} {kind}", digest_batches(dataset, layout)
                    except (rankstore.RankStoreError) as error:
                        yield f"batches {name} {kind}", type(error).__name__ + "-refused"


def of_package(site):
    done = subprocess.run([sys.executable, os.path.abspath(__file__)], env={**os.environ, "PYTHONPATH": site}, text=True,
                          stdout=subprocess.PIPE, timeout=LIMIT_S, check=True)
    return dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())


def compare(new, old):
    found = [of_package(new), of_package(old)]
    differ = [name for name in sorted({*found[0], *found[1]}) if found[0].get(name) != found[1].get(name)]
    for name in differ:
        print(f"differs: {name}: {found[0].get(name)}, was {found[1].get(name)}")
    refused = sum("-refused" in value for value in found[0].values())
    print(f"{len(found[0])} cases, {refused} of them refused in the end, {len(differ)} differ")
    return 1 if differ or not found[0] else 0


def main():
    if len(sys.argv) == 3:
        return compare(*sys.argv[1:])
    import rankstore
    for of in (datasets, plans):
        for name, found in of(rankstore):
            print(name, found, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
