"""The command lines of Nsight Compute and Nsight Systems, where they are found, and what their errors mean."""

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from perfsvc.build.nvcc import find_nvcc
from perfsvc.device import NVTX_DOMAIN, NVTX_PROFILED
from perfsvc.errors import CountersError, NoProfilerError, PerfsvcError, ProfileError, TimeLimitError
from perfsvc.model import Profile
from perfsvc.process import programs
from perfsvc.process.programs import Finished
from perfsvc.profile import reports
from perfsvc.profile.metrics import SECTIONS
from perfsvc.profile.profiler import LIMIT_S, OWN

_OWN_SECTIONS = tuple(word for section in SECTIONS for word in ("--section", section))

TOOLKITS, PACKAGES = Path("/usr/local"), Path("/opt/nvidia")
"""Where CUDA toolkits and the packages of the Nsight tools are installed."""

TIMELINE_SUFFIX = ".nsys-rep"
"""The suffix of Nsight Systems' reports."""

INSTALL = "install Nsight Compute (it comes with the CUDA toolkit) and put ncu on PATH"
UPGRADE = (
    "install the Nsight Compute that belongs to the driver's CUDA version, or a newer one, and put its ncu on PATH"
)
PERMIT = (
    "run perfsvc as root; or let every user read the counters: write 'options nvidia "
    "NVreg_RestrictProfilingToAdminUsers=0' to /etc/modprobe.d/nvidia-profiling.conf and load the driver anew; "
    "in a container, start it with --cap-add=SYS_ADMIN"
)
RELEASE = "end the other profiler, or pause DCGM: dcgmi profile --pause, and --resume afterwards"

NCU_ERRORS: tuple[tuple[str, type[PerfsvcError], str, str], ...] = (
    ("ERR_NVGPUCTRPERM", CountersError, "the driver lets this user read no counters (ERR_NVGPUCTRPERM)", PERMIT),
    (
        "driver resource was unavailable",
        CountersError,
        "another profiler, or DCGM, which monitors the GPU, holds the GPU's counters",
        RELEASE,
    ),
    (
        "nsight-compute-lock",
        CountersError,
        "the lock file that all processes of Nsight Compute share cannot be used",
        "delete nsight-compute-lock in the temporary folder, or set TMPDIR to a folder of your own",
    ),
    ("unrecognised option", NoProfilerError, "Nsight Compute is too old: it does not know an option", UPGRADE),
    ("unrecognized option", NoProfilerError, "Nsight Compute is too old: it does not know an option", UPGRADE),
    ("is not supported on", NoProfilerError, "Nsight Compute does not know this GPU", UPGRADE),
    ("driver is not compatible", NoProfilerError, "Nsight Compute does not fit the driver", UPGRADE),
)
"""For each text that identifies an error of ncu: perfsvc's error class, its message and its cure.

Some of the texts are from https://docs.nvidia.com/nsight-compute/ProfilingGuide/#faq.
"""

_VERSION = re.compile(r"\bVersion (\d+(?:\.\d+)+)")
_DIGITS = re.compile(r"\d+")
_SHOWN_LINES = 4
"""How many of the last lines of ncu's output are shown for an unknown error."""


class NcuProfiler:
    """A ``Profiler`` that uses Nsight Compute.

    Args:
        sections: ``OWN``, or a set of sections as ``ncu --list-sets`` names them (``full`` has most).

    Raises:
        NoProfilerError: there is no ncu on this machine.
    """

    name, suffix = "ncu", ".ncu-rep"

    def __init__(self, sections: str = OWN) -> None:
        path = find_program("ncu", "nsight-compute")
        if path is None:
            raise NoProfilerError(
                "ncu was not found on PATH, beside nvcc, in /usr/local/cuda*/bin or in /opt/nvidia/nsight-compute",
                cure=INSTALL,
            )
        self.path = path
        self._sections = sections

    @cached_property
    def version(self) -> str:
        """The version of ncu, such as ``2025.3.1.0``; empty if it prints none."""
        match = _VERSION.search(self._run([str(self.path), "--version"], None, LIMIT_S).output)
        return match[1] if match else ""

    def command(self, program: Sequence[str], report: Path, log: Path) -> list[str]:
        """Return the command line that runs a program under ncu.

        ncu repeats each launch until it has counted everything, and flushes the caches before each repetition. It does
        not lock the clocks, because they are not locked when perfsvc times the launch.
        """
        return [
            str(self.path),
            *("--target-processes", "application-only"),
            "--null-stdin",
            *("--nvtx", "--nvtx-include", f"{NVTX_DOMAIN}@{NVTX_PROFILED}/"),
            *("--replay-mode", "kernel"),
            *("--cache-control", "all"),
            *("--clock-control", "none"),
            *(_OWN_SECTIONS if self._sections == OWN else ("--set", self._sections)),
            *("--log-file", str(log)),
            *("-f", "-o", str(report)),
            *program,
        ]

    def run(
        self, program: Sequence[str], report: Path, *, environment: Mapping[str, str], limit_s: float = LIMIT_S
    ) -> None:
        """Run a program under ncu; raise an error unless ncu ends with 0 and has written the report.

        If the program crashes, ncu writes the launches before the crash into the report, and ends with an error.
        """
        log = report.with_suffix(".log")
        for old in (log, report):
            old.unlink(missing_ok=True)
        finished = self._run(self.command(program, report, log), environment, limit_s)
        text = (log.read_text(encoding="utf-8", errors="replace") if log.exists() else "") + finished.output
        if failure := _ncu_failure(finished, text, limit_s):
            raise failure
        if not report.is_file():
            raise ProfileError(
                f"Nsight Compute saw no launch in the range {NVTX_PROFILED} of {NVTX_DOMAIN}, and wrote no report",
                cure="check that NVTX_DISABLE is not set, and that the case launches a kernel",
            )

    def read(self, report: Path, kernels: Mapping[str, str]) -> Mapping[str, Profile | PerfsvcError]:
        """Return the profile of the launch in each NVTX range, or why there is none."""
        return reports.read_ranges_isolated(report, kernels)

    def _run(self, command: Sequence[str], environment: Mapping[str, str] | None, limit_s: float) -> Finished:
        """Run ncu; raise ``NoProfilerError`` if it cannot be started."""
        try:  # in the current folder: the program may have to import perfsvc from there
            return programs.run(command, folder=Path.cwd(), limit_s=limit_s, environment=environment)
        except OSError as error:
            raise NoProfilerError(f"{self.path} cannot be run: {error.strerror}", cure=INSTALL) from error


def run_nsys(program: Sequence[str], report: Path, *, environment: Mapping[str, str], limit_s: float = LIMIT_S) -> None:
    """Run a program under Nsight Systems, which writes a timeline with our NVTX ranges for people to look at.

    Nsight Systems traces CUDA and NVTX. It does not sample the CPU, because that needs further rights.

    Args:
        program: the full path of an executable, and its arguments.
        report: the file to write; its name ends with ``TIMELINE_SUFFIX``.
        environment: the program's environment variables.
        limit_s: seconds after which nsys is killed.

    Raises:
        NoProfilerError: there is no nsys on this machine.
        ProfileError: nsys failed.
        TimeLimitError: nsys exceeded its time limit.
    """
    nsys = find_program("nsys", "nsight-systems")
    if nsys is None:
        raise NoProfilerError(
            "nsys was not found on PATH, beside nvcc, in /usr/local/cuda*/bin or in /opt/nvidia/nsight-systems",
            cure="install Nsight Systems and put nsys on PATH",
        )
    command = [
        str(nsys),
        "profile",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--stats=false",
        "--force-overwrite=true",
        f"--output={report}",
        *program,
    ]
    try:
        finished = programs.run(command, folder=Path.cwd(), limit_s=limit_s, environment=environment)
    except OSError as error:
        raise NoProfilerError(f"{nsys} cannot be run: {error.strerror}", cure="install Nsight Systems anew") from error
    if finished.timed_out:
        raise TimeLimitError(
            f"time limit: Nsight Systems was still running after {limit_s:g} s, so it was killed with the case",
            cure="profile a smaller point",
        )
    if finished.code or not report.is_file():
        output = " ".join(finished.output.split())[-300:]
        raise ProfileError(f"Nsight Systems wrote no timeline: {output or 'no output'}", cure="run nsys status -e")


def find_program(name: str, package: str) -> Path | None:
    """Return the path of a profiler: on PATH, beside nvcc, in a toolkit, or in its own package.

    Args:
        name: the program's name, such as ``ncu``.
        package: the name of the program's folder in ``/opt/nvidia``, which holds a folder for each version.
    """
    return next((path for path in _candidates(name, package) if path.is_file() and os.access(path, os.X_OK)), None)


def _candidates(name: str, package: str) -> Iterator[Path]:
    """Yield the paths at which a profiler may be, the preferred path first."""
    if on_path := shutil.which(name):
        yield Path(on_path)
    if nvcc := find_nvcc():
        yield nvcc.with_name(name)
        yield nvcc.resolve().with_name(name)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if toolkit := os.environ.get(variable):
            yield Path(toolkit, "bin", name)
    yield TOOLKITS / "cuda" / "bin" / name
    yield from _newest_first(TOOLKITS.glob(f"cuda-*/bin/{name}"))
    yield from _newest_first([*PACKAGES.glob(f"{package}/*/{name}"), *PACKAGES.glob(f"{package}/*/bin/{name}")])


def _newest_first(paths: Iterable[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: [int(digits) for digits in _DIGITS.findall(str(path))], reverse=True)


def _ncu_failure(finished: Finished, text: str, limit_s: float) -> PerfsvcError | None:
    """Return the error that ncu's exit status or messages show; None if they show no error."""
    if finished.timed_out:
        return TimeLimitError(
            f"time limit: Nsight Compute was still running after {limit_s:g} s, so it was killed with the case",
            cure="end other ncu processes on this GPU, profile a smaller point, or collect less: --set basic",
        )
    errors = [line for line in text.splitlines() if "==ERROR==" in line or "option" in line]
    for sign, kind, message, cure in NCU_ERRORS:
        if lines := [line for line in errors if sign in line]:
            detail = "" if kind is CountersError else f": {lines[0].replace('==ERROR==', '').strip()}"
            return kind(message + detail, cure=cure)
    if finished.code:
        last = " ".join(line.strip() for line in text.strip().splitlines()[-_SHOWN_LINES:])
        return ProfileError(
            f"Nsight Compute ended with {finished.code}: {last or 'no output'}",
            cure="try the case without ncu (perfsvc confirm), and ncu with another program",
        )
    return None
