# SPDX-License-Identifier: Apache-2.0
"""Appends, merges, prunes and builds that leave samples out: killed in front of each call that changes the disk, at
random, and on disks that are full from any such call on."""
import glob
import itertools
import json
import os
import shutil
import signal
import subprocess
import time

from common import BUILD, CHOICE, CLI, LIMIT, killed_after, make_input, path, rankstore, rankstore_json
from support.report import Skip

SHIM = os.path.join(BUILD, "tests", "faults", "libdie.so")
OPTIONS = ["--key", "key", "--length", "text", "--unit-size", "4k"]


def make_twins(name, first, lines):
    """Lines with keys from `first` on, of which each third has the text of the one before."""
    if not os.path.exists(path(name)):
        with open(path(name), "w", encoding="utf-8") as file:
            for i in range(first, first + lines):
                twin = i - (i % 3 == 2)
                file.write(json.dumps({"key": f"t{i:05d}", "text": f"text {twin} " + "x" * (twin * 7 % 90)}) + "\n")
    return path(name)


def stopped(how, number, arguments):
    """Runs the command with DIE_AT or FULL_AT; its exit code and standard error."""
    done = subprocess.run([CLI, *arguments], capture_output=True, text=True, timeout=LIMIT,
                          env={**os.environ, "LD_PRELOAD": SHIM, how: str(number)})
    return done.returncode, done.stderr


def at_each_call(how, arguments, before, after):
    """Stops the command in front of its first call, its second, ..., until it is not stopped any more. Returns how often."""
    for number in itertools.count(1):
        before(number)
        code, err = stopped(how, number, arguments)
        if code == 0:
            return number - 1
        assert code == (-signal.SIGKILL if how == "DIE_AT" else 3), (how, number, code, err)
        assert how == "DIE_AT" or "disk full" in err or "No space left" in err, (number, err)
        after(number)
    return 0


def dataset_of(directory):
    """Its id; None where there is none, which info says in so many words."""
    done = subprocess.run([CLI, "info", directory, "--json"], capture_output=True, text=True, timeout=LIMIT)
    if done.returncode == 0:
        return json.loads(done.stdout)["dataset"]
    assert done.returncode == 1 and ("no dataset here" in done.stderr or "not finished" in done.stderr), done
    assert not os.path.exists(os.path.join(directory, "dataset.json")), done
    return None


def listed_shards(path):
    """The names of shards in a list of shards and units, as FORMAT.md has it."""
    with open(path, "rb") as file:
        data = file.read()
    names, at = [], 24
    for _ in range(int.from_bytes(data[8:16], "little")):
        size = int.from_bytes(data[at + 88:at + 92], "little")
        names.append(data[at + 96:at + 96 + size].decode())
        at += (96 + size + int.from_bytes(data[at + 92:at + 96], "little") + 7) // 8 * 8
    return names


def check_nothing_is_left(directory, more=frozenset()):
    """It holds what its generations name and the files `more`, and nothing else, at the latest after a prune."""
    rankstore("verify", "--full", directory)
    rankstore("prune", directory)
    names = set(more)
    for file in glob.glob(directory + "/dataset*.json"):
        with open(file, encoding="utf-8") as text:
            dataset = json.load(text)
        names |= {os.path.basename(file)}
        lists = [one["name"] for one in dataset.get("lists", [])]
        shards = [shard["name"] for shard in dataset["shards"]]
        for one in lists:
            shards += listed_shards(os.path.join(directory, one))
        names |= {f"{shard}.{ending}" for shard in shards for ending in ("rks", "sums", "json")} | set(lists)
        keys = {one.replace(".units", ".keys") for one in lists}  # of appends by one process, with stored keys
        names |= {one for one in keys if os.path.exists(os.path.join(directory, one))}
        names |= {one["name"] for one in dataset["index_files"]}
        names |= {dataset["excluded"]["name"]} if "excluded" in dataset["requires"] else set()
    assert set(os.listdir(directory)) == names, set(os.listdir(directory)) ^ names
    assert rankstore("prune", directory)[0].startswith("0 generations and 0 files"), "a prune left something"


# ---- merges ---------------------------------------------------------------------------------


def make_sources():
    if not os.path.exists(path("left")):
        rankstore("build", make_twins("twins.left.jsonl", 0, 200), "-o", path("left"), "--dedup", "-j", "2", *OPTIONS)
        rankstore("build", make_twins("twins.right.jsonl", 1000, 200), "-o", path("right"), *OPTIONS)
        rankstore("merge", path("left"), path("right"), "-o", path("both"))
    return dataset_of(path("both"))


def a_merge_killed_in_front_of_any_call_is_none_or_whole():
    whole, target, seen = make_sources(), path("merged"), {None: 0, "whole": 0}

    def before(number):
        if number % 3 == 0 or dataset_of(target) is not None:
            shutil.rmtree(target, ignore_errors=True)

    def after(number):
        found = dataset_of(target)
        assert found in (None, whole), (number, found)
        seen[None if found is None else "whole"] += 1

    for way in ("--copy", None):
        arguments = ["merge", path("left"), path("right"), "-o", target] + ([way] if way else [])
        shutil.rmtree(target, ignore_errors=True)
        calls = at_each_call("DIE_AT", arguments, before, after)
        assert calls > 20 and seen[None] > 10 and seen["whole"] > 0, (calls, seen)
        assert dataset_of(target) == whole
        check_nothing_is_left(target)
    for source in ("left", "right"):
        rankstore("verify", "--full", path(source))


def a_merge_killed_at_random_on_several_ranks_is_none_or_whole():
    whole, target, duration = make_sources(), path("merged"), 0.1
    shutil.rmtree(target, ignore_errors=True)
    for _ in range(30):
        ranks, way = CHOICE.choice("1234"), CHOICE.choice(([], ["--copy"]))
        killed_after(CHOICE.uniform(0, duration), ["merge", path("left"), path("right"), "-o", target, "-j", ranks, *way])
        found = dataset_of(target)
        assert found in (None, whole), found
        if found == whole:
            check_nothing_is_left(target)
            shutil.rmtree(target)
    if dataset_of(target) is None:
        rankstore("merge", path("left"), path("right"), "-o", target)
    check_nothing_is_left(target)


def a_merge_onto_a_disk_that_gets_full_leaves_nothing():
    whole, target = make_sources(), path("merged")

    def after(number):
        left = os.listdir(target) if os.path.exists(target) else []
        assert left == [], (number, left)

    shutil.rmtree(target, ignore_errors=True)
    at_each_call("FULL_AT", ["merge", path("left"), path("right"), "-o", target, "--copy"], lambda number: None, after)
    assert dataset_of(target) == whole
    check_nothing_is_left(target)


def a_merge_whose_last_sync_failed_leaves_nothing_and_runs_again():
    make_sources()
    target = path("unsynced.both")
    for name in ("dataset.json", "."):
        for ranks in ("1", "2"):
            command = ["merge", path("left"), path("right"), "-o", target, "-j", ranks]
            rankstore(*command, code=3, env={"LD_PRELOAD": SHIM, "UNSYNCED": name})
            assert not os.path.exists(target), os.listdir(target)
            rankstore(*command)
            check_nothing_is_left(target)
            shutil.rmtree(target)


# ---- appends and prunes ---------------------------------------------------------------------


def an_append_or_prune_killed_at_any_instant_leaves_whole_generations():
    first, more = make_input("input2000.jsonl", 2000), path("more.jsonl")
    with open(make_input("input20000.jsonl", 20000), encoding="utf-8") as lines, open(more, "w", encoding="utf-8") as file:
        file.writelines(line for number, line in enumerate(lines) if number >= 2000)
    options = ["--key", "key", "--length", "text", "--unit-size", "64k"]
    rankstore("build", first, "-o", path("before"), *options)
    before = rankstore_json("info", path("before"))["dataset"]
    shutil.copytree(path("before"), path("after"))
    begun = time.monotonic()
    rankstore("build", more, "-o", path("after"), "--append", "-j", "2")
    duration = time.monotonic() - begun
    after = rankstore_json("info", path("after"))["dataset"]
    target = path("grown")
    for round_number in range(30):
        if round_number % 6 == 0:
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(path("before"), target)
        arguments = ["build", more, "-o", target, "--append", "-j", CHOICE.choice("123")]
        if rankstore_json("info", target)["dataset"] == after:
            arguments = ["prune", target, "--keep", CHOICE.choice("12")]
        killed_after(CHOICE.uniform(0, duration if "build" in arguments else 0.05), arguments)
        info = rankstore_json("info", target)
        assert info["dataset"] in (before, after), "another dataset after a kill"
        assert [g["id"] for g in info["generations"]] in ([before], [before, after], [after]), info["generations"]
        for generation in info["generations"]:
            rankstore("ls", f"{target}@{generation['generation']}", "--head", "1")
    if rankstore_json("info", target)["dataset"] == before:
        rankstore("build", more, "-o", target, "--append")
    rankstore("prune", target)
    assert rankstore_json("info", target)["dataset"] == after
    rankstore("verify", "--full", target)
    assert rankstore("prune", target)[0].startswith("0 generations and 0 files"), "a prune left something"




def make_grown():
    """A dataset, and what is appended to it; their ids."""
    more = make_twins("twins.more.jsonl", 5000, 150)
    if not os.path.exists(path("grown.small")):
        rankstore("build", make_twins("twins.first.jsonl", 0, 100), "-o", path("grown.small"), "--dedup", *OPTIONS)
        shutil.copytree(path("grown.small"), path("grown.large"))
        rankstore("build", more, "-o", path("grown.large"), "--append", "--dedup", "--unit-size", "4k")
    return more, dataset_of(path("grown.small")), dataset_of(path("grown.large"))


def check_generations(target, small, large):
    info = rankstore_json("info", target)
    assert [g["id"] for g in info["generations"]] in ([small], [small, large], [large]), info["generations"]
    for generation in info["generations"]:
        rankstore("diff", f"{target}@{generation['generation']}", path("grown.small" if generation["id"] == small else "grown.large"))


def an_append_stopped_in_front_of_any_call_leaves_whole_generations():
    more, small, large = make_grown()
    target = path("growing")
    for how in ("DIE_AT", "FULL_AT"):
        def before(number):
            if number % 4 == 1 or dataset_of(target) == large:
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(path("grown.small"), target)

        calls = at_each_call(how, ["build", more, "-o", target, "--append", "--dedup", "--unit-size", "4k"], before,
                             lambda number: check_generations(target, small, large))
        assert calls > 20, calls
        assert dataset_of(target) == large
        check_nothing_is_left(target)
        rankstore("prune", target, "--keep", "1")
        check_nothing_is_left(target)
        shutil.rmtree(target)


def a_prune_killed_in_front_of_any_call_keeps_what_it_should():
    _, small, large = make_grown()
    target = path("pruned")

    def before(number):
        if number % 2 == 1 or os.path.exists(target):
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(path("grown.large"), target)
            for ending in ("rks", "sums", "json", "rks.3.tmp"):
                shutil.copy(glob.glob(target + "/part-*.sums")[0], f"{target}/part-0000000000000000-0000000000000000.{ending}")

    calls = at_each_call("DIE_AT", ["prune", target, "--keep", "1"], before, lambda number: check_generations(target, small, large))
    assert calls > 5, calls
    check_nothing_is_left(target)


def a_repair_stopped_in_front_of_any_call_leaves_the_dataset_and_goes_on():
    source, whole, target = make_input("input2000.jsonl", 2000), path("mended.whole"), path("mended")
    rankstore("build", source, "-o", whole, "--key", "key", "--unit-size", "16k", "-j", "3")
    lost = CHOICE.choice(glob.glob(whole + "/part-*.rks")).removesuffix(".rks")
    repaired = [0, 0]  # before the end, and at the end

    def damage():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(whole, target)
        for ending in ("rks", "sums", "json"):
            os.unlink(f"{target}/{os.path.basename(lost)}.{ending}")

    def before(number):
        if number % 4 == 1:
            damage()

    def after(number):
        rankstore("verify", "--full", "--missing", "partial", target)
        found = rankstore_json("repair", target, code=None)
        still = found["lost_shards"]
        assert found["dataset"] == dataset_of(whole) and still in (0, 1), found
        repaired[still == 0] += 1
        if still == 0:
            rankstore("diff", target, whole)

    for how in ("DIE_AT", "FULL_AT"):
        damage()
        calls = at_each_call(how, ["repair", target, source], before, after)
        assert calls > 20, calls
        rankstore("repair", target, source)
        rankstore("verify", "--full", target)
        rankstore("diff", target, whole)
    assert repaired[0] > 20, repaired


def an_append_and_a_merge_on_a_small_disk_say_so_and_go_on_when_there_is_room():
    if os.geteuid() != 0:
        raise Skip("needs root to mount a small file system")
    disk = path("cramped")
    os.makedirs(disk)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True).returncode != 0:
        raise Skip("cannot mount a tmpfs here")
    try:
        first, more = make_input("input2000.jsonl", 2000), path("rest.jsonl")
        with open(make_input("input20000.jsonl", 20000), encoding="utf-8") as lines, open(more, "w", encoding="utf-8") as file:
            file.writelines(line for number, line in enumerate(lines) if number >= 2000)
        options = ["--key", "key", "--length", "text", "--unit-size", "256k"]
        rankstore("build", first, "-o", disk + "/store", *options)
        rankstore("build", first, "-o", path("head"), *options)
        rankstore("build", more, "-o", path("tail"), *options)
        head = dataset_of(disk + "/store")
        _, err = rankstore("build", more, "-o", disk + "/store", "--append", code=3)
        assert "disk full" in err and "cramped/store" in err, err
        assert dataset_of(disk + "/store") == head
        _, err = rankstore("merge", path("head"), path("tail"), "-o", disk + "/merged", code=3)
        assert "disk full" in err and "cramped/merged" in err and not os.path.exists(disk + "/merged"), err
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        rankstore("build", more, "-o", disk + "/store", "--append", "-j", "2")
        rankstore("merge", path("head"), path("tail"), "-o", disk + "/merged")
        rankstore("diff", disk + "/store", disk + "/merged")
        for name in ("store", "merged"):
            check_nothing_is_left(f"{disk}/{name}")
    finally:
        subprocess.run(["umount", disk], check=True)


# ---- exports ----------------------------------------------------------------------------------


def content_of(target):
    """Every byte below the path."""
    if os.path.isfile(target):
        with open(target, "rb") as file:
            return file.read()
    found = {}
    for file in sorted(glob.glob(target + "/**", recursive=True)):
        if os.path.isfile(file):
            with open(file, "rb") as handle:
                found[os.path.relpath(file, target)] = handle.read()
    return found


def an_export_stopped_in_front_of_any_call_is_none_or_whole():
    make_sources()
    place = path("export.out")
    for to in ("jsonl", "tar", "npz", "lmdb", "dir"):
        target = f"{place}/x"
        arguments = ["export", path("left"), "-o", target, "--to", to, "--where", 'key < "t00020"']
        os.makedirs(place)
        rankstore(*arguments)
        whole = content_of(target)
        for how in ("FULL_AT", "DIE_AT"):
            shutil.rmtree(place)
            os.makedirs(place)

            def after(number):
                if how == "FULL_AT":
                    assert set(os.listdir(place)) <= {"x"}, (to, number, os.listdir(place))
                if os.path.exists(target):
                    assert content_of(target) == whole, (to, number)
                    shutil.rmtree(target) if os.path.isdir(target) else os.remove(target)

            assert at_each_call(how, arguments, lambda number: None, after) > 3
            assert os.listdir(place) == ["x"] and content_of(target) == whole, (to, how, os.listdir(place))
        shutil.rmtree(place)


# ---- builds that leave samples out ------------------------------------------------------------


def a_build_that_leaves_samples_out_ends_the_same_however_it_was_stopped():
    source, target = make_twins("twins.many.jsonl", 0, 3000), path("chosen")
    options = ["--key", "key", "--length", "text", "--unit-size", "16k", "--dedup", "--sample", "700", "--seed", "5"]
    begun = time.monotonic()
    whole = rankstore_json("build", source, "-o", path("chosen.whole"), *options)
    duration = time.monotonic() - begun
    assert whole["samples"] == 700 and whole["duplicates"] == 1000, whole

    def end(finished):
        assert (finished["dataset"], finished["samples"], finished["duplicates"], finished["sampled_out"]) == (
            whole["dataset"], 700, 1000, whole["sampled_out"]), finished
        rankstore("diff", target, path("chosen.whole"))
        check_nothing_is_left(target)
        shutil.rmtree(target)

    for how in ("DIE_AT", "FULL_AT"):
        number = 0
        while number < 1000:
            number += 1 + CHOICE.randrange(3)  # some of them: what is there makes each one go on elsewhere
            code, err = stopped(how, number, ["build", source, "-o", target, *options])
            if code == 0:
                break
            assert code in (-signal.SIGKILL, 3), (how, number, code, err)
            assert dataset_of(target) in (None, whole["dataset"]), number
            if dataset_of(target) is not None:
                shutil.rmtree(target)
        assert 10 < number < 1000, number
        end(rankstore_json("build", source, "-o", target, *options, "--replace"))
    for _ in range(25):
        ranks = CHOICE.choice("1234")
        out = killed_after(CHOICE.uniform(0, duration * 2), ["build", source, "-o", target, *options, "-j", ranks, "--json"])
        if out is not None:
            end(json.loads(out))
        if os.path.exists(target) and dataset_of(target) is not None:
            shutil.rmtree(target)
    end(rankstore_json("build", source, "-o", target, *options, "-j", "3"))


TESTS = [
    a_merge_killed_in_front_of_any_call_is_none_or_whole,
    a_merge_whose_last_sync_failed_leaves_nothing_and_runs_again,
    a_merge_killed_at_random_on_several_ranks_is_none_or_whole,
    a_merge_onto_a_disk_that_gets_full_leaves_nothing,
    an_append_or_prune_killed_at_any_instant_leaves_whole_generations,
    an_append_stopped_in_front_of_any_call_leaves_whole_generations,
    a_repair_stopped_in_front_of_any_call_leaves_the_dataset_and_goes_on,
    a_prune_killed_in_front_of_any_call_keeps_what_it_should,
    an_append_and_a_merge_on_a_small_disk_say_so_and_go_on_when_there_is_room,
    an_export_stopped_in_front_of_any_call_is_none_or_whole,
    a_build_that_leaves_samples_out_ends_the_same_however_it_was_stopped,
]
