# SPDX-License-Identifier: Apache-2.0
"""Publishing to a home: killed in front of each call that changes the disk, at random, on full disks, and several at once."""
import glob
import os
import shutil
import subprocess
import threading
import time

from common import CHOICE, CLI, LIMIT, killed_after, make_input, path, rankstore, rankstore_json
from generations import OPTIONS, at_each_call, check_nothing_is_left, dataset_of, make_grown, make_twins
from support.report import Skip

MARK = {"rankstore.home"}


def check_home(home, allowed):
    """It holds one of the datasets, whole. Returns its id."""
    found = dataset_of(home)
    assert found in allowed, (found, allowed)
    if found is not None:
        rankstore("verify", "--full", home)
    return found


def a_publish_stopped_in_front_of_any_call_leaves_what_was_there_or_all_of_the_new():
    _, small, large = make_grown()
    home, publish, seen = path("home.stopped"), ["publish", path("grown.large"), path("home.stopped")], []
    for how in ("DIE_AT", "FULL_AT"):
        for there in (None, small):
            def before(_):
                shutil.rmtree(home, ignore_errors=True)
                if there is not None:
                    rankstore("publish", path("grown.small"), home)

            def after(number):
                seen.append((there, check_home(home, (there, large))))
                assert how == "DIE_AT" or not glob.glob(home + "/*.claim"), os.listdir(home)
                if number % 2:
                    rankstore(*publish)
                    rankstore("diff", home, path("grown.large"))
                    check_nothing_is_left(home, MARK)

            calls = at_each_call(how, publish, before, after)
            assert calls > 30, calls
            assert not glob.glob(home + "/*.claim") and not glob.glob(home + "/*.sending"), os.listdir(home)
            check_nothing_is_left(home, MARK)
    assert set(seen) == {(None, None), (None, large), (small, small), (small, large)}, set(seen)


def a_publish_killed_at_random_on_several_ranks_goes_on():
    _, small, large = make_grown()
    home = path("home.killed")
    for round_number in range(25):
        if round_number % 5 == 0:
            shutil.rmtree(home, ignore_errors=True)
        source = "grown.small" if round_number % 5 < 2 else "grown.large"
        killed_after(CHOICE.uniform(0, 0.15), ["publish", path(source), home, "-j", CHOICE.choice("1234")])
        check_home(home, (None, small, large))
    rankstore("publish", path("grown.large"), home, "-j", "3")
    rankstore("diff", home, path("grown.large"))
    check_nothing_is_left(home, MARK)


def started(source, home):
    return subprocess.Popen([CLI, "publish", source, home], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def of_two_that_publish_at_once_one_succeeds():
    sources = []
    for number in range(3):
        sources.append(path(f"rival{number}"))
        if not os.path.exists(sources[-1]):
            rankstore("build", make_twins(f"rival{number}.jsonl", 10000 * number, 100), "-o", sources[-1], *OPTIONS)
    winners = set()
    for _ in range(20):
        home, order = path("home.rivals"), CHOICE.sample(sources, len(sources))
        shutil.rmtree(home, ignore_errors=True)
        running = [started(source, home) for source in order]
        ends = [(source, one.communicate(timeout=LIMIT)[1], one.returncode) for source, one in zip(order, running)]
        won = [source for source, _, code in ends if code == 0]
        assert len(won) == 1, ends
        for _, err, code in ends:
            assert code in (0, 3) and (code == 0 or "changes this home" in err or "holds dataset" in err), ends
        winners.add(won[0])
        assert check_home(home, [dataset_of(won[0])]) is not None
        rankstore("prune", home)
        check_nothing_is_left(home, MARK)


def several_that_publish_the_same_all_succeed():
    _, _, large = make_grown()
    for _ in range(10):
        home = path("home.twins")
        shutil.rmtree(home, ignore_errors=True)
        for one in [started(path("grown.large"), home) for _ in range(3)]:
            _, err = one.communicate(timeout=LIMIT)
            assert one.returncode == 0, err
        check_home(home, [large])
        check_nothing_is_left(home, MARK)


def a_home_on_a_small_disk_says_so_and_is_filled_when_there_is_room():
    if os.geteuid() != 0:
        raise Skip("needs root to mount a small file system")
    disk = path("small.home")
    os.makedirs(disk)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True).returncode != 0:
        raise Skip("cannot mount a tmpfs here")
    try:
        source = path("wide")
        rankstore("build", make_input("input20000.jsonl", 20000), "-o", source, "--key", "key", "--unit-size", "256k", "-j", "4")
        _, err = rankstore("publish", source, disk + "/home", code=3)
        assert "disk full" in err and "small.home/home" in err, err
        assert dataset_of(disk + "/home") is None
        there = {os.path.basename(one) for one in glob.glob(disk + "/home/part-*.json")}
        assert not glob.glob(disk + "/home/*.sending") and not glob.glob(disk + "/home/*.claim"), os.listdir(disk + "/home")
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        again = rankstore_json("publish", source, disk + "/home", "-j", "2")
        assert again["sent_shards"] == again["shards"] - len(there), (again, there)
        check_home(disk + "/home", [dataset_of(source)])
        check_nothing_is_left(disk + "/home", MARK)
    finally:
        subprocess.run(["umount", disk], check=True)


def a_prune_does_not_run_while_something_is_published():
    _, small, _ = make_grown()
    home = path("home.pruned")
    shutil.rmtree(home, ignore_errors=True)
    rankstore("publish", path("grown.small"), home)
    with open(home + "/dataset.claim", "w", encoding="utf-8") as file:
        file.write(f"digest {'0' * 32}\npid {os.getpid()} on {os.uname().nodename}\n")
    name = "part-0000000000000000-0000000000000000.rks"
    shutil.copy(glob.glob(home + "/part-*.sums")[0], f"{home}/{name}.5-6.sending")
    shutil.copy(glob.glob(home + "/part-*.sums")[0], f"{home}/{name}")
    _, err = rankstore("prune", home, code=3)
    assert f"changes this home (pid {os.getpid()} on " in err, err
    assert os.path.exists(f"{home}/{name}") and os.path.exists(f"{home}/{name}.5-6.sending")
    os.unlink(home + "/dataset.claim")
    assert rankstore("prune", home)[0].startswith("0 generations and 2 files")
    check_home(home, [small])
    check_nothing_is_left(home, MARK)


def grow_and_publish(source, home, generations, failed):
    """Appends and publishes, again and again if somebody else changes the home."""
    for number in range(1, generations + 1):
        rankstore("build", make_twins(f"step{number}.jsonl", 20000 + 100 * number, 30), "-o", source, "--append")
        for _ in range(500):
            done = subprocess.run([CLI, "publish", source, home, "-j", "12"[number % 2]], capture_output=True, text=True, timeout=LIMIT)
            if done.returncode == 0 or "changes this home" not in done.stderr:
                break
            time.sleep(0.02)
        if done.returncode != 0:
            failed.append(done)


def publishers_prunes_and_kills_at_once_leave_a_home_whole():
    source, old, home = path("grows"), path("grows.old"), path("home.busy")
    rankstore("build", make_twins("step0.jsonl", 20000, 100), "-o", source, *OPTIONS)
    shutil.copytree(source, old)
    rankstore("publish", source, home)
    failed, over = [], threading.Event()

    def often(*arguments):
        while not over.is_set():
            done = subprocess.run([CLI, *arguments], capture_output=True, text=True, timeout=LIMIT)
            if done.returncode != 0 and "changes this home" not in done.stderr:
                failed.append(done)

    def killed():
        while not over.is_set():
            process = subprocess.Popen([CLI, "publish", source, home], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(CHOICE.uniform(0, 0.05))
            process.kill()
            process.wait()

    threads = [threading.Thread(target=often, args=arguments) for arguments in (
        ("verify", "--full", home), ("prune", home, "--keep", "2"), ("publish", old, home))] + [threading.Thread(target=killed)]
    for thread in threads:
        thread.start()
    try:
        grow_and_publish(source, home, 30, failed)
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert not failed, failed[:3]
    rankstore("publish", source, home)
    rankstore("diff", source, home)
    check_nothing_is_left(home, MARK)


TESTS = [
    a_publish_stopped_in_front_of_any_call_leaves_what_was_there_or_all_of_the_new,
    a_publish_killed_at_random_on_several_ranks_goes_on,
    of_two_that_publish_at_once_one_succeeds,
    several_that_publish_the_same_all_succeed,
    a_home_on_a_small_disk_says_so_and_is_filled_when_there_is_room,
    a_prune_does_not_run_while_something_is_published,
    publishers_prunes_and_kills_at_once_leave_a_home_whole,
]
