"""Find the commit that moved a case: build the history between a good and a bad commit, and halve it: ``bisect``."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfsvc import judge
from perfsvc.device.find import find
from perfsvc.errors import CaseError, UsageError
from perfsvc.judge import Comparison
from perfsvc.measure.host.servers import worker_servers
from perfsvc.measure.plan.order import Task
from perfsvc.model import ENERGY, TIME, Bisection, CacheState, Commit, Verdict
from perfsvc.service.bisect.builds import Builds, CaseBuilder, CommitBuild
from perfsvc.service.bisect.search import MeasureBuilds, Search
from perfsvc.service.confirm.pairs import PairResults, PairSettings, Sides, measure_pairs
from perfsvc.service.git import ancestry, changed
from perfsvc.service.prepare.recipes import arrays
from perfsvc.service.prepare.sampling import default_sampling
from perfsvc.service.prepare.targets import compile_helper_kernels, seed_of
from perfsvc.service.progress import Progress
from perfsvc.service.run import measure

BUDGET_S = 60.0
"""Most seconds for one comparison: a bisection makes few, and an inconclusive one means that a commit is skipped."""


@dataclass(frozen=True, slots=True)
class BisectRequest:
    """The options of ``perfsvc bisect``.

    Attributes:
        case: the id of the case at the bad revision.
        good: a git revision where the case is as it should be.
        bad: a later revision, where the case has moved.
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
    """Build a case at every commit from a good to a bad one, and measure until it is known which one changed the time.

    Raises:
        UsageError: there is no repository or no such revision, the good commit is no ancestor of the bad commit, or a
            commit lacks the case.
        CaseError: the case cannot be built at the good or the bad commit, or has no correct result there.
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
        bisection = Search(asked, commits, builds, _measure(asked, settings), progress).answer()
    files = _changed_files(request.folder, bisection, builds)
    return replace(bisection, files=files, wall_s=time.monotonic() - began)


def exit_code(bisection: Bisection) -> int:
    """Return 1 if the bad commit is slower than the good one, 3 if that is inconclusive, else 0."""
    return {Verdict.REGRESSION: 1, Verdict.INCONCLUSIVE: 3}.get(bisection.verdict, 0)


def _asked(request: BisectRequest, commits: Sequence[Commit], builds: Builds, settings: PairSettings) -> Bisection:
    """Return the bisection before any measurement: its case, device, commits, threshold and number of builds.

    Raises ``UsageError`` or ``CaseError`` if the case could not be built at the good or the bad commit.
    """
    good, bad = commits[0], commits[-1]
    spec = _built(bad, "bad", builds).spec
    _built(good, "good", builds)
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


def _built(commit: Commit, which: str, builds: Builds) -> CommitBuild:
    """Return the build of the case at a commit; raise ``UsageError`` or ``CaseError`` if it could not be built."""
    result = builds.at[commit.hash]
    if isinstance(result, CommitBuild):
        return result
    kind = UsageError if isinstance(result.error, UsageError) else CaseError
    raise kind(f"at the {which} commit, {commit.short}: {result.reason}", cure=result.error.cure)


def _measure(asked: Bisection, settings: PairSettings) -> MeasureBuilds:
    """Return a function that measures two builds of the case in A/B pairs."""
    sampling = replace(settings.sampling(asked.device), energy=asked.metric == ENERGY)

    def task(built: CommitBuild) -> Task:
        recipe = arrays(built.spec, settings.limit_s)
        return measure.task(asked.device, built.spec, built.modules, sampling, recipe)

    def measure_builds(
        sides: tuple[CommitBuild, CommitBuild], *, threshold: float, enough: Callable[[Comparison], bool]
    ) -> PairResults:
        """Measure two builds in A/B pairs on the device of the bisection."""
        before, after = sides
        to_measure = Sides(task(before), task(after), threshold, enough, asked.metric)
        ((_, results),) = measure_pairs([to_measure], settings)
        return results

    return measure_builds


def _changed_files(folder: Path, bisection: Bisection, builds: Builds) -> tuple[str, ...]:
    """Return the case's files that differ between the two commits that the bisection named; empty if it named none."""
    if bisection.proof is None:
        return ()
    before, after = bisection.proof.before.hash, bisection.proof.after.hash
    paths = {path for commit in (before, after) for path in builds.at[commit].paths}
    return changed(folder, before, after, sorted(paths))
