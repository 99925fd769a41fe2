"""What follows when a run is measured: verdicts, then confirmations, then explanations.

Each reads from the store what it needs and stores what it finds, so that it can be done again, or by another process.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from perfsvc import judge
from perfsvc.measure.host.device_queue import Stopping, never
from perfsvc.measure.host.fork_servers import ForkServers
from perfsvc.model import CaseExplanation, Confirmation, DeviceInfo, Direction, Judgement, Series, Verdict
from perfsvc.service.compare import compare
from perfsvc.service.compare.code import SidesOf
from perfsvc.service.compare.compare import judge_run
from perfsvc.service.confirm.confirm import confirm_all, told_before, with_causes
from perfsvc.service.confirm.pairs import Means
from perfsvc.service.findings.suspects import Doubts
from perfsvc.service.findings.update import suspects_of
from perfsvc.service.profile.profile import Under
from perfsvc.service.profile.regressions import explain_confirmed
from perfsvc.service.progress import Progress
from perfsvc.service.run.measure import sampling
from perfsvc.service.run.request import RunRequest
from perfsvc.store import Store


def judge_measured(store: Store, run: int, request: RunRequest, sides_of: SidesOf | None = None) -> list[Judgement]:
    """The verdicts on a run, in place of what was stored of it before."""
    against = compare.baseline_run(store, request.against, run, request.suite)
    judgements = judge_run(store, run, threshold=request.threshold, against=against, sides_of=sides_of)
    store.put_verdicts(run, judgements)
    return judgements


def means_of(
    request: RunRequest,
    devices: Mapping[str, DeviceInfo],
    helper_kernels: Mapping[str, bytes],
    *,
    seed: int,
    servers: ForkServers,
    say: Callable[[str], object],
) -> Means:
    """What suspects are measured again with: all that the run itself was measured with."""
    return Means(
        devices,
        partial(sampling, request),
        helper_kernels,
        seed,
        threshold=request.threshold,
        limit_s=request.limit_s,
        servers=servers,
        say=say,
    )


def confirm_suspects(
    store: Store,
    run: int,
    means: Means,
    progress: Progress,
    stopping: Stopping = never,
    *,
    found: Doubts | None = None,
    sides_of: SidesOf | None = None,
) -> list[Confirmation]:
    """Measures again what of a run's suspects was not measured again yet, and returns what came of that.

    What an earlier night's answer holds for is not measured once more. What came of all of them is said of the
    verdicts. From when it is ``stopping`` on none is begun. ``found`` is as in ``suspects_of``, ``sides_of``
    as in ``told_before``.
    """
    suspects = suspects_of(store, run, threshold=means.threshold, found=found)
    before = list(told_before(store, suspects, means, sides_of))
    for one in before:
        store.put_confirmation(one)
    told = {one.suspect for one in before}
    again = confirm_all(store, [one for one in suspects if one not in told], means, progress, stopping)
    if confirmations := store.confirmations(run):  # those of a night that was stopped among them
        store.put_verdicts(run, with_causes(store.verdicts(run), confirmations))
    return [*before, *again]


def exit_code_of(
    judgements: Iterable[Judgement],
    confirmations: Sequence[Confirmation],
    *,
    unheard: Container[tuple[Series, Direction]],
    failed: bool,
    strict: bool = False,
) -> int:
    """The exit code of what was judged and measured again.

    What was cleared by measuring it again is no regression; what was confirmed is one, even by its history alone. What
    moved as somebody said that it may (``judging.findings.ignored``) is none.
    """
    cleared = {one.suspect.series for one in confirmations if one.cleared}
    standing = [
        one
        for one in judgements
        if one.series not in cleared
        and not (one.verdict in judge.MOVES and (one.series, judge.MOVES[one.verdict]) in unheard)
    ]
    regressed = [replace(one.suspect.judgement, verdict=Verdict.REGRESSION) for one in confirmations if one.regressed]
    return judge.exit_code([*standing, *regressed], failed=failed, strict=strict)


def explain_regressed(store: Store, run: int, under: Under, progress: Progress) -> list[CaseExplanation]:
    """Has a profiler say why those cases of a run take longer that are confirmed to, and returns what it says.

    What was explained already is not explained again.
    """
    known = {(one.device, one.case) for one in store.explained(run)}
    left = [
        one for one in store.confirmations(run) if (one.suspect.series.device, one.suspect.series.case) not in known
    ]
    return explain_confirmed(store, left, under, progress)
