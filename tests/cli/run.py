# SPDX-License-Identifier: Apache-2.0
"""The command line by command and expected output.

Each *.test file is a list of blocks:

    # a sentence: the test's name
    $ rankstore info nothing-here          a shell command, run in the file's own empty directory
    1> expected line of standard output    `...` stands for any text
    2> expected line of standard error
    = 1                                    exit code, 0 if not said; 77 skips the test, and the last line says why

A block without 1> or 2> lines says nothing about that stream; `1> -` says that it is empty. Lines of a stream
are compared in order; a line `1> ...` alone stands for any number of lines.

Usage: tests/cli/run.py BUILD [FILE]      FILE is one of this folder, or a pattern; default all
"""
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

LIMIT = 600  # seconds of a block: only ends what hangs, on a slow machine, too


class Block:
    def __init__(self, name, where):
        self.name, self.where = name, where
        self.command, self.code = "", 0
        self.out, self.err = None, None


def parse(path):
    blocks, block = [], None
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.rstrip("\n")
            if line.startswith("# SPDX"):
                continue
            if line.startswith("# "):
                block = Block(line[2:].replace(" ", "_"), f"{os.path.basename(path)}:{number}")
                blocks.append(block)
            elif line.startswith("$ "):
                block.command += ("\n" if block.command else "") + line[2:]
            elif line.startswith("1> ") or line == "1>":
                block.out = (block.out or []) + [line[3:]]
            elif line.startswith("2> ") or line == "2>":
                block.err = (block.err or []) + [line[3:]]
            elif line.startswith("= "):
                block.code = int(line[2:])
            elif line.strip():
                raise SystemExit(f"{path}:{number}: cannot be read: {line}")
    return blocks


def fits(expected, text):
    """None where the text fits, else the first expected line that does not."""
    if expected is None:
        return None
    if expected == ["-"]:
        return None if text == "" else "nothing"
    pattern = ""
    for line in expected:
        if line == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(re.escape(part) for part in line.split("...")) + r"\n"
    if re.fullmatch(pattern, text if text.endswith("\n") or not text else text + "\n"):
        return None
    for line in expected:
        if line != "..." and not re.search(".*?".join(re.escape(p) for p in line.split("...")), text):
            return line
    return "the lines in this order"


def run_file(path, environment):
    work = tempfile.mkdtemp(prefix="rankstore-cli-")
    try:
        for block in parse(path):
            done = subprocess.Popen(["bash", "-c", block.command], cwd=work, env=environment, stdin=subprocess.DEVNULL,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
            try:
                out, err = (text.decode("utf-8", "backslashreplace") for text in done.communicate(timeout=LIMIT))
            except subprocess.TimeoutExpired:
                os.killpg(done.pid, signal.SIGKILL)
                done.communicate()
                print(f"FAIL {block.where} {block.name}: over {LIMIT} s")
                continue
            problem = None
            if done.returncode == 77 != block.code:
                print(f"skip {block.name}: {(out.splitlines() or ['exit code 77'])[-1]}")
                continue
            if done.returncode != block.code:
                problem = f"exit code {done.returncode}, not {block.code}"
            elif fits(block.out, out) is not None:
                problem = f"standard output lacks: {fits(block.out, out)}"
            elif fits(block.err, err) is not None:
                problem = f"standard error lacks: {fits(block.err, err)}"
            if problem is None:
                print(f"ok {block.name}")
            else:
                print(f"FAIL {block.where} {block.name}: {problem}\n  $ {block.command}\n  1> "
                      + out.replace("\n", "\n  1> ") + "\n  2> " + err.replace("\n", "\n  2> "))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main():
    directory = os.path.abspath(sys.argv[1])
    here = os.path.dirname(os.path.abspath(__file__))
    environment = dict(os.environ)
    environment["PATH"] = os.path.join(directory, "tools", "rankstore") + ":" + environment["PATH"]
    environment["BUILD"] = directory
    environment["HERE"] = here
    environment["SHARED_DATA"] = os.environ.get("RKS_SHARED_DATA",
                                                os.path.abspath(os.path.join(here, "../../../shared/data")))
    environment["TERM"] = "xterm"
    for name in list(environment):  # the caller's terminal, language and settings
        if name in ("COLUMNS", "LINES") or name.startswith(("LC_", "LANG", "RKS_")):
            environment.pop(name)
    environment["LANG"] = "C.UTF-8"
    wanted = os.path.basename(sys.argv[2]) if len(sys.argv) > 2 else "*.test"
    found = sorted(glob.glob(os.path.join(here, wanted)))
    if not found:
        sys.exit(f"tests/cli/run.py: there is no test file {wanted} in {here}")
    for path in found:
        run_file(path, environment)


if __name__ == "__main__":
    main()
