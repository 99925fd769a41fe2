"""The cases that a night measured, and the cases that it misses."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path

from perfsvc import suite, units
from perfsvc.errors import PerfsvcError
from perfsvc.model import (
    Absence,
    Case,
    Expected,
    ExpectedKind,
    RunState,
    scope_options,
)
from perfsvc.selection import Selection
from perfsvc.store import CasesInRun, NightRow, Store


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is present and what is missing, for hosts, GPUs or cases.

    Attributes:
        text: what is present, in words; empty if nothing was looked for.
        renamed: cases that have a new name now.
        note: what earlier nights had and this night does not look for, in words; empty if there is nothing.
    """

    seen: Sequence[Expected] = ()
    missing: Sequence[Absence] = ()
    text: str = ""
    renamed: Sequence[Expected] = ()
    note: str = ""


def last_seen(row: Expected) -> str:
    """Return when something was last there."""
    return f"last seen in night {row.night}, {row.seen:%Y-%m-%d %H:%M} UTC"


OVER_BUDGET_NIGHTS = 14
"""The nights after which a case that is over budget is missing: a budget leaves out some cases every night."""


def compare_cases(
    store: Store,
    expected: Sequence[Expected],
    night: NightRow,
    suite_folder: Path,
    now: datetime,
    *,
    lost: AbstractSet[str],
    name_suite: bool,
) -> Inventory:
    """Compare the cases that a night's run measured with those of earlier nights of its scope (suite and selection).

    The first night of a scope expects those cases of the previous night that the new scope selects, if the suite and
    the points are the same. The note of the result names the other cases of the previous night: they are no longer
    expected.

    A case is not reported as missing if one of these sentences is true:

    - The GPUs that measured the case are lost, and all other GPUs skip it. Then only the lost GPUs are reported.
    - The case was over budget for fewer than ``OVER_BUDGET_NIGHTS`` nights.
    - A person has excluded all runs that measured the case, or the case has another name now.
    """
    if night.run is None:
        return Inventory()
    run = store.runs.get(night.run)
    if run.state is not RunState.FINISHED or run.provenance.dirty:
        return Inventory()
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
    return Inventory([*back, *kept, *seen], absences, units.count(len(found.measured), "case"), renamed, note)


def _carried(others: Sequence[Expected], scope: str) -> tuple[list[Expected], str]:
    """Return the cases of other scopes (selections) that the first night of a scope expects, and a note about the rest.

    The rest are the cases that the last night of another scope had and this scope does not select. perfsvc no longer
    expects them.
    """
    newest = max(others, key=lambda row: row.night, default=None)
    if newest is None:
        return [], ""
    before = [row for row in others if row.scope == newest.scope]
    (suite_then, *options_then), (suite_now, *options) = scope_options(newest.scope), scope_options(scope)
    selected: set[Case] = set()
    if suite_then == suite_now and _points(options_then) == _points(options):
        selected = Selection(_values(options, "--select="), _values(options, "--exclude=")).filter(
            case_of(row.name) for row in before
        )
    carried = [replace(row, scope=scope) for row in before if case_of(row.name) in selected]
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

    Cases that are already reported by one finding stay one group.
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
    groups = [(subject_of(rows, expected, references), rows) for rows in known.values()] + list(new.items())
    problems = _problems(suite_folder) if missing else {}
    return [
        Absence(
            subject, "; ".join(filter(None, case_evidence(rows, found, problems, name_suite=name_suite))), tuple(rows)
        )
        for subject, rows in groups
    ]


def subject_of(rows: Sequence[Expected], expected: Collection[str], references: Collection[str]) -> str:
    """Return all that one finding reports, in words."""
    gone = {row.name for row in rows}
    return units.some(list(dict.fromkeys(_subject(row.name, gone, expected, references) for row in rows)))


def _subject(name: str, gone: Collection[str], expected: Collection[str], references: Collection[str]) -> str:
    """Return the name of the largest group that contains a missing case and whose cases are all missing."""
    case = case_of(name)
    variant = f"{case.benchmark}/{case.variant}"
    of_benchmark = [other for other in map(case_of, expected) if other.benchmark == case.benchmark]
    groups = {
        f"benchmark {case.benchmark}": of_benchmark,
        f"{'reference' if variant in references else 'variant'} {variant}": [
            other for other in of_benchmark if other.variant == case.variant
        ],
        f"point {case.point_text} of {case.benchmark}": [other for other in of_benchmark if other.point == case.point],
    }
    return next((text for text, cases in groups.items() if all(other.id in gone for other in cases)), f"case {name}")


def case_of(name: str) -> Case:
    """Parse the id of a case, such as ``scan/warp[n=1024]``; the values of the axes stay text."""
    benchmark, _, rest = name.partition("/")
    variant, _, point = rest.partition("[")
    axes = [axis.partition("=") for axis in point.removesuffix("]").split(",")] if point else []
    return Case(benchmark, variant, tuple((axis, value) for axis, _, value in axes))


def case_evidence(
    rows: Sequence[Expected], found: CasesInRun | None, problems: Mapping[str, str], *, name_suite: bool
) -> Iterator[str]:
    """Yield how many cases are missing, since when, and why if the reason is known."""
    oldest, newest = min(rows, key=lambda row: row.night), max(rows, key=lambda row: row.night)
    since = f"the first of them in night {oldest.night}" if oldest.night != newest.night else ""
    suite = f" of suite {newest.suite}" if name_suite else ""
    yield f"{units.count(len(rows), 'case')}{suite}, {', '.join(filter(None, [last_seen(newest), since]))}"
    if found is None:
        return
    names = [row.name for row in rows]
    if reason := next((found.skipped[name] for name in names if name in found.skipped), ""):
        yield f"skipped: {reason}"
    elif any(name in found.over_budget for name in names):
        yield "over budget ever since"
    else:
        absent = f"the suite no longer has {'them' if len(rows) > 1 else 'it'}"
        yield problems.get(case_of(names[0]).benchmark, absent)


def _problems(folder: Path) -> dict[str, str]:
    """Return the first problem of each benchmark file that cannot be used, by the name of its folder."""
    try:
        problems = suite.discover(folder).problems
    except PerfsvcError:
        return {}
    return {Path(problem.path).parent.name: f"{problem.where}: {problem.what}" for problem in reversed(problems)}
