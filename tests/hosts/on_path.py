# SPDX-License-Identifier: Apache-2.0
"""One who stands on the path between two hosts: two TUN devices, one in each host's network namespace, and a thread that passes packets
from one to the other, or loses, repeats, reorders and changes them.

    host A ── TUN ── Path ── TUN ── host B

The kernel's own netem would do, but few kernels of containers have it. A changed packet gets a checksum that fits, so that TCP takes it.
"""
import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import threading
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 1, 0x1000
MTU = 1500
A_TO_B, B_TO_A = 0, 1


def opened(name, namespace, address):
    """The file of a TUN device, which then moves into the namespace."""
    file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(file, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    for command in (["link", "set", name, "netns", namespace], ["-n", namespace, "addr", "add", address, "dev", name],
                    ["-n", namespace, "link", "set", name, "mtu", str(MTU), "up"], ["-n", namespace, "link", "set", "lo", "up"]):
        subprocess.run(["ip", *command], check=True, capture_output=True)
    return file


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Packet:
    """TCP over IPv4; anything else has `is_tcp` False."""

    def __init__(self, data):
        self.data = bytearray(data)
        self.is_tcp = len(data) >= 40 and data[0] >> 4 == 4 and data[9] == 6
        self.head = (data[0] & 15) * 4
        if self.is_tcp:
            self.begin = self.head + (data[self.head + 12] >> 4) * 4  # of the payload
            self.payload = len(data) - self.begin
            self.opens = data[self.head + 13] & 0x12 == 0x02  # SYN alone

    def port(self, which):
        """0: the sender's, 1: the receiver's."""
        return struct.unpack_from("!H", self.data, self.head + 2 * which)[0]

    def set_port(self, which, port):
        struct.pack_into("!H", self.data, self.head + 2 * which, port)
        self.seal()

    def seal(self):
        struct.pack_into("!H", self.data, self.head + 16, 0)
        part = bytes(self.data[self.head:])
        pseudo = bytes(self.data[12:20]) + struct.pack("!BBH", 0, 6, len(part))
        struct.pack_into("!H", self.data, self.head + 16, checksum(pseudo + part))


class Path:
    """Passes packets as `fault(way, packet)` says: it returns a list of (seconds later, packet), [] to lose it."""

    def __init__(self, namespaces, fault):
        self.fault, self.later, self.order = fault, [], 0
        self.files = []
        self.passed, self.ends = 0, threading.Event()
        for side, namespace, address in zip("ab", namespaces, ("10.77.0.1/24", "10.77.0.2/24")):
            self.files.append(opened(f"rkt{os.getpid()}{side}", namespace, address))  # for a moment it is among the machine's own
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def close(self):
        self.ends.set()
        self.thread.join(20)
        for file in self.files:
            os.close(file)

    def _run(self):
        while not self.ends.is_set():
            wait = min(0.1, max(0, self.later[0][0] - time.monotonic())) if self.later else 0.1
            for file in select.select(self.files, [], [], wait)[0]:
                self._take(self.files.index(file))
            while self.later and self.later[0][0] <= time.monotonic():
                _, _, way, data = heapq.heappop(self.later)
                self._give(way, data)

    def _take(self, way):
        for _ in range(64):  # then the other side has its turn
            try:
                data = os.read(self.files[way], 1 << 16)
            except OSError:  # none is left, or the device is down
                return
            self.passed += 1
            for seconds, packet in self.fault(way, Packet(data)):
                if seconds == 0:
                    self._give(way, packet.data)
                else:
                    self.order += 1
                    heapq.heappush(self.later, (time.monotonic() + seconds, self.order, way, packet.data))

    def _give(self, way, data):
        try:
            os.write(self.files[1 - way], data)
        except OSError:  # the queue is full: a packet is lost, as on any path
            pass


def passes(way, packet):
    return [(0, packet)]


class Loses:
    """Loses a share of the packets."""

    def __init__(self, seed, share=0.05):
        self.random, self.share = random.Random(seed), share

    def __call__(self, way, packet):
        return [] if self.random.random() < self.share else [(0, packet)]


class Reorders(Loses):
    """Holds a share of the packets back, so that later ones overtake them."""

    def __call__(self, way, packet):
        return [(self.random.uniform(0.001, 0.02) if self.random.random() < self.share else 0, packet)]


class Repeats(Loses):
    """Passes a share of the packets twice, the second time later."""

    def __call__(self, way, packet):
        again = [(self.random.uniform(0, 0.05) + 1e-6, packet)] if self.random.random() < self.share else []
        return [(0, packet), *again]


class Changes(Loses):
    """Changes a bit of a payload, once in `each_s` seconds."""

    def __init__(self, seed, each_s):
        super().__init__(seed)
        self.each_s, self.next, self.changed = each_s, time.monotonic() + each_s, 0

    def __call__(self, way, packet):
        if packet.is_tcp and packet.payload > 0 and time.monotonic() >= self.next:
            self.next = time.monotonic() + self.each_s
            self.changed += 1
            packet.data[packet.begin + self.random.randrange(packet.payload)] ^= 1 << self.random.randrange(8)
            packet.seal()
        return [(0, packet)]


class Cuts:
    """Loses all packets of one way from `cut()` on, for so many seconds."""

    def __init__(self, way, seconds):
        self.way, self.seconds, self.until = way, seconds, 0

    def cut(self):
        self.until = time.monotonic() + self.seconds

    def __call__(self, way, packet):
        return [] if way == self.way and time.monotonic() < self.until else [(0, packet)]


class Hole(Cuts):
    """A router whose link takes smaller packets, and that does not say so: loses large ones."""

    LARGEST = 1000

    def __init__(self, seconds):
        super().__init__(None, seconds)

    def __call__(self, way, packet):
        return [] if len(packet.data) > self.LARGEST and time.monotonic() < self.until else [(0, packet)]


class Rebinds:
    """A NAT before host A that forgets its table at `cut()`: what A sends over a connection that it opened comes from another port
    then, and what B sends to the old port goes nowhere."""

    def __init__(self):
        self.opened, self.shift = set(), 0  # the ports of A from which it has connected

    def cut(self):
        self.shift += 1

    def _outside(self, port):
        return 20000 + (port + 7919 * self.shift) % 40000

    def __call__(self, way, packet):
        if not packet.is_tcp:
            return [(0, packet)]
        if way == A_TO_B:
            if packet.opens:
                self.opened.add(packet.port(0))
            if packet.port(0) in self.opened:
                packet.set_port(0, self._outside(packet.port(0)))
            return [(0, packet)]
        for port in self.opened:
            if self._outside(port) == packet.port(1):
                packet.set_port(1, port)
                return [(0, packet)]
        is_old = any(20000 + (port + 7919 * shift) % 40000 == packet.port(1) for port in self.opened for shift in range(self.shift))
        return [] if is_old else [(0, packet)]
