# SPDX-License-Identifier: Apache-2.0
"""Power cuts: the image of a mounted file system, copied while a shard arrives or a dataset is published, and mounted as after another
boot. A copy during which the file system wrote something would be of no moment at all, and is taken again."""
import contextlib
import glob
import os
import shutil
import subprocess
import time

from common import BUILD, CHOICE, CLI, LIMIT, make_input, path, rankstore
from generations import dataset_of
from staging import check_all_is_there, local_of
from support.report import Skip

CUTS, MIB = 5, 64


def make_home():
    """Eleven shards, of some 14 MB."""
    home = path("power.home")
    if not os.path.exists(home):
        rankstore("build", make_input("input60000.jsonl", 60000), "-o", home, "--key", "key", "--unit-size", "256k", "--max-shard", "1M")
        assert len(glob.glob(home + "/*.rks")) > 5
    return home


@contextlib.contextmanager
def mounted(image, place):
    os.makedirs(place, exist_ok=True)
    done = subprocess.run(["mount", "-o", "loop,commit=1", image, place], capture_output=True, text=True)
    if done.returncode != 0:
        raise Skip("cannot mount an image of a file system here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@contextlib.contextmanager
def new_disk(name):
    """A directory on a file system of its own, and its image."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        raise Skip("needs root and mkfs.ext4 to mount an image of a file system")
    image, place = path(name + ".img"), path(name)
    with open(image, "wb") as file:
        file.truncate(MIB << 20)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    with mounted(image, place):
        yield place, image


def writes_of(place):
    """How many writes of the disk have ended and are under way."""
    device = os.stat(place).st_dev
    with open(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat", encoding="ascii") as file:
        counts = file.read().split()
    return counts[4], counts[8]


def copy_of_one_moment(place, image, copy):
    """Returns False if the disk was written meanwhile."""
    before = writes_of(place)
    subprocess.run(["cp", "--sparse=always", image, copy], check=True)
    return before[1] == "0" and writes_of(place) == before


def cuts_during(command, env, place, image):
    """Runs the command, and copies the image at random moments. Returns the copies, the last one of its end."""
    copies = []
    running = subprocess.Popen([CLI, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **env})
    try:
        end = time.monotonic() + LIMIT
        while running.poll() is None and len(copies) < CUTS and time.monotonic() < end:
            time.sleep(CHOICE.uniform(0, 1))
            copy = f"{image}.{len(copies)}"
            if copy_of_one_moment(place, image, copy):
                copies.append(copy)
        _, err = running.communicate(timeout=LIMIT)
        assert running.returncode == 0, err
    finally:
        running.kill()
        running.wait()
    while not copy_of_one_moment(place, image, image + ".end"):
        assert time.monotonic() < end + LIMIT
    return [*copies, image + ".end"]


def slow(where, mb_a_second):
    return {"LD_PRELOAD": os.path.join(BUILD, "tests", "bench", "libslow_pread.so"), "SLOW_WHERE": where, "SLOW_MB": str(mb_a_second),
            "SLOW_BUCKET": path("power.link")}


def after_another_boot(*command):
    """Runs the command where the system says that it was started anew."""
    other = path("power.boot")
    with open(other, "w", encoding="ascii") as file:
        file.write("".join(CHOICE.choice("0123456789abcdef") for _ in range(8)) + "-0000-4000-8000-000000000000\n")
    inside = f"mount --bind {other} /proc/sys/kernel/random/boot_id && exec \"$@\""
    done = subprocess.run(["unshare", "-m", "sh", "-c", inside, "sh", CLI, *command], capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 0, (command, done.stderr)


def check_sealed(home, folder):
    """What counts as a shard has the bytes of home."""
    for sealed in glob.glob(folder + "/part-*.json"):
        for ending in ("", ".rks", ".sums"):
            name = os.path.basename(sealed)[:-5] + (ending or ".json")
            with open(os.path.join(home, name), "rb") as one, open(os.path.join(folder, name), "rb") as other:
                assert one.read() == other.read(), (folder, name)


def a_local_disk_that_loses_power_keeps_right_bytes_and_goes_on():
    home = make_home()
    sealed = []
    with new_disk("power.local") as (place, image):
        env = slow(home, max(1, sum(map(os.path.getsize, glob.glob(home + "/*.rks"))) >> 22))  # some four seconds
        copies = cuts_during(["stage", home, place + "/rks"], env, place, image)
    for copy in copies:
        with mounted(copy, path("power.after")):
            local = path("power.after/rks")
            folders = glob.glob(local + "/*")
            if folders:
                check_sealed(home, local_of(local))
                sealed.append(len(glob.glob(local_of(local) + "/part-*.json")))
            after_another_boot("stage", home, local)
            check_all_is_there(home, [local])
        os.unlink(copy)
    assert sealed[-1] == len(glob.glob(home + "/part-*.rks")), sealed  # a stage that has ended is on the disk


def a_home_that_loses_power_has_all_of_a_dataset_or_none():
    source, found = make_home(), []
    with new_disk("power.kept") as (place, image):
        env = slow(source, max(1, sum(map(os.path.getsize, glob.glob(source + "/*.rks"))) >> 22))
        copies = cuts_during(["publish", source, place + "/tokens"], env, place, image)
    for copy in copies:
        with mounted(copy, path("power.after")):
            home = path("power.after/tokens")
            found.append(dataset_of(home))
            if found[-1] is not None:
                rankstore("verify", "--full", home)
            after_another_boot("publish", source, home)
            rankstore("verify", "--full", home)
            rankstore("diff", home, source)
        os.unlink(copy)
    assert found[-1] == dataset_of(source), found  # a publish that has ended is on the disk


TESTS = [
    a_local_disk_that_loses_power_keeps_right_bytes_and_goes_on,
    a_home_that_loses_power_has_all_of_a_dataset_or_none,
]
