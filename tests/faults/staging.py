# SPDX-License-Identifier: Apache-2.0
"""Shards that come from a home to local directories: killed in front of each call that changes the disk, at random, on full disks, and
several at once."""
import glob
import os
import shutil
import subprocess

from common import CHOICE, CLI, LIMIT, killed_after, make_input, path, rankstore, rankstore_json
from generations import at_each_call, dataset_of, make_grown
from support.report import Skip

ARRIVING = (".arriving", ".pieces", ".manifest")


def local_of(place):
    """The dataset's folder in a local directory."""
    [folder] = glob.glob(place + "/*")
    return folder


def check_all_is_there(home, places):
    """The local directories hold each shard of home whole, and nothing else of one."""
    found, folders = [], [local_of(place) for place in places]
    for folder in folders:
        found += [os.path.basename(one) for one in glob.glob(folder + "/part-*.json")]
        left = [name for name in os.listdir(folder) if name.endswith(ARRIVING)]
        assert not left, (folder, left)
    assert set(found) == {os.path.basename(one) for one in glob.glob(home + "/part-*.json")}, found
    rankstore("diff", home, folders[0], *[word for folder in folders[1:] for word in ("--shards", folder)])
    if len(folders) == 1:
        rankstore("verify", "--full", folders[0])


def a_stage_stopped_in_front_of_any_call_goes_on():
    make_grown()
    home, place = path("grown.large"), path("local.stopped")
    for how in ("DIE_AT", "FULL_AT"):
        def after(number):
            if number % 3 == 0:
                rankstore("stage", home, place)
                check_all_is_there(home, [place])

        calls = at_each_call(how, ["stage", home, place], lambda _: shutil.rmtree(place, ignore_errors=True), after)
        assert calls > 20, calls
        check_all_is_there(home, [place])


def a_stage_killed_at_random_on_several_ranks_goes_on():
    make_grown()
    home, places = path("grown.large"), [path(f"local.killed{rank}") for rank in range(3)]
    pattern = path("local.killed{rank}")
    for round_number in range(20):
        if round_number % 5 == 0:
            for place in places:
                shutil.rmtree(place, ignore_errors=True)
        killed_after(CHOICE.uniform(0, 0.12), ["stage", home, pattern, "-j", "3"])
        if round_number % 5 == 4:
            rankstore("stage", home, pattern, "-j", "3")
            check_all_is_there(home, places)


def two_stages_at_once_bring_the_same():
    make_grown()
    home, place = path("grown.large"), path("local.twins")
    for _ in range(10):
        shutil.rmtree(place, ignore_errors=True)
        running = [subprocess.Popen([CLI, "stage", home, place, "-j", CHOICE.choice("12")], stdout=subprocess.DEVNULL,
                                    stderr=subprocess.PIPE, text=True) for _ in range(3)]
        for one in running:
            _, err = one.communicate(timeout=LIMIT)
            assert one.returncode == 0, err
        check_all_is_there(home, [place])


def a_small_local_disk_says_so_and_is_filled_when_there_is_room():
    if os.geteuid() != 0:
        raise Skip("needs root to mount a small file system")
    disk = path("small.local")
    os.makedirs(disk)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True).returncode != 0:
        raise Skip("cannot mount a tmpfs here")
    try:
        home = path("wide.home")
        rankstore("build", make_input("input20000.jsonl", 20000), "-o", home, "--key", "key", "--unit-size", "256k", "-j", "4")
        _, err = rankstore("stage", home, disk + "/rks", code=3)
        assert "local: no room for" in err and "local_room" in err, err
        _, err = rankstore("stage", home, disk + "/rks", "--local-room", "1G", code=3)
        assert "disk full" in err and "small.local/rks" in err, err
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        assert rankstore_json("stage", home, disk + "/rks")["home_bytes"] > 0
        check_all_is_there(home, [disk + "/rks"])
        assert dataset_of(local_of(disk + "/rks")) == dataset_of(home)
    finally:
        subprocess.run(["umount", disk], check=True)


def a_prune_of_local_shards_killed_in_front_of_any_call_leaves_whole_ones_or_none():
    make_grown()
    home, place, kept = path("grown.large"), path("local.pruned"), path("local.whole")
    rankstore("stage", home, kept)
    shutil.copytree(kept, place)

    def before(_):
        shutil.rmtree(place)
        shutil.copytree(kept, place)

    def after(number):
        if number % 2 == 0:
            rankstore("stage", home, place)
        else:
            rankstore("prune", "--local", place)
            left = [name for name in os.listdir(local_of(place)) if name.startswith("part-")]
            assert not left, left
            rankstore("stage", home, place)
        check_all_is_there(home, [place])

    calls = at_each_call("DIE_AT", ["prune", "--local", place], before, after)
    assert calls > 5, calls


TESTS = [
    a_stage_stopped_in_front_of_any_call_goes_on,
    a_stage_killed_at_random_on_several_ranks_goes_on,
    two_stages_at_once_bring_the_same,
    a_small_local_disk_says_so_and_is_filled_when_there_is_room,
    a_prune_of_local_shards_killed_in_front_of_any_call_leaves_whole_ones_or_none,
]
