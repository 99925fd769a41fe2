"""Run perfsvc on a real Slurm cluster of this machine, and let nodes and jobs die.

    apt-get install slurm-wlm munge
    python tests/benchmarks/slurm_faults.py [--json FILE]

Starts munged, slurmctld and slurmd for two nodes with two fake GPUs each, as root, in a temporary folder. Then runs a
suite of programs again and again: undisturbed; while a node dies; while a job is cancelled, or preempted by a job of
another partition; while an agent hangs; with too little time for the jobs; and until Ctrl-C. Each case must be stored
exactly once, with a result or with the reason why there is none; after Ctrl-C at most once. Takes about a quarter of an
hour, of which five minutes are the silence of the agent that hangs.
"""

import contextlib
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from workbench import Claim, finish, parsed, processes_with, table

SUITE = Path(__file__).parents[1] / "e2e" / "suites" / "sleeps" / "sleeps"
CASES = 24
NODES, GPUS = 2, 2
CONFIGURATION = """
ClusterName=here
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=20
KillWait=5
{nodes}
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=2
"""
NODE = "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 Gres=gpu:h100:{gpus} Feature=fast"
SETTINGS = """
[slurm]
partition = "gpu"
time = "{time}"
folder = "shared"
options = {{ account = "kernels" }}

[[slurm.gpus]]
count = 4
gres = "gpu:h100:1"
constraint = "fast"
"""


def main() -> int:
    """Run with each fault."""
    options = parsed(__doc__)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it starts in the background
    with tempfile.TemporaryDirectory(prefix="perfsvc-slurm-") as folder, slurm(Path(folder)) as cluster:
        faults: Mapping[str, tuple[str, Callable[[subprocess.Popen[str]], object]]] = {
            "none": ("20m", lambda run: None),
            "a node dies": ("20m", lambda run: cluster.break_node("node1")),
            "a job is cancelled": ("20m", lambda run: subprocess.run(["scancel", cluster.running()[0]], check=True)),
            "a job is preempted": ("20m", lambda run: cluster.preempt()),
            "an agent hangs": ("20m", lambda run: cluster.freeze(cluster.running()[0])),
            "the time is over": ("1m", lambda run: None),
            "Ctrl-C": ("20m", lambda run: run.send_signal(signal.SIGINT)),
        }
        rows, bad, left = [], 0, 0
        for name, (limit, fault) in faults.items():
            pause_s = 20 if limit == "1m" else 2  # Slurm ends a job of one minute after up to 90 s
            code, stored, jobs = cluster.measure(name.replace(" ", "-"), limit, fault, pause_s)
            cases = Counter(status for _, status in stored.values())
            bad += sum(times - 1 for times, _ in stored.values()) + (CASES - len(stored) if name != "Ctrl-C" else 0)
            left += len(cluster.running()) + len(list((cluster.folder / "shared").iterdir()))
            states = ", ".join(f"{count} {state}" for state, count in sorted(jobs.items()))
            rows.append([name, str(code), str(cases["ok"]), str(cases["failed"]), states])
            print(rows[-1], flush=True)
        print(f"\n{table(('fault', 'exit code', 'ok', 'failed', 'jobs'), rows)}\n")
    claims = [Claim("cases stored twice, or not at all", bad, 0), Claim("jobs and folders left behind", left, 0)]
    return finish(claims, options.json, rows=rows)


class Slurm:
    """A running cluster in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start_node(self, name: str) -> None:
        """Start a node."""
        subprocess.run(["slurmd", "-N", name], check=True)

    def break_node(self, name: str) -> None:
        """End everything of a node at once, as if it had lost its power; start it again when Slurm has noticed."""
        jobs = _lines("squeue", "--noheader", f"--nodelist={name}", "--states=R", "--format=%i")
        pids = [int((self.folder / f"{name}.pid").read_text())]
        for path in processes_with("SLURM_CONF", f"{self.folder}/slurm.conf"):
            with contextlib.suppress(OSError):
                command = (path / "cmdline").read_bytes()
                if any(command.startswith(f"slurmstepd: [{job}.".encode()) for job in jobs):
                    pids.append(int(path.name))
        for pid in [*pids, *(pid for job in jobs for pid in self._of_job(job))]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while not all(state == "NODE_FAIL" for job, state in self.jobs().items() if job in jobs):
            time.sleep(1)
        self.start_node(name)

    def preempt(self) -> None:
        """Let a job of the partition ``urgent`` take a GPU."""
        wrapped = ["--wrap", "sleep 1"]
        subprocess.run(
            ["sbatch", "--partition=urgent", "--gres=gpu:h100:1", "--output=/dev/null", *wrapped], check=True
        )

    def freeze(self, job: str) -> None:
        """Stop the agent of a job, and what it has started, as if all of it waited for a file server."""
        for pid in self._of_job(job):
            os.kill(pid, signal.SIGSTOP)

    def _of_job(self, job: str) -> list[int]:
        """Return the processes of a job, without the one that Slurm starts for it."""
        ours = processes_with("SLURM_CONF", f"{self.folder}/slurm.conf")
        return [int(path.name) for path in processes_with("SLURM_JOB_ID", job) if path in ours]

    def jobs(self) -> dict[str, str]:
        """Return the states of all jobs."""
        lines = _lines("squeue", "--noheader", "--states=all", "--format=%i|%T")
        return dict(line.split("|") for line in lines)

    def running(self) -> list[str]:
        """Return the jobs that run or wait."""
        return [job for job, state in self.jobs().items() if state in {"RUNNING", "PENDING", "COMPLETING"}]

    def measure(
        self, name: str, limit: str, fault: Callable[[subprocess.Popen[str]], object], pause_s: float
    ) -> tuple[int, dict[int, tuple[int, str]], Counter[str]]:
        """Run the suite, with a fault after four results.

        Returns:
            The exit code, how often each case was stored and with which status, and how many jobs ended in each state.
        """
        before = set(self.jobs())
        devices = []
        for number in range(NODES * GPUS):
            path = self.folder / f"gpu{number}.json"
            path.write_text(json.dumps({"uuid": f"FAKE-{number}"}))
            devices += ["--device", f"fake:{path}"]
        (self.folder / "perfsvc.toml").write_text(SETTINGS.format(time=limit))
        suite = self.folder / f"{name}-suite" / "sleeps"
        suite.mkdir(parents=True)
        (suite / "bench.py").write_bytes((SUITE / "bench.py").read_bytes())
        (suite / "sleep.sh").write_text(f"sleep {pause_s}\necho took 1 ms\n")
        database = self.folder / f"{name}.db"
        with subprocess.Popen(
            [
                *(sys.executable, "-m", "perfsvc", "run", "--on", "slurm", *devices, "--suite", str(suite.parent)),
                *("--points", "full", "--replicas", "1", "--spread", "each-model", "--db", str(database)),
            ],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            text=True,
        ) as run:
            while len(_stored(database)) < 4 and run.poll() is None:
                time.sleep(0.2)
            fault(run)
        while self.running():
            time.sleep(1)
        states = Counter(state for job, state in self.jobs().items() if job not in before)
        stored = _stored(database)
        times = Counter(case for case, _ in stored)
        return run.returncode, {case: (times[case], status) for case, status in stored}, states


def _stored(database: Path) -> list[tuple[int, str]]:
    """Return the case and the status of each measurement."""
    with contextlib.suppress(sqlite3.OperationalError), contextlib.closing(sqlite3.connect(database)) as connection:
        return connection.execute("SELECT case_id, status FROM measurements").fetchall()
    return []


@contextlib.contextmanager
def slurm(folder: Path) -> Iterator[Slurm]:
    """Start a cluster in a folder, and end it."""
    host = socket.gethostname()
    names = [f"node{number}" for number in range(NODES)]
    nodes = [NODE.format(name=name, host=host, port=_free_port(), gpus=GPUS) for name in names]
    for name in (*names, "state", "cgroups"):
        (folder / name).mkdir()
    for number in range(GPUS):
        os.mknod(folder / f"gpu{number}", 0o600 | 0o020000, os.makedev(1, 3))  # a character device, as a GPU is
    text = CONFIGURATION.format(host=host, port=_free_port(), folder=folder, nodes="\n".join(nodes))
    (folder / "slurm.conf").write_text(text)
    gres = f"NodeName=node[0-{NODES - 1}] Name=gpu Type=h100 File={folder}/gpu[0-{GPUS - 1}]\n"
    (folder / "gres.conf").write_text(gres)
    (folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={folder}/cgroups\n")
    os.environ |= {"SLURM_CONF": str(folder / "slurm.conf"), "PERFSVC_LOCKS": str(folder / "locks")}
    cluster = Slurm(folder)
    munged = [
        *("munged", "--force", f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid"),
        *(f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed"),
    ]
    try:
        subprocess.run(munged, check=True, stderr=subprocess.DEVNULL)  # it warns about the owner of its key
        subprocess.run(["slurmctld"], check=True)
        for name in names:
            cluster.start_node(name)
        while _lines("sinfo", "--noheader", "--format=%t") != ["idle"]:
            time.sleep(0.5)
        yield cluster
    finally:
        for name in (*names, "slurmctld", "munged"):
            with contextlib.suppress(OSError, ValueError):
                os.kill(int((folder / f"{name}.pid").read_text()), signal.SIGTERM)
        time.sleep(2)


def _lines(*command: str) -> list[str]:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


if __name__ == "__main__":
    sys.exit(main())
