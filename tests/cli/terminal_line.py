# SPDX-License-Identifier: Apache-2.0
"""Runs a command with a terminal as its standard error and says whether it drew a line there that fits.

Usage: terminal_line.py PATTERN COMMAND...    PATTERN is a regular expression; exit 1 where no line matches it
"""
import os
import pty
import re
import subprocess
import sys

master, slave = pty.openpty()
done = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stderr=slave)
os.close(slave)
text = b""
while True:
    try:
        piece = os.read(master, 4096)
    except OSError:  # EIO: the command has closed it
        break
    if not piece:
        break
    text += piece
code = done.wait()
lines = text.decode("utf-8", "replace").split("\r")
found = [line for line in lines if re.search(sys.argv[1], line)]
print("drawn" if found else f"not drawn: {lines}")
sys.exit(code or not found)
