"""What nights are expected to have because earlier nights had it: hosts, GPUs, cases. What is missing is a finding."""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

from perfsvc import suite, units
from perfsvc.device.find import find
from perfsvc.errors import NoDeviceError, PerfsvcError, UsageError
from perfsvc.model import (
    Absence,
    Case,
    DeviceInfo,
    Expected,
    ExpectedKind,
    Finding,
    FindingState,
    RunState,
    scope_options,
)
from perfsvc.store import CasesInRun, NightRow, Store
from perfsvc.suite.selection import Selection, parse

GRACE = 1.5
"""A host is overdue this many times the expected interval after its last night began: nights do not begin sharply."""

OVER_BUDGET_NIGHTS = 14
"""The nights after which a case that is over budget is missing: a budget leaves out some cases every night."""

GPU_OR_HOST_MISSING, CASES_MISSING = 5, 4
"""The exit codes of a night that misses something."""

CPU = "cpu"

NO_GPU = "there is no GPU to use"
"""How the message of a stage begins that failed only because the GPUs of earlier nights are missing."""


@dataclass(frozen=True, slots=True)
class DevicesHere:
    """The devices that a night measures on.

    Attributes:
        devices: the devices that the settings name, without GPUs that were lost.
        specs: the specifications that name exactly these devices.
    """

    devices: tuple[DeviceInfo, ...]
    specs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Missed:
    """What a night or ``perfsvc watchdog`` found when it looked for what is expected.

    Attributes:
        here: how much of it is present, in words.
        missing: the active findings about what is missing; ignored findings are absent.
        exit_code: the exit code of a command that only looks for what is expected.
        note: what earlier nights had and this one does not look for, in words; empty if there is nothing.
    """

    here: str
    missing: tuple[Finding, ...]
    exit_code: int
    note: str = ""

    @property
    def text(self) -> str:
        """The result in a line."""
        subjects = [finding.root_cause for finding in self.missing]
        return "; ".join(filter(None, [f"missing: {', '.join(subjects)}" if subjects else self.here, self.note]))


# --- devices ---------------------------------------------------------------------------------------------------------


def devices_here(store: Store, host: str, scope: str, specs: Sequence[str]) -> DevicesHere:
    """Return the devices that a night measures on, except devices that earlier nights had and that are gone now.

    Args:
        store: the database.
        host: this machine.
        scope: the scope of the night's run.
        specs: the devices that the settings name.

    Raises:
        NoDeviceError: none of the devices is here, or ``auto`` finds only the CPU where a GPU was measured before.
        UsageError: a specification is wrong.
    """
    try:
        devices = find(specs)
    except (NoDeviceError, UsageError) as error:
        devices = list(_found_singly(specs))
        asked, here = " ".join(specs), {info.uuid for info in devices}
        lost = {
            row.name: row.text
            for row in store.expectations.of_host(host)
            if row.kind is ExpectedKind.GPU and (row.scope == scope or row.devices == asked) and row.name not in here
        }
        if not lost:
            raise
        if not devices:
            what = f"{NO_GPU}, but earlier nights of this host measured on {', '.join(lost.values())}: {error.what}"
            raise NoDeviceError(what, cure=error.cure) from error
        specs = tuple(info.spec for info in devices)
    require_gpu(store, host, specs, devices)
    return DevicesHere(tuple(devices), tuple(specs))


def require_gpu(store: Store, host: str, specs: Collection[str], devices: Iterable[DeviceInfo]) -> None:
    """Raise ``NoDeviceError`` if ``auto`` found only the CPU device on a host that has measured on a GPU before."""
    if "auto" not in specs or any(info.kind != CPU for info in devices):
        return
    if gpus := store.expectations.gpus_of(host):
        names = ", ".join(f"{uuid} ({model})" for uuid, model in gpus.items())
        raise NoDeviceError(
            f"{NO_GPU}, but earlier runs of this host measured on {names}",
            cure="see whether nvidia-smi lists it; to measure on the CPU device all the same, name it instead of auto: "
            'devices = ["cpu"], or --device cpu',
        )


def _found_singly(specs: Iterable[str]) -> Iterator[DeviceInfo]:
    """Yield each device of this machine that any specification names; specifications without a device are skipped."""
    found: dict[str, DeviceInfo] = {}
    for spec in specs:
        kind, colon, names = spec.partition(":")
        for single in [f"cuda:{name}" for name in names.split(",")] if kind == "cuda" and colon else [spec]:
            with contextlib.suppress(NoDeviceError, UsageError):
                found |= {info.uuid: info for info in find([single])}
    yield from found.values()


def _present_gpus(specs: Sequence[str]) -> dict[str, DeviceInfo]:
    """Return the GPUs here that the settings name, by UUID; if a specification is wrong, also the GPUs beyond them."""
    try:
        devices = find(specs)
    except (NoDeviceError, UsageError):
        devices = list(_found_singly(specs))
        if any(spec.startswith("cuda") for spec in specs):
            devices += _found_singly(["cuda"])
    return {info.uuid: info for info in devices if info.kind != CPU}


# --- a night ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Comparison:
    """What is present and what is missing, for hosts, GPUs or cases.

    Attributes:
        text: what is present, in words; empty if nothing was looked for.
        renamed: cases that have a new name by now.
        note: what earlier nights had and this one does not look for, in words; empty if there is nothing.
    """

    seen: Sequence[Expected] = ()
    missing: Sequence[Absence] = ()
    text: str = ""
    renamed: Sequence[Expected] = ()
    note: str = ""


def check_night(
    store: Store,
    night: NightRow,
    *,
    scope: str,
    specs: Sequence[str],
    suite_folder: Path,
    every_s: float,
    now: datetime | None = None,
) -> Missed:
    """Store what a night has, raise findings about what it misses, and resolve findings about what is back.

    Missing GPUs are reported however the run ended. Missing cases are reported only after a finished run without
    uncommitted changes, because no other run shows which cases the suite has. A second call changes nothing.

    Args:
        store: the database.
        night: the night.
        scope: the scope of its run.
        specs: the devices that its settings name.
        suite_folder: the folder of benchmarks.
        every_s: seconds after which another host's next night is due; 0 to expect none.
        now: the time; by default the current time.
    """
    now = now or datetime.now(UTC)
    everything = store.expectations.of_host(None)
    expected = [row for row in everything if row.host == night.host]
    gpus = _compare_gpus(everything, night, scope, specs, now)
    lost = {row.name for absence in gpus.missing for row in absence.expected}
    suites = {row.suite for row in everything if row.kind is ExpectedKind.CASE}
    cases = _compare_cases(store, expected, night, suite_folder, now, lost=lost, name_suite=len(suites) > 1)
    hosts = _compare_hosts(store, every_s, now, own=night)
    store.expectations.update(
        [*gpus.seen, *cases.seen, *hosts.seen],
        [*gpus.missing, *cases.missing, *hosts.missing],
        renamed=cases.renamed,
        night=night.id,
        now=now,
    )
    of_night = (night.host, scope)
    linked = [row for row in store.expectations.of_host(None) if row.finding is not None]
    concerned = [row for row in linked if row.kind is ExpectedKind.HOST or (row.host, row.scope) == of_night]
    here = ", ".join(filter(None, (gpus.text, cases.text, hosts.text)))
    return replace(_result(store, here, concerned), note=cases.note)


def check_hosts(store: Store, every_s: float, now: datetime | None = None) -> Missed:
    """Raise a finding about each host whose night is overdue, and resolve the findings about hosts that are back.

    Args:
        store: the database.
        every_s: seconds after which a host's next night is due; 0 to expect none.
        now: the time; by default the current time.
    """
    now = now or datetime.now(UTC)
    hosts = _compare_hosts(store, every_s, now)
    store.expectations.update(hosts.seen, hosts.missing, now=now)
    linked = [row for row in store.expectations.of_host(None) if row.finding is not None]
    return _result(store, f"{hosts.text}, none is overdue", [row for row in linked if row.kind is ExpectedKind.HOST])


def _result(store: Store, here: str, missing: Sequence[Expected]) -> Missed:
    """Return the active findings about missing hosts, GPUs and cases, without ignored findings, and the exit code."""
    findings = {finding.id: finding for finding in store.findings.active() if finding.state is not FindingState.IGNORED}
    reported = [row for row in missing if row.finding in findings]
    kinds = {row.kind for row in reported}
    code = CASES_MISSING if kinds == {ExpectedKind.CASE} else GPU_OR_HOST_MISSING if kinds else 0
    numbers = dict.fromkeys(row.finding for row in reported if row.finding is not None)
    return Missed(here or "nothing is expected yet", tuple(findings[number] for number in numbers), code)


def _last_seen(row: Expected) -> str:
    return f"last seen in night {row.night}, {row.seen:%Y-%m-%d %H:%M} UTC"


# --- GPUs ------------------------------------------------------------------------------------------------------------


def _compare_gpus(
    everything: Sequence[Expected], night: NightRow, scope: str, specs: Sequence[str], now: datetime
) -> _Comparison:
    """Compare the GPUs that are here with the GPUs of earlier nights that asked for the same devices.

    If no earlier night asked for these devices, the settings have changed, and the GPUs of all earlier nights count.
    If a host has a new selection of cases, the GPUs of all its nights that asked for the same devices are expected.
    GPUs that go missing together are one finding.
    """
    asked, present = " ".join(specs), _present_gpus(specs)
    here = [row for row in everything if row.host == night.host and row.kind is ExpectedKind.GPU]
    of_scope = [row for row in here if row.scope == scope]
    known = [row for row in of_scope if row.devices == asked] or of_scope
    carried = []
    if not known:
        newest: dict[str, Expected] = {}
        for row in sorted((row for row in here if row.devices == asked), key=lambda row: row.night):
            newest[row.name] = row
        known = carried = [replace(row, scope=scope) for row in newest.values() if row.name not in present]
    missing = [row for row in known if row.name not in present]
    groups: dict[int | None, list[Expected]] = defaultdict(list)
    for row in missing:
        groups[row.finding].append(row)
    seen = [
        Expected(ExpectedKind.GPU, info.uuid, night.host, night.id, now, scope, asked, info.model, night.run)
        for info in present.values()
    ]
    back = [
        replace(row, night=night.id, run=night.run, seen=now)
        for row in here
        if row.finding is not None and row.name in present
    ]
    text = units.count(len(present), "GPU") if present or known else ""
    elsewhere = [row for row in everything if row.host != night.host and row.kind is ExpectedKind.GPU]
    absences = [_gpus_gone(rows, asked, elsewhere) for rows in groups.values()]
    return _Comparison([*back, *carried, *seen], absences, text)


def _gpus_gone(rows: Sequence[Expected], asked: str, elsewhere: Iterable[Expected] = ()) -> Absence:
    """Return the absence of GPUs that went missing together; the evidence names other hosts that have them now."""
    newest = max(rows, key=lambda row: row.night)
    last = {row.text: row for row in sorted(rows, key=lambda row: row.night)}
    names = list(dict.fromkeys(row.text for row in rows))
    if len({_last_seen(row) for row in last.values()}) > 1:
        evidence = "; ".join(f"{name} {_last_seen(last[name])}" for name in names)
    elif len(names) > 1:
        evidence = f"{', '.join(names)}; {_last_seen(newest)}"
    else:
        evidence = _last_seen(newest)
    moved = {row.text: row for row in elsewhere if row.text in last and row.finding is None}
    for name, row in moved.items():
        if row.seen > last[name].seen:
            evidence += f"; host {row.host} has {name}, in night {row.night}"
    if newest.devices != asked:
        evidence += f"; the settings name {asked} now, and named {newest.devices} then"
    subject = names[0] if len(names) == 1 else f"{len(names)} GPUs"
    return Absence(f"{subject} on host {newest.host}", evidence, tuple(rows))


# --- cases -----------------------------------------------------------------------------------------------------------


def _compare_cases(
    store: Store,
    expected: Sequence[Expected],
    night: NightRow,
    suite_folder: Path,
    now: datetime,
    *,
    lost: AbstractSet[str],
    name_suite: bool,
) -> _Comparison:
    """Compare the cases that a night's run measured with the cases of earlier nights of its scope.

    The first night of a scope expects the cases of the previous night that it selects, if the suite and the points are
    the same. The note of the result names the other cases of that night: they are no longer expected.

    A case is not reported as missing in these cases:

    - The GPUs that measured it are lost, and the GPUs that are here skip it, or none is here: the lost GPU is reported.
    - It was over budget for fewer than ``OVER_BUDGET_NIGHTS`` nights.
    - Only runs measured it that a person has excluded since, or another case has taken over its name.
    """
    if night.run is None:
        return _Comparison()
    run = store.runs.get(night.run)
    if run.state is not RunState.FINISHED or run.provenance.dirty:
        return _Comparison()
    scope = run.provenance.scope
    of_host = [row for row in expected if row.kind is ExpectedKind.CASE]
    rows = {row.name: row for row in of_host if row.scope == scope}
    cases_of = cache(store.expectations.cases_of)
    found = cases_of(night.run)
    nights = store.expectations.nights_of(night.host, scope)
    is_first = not rows or nights.keys() <= {night.id}
    carried, note = _carried([row for row in of_host if row.scope != scope], scope) if is_first else ([], "")
    carried = [row for row in carried if row.name not in rows]
    rows |= {row.name: row for row in carried}
    back = [
        replace(row, night=night.id, run=night.run, seen=now)
        for row in of_host
        if row.finding is not None
        and row.name in found.measured
        and scope_options(row.scope)[0] == scope_options(scope)[0]
    ]
    seen = [
        Expected(ExpectedKind.CASE, name, night.host, night.id, now, scope, run=night.run)
        for name in found.measured
        if name in rows or name in found.correct
    ]
    last_runs = {row.run for row in rows.values() if row.run is not None}
    excluded = {exclusion.run for exclusion in store.exclusions.of_runs(last_runs) if not exclusion.case}
    devices_here = {device for devices in found.measured.values() for device in devices}
    renamed, missing = [], []
    for name, row in rows.items():
        if name in found.measured:
            continue
        last_run = row.run
        if last_run in excluded:
            last_run = max((run for run in nights.values() if row.run and run < row.run), default=None)
        before = None if last_run is None else cases_of(last_run)
        if row.run is not None and (before is None or name not in before.measured):
            renamed.append(row)
            continue
        waits = name in found.over_budget and sum(number > row.night for number in nights) < OVER_BUDGET_NIGHTS
        elsewhere = before and (
            name in found.skipped and devices_here.isdisjoint(before.measured[name])
            if devices_here
            else lost >= set(before.measured[name])
        )
        if not waits and not elsewhere:
            missing.append(row)
    left = rows.keys() - {row.name for row in renamed}
    absences = _absences(missing, left, found, cases_of, suite_folder, name_suite=name_suite)
    kept = [row for row in carried if row.name not in found.measured]
    return _Comparison([*back, *kept, *seen], absences, units.count(len(found.measured), "case"), renamed, note)


def _carried(others: Sequence[Expected], scope: str) -> tuple[list[Expected], str]:
    """Return the cases of other scopes that the first night of a scope expects, and a note about the rest.

    The rest is what the last night of another scope had and this scope does not select: perfsvc no longer expects it.
    """
    newest = max(others, key=lambda row: row.night, default=None)
    if newest is None:
        return [], ""
    before = [row for row in others if row.scope == newest.scope]
    (suite_then, *options_then), (suite_now, *options) = scope_options(newest.scope), scope_options(scope)
    selected: set[Case] = set()
    if suite_then == suite_now and _points(options_then) == _points(options):
        selected = Selection(_values(options, "--select="), _values(options, "--exclude=")).filter(
            _case(row.name) for row in before
        )
    carried = [replace(row, scope=scope) for row in before if _case(row.name) in selected]
    if not (dropped := len(before) - len(carried)):
        return carried, ""
    cases = f"{units.count(dropped, 'case')} of night {newest.night} {'is' if dropped == 1 else 'are'}"
    why = f"the night measures {scope} now, and measured {newest.scope} then"
    return carried, f"{cases} no longer looked for, because {why}"


def _points(options: Iterable[str]) -> tuple[str, ...]:
    return _values(options, "--points=")


def _values(options: Iterable[str], name: str) -> tuple[str, ...]:
    return tuple(option.removeprefix(name) for option in options if option.startswith(name))


def _absences(
    missing: Sequence[Expected],
    expected: Collection[str],
    found: CasesInRun,
    cases_of: Callable[[int], CasesInRun],
    suite_folder: Path,
    *,
    name_suite: bool,
) -> list[Absence]:
    """Return the missing cases in few groups: whole benchmarks, variants and points before single cases.

    What a finding reports already stays one group.
    """
    gone = {row.name for row in missing}
    references = {name for row in missing if row.run is not None for name in cases_of(row.run).references}
    known: dict[int, list[Expected]] = defaultdict(list)
    new: dict[str, list[Expected]] = defaultdict(list)
    for row in missing:
        if row.finding is None:
            new[_subject(row.name, gone, expected, references)].append(row)
        else:
            known[row.finding].append(row)
    groups = [(_subject_of(rows, expected, references), rows) for rows in known.values()] + list(new.items())
    problems = _problems(suite_folder) if missing else {}
    return [
        Absence(
            subject, "; ".join(filter(None, _case_evidence(rows, found, problems, name_suite=name_suite))), tuple(rows)
        )
        for subject, rows in groups
    ]


def _subject_of(rows: Sequence[Expected], expected: Collection[str], references: Collection[str]) -> str:
    """Return all that one finding reports, in words."""
    gone = {row.name for row in rows}
    return units.some(list(dict.fromkeys(_subject(row.name, gone, expected, references) for row in rows)))


def _subject(name: str, gone: Collection[str], expected: Collection[str], references: Collection[str]) -> str:
    """Return the largest group around a missing case that is missing as a whole, in words."""
    case = _case(name)
    variant = f"{case.benchmark}/{case.variant}"
    of_benchmark = [other for other in map(_case, expected) if other.benchmark == case.benchmark]
    groups = {
        f"benchmark {case.benchmark}": of_benchmark,
        f"{'reference' if variant in references else 'variant'} {variant}": [
            other for other in of_benchmark if other.variant == case.variant
        ],
        f"point {case.point_text} of {case.benchmark}": [other for other in of_benchmark if other.point == case.point],
    }
    return next((text for text, cases in groups.items() if all(other.id in gone for other in cases)), f"case {name}")


def _case(name: str) -> Case:
    """Return the case with an id; the values of its axes are text."""
    benchmark, _, rest = name.partition("/")
    variant, _, point = rest.partition("[")
    axes = [axis.partition("=") for axis in point.removesuffix("]").split(",")] if point else []
    return Case(benchmark, variant, tuple((axis, value) for axis, _, value in axes))


def _case_evidence(
    rows: Sequence[Expected], found: CasesInRun | None, problems: Mapping[str, str], *, name_suite: bool
) -> Iterator[str]:
    """Yield how many cases are missing, since when, and why if the reason is known."""
    oldest, newest = min(rows, key=lambda row: row.night), max(rows, key=lambda row: row.night)
    since = f"the first of them in night {oldest.night}" if oldest.night != newest.night else ""
    suite = f" of suite {newest.suite}" if name_suite else ""
    yield f"{units.count(len(rows), 'case')}{suite}, {', '.join(filter(None, [_last_seen(newest), since]))}"
    if found is None:
        return
    names = [row.name for row in rows]
    if reason := next((found.skipped[name] for name in names if name in found.skipped), ""):
        yield f"skipped: {reason}"
    elif any(name in found.over_budget for name in names):
        yield "over budget ever since"
    else:
        absent = f"the suite no longer has {'them' if len(rows) > 1 else 'it'}"
        yield problems.get(_case(names[0]).benchmark, absent)


def _problems(folder: Path) -> dict[str, str]:
    """Return the first problem of each benchmark file that cannot be used, by the name of its folder."""
    try:
        problems = suite.discover(folder).problems
    except PerfsvcError:
        return {}
    return {Path(problem.path).parent.name: f"{problem.where}: {problem.what}" for problem in reversed(problems)}


# --- hosts -----------------------------------------------------------------------------------------------------------


def _compare_hosts(store: Store, every_s: float, now: datetime, own: NightRow | None = None) -> _Comparison:
    """Find the hosts whose next night is overdue by the time that their last night began; ``own`` is under way."""
    last = store.expectations.last_nights()
    seen = [Expected(ExpectedKind.HOST, own.host, own.host, own.id, own.started)] if own else []
    absences = []
    others = [
        row
        for row in store.expectations.of_host(None)
        if row.kind is ExpectedKind.HOST and not (own and row.name == own.host)
    ]
    for row in others:
        night, started = last.get(row.name, (row.night, row.seen))
        newest = replace(row, night=night, seen=started) if started > row.seen else row
        if every_s and now - newest.seen > timedelta(seconds=GRACE * every_s):
            due = f"a night is due every {units.duration_text(every_s)}"
            absences.append(Absence(f"host {row.name}", f"{_last_seen(newest)}; {due}", (row,)))
        elif every_s and (newest is not row or row.finding is not None):
            seen.append(newest)
    return _Comparison(seen, absences, units.count(len(others) + bool(own), "host"))


# --- forgetting ------------------------------------------------------------------------------------------------------


def forget(
    store: Store, names: Sequence[str], *, by: str, reason: str, finding: int | None = None
) -> tuple[list[Expected], list[int]]:
    """Stop expecting hosts, GPUs or cases; return what is no longer expected, and the findings that this accepts.

    Args:
        store: the database.
        names: names of hosts (which stand for all that is expected of them), beginnings of GPU UUIDs, globs of cases.
        by: the person.
        reason: why.
        finding: forget all that this finding reports as missing, too; None for no finding.

    Raises:
        UsageError: a name or the finding matches nothing that is expected, or the beginning of a UUID matches several
            GPUs.
    """
    expected = store.expectations.of_host(None)
    forgotten = {row.key: row for name in names for row in _named(expected, name)}
    if finding is not None:
        reported = [row for row in expected if row.finding == finding]
        if not reported:
            what = f"finding {finding} reports nothing that is expected and missing"
            raise UsageError(what, cure=f"perfsvc findings show {finding}; list what is missing: perfsvc expect")
        hosts = {row.name for row in reported if row.kind is ExpectedKind.HOST}
        forgotten |= {row.key: row for row in expected if row.finding == finding or row.host in hosts}
    left = [row for row in expected if row.finding is not None and row.key not in forgotten]
    concerned = {row.finding for row in forgotten.values()}
    absences = [
        _left(
            [row for row in left if row.finding == number], {row.name for row in expected if row.key not in forgotten}
        )
        for number in dict.fromkeys(row.finding for row in left)
        if number in concerned
    ]
    return list(forgotten.values()), store.expectations.forget(forgotten.values(), by=by, reason=reason, left=absences)


def _left(rows: Sequence[Expected], expected: Collection[str]) -> Absence:
    """Return the absence of ``rows``, which a finding still reports after a person forgot the other rows."""
    if rows[0].kind is not ExpectedKind.CASE:
        return _gpus_gone(rows, rows[0].devices)
    evidence = "; ".join(_case_evidence(rows, None, {}, name_suite=False))
    return Absence(_subject_of(rows, expected, ()), evidence, tuple(rows))


def _named(expected: Sequence[Expected], name: str) -> list[Expected]:
    """Return what a name stands for: a host with all that is expected of it, a GPU, or cases that match a glob.

    Raises ``UsageError`` if it stands for nothing or for several GPUs.
    """
    of_host = [row for row in expected if row.host == name]
    of_gpu = [row for row in expected if row.kind is ExpectedKind.GPU and row.name.lower().startswith(name.lower())]
    of_gpu = [row for row in of_gpu if row.name == name] or of_gpu
    if not name.strip() or not (rows := of_host or of_gpu or [row for row in expected if _is_case(row, name)]):
        raise UsageError(f"nothing that is expected is named {name!r}", cure="list the names: perfsvc expect")
    gpus = list(dict.fromkeys(row.name for row in of_gpu))
    if not of_host and len(gpus) > 1:
        raise UsageError(f"{len(gpus)} GPUs begin with {name!r}: {units.some(gpus)}", cure="write more of the UUID")
    return rows


def _is_case(row: Expected, name: str) -> bool:
    """Return whether a row is a case with this id, or one that matches this glob."""
    if row.kind is not ExpectedKind.CASE:
        return False
    with contextlib.suppress(UsageError):
        return row.name == name or parse(name).matches(_case(row.name))
    return False
