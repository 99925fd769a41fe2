"""Explain why one launch takes longer than another, from two profiles: ``perfsvc explain``.

A side is a report of Nsight Compute, or a case of a run. Stored profiles of cases are used; missing ones are made.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perfsvc.device.find import find
from perfsvc.files import write_output
from perfsvc.model import DeviceInfo, Explanation, Profile, ProfileResult, Rates
from perfsvc.profile.explain import explain
from perfsvc.profile.picture import picture
from perfsvc.profile.reports import read_isolated
from perfsvc.profile.source_changes import Sources
from perfsvc.report.pages.render import explanation_page
from perfsvc.report.plots import figure, roofline
from perfsvc.service.prepare.targets import compile_helper_kernels
from perfsvc.service.profile.case_profiler import (
    CaseProfiler,
    ProfilerSettings,
    ProfilingTask,
    Subject,
    explain_results,
    profile_of,
    sources_of,
    stored_profiles,
    subject_of,
)
from perfsvc.service.progress import Progress
from perfsvc.service.revisions import resolve
from perfsvc.store import Store

PAGE = ".html"
REPORT = ".ncu-rep"
"""The suffix of a report. A side that neither ends with it nor names a file is a case; or a run, if the request
names a case."""


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """The options of ``perfsvc explain``.

    Attributes:
        before: the first side: a file with a profiler's report; else a run if ``case`` is given; else a case.
        after: the second side, in the same forms.
        case: the id of the case of both sides; None if the sides name cases themselves.
        run: the run of the cases, if the sides name cases.
        kernel: the kernel that both reports must have launched; None for any.
        folder: where git revisions are looked up.
        devices: where a missing profile may be made.
    """

    before: str
    after: str
    database: str
    folder: Path
    case: str | None = None
    run: str = "latest"
    kernel: str | None = None
    devices: tuple[str, ...] = ("auto",)


@dataclass(frozen=True, slots=True)
class RunCase:
    """A run's number, and the id of a case of this run."""

    case: str
    run: int


@dataclass(frozen=True, slots=True)
class ExplainedProfiles:
    """Two profiles, and why the second takes more or less time than the first.

    Attributes:
        sources: the source files of both binaries by name, as far as they are known.
        peaks: the measured peaks of the device of the second profile, as far as they are known.
    """

    before: Profile
    after: Profile
    explanation: Explanation
    sources: tuple[Sources, Sources] = ({}, {})
    peaks: Rates = field(default_factory=dict)


def explain_two(request: ExplainRequest, progress: Progress) -> ExplainedProfiles:
    """Return the profiles of two launches, and why the second takes more or less time than the first.

    Raises:
        ReportError: a report is missing, damaged, not of one launch, of another kernel, or without a duration.
        MissingPackageError: the package that reads reports is missing.
        NotMeasuredError: a run has no binary of a case that any device here can run.
        PerfsvcError: a side has no profile, and none can be made.
    """
    before, after = (_report(text) for text in (request.before, request.after))
    if before and after:
        return _explained(read_isolated(before, kernel=request.kernel), read_isolated(after, kernel=request.kernel))
    with Store.open(request.database, create=False) as store:
        if before or after:
            return _with_a_report(store, request, before, after, progress)
        sides = _run_case(store, request, request.before), _run_case(store, request, request.after)
        first, last = _stored_pair(store, *sides) or _made_pair(store, request, sides, progress)
        sources = sources_of(store, first, last)
        explanation, peaks = explain_results(store, first, last), store.devices.rates(last.run, last.device)
        return ExplainedProfiles(profile_of(first), profile_of(last), explanation, sources, peaks)


def require_drawable(destination: Path) -> None:
    """Raise an error if this file cannot be written, before any work is done.

    Raises:
        UsageError: the file's suffix is not that of a picture or page.
        MissingPackageError: the file is a picture, and Matplotlib is not installed.
    """
    if destination.suffix.lower() != PAGE:
        figure.require_suffix(destination, "why.html, or roofline.svg")
        figure.require_matplotlib()


def draw(explained: ExplainedProfiles, destination: Path) -> None:
    """Write a page about both launches, or draw their roofline.

    Args:
        explained: the two profiles.
        destination: an HTML file for the page, or an SVG, PNG or PDF file for the roofline; it is replaced.

    Raises:
        ReportError: the roofline is asked for, and the reports do not contain the device's peaks.
        UsageError: the file cannot be written.
        InfrastructureError: the disk is full.
        MissingPackageError: the roofline is asked for, and Matplotlib is not installed.
    """
    before, after = explained.before, explained.after
    if destination.suffix.lower() == PAGE:
        drawn = picture(before, after, explained.explanation, explained.sources, explained.peaks)
        write_output(destination, explanation_page(drawn))
    else:
        roofline.write(roofline.roofline(before, after, explained.peaks), after.device, destination)


def _explained(before: Profile, after: Profile) -> ExplainedProfiles:
    return ExplainedProfiles(before, after, explain(before, after))


def _with_a_report(
    store: Store, request: ExplainRequest, before: Path | None, after: Path | None, progress: Progress
) -> ExplainedProfiles:
    """Compare a profiler's report with a case of a run; exactly one of ``before`` and ``after`` is a report file."""
    side = _run_case(store, request, request.after if before else request.before)
    stored = next(stored_profiles(store, side.case, side.run), None)
    profile = profile_of(stored or _Maker(store, request, progress).new_profiles(side)[0])
    if before:
        return _explained(read_isolated(before, kernel=request.kernel), profile)
    return _explained(profile, read_isolated(after or Path(), kernel=request.kernel))


def _report(text: str) -> Path | None:
    return Path(text) if text.endswith(REPORT) or Path(text).is_file() else None


def _run_case(store: Store, request: ExplainRequest, text: str) -> RunCase:
    case, run = (text, request.run) if request.case is None else (request.case, text)
    return RunCase(case, resolve(run, store, request.folder).id)


def _stored_pair(store: Store, before: RunCase, after: RunCase) -> tuple[ProfileResult, ProfileResult] | None:
    """Return the newest stored profile of each side, such that the two can be compared; None if no two can be."""
    earlier, same_case = list(stored_profiles(store, before.case, before.run)), before.case == after.case
    for new in stored_profiles(store, after.case, after.run):
        for old in earlier:
            if _comparable(old, new, same_case=same_case):
                return old, new
    return None


def _comparable(old: ProfileResult, new: ProfileResult, *, same_case: bool) -> bool:
    """Return whether two profiles have the same GPU model, profiler and sections.

    With ``same_case``, the launch and the kernel must be the same too.
    """

    def key(result: ProfileResult) -> tuple[object, ...]:
        version, kernel = (result.profile.ncu_version, result.profile.kernel) if result.profile else ("", "")
        launch = (result.launch, kernel) if same_case else ()
        return (result.device_model, result.sections, version, *launch)

    return key(old) == key(new)


def _made_pair(
    store: Store, request: ExplainRequest, sides: tuple[RunCase, RunCase], progress: Progress
) -> tuple[ProfileResult, ProfileResult]:
    """Return profiles of both sides on one device: stored profiles if they can be compared, else new ones.

    If both sides are the same case, both profiles are of the same launch, if possible.
    """
    maker = _Maker(store, request, progress)
    before, after = sides
    same_case = before.case == after.case
    first, last = maker.stored_profile(before), maker.stored_profile(after)
    if before == after:
        first = last = last or maker.new_profiles(after)[0]
    elif first is None and last is None:
        last, first = maker.new_profiles(after, before, same_case=same_case)
    else:
        if last is None or first:  # if both sides have stored profiles, the caller found that these cannot be compared
            last = maker.new_profiles(after, like=first if same_case else None)[0]
        if first is None or not _comparable(first, last, same_case=same_case):
            first = maker.new_profiles(before, like=last if same_case else None)[0]
    return first, last


class _Maker:
    """Profiles both sides on one device: the first requested device that can run the side asked for first."""

    def __init__(self, store: Store, request: ExplainRequest, progress: Progress) -> None:
        self._store = store
        self._progress = progress
        self._devices: Mapping[str, DeviceInfo] = {device.uuid: device for device in find(request.devices)}
        self._profiler: CaseProfiler | None = None

    def stored_profile(self, side: RunCase) -> ProfileResult | None:
        """Return the newest stored profile of a side that was made on the device."""
        subject, profiler = self._ready(side)
        return profiler.stored_profile(subject)

    def new_profiles(
        self, side: RunCase, other: RunCase | None = None, *, same_case: bool = False, like: ProfileResult | None = None
    ) -> list[ProfileResult]:
        """Profile a side, and in the same session perhaps the other side.

        Args:
            side: the side: the launch that ``like`` profiled if the side has this launch, else the longest launch.
            other: the other side.
            same_case: whether the launch of the other side is the launch of this side, if the other side has it.
            like: an earlier profile of the case.
        """
        subject, profiler = self._ready(side)
        tasks = [ProfilingTask(subject, like)]
        if other:
            tasks.append(ProfilingTask(self._ready(other)[0], tasks[0] if same_case else None))
        self._progress.begin("profiling", len(tasks))
        return profiler.profile(*tasks)

    def _ready(self, side: RunCase) -> tuple[Subject, CaseProfiler]:
        """Return what to profile for a side, and the profiler; the first call chooses the device of both sides."""
        subject = subject_of(self._store, side.case, side.run, self._devices)
        if self._profiler is None:
            self._devices = {subject.device.uuid: subject.device}
            helper_kernels = compile_helper_kernels([subject.device], self._progress)
            settings = ProfilerSettings(self._devices, helper_kernels, report=self._progress.report)
            self._profiler = CaseProfiler(self._store, settings)
        return subject, self._profiler
