"""Nsight Compute's command line: how it is run, and what it means when it brings nothing home."""

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

from perfsvc.build import process
from perfsvc.build.process import Finished
from perfsvc.device import NVTX_DOMAIN, NVTX_PROFILED
from perfsvc.errors import CountersError, NoProfilerError, PerfsvcError, ProfileError, TimeLimitError
from perfsvc.model import Profile
from perfsvc.profile import apart
from perfsvc.profile.finding import find
from perfsvc.profile.metrics import SECTIONS
from perfsvc.profile.profiler import LIMIT_S

OWN = "perfsvc"
"""The set of the sections that our metrics come from: smaller reports than ``full`` makes."""
_OWN_SECTIONS = tuple(word for section in SECTIONS for word in ("--section", section))

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

SIGNS: tuple[tuple[str, type[PerfsvcError], str, str], ...] = (
    ("ERR_NVGPUCTRPERM", CountersError, "the driver lets this user read no counters (ERR_NVGPUCTRPERM)", PERMIT),
    (
        "driver resource was unavailable",
        CountersError,
        "another profiler holds the GPU's counters, or DCGM, which watches it, does",
        RELEASE,
    ),
    (
        "nsight-compute-lock",
        CountersError,
        "the lock by which several Nsight Computes take turns cannot be used",
        "delete nsight-compute-lock in the temporary folder, or set TMPDIR to a folder of your own",
    ),
    ("unrecognised option", NoProfilerError, "Nsight Compute is too old: it does not know an option", UPGRADE),
    ("unrecognized option", NoProfilerError, "Nsight Compute is too old: it does not know an option", UPGRADE),
    ("is not supported on", NoProfilerError, "Nsight Compute does not know this GPU", UPGRADE),
    ("driver is not compatible", NoProfilerError, "Nsight Compute does not fit the driver", UPGRADE),
)
"""What its errors hold, and what that means; https://docs.nvidia.com/nsight-compute/ProfilingGuide/#faq has some."""

_VERSION = re.compile(r"\bVersion (\d+(?:\.\d+)+)")
_SHOWN_LINES = 4
"""How much of what it printed is shown where nobody knows what it means."""


class NcuProfiler:
    """A ``Profiler`` that counts with Nsight Compute.

    Args:
        sections: a set of sections as ``ncu --list-sets`` names them: ``full`` has most; or ``OWN``.

    Raises:
        NoProfilerError: there is no ncu on this machine.
    """

    name, suffix = "ncu", ".ncu-rep"

    def __init__(self, sections: str = "full") -> None:
        found = find("ncu", "nsight-compute")
        if found is None:
            raise NoProfilerError(
                "ncu was not found on PATH, beside nvcc, in /usr/local/cuda*/bin or in /opt/nvidia/nsight-compute",
                cure=INSTALL,
            )
        self.path = found
        self._sections = sections

    @cached_property
    def version(self) -> str:
        """As ``2025.3.1.0``; empty where it does not say."""
        found = _VERSION.search(self._started([str(self.path), "--version"], None, LIMIT_S).output)
        return found[1] if found else ""

    def command(self, program: Sequence[str], report: Path, log: Path) -> list[str]:
        """The command line.

        Each launch is run again for each pass, with the caches emptied before it; clocks are left as they are, as
        they are when it is timed.
        """
        return [
            str(self.path),
            *("--target-processes", "application-only"),
            "--null-stdin",
            *("--nvtx", "--nvtx-include", f"{NVTX_DOMAIN}@{NVTX_PROFILED}/"),
            *("--launch-count", "1"),
            *("--replay-cache state", "kernel"),
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
        """Has ncu run a program and write a report; success is exit code 0 and that the report is there."""
        log = report.with_suffix(".log")
        for old in (log, report):
            old.unlink(missing_ok=True)
        finished = self._started(self.command(program, report, log), environment, limit_s)
        said = (log.read_text(encoding="utf-8", errors="replace") if log.exists() else "") + finished.output
        if failure := _failure(finished, said, limit_s):
            raise failure
        if not report.is_file():
            raise ProfileError(
                f"Nsight Compute saw no launch in the range {NVTX_PROFILED} of {NVTX_DOMAIN}, and wrote no report",
                cure="see that the package nvtx can be used (NVTX_DISABLE is not set) and that the case launches",
            )

    def read(self, report: Path, kernel: str) -> Profile:
        """What a report holds of a kernel."""
        return apart.read(report, kernel=kernel)

    def _started(self, command: Sequence[str], environment: Mapping[str, str] | None, limit_s: float) -> Finished:
        try:  # where we are: the program may have to import us from there
            return process.run(command, folder=Path.cwd(), limit_s=limit_s, environment=environment)
        except OSError as error:
            raise NoProfilerError(f"{self.path} cannot be run: {error.strerror}", cure=INSTALL) from error


def _failure(finished: Finished, said: str, limit_s: float) -> PerfsvcError | None:
    """Why it brought nothing home, as far as that shows before the report is looked at."""
    if finished.timed_out:
        return TimeLimitError(
            f"time limit: Nsight Compute was still running after {limit_s:g} s, so it was killed with the case",
            cure="profile a smaller point or a smaller set: --set basic; another ncu may keep it waiting",
        )
    errors = [line for line in said.splitlines() if "==ERROR==" in line or "option" in line]
    for sign, kind, what, cure in SIGNS:
        if lines := [line for line in errors if sign in line]:
            detail = "" if kind is CountersError else f": {lines[0].replace('==ERROR==', '').strip()}"
            return kind(what + detail, cure=cure)
    if finished.code:
        last = " ".join(line.strip() for line in said.strip().splitlines()[-_SHOWN_LINES:])
        return ProfileError(
            f"Nsight Compute ended with {finished.code}: {last or 'it said nothing'}",
            cure="run the case without it (perfsvc confirm), and ncu on a program of its own",
        )
    return None
