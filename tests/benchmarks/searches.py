"""Count how often ``perfsvc bisect`` names the right commit, and how many processes it measures, in simulation.

There are 15 commits with different code, and one of them makes a case slower; each is the slow one in turn. Processes
differ by a normal deviation, as those of a kernel do. Only times are simulated: the search, its looks and its verdicts
are those of the command.

    python tests/benchmarks/searches.py
"""

import math
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from unittest.mock import Mock

import numpy as np
from workbench import Claim, finish, parsed, table

from perfsvc import judge
from perfsvc.judge import Comparison
from perfsvc.model import TIME, Bisection, CacheState, Case, Commit, DeviceInfo, Kind, Measurement, ReplayRecord, Status
from perfsvc.service.bisect.builds import Builds, CommitBuild
from perfsvc.service.bisect.search import Search
from perfsvc.service.confirm.pairs import PairResults

CASE = Case("dot", "tree")
DEVICE = DeviceInfo("fake", "fake:script.json", "FAKE-0", "Fake GPU", "fake")
COMMITS = 15
CHANGES = (0.0, 0.03, 0.04, 0.05, 0.1)
NAMED, AMONG, OTHER, NONE = "named", "among several", "another named", "no difference found"


def main() -> int:
    """Search, count and print."""
    arguments = parsed(
        __doc__,
        ("--searches", 200, "searches for each size of a change"),
        ("--between", 0.01, "the relative deviation between processes"),
        ("--threshold", 0.01),
    )
    rows, wrong, missed = [], {}, {}
    for change in CHANGES:
        found = [search(change, seed, arguments.between, arguments.threshold) for seed in range(arguments.searches)]
        counted = Counter(outcome(bisection, 1 + seed % COMMITS) for seed, bisection in enumerate(found))
        share = {word: 100 * counted[word] / len(found) for word in (NAMED, AMONG, OTHER, NONE)}
        processes = sum(len(trial.baseline) + len(trial.candidate) for bisection in found for trial in bisection.trials)
        percents = (f"{percent:.1f}" for percent in share.values())
        rows.append([f"{100 * change:g} %", *percents, f"{processes / len(found):.0f}"])
        wrong[change], missed[change] = share[OTHER] if change else 100 - share[NONE], 100 - share[NAMED]
    print("Searches for the commit that made a case slower, %\n")
    print(table(["slower by", NAMED, AMONG, OTHER, NONE, "processes"], rows), end="\n\n")
    claims = [
        Claim("searches that name a commit although none is slow, or a wrong commit", max(wrong.values()), 2.0, " %"),
        Claim("searches for +5 % that do not end with the commit", missed[0.05], 5.0, " %"),
    ]
    return finish(claims, arguments.json, searches=arguments.searches, between=arguments.between)


def search(change: float, seed: int, between: float, threshold: float) -> Bisection:
    """Search a history whose slow commit depends on the seed."""
    date, place = datetime(2026, 1, 1, tzinfo=UTC), 1 + seed % COMMITS
    commits = [Commit(f"c{at}", "", "", date, (f"c{at - 1}",) if at else ()) for at in range(COMMITS + 1)]
    asked = Bisection(
        CASE,
        DEVICE,
        CacheState.COLD,
        commits[0],
        commits[-1],
        threshold,
        seed,
        TIME,
        commits=COMMITS,
        builds=0,
        compiled=0,
    )
    levels = {f"c{at}": 1 + change * (at >= place) for at in range(COMMITS + 1)}
    return Search(
        asked,
        commits,
        Builds({name: build(name) for name in levels}, 0, 0),
        simulated_device(levels, seed, between),
        Mock(),
        progress=Mock(),
    ).answer()


def build(name: str) -> CommitBuild:
    """Return a case whose only module is its commit's name, which decides the simulated time."""
    return CommitBuild(None, (), (ReplayRecord(CASE, Kind.KERNEL, (), (), (), "", 0), (name,)), ())  # type: ignore[arg-type]


def simulated_device(levels: dict[str, float], seed: int, between: float) -> Callable[..., PairResults]:
    """Return a function that measures two commits in A/B pairs as ``perfsvc.service.confirm.pairs`` does."""
    chance = np.random.default_rng(seed)

    def process(built: CommitBuild) -> Measurement:
        time = levels[built.code[1][0]] * math.exp(chance.normal(0, between))
        return Measurement(CASE, DEVICE.uuid, 0, Status.OK, samples_s=(time,) * 20)

    def measure(
        sides: tuple[CommitBuild, CommitBuild], *, threshold: float, enough: Callable[[Comparison], bool]
    ) -> PairResults:
        results = PairResults()
        for look, pairs in enumerate(judge.LOOKS, start=1):
            while results.pairs < pairs:
                results.baseline.append(process(sides[0]))
                results.candidate.append(process(sides[1]))
            before, after = (
                [measurement.samples_s for measurement in side] for side in (results.baseline, results.candidate)
            )
            results.looks = look
            alpha = judge.ALPHA / len(judge.LOOKS)
            results.comparison = judge.compare(before, after, threshold=threshold, alpha=alpha)
            if enough(results.comparison):
                break
        return results

    return measure


def outcome(found: Bisection, place: int) -> str:
    """Return the outcome of a search whose slow commit had this place."""
    names = [commit.hash for commit in found.culprits]
    if not names:
        return NONE
    if f"c{place}" not in names:
        return OTHER
    return NAMED if len(names) == 1 else AMONG


if __name__ == "__main__":
    raise SystemExit(main())
