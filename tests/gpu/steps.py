# SPDX-License-Identifier: Apache-2.0
"""Steps of the GPU tests: each says what it expects and returns what it saw; all of it goes into RESULTS.md."""
import dataclasses
import datetime
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time

MIB = 1 << 20
LIMIT_S = 180  # of one program
# Ranks that share a GPU are hosts of their own to NCCL, and speak through sockets.
ONE_GPU = {
    "NCCL_NET": "Socket", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_NET_PLUGIN": "none", "NCCL_TUNER_PLUGIN": "none",
    "NCCL_MNNVL_ENABLE": "0", "NCCL_NVLS_ENABLE": "0", "NCCL_CUMEM_HOST_ENABLE": "0", "NCCL_RAS_ENABLE": "0", "NCCL_PROTO": "Simple",
    "NCCL_DEBUG_FILE": "/dev/stderr",  # standard output is read here
}


class Skip(Exception):
    """The step needs something that this machine does not have."""


class NoGpu(Exception):
    """The first call of CUDA has failed: no later step can run."""


def package_library():
    """NVIDIA's libnccl beside this Python, as torch loads it; None: it is the system's."""
    import importlib.util
    try:
        found = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return None
    for folder in found.submodule_search_locations or () if found is not None else ():
        path = os.path.join(folder, "lib", "libnccl.so.2")
        if os.path.exists(path):
            return path
    return None


@dataclasses.dataclass
class Machine:
    """Where the steps run. exchange: the program gpu_exchange. double: the stand-in of CUDA and NCCL, or None on a GPU. log: the file that
    takes all that the programs print, or None."""

    exchange: str
    double: str | None = None
    log: str | None = None
    figures: list = dataclasses.field(default_factory=list)  # lines of Markdown behind the table

    def environment(self, **more):
        if self.double is not None:
            return {**os.environ, "RKS_CUDA_LIBRARY": self.double, "RKS_NCCL_LIBRARY": self.double, **more}
        library = package_library()
        return {**({"RKS_NCCL_LIBRARY": library} if library else {}), **os.environ, **ONE_GPU, **more}

    def needs_gpu(self):
        if self.double is not None:
            raise Skip("needs a GPU")

    def note(self, text):
        if self.log is not None:
            with open(self.log, "a", encoding="utf-8") as file:
                file.write(text + "\n")

    def run(self, command, limit_s=LIMIT_S, **more):
        """(exit code, stdout, stderr); a program that takes longer is ended with its children, and its step has failed."""
        command = [str(word) for word in command]
        self.note(f"$ {' '.join(word if len(word) < 200 else '...' for word in command)} {more or ''}")
        with subprocess.Popen(command, env=self.environment(**more), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              start_new_session=True) as program:
            try:
                out, said = program.communicate(timeout=limit_s)
                late = False
            except subprocess.TimeoutExpired:
                out, said = end(program)
                late = True
        self.note(out + said)
        assert not late, f"no end within {limit_s} s: {last_lines(out + said)}"
        assert "the stand-in: " not in said, last_lines(said)  # it complains of what the real ones forbid
        return program.returncode, out, said

    def python(self, program, *arguments, **more):
        """The standard output of a Python program beside this file; its assertion is the step's."""
        here = os.path.dirname(os.path.abspath(__file__))
        code, out, said = self.run([sys.executable, os.path.join(here, program), *arguments], **more)
        if code != 0:
            raise AssertionError(f"{program} ended with {code}: {last_lines(out + said)}")
        return out.strip()

    def gpu_exchange(self, ranks, size, chunk, backend, repeats=1, fault=(), **more):
        """What each rank found: see gpu_exchange.c."""
        code, out, said = self.run([self.exchange, ranks, size, chunk, backend, repeats, *fault], **more)
        if code != 0:
            raise AssertionError(f"gpu_exchange ended with {code}: {last_lines(said)}")
        return json.loads(out)

    def good(self, *arguments, **more):
        found = self.gpu_exchange(*arguments, **more)
        for one in found:
            assert one["status"] == "ok" and not one["wrong"], one
        return found

    def free_mib(self):
        """MiB of the GPU that nobody has taken, by the driver's own tool; None without a GPU."""
        if self.double is not None:
            return None
        return int(ask_gpu("memory.free").split()[0])


def end(program):
    """(stdout, stderr) of a program that was ended. torchrun's ranks are in sessions of their own, which SIGTERM gives it time to end."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        os.killpg(program.pid, how)
        try:
            return program.communicate(timeout=40)
        except subprocess.TimeoutExpired as still:
            out, said = still.stdout, still.stderr
    return tuple((text or b"").decode("utf-8", "replace") for text in (out, said))


def ask_gpu(what):
    done = subprocess.run(["nvidia-smi", f"--query-gpu={what}", "--format=csv,noheader,nounits"], capture_output=True,
                          text=True, timeout=60)
    return done.stdout.strip()


def last_lines(text, size=1200):
    return " / ".join(text[-size:].split("\n")).strip()


def median(values):
    return sorted(values)[len(values) // 2]


# ---- running them ----------------------------------------------------------------------------------

def title(step):
    return step.__name__.replace("_", " ")


def run_step(step, machine):
    """(verdict, seen)"""
    try:
        return "ok", step(machine)
    except Skip as why:
        return "skip", str(why)
    except NoGpu as why:
        return "stop", str(why)
    except Exception as raised:  # a step that fails ends no other one
        return "FAIL", f"{type(raised).__name__}: {str(raised)[-1500:]}"


def run_steps(steps, machine, chosen, save):
    """Rows of (title, expected, verdict, seen, seconds), a line printed for each. After a missing GPU no step is tried. chosen(title) says
    which steps to run; save(rows) is called after each step, so that a run that is killed has left what it saw."""
    rows = [(title(step), " ".join(step.__doc__.split()), "not run", "the run ended before" if chosen(title(step)) else "not chosen", 0.0)
            for step in steps]
    stopped = ""
    for index, step in enumerate(steps):
        name, expected, *_ = rows[index]
        if stopped:
            rows[index] = (name, expected, "not run", stopped, 0.0)
        elif chosen(name):
            machine.note(f"==== {name}")
            begin = time.monotonic()
            verdict, seen = run_step(step, machine)
            rows[index] = (name, expected, verdict, seen, time.monotonic() - begin)
            print(f"{verdict} {name} ({rows[index][4]:.1f} s)\n  {seen}", flush=True)
            if verdict == "stop":
                stopped = f"step {index + 1} found no GPU"
        save(rows)
    return rows


def write_results(path, rows, machine):
    """RESULTS.md: the machine, each step with what was expected and seen, and the figures."""
    where = "the tests' stand-in of CUDA and NCCL, **no GPU**"
    if machine.double is None:
        try:
            where = ask_gpu("name,driver_version").replace("\n", "; ") + " (driver)"
        except OSError:
            where = "no GPU (there is no nvidia-smi)"
    count = {verdict: sum(row[2] == verdict for row in rows) for verdict in ("ok", "FAIL", "skip", "not run")}
    cells = [[str(number),
              *(re.sub(r"\s+", " ", cell).replace("|", "\\|") for cell in (row[0], row[1], row[3] or "-", f"{row[4]:.1f}", row[2]))]
             for number, row in enumerate(rows, 1)]
    text = [
        "# The nccl exchange and the loader on a GPU", "",
        f"Written by `tests/gpu/run` on {datetime.date.today()}: {where}; {platform.machine()}, Python {platform.python_version()}.",
        f"{count['ok']} steps good, {count['FAIL']} failed, {count['skip']} skipped, {count['not run']} not run.", "",
        "Ranks share one GPU, each a host of its own to NCCL: they are time-sliced, and the times say nothing about nodes with a GPU each.",
        "", "| # | step | expected | seen | seconds | |", "|---:|---|---|---|---:|---|",
        *("| " + " | ".join(row) + " |" for row in cells), "",
        *machine.figures, ""]
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(text))


def main(steps, machine, results, only=()):
    """The exit code: 0 all good, 1 a step failed, 3 no GPU. only: words of the titles of those to run; none: all."""
    def chosen(name):
        return not only or any(word in name for word in only)

    def save(rows):
        if results:
            write_results(results, rows, machine)

    rows = run_steps(steps, machine, chosen, save)
    if results:
        print(f"wrote {results}", flush=True)
    if any(row[2] == "FAIL" for row in rows):
        return 1
    stopped = [(number, row) for number, row in enumerate(rows, 1) if row[2] == "stop"]
    if stopped:
        number, row = stopped[0]
        print(f"stopped at step {number} of {len(rows)}, the first call of CUDA: {row[3]}", file=sys.stderr)
        return 3
    return 0
