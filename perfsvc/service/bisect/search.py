"""Search the commit that moved or broke a case, among the commits at which it was built."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import reduce
from operator import or_
from typing import Protocol

from perfsvc import judge, units
from perfsvc.errors import CaseError, UnsupportedError
from perfsvc.judge import Comparison
from perfsvc.model import Bisection, Commit, Measurement, SkippedCommit, Status, Trial, Verdict
from perfsvc.report.wording import direction_word
from perfsvc.service.bisect.builds import BuildFailure, Builds, Code, CommitBuild
from perfsvc.service.confirm.pairs import PairResults
from perfsvc.service.progress import Progress


class CommitState(Enum):
    """What is known of a commit."""

    GOOD = auto()
    BAD = auto()
    SKIPPED = auto()


@dataclass(frozen=True, slots=True)
class Remaining:
    """What remains of a history; commits are given by their names.

    Attributes:
        first: the oldest commit known to be bad so far.
        below: the newest good ancestor of ``first``; None for the good commit that the history began with.
        suspects: the commits that may be the first bad one, oldest first; ``first`` is among them.
        ask: the suspect to measure next: good or bad, it rules out about half of the suspects. None if all suspects
            but ``first`` are skipped, so that no measurement helps.
    """

    first: str
    below: str | None
    suspects: tuple[str, ...]
    ask: str | None


def narrow(
    history: Mapping[str, Sequence[str]], states: Mapping[str, CommitState], unchanged: Collection[str]
) -> Remaining:
    """Return the commits that are still suspects, and the commit to measure next.

    A good commit clears all its ancestors, so if the case moved back and forth, the newest change counts. A bad commit
    clears every commit that is not its ancestor. A commit with the code of one of its parents changed nothing.

    Args:
        history: the parents of each commit between a good one (not included) and a bad one, parents before children;
            parents outside the history are ignored.
        states: which commits are good, bad or skipped, as far as known; the last commit of the history is bad.
        unchanged: commits that cannot be the first bad one because a parent has the same code.

    Source:
        ``git bisect`` chooses the same way: it takes the commit that has half of the suspects among its ancestors, so
        that about half are removed, whether the commit is good or bad (C. Couder, Fighting regressions with git bisect,
        2009).
    """
    # A set of commits is an integer with one bit for each commit.
    bit = {name: 1 << place for place, name in enumerate(history)}
    ancestors: dict[str, int] = {}
    for name, parents in history.items():
        ancestors[name] = reduce(or_, (ancestors.get(parent, 0) for parent in parents), bit[name])
    known = {state: [name for name in history if states.get(name) is state] for state in CommitState}
    cleared = reduce(or_, (ancestors[name] for name in known[CommitState.GOOD]), 0)
    bad = [name for name in known[CommitState.BAD] if not bit[name] & cleared]
    first = min(bad, key=lambda name: (ancestors[name] & ~cleared).bit_count())
    changing = reduce(or_, (bit[name] for name in history if name not in unchanged), bit[first])
    suspected = ancestors[first] & ~cleared & changing
    suspects = tuple(name for name in history if bit[name] & suspected)

    def halves(name: str) -> int:
        """Return how many suspects are removed at least, whether a commit turns out good or bad."""
        older = (ancestors[name] & suspected).bit_count()
        return min(older, len(suspects) - older)

    good = [name for name in known[CommitState.GOOD] if bit[name] & ancestors[first]]
    ask = max((name for name in suspects if name not in states), key=halves, default=None)
    return Remaining(first, good[-1] if good else None, suspects, ask)


class MeasureBuilds(Protocol):
    """Measures two builds of a case in A/B pairs (``perfsvc.service.confirm.pairs``)."""

    def __call__(
        self, sides: tuple[CommitBuild, CommitBuild], *, threshold: float, enough: Callable[[Comparison], bool]
    ) -> PairResults:
        """Measure until ``enough`` accepts a comparison, a side has no correct result, or the budget ends."""
        ...


class Search:
    """Finds the first commit at which a case is as slow or as fast as at the bad commit, not as at the good one.

    Each commit is measured in A/B pairs with the good one. Commits with the same code are measured once, and not at all
    if they have the code of the good or the bad commit.

    If the case has no correct result at the bad commit, the search is for the first commit at which it has none. One
    process then checks each code, and no times are compared. A commit at which the case cannot be built counts as bad
    if the case cannot be built at the bad commit either; otherwise it is skipped.

    Args:
        asked: the bisection before any measurement.
        commits: from the good one to the bad one, parents before children; the case is built at the good one.
        builds: the case at each commit.
        measure: measures two builds.
        check: measures a build in one process, which checks its results.
        progress: receives messages and the number of steps done.
    """

    def __init__(
        self,
        asked: Bisection,
        commits: Sequence[Commit],
        builds: Builds,
        measure: MeasureBuilds,
        check: Callable[[CommitBuild], Measurement],
        *,
        progress: Progress,
    ) -> None:
        self._asked = asked
        self._commits = {commit.hash: commit for commit in commits}
        self._builds = {name: build for name, build in builds.at.items() if isinstance(build, CommitBuild)}
        self._failures = {name: build for name, build in builds.at.items() if isinstance(build, BuildFailure)}
        self._reasons = {name: failure.reason for name, failure in self._failures.items()}
        self._unbuilt = dict.fromkeys(self._failures, CommitState.SKIPPED)
        self._measure = measure
        self._check = check
        self._progress = progress
        self._trials: dict[tuple[Code, Code], Trial] = {}
        self._states: dict[Code, CommitState] = {}

    def answer(self) -> Bisection:
        """Measure until the commit that moved or broke the case is known, and return the finished bisection.

        Raises:
            CaseError: the case has no correct result at the good commit, or lacks the metric at one of the two, or the
                device cannot run it at the bad commit.
            NoDeviceError: the device cannot be opened.
        """
        good, bad = self._asked.good, self._asked.bad
        if bad.hash in self._failures:
            return self._broken(Trial(good, bad))
        if self._code(good) == self._code(bad):
            return self._concluded(Verdict.UNCHANGED, "both commits have the same code: there is nothing to measure")
        self._progress.report(f"measuring {bad} and {good}")
        total = self._trial(good, bad, self._asked.threshold, _is_conclusive)
        if total.verdict is None:
            return self._broken(total)
        if total.verdict not in judge.MOVES or total.ratio is None:
            return self._concluded(total.verdict, _unmoved(total))
        boundary = judge.midpoint(total.ratio)
        threshold = min(self._asked.threshold, math.expm1(abs(math.log(boundary))))
        self._asked = replace(self._asked, verdict=total.verdict, boundary=boundary)
        self._states = {self._code(good): CommitState.GOOD, self._code(bad): CommitState.BAD}
        remaining = self._halved(
            lambda commit: self._measure_commit(commit, boundary, threshold),
            "measuring {} and the good commit in A/B pairs",
        )
        below, first = self._ends(remaining)
        proof = self._trial(below, first, threshold, _is_conclusive)
        proof = replace(proof, before=below, after=first)  # the same codes may have been measured at other commits
        return self._named(remaining, proof, _reason(proof, total, len(remaining.suspects), self._asked.metric))

    def _broken(self, total: Trial) -> Bisection:
        """Search the first commit at which the case has no correct result, with one process for each code.

        Args:
            total: the A/B pairs of the good and the bad commit that ended early; without measurements if the case
                cannot be built at the bad commit.
        """
        good, bad = self._asked.good, self._asked.bad
        self._trials.clear()
        if bad.hash in self._failures:
            self._unbuilt |= {
                name: CommitState.BAD
                for name, failure in self._failures.items()
                if not isinstance(failure.error, UnsupportedError)
            }
        for commit, runs in ((good, total.baseline), (bad, total.candidate)):
            if runs:
                self._note(commit, max(runs, key=lambda run: run.status.severity))
        if not total.baseline:
            self._check_commit(good)
        states = self._known_states()
        for commit, wanted in ((good, CommitState.GOOD), (bad, CommitState.BAD)):
            if states.get(commit.hash) is not wanted:
                why, which = self._reasons.get(commit.hash), wanted.name.lower()
                what = f"at the {which} commit, {commit.short}, the case has no correct result: {why}"
                cure = "name a good commit with a correct result, and a later one at which the case is slower or broken"
                raise CaseError(what if why else total.reason, cure=cure)
        self._asked = replace(self._asked, verdict=Verdict.BROKEN)
        remaining = self._halved(self._check_commit, "checking {}")
        below, first = self._ends(remaining)
        why = " ".join(self._reasons[first.hash].splitlines()[:2])
        reason = f"{why}; at {below.short} below it, the result is correct"
        if len(remaining.suspects) > 1:
            reason = f"{_one_of(len(remaining.suspects))}; at the last: {why}"
        return self._named(remaining, Trial(below, first, Verdict.BROKEN, why), reason)

    def _check_commit(self, commit: Commit) -> None:
        """Check the results of a commit in one process, and note whether it is good, bad or skipped."""
        self._note(commit, self._check(self._builds[commit.hash]))
        self._progress.step(commit.short)

    def _note(self, commit: Commit, run: Measurement) -> None:
        """Note that a commit is good if a process of it has a correct result, and bad if it has none."""
        states = {Status.OK: CommitState.GOOD, Status.SKIPPED: CommitState.SKIPPED}
        state = states.get(run.status, CommitState.BAD)
        verdict = {CommitState.GOOD: Verdict.UNCHANGED, CommitState.BAD: Verdict.BROKEN}.get(state)
        reason = "the result is correct" if run.status is Status.OK else run.reason
        good, code = self._asked.good, self._code(commit)
        self._trials[self._code(good), code] = Trial(good, commit, verdict, reason, candidate=(run,))
        self._decide(code, state, reason)

    def _halved(self, measure: Callable[[Commit], None], how: str) -> Remaining:
        """Measure commit after commit until no measurement can narrow the suspects; return the suspects that remain.

        Args:
            measure: measures a commit, and decides whether it is good, bad or skipped.
            how: what ``measure`` does with a commit, for the user who waits.
        """
        history = {name: commit.parents for name, commit in self._commits.items() if name != self._asked.good.hash}
        unchanged = {
            name for name, parents in history.items() if any(self._same_code(name, parent) for parent in parents)
        }
        while (remaining := narrow(history, self._known_states(), unchanged)).ask is not None:
            commit, suspects = self._commits[remaining.ask], units.count(len(remaining.suspects), "suspect")
            self._progress.report(f"{suspects} left: {how.format(commit)}")
            measure(commit)
        return remaining

    def _measure_commit(self, commit: Commit, boundary: float, threshold: float) -> None:
        """Measure a commit against the good one in A/B pairs, and note whether it is good, bad or skipped.

        If a change came in two steps, a commit between these steps may be neither clearly beyond the boundary nor
        clearly short of it. Such a commit counts as bad if it moved from the good commit in the same direction as the
        bad commit.

        Args:
            commit: the commit.
            boundary: the ratio to the good commit's time beyond which a commit counts as bad.
            threshold: the smallest relevant change, as a fraction.
        """
        trial = self._trial(
            self._asked.good,
            commit,
            threshold,
            lambda comparison: judge.is_beyond(comparison.low, comparison.high, boundary) is not None,
        )
        moved = judge.is_beyond(trial.low, trial.high, boundary)
        if moved is None and trial.verdict is self._asked.verdict:
            moved = True
        state = {True: CommitState.BAD, False: CommitState.GOOD, None: CommitState.SKIPPED}[moved]
        self._decide(self._code(commit), state, trial.reason)

    def _decide(self, code: Code, state: CommitState, reason: str) -> None:
        """Note the state of all commits with a code, and the reason unless they are good."""
        self._states[code] = state
        if state is not CommitState.GOOD:
            self._reasons |= {name: reason for name, build in self._builds.items() if build.code == code}

    def _known_states(self) -> dict[str, CommitState]:
        """Return the state of each commit whose state is known."""
        built = {name: self._states[build.code] for name, build in self._builds.items() if build.code in self._states}
        return self._unbuilt | built

    def _same_code(self, name: str, parent_name: str) -> bool:
        build, parent = self._builds.get(name), self._builds.get(parent_name)
        return build is not None and parent is not None and build.code == parent.code

    def _code(self, commit: Commit) -> Code:
        return self._builds[commit.hash].code

    def _trial(self, before: Commit, after: Commit, threshold: float, enough: Callable[[Comparison], bool]) -> Trial:
        """Return the trial of two commits; measure them in A/B pairs unless the same two codes were measured before."""
        codes = self._code(before), self._code(after)
        if codes not in self._trials:
            sides = self._builds[before.hash], self._builds[after.hash]
            results = self._measure(sides, threshold=threshold, enough=enough)
            self._trials[codes] = _trial(before, after, results, self._asked.metric)
            self._progress.step(after.short)
        return self._trials[codes]

    def _ends(self, remaining: Remaining) -> tuple[Commit, Commit]:
        """Return the newest good commit below the oldest bad one, and this bad one."""
        return self._commits[remaining.below or self._asked.good.hash], self._commits[remaining.first]

    def _named(self, remaining: Remaining, proof: Trial, reason: str) -> Bisection:
        """Return the finished bisection, with the remaining suspects as culprits."""
        before, after = self._builds[proof.before.hash], self._builds.get(proof.after.hash)
        return replace(
            self._concluded(self._asked.verdict, reason),
            culprits=tuple(self._commits[name] for name in remaining.suspects),
            proof=proof,
            changed=_changed(before.code, after.code) if after else (),
        )

    def _concluded(self, verdict: Verdict, reason: str) -> Bisection:
        """Return the bisection with a verdict and its reason, and with all trials and skipped commits so far."""
        states = self._known_states()
        skipped = [
            SkippedCommit(commit, self._reasons[name])
            for name, commit in self._commits.items()
            if states.get(name) is CommitState.SKIPPED
        ]
        return replace(
            self._asked,
            verdict=verdict,
            reason=reason,
            codes=len({build.code for build in self._builds.values()}),
            trials=tuple(self._trials.values()),
            skipped=tuple(skipped),
        )


def _is_conclusive(comparison: Comparison) -> bool:
    return comparison.verdict is not Verdict.INCONCLUSIVE


def _trial(before: Commit, after: Commit, results: PairResults, metric: str) -> Trial:
    """Return the measurements of two commits as a trial, with the verdict if there is one."""
    trial = Trial(
        before, after, looks=results.looks, baseline=tuple(results.baseline), candidate=tuple(results.candidate)
    )
    side, why = results.fault
    if side:
        commit = {"baseline": before, "candidate": after}[side]
        return replace(trial, reason=f"at {commit.short} the case has no correct result: {why}")
    for commit, runs in ((before, results.baseline), (after, results.candidate)):
        if not all(run.values_of(metric) for run in runs):
            return replace(trial, reason=f"at {commit.short} the case has no {metric}")
    comparison = results.comparison
    if comparison is None:
        reason = f"the budget ended after {results.pairs} pairs, too few to tell"
        return replace(trial, verdict=Verdict.INCONCLUSIVE, reason=reason)
    return replace(
        trial,
        verdict=comparison.verdict,
        reason=comparison.reason,
        ratio=comparison.ratio,
        low=comparison.low,
        high=comparison.high,
    )


def _changed(before: Code, after: Code) -> tuple[str, ...]:
    """Return which parts of a case differ between two commits' codes: binary, launch, benchmark file."""
    (old, old_modules), (new, new_modules) = before, after
    parts = {
        "binary": old_modules != new_modules,
        "launch": replace(old, bench="") != replace(new, bench=""),
        "benchmark file": old.bench != new.bench,
    }
    return tuple(part for part, differs in parts.items() if differs)


def _unmoved(total: Trial) -> str:
    """Return in words that the case did not move between the good and the bad commit, or that this is unknown."""
    if total.verdict is Verdict.UNCHANGED and total.ratio is not None:
        return f"the case did not move between the two commits: {units.percent(total.ratio)}, {total.reason}"
    return f"it is not known whether the case moved between the two commits: {total.reason}"


def _reason(proof: Trial, total: Trial, suspects: int, metric: str) -> str:
    """Return in words why the remaining commits are the answer, and how much they moved the case.

    Args:
        proof: the oldest bad commit against the newest good commit before it.
        total: the bad commit against the good commit of the whole history.
        suspects: how many commits remain.
        metric: what was compared.
    """
    if suspects > 1:
        return _one_of(suspects)
    if proof.verdict is None or proof.ratio is None:
        return f"like the bad commit, but whether it differs from {proof.before.short} is unclear: {proof.reason}"
    if proof.verdict is not total.verdict:
        alone = f"compared with {proof.before.short} below it, the case moves only {units.percent(proof.ratio)}"
        return f"the first that is like the bad commit, but {alone}: the change may be the sum of several small changes"
    change = f"{units.change(abs(proof.ratio - 1))} {direction_word(metric, proof.ratio)}"
    reason = f"compared with the commit below it, {proof.before.short}, the case is {change}"
    return f"{reason}; this is a part of the change: bisect again for the rest" if _is_part(proof, total) else reason


def _one_of(suspects: int) -> str:
    return f"one of {suspects} commits, which cannot be told apart: all but the last were skipped"


def _is_part(proof: Trial, total: Trial) -> bool:
    """Return whether one commit (``proof``) moved the case by clearly less than the whole history (``total``) did."""
    if None in {proof.low, proof.high, total.low, total.high} or proof.ratio is None:
        return False
    return proof.high < total.low if proof.ratio > 1 else proof.low > total.high  # type: ignore[operator] # none is None
