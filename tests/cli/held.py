# SPDX-License-Identifier: Apache-2.0
"""Starts a build, and stops its process (SIGSTOP) while it holds its directory's lock. The process stays; its id goes into the
file `pid`, what it prints into `held.out`.

Usage: held.py DIR COMMAND...     exit 1 if the build ended before it was stopped
"""
import os
import signal
import subprocess
import sys
import time

with open("held.out", "w") as out:
    process = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
while process.poll() is None:
    try:
        with open(os.path.join(sys.argv[1], "build.lock")) as file:
            if f"pid {process.pid} on " in file.read():
                break
    except OSError:
        pass
    time.sleep(0.001)
if process.poll() is None:
    process.send_signal(signal.SIGSTOP)
with open("pid", "w") as file:
    file.write(str(process.pid))
done = process.poll()
process.returncode = 0  # it is not waited for
sys.exit(done is not None)
