"""Find the commit that moved or broke a case: build the history between two commits, and halve it: ``bisect``."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from perfsvc import judge
from perfsvc.device.find import find
from perfsvc.errors import CaseError, UsageError
from perfsvc.judge import Comparison
from perfsvc.measure.host.device_queue import never
from perfsvc.measure.host.pool import worker_servers
from perfsvc.measure.plan.order import Plan, Task
from perfsvc.model import ENERGY, TIME, Bisection, CacheState, Commit, Measurement, Verdict
from perfsvc.service.bisect.builds import BuildFailure, Builds, CaseBuilder, CommitBuild
from perfsvc.service.bisect.search import Search
from perfsvc.service.confirm.pairs import PairResults, PairSettings, Sides, measure_pairs
from perfsvc.service.git import ancestry, changed
from perfsvc.service.prepare.targets import arrays, compile_helper_kernels, default_sampling, seed_of
from perfsvc.service.progress import Progress
from perfsvc.service.run import measure
from perfsvc.store import Store
from perfsvc.units import some

BUDGET_S = 60.0
"""Most seconds for one comparison: a bisection makes few, and an inconclusive one means that a commit is skipped."""


@dataclass(frozen=True, slots=True)
class BisectRequest:
    """The options of ``perfsvc bisect``.

    Attributes:
        case: the id of the case at the bad revision, or at the good one if the bad one lacks it.
        good: a git revision where the case is as it should be.
        bad: a later revision, where the case has moved or is broken.
        folder: the suite, in its repository.
        devices: the specifications of devices; the case is measured on the first device that they name.
        cache: the cache state; None for the case's first cache state.
        metric: the metric that is compared.
        budget_s: seconds for each comparison of two commits.
        threshold: the smallest relevant change as a fraction, or rules; None for the default of the kind of device.
        seed: decides the order of processes; None for a random one.
    """

    case: str
    good: str
    bad: str
    folder: Path
    devices: tuple[str, ...] = ("auto",)
    cache: CacheState | None = None
    metric: str = TIME
    budget_s: float = BUDGET_S
    threshold: judge.ThresholdOption = None
    seed: int | None = None


def bisect(request: BisectRequest, progress: Progress) -> Bisection:
    """Build a case at every commit from a good to a bad one, and measure until it is known which one is to blame.

    Raises:
        UsageError: there is no repository or no such revision, the good commit is no ancestor of the bad commit, or the
            good commit lacks the case.
        CaseError: the case cannot be built at the good commit, or has no correct result there.
        InfrastructureError: no device, or no compiler.
    """
    began = time.monotonic()
    commits = ancestry(request.folder, request.good, request.bad)
    device, *others = find(request.devices)
    if others:
        progress.report(f"measuring on {device.model} ({device.uuid}) alone, the first of {len(others) + 1} devices")
    with worker_servers() as servers:
        settings = PairSettings(
            devices={device.uuid: device},
            sampling=default_sampling,
            helper_kernels=compile_helper_kernels([device], progress),
            seed=seed_of(request.seed),
            budget_s=request.budget_s,
            servers=servers,
            report=progress.report,
        )
        builder = CaseBuilder(
            request.folder,
            request.case,
            request.cache,
            device,
            metric=request.metric,
            progress=progress,
        )
        builds = builder.build([commit.hash for commit in commits])
        asked = _asked(request, commits, builds, settings)
        progress.begin("measuring", 1 + len(commits).bit_length())
        measure_builds, check = partial(_measure, asked, settings), partial(_check, asked, settings)
        bisection = Search(asked, commits, builds, measure_builds, check, progress=progress).answer()
        if bisection.verdict is Verdict.UNCHANGED and not bisection.trials:
            further = builder.further_change(bisection.good.hash, bisection.bad.hash)
            reason = f"both commits have the same compiled code, and other files, which are not measured: {further}"
            bisection = replace(bisection, verdict=Verdict.INCONCLUSIVE, reason=reason) if further else bisection
    files = _changed_files(request.folder, bisection, builds)
    return replace(bisection, files=files, wall_s=time.monotonic() - began)


def exit_code(bisection: Bisection) -> int:
    """Return 1 if the bad commit is slower than the good one, 3 if that is inconclusive, 4 if it is broken, else 0."""
    return {Verdict.REGRESSION: 1, Verdict.INCONCLUSIVE: 3, Verdict.BROKEN: 4}.get(bisection.verdict, 0)


def _asked(request: BisectRequest, commits: Sequence[Commit], builds: Builds, settings: PairSettings) -> Bisection:
    """Return the bisection before any measurement: its case, device, commits, threshold and number of builds.

    Raises ``UsageError`` or ``CaseError`` if the case could not be built at the good commit.
    """
    good, bad = commits[0], commits[-1]
    before, after = builds.at[good.hash], builds.at[bad.hash]
    if isinstance(before, BuildFailure):
        kind = UsageError if isinstance(before.error, UsageError) else CaseError
        too = f", as at the bad commit, {bad.short}" if isinstance(after, BuildFailure) else ""
        raise kind(f"at the good commit, {good.short}{too}: {before.reason}", cure=before.error.cure)
    spec = after.spec if isinstance(after, CommitBuild) else before.spec
    (device,) = settings.devices.values()
    return Bisection(
        case=spec.case,
        device=device,
        cache=spec.cache,
        good=good,
        bad=bad,
        threshold=judge.threshold_of(spec.case, request.metric, device.kind, request.threshold),
        seed=settings.seed,
        metric=request.metric,
        commits=len(commits) - 1,
        builds=builds.builds,
        compiled=builds.compiled,
    )


def _task(asked: Bisection, settings: PairSettings, built: CommitBuild) -> Task:
    sampling = replace(settings.sampling(asked.device), energy=asked.metric == ENERGY)
    recipe = arrays(built.spec, settings.limit_s)
    return measure.task(asked.device, built.spec, built.modules, sampling, recipe)


def _measure(
    asked: Bisection,
    settings: PairSettings,
    sides: tuple[CommitBuild, CommitBuild],
    *,
    threshold: float,
    enough: Callable[[Comparison], bool],
) -> PairResults:
    """Measure two builds in A/B pairs on the device of the bisection."""
    before, after = (_task(asked, settings, built) for built in sides)
    ((_, results),) = measure_pairs([Sides(before, after, threshold, enough, asked.metric)], settings)
    return results


def _check(asked: Bisection, settings: PairSettings, built: CommitBuild) -> Measurement:
    """Measure a build once on the device of the bisection, as a run does; the process checks its results."""
    tasks, helper_kernels = (_task(asked, settings, built),), settings.helper_kernels
    plan = Plan(tasks, 1, settings.seed, settings.limit_s, helper_kernels=helper_kernels)
    measured = settings.measure(plan, settings.devices, settings.report, settings.servers, never)
    (measurement,) = [run for run in measured if isinstance(run, Measurement)]
    return measurement


def _changed_files(folder: Path, bisection: Bisection, builds: Builds) -> tuple[str, ...]:
    """Return the case's files that differ between the two commits that the bisection named; empty if it named none."""
    if bisection.proof is None:
        return ()
    before, after = bisection.proof.before.hash, bisection.proof.after.hash
    paths = {path for commit in (before, after) for path in builds.at[commit].paths}
    return changed(folder, before, after, sorted(paths))


def require_case(database: str, finding: int, request: BisectRequest) -> None:
    """Check that a finding has the case of a bisection, or reports it as missing, before anything is measured.

    Raises:
        NotMeasuredError: the finding does not exist.
        UsageError: the finding has no series of this case and metric.
    """
    with Store.open(database, create=False) as store:
        moved = store.findings.get(finding).moved
        missing = [row.name for row in store.expectations.of_host(None) if row.finding == finding]
    cases = [step.series.case.id for step in moved if step.series.metric == request.metric]
    cases = list(dict.fromkeys((*cases, *missing)))
    if request.case not in cases:
        raise UsageError(
            f"finding {finding} has no series of {request.case} with the metric {request.metric}",
            cure=f"name one of its cases: {some(cases)}" if cases else f"perfsvc findings show {finding}",
        )


def store_answer(database: str, finding: int, bisection: Bisection) -> None:
    """Store a bisection with a finding; raise ``NotMeasuredError`` if the finding has been removed meanwhile."""
    with Store.open(database, create=False) as store:
        store.findings.put_bisection(finding, bisection)
