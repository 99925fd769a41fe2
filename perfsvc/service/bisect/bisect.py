"""Which commit moved a case: the history between a good and a bad one is built, and halved by measuring in turn."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfsvc import build, judge
from perfsvc.device.find import find
from perfsvc.errors import CaseError, UsageError
from perfsvc.judge import Comparison
from perfsvc.measure.host.fork_servers import ForkServers
from perfsvc.measure.plan.order import Task
from perfsvc.model import ENERGY, TIME, Bisection, CacheState, Commit, DeviceInfo, Verdict
from perfsvc.service.bisect.builds import Built, Rebuilding, Rebuilt
from perfsvc.service.bisect.search import Measure, Search
from perfsvc.service.confirm.pairs import Means, Turns, take_turns
from perfsvc.service.git import ancestry, changed
from perfsvc.service.progress import Progress, Silent
from perfsvc.service.run import measure
from perfsvc.service.run.prepare import compile_helper_kernels
from perfsvc.service.run.request import seed_of
from perfsvc.suite import Inputs, KnownShapes

BUDGET_S = 60.0
"""Seconds for one comparison at most: there are few, and one that ends without an answer costs a commit."""


@dataclass(frozen=True, slots=True)
class BisectRequest:
    """The options of ``perfsvc bisect``.

    Attributes:
        case: its id, as the bad revision has it.
        good: a git revision where the case is as it should be.
        bad: a later one, where it is not.
        folder: the suite, in its repository.
        devices: where it is measured: on the first that they name.
        cache: which of its cache states; None for its first one.
        metric: what is compared.
        budget_s: seconds for each comparison of two commits.
        threshold: the smallest relevant change as a fraction, or rules; None for what suits the kind of device.
        seed: decides the order of processes; None for any.
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


def bisect(request: BisectRequest, progress: Progress | None = None) -> Bisection:
    """Builds a case at every commit from a good one to a bad one, and measures until it is known which one moved it.

    Raises:
        UsageError: no repository, no such revisions, one no ancestor of the other, or no such case at one of them.
        CaseError: the case cannot be built at the good or the bad commit, or has no right result there.
        InfrastructureError: no device, or no compiler.
    """
    began = time.monotonic()
    progress = progress or Silent()
    commits = ancestry(request.folder, request.good, request.bad)
    device, *others = find(request.devices)
    if others:
        progress.say(f"measuring on {device.model} ({device.uuid}) alone, the first of {len(others) + 1} devices")
    inputs = Inputs(known=KnownShapes(build.default_folder() / "shapes"))
    with ForkServers() as servers:
        means = _means(request, device, servers, progress)
        rebuilding = Rebuilding(
            request.folder,
            request.case,
            request.cache,
            device,
            metric=request.metric,
            inputs=inputs,
            progress=progress,
        )
        rebuilt = rebuilding.at([commit.hash for commit in commits])
        asked = _asked(request, commits, rebuilt, means)
        progress.begin("measuring", 1 + len(commits).bit_length())
        found = Search(asked, commits, rebuilt, _measure(asked, means, inputs), progress).answer()
    return replace(found, files=_files(request.folder, found, rebuilt), wall_s=time.monotonic() - began)


def exit_code(found: Bisection) -> int:
    """1 where the bad commit is slower than the good one, 3 where nobody can tell, else 0."""
    return {Verdict.REGRESSION: 1, Verdict.INCONCLUSIVE: 3}.get(found.verdict, 0)


def _asked(request: BisectRequest, commits: Sequence[Commit], rebuilt: Rebuilt, means: Means) -> Bisection:
    """What is known before anything is measured; raises what keeps the case from being measured at either end."""
    good, bad = commits[0], commits[-1]
    spec = _built(bad, "bad", rebuilt).runnable.spec
    _built(good, "good", rebuilt)
    (device,) = means.devices.values()
    return Bisection(
        case=spec.case,
        device=device,
        cache=spec.cache,
        good=good,
        bad=bad,
        threshold=judge.threshold_of(spec.case, request.metric, device.kind, request.threshold),
        seed=means.seed,
        metric=request.metric,
        commits=len(commits) - 1,
        builds=rebuilt.builds,
        compiled=rebuilt.compiled,
    )


def _built(commit: Commit, which: str, rebuilt: Rebuilt) -> Built:
    found = rebuilt.at[commit.hash]
    if isinstance(found, Built):
        return found
    kind = UsageError if isinstance(found.error, UsageError) else CaseError
    raise kind(f"at the {which} commit, {commit.short}: {found.reason}", cure=found.error.cure)


def _measure(asked: Bisection, means: Means, inputs: Inputs) -> Measure:
    sampling = replace(means.sampling(asked.device), energy=asked.metric == ENERGY)

    def task(built: Built) -> Task:
        recipe = measure.arrays(built.runnable.spec, inputs)
        return measure.task(asked.device, built.runnable, sampling, recipe)

    def measure(sides: tuple[Built, Built], *, threshold: float, enough: Callable[[Comparison], bool]) -> Turns:
        before, after = sides
        return take_turns((task(before), task(after)), means, threshold=threshold, enough=enough, metric=asked.metric)

    return measure


def _means(request: BisectRequest, device: DeviceInfo, servers: ForkServers, progress: Progress) -> Means:
    return Means(
        devices={device.uuid: device},
        sampling=measure.usual_sampling,
        helper_kernels=compile_helper_kernels([device], progress),
        seed=seed_of(request.seed),
        budget_s=request.budget_s,
        servers=servers,
        say=progress.say,
    )


def _files(folder: Path, found: Bisection, rebuilt: Rebuilt) -> tuple[str, ...]:
    """Which files of the case differ between the culprit and the good commit below it."""
    if found.proof is None:
        return ()
    before, after = found.proof.before.hash, found.proof.after.hash
    paths = {path for name in (before, after) for path in rebuilt.at[name].paths}
    return changed(folder, before, after, sorted(paths))
