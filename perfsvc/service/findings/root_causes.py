"""Name the root causes of suspects: commits, compilers, drivers, GPUs; and find the same change on other devices."""

import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby, islice
from math import log
from operator import itemgetter
from pathlib import Path
from statistics import median

from perfsvc.model import (
    FAILURES,
    CacheState,
    Case,
    Cause,
    ChangeKind,
    Direction,
    Finding,
    MovedSeries,
    Series,
    Suspect,
)
from perfsvc.service.compare.sides import changed_inputs, changed_packages, sides_of
from perfsvc.service.findings.alerts import is_nearer
from perfsvc.service.findings.steps import LOOK_BACK
from perfsvc.service.git import commit_ranges, git
from perfsvc.store import CaseBinary, CaseKey, Store
from perfsvc.store.findings.update import JOINABLE

CODE = frozenset({Cause.KERNEL, Cause.LAUNCH, Cause.UNCONFIRMED})
"""The causes whose root cause are commits."""

CODE_OF_RUN = "the code of run "
"""How a root cause begins that names no commits, because the suite is in no repository."""

RUNS_BEFORE = 5
"""The most runs whose median is the level before some code: a single run is noisy."""

BEGUN_SHARE = 1 / 3
"""The share of a change that has to be there before its code, so that earlier commits have begun it."""


class RootCauses:
    """Names the root causes of the suspects of a run.

    Args:
        store: the database.
        run: the run.
    """

    def __init__(self, store: Store, run: int) -> None:
        self._store = store
        self._run = run
        self._suite = Path(store.runs.get(run).provenance.suite)
        self._commits = store.runs.commits(run)
        self._standing = store.findings.active()
        self._built = cache(store.binaries.of_run)
        self._first_seen = cache(self._first_run_at)
        self._knows = cache(self._is_in_git)
        self._descends = cache(self._is_ancestor)
        self._verdicts = cache(store.verdicts.of_run)
        self._known: dict[tuple[Series, Direction, Cause | None], str] = {
            (moved.series, moved.direction, finding.cause): finding.root_cause
            for finding in self._standing
            for moved in finding.standing
        }
        self._of_case: dict[tuple[Case, str, CacheState, Direction], list[tuple[Finding, MovedSeries]]] = defaultdict(
            list
        )
        for finding in self._standing:
            for moved in finding.standing if finding.cause in CODE and finding.state in JOINABLE else ():
                self._of_case[_without_device(moved.series, moved.direction)].append((finding, moved))

    def of(self, suspect: Suspect) -> str:
        """Return the root cause of a suspect whose judgement names its cause.

        - If an active finding has the series and this cause, the root cause of that finding. If the cause is the code,
          an active finding without a confirmed cause counts too. A further step always gets its own root cause.
        - For a case without a correct result, the commits since the last run with one; if there are none, what changed
          in the environment.
        - For the code, the commits since the last run of the device with other code: ``1a2b3c4d5..6e7f8a9b0``. If the
          change began before these commits, the commits of an active finding of the same benchmark.
        - For the toolchain, what changed: ``nvcc 13.0.88 → nvcc 14.0``, ``triton 3.4.0 → 3.5.0``.
        - For the environment, what changed last: ``driver 580.1 → 590.1``. If nothing is known to have changed, or the
          series was as fast as before in the first run after that, the device: ``GPU GPU-1``.
        """
        cause = suspect.judgement.cause
        again = suspect.change is ChangeKind.AGAIN
        if not again and (known := self._known_of(suspect)):
            return known
        if cause in FAILURES:
            return self._since_correct(suspect.series)
        if cause in CODE:
            since = self._first_run_with_this_code(suspect)
            if cause is Cause.UNCONFIRMED and suspect.since is not None:
                since = min(since, suspect.since)
            begun = "" if again else self._begun_by_finding(suspect, since)
            return begun or self._commits_of(suspect.series, since)
        old, new = self._used(suspect)
        if cause is Cause.TOOLCHAIN:
            changed = changed_packages(old.python, new.python) if old and new else ""
            if not changed and old and new and old.environment.toolkit != new.environment.toolkit:
                changed = f"{old.environment.toolkit} → {new.environment.toolkit}"
            return changed or f"{CODE_OF_RUN}{self._run}"
        if cause is Cause.INPUTS:
            changed = changed_inputs(old.python, new.python) if old and new else ""
            return changed or f"the inputs of run {self._run}"
        return ", ".join(self._changes_of_environment(suspect)) or f"GPU {suspect.series.device}"

    def _known_of(self, suspect: Suspect) -> str:
        """Return the root cause of the active finding that a suspect's series is in; empty without such a finding."""
        cause = suspect.judgement.cause
        causes = [cause, Cause.UNCONFIRMED] if cause in CODE else [cause]
        known = (self._known.get((suspect.series, suspect.direction, cause)) for cause in causes)
        return next(filter(None, known), "")

    def _since_correct(self, series: Series) -> str:
        """Return what changed since the last run with a correct result of a case; empty if nothing is known to have."""
        runs = islice(self._commits, 1, 1 + LOOK_BACK)
        before = next((run for run in runs if self._level(series, run) is not None), None)
        commit = self._commits[self._run]
        if before is None:
            return commit[:9] or f"{CODE_OF_RUN}{self._run}"
        if self._commits[before] != commit:
            return f"{self._commits[before][:9]}..{commit[:9]}"
        then, now = self._built(before).get(_case_of(series)), self._built(self._run).get(_case_of(series))
        changes = then.environment.changes_to(now.environment) if then and now else ()
        return ", ".join(changes) or (f"{CODE_OF_RUN}{self._run}" if not commit else "")

    # --- the code ----------------------------------------------------------------------------------------------------

    def _first_run_with_this_code(self, suspect: Suspect) -> int:
        """Return the first of the consecutive runs, up to the present run, in which the case had its present code.

        The search begins after the baseline's run.
        """
        baseline_run = suspect.judgement.baseline_run or 0
        first = self._run
        for run in self._commits:
            if not baseline_run < run < self._run:
                continue
            same = self._has_same_code(suspect, run)
            if same is False:
                break
            first = run if same else first
        return first

    def _has_same_code(self, suspect: Suspect, run: int) -> bool | None:
        """Return whether a run had the suspect's present code; None if the run did not measure the case."""
        case = _case_of(suspect.series)
        then, now = self._built(run).get(case), self._built(self._run).get(case)
        if then is None or now is None or then.binary is None:
            return None
        if (then.binary, then.python) == (now.binary, now.python):
            return True
        sides = sides_of(self._store, [replace(suspect.judgement, baseline_run=run)]).get(suspect.series)
        return sides is not None and sides.code

    def _begun_by_finding(self, suspect: Suspect, since: int) -> str:
        """Return the root cause of the finding that reports how a change began before run ``since``; empty without one.

        Several small commits can cause one trend. If the runs before ``since`` already showed ``BEGUN_SHARE`` of the
        change, earlier commits are to blame too. A finding about another case of the benchmark may report them already.
        The change then gets the root cause of this finding, so that users do not get a finding for each commit.
        """
        judgement = suspect.judgement
        runs = islice(self._runs_of_the_code_before(suspect.series, since), RUNS_BEFORE)
        levels = [level for run in runs if (level := self._level(suspect.series, run))]
        if not (levels and judgement.baseline_s and judgement.candidate_s):
            return ""
        gone, whole = log(median(levels) / judgement.baseline_s), log(judgement.candidate_s / judgement.baseline_s)
        if not whole or gone / whole < BEGUN_SHARE:
            return ""
        begun = [
            finding
            for finding in self._standing
            if finding.cause in CODE
            and finding.direction is suspect.direction
            and (judgement.baseline_run or 0) < (finding.first_run or 0) < since
            and any(moved.series.case.benchmark == suspect.series.case.benchmark for moved in finding.moved)
        ]
        return max(begun, key=lambda finding: finding.first_run or 0).root_cause if begun else ""

    def _runs_of_the_code_before(self, series: Series, since: int) -> Iterator[int]:
        """Yield the runs before ``since`` that used the case's last binary before ``since``, the latest run first."""
        case = _case_of(series)
        built = ((run, self._built(run).get(case)) for run in self._commits if run < since)
        binaries = ((run, in_run.binary) for run, in_run in built if in_run)
        for _, runs in groupby(binaries, key=itemgetter(1)):
            yield from (run for run, _ in runs)
            return  # the first group has the runs of the latest binary

    def _level(self, series: Series, run: int) -> float | None:
        """Return the level of a series in a run, if the run has a verdict on it."""
        return next((judgement.candidate_s for judgement in self._verdicts(run) if judgement.series == series), None)

    def _commits_of(self, series: Series, since: int) -> str:
        """Return the commits between the run ``since`` and the device's last run of the case: ``1a2b3c4d5..6e7f8a9b0``.

        Another host may have measured some of these commits already. Its runs say nothing about this device. They only
        count if the device has no earlier run of the case with another commit.
        """
        commit = self._commits.get(since, "")
        if not commit:
            return f"{CODE_OF_RUN}{since}"
        own = self._commits.get(self._last_run_before(series, since) or 0, "")
        other = (earlier for run, earlier in self._commits.items() if run < since and earlier not in {"", commit})
        before = own if own not in {"", commit} else next(other, "")
        return f"{before[:9]}..{commit[:9]}" if before else commit[:9]

    def _last_run_before(self, series: Series, since: int) -> int | None:
        """Return the newest run before ``since`` that measured the case on its device."""
        case = _case_of(series)
        return next((run for run in self._commits if run < since and case in self._built(run)), None)

    # --- the same code on other devices ------------------------------------------------------------------------------

    def finding_elsewhere(self, suspect: Suspect, root_cause: str) -> int | None:
        """Return the active finding that reports the suspect's change on another device; None if there is none.

        Hosts measure different commits, and report them in any order. So the finding may name other commits than
        ``root_cause``. It is about the same change if it has the same case, and if both ranges of commits overlap.
        """
        if suspect.judgement.cause not in CODE or suspect.change is ChangeKind.AGAIN or self._known_of(suspect):
            return None
        for finding, moved in self._of_case.get(_without_device(suspect.series, suspect.direction), ()):
            elsewhere = moved.root_cause or finding.root_cause
            if moved.series.device != suspect.series.device and any(
                self._overlap(own, other)
                for own in self._ranges(suspect.series, root_cause)
                for other in self._ranges(moved.series, elsewhere)
            ):
                return finding.id
        return None

    def _ranges(self, series: Series, root_cause: str) -> Iterator["_Range"]:
        """Yield the ranges of commits that a root cause names; outside git, runs stand for commits."""
        if root_cause.startswith(CODE_OF_RUN) and root_cause.removeprefix(CODE_OF_RUN).isdigit():
            run = int(root_cause.removeprefix(CODE_OF_RUN))
            yield _Range(self._last_run_before(series, run) or 0, run)
        for good, bad in commit_ranges(root_cause):
            # A commit that only a later run measured is newer than all others.
            first, last = self._first_seen(good), self._first_seen(bad) or sys.maxsize
            # A host that lags behind measures older commits after newer ones.
            yield _Range(first if first < last else 0, last, good, bad)

    def _first_run_at(self, name: str) -> int:
        """Return the first run of the scope that measured a commit, by the begin of its hash; 0 if none did."""
        runs = (run for run, commit in self._commits.items() if name and commit.startswith(name))
        return min(runs, default=0)

    def _is_in_git(self, commit: str) -> bool:
        return git(self._suite, "cat-file", "-e", f"{commit}^{{commit}}") is not None

    def _is_ancestor(self, later: str, commit: str) -> bool:
        """Return whether a commit is ``later`` or one of its ancestors."""
        return bool(later) and git(self._suite, "merge-base", "--is-ancestor", commit, later) is not None

    def _overlap(self, own: "_Range", other: "_Range") -> bool:
        """Return whether two ranges share a commit: by git if it knows the commits, else by the order of the runs."""
        if own.bad and other.bad and self._knows(own.bad) and self._knows(other.bad):
            return not (self._descends(own.good, other.bad) or self._descends(other.good, own.bad))
        return max(own.before, other.before) < min(own.last, other.last)

    # --- the environment ---------------------------------------------------------------------------------------------

    def _changes_of_environment(self, suspect: Suspect) -> Sequence[str]:
        """Return what changed last in the environment since a suspect's baseline, if the suspect moved with it.

        A new toolkit is a cause of its own.
        """
        judged, case = suspect.judgement, _case_of(suspect.series)
        now = self._built(self._run).get(case)
        earlier = (run for run in self._commits if (judged.baseline_run or 0) < run < self._run)
        measured = (run for run in earlier if case in self._built(run))
        was_fast = False
        for run in (*islice(measured, LOOK_BACK), judged.baseline_run or 0):
            then = self._built(run).get(case) if run else None
            if then and now:
                environment = replace(then.environment, toolkit=now.environment.toolkit)
                if changes := environment.changes_to(now.environment):
                    return () if was_fast else changes
                was_fast = is_nearer(self._level(suspect.series, run), judged.baseline_s, judged.candidate_s)
        return ()

    def _used(self, suspect: Suspect) -> tuple[CaseBinary | None, CaseBinary | None]:
        """Return what the suspect's case used in the baseline's run and in the suspect's run."""
        case, baseline_run = _case_of(suspect.series), suspect.judgement.baseline_run
        before = None if baseline_run is None else self._built(baseline_run).get(case)
        after = self._built(self._run).get(case)
        return before, after


@dataclass(frozen=True, slots=True)
class _Range:
    """Commits that changed the code of a case: those after ``good``, up to ``bad``.

    Attributes:
        before: the first run that measured ``good``; 0 if none did.
        last: the first run that measured ``bad``; a huge number if no run up to the present one did.
    """

    before: int
    last: int
    good: str = ""
    bad: str = ""


def _without_device(series: Series, direction: Direction) -> tuple[Case, str, CacheState, Direction]:
    """Return what is equal for one change of a case on several devices."""
    return series.case, series.metric, series.cache, direction


def _case_of(series: Series) -> CaseKey:
    return series.device, series.case, series.cache
