# SPDX-License-Identifier: Apache-2.0
"""Two hosts: network namespaces joined by a veth pair. Four ranks build, exchange and read across them; then one
side is killed, stopped or disconnected in the middle, and the other must end with an error that names a rank of it.
In other tests one who stands on the path between them loses, repeats, reorders or changes packets (on_path.py).

Usage: run.py BUILD-DIRECTORY [TEST...]
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import many_nodes  # noqa: E402
import on_path  # noqa: E402
from support.report import Skip, run_all  # noqa: E402

BUILD = os.path.abspath(sys.argv[1])
PROGRAM = os.path.join(BUILD, "tests", "hosts", "two_hosts")
WORK = tempfile.mkdtemp(prefix="rankstore-hosts-")
A, B = f"rks-a-{os.getpid()}", f"rks-b-{os.getpid()}"


def ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True)


class Hosts:
    """The namespaces, for one test, joined by a pair of devices, or by what a `fault` of on_path.py lets through."""

    def __init__(self, fault=None):
        self.fault, self.path = fault, None

    def __enter__(self):
        if os.geteuid() != 0:
            raise Skip("needs root to make network namespaces")
        self.__exit__()  # what a run that was killed left
        for name in (A, B):
            made = ip("netns", "add", name)
            if made.returncode != 0:
                self.__exit__()
                raise Skip(f"cannot make network namespaces here: {made.stderr.strip()}")
        if self.fault is not None:
            return self.join_by_path()
        commands = [["link", "add", "rksa", "netns", A, "type", "veth", "peer", "name", "rksb", "netns", B],
                    ["-n", A, "addr", "add", "10.77.0.1/24", "dev", "rksa"], ["-n", A, "link", "set", "rksa", "up"],
                    ["-n", B, "addr", "add", "10.77.0.2/24", "dev", "rksb"], ["-n", B, "link", "set", "rksb", "up"],
                    ["-n", A, "link", "set", "lo", "up"], ["-n", B, "link", "set", "lo", "up"]]
        for command in commands:
            done = ip(*command)
            if done.returncode != 0:
                self.__exit__()
                raise Skip(f"cannot join network namespaces here: ip {' '.join(command)}: {done.stderr.strip()}")
        return self

    def join_by_path(self):
        try:
            self.path = on_path.Path((A, B), self.fault)
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            raise Skip(f"cannot make TUN devices here: {error}") from error
        return self

    def __exit__(self, *_):
        if self.path is not None:
            self.path.close()
        for name in (A, B):
            ip("netns", "del", name)


def make_input():
    path = os.path.join(WORK, "input.txt")
    with open(path, "w", encoding="utf-8") as file:
        for i in range(4000):
            file.write(f"line {i} " + "word " * (i % 97) + "\n")
    return path


def start(epochs, name, silence_ms, until):
    """Returns when a line `until` has come from as many ranks as print one."""
    directory = os.path.join(WORK, name + "-{rank}")
    process = subprocess.Popen([PROGRAM, A, B, make_input(), directory, str(epochs), str(silence_ms)],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                               env={**os.environ, "RKS_LAUNCH_GRACE_MS": "60000"})
    pids, came = {}, 0
    for line in process.stdout:  # ends: the program has an alarm
        found = re.match(r"rank (\d+) pid (\d+)", line)
        if found:
            pids[int(found[1])] = int(found[2])
        came += re.fullmatch(until, line.rstrip("\n")) is not None
        if came == (1 if until == BEGUN else 4):
            return process, pids
    raise AssertionError(f"it never came to {until}: exit {process.wait()}")


def end(process):
    """(exit code, what it still said): more of it than a line may have been read already."""
    out = process.stdout.read()
    return process.wait(), out


BEGUN, READ = "reading", r"rank \d has read an epoch"
# Longer than the program lives: whatever ends it was noticed otherwise.
NEVER = 600000


def disturb(name, silence_ms, act, victims):
    """Runs, disturbs once all read from each other, and returns what the ranks said."""
    with Hosts():
        process, pids = start(100000, name, silence_ms, READ)
        act(pids)
        said = {}
        for line in process.stdout:
            found = re.match(r"rank (\d+): (.*)", line)
            if found:
                said[int(found[1])] = found[2]
            if len(said) == 4 - len(victims):
                break
        os.killpg(process.pid, signal.SIGKILL)
        _, rest = end(process)
    for rank in set(range(4)) - set(victims):
        assert rank in said, (said, rest)
        assert re.search(r"rank \d", said[rank]), said[rank]
    return said


def an_epoch_is_read_across_two_hosts():
    with Hosts():
        process, _ = start(2, "whole", NEVER, BEGUN)
        code, out = end(process)
    assert code == 0, (code, out)
    done = re.findall(r"done: (\d+) samples, (\d+) remote bytes, (\d+) local bytes, exchange (\w+)", out)
    assert len(done) == 4 and sum(int(d[0]) for d in done) == 8000, out
    assert all(int(d[1]) > 0 and d[3] == "pull" for d in done), out


SNIFF = """
import socket, sys
listener = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.ntohs(3))
listener.bind(("rksa", 0))
listener.settimeout(0.2)
print("listening", flush=True)
seen = packets = 0
while True:
    try:
        packet = listener.recv(1 << 17)
    except TimeoutError:
        if packets and "quiet" in open(sys.argv[1]).read():
            break
        continue
    packets += 1
    seen += b"word word" in packet
print(seen, packets)
"""


def sniffed(name, encrypt):
    """How many packets between the hosts showed what samples hold, of how many."""
    quiet = os.path.join(WORK, name + ".quiet")
    with open(quiet, "w", encoding="utf-8"):
        pass
    os.environ["RKS_ENCRYPT"] = encrypt
    try:
        with Hosts():
            sniffer = subprocess.Popen(["ip", "netns", "exec", A, sys.executable, "-c", SNIFF, quiet], stdout=subprocess.PIPE,
                                       text=True)
            assert sniffer.stdout.readline() == "listening\n"
            process, _ = start(2, name, NEVER, BEGUN)
            code, out = end(process)
            with open(quiet, "w", encoding="utf-8") as file:
                file.write("quiet")
            said = sniffer.communicate(timeout=60)[0]
    finally:
        del os.environ["RKS_ENCRYPT"]
    assert code == 0, (code, out)
    return [int(number) for number in said.split()]


def need_a_checkout_outside_of_tmp():
    """A container's own /tmp hides the machine's, and with it a checkout that lies there."""
    if os.path.realpath(BUILD).startswith("/tmp/"):
        raise Skip("the checkout lies in /tmp, which containers with a /tmp of their own do not see")


def containers_of_one_machine_build_read_and_gather():
    """Each rank has a /tmp of its own. Two share a network, and one copy of the index; two pairs share nothing."""
    need_a_checkout_outside_of_tmp()
    place = tempfile.mkdtemp(prefix="containers-", dir=BUILD)  # which all see
    try:
        with Hosts():
            source = shutil.copy(make_input(), place)
            done = subprocess.run([PROGRAM, A, B, source, os.path.join(place, "d"), "2", "20000", "containers"],
                                  capture_output=True, text=True, timeout=150)
        assert done.returncode == 0, (done.stdout, done.stderr)
        ranks = re.findall(r"done: (\d+) samples, .*, (\d+) nodes", done.stdout)
        assert len(ranks) == 4 and sum(int(one[0]) for one in ranks) == 8000, done.stdout
        assert all(one[1] == "2" for one in ranks), done.stdout
        lines = [line for line in done.stderr.splitlines() if "copy of the index" in line]
        assert len(lines) == 1 and "ranks 0 and 1" in lines[0] and "RKS_NODE" in lines[0], done.stderr
    finally:
        shutil.rmtree(place, ignore_errors=True)


def commands_run_in_containers():
    """Ranks that mpirun starts, each in a mount namespace with a /tmp of its own."""
    module = os.path.join(BUILD, "src", "mpi", "librankstore_mpi.so")
    if os.geteuid() != 0 or shutil.which("mpirun") is None or not os.path.exists(module):
        raise Skip("needs root and mpirun")
    need_a_checkout_outside_of_tmp()
    place = tempfile.mkdtemp(prefix="containers-", dir=BUILD)
    try:
        shutil.copy(make_input(), place)
        own = "mount -t tmpfs -o size=16m none /tmp && exec \"$@\""
        for command in (["build", "input.txt", "-o", "d", "--unit-size", "64k"], ["verify", "d"],
                        ["bench", "d", "--max-tokens", "100k", "--json"]):
            ranks = [] if command[0] == "verify" else ["mpirun", "--oversubscribe", "-n", "3", "unshare", "-m", "sh", "-c", own, "sh"]
            done = subprocess.run([*ranks, os.path.join(BUILD, "tools", "rankstore", "rankstore"), *command], cwd=place, text=True,
                                  capture_output=True, timeout=100, env={**os.environ, "RKS_MPI_MODULE": module, "TMPDIR": place})
            assert done.returncode == 0, (command, done.stdout, done.stderr)
        assert json.loads(done.stdout)["exactly_once"], done.stdout
    finally:
        shutil.rmtree(place, ignore_errors=True)


def encrypted_samples_are_not_seen_on_the_wire():
    seen, packets = sniffed("open", "0")
    assert seen > 0 and packets > 0, (seen, packets)
    seen, packets = sniffed("secret", "1")
    assert seen == 0 and packets > 0, (seen, packets)


def a_killed_rank_on_the_other_host_is_named():
    said = disturb("kill", NEVER, lambda pids: os.kill(pids[3], signal.SIGKILL), [3])
    assert all("rank 3" in text for text in said.values()), said


def a_stopped_rank_on_the_other_host_is_named():
    said = disturb("stop", 3000, lambda pids: os.kill(pids[3], signal.SIGSTOP), [3])
    assert all("rank 3" in text and "3000 ms" in text for text in said.values()), said


def a_lost_link_ends_both_sides():
    said = disturb("link", 3000, lambda pids: ip("-n", A, "link", "set", "rksa", "down"), [])
    assert len(said) == 4, said


def a_link_that_is_away_for_a_moment_is_survived():
    with Hosts():
        process, _ = start(40, "blink", 60000, BEGUN)  # connections for what is read are still to be made
        ip("-n", A, "link", "set", "rksa", "down")
        time.sleep(1)
        ip("-n", A, "link", "set", "rksa", "up")
        code, out = end(process)
    assert code == 0, (code, out)


# ---- one who stands on the path ------------------------------------------------------------------

T_MS = 4000


def survives(name, fault, during=None, epochs=12):
    """Four ranks read all epochs, each sample once and right (a record's checksum says so), whatever the path does."""
    with Hosts(fault) as hosts:
        process, _ = start(epochs, name, T_MS, BEGUN)
        if during is not None:
            during()
        code, out = end(process)
        passed = hosts.path.passed
    assert code == 0, (code, out)
    done = re.findall(r"done: (\d+) samples, (\d+) remote bytes", out)
    assert len(done) == 4 and sum(int(d[0]) for d in done) == 4000 * epochs, out
    assert all(int(d[1]) > 0 for d in done) and passed > 1000, (passed, out)


def ends_everywhere(name, fault):
    """All four ranks end with an error that names a rank, after T and not much later."""
    with Hosts(fault):
        process, _ = start(100000, name, T_MS, READ)
        begun = time.monotonic()
        fault.cut()
        code, out = end(process)
        took = time.monotonic() - begun
    said = dict(re.findall(r"^rank (\d): (.*)$", out, re.MULTILINE))
    assert code != 0 and len(said) == 4, (code, out)
    assert all(re.search(r"rank \d", text) for text in said.values()), said
    assert 0.5 * T_MS / 1000 < took < 60, took


def lost_packets_are_survived():
    survives("loses", on_path.Loses(1), epochs=100)


def packets_in_another_order_are_survived():
    survives("reorders", on_path.Reorders(2), epochs=100)


def packets_that_come_twice_are_survived():
    survives("repeats", on_path.Repeats(3), epochs=100)


def changed_bytes_are_survived():
    fault = on_path.Changes(4, each_s=0.25)
    survives("changes", fault, epochs=400)
    assert fault.changed > 0


def a_way_that_is_cut_for_half_of_t_is_survived():
    for way in (on_path.A_TO_B, on_path.B_TO_A):
        fault = on_path.Cuts(way, T_MS / 2000)
        survives(f"cut-{way}", fault, fault.cut)


def a_way_that_is_cut_for_longer_ends_all_ranks():
    ends_everywhere("gone", on_path.Cuts(on_path.A_TO_B, 1000))


def a_hole_for_large_packets_that_closes_is_survived():
    fault = on_path.Hole(T_MS / 2000)
    survives("hole", fault, fault.cut)


def a_hole_for_large_packets_ends_all_ranks():
    ends_everywhere("hole-stays", on_path.Hole(1000))


def a_nat_that_rebinds_is_survived():
    fault = on_path.Rebinds()
    survives("nat", fault, fault.cut, epochs=200)


TESTS = [
    an_epoch_is_read_across_two_hosts,
    containers_of_one_machine_build_read_and_gather,
    commands_run_in_containers,
    encrypted_samples_are_not_seen_on_the_wire,
    a_killed_rank_on_the_other_host_is_named,
    a_stopped_rank_on_the_other_host_is_named,
    a_lost_link_ends_both_sides,
    a_link_that_is_away_for_a_moment_is_survived,
    lost_packets_are_survived,
    packets_in_another_order_are_survived,
    packets_that_come_twice_are_survived,
    changed_bytes_are_survived,
    a_way_that_is_cut_for_half_of_t_is_survived,
    a_way_that_is_cut_for_longer_ends_all_ranks,
    a_hole_for_large_packets_that_closes_is_survived,
    a_hole_for_large_packets_ends_all_ranks,
    a_nat_that_rebinds_is_survived,
    *many_nodes.TESTS,
]

if __name__ == "__main__":
    try:
        run_all(TESTS)
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
