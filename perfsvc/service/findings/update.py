"""Update the findings after a run: raise, extend, reopen and resolve them. Each root cause has one finding."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from statistics import median

from perfsvc import judge, units
from perfsvc.errors import InfrastructureError
from perfsvc.model import (
    OF_THE_MACHINE,
    Cause,
    ChangeKind,
    Confirmation,
    Direction,
    FindingUpdates,
    Judgement,
    RootCause,
    Series,
    Status,
    Suspect,
    Verdict,
    evidence_of,
)
from perfsvc.service.findings.alerts import is_nearer
from perfsvc.service.findings.root_causes import CODE, RootCauses
from perfsvc.service.findings.steps import Steps, agreed, is_large, lasting, of_unchanged_code, steps_of_run
from perfsvc.service.findings.suspects import (
    TO_CONFIRM,
    Recovered,
    RunChanges,
    changes_of_run,
    recovered_series,
    size_of_change,
    without_recoveries,
)
from perfsvc.service.siblings import update_slow_gpus
from perfsvc.store import Store
from perfsvc.store.findings import FindingsChangedError

RAISED = frozenset({Cause.KERNEL, Cause.LAUNCH, Cause.INPUTS, Cause.TOOLCHAIN, Cause.ENVIRONMENT})
"""The causes that raise a finding at once; an unconfirmed change raises one in the second night that shows it."""


MOST_TRIES = 10
"""How often findings are computed at most while other hosts change them."""

TIME_LIMIT = "time limit: "
"""How the reason of a measurement begins that was stopped at its time limit."""


def update_findings(store: Store, run: int, *, threshold: judge.ThresholdOption = None) -> FindingUpdates:
    """Update the findings by the stored verdicts and confirmations of a run.

    docs/explanation/findings.md has the rules. These get into findings, one finding for each root cause: cases without
    a correct result, confirmed suspects, and slower series that two runs show.

    A series of a finding that moved again gets a further step, by the same rules. A finding is resolved once all of its
    series have recovered; the rules of the settings or the default thresholds decide this, not the threshold of a
    command. A run with uncommitted changes is an experiment: it changes no finding.

    A GPU of the run that is slower than the other GPUs of its model with the same binaries gets a finding of its own.

    All changes about series are one transaction. A second call with the same run changes nothing.

    Args:
        store: the database, with the run and its verdicts.
        run: the run.
        threshold: the smallest relevant change as a fraction, or rules; None for the default of each kind of device.
    """
    if store.runs.get(run).provenance.dirty:
        return FindingUpdates()
    for _ in range(MOST_TRIES):
        event = store.findings.newest_event()
        with suppress(FindingsChangedError):  # they are computed again
            return _both(_updated(store, run, threshold, event), update_slow_gpus(store, run))
    raise InfrastructureError(
        f"other hosts changed the findings each time that those of run {run} were computed ({MOST_TRIES} times)",
        cure="wait for the nights of the other hosts, then type perfsvc nightly --resume",
    )


def _both(first: FindingUpdates, second: FindingUpdates) -> FindingUpdates:
    """Return what two updates changed together."""
    kinds = (field.name for field in fields(FindingUpdates))
    return FindingUpdates(**{kind: tuple(sorted({*getattr(first, kind), *getattr(second, kind)})) for kind in kinds})


def _updated(store: Store, run: int, threshold: judge.ThresholdOption, event: int) -> FindingUpdates:
    """Update the findings by a run; ``event`` is the newest event of findings so far.

    Raises:
        FindingsChangedError: another host has changed findings meanwhile. It may have raised the finding to which the
            suspects of this run belong.
    """
    changes = changes_of_run(store, run, store.verdicts.of_run(run), threshold=threshold)
    steps = steps_of_run(store, run, threshold=threshold)
    recovered = recovered_series(store, run, changes, threshold)
    answers = Answers(store.confirmations.of_run(run))
    alerts = [
        suspect
        for suspect in answers.unconfirmed(changes.to_confirm)
        if suspect.since is not None and not steps.shows(suspect)
    ]
    of_first_steps = [alert for alert in alerts if alert.change is not ChangeKind.AGAIN]
    of_further_steps = [alert for alert in alerts if alert.change is ChangeKind.AGAIN]
    together = {suspect.series for group in changes.together for suspect in group}
    agreeing = [
        suspect
        for suspect in lasting(store, run, threshold=threshold)
        if suspect.series not in together and suspect.series not in changes.alerted
    ]
    confirmed = answers.confirmed(again=False)
    suspects = [
        *_moved_together(store, run, changes, recovered, {suspect.series for suspect in confirmed}),
        *_broken(store, run),
        *confirmed,
        *without_recoveries(store, run, answers.lasting([*of_first_steps, *agreeing]), recovered),
    ]
    whole = _explained_by_code(confirmed, steps)
    step_together = {step.series for step in steps.together} | whole
    again = [step for step in steps.moved if step.series not in step_together]
    further = [
        *(step for step in steps.together if step.series not in whole),
        *(step for step in answers.confirmed(again=True) if step.series not in whole),
        *answers.lasting([*agreed(store, run, answers.unconfirmed(again), threshold=threshold), *of_further_steps]),
    ]
    taken_back = {series for _, series, step in recovered if step > 1}
    current = {series: judged for series, judged in steps.current.items() if series not in taken_back}
    return store.findings.update(
        run,
        recovered,
        _by_root_cause(store, run, [_against_its_step(suspect, current) for suspect in suspects]),
        steps=_by_root_cause(store, run, further),
        moved_again=(steps.moved_again | {alert.series for alert in of_further_steps}) - whole,
        rebased=steps.rebased,
        since=event,
    )


def _explained_by_code(confirmed: Iterable[Suspect], steps: Steps) -> set[Series]:
    """Return the series of slow machines that moved again, but of which the code explains the whole change.

    The code then took the place of what had slowed the machine: A/B pairs measure the code alone, and they show the
    change since the baseline rather than the change since the last step.
    """
    of_machine = {step.series: step.judgement for step in steps.moved if step.series in steps.of_machine}

    def is_whole(judged: Judgement) -> bool:
        again = of_machine.get(judged.series)
        if (
            again is None
            or again.baseline_run == judged.baseline_run
            or not judged.baseline_s
            or not judged.candidate_s
        ):
            return False
        return is_nearer(judged.ratio, judged.candidate_s / judged.baseline_s, again.ratio)

    return {suspect.series for suspect in confirmed if suspect.judgement.cause in CODE and is_whole(suspect.judgement)}


def _moved_together(
    store: Store, run: int, changes: RunChanges, recovered: Collection[Recovered], confirmed: Collection[Series]
) -> Iterator[Suspect]:
    """Yield the series that moved at once on a device, unless most of these series only recover from a finding.

    The ``confirmed`` series, which moved for a reason that A/B pairs showed, are left out.
    """
    for group in changes.together:
        suspects = without_recoveries(store, run, group, recovered)
        if 2 * len(suspects) > len(group):
            # That many cases moved is the evidence; the finding counts them.
            yield from (replace(suspect, evidence="") for suspect in suspects if suspect.series not in confirmed)


def _broken(store: Store, run: int) -> Iterator[Suspect]:
    """Yield the cases that have no correct result in a run."""
    broken = {
        judgement.series: judgement for judgement in store.verdicts.of_run(run) if judgement.verdict is Verdict.BROKEN
    }
    for series, level in store.series.levels_of(dict.fromkeys(broken, run)).items() if broken else ():
        failure = Cause.HUNG if TIME_LIMIT in level.reason else Cause.FAILED
        cause = Cause.WRONG if level.status is Status.WRONG else failure
        judgement = replace(broken[series], cause=cause)
        yield Suspect(judgement, ChangeKind.FAILURE, Direction.BROKEN, judgement.reason)


class Answers:
    """One confirmation for each suspect of a run: the last conclusive one, else the last one.

    A series that moved again is two suspects: one against its baseline, one against the level that its last step left.
    """

    def __init__(self, confirmations: Iterable[Confirmation]) -> None:
        self._last: dict[tuple[Series, Direction, bool], Confirmation] = {}
        for confirmation in confirmations:
            key = self._key(confirmation.suspect)
            last = self._last.get(key)
            # An unconfirmed cause does not replace a cause that is known.
            if last is None or last.cause is Cause.UNCONFIRMED or confirmation.cause is not Cause.UNCONFIRMED:
                self._last[key] = confirmation

    @staticmethod
    def _key(suspect: Suspect) -> tuple[Series, Direction, bool]:
        return suspect.series, suspect.direction, suspect.change is ChangeKind.AGAIN

    def confirmed(self, *, again: bool) -> list[Suspect]:
        """Return the suspects whose confirmation named a cause that raises a finding.

        ``again`` selects the suspects that moved again; without it, the other suspects are returned.
        """
        return [
            _as_confirmed(confirmation)
            for confirmation in self._last.values()
            if confirmation.cause in RAISED and (confirmation.suspect.change is ChangeKind.AGAIN) is again
        ]

    def unconfirmed(self, suspects: Iterable[Suspect]) -> list[Suspect]:
        """Return the slower suspects that have no confirmation, or only an inconclusive one."""

        def has_no_cause(suspect: Suspect) -> bool:
            confirmation = self._last.get(self._key(suspect))
            return confirmation is None or confirmation.cause is Cause.UNCONFIRMED

        return [suspect for suspect in suspects if suspect.direction is Direction.SLOWER and has_no_cause(suspect)]

    def lasting(self, suspects: Iterable[Suspect]) -> list[Suspect]:
        """Return the suspects that two runs show and that this run's pairs have not explained, each with its cause.

        Pairs that clear a suspect are no end of it if it is large. Then it is unexplained.
        """
        result = []
        for suspect in suspects:
            answer = self._last.get(self._key(suspect))
            if answer and answer.suspect.judgement.baseline_run != suspect.judgement.baseline_run:
                answer = None  # it is about another change, on top of this one
            if answer and answer.cleared and is_large(suspect.judgement):
                judgement = replace(suspect.judgement, cause=Cause.UNEXPLAINED)
                result.append(replace(suspect, judgement=judgement, evidence=f"{suspect.evidence}; {answer.reason}"))
            elif answer and answer.cause is not Cause.UNCONFIRMED:
                continue
            elif suspect.judgement.cause in TO_CONFIRM:
                why = answer.reason if answer else "it was not measured again"
                result.append(replace(suspect, evidence=f"{suspect.evidence}, unconfirmed: {why}"))
            else:
                result.append(of_unchanged_code(suspect))
        return result


def _as_confirmed(confirmation: Confirmation) -> Suspect:
    """Return a suspect with its confirmation's cause and evidence, and with the confirmed ratio if there is one."""
    judgement = replace(confirmation.suspect.judgement, cause=confirmation.cause)
    if confirmation.confirmed:
        judgement = replace(judgement, ratio=confirmation.ratio, low=confirmation.low, high=confirmation.high)
    return replace(confirmation.suspect, judgement=judgement, evidence=confirmation.reason)


def _against_its_step(suspect: Suspect, current: Mapping[Series, Judgement]) -> Suspect:
    """Return a suspect, compared with the level before its series' last step if the series has several steps.

    ``current`` has the judgements of such series against this level.
    """
    judged = current.get(suspect.series)
    if judged is None or suspect.direction is not Direction.SLOWER:
        return suspect
    names = ("ratio", "low", "high", "candidate_s", "baseline_run", "baseline_s")
    newest = {name: getattr(judged, name) for name in names}
    return replace(suspect, judgement=replace(suspect.judgement, **newest))


def _by_root_cause(store: Store, run: int, suspects: Collection[Suspect]) -> list[RootCause]:
    """Group suspects by root cause, each group with the evidence of its largest change."""
    if not suspects:
        return []
    root_causes = RootCauses(store, run)
    groups: dict[tuple[Cause | None, str, int | None], list[Suspect]] = defaultdict(list)
    # A slow machine comes first, because a change of the code may come on top of it.
    for suspect in sorted(suspects, key=_machine_and_size, reverse=True):
        text = root_causes.of(suspect)
        groups[suspect.judgement.cause, text, root_causes.finding_elsewhere(suspect, text)].append(suspect)
    return [
        RootCause(text, _evidence_of_group(store, run, group), tuple(group), finding)
        for (_, text, finding), group in groups.items()
    ]


def _machine_and_size(suspect: Suspect) -> tuple[bool, float]:
    return suspect.judgement.cause in OF_THE_MACHINE, size_of_change(suspect)


def _evidence_of_group(store: Store, run: int, group: Sequence[Suspect]) -> str:
    """Return the evidence of suspects of one root cause; a change of the environment counts the cases that it moved."""
    evidence, cases = evidence_of(group), {(suspect.series.device, suspect.series.case) for suspect in group}
    if group[0].judgement.cause is not Cause.ENVIRONMENT or len(cases) == 1:
        return evidence
    devices = {device for device, _ in cases}
    compared = {
        (judged.series.device, judged.series.case)
        for judged in store.verdicts.of_run(run)
        if judged.verdict in judge.COMPARED and judged.series.device in devices
    }
    middle = median(suspect.judgement.ratio for suspect in group if suspect.judgement.ratio)
    word = "slower" if middle > 1 else "faster"
    count = f"{len(cases)} of {len(compared)} cases {word}, median {units.percent(middle)}"
    return f"{count}; {evidence}" if evidence else count
