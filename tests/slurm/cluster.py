# SPDX-License-Identifier: Apache-2.0
"""A Slurm of two nodes on this machine: munged, slurmctld and two slurmd, with all their files in one folder and all their ports on
loopback. SLURM_CONF names it; nothing is written to /etc, and nothing runs after `stop`."""
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "scontrol", "sbatch", "scancel")
LIMIT = 60  # seconds until it must be up

CONF = """
ClusterName=rankstore
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={ports[0]}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=2
SlurmdTimeout=60
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=8 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=8 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=10 State=UP
"""


def find(name):
    """The program's path; daemons lie where a user's PATH does not look."""
    return shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Cluster:
    """Started by `with`. environ: what commands of Slurm need."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="rankstore-slurm-")
        os.chmod(self.folder, 0o755)
        self.environ = {**os.environ, "SLURM_CONF": f"{self.folder}/slurm.conf"}
        self.daemons = []

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def _daemon(self, *command):
        log = open(f"{self.folder}/{os.path.basename(command[0])}.out", "ab")  # noqa: SIM115
        self.daemons.append(subprocess.Popen(command, env=self.environ, stdout=log, stderr=log, start_new_session=True))
        log.close()

    def _start(self):
        host = socket.gethostname()
        os.mkdir(f"{self.folder}/state")
        with open(f"{self.folder}/munge.key", "wb") as key:
            key.write(os.urandom(128))
        os.chmod(f"{self.folder}/munge.key", 0o400)
        with open(f"{self.folder}/slurm.conf", "w", encoding="utf-8") as conf:
            conf.write(CONF.format(host=host, folder=self.folder, ports=free_ports(3)))
        self._daemon(find("munged"), "--foreground", "--force", f"--key-file={self.folder}/munge.key",
                     f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munged.pid",
                     f"--log-file={self.folder}/munged.log", f"--seed-file={self.folder}/munged.seed", "--num-threads=2")
        self._until(lambda: os.path.exists(f"{self.folder}/munge.socket"), "munged")
        self._daemon(find("slurmctld"), "-D", "-f", f"{self.folder}/slurm.conf")
        for node in ("n1", "n2"):
            os.mkdir(f"{self.folder}/spool-{node}")
            self._daemon(find("slurmd"), "-D", "-N", node, "-f", f"{self.folder}/slurm.conf")
        self._until(self._is_idle, "its nodes")

    def _is_idle(self):
        done = subprocess.run([find("sinfo"), "-h", "-o", "%T %D"], env=self.environ, capture_output=True, text=True, timeout=LIMIT)
        return done.stdout.split() == ["idle", "2"]

    def _until(self, is_so, what):
        end = time.monotonic() + LIMIT
        while not is_so():
            dead = [one.args[0] for one in self.daemons if one.poll() is not None]
            if dead or time.monotonic() > end:
                raise AssertionError(f"Slurm does not start: {what}; ended: {dead}\n{self._logs()}")
            time.sleep(0.1)

    def _logs(self):
        text = ""
        for name in sorted(os.listdir(self.folder)):
            if name.endswith((".log", ".out")):
                with open(f"{self.folder}/{name}", errors="replace") as file:
                    text += f"--- {name}\n{file.read()[-2000:]}"
        return text

    def run(self, *command, limit=120, code=0, cwd=None, **environ):
        """Runs a command beside the cluster; returns (stdout, stderr). None: any exit code."""
        done = subprocess.run(command, env={**self.environ, **environ}, cwd=cwd, capture_output=True, text=True, timeout=limit)
        assert code is None or done.returncode == code, f"{command}: exit {done.returncode}\n{done.stdout}{done.stderr}\n{self._logs()}"
        return done.stdout, done.stderr

    def stop(self):
        if find("scancel") and len(self.daemons) > 1:
            subprocess.run([find("scancel"), "-u", "root"], env=self.environ, capture_output=True, timeout=LIMIT)
        for one in reversed(self.daemons):
            one.send_signal(signal.SIGTERM)
        for one in self.daemons:
            try:
                one.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(one.pid, signal.SIGKILL)
                one.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
