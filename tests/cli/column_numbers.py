# SPDX-License-Identifier: Apache-2.0
"""What `rankstore stats --json` says of a column, beside what the numbers themselves say.

Usage: column_numbers.py FILE.jsonl STORE COLUMN...    (`length`: of the text)
"""
import json
import struct
import subprocess
import sys

QUANTILES = {"p1": 0.01, "p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99,
             "p999": 0.999}


def check(rows, store, column, type_of):
    got = json.loads(subprocess.run(["rankstore", "stats", store, "--by", column, "--json"], check=True,
                                    capture_output=True).stdout)
    numbers = sorted(len(row["text"]) if column == "length" else row[column] for row in rows)
    if type_of == "float32":
        numbers = [struct.unpack("f", struct.pack("f", number))[0] for number in numbers]
    assert got["column"] == column and got["type"] == type_of, got
    assert got["count"] == len(numbers) and got["not_finite"] == got["absent"] == 0
    assert (got["min"], got["max"]) == (numbers[0], numbers[-1]), (got["min"], numbers[0])
    for name, part in QUANTILES.items():
        assert got["quantiles"][name] == numbers[int(part * (len(numbers) - 1))], (column, name)
    assert abs(got["mean"] - sum(numbers) / len(numbers)) <= 1e-9 * max(abs(numbers[0]), abs(numbers[-1]))
    bins = got["bins"]
    assert 1 <= len(bins) <= 60 and bins[0]["low"] <= numbers[0] and numbers[-1] <= bins[-1]["high"]
    for bin, after in zip(bins, bins[1:] + [{"low": bins[-1]["high"]}]):
        assert bin["low"] < bin["high"] == after["low"], (column, bin, after)
        assert bin["count"] == sum(bin["low"] <= number < bin["high"] for number in numbers), (column, bin)
    assert got.get("total") == (sum(numbers) if column == "length" else None)
    print(column, "agrees")


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    info = json.loads(subprocess.run(["rankstore", "info", sys.argv[2], "--json"], check=True, capture_output=True).stdout)
    for column in sys.argv[3:]:
        check(rows, sys.argv[2], column, info["schema"].get(column, "uint32"))


if __name__ == "__main__":
    main()
