# SPDX-License-Identifier: Apache-2.0
"""Damages a file: the byte at OFFSET becomes another one, whatever it was.

Usage: flip.py FILE OFFSET
"""
import sys

with open(sys.argv[1], "r+b") as file:
    file.seek(int(sys.argv[2]))
    byte = file.read(1)[0]
    file.seek(-1, 1)
    file.write(bytes([byte ^ 0x20]))
