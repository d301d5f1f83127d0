# SPDX-License-Identifier: Apache-2.0
"""Runs a command, and another one in the shell as soon as the first has said that it waits: `{}` in it is the first one's process id.

Usage: once_waiting.py SHELL COMMAND...     ends as COMMAND does, after SHELL
"""
import signal
import subprocess
import sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and so would the command
process = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
then = None
for line in process.stderr:
    sys.stderr.write(line)
    sys.stderr.flush()
    if then is None and ": waiting for " in line:
        then = subprocess.Popen(["sh", "-c", sys.argv[1].replace("{}", str(process.pid))])
code = process.wait()
if then is None or then.wait() != 0:
    sys.exit("it did not wait, or what was to be done then failed")
sys.exit(code if code >= 0 else 128 - code)
