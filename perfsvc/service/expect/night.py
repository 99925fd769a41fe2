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
from perfsvc.service.expect.cases import Inventory, compare_cases, last_seen
from perfsvc.service.expect.gpus import compare_gpus
from perfsvc.store import NightRow, Store

GRACE = 1.5
"""A host is overdue this many times the expected interval after its last night began: nights do not begin sharply."""

SKEW = timedelta(hours=6)
"""How far clocks may differ: a wrong time zone or a late synchronisation of a few hours hides no overdue night."""

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
    former = ""
    if inherited := _of_former_name(store, everything, night, scope):
        former = f"this host has the devices of host {inherited[0].host}, and is expected to have its cases"
        store.expectations.update([replace(row, host=night.host, finding=None) for row in inherited], (), now=now)
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
    return replace(_result(store, here, concerned), note="; ".join(filter(None, (former, cases.note))))


def _of_former_name(store: Store, everything: Sequence[Expected], night: NightRow, scope: str) -> list[Expected]:
    """Return the GPUs and cases of another host if a night has most of that host's devices: the host was renamed.

    Only a host of which no cases of the scope are expected can be another one's successor.
    """
    others = [row for row in everything if row.scope == scope and row.kind is ExpectedKind.CASE and row.run is not None]
    if night.run is None or any(row.host == night.host for row in others):
        return []
    newest: dict[str, Expected] = {}
    for row in sorted(others, key=lambda row: row.night, reverse=True):
        newest.setdefault(row.host, row)
    here = _devices(store, night.run)
    for host, last in newest.items():
        devices = _devices(store, last.run or 0)
        if 2 * len(devices & here) > len(devices):
            return [row for row in everything if row.host == host and row.scope == scope]
    return []


def _devices(store: Store, run: int) -> set[str]:
    """Return the UUIDs of the devices that a run measured on."""
    return {uuid for devices in store.expectations.cases_of(run).measured.values() for uuid in devices}


def check_hosts(store: Store, every_s: float) -> Missed:
    """Raise a finding about each host whose night is overdue or in the future; resolve those of hosts that are back.

    Args:
        store: the database.
        every_s: seconds after which a host's next night is due; 0 to expect none.
    """
    now = datetime.now(UTC)
    hosts = _compare_hosts(store, every_s, now)
    store.expectations.update(hosts.seen, hosts.missing, now=now)
    linked = [row for row in store.expectations.of_host(None) if row.finding is not None]
    return _result(store, f"{hosts.text}, none is overdue", [row for row in linked if row.kind is ExpectedKind.HOST])


def clock_problem(store: Store, night: NightRow) -> str:
    """Return in words that a night began before the previous night of its host; empty if it did not."""
    previous = store.nights.previous(night)
    if previous is None or previous.started - night.started <= SKEW:
        return ""
    then = f"night {previous.id} of this host began at {previous.started:%Y-%m-%d %H:%M} UTC"
    return f"{then}, which is after this night: the clock is wrong now, or was wrong then"


def _result(store: Store, here: str, missing: Sequence[Expected]) -> Missed:
    """Return the active findings about missing hosts, GPUs and cases, without ignored findings, and the exit code."""
    findings = {finding.id: finding for finding in store.findings.active() if finding.state is not FindingState.IGNORED}
    reported = [row for row in missing if row.finding in findings]
    kinds = {row.kind for row in reported}
    code = CASES_MISSING if kinds == {ExpectedKind.CASE} else GPU_OR_HOST_MISSING if kinds else 0
    numbers = dict.fromkeys(row.finding for row in reported if row.finding is not None)
    return Missed(here or "nothing is expected yet", tuple(findings[number] for number in numbers), code)


def _compare_hosts(store: Store, every_s: float, now: datetime, own: NightRow | None = None) -> Inventory:
    """Return as missing the hosts whose next night is overdue, or whose last one lies in the future.

    The hosts that had a new night are seen. The host of ``own``, a night that is under way, counts as seen.
    """
    last, everything = store.expectations.last_nights(), store.expectations.of_host(None)
    seen = [Expected(ExpectedKind.HOST, own.host, own.host, own.id, own.started)] if own else []
    absences = []
    others = [row for row in everything if row.kind is ExpectedKind.HOST and not (own and row.name == own.host)]
    for row in others:
        night, started = last.get(row.name, (row.night, row.seen))
        newest = replace(row, night=night, seen=started)
        if every_s and newest.seen - now > SKEW:
            future = f"night {night} began at {started:%Y-%m-%d %H:%M} UTC, which is in the future"
            absences.append(Absence(f"host {row.name}", f"{future}: its clock was wrong, or the clock here is", (row,)))
        elif every_s and now - newest.seen > timedelta(seconds=GRACE * every_s):
            due = f"a night is due every {units.duration_text(every_s)}"
            gpus = {gpu.name for gpu in everything if gpu.host == row.name and gpu.kind is ExpectedKind.GPU}
            heirs = {gpu.host for gpu in everything if gpu.name in gpus and gpu.seen > newest.seen} - {row.name}
            now_at = f"; its GPUs are on host {', '.join(sorted(heirs))} now" if heirs else ""
            absences.append(Absence(f"host {row.name}", f"{last_seen(newest)}; {due}{now_at}", (row,)))
        elif every_s and (newest != row or row.finding is not None):
            seen.append(newest)
    return Inventory(seen, absences, units.count(len(others) + bool(own), "host"))
