# SPDX-License-Identifier: Apache-2.0
"""Faults from outside: kills, stops, flipped bytes, full disks, strangers at the door.

Usage: run.py BUILD-DIRECTORY [TEST...]; SEED=N repeats a run's random choices.
"""
import contextlib
import glob
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time

import generations
import power
import publishing
import staging
import strangers
from common import (
    BUILD,
    CHOICE,
    CLI,
    LIMIT,
    WORK,
    children_of,
    kill_all,
    killed_after,
    make_input,
    make_store,
    path,
    rankstore,
    rankstore_json,
    wait_for,
)
from support.report import Skip, run_all

# ---- builds ---------------------------------------------------------------------------------


def a_build_killed_a_hundred_times_ends_as_the_same_dataset():
    source = make_input("input60000.jsonl", 60000)
    options = ["--key", "key", "--length", "text", "--unit-size", "256k"]
    begun = time.monotonic()
    whole = rankstore_json("build", source, "-o", path("whole"), *options)
    duration = time.monotonic() - begun
    target, finished, kills = path("killed"), None, 0
    while kills < 100:
        ranks = CHOICE.choice(["1", "2", "3", "4"])
        out = killed_after(CHOICE.uniform(0, duration), ["build", source, "-o", target, *options, "-j", ranks, "--json"])
        if out is not None:
            finished = json.loads(out)
            assert finished["dataset"] == whole["dataset"], "another dataset after a resume"
            rankstore("verify", "--full", target)
            shutil.rmtree(target)
        kills += 1
        if os.path.exists(os.path.join(target, "dataset.json")):
            info = rankstore_json("info", target)
            assert info["dataset"] == whole["dataset"], "a killed build opens with other contents"
            rankstore("verify", "--full", target)
            shutil.rmtree(target)
    if not os.path.exists(os.path.join(target, "dataset.json")):
        finished = rankstore_json("build", source, "-o", target, *options, "-j", "3")
    assert finished["dataset"] == whole["dataset"]
    rankstore("verify", "--full", target)


def a_full_disk_is_named_and_the_build_goes_on_when_there_is_room():
    if os.geteuid() != 0:
        raise Skip("needs root to mount a small file system")
    disk = path("small")
    os.makedirs(disk)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", disk], capture_output=True)
    if mounted.returncode != 0:
        raise Skip("cannot mount a tmpfs here")
    try:
        source = make_input("input20000.jsonl", 20000)
        options = ["--key", "key", "--length", "text", "--unit-size", "256k"]
        _, err = rankstore("build", source, "-o", disk + "/store", *options, code=3)
        assert "disk full" in err and "small/store" in err, err
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        built = rankstore_json("build", source, "-o", disk + "/store", *options)
        assert built["dataset"] == rankstore_json("build", source, "-o", path("roomy"), *options)["dataset"]
        rankstore("verify", "--full", disk + "/store")
    finally:
        subprocess.run(["umount", disk], check=True)


def a_commit_that_is_not_durable_says_so_until_it_is():
    source = make_input("input2000.jsonl", 2000)
    command = ["build", source, "-o", path("unsynced"), "--key", "key"]
    shim = {"LD_PRELOAD": generations.SHIM}
    _, err = rankstore(*command, code=3, env={**shim, "UNSYNCED": "dataset.json"})
    assert "not durable" in err and "dataset.json" in err, err
    _, err = rankstore(*command, code=3, env={**shim, "UNSYNCED": "."})
    assert "not durable" in err, err
    assert rankstore_json(*command)["kept"] and not os.path.exists(path("unsynced") + "/build.committing")
    _, err = rankstore(*command, code=2)
    assert "already holds a finished dataset" in err, err
    with open(path("more.jsonl"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps({"key": f"more{i}", "text": "x" * i}) + "\n" for i in range(100))
    add = ["build", path("more.jsonl"), "-o", path("unsynced"), "--key", "key", "--append"]
    _, err = rankstore(*add, code=3, env={**shim, "UNSYNCED": "dataset.json"})
    assert "not durable" in err, err
    _, err = rankstore(*command, code=2)
    assert "already holds a finished dataset" in err, err
    assert rankstore_json(*add, "-j", "2")["kept"]
    _, err = rankstore(*add, code=2)
    assert "the same input was the last to be added" in err, err
    rankstore("verify", "--full", path("unsynced"))


def a_build_that_is_killed_in_its_commit_ends_well_when_it_is_run_again():
    """At each call that changes the disk, from the first one on: the same command ends with 0, and once more it is refused."""
    source, shim = make_input("input200.jsonl", 200), {"LD_PRELOAD": generations.SHIM}
    command = ["build", source, "-o", path("committed"), "--key", "key"]
    whole, call, kept = None, 0, 0
    while True:
        call += 1
        done = subprocess.run([CLI, *command], capture_output=True, text=True, timeout=LIMIT,
                              env={**os.environ, **shim, "DIE_AT": str(call)})
        committed, marked = (os.path.exists(path("committed") + "/" + name) for name in ("dataset.json", "build.committing"))
        if committed and not marked:
            break  # the commit has ended
        assert done.returncode == -signal.SIGKILL, done
        built = rankstore_json(*command)
        whole = whole or built["dataset"]
        assert built["dataset"] == whole and built["kept"] == committed, (call, built)
        kept += built["kept"]
        assert not os.path.exists(path("committed") + "/build.committing")
        _, err = rankstore(*command, code=2)
        assert "already holds a finished dataset" in err, err
        rankstore("verify", path("committed"))
        shutil.rmtree(path("committed"))
    assert kept >= 2 and call > 10, (kept, call)  # the sync of the directory, and the end of build.committing


def a_build_whose_home_failed_sends_it_when_it_is_run_again():
    source, home = make_input("input200.jsonl", 200), path("built.home")
    command = ["build", source, "-o", path("built.sent"), "--key", "key", "--home", home]
    with open(home, "w", encoding="utf-8"):
        pass  # a file, where the home is to be
    _, err = rankstore(*command, code=3)
    assert "built.home" in err and os.path.exists(path("built.sent") + "/dataset.json"), err
    os.unlink(home)
    again = rankstore_json(*command)
    assert again["dataset"] == rankstore_json("info", home)["dataset"], again
    _, err = rankstore(*command, code=2)
    assert "already holds a finished dataset" in err, err


def an_export_that_is_not_durable_leaves_nothing_and_runs_again():
    store = make_store("exported.few", lines=200)
    for to, name in (("jsonl", "unsynced.jsonl"), ("dir", "unsynced.files"), ("lmdb", "unsynced.lmdb")):
        command = ["export", store, "--to", to, "-o", path(name)]
        for force in ([], ["--force"]):  # nothing is there; then a finished export
            before = os.path.exists(path(name)) and os.stat(path(name)).st_ino
            _, err = rankstore(*command, *force, code=3, env={"LD_PRELOAD": generations.SHIM, "UNSYNCED": name})
            assert "not written, as it would not be durable" in err and name in err, err
            assert [one for one in os.listdir(path("")) if one.startswith(name)] == ([name] if force else []), os.listdir(path(""))
            assert (os.path.exists(path(name)) and os.stat(path(name)).st_ino) == before
            rankstore(*command, *force)


def leftovers_of_killed_processes_are_removed_by_the_next_build():
    source = make_input("input2000.jsonl", 2000)
    target = path("leftovers")
    gone = subprocess.Popen(["true"])
    gone.wait()
    os.makedirs(target)
    names = [f"dataset.json.{gone.pid}.tmp", f"python.json.{gone.pid}.tmp", f"part-0123-ab.sums.{gone.pid}.tmp"]
    kept = [f"dataset.json.{os.getpid()}.tmp", f"notes.{gone.pid}.tmp", "part-0123-ab.tmp"]
    for name in names + kept:
        with open(os.path.join(target, name), "w", encoding="utf-8"):
            pass
    rankstore("build", source, "-o", target, "--key", "key")
    there = os.listdir(target)
    assert not set(names) & set(there) and set(kept) <= set(there), there


def a_build_whose_lock_was_taken_commits_nothing():
    """At its begin, and when it has written samples: then only the commit looks at the lock."""
    source = make_input("input60000.jsonl", 60000)
    for name, sign, said in (("stolen", "build.lock", "build.lock"), ("stolen_late", "part-*.rks", "nothing is committed")):
        target = path(name)
        build = stopped_in_a_build(source, name, sign, stderr=subprocess.PIPE)
        with open(os.path.join(target, "build.lock"), "w", encoding="utf-8") as file:
            file.write("pid 1 on elsewhere\n")
        build.send_signal(signal.SIGCONT)
        _, err = build.communicate(timeout=LIMIT)
        assert build.returncode == 3 and said in err.decode(), (build.returncode, err)
        assert not os.path.exists(os.path.join(target, "dataset.json"))


def on_another_host(command):
    """The command as another host would run it: in another boot."""
    with open(path("boot_id"), "w", encoding="ascii") as file:
        file.write("00000000-0000-4000-8000-000000000001\n")
    mounts = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"'
    started = ["unshare", "-m", "sh", "-c", mounts, path("boot_id")]
    if subprocess.run([*started, "true"], capture_output=True).returncode != 0:
        raise Skip("needs mounts of its own")
    return [*started, *command]


@contextlib.contextmanager
def mounted_twice(name):
    """Gives two mounts of one folder, as two hosts have them: each with its own locks of files and its own cache."""
    shared, mounts = path(name), [path(f"{name}.host{i}") for i in range(2)]
    for folder in (shared, *mounts):
        os.makedirs(folder)
    try:
        for at in mounts:
            done = subprocess.run(["bindfs", shared, at], capture_output=True, text=True)
            if done.returncode != 0:
                raise Skip(f"needs bindfs and /dev/fuse: {done.stderr.strip()}")
        yield [os.path.basename(at) for at in mounts]
    finally:
        for at in mounts:
            if os.path.ismount(at):
                subprocess.run(["umount", "-l", at], check=True)


def locks_that_hold_on_one_host_only_keep_no_build_out_but_its_beats_do():
    """A build that was stopped, and goes on when another host looks whether it lives, or long after that one has taken its parts over."""
    source = make_input("input60000.jsonl", 60000)
    with mounted_twice("two_hosts") as (here, there):
        for name, late in (("lives", False), ("stopped", True)):
            first = stopped_in_a_build(source, f"{here}/{name}", "part-*.rks", stderr=subprocess.PIPE)
            command = on_another_host([CLI, "build", source, "-o", path(f"{there}/{name}"), "--key", "key", "--unit-size", "64k"])
            second = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            if late:
                _, err = second.communicate(timeout=LIMIT)
                assert second.returncode == 0 and f"taken over from pid {first.pid}" in err, (second.returncode, err)
                rankstore("verify", "--full", path(f"{there}/{name}"))
                first.send_signal(signal.SIGCONT)
            else:
                time.sleep(1)  # it looks for longer
                first.send_signal(signal.SIGCONT)
                _, err = second.communicate(timeout=LIMIT)
                assert second.returncode == 3 and f"pid {first.pid}" in err, (second.returncode, err)
            _, err = first.communicate(timeout=LIMIT)
            assert first.returncode == (3 if late else 0), (first.returncode, err)
            assert not late or "taken over" in err.decode() or "build.lock" in err.decode(), err
            for host in (here, there):
                rankstore("verify", "--full", path(f"{host}/{name}"))


def a_file_size_limit_is_named():
    source = make_input("input20000.jsonl", 20000)

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    _, err = rankstore("build", source, "-o", path("limited"), "--key", "key", code=3, preexec_fn=limit)
    assert "limited" in err and ("limit" in err or "large" in err), err


def has_bytes(pattern):
    """True if a file like `pattern` is there and not empty."""
    for one in glob.glob(pattern):
        try:
            if os.path.getsize(one) > 0:
                return True
        except FileNotFoundError:
            pass
    return False


def stopped_in_a_build(source, name, sign="build.lock", **popen):
    """A build that holds its lock and was stopped once a file like `sign` had bytes. One that was over before is tried again."""
    lock, made = path(name + "/build.lock"), path(name + "/dataset.json")
    while True:
        process = subprocess.Popen([CLI, "build", source, "-o", path(name), "--key", "key", "--unit-size", "64k"],
                                   stdout=subprocess.DEVNULL, **popen)
        wait_for(lambda: process.poll() is not None or has_bytes(path(f"{name}/{sign}")))
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)  # until then its threads may go on
        if os.path.exists(lock) and not os.path.exists(made):
            return process
        process.send_signal(signal.SIGCONT)
        assert process.wait(LIMIT) == 0
        shutil.rmtree(path(name))


def a_second_build_in_the_same_place_is_refused_naming_the_first():
    source = make_input("input60000.jsonl", 60000)
    first = stopped_in_a_build(source, "twice")
    try:
        _, err = rankstore("build", source, "-o", path("twice"), "--key", "key", code=3)
        assert f"pid {first.pid}" in err, err
    finally:
        first.send_signal(signal.SIGCONT)
        assert first.wait(LIMIT) == 0


def an_interrupted_build_exits_130_and_can_be_resumed():
    source = make_input("input60000.jsonl", 60000)
    arguments = ["build", source, "-o", path("ctrlc"), "--key", "key", "--unit-size", "64k"]
    code = 0
    while code == 0:  # it was over before
        shutil.rmtree(path("ctrlc"), ignore_errors=True)
        process = subprocess.Popen([CLI, *arguments, "-j", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   start_new_session=True)
        wait_for(lambda: process.poll() is not None or glob.glob(path("ctrlc/part-*.rks")))
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT)
        code = process.returncode
    assert code == 130, (code, err)
    rankstore(*arguments)
    rankstore("verify", "--full", path("ctrlc"))


def an_export_is_there_whole_or_not_at_all():
    store = make_store("exported", lines=20000)
    for to in ("jsonl", "tar", "npz", "lmdb", "dir"):
        target = path(f"out/{to}")
        os.makedirs(path("out"), exist_ok=True)
        begun = time.monotonic()
        rankstore("export", store, "-o", target, "--to", to)
        duration = time.monotonic() - begun
        for kill in (signal.SIGINT, signal.SIGKILL) * 6:
            shutil.rmtree(target) if os.path.isdir(target) else os.path.exists(target) and os.remove(target)
            if kill == signal.SIGINT:  # what a killed one left is removed by the next one that gets so far
                shutil.rmtree(path("out"))
                os.makedirs(path("out"))
            process = subprocess.Popen([CLI, "export", store, "-o", target, "--to", to], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            time.sleep(CHOICE.uniform(0, duration))
            process.send_signal(kill)
            code = process.wait(LIMIT)
            assert code in ((-signal.SIGKILL, 0) if kill == signal.SIGKILL else (-signal.SIGINT, 130, 0)), code
            left = os.listdir(path("out"))
            if kill == signal.SIGINT and code == 130:
                assert left == [], left
            assert (to in left) == (code == 0) or kill == signal.SIGKILL, (left, code)
            if to in left and to == "jsonl":
                with open(target, encoding="utf-8") as file:
                    assert sum(1 for _ in file) == 20000
        rankstore("export", store, "-o", target, "--to", to, "--force")
        assert os.listdir(path("out")) == [to], os.listdir(path("out"))
        shutil.rmtree(path("out"))


def a_full_disk_during_an_export_is_named_and_leaves_nothing():
    if os.geteuid() != 0:
        raise Skip("needs root to mount a small file system")
    store = make_store("exported", lines=20000)
    disk = path("tiny")
    os.makedirs(disk)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode != 0:
        raise Skip("cannot mount a tmpfs here")
    try:
        for to in ("jsonl", "tar", "npz", "lmdb", "dir"):
            _, err = rankstore("export", store, "-o", disk + "/out", "--to", to, code=3)
            assert "disk full" in err and "tiny/out" in err, err
            assert os.listdir(disk) == [], os.listdir(disk)
    finally:
        subprocess.run(["umount", disk], check=True)


# ---- damage ---------------------------------------------------------------------------------


def every_flipped_byte_is_found_where_it_is_and_never_handed_out():
    store = make_store("flips", lines=300)
    before = rankstore_json("bench", store)["digest"]
    files = sorted(glob.glob(store + "/*"))
    total = sum(os.path.getsize(file) for file in files)
    places = [(file, CHOICE.randrange(os.path.getsize(file))) for file in files for _ in range(20)]
    places += [(file, at) for file in files for at in (0, os.path.getsize(file) - 1)]
    assert total > 0
    for file, at in places:
        with open(file, "r+b") as handle:
            handle.seek(at)
            old = handle.read(1)
            handle.seek(at)
            handle.write(bytes([old[0] ^ (1 << CHOICE.randrange(8))]))
        done = subprocess.run([CLI, "verify", "--full", "--json", store], stdout=subprocess.PIPE, text=True, timeout=LIMIT)
        assert done.returncode == 1, f"{file} at {at}: verify ended with {done.returncode}"
        errors = json.loads(done.stdout)["errors"]
        named = [e for e in errors if os.path.basename(e["file"]) == os.path.basename(file)]
        assert named, f"{file} at {at}: {errors}"
        if file.endswith(".rks"):
            assert any(abs(e["offset"] - at) < 2**20 for e in named), f"{file} at {at}: {errors}"
        read = subprocess.run([CLI, "bench", store, "--json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, timeout=LIMIT)
        assert read.returncode in (0, 1, 3), f"{file} at {at}: bench ended with {read.returncode}"
        if read.returncode == 0:
            assert json.loads(read.stdout)["digest"] == before, f"{file} at {at}: other bytes were handed out"
        with open(file, "r+b") as handle:
            handle.seek(at)
            handle.write(old)
    rankstore("verify", "--full", store)


def a_shard_cut_anywhere_is_an_error_and_not_a_signal():
    whole = make_store("flips", lines=300)
    store = path("cut")
    shutil.copytree(whole, store)
    shard = glob.glob(store + "/*.rks")[0]
    content = open(shard, "rb").read()
    for size in [0, 1, 4096, len(content) // 2, len(content) - 1, len(content) + 1]:
        with open(shard, "wb") as file:
            file.write((content + b"\0")[:size])
        for command in (["info"], ["verify"], ["verify", "--full"], ["verify", "--deep"], ["bench"], ["cat"]):
            arguments = command + [store] + (["#0"] if command == ["cat"] else [])
            done = subprocess.run([CLI, *arguments], capture_output=True, text=True, timeout=LIMIT)
            assert done.returncode in (1, 3), f"{arguments} with {size} bytes: {done.returncode} {done.stderr}"


# ---- peers ----------------------------------------------------------------------------------


def start_bench(store, ranks, *options, env=None):
    """A bench that goes on and on. Nobody is found to be silent unless `env` says so."""
    process = subprocess.Popen([CLI, "bench", store, "-j", str(ranks), "--no-share", "--batch-size", "2",
                                "--epochs", "100000", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, env={**os.environ, "RKS_SILENCE_MS": str(2000 * LIMIT), **(env or {})},
                               start_new_session=True)
    try:
        wait_for(lambda: len(children_of(process.pid)) == ranks)
        ranks_of = children_of(process.pid)
        wait_for(lambda: len(listening(ranks_of[0])) > 0)
        wait_for(lambda: all(connected(rank) for rank in ranks_of))
    except (AssertionError, OSError) as problem:
        os.killpg(process.pid, signal.SIGKILL)
        raise AssertionError(f"the bench did not start: {process.communicate()}") from problem
    return process, ranks_of


def connected(pid):
    """A rank of a running bench: it has mapped the index."""
    with open(f"/proc/{pid}/maps", encoding="ascii", errors="replace") as maps:
        return "memfd:rankstore" in maps.read()


def listening(pid):
    """Ports that a process listens on."""
    inodes = set()
    for fd in glob.glob(f"/proc/{pid}/fd/*"):
        try:
            inodes.update(re.findall(r"socket:\[(\d+)\]", os.readlink(fd)))
        except OSError:
            pass
    ports = []
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in list(table)[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                ports.append(int(fields[1].split(":")[1], 16))
    return ports


def a_killed_rank_ends_the_others_with_its_name():
    process, ranks = start_bench(make_store("peers", lines=2000), 4)
    os.kill(ranks[2], signal.SIGKILL)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 137, (process.returncode, err)
    assert len(re.findall(r"rank 2 \(\S+\): was killed by signal 9 \(Killed\) during '", err)) == 3, err


def an_interrupted_rank_ends_the_others_as_interrupted():
    process, ranks = start_bench(make_store("peers", lines=2000), 3)
    os.kill(ranks[1], signal.SIGINT)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130, (process.returncode, err)
    assert "interrupted" in err and "closed" not in err and "left" not in err, err


def a_stopped_rank_ends_the_others_within_the_silence_limit():
    process, ranks = start_bench(make_store("peers", lines=2000), 4,
                                 env={"RKS_SILENCE_MS": "3000", "RKS_LAUNCH_GRACE_MS": "6000"})
    os.kill(ranks[1], signal.SIGSTOP)
    _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 4 and "rank 1" in err and "silent for 3000 ms" in err, (process.returncode, err)


def strangers_at_the_door_get_nothing_and_stop_nothing():
    process, ranks = start_bench(make_store("peers", lines=2000), 2)
    try:
        ports = listening(ranks[0]) + listening(ranks[1])
        assert len(ports) >= 2, ports
        messages = [b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
                    b"\xff" * 65536, bytes(CHOICE.randrange(256) for _ in range(65536)), b"RKS"]
        for port in ports:
            for message in messages:
                with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as stranger:
                    stranger.settimeout(8)
                    try:
                        stranger.sendall(message)
                        heard = b""
                        while part := stranger.recv(4096):
                            heard += part
                    except (ConnectionError, TimeoutError):
                        pass
                    assert len(heard) < 200, f"{len(heard)} bytes handed to a stranger"
        idle = [socket.create_connection(("127.0.0.1", ports[0]), timeout=LIMIT) for _ in range(200)]
        assert process.poll() is None
        for stranger in idle:
            stranger.close()
        assert process.poll() is None, process.communicate()
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=LIMIT)
    assert process.returncode == 130, process.returncode


THIEF = """
import glob, os, socket, sys, time
got = doors = 0
for name in {line.split()[-1] for line in open("/proc/net/unix") if "rankstore" in line}:  # doors of ranks and workers
    one = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    one.settimeout(1)
    try:
        one.connect("\\0" + name[1:] if name[0] == "@" else name)
        doors += 1
        got += len(one.recv(1 << 16))
    except OSError:
        pass
for pid in sys.argv[1].split(","):
    for path in (f"/proc/{pid}/mem", f"/proc/{pid}/environ", f"/proc/{pid}/fd", f"/proc/{pid}/map_files"):
        try:
            os.listdir(path) if path.endswith(("fd", "files")) else open(path, "rb").read(1)
            print("can look into", path)
        except OSError:
            pass
for path in glob.glob("/dev/shm/*rankstore*") + glob.glob("/tmp/rankstore-share-*/*"):
    if "rankstore-test-" not in path:  # of tests that run beside this one
        print("can see", path)
flood = []
for port in sys.argv[2].split(","):
    for i in range(400):
        try:
            one = socket.create_connection(("127.0.0.1", int(port)), timeout=5)
            one.setblocking(False)
            one.send(b"RKSWIRE" if i % 2 else b"")
            flood.append(one)
        except OSError:
            pass
until = time.monotonic() + 2
while time.monotonic() < until:
    time.sleep(0.2)
    for one in flood:
        try:
            got += len(one.recv(1 << 16))
        except OSError:
            pass
print(len(flood), "connections", got, "bytes")
"""


def another_user_of_the_host_gets_nothing_and_stops_nothing():
    if os.geteuid() != 0:
        raise Skip("needs root to be another user")
    process, ranks = start_bench(make_store("peers", lines=2000), 3)
    try:
        ports = [port for rank in ranks for port in listening(rank)]
        done = subprocess.run(["/usr/bin/python3", "-c", THIEF, ",".join(map(str, ranks)), ",".join(map(str, ports))], user=65534,
                              group=65534, extra_groups=[], cwd="/", env={}, capture_output=True, text=True, timeout=LIMIT)
        assert re.fullmatch(r"\d+ connections 0 bytes\n", done.stdout), (done.stdout, done.stderr)
        assert int(done.stdout.split()[0]) >= 1000, done.stdout
        assert process.poll() is None, process.communicate()
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=LIMIT)
    assert process.returncode == 130, process.returncode


def a_dropped_and_a_repeated_sample_are_seen():
    store = make_store("peers", lines=2000)
    shim = os.path.join(BUILD, "tests", "faults", "libplant.so")
    for plant in ("drop", "repeat", "swap"):
        done = subprocess.run([CLI, "bench", store, "--json"], capture_output=True, text=True, timeout=LIMIT,
                              env={**os.environ, "LD_PRELOAD": preload(shim), "PLANT": plant})
        assert done.returncode == 1 and json.loads(done.stdout)["exactly_once"] is False, (plant, done)
    assert rankstore_json("bench", store)["exactly_once"] is True


def preload(shim):
    return shim


def running(pid):
    """A process of our command line."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().startswith(CLI.encode() + b"\0")
    except OSError:
        return False


def nothing_is_left_behind():
    temporary = tempfile.mkdtemp(prefix="r-", dir="/tmp")  # short: a socket's path is
    try:
        look_for_what_is_left(temporary)
    finally:
        shutil.rmtree(temporary)


def what_is_left(temporary, before):
    """In the folder, and in /dev/shm beside what others have mapped, and the folders of tests."""
    mapped = ""
    for maps in glob.glob("/proc/[0-9]*/maps"):
        try:
            with open(maps, encoding="utf-8", errors="replace") as file:
                mapped += file.read()
        except OSError:
            pass  # it has ended
    new = {name for name in set(os.listdir("/dev/shm")) - before if not name.startswith("rankstore-test-")}
    return {*os.listdir(temporary), *(name for name in new if f"/dev/shm/{name}" not in mapped)}


def look_for_what_is_left(temporary):
    store = make_store("peers", lines=2000)
    before = set(os.listdir("/dev/shm"))
    for _ in range(10):
        process, _ = start_bench(store, 3, env={"TMPDIR": temporary})
        time.sleep(CHOICE.uniform(0, 0.2))
        kill_all(process)
    wait_for(lambda: not any(running(pid) for pid in os.listdir("/proc") if pid.isdigit()))
    for name in os.listdir(temporary):  # of a leader that was killed while it shared; the next one removes what is old
        os.utime(os.path.join(temporary, name), (0, 0))
    process, _ = start_bench(store, 3, env={"TMPDIR": temporary})
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=LIMIT)
    try:
        wait_for(lambda: not what_is_left(temporary, before), limit=20)  # somebody else's is soon mapped, or gone
    except AssertionError as problem:
        raise AssertionError(what_is_left(temporary, before)) from problem


def few_open_files_are_an_error_that_says_so():
    store = make_store("peers", lines=2000)
    for limit in range(8, 25):
        done = subprocess.run([CLI, "bench", store, "-j", "2"], capture_output=True, text=True, timeout=LIMIT,
                              env={**os.environ, "RKS_SILENCE_MS": "10000"},
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
        assert done.returncode in (0, 3, 4), (limit, done)
        if done.returncode != 0:
            # A rank that cannot accept a connection is seen from the other side only, as a rank that closes it.
            assert re.search(r"open files|rank \d .*connection", done.stderr), (limit, done.stderr)
            assert done.stderr.startswith("rankstore bench: "), (limit, done.stderr)


TESTS = [
    a_build_killed_a_hundred_times_ends_as_the_same_dataset,
    a_full_disk_is_named_and_the_build_goes_on_when_there_is_room,
    a_file_size_limit_is_named,
    a_commit_that_is_not_durable_says_so_until_it_is,
    a_build_that_is_killed_in_its_commit_ends_well_when_it_is_run_again,
    a_build_whose_home_failed_sends_it_when_it_is_run_again,
    an_export_that_is_not_durable_leaves_nothing_and_runs_again,
    leftovers_of_killed_processes_are_removed_by_the_next_build,
    a_build_whose_lock_was_taken_commits_nothing,
    locks_that_hold_on_one_host_only_keep_no_build_out_but_its_beats_do,
    a_second_build_in_the_same_place_is_refused_naming_the_first,
    an_interrupted_build_exits_130_and_can_be_resumed,
    an_export_is_there_whole_or_not_at_all,
    a_full_disk_during_an_export_is_named_and_leaves_nothing,
    every_flipped_byte_is_found_where_it_is_and_never_handed_out,
    a_shard_cut_anywhere_is_an_error_and_not_a_signal,
    a_killed_rank_ends_the_others_with_its_name,
    an_interrupted_rank_ends_the_others_as_interrupted,
    a_stopped_rank_ends_the_others_within_the_silence_limit,
    strangers_at_the_door_get_nothing_and_stop_nothing,
    another_user_of_the_host_gets_nothing_and_stops_nothing,
    a_dropped_and_a_repeated_sample_are_seen,
    nothing_is_left_behind,
    few_open_files_are_an_error_that_says_so,
    *generations.TESTS,
    *publishing.TESTS,
    *staging.TESTS,
    *power.TESTS,
    *strangers.TESTS,
]

if __name__ == "__main__":
    try:
        run_all(TESTS)
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
