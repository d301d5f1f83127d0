# SPDX-License-Identifier: Apache-2.0
"""Runs a command, and prints by how much its memory without pages of files exceeded FORMULA bytes at its peak; the memory that the same
command takes with --head 1 does not count. A busy machine hides short peaks, so it tells what takes too much, not what takes less.

Usage: peak.py FORMULA COMMAND...
"""
import subprocess
import sys
import time


def taken(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return sum(int(line.split()[1]) << 10 for line in file if line.startswith(("RssAnon:", "RssShmem:")))


def peak(command):
    most = 0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            most = max(most, taken(process.pid))
            time.sleep(0.001)
    if process.returncode != 0:
        sys.exit(f"{command}: exit code {process.returncode}")
    return most


formula, command = int(sys.argv[1]), sys.argv[2:]
took = peak(command) - peak([*command, "--head", "1"])
print("within the formula" if took < 1.3 * formula else f"took {took} bytes, the formula says {formula}")
print(f"{took / 1e6:.1f} MB, formula {formula / 1e6:.1f} MB, {took / formula:.2f}", file=sys.stderr)
