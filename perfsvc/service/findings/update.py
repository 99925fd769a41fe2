"""Update the findings after a run: raise, extend, reopen and resolve them."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from perfsvc import judge, units
from perfsvc.model import Cause, Confirmation, FindingUpdates, RootCause, Suspect
from perfsvc.service.findings.recovery import Recovered, recovered_series, without_recoveries
from perfsvc.service.findings.root_causes import RootCauses
from perfsvc.service.findings.suspects import RunChanges, changes_of_run, size_of_change
from perfsvc.store import Store

RAISED = frozenset({Cause.KERNEL, Cause.TOOLCHAIN, Cause.ENVIRONMENT})
"""The causes that raise a finding."""


def update_findings(store: Store, run: int, *, threshold: judge.ThresholdOption = None) -> FindingUpdates:
    """Update the findings by the stored verdicts and confirmations of a run.

    Two kinds of series get into findings, one finding for each root cause: series that moved at once on a device with
    unchanged code, whose cause is the environment, and suspects whose confirmation named the code, a new compiler or
    the environment. A finding is resolved once all of its series are back, by the rules or the default thresholds, not
    by the threshold of a command. A run with uncommitted changes is an experiment: it changes no finding.

    Everything is one transaction, and doing it again changes nothing.

    Args:
        store: the database, with the run and its verdicts.
        run: the run.
        threshold: the smallest relevant change as a fraction, or rules; None for the default of each kind of device.
    """
    if store.runs.get(run).provenance.dirty:
        return FindingUpdates()
    changes = changes_of_run(store, run, store.verdicts.of_run(run), threshold=threshold)
    recovered = recovered_series(store, run, changes.judgements, changes.alerted, threshold)
    suspects = [*_moved_together(store, run, changes, recovered), *_confirmed(store, run)]
    return store.findings.update(run, recovered, _by_root_cause(store, run, suspects))


def _moved_together(store: Store, run: int, changes: RunChanges, recovered: Collection[Recovered]) -> Iterator[Suspect]:
    """Yield the series that moved at once on a device, unless most of them only recover from a finding."""
    for group in changes.together:
        suspects = without_recoveries(store, run, group, recovered)
        if 2 * len(suspects) > len(group):
            evidence = f"{units.count(len(group), 'case')} with unchanged code moved at once"
            yield from (replace(suspect, evidence=evidence) for suspect in suspects)


def _confirmed(store: Store, run: int) -> list[Suspect]:
    """Return the suspects whose last conclusive confirmation named a cause that raises a finding."""
    conclusive = [one for one in store.confirmations.of_run(run) if one.cause is not Cause.UNCONFIRMED]
    last = {(confirmation.suspect.series, confirmation.suspect.direction): confirmation for confirmation in conclusive}
    return [_as_confirmed(confirmation) for confirmation in last.values() if confirmation.cause in RAISED]


def _as_confirmed(confirmation: Confirmation) -> Suspect:
    """Return a suspect with the result of its confirmation; with its own ratio if the environment is the cause."""
    judgement = replace(confirmation.suspect.judgement, cause=confirmation.cause)
    if confirmation.confirmed:
        judgement = replace(judgement, ratio=confirmation.ratio, low=confirmation.low, high=confirmation.high)
    return replace(confirmation.suspect, judgement=judgement, evidence=confirmation.reason)


def _by_root_cause(store: Store, run: int, suspects: Collection[Suspect]) -> list[RootCause]:
    """Group suspects by root cause, each group with the evidence of its largest change."""
    if not suspects:
        return []
    root_causes = RootCauses(store, run)
    groups: dict[tuple[Cause | None, str], list[Suspect]] = defaultdict(list)
    for suspect in sorted(suspects, key=size_of_change, reverse=True):
        groups[suspect.judgement.cause, root_causes.of(suspect)].append(suspect)
    return [RootCause(text, _evidence(group), tuple(group)) for (_, text), group in groups.items()]


def _evidence(group: Sequence[Suspect]) -> str:
    largest = group[0]
    same = all(suspect.evidence == largest.evidence for suspect in group)
    return largest.evidence if same else f"{largest.series.case.id}: {largest.evidence}"
