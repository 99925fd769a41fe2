"""Look for what is expected: in each night, and by ``perfsvc watchdog`` for hosts alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from perfsvc import units
from perfsvc.model import (
    Absence,
    Expected,
    ExpectedKind,
    Finding,
    FindingState,
)
from perfsvc.service.expect.cases import compare_cases
from perfsvc.service.expect.gpus import compare_gpus
from perfsvc.service.expect.inventory import Inventory, last_seen
from perfsvc.store import NightRow, Store

GRACE = 1.5
"""A host is overdue this many times the expected interval after its last night began: nights do not begin sharply."""

GPU_OR_HOST_MISSING, CASES_MISSING = 5, 4
"""The exit codes of a night that misses something."""


@dataclass(frozen=True, slots=True)
class Missed:
    """What a night or ``perfsvc watchdog`` found when it looked for what is expected.

    Attributes:
        here: words that say how many of the expected things are present.
        missing: the active findings about what is missing; ignored findings are absent.
        exit_code: the exit code of a command that only looks for what is expected.
        note: what earlier nights had and this night does not look for, in words; empty if there is nothing.
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
    """Store the GPUs and cases of a night, raise findings about missing ones, and resolve findings about returned ones.

    Missing GPUs are reported however the run ended. Missing cases are reported only after a finished run without
    uncommitted changes, because no other run shows which cases the suite has. A second call changes nothing.

    Args:
        store: the database.
        night: the night.
        scope: the scope of the night's run.
        specs: the devices that the night's settings name.
        suite_folder: the folder of benchmarks.
        every_s: seconds after which another host's next night is due; 0 to expect none.
        now: the time; by default the current time.
    """
    now = now or datetime.now(UTC)
    everything = store.expectations.of_host(None)
    expected = [row for row in everything if row.host == night.host]
    gpus = compare_gpus(everything, night, scope, specs, now)
    lost = {row.name for absence in gpus.missing for row in absence.expected}
    suites = {row.suite for row in everything if row.kind is ExpectedKind.CASE}
    cases = compare_cases(store, expected, night, suite_folder, now, lost=lost, name_suite=len(suites) > 1)
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


def _compare_hosts(store: Store, every_s: float, now: datetime, own: NightRow | None = None) -> Inventory:
    """Return the hosts whose next night is overdue as missing, and the hosts that had a new night as seen.

    The host of ``own``, a night that is under way, counts as seen.
    """
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
            absences.append(Absence(f"host {row.name}", f"{last_seen(newest)}; {due}", (row,)))
        elif every_s and (newest is not row or row.finding is not None):
            seen.append(newest)
    return Inventory(seen, absences, units.count(len(others) + bool(own), "host"))
