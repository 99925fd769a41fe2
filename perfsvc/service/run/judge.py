"""Judge a measured run: verdicts, then confirmations of its suspects, then explanations of its regressions.

Each function reads what it needs from the store and stores its results, so a night can repeat any of them.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from perfsvc import judge
from perfsvc.measure.host.device_queue import Stopping, never
from perfsvc.measure.host.fork_servers import ForkServers
from perfsvc.model import CaseExplanation, Confirmation, DeviceInfo, Direction, Judgement, Series, Verdict
from perfsvc.service.compare import compare
from perfsvc.service.compare.compare import judge_run
from perfsvc.service.confirm.confirm import confirm_all, earlier_answers, with_causes
from perfsvc.service.confirm.pairs import PairSettings
from perfsvc.service.findings.suspects import suspects_of
from perfsvc.service.profile.profile import ProfilerSettings
from perfsvc.service.profile.regressions import explain_confirmed
from perfsvc.service.progress import Progress
from perfsvc.service.run.measure import sampling
from perfsvc.service.run.request import RunRequest
from perfsvc.store import Store


def judge_measured(store: Store, run: int, request: RunRequest) -> list[Judgement]:
    """Judge a run, replace its stored verdicts, and return the new ones."""
    against = compare.run_to_compare_with(store, request.against, run, request.suite)
    judgements = judge_run(store, run, threshold=request.threshold, against=against)
    store.verdicts.put(run, judgements)
    return judgements


def pair_settings(
    request: RunRequest,
    devices: Mapping[str, DeviceInfo],
    helper_kernels: Mapping[str, bytes],
    *,
    seed: int,
    servers: ForkServers,
    report: Callable[[str], object],
) -> PairSettings:
    """Return settings for measuring a run's suspects again in A/B pairs, with the sampling options of that run."""
    return PairSettings(
        devices,
        partial(sampling, request),
        helper_kernels,
        seed,
        threshold=request.threshold,
        limit_s=request.limit_s,
        servers=servers,
        report=report,
    )


def confirm_suspects(
    store: Store, run: int, settings: PairSettings, progress: Progress, stopping: Stopping = never
) -> list[Confirmation]:
    """Measure the suspects of a run again, store the confirmations and return them.

    A suspect that already has a confirmation, or for which the answer of an earlier night still holds, is not measured
    again. The run's verdicts get the causes that were found. No suspect begins once ``stopping`` is true.
    """
    suspects = suspects_of(store, run, threshold=settings.threshold)
    carried_over = earlier_answers(store, suspects, settings)
    for confirmation in carried_over:
        store.confirmations.put(confirmation)
    answered = {confirmation.suspect for confirmation in carried_over}
    unanswered = [suspect for suspect in suspects if suspect not in answered]
    measured = confirm_all(store, unanswered, settings, progress, stopping)
    if confirmations := store.confirmations.of_run(run):  # includes those from before a night was interrupted
        store.verdicts.put(run, with_causes(store.verdicts.of_run(run), confirmations))
    return [*carried_over, *measured]


def exit_code_of(
    judgements: Iterable[Judgement],
    confirmations: Sequence[Confirmation],
    *,
    unheard: Container[tuple[Series, Direction]],
    failed: bool,
    strict: bool = False,
) -> int:
    """Return the exit code of a judged and confirmed run.

    A suspect that confirmation cleared is no regression; a confirmed suspect is one, even if only its history raised
    it. A change that an ignored finding allows (``unheard``) does not count.
    """
    cleared = {confirmation.suspect.series for confirmation in confirmations if confirmation.cleared}
    standing = [
        judgement
        for judgement in judgements
        if judgement.series not in cleared
        and not (judgement.verdict in judge.MOVES and (judgement.series, judge.MOVES[judgement.verdict]) in unheard)
    ]
    regressed = [
        replace(confirmation.suspect.judgement, verdict=Verdict.REGRESSION)
        for confirmation in confirmations
        if confirmation.regressed
    ]
    return judge.exit_code([*standing, *regressed], failed=failed, strict=strict)


def explain_regressed(store: Store, run: int, settings: ProfilerSettings, progress: Progress) -> list[CaseExplanation]:
    """Profile and explain a run's confirmed regressions that have no explanation yet; return the new explanations."""
    explained = {(explanation.device, explanation.case) for explanation in store.profiles.explanations(run)}
    unexplained = [
        confirmation
        for confirmation in store.confirmations.of_run(run)
        if (confirmation.suspect.series.device, confirmation.suspect.series.case) not in explained
    ]
    return explain_confirmed(store, unexplained, settings, progress)
