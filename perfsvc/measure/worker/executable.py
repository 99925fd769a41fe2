"""Cases that are programs: run the executable once, in a folder and a session of its own, and read its times.

The worker does not open the device, because a second context on a GPU would disturb the program. Nothing that the
program starts outlives its case: the worker adopts processes that leave the program's session, and kills them.
"""

import contextlib
import hashlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO

from perfsvc import units
from perfsvc.device import VISIBLE
from perfsvc.device.telemetry import GpuTelemetry
from perfsvc.errors import CaseError, LaunchError, ProgramError, TimeLimitError
from perfsvc.measure.protocol.messages import CaseJob, Measured, Open, Ready, Reply, Request, without_samples
from perfsvc.measure.worker.program_results import ProgramOutput, result_of
from perfsvc.model import (
    Batch,
    Conditions,
    DeviceInfo,
    Measurement,
    Package,
    PythonCode,
    RunProgram,
    Slowdown,
    Status,
    codec,
    is_own_program,
)
from perfsvc.process import fork_server, frames
from perfsvc.process.programs import describe_exit
from perfsvc.temporary import temporary_folder

MOST_OUTPUT_BYTES = 1 << 26
"""The most bytes that a program may print."""
POLL_S = 0.2
"""Seconds between two checks of the size of the output."""
LINGER_S = 1.0
"""Seconds that the processes which a program has started may take to end after the program itself."""
TAIL_BYTES = 2000
"""The most bytes of a failed program's output that an error shows."""
MOST_NAMES = 5
"""The most processes left behind by a program that an error names."""


def serve(parent: socket.socket, request: Open, device: DeviceInfo) -> int:
    """Run the programs of the jobs that arrive until the socket closes; return the exit status.

    Args:
        parent: the worker's private socket.
        request: what the worker was asked to open.
        device: the device, which the programs may use and the worker does not open.
    """
    environment = {frames.from_text(name): frames.from_text(value) for name, value in request.environment.items()}
    environment[VISIBLE] = request.visible
    with contextlib.ExitStack() as stack:
        telemetry = None
        if device.kind == "cuda":
            telemetry = stack.enter_context(contextlib.closing(GpuTelemetry(device.uuid)))
        frames.send(parent, codec.encode(Reply(Ready(device))))
        while (frame := frames.receive(parent)) is not None:
            for descriptor in frame.descriptors:  # a program has no arrays
                os.close(descriptor)
            job = codec.decode(Request, frame.text).body
            if not isinstance(job, CaseJob):
                raise TypeError(type(job))
            measurement = measure(job, frame.blobs, device.uuid, environment, telemetry)
            frames.send(parent, codec.encode(Reply(Measured(measurement, usable=True))))
    return 0


def measure(
    job: CaseJob,
    modules: Sequence[bytes],
    device: str,
    environment: Mapping[str, str],
    telemetry: GpuTelemetry | None = None,
) -> Measurement:
    """Run the program of a case once. If the case fails, its measurement holds the error.

    Args:
        job: what to measure.
        modules: the contents of the program's files, in the order of ``RunProgram.files``.
        device: the UUID of the device.
        environment: the environment variables of the program, before those that the case sets.
        telemetry: reads the conditions of the GPU.
    """
    started = time.monotonic()
    (step,) = (step for step in job.record.steps if isinstance(step, RunProgram))
    try:
        with temporary_folder() as folder:
            if telemetry:
                telemetry.read()  # the next reading reports what happens from now on
            program = _Program(step, modules, folder, environment)
            output, seconds = program.run(job.limit_s)
            conditions = _conditions(telemetry)
            result = result_of(output, step, job.record.case)
            conditions = replace(conditions, sm_clock_hz=result.clock_hz)
    except CaseError as error:
        failure = error
    except Exception as error:  # noqa: BLE001 - it is reported
        traceback.print_exc()
        failure = LaunchError(
            f"perfsvc itself failed: {type(error).__name__}: {error}",
            cure="report this error with the output of the program; the run loses no other case",
        )
    else:
        slowdowns = ", ".join(slowdown for slowdown in conditions.slowdowns if slowdown is not Slowdown.POWER_CAP)
        slowed = f"the GPU lowered its clocks while the program ran: {slowdowns}" if slowdowns else ""
        return Measurement(
            job.record.case,
            device,
            job.replica,
            Status.OK,
            job.cache,
            samples_s=result.samples_s,
            metrics=result.metrics,
            batches=(Batch(result.samples_s, conditions=conditions),),
            note="; ".join(filter(None, [result.note, slowed])),
            wall_s=time.monotonic() - started,
            sampling_s=seconds,
            python=program.tool,
        )
    wall_s = time.monotonic() - started
    return without_samples(job.record.case, device, job.replica, job.cache, failure, wall_s=wall_s)


def _conditions(telemetry: GpuTelemetry | None) -> Conditions:
    """Return what happened to the GPU while a program ran.

    Clocks and power are left out, because the GPU is idle again. Other processes on the GPU are left out too, because
    the program itself would be among them.
    """
    if telemetry is None:
        return Conditions()
    now = telemetry.read()
    return Conditions(
        temperature_c=now.temperature_c, slowdowns=now.slowdowns, ecc_errors=now.ecc_errors, xids=now.xids
    )


@dataclass(frozen=True, slots=True)
class _Ended:
    """How a program ended: its exit status, and the processes that it left behind."""

    code: int
    left: Sequence[str]


class _Program:
    """A program with its files in a folder.

    Args:
        step: what to run.
        modules: the contents of its files.
        folder: an empty folder.
        environment: the environment variables, before those of the step.

    Attributes:
        tool: the program of the machine that the case runs, as a package; None if the program is a file of the case.
    """

    def __init__(
        self, step: RunProgram, modules: Sequence[bytes], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self._step = step
        self._environment = {**environment, **dict(step.environment)}
        self._folder = _placed(step, modules, folder)
        self._executable = self._find()
        self.tool = None if is_own_program(step.command[0]) else _tool(step.command[0], self._executable)

    def run(self, limit_s: float) -> tuple[ProgramOutput, float]:
        """Run the program to its end; return its output, and the seconds that it took.

        Raises:
            CaseError: the program could not be started, exceeded its time limit, printed too much, failed, or left
                processes behind.
        """
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            started = time.monotonic()
            ended = self._run(stdout, stderr, limit_s)
            seconds = time.monotonic() - started
            if ended.code != self._step.exit_code:
                how = describe_exit(ended.code) if ended.code >= 0 else f"killed by {describe_exit(ended.code)}"
                raise self._failed(f"{how}{_said(stdout, stderr)}", "run the command yourself, in an empty folder")
            if ended.left:
                left = units.count(len(ended.left), "process", "processes")
                names = ", ".join(ended.left[:MOST_NAMES]) + (", …" if len(ended.left) > MOST_NAMES else "")
                raise self._failed(
                    f"it ended and left {left} running, which perfsvc has killed: {names}",
                    "let the program wait for the processes that it starts",
                )
            return ProgramOutput(self._folder, _content(stdout), _said(stdout, stderr)), seconds

    def _find(self) -> Path:
        """Return the path of the executable; raise ``ProgramError`` if this machine has no such program."""
        name = self._step.command[0]
        if is_own_program(name):
            return Path(os.path.normpath(self._folder / name))
        if found := shutil.which(name, path=self._environment.get("PATH")):
            return Path(found)
        is_beside = "/" not in name and (self._folder / name).is_file()
        cure = f"write ./{name}" if is_beside else "install it, or correct PATH or the command"
        raise ProgramError(f"this machine has no program {name!r}", cure=cure)

    def _run(self, stdout: IO[bytes], stderr: IO[bytes], limit_s: float) -> _Ended:
        """Run the program. However this method ends, kill the program and all processes that it has started."""
        try:
            process = subprocess.Popen(
                self._step.command,
                executable=self._executable,
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=partial(fork_server.die_with, os.getpid(), signal.SIGKILL),  # noqa: PLW1509 - one thread
            )
        except (OSError, ValueError) as error:  # a command or a variable with a zero byte is a ValueError
            why = error.strerror if isinstance(error, OSError) else error
            cure = "see whether it is made for this machine; a script needs a first line such as #!/bin/sh"
            if isinstance(error, PermissionError):
                cure = f"set TMPDIR to a folder in which programs may run; it is {tempfile.gettempdir()}"
            raise ProgramError(f"{self._step.command[0]} cannot be started: {why}", cure=cure) from error
        try:
            self._wait(process, (stdout, stderr), limit_s)
            return _Ended(process.returncode, [] if process.returncode != self._step.exit_code else _left_behind())
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            fork_server.kill_orphans()

    def _wait(self, process: subprocess.Popen[bytes], outputs: Sequence[IO[bytes]], limit_s: float) -> None:
        """Wait for the end of a program; raise ``CaseError`` if it takes too long or prints too much."""
        ends = time.monotonic() + limit_s
        running = True
        while running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(min(POLL_S, max(0.0, ends - time.monotonic())))
                running = False
            if any(os.fstat(output.fileno()).st_size > MOST_OUTPUT_BYTES for output in outputs):
                raise self._failed(
                    f"it printed more than {MOST_OUTPUT_BYTES >> 20} MiB, so it was killed", "let it print only results"
                )
            if running and time.monotonic() >= ends:
                raise TimeLimitError(
                    f"time limit: {self._step.command[0]} was still running after {limit_s:g} s, so it was killed"
                    f"{_said(*outputs)}",
                    cure="see where it hangs; a program that is merely slow needs program(limit_s=...) or --limit",
                )

    def _failed(self, how: str, cure: str) -> ProgramError:
        return ProgramError(f"{self._step.command[0]} failed: {how}", cure=cure)


def _placed(step: RunProgram, modules: Sequence[bytes], folder: Path) -> Path:
    """Write the files of a program below a folder; return the folder to run it in.

    A file may lie beside or above that folder (``../build/bench``), so that folder lies deep enough.
    """
    depth = max((Path(name).parts.count("..") for name in step.files), default=0)
    inner = folder.joinpath(*["run"] * (depth + 1))
    inner.mkdir(parents=True)
    for name, content in zip(step.files, modules, strict=True):
        path = Path(os.path.normpath(inner / name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o700)
    return inner


def _tool(name: str, path: Path) -> PythonCode | None:
    """Return a program of the machine as a package whose version is the digest of its file."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:  # a program that may be run and not read
        return None
    return PythonCode(packages=(Package(name, f"(sha256 {digest[:12]})", digest),))


def _left_behind() -> list[str]:
    """Return the names of the processes that still run ``LINGER_S`` after the program that started them."""
    ends = time.monotonic() + LINGER_S
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        running = fork_server.children()
        if not running or time.monotonic() >= ends:
            return [_name(pid) for pid in running]
        time.sleep(0.02)


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return str(pid)


def _content(output: IO[bytes]) -> bytes:
    output.seek(0)
    return output.read(MOST_OUTPUT_BYTES)


def _said(stdout: IO[bytes], stderr: IO[bytes]) -> str:
    """Return the end of what a program printed, and where: its errors, or else its output; empty if nothing."""
    for output, name in ((stderr, "standard error"), (stdout, "standard output")):
        size = output.seek(0, os.SEEK_END)
        output.seek(max(0, size - TAIL_BYTES))
        if text := output.read(TAIL_BYTES).decode(errors="replace").strip():
            return f"; it printed to {name}: {text}"
    return ""
