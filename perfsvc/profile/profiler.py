"""The interface of profilers, and whether the driver lets this process read counters."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from perfsvc.errors import PerfsvcError
from perfsvc.model import Profile

LIMIT_S = 120.0
"""Seconds that the profile of one launch may take. The full set of sections takes some seconds (H100)."""
OWN = "perfsvc"
"""The set of the sections that perfsvc's metrics come from: it takes less time than ``full``."""

DRIVER_PARAMETERS, PROCESS_STATUS = Path("/proc/driver/nvidia/params"), Path("/proc/self/status")
CAPABILITIES = (1 << 21) | (1 << 38)
"""Either capability allows reading the counters: CAP_SYS_ADMIN, and CAP_PERFMON from driver 565 on."""


class Profiler(Protocol):
    """Runs a program that puts launches into the NVTX range of ``perfsvc.device``, and profiles these launches.

    Inside this range, each launch has a range of its own, whose name is the key to the launch's profile.
    """

    @property
    def name(self) -> str:
        """The command name of the tool."""
        ...

    @property
    def version(self) -> str:
        """The version of the tool."""
        ...

    @property
    def suffix(self) -> str:
        """The suffix of the tool's report files."""
        ...

    def run(
        self, program: Sequence[str], report: Path, *, environment: Mapping[str, str], limit_s: float = LIMIT_S
    ) -> None:
        """Run a program and write a report of the launches.

        Args:
            program: the full path of an executable (not a script), and its arguments.
            report: the file to write; its name ends with ``suffix``. After an error, it may exist and have the launches
                before the error.
            environment: the program's environment variables.
            limit_s: seconds after which the tool is killed, and the program with it.

        Raises:
            ProfileError: the tool saw no launch, or the program or the tool failed.
            CountersError: the tool may not read the GPU's counters.
            NoProfilerError: the tool is too old for the GPU or its driver.
            TimeLimitError: the tool exceeded its time limit.
        """
        ...

    def read(self, report: Path, kernels: Mapping[str, str]) -> Mapping[str, Profile | PerfsvcError]:
        """Return the profile of the launch in each range, or why the report has no such profile.

        Args:
            report: a report of this tool.
            kernels: for the name of each range, the kernel that was launched in it.

        Raises:
            ProfileError: the report cannot be read; also ``ReportError``.
            MissingPackageError: the package that reads reports is missing.
        """
        ...


def counters_readable() -> bool | None:
    """Return whether the driver lets this process read the GPU's counters; None if that is unknown.

    Source: https://developer.nvidia.com/ERR_NVGPUCTRPERM.
    """
    restricted = _find_number(DRIVER_PARAMETERS, r"^RmProfilingAdminOnly:\s*(\d+)", 10)
    capabilities = _find_number(PROCESS_STATUS, r"^CapEff:\s*([0-9a-fA-F]+)", 16)
    if restricted is None:
        return None
    if not restricted:
        return True
    return None if capabilities is None else bool(capabilities & CAPABILITIES)


def _find_number(path: Path, pattern: str, base: int) -> int | None:
    """Return the number that a pattern finds in a file; None if the file or the number is missing."""
    try:
        match = re.search(pattern, path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return int(match[1], base) if match else None
