"""The profiler for a device."""

from perfsvc.errors import NoProfilerError
from perfsvc.model import DeviceInfo
from perfsvc.profile.commands import NcuProfiler
from perfsvc.profile.fake import FakeProfiler
from perfsvc.profile.profiler import Profiler
from perfsvc.profile.reports import require_ncu_report


def profiler_for(device: DeviceInfo, sections: str) -> Profiler:
    """Return the profiler for a device.

    Args:
        device: the device to profile on.
        sections: the set of sections to count: a set of ``ncu --list-sets``, or ``perfsvc`` for what perfsvc reads.

    Raises:
        NoProfilerError: there is no profiler on this machine, or none for this kind of device.
        MissingPackageError: the package that reads the profiler's reports is missing.
    """
    if device.kind == "cuda":
        profiler = NcuProfiler(sections)
        require_ncu_report()  # checked before profiling, because the report could not be read without it
        return profiler
    if device.kind == "fake":
        return FakeProfiler.of(device)
    raise NoProfilerError(
        f"Nsight Compute profiles NVIDIA GPUs, and {device.model} is not one", cure="profile a run on a GPU"
    )
