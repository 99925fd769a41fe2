"""Profile a case of an earlier run from the database alone: ``perfsvc profile``."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from perfsvc.device.find import find
from perfsvc.errors import NoProfilerError, NotMeasuredError, UsageError
from perfsvc.files import reporting, write, write_output
from perfsvc.measure.protocol import profiling_folder
from perfsvc.model import ProfileResult
from perfsvc.profile.commands import TIMELINE_SUFFIX, run_nsys
from perfsvc.profile.profiler import OWN
from perfsvc.service.prepare.targets import compile_helper_kernels
from perfsvc.service.profile.case_profiler import (
    CaseProfiler,
    ProfilerSettings,
    ProfilingTask,
    Subject,
    stored_profiles,
    subject_of,
)
from perfsvc.service.progress import Progress
from perfsvc.service.revisions import resolve
from perfsvc.store import Store
from perfsvc.temporary import temporary_folder

_NOT_IN_FILE_NAMES = re.compile(r"[^\w.=-]+")


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """The options of ``perfsvc profile``.

    Attributes:
        case: the id of the case.
        run: the run whose binary is profiled: its number, its label, a git revision or the like.
        folder: where git revisions are looked up.
        devices: where the case may be launched; the device on which the run measured the case comes first.
        tool: ``ncu`` reads counters, ``nsys`` records a timeline.
        sections: the set of sections that ncu counts.
        output: the file for the tool's own report. None writes no file for ncu, and a file named after the case for
            nsys.
        stored: launch nothing, and return the newest stored profile.
    """

    database: str
    case: str
    run: str
    folder: Path
    devices: tuple[str, ...] = ("auto",)
    tool: Literal["ncu", "nsys"] = "ncu"
    sections: str = OWN
    output: Path | None = None
    stored: bool = False


def profile_case(request: ProfileRequest, progress: Progress) -> ProfileResult | Path:
    """Profile a case as it ran in a run; return the profile with counters, or the file with the timeline.

    Raises:
        UsageError: ``output`` cannot be written.
        NotMeasuredError: the run has no binary of the case that any of the devices can run, or no stored profile.
        PerfsvcError: profiling failed for another reason.
    """
    if request.output:
        _require_writable(request.output)
    with Store.open(request.database, create=False) as store:
        run = resolve(request.run, store, request.folder).id
        if request.stored:
            return _with_report(store, _newest(store, request.case, run), request.output)
        devices = {device.uuid: device for device in find(request.devices)}
        subject = subject_of(store, request.case, run, devices)
        helper_kernels = compile_helper_kernels([subject.device], progress)
        settings = ProfilerSettings(devices, helper_kernels, request.sections, report=progress.report)
        progress.begin("profiling", 1)
        profiler = CaseProfiler(store, settings)
        if request.tool == "nsys":
            return _timeline(profiler, subject, request.output)
        (result,) = profiler.profile(ProfilingTask(subject))
        return _with_report(store, result, request.output)


def _newest(store: Store, case: str, run: int) -> ProfileResult:
    """Return the newest stored profile of a case of a run; raise ``NotMeasuredError`` if there is none."""
    if result := next(stored_profiles(store, case, run), None):
        return result
    raise NotMeasuredError(
        f"no profile of {case} is stored for run {run}", cure=f"profile it: perfsvc profile '{case}' --run {run}"
    )


def _with_report(store: Store, result: ProfileResult, output: Path | None) -> ProfileResult:
    """Write the report of a stored profile to a file, if there is a file; return the profile."""
    if output and result.id is not None:
        write_output(output, store.profiles.report(result.id))
    return result


def _timeline(profiler: CaseProfiler, subject: Subject, output: Path | None) -> Path:
    """Record a timeline of a case with Nsight Systems; return its file."""
    if subject.device.kind != "cuda":
        raise NoProfilerError(
            f"Nsight Systems profiles NVIDIA GPUs, and {subject.device.model} is not one", cure="profile a run on a GPU"
        )
    named_after_case = Path(_NOT_IN_FILE_NAMES.sub("-", subject.case.id).strip("-") + TIMELINE_SUFFIX)
    with temporary_folder() as folder:
        report, launches = folder / f"report{TIMELINE_SUFFIX}", folder / "launches"
        launches.mkdir()
        command, environment = profiling_folder.command(launches), profiling_folder.environment()
        profiler.run_once(subject, launches, lambda: run_nsys(command, report, environment=environment))
        if output:
            write_output(output, report.read_bytes())
        else:  # the user did not choose this name, so a link of this name is replaced, not followed
            with reporting(named_after_case):
                write(named_after_case, report.read_bytes())
    return output or named_after_case


def _require_writable(output: Path) -> None:
    """Raise ``UsageError`` early, before minutes of profiling, if the folder of the output file does not exist."""
    if not os.path.isdir(output.parent):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        raise UsageError(
            f"{output} cannot be written: there is no folder {output.parent}",
            cure="name a file in a folder that exists",
        )
