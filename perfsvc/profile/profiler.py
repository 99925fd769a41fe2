"""What a profiler is to the rest of perfsvc, and which one looks at a device."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from perfsvc.errors import NoProfilerError
from perfsvc.model import DeviceInfo, Profile

LIMIT_S = 120.0
"""Seconds that a profile may take. A full set of a short kernel takes 7 (H100), most of them to start."""


class Profiler(Protocol):
    """Runs a program that puts one launch into the range of ``perfsvc.device``, and looks at that launch."""

    @property
    def name(self) -> str:
        """Of the tool behind it, as it is typed."""
        ...

    @property
    def version(self) -> str:
        """Of the tool behind it."""
        ...

    @property
    def suffix(self) -> str:
        """How its reports' names end."""
        ...

    def run(
        self, program: Sequence[str], report: Path, *, environment: Mapping[str, str], limit_s: float = LIMIT_S
    ) -> None:
        """Runs a program and writes a report of the launch.

        Args:
            program: the full path of an executable, no script, and its arguments.
            report: the file to write; its name ends with ``suffix``.
            environment: the program's environment variables.
            limit_s: seconds after which the tool is killed, and the program with it.

        Raises:
            ProfileError: it saw no launch, or the program or the tool failed.
            CountersError: the GPU's counters are kept from it.
            NoProfilerError: it is too old for the GPU or its driver.
            TimeLimitError: it ran past its time limit.
        """
        ...

    def read(self, report: Path, kernel: str) -> Profile:
        """What a report holds; raises ``ProfileError`` where that is not one launch of the kernel."""
        ...


def profiler_for(device: DeviceInfo, sections: str) -> Profiler:
    """The profiler that looks at a device.

    Args:
        device: which.
        sections: the set of sections to count, as ``NcuProfiler`` takes it.

    Raises:
        NoProfilerError: there is none on this machine, or none for this kind of device.
        MissingPackageError: there is nothing to read its reports with.
    """
    if device.kind == "cuda":
        from perfsvc.profile.ncu import NcuProfiler
        from perfsvc.profile.reading import require_ncu_report

        profiler = NcuProfiler(sections)
        require_ncu_report()  # before it counts for nothing
        return profiler
    if device.kind == "fake":
        from perfsvc.profile.fake import FakeProfiler

        return FakeProfiler.of(device)
    raise NoProfilerError(
        f"Nsight Compute looks at NVIDIA's GPUs, and {device.model} is none", cure="profile a run on a GPU"
    )
