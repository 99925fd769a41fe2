"""A case that a person names, under a profiler: counted and stored, or as a timeline in a file."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from perfsvc.device.find import find
from perfsvc.errors import NoProfilerError, UsageError
from perfsvc.measure.protocol import profiling_folder
from perfsvc.model import ProfileResult
from perfsvc.profile import nsys
from perfsvc.service.profiling.profile import SECTIONS, Profiling, Subject, Under, run_shot, subject_of
from perfsvc.service.progress import Progress, Silent
from perfsvc.service.revisions import resolve
from perfsvc.service.running.targets import compile_helper_kernels
from perfsvc.store import Store

_NO_NAME = re.compile(r"[^\w.=-]+")


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """The options of ``perfsvc profile``.

    Attributes:
        case: its id.
        run: whose binary, as ``perfsvc.service.revisions`` understands it.
        folder: where git revisions are looked up.
        devices: where it may be launched: where the run measured it, if that is among them.
        tool: ``ncu`` counts, ``nsys`` draws a timeline.
        sections: the set of sections that ncu counts.
        output: the file that gets the tool's own report; None for none of ncu's, and for a name made of the case of
            nsys's.
    """

    database: str
    case: str
    run: str
    folder: Path
    devices: tuple[str, ...] = ("auto",)
    tool: Literal["ncu", "nsys"] = "ncu"
    sections: str = SECTIONS
    output: Path | None = None


def profile_case(request: ProfileRequest, progress: Progress | None = None) -> ProfileResult | Path:
    """Profiles a case as it ran in a run; returns what was counted, or the file of the timeline.

    Raises:
        UsageError: ``output`` cannot be written.
        NotMeasuredError: the run has no binary of it that any of the devices runs.
        PerfsvcError: there is no profile for another reason.
    """
    if request.output:
        _require_writable(request.output)
    progress = progress or Silent()
    with Store.open(request.database, create=False) as store:
        run = resolve(request.run, store, request.folder).id
        devices = {device.uuid: device for device in find(request.devices)}
        subject = subject_of(store, request.case, run, devices)
        under = Under(devices, compile_helper_kernels([subject.device], progress), request.sections, say=progress.say)
        progress.begin("profiling", 1)
        profiling = Profiling(store, under)
        if request.tool == "nsys":
            return _timeline(profiling, subject, request.output)
        found = profiling.profile(subject)
        if request.output and found.id is not None:
            _write(request.output, store.profile_report(found.id))
        return found


def _timeline(profiling: Profiling, subject: Subject, output: Path | None) -> Path:
    """Has Nsight Systems write a timeline of a case; returns its file."""
    if subject.device.kind != "cuda":
        raise NoProfilerError(
            f"Nsight Systems looks at NVIDIA's GPUs, and {subject.device.model} is none", cure="profile a run on a GPU"
        )
    output = output or Path(_NO_NAME.sub("-", subject.case.id).strip("-") + nsys.SUFFIX)
    with profiling.shot(subject) as folder:
        report = folder / f"report{nsys.SUFFIX}"
        run_shot(
            folder,
            lambda: nsys.run(profiling_folder.command(folder), report, environment=profiling_folder.environment()),
        )
        _write(output, report.read_bytes())
    return output


def _require_writable(output: Path) -> None:
    """Raises ``UsageError`` where no file of that name can be, before minutes are spent on what is to be in it."""
    if not os.path.isdir(output.parent):  # noqa: PTH112 - of a name that is too long Path's raises
        raise _unwritable(output, f"there is no folder {output.parent}")


def _write(output: Path, report: bytes) -> None:
    try:
        output.write_bytes(report)
    except OSError as error:
        raise _unwritable(output, error.strerror or str(error)) from error


def _unwritable(output: Path, why: str) -> UsageError:
    return UsageError(f"{output} cannot be written: {why}", cure="name a file in a folder that is there")
