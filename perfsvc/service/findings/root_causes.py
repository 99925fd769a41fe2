"""Origins: what suspects have in common that one cause moved, in words that are the same on every GPU and night."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import groupby, islice
from math import log
from operator import itemgetter
from statistics import median

from perfsvc.model import Cause, Direction, Environment, Finding, Judgement, Series, Suspect
from perfsvc.service.compare.code import SidesOf
from perfsvc.store import Built, Place, Store

NIGHTS_BEFORE = 5
"""How many nights at most tell where a series was before some code: one alone has much noise."""

BEGUN = 1 / 3
"""By which share of its way a change has begun before the commits that it came with."""


@dataclass(frozen=True)
class Origins:
    """What moved the suspects of a run: its commits, a compiler, a driver, a GPU; each run is read once.

    Args:
        store: holds the runs.
        run: that raised the suspects.
    """

    store: Store
    run: int

    def of(self, suspect: Suspect) -> str:
        """What moved a suspect whose judgement names its cause.

        - of the code, the commits since the last night that ran other code: ``1a2b3c4d5..6e7f8a9b0``; of what had begun
          to move before, those that a standing finding of its benchmark is laid to;
        - of the toolchain, what changed of it: ``nvcc 13.0.88 → nvcc 14.0``;
        - of the environment, what changed of that, on whatever GPU: ``driver 580.1 → 590.1``; where nothing did, the
          GPU alone: ``GPU GPU-1``;
        - of what stands in a finding of that cause, whatever that finding is laid to.
        """
        cause = suspect.judgement.cause
        if told := self._told.get((suspect.series, suspect.direction, cause)):
            return told
        if cause is Cause.KERNEL:
            since = self._since(suspect)
            return self._begun_before(suspect, since) or self._commits(since)
        before, after = self._environments(suspect)
        if cause is Cause.TOOLCHAIN:
            return (_changed("", before.toolkit, after.toolkit) if before and after else "") or self._code(self.run)
        return ", ".join(_surroundings(before, after)) or f"GPU {suspect.series.device}"

    def _since(self, suspect: Suspect) -> int:
        """The first night that ran tonight's code of a suspect, without another code in between."""
        baseline = suspect.judgement.baseline_run or 0
        since = self.run
        for earlier in self._nights:
            if not baseline < earlier < self.run:
                continue
            same = self._same_code(suspect, earlier)
            if same is False:
                break
            since = earlier if same else since
        return since

    def _begun_before(self, suspect: Suspect, since: int) -> str:
        """The origin of a finding that a change had begun with before the code of a night; empty where it had not.

        Small commits add up to a drift. Where the code before that one had gone ``BEGUN`` of the way from the level of
        old to tonight's, not all of it is the last commits' doing. What earlier ones did to others of its benchmark
        stands in a finding, which a person need not be told of once more for each commit and case.
        """
        judged = suspect.judgement
        before = islice(self._of_the_code_before(suspect.series, since), NIGHTS_BEFORE)
        levels = [level for run in before if (level := self._level(suspect.series, run))]
        if not (levels and judged.baseline_s and judged.candidate_s):
            return ""
        gone, way = log(median(levels) / judged.baseline_s), log(judged.candidate_s / judged.baseline_s)
        if not way or gone / way < BEGUN:
            return ""
        begun = [
            one
            for one in self._standing
            if one.cause is Cause.KERNEL
            and one.direction is suspect.direction
            and (judged.baseline_run or 0) < one.first_run < since
            and any(moved.series.case.benchmark == suspect.series.case.benchmark for moved in one.moved)
        ]
        return max(begun, key=lambda one: one.first_run).root_cause if begun else ""

    def _of_the_code_before(self, series: Series, since: int) -> Iterator[int]:
        """The nights just before one that all ran the same other binary, the latest first."""
        place = (series.device, series.case, series.cache)
        measured = ((run, self._built(run).get(place)) for run in self._nights if run < since)
        binaries = ((run, built.binary) for run, built in measured if built)
        for _, nights in groupby(binaries, key=itemgetter(1)):
            yield from (run for run, _ in nights)
            return

    def _level(self, series: Series, run: int) -> float | None:
        """The level of a series in a run, where that has a verdict on it."""
        return next((one.candidate_s for one in self._verdicts(run) if one.series == series), None)

    def _same_code(self, suspect: Suspect, run: int) -> bool | None:
        """Whether a night ran tonight's code of a suspect; None where it did not measure it."""
        series = suspect.series
        place = (series.device, series.case, series.cache)
        then, tonight = (self._built(one).get(place) for one in (run, self.run))
        if then is None or tonight is None or then.binary is None:
            return None
        if then.binary == tonight.binary:
            return True
        told = self._sides_of([replace(suspect.judgement, baseline_run=run)]).get(series)
        return told is not None and told.code

    def _commits(self, since: int) -> str:
        """The commits that came into the suite with a night, after those of the last night with another one."""
        commit = self._nights.get(since, "")
        if not commit:
            return self._code(since)
        before = next((one for run, one in self._nights.items() if run < since and one not in {"", commit}), "")
        return f"{before[:9]}..{commit[:9]}" if before else commit[:9]

    @staticmethod
    def _code(run: int) -> str:
        return f"the code of run {run}"

    def _environments(self, suspect: Suspect) -> tuple[Environment | None, Environment | None]:
        series, judged = suspect.series, suspect.judgement
        place = (series.device, series.case, series.cache)
        runs = (judged.baseline_run, self.run)
        before, after = (None if run is None else self._built(run).get(place) for run in runs)
        return before.environment if before else None, after.environment if after else None

    @cached_property
    def _nights(self) -> Mapping[int, str]:
        """The commits of the nights up to this one, by their numbers, newest first."""
        return self.store.commits(self.run)

    @cached_property
    def _told(self) -> Mapping[tuple[Series, Direction, Cause | None], str]:
        return {
            (one.series, one.direction, found.cause): found.root_cause
            for found in self._standing
            for one in found.moved
        }

    @cached_property
    def _standing(self) -> Sequence[Finding]:
        return self.store.findings()

    @cached_property
    def _verdicts(self) -> Callable[[int], Sequence[Judgement]]:
        return cache(self.store.verdicts)

    @cached_property
    def _sides_of(self) -> SidesOf:
        return SidesOf(self.store)

    @cached_property
    def _built(self) -> Callable[[int], Mapping[Place, Built]]:
        return cache(self.store.built)


def _surroundings(before: Environment | None, after: Environment | None) -> Iterator[str]:
    """What of driver and power limit is another."""
    if before and after:
        yield from filter(None, [_changed("driver ", before.driver, after.driver)])
        watts = [f"{one.power_limit_w:g} W" for one in (before, after)]
        yield from filter(None, [_changed("power limit ", *watts)])


def _changed(what: str, before: str, after: str) -> str:
    return f"{what}{before} → {after}" if before != after else ""
