# SPDX-License-Identifier: Apache-2.0
"""Others at the store where ranks meet: one who reads it, one who writes it and stands between two ranks."""
import os
import re
import select
import shutil
import socket
import struct
import subprocess
import threading
import time

from common import BUILD, LIMIT, make_store, path, wait_for

MEET = os.path.join(BUILD, "tests", "faults", "meet")


def rank_of_two(folder, rank, milliseconds, env=None):
    return subprocess.Popen([MEET, folder, str(rank), "2", make_store("peers", lines=2000), str(milliseconds)], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, env={**os.environ, **(env or {})})


def folder_of(name):
    shutil.rmtree(path(name), ignore_errors=True)
    os.mkdir(path(name))
    return path(name)


def said(process):
    out, _ = process.communicate(timeout=LIMIT)
    return process.returncode, out


def who_reads_the_store_is_no_rank():
    """A thief takes each record that a rank has put there, poses as the other rank with keys of its own, and is refused."""
    store, stolen = folder_of("met"), folder_of("stolen")
    ranks = [rank_of_two(store, rank, 4000) for rank in range(2)]
    assert [rank.stdout.readline() for rank in ranks] == ["reading\n"] * 2
    for posed in (0, 1):
        for name in os.listdir(store):
            if name.endswith(f".{1 - posed}"):
                shutil.copy(os.path.join(store, name), stolen)
        code, out = said(rank_of_two(stolen, posed, 100))
        assert code == 1 and f"rank {1 - posed} " in out and "without the job's secret" in out and "samples" not in out, out
        shutil.rmtree(stolen)
        os.mkdir(stolen)
    ends = [said(rank) for rank in ranks]  # nobody noticed
    assert [code for code, _ in ends] == [0, 0], ends
    assert sum(int(re.search(r"done: (\d+) samples\n$", out)[1]) for _, out in ends) > 0, ends


class Relay:
    """Passes on every byte between whoever connects and `port`, and keeps them."""

    def __init__(self, port):
        self.port, self.passed, self.connections = port, b"", 0
        self.door = socket.create_server(("127.0.0.1", 0))
        self.own = self.door.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                one, _ = self.door.accept()
            except OSError:
                return
            if self.connections < 200:
                self.connections += 1
                threading.Thread(target=self._pass_on, args=(one,), daemon=True).start()

    def _pass_on(self, one):
        try:
            with one, socket.create_connection(("127.0.0.1", self.port), timeout=5) as other:
                while True:
                    for ready in select.select([one, other], [], [])[0]:
                        part = ready.recv(65536)
                        if not part:
                            return
                        self.passed += part
                        (other if ready is one else one).sendall(part)
        except OSError:
            pass


def rewritten(record, relays):
    """The record with a relay's port in place of the rank's, if it holds an address of 127.0.0.1."""
    if record[:2] == b"\1\0" and record[8:12] == bytes([127, 0, 0, 1]):
        relays.append(Relay(struct.unpack_from("<H", record, 2)[0]))
        return record[:2] + struct.pack("<H", relays[-1].own) + record[4:]
    return record


def a_relay_between_two_ranks_reads_no_sample():
    """Who can write the store puts a relay's address in place of each rank's. The secret file makes both refuse it."""
    secret = path("secret")
    with open(secret, "wb") as file:
        file.write(os.urandom(32))
    os.chmod(secret, 0o600)
    folders, relays, passed = [folder_of("met-0"), folder_of("met-1")], [], set()
    begun = time.monotonic()
    ranks = [rank_of_two(folders[rank], rank, 100, {"RKS_SECRET_FILE": secret}) for rank in range(2)]

    def over():
        for rank, folder in enumerate(folders):
            for name in os.listdir(folder):
                if name.endswith(f".{rank}") and name not in passed:
                    passed.add(name)
                    with open(os.path.join(folder, name), "rb") as file:
                        record = rewritten(file.read(), relays)
                    draft = os.path.join(folders[1 - rank], name + ".new")
                    with open(draft, "wb") as file:
                        file.write(record)
                    os.rename(draft, draft[:-4])
        return all(rank.poll() is not None for rank in ranks)

    wait_for(over)
    for rank, (code, out) in enumerate(map(said, ranks)):
        assert code == 1 and f"rank {1 - rank} " in out and "without the job's secret" in out and "samples" not in out, (rank, out)
    assert time.monotonic() - begun < 60, "the ranks' silence limit is 3 s"
    assert len(relays) == 2 and sum(relay.connections for relay in relays) > 0, "nobody came to the relay"
    heard = b"".join(relay.passed for relay in relays)
    assert heard and b"w1" not in heard and b"k000" not in heard, len(heard)  # words and keys of samples
    for relay in relays:
        relay.door.close()


TESTS = [who_reads_the_store_is_no_rank, a_relay_between_two_ranks_reads_no_sample]
