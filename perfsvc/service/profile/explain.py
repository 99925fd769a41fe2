"""Explain why one launch takes longer than another, from two profiles: perfsvc explain."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from perfsvc.device.find import find
from perfsvc.errors import UsageError
from perfsvc.model import DeviceInfo, Explanation, Profile, ProfileResult
from perfsvc.profile.apart import read
from perfsvc.profile.explain import explain
from perfsvc.report.plots import roofline, variants
from perfsvc.report.tables.profiles import explanation_page
from perfsvc.service.profile.profile import ProfileSettings, Profiling, Subject, counted, subject_of
from perfsvc.service.progress import Progress, Silent
from perfsvc.service.revisions import resolve
from perfsvc.service.run.prepare import compile_helper_kernels
from perfsvc.store import Store

PAGE = ".html"


@dataclass(frozen=True, slots=True)
class ExplainedProfiles:
    """Two profiles, and why the second takes longer than the first, or less long."""

    before: Profile
    after: Profile
    explanation: Explanation


def explain_reports(before: Path, after: Path, *, kernel: str | None = None) -> ExplainedProfiles:
    """Reads two reports and compares them.

    Args:
        before: the baseline's ``.ncu-rep`` file.
        after: the candidate's.
        kernel: whose launch both have to be; any where None.

    Raises:
        ReportError: one of them is not there, is damaged, is no report of one launch, or of another kernel.
        MissingPackageError: what reads reports is not installed.
    """
    return explain_profiles(read(before, kernel=kernel), read(after, kernel=kernel))


def explain_profiles(before: Profile, after: Profile) -> ExplainedProfiles:
    """Compares two profiles; raises ``ReportError`` where one does not say how long it took."""
    return ExplainedProfiles(before, after, explain(before, after))


def require_drawable(destination: Path) -> None:
    """Says early what keeps a roofline from being drawn.

    Raises:
        UsageError: the name does not say what to write.
        MissingPackageError: Matplotlib is not installed.
    """
    if destination.suffix.lower() != PAGE:
        variants.require_ending(destination, "roofline.svg")
    variants.require_matplotlib()


def draw(found: ExplainedProfiles, destination: Path) -> None:
    """Draws the roofline of both launches: a picture, or a page that explains them as well.

    Args:
        found: what ``explain_reports`` returned.
        destination: an SVG, PNG, PDF or HTML file, by its ending, which is replaced.

    Raises:
        ReportError: the reports do not say what the device could do.
        UsageError: the file cannot be written.
        MissingPackageError: Matplotlib is not installed.
    """
    lines, title = roofline.roofline(found.before, found.after), found.after.device
    if destination.suffix.lower() != PAGE:
        roofline.write(lines, title, destination)
        return
    page = explanation_page(found.before, found.after, found.explanation, roofline.svg(lines, title))
    try:
        destination.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{destination} cannot be written: {error.strerror or error}",
            cure="name a file in a folder that exists and may be written",
        ) from error


REPORT = ".ncu-rep"
"""How the name of a report ends. What is neither called so nor a file is a case, or a run of one."""


@dataclass(frozen=True, slots=True)
class ExplainRequest:
    """The options of ``perfsvc explain``.

    Attributes:
        before: a report; or a run, where ``case`` is named; or else a case.
        after: likewise.
        case: the id of the case that both sides are of; None where they name cases themselves.
        run: the run that cases are of.
        kernel: whose launch both reports have to be; any where None.
        folder: where git revisions are looked up.
        devices: where what was not profiled yet may be.
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
class Side:
    """A case of a run by its number."""

    case: str
    run: int


def explain_two(request: ExplainRequest, progress: Progress | None = None) -> ExplainedProfiles:
    """Compares two sides; of cases, stored profiles are taken, and what is missing is profiled.

    Raises:
        ReportError: a report cannot be used.
        NotMeasuredError: a run has no binary of a case that any device here runs.
        PerfsvcError: a side has no profile and none can be made.
    """
    before, after = (_report(text) for text in (request.before, request.after))
    if before and after:
        return explain_reports(before, after, kernel=request.kernel)
    with Store.open(request.database, create=False) as store:
        if before or after:
            return _with_a_report(store, request, before, after, progress or Silent())
        sides = _side(store, request, request.before), _side(store, request, request.after)
        return explain_profiles(
            *(_stored_pair(store, *sides) or _made_pair(store, request, sides, progress or Silent()))
        )


def _with_a_report(
    store: Store, request: ExplainRequest, before: Path | None, after: Path | None, progress: Progress
) -> ExplainedProfiles:
    """Compares a report with a case, whichever comes first."""
    side = _side(store, request, request.after if before else request.before)
    known = next(_stored(store, side), None)
    seen = counted(known or _Maker(store, request, progress).made(side))
    if before:
        return explain_profiles(read(before, kernel=request.kernel), seen)
    return explain_profiles(seen, read(after or Path(), kernel=request.kernel))


def _report(text: str) -> Path | None:
    return Path(text) if text.endswith(REPORT) or Path(text).is_file() else None


def _side(store: Store, request: ExplainRequest, text: str) -> Side:
    case, run = (text, request.run) if request.case is None else (request.case, text)
    return Side(case, resolve(run, store, request.folder).id)


def _stored(store: Store, side: Side) -> Iterator[ProfileResult]:
    """The stored profiles of a side's binaries, on whatever device, newest first."""
    binaries = {one.binary for (_, case, _), one in store.built(side.run).items() if case.id == side.case}
    found = [one for binary in binaries if binary is not None for one in store.profiles_of(binary)]
    yield from sorted(found, key=lambda one: one.id or 0, reverse=True)


def _stored_pair(store: Store, before: Side, after: Side) -> tuple[Profile, Profile] | None:
    """The newest stored profiles of both sides that can be compared."""
    earlier, one_case = list(_stored(store, before)), before.case == after.case
    for new in _stored(store, after):
        for old in earlier:
            if old.profile and new.profile and _comparable(old, new, one_case=one_case):
                return old.profile, new.profile
    return None


def _comparable(one: ProfileResult, other: ProfileResult, *, one_case: bool) -> bool:
    """Whether two profiles are of one model, profiler and set; of one case also of the same launch."""
    return _how(one) == _how(other) and (not one_case or _launched(one) == _launched(other))


def _how(profiled: ProfileResult) -> tuple[str, str, str]:
    return profiled.device_model, profiled.sections, profiled.profile.ncu_version if profiled.profile else ""


def _launched(profiled: ProfileResult) -> tuple[int | None, str]:
    return profiled.launch, profiled.profile.kernel if profiled.profile else ""


def _made_pair(
    store: Store, request: ExplainRequest, sides: tuple[Side, Side], progress: Progress
) -> tuple[Profile, Profile]:
    """Both sides on one device: what is stored of it there, and new profiles of what is missing.

    Of one case the same launch is looked at on both sides, where both have it. Two stored ones are made anew, for they
    cannot be compared.
    """
    maker = _Maker(store, request, progress)
    before, after = sides
    one_case = before.case == after.case
    first, last = maker.known(before), maker.known(after)
    if last is None or first:
        last = maker.made(after, first if one_case else None)
    if first is None or not _comparable(first, last, one_case=one_case):
        first = maker.made(before, last if one_case else None)
    return counted(first), counted(last)


class _Maker:
    """Profiles sides on one of the devices that the request names: the one that can run the first of them."""

    def __init__(self, store: Store, request: ExplainRequest, progress: Progress) -> None:
        self._store = store
        self._progress = progress
        self._devices: Mapping[str, DeviceInfo] = {device.uuid: device for device in find(request.devices)}
        self._profiling: Profiling | None = None

    def known(self, side: Side) -> ProfileResult | None:
        """The newest stored profile of a side that was made on the device."""
        subject, profiling = self._ready(side)
        return profiling.known(subject)

    def made(self, side: Side, like: ProfileResult | None = None) -> ProfileResult:
        """A new profile of a side, of the same launch as another one where it has that."""
        subject, profiling = self._ready(side)
        self._progress.begin("profiling", 1)
        return profiling.profile(subject, like)

    def _ready(self, side: Side) -> tuple[Subject, Profiling]:
        subject = subject_of(self._store, side.case, side.run, self._devices)
        if self._profiling is None:
            self._devices = {subject.device.uuid: subject.device}
            helper_kernels = compile_helper_kernels([subject.device], self._progress)
            self._profiling = Profiling(
                self._store, ProfileSettings(self._devices, helper_kernels, say=self._progress.say)
            )
        return subject, self._profiling
