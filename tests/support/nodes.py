# SPDX-License-Identifier: Apache-2.0
"""Nodes on one machine: network namespaces on one bridge, each with a disk of its own under the same name in a mount namespace. A job's
ranks are started in them as srun would."""
import os
import shutil
import signal
import subprocess
import tempfile

from support.report import Skip

LIMIT = 120
INSIDE = 'mount --bind "$0" "$1" && shift && exec "$@"'


def ip(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True)


class Nodes:
    """So many nodes, for one test."""

    def __init__(self, count=5):
        self.work = tempfile.mkdtemp(prefix="rankstore-nodes-")
        self.disk = f"{self.work}/nvme"
        self.job = 0
        self.names = [f"rks-n{i}-{os.getpid()}" for i in range(count)]
        self.hub = f"rks-hub-{os.getpid()}"

    def __enter__(self):
        if os.geteuid() != 0:
            raise Skip("needs root to make namespaces")
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self):
        commands = [("netns", "add", self.hub), ("-n", self.hub, "link", "add", "bridge", "type", "bridge"),
                    ("-n", self.hub, "link", "set", "bridge", "up")]
        for i, name in enumerate(self.names):
            commands += [("netns", "add", name), ("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"to{i}", "netns",
                                                  self.hub),
                         ("-n", self.hub, "link", "set", f"to{i}", "master", "bridge", "up"), ("-n", name, "link", "set", "lo", "up"),
                         ("-n", name, "addr", "add", f"10.77.0.{i + 1}/24", "dev", "eth0"), ("-n", name, "link", "set", "eth0", "up")]
            os.mkdir(f"{self.work}/disk{i}")
        os.mkdir(self.disk)
        for command in commands:
            made = ip(*command)
            if made.returncode != 0:
                raise Skip(f"cannot make namespaces here: {made.stderr.strip()}")

    def __exit__(self, *_):
        for name in [*self.names, self.hub]:
            ip("netns", "del", name)
        shutil.rmtree(self.work, ignore_errors=True)

    def start(self, nodes, *command, **environ):
        """Starts a command as a job of one rank on each of these nodes, in this order."""
        self.job += 1
        running = []
        for rank, node in enumerate(nodes):
            own = {**os.environ, **environ, "RKS_NODE": f"n{node}", "SLURM_JOB_ID": f"{os.getpid()}{self.job}", "SLURM_STEP_ID": "0",
                   "SLURM_STEP_NUM_TASKS": str(len(nodes)), "SLURM_PROCID": str(rank), "SLURM_STEP_NUM_NODES": str(len(nodes)),
                   "MASTER_ADDR": f"10.77.0.{nodes[0] + 1}"}
            running.append(subprocess.Popen(
                ["ip", "netns", "exec", self.names[node], "unshare", "-m", "sh", "-c", INSIDE, f"{self.work}/disk{node}", self.disk,
                 *command], env=own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return running

    @staticmethod
    def end(running):
        """Waits for the ranks, which are killed if they take too long. Returns the texts of stdout and those of stderr, a rank each."""
        try:
            ended = [one.communicate(timeout=LIMIT) for one in running]
        finally:
            for one in running:
                one.send_signal(signal.SIGKILL)
        return [list(one) for one in zip(*ended, strict=True)]

    def run(self, nodes, *command, code=0, **environ):
        """Runs a job, whose ranks all end with that code; returns what they said together: (stdout, stderr)."""
        running = self.start(nodes, *command, **environ)
        said = ["".join(one) for one in self.end(running)]
        codes = [one.returncode for one in running]
        assert all(one == code for one in codes), f"{command}: {codes}\n{said}"
        return said
