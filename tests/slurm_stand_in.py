"""Stands in for the commands of Slurm: ``sbatch`` starts the job at once on this machine, whatever it requests.

Run as a program under the name of a command of Slurm, this file is that command.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

PARTITION = "gpu"
"""The only partition."""
JOBS = "SLURM_STAND_IN"
"""The environment variable with the folder of the jobs."""
ENDS = {0: "COMPLETED", None: "NODE_FAIL"}
"""The states of jobs that ended with an exit code, or without one."""


class SlurmStandIn:
    """The jobs of the stand-in, each in a folder with the number of the job.

    Attributes:
        folder: the folder of the jobs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def hold(self) -> None:
        """Let each further job wait for ever."""
        (self.folder / "hold").touch()

    def break_node(self, job: str) -> None:
        """End all processes of a job at once, as if its node had lost its power."""
        os.killpg(int((self.folder / job / "pid").read_text()), signal.SIGKILL)

    def freeze(self, job: str) -> None:
        """Stop the agent of a job, as if it waited for a file server that does not answer."""
        os.killpg(int((self.folder / job / "pid").read_text()), signal.SIGSTOP)

    def hang(self) -> None:
        """Let ``squeue`` not answer any more."""
        (self.folder / "hang").touch()

    def states(self) -> dict[str, str]:
        """Return the states of all jobs by their numbers."""
        return {job.name: _state(job) for job in sorted(self.folder.glob("[0-9]*"))}

    def processes(self) -> list[str]:
        """Return the processes of all jobs, also those in process groups of their own."""
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):  # the process has ended, or is another user's
                if f"{JOBS}={self.folder}".encode() in path.read_bytes() and b"SLURM_JOB_ID=" in path.read_bytes():
                    found.append(path.parent.name)
        return found


@contextlib.contextmanager
def slurm_stand_in(folder: Path) -> Iterator[SlurmStandIn]:
    """Put the stand-in first on the path of this process and its children; end its jobs at the end of the block."""
    commands, jobs = folder / "slurm-commands", folder / "slurm-jobs"
    commands.mkdir()
    jobs.mkdir()
    for name in ("sbatch", "scancel", "squeue", "srun"):
        (commands / name).write_text(f"#!{sys.executable} -IS\n{Path(__file__).read_text(encoding='utf-8')}")
        (commands / name).chmod(0o700)
    variables = {JOBS: str(jobs), "PATH": f"{commands}:{os.environ['PATH']}"}
    with mock.patch.dict(os.environ, variables):
        slurm = SlurmStandIn(jobs)
        try:
            yield slurm
        finally:
            for job, state in slurm.states().items():
                if state == "RUNNING":
                    slurm.break_node(job)


def _state(job: Path) -> str:
    if (job / "cancelled").exists():
        return "CANCELLED"
    if not (job / "pid").exists():
        return "PENDING"
    code = (job / "code").read_text() if (job / "code").exists() else ""
    try:
        os.killpg(int((job / "pid").read_text()), 0)
    except ProcessLookupError:
        return ENDS.get(int(code) if code else None, "FAILED")
    return "RUNNING"


# --- the commands ----------------------------------------------------------------------------------------------------


def sbatch(jobs: Path, script: str) -> None:
    text = Path(script).read_text(encoding="utf-8")
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", text, re.MULTILINE))
    if options.get("partition", PARTITION) != PARTITION:
        sys.exit(
            f"sbatch: error: invalid partition specified: {options['partition']}\n"
            "sbatch: error: Batch job submission failed: Invalid partition name specified"
        )
    job = jobs / str(len(list(jobs.glob("[0-9]*"))) + 1)
    job.mkdir()
    if not (jobs / "hold").exists():
        logs = [Path(options[name].replace("%j", job.name)) for name in ("output", "error")]
        with logs[0].open("w") as out, logs[1].open("w") as err:
            process = subprocess.Popen(
                ["sh", "-c", 'bash "$1"; code=$?; echo $code >"$2"', "sh", script, job / "code"],
                env=os.environ | {"SLURM_JOB_ID": job.name},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        (job / "pid").write_text(str(process.pid))
    sys.stdout.write(f"Submitted batch job {job.name}\n")


def squeue(jobs: Path, *_: str) -> None:
    if (jobs / "hang").exists():
        time.sleep(1000)
    for job, state in SlurmStandIn(jobs).states().items():
        reason, node = ("Priority", "") if state == "PENDING" else ("None", "here")
        sys.stdout.write(f"{job}|{state}|{reason}|{node}\n")


def scancel(jobs: Path, *names: str) -> None:
    for name in names:
        (jobs / name / "cancelled").touch()
        with contextlib.suppress(OSError):
            group = int((jobs / name / "pid").read_text())
            os.killpg(group, signal.SIGTERM)
            time.sleep(0.5)
            os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    command = {"sbatch": sbatch, "squeue": squeue, "scancel": scancel}[Path(sys.argv[0]).name]
    command(Path(os.environ[JOBS]), *sys.argv[1:])
