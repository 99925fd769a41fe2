"""The search for the commit that moved a case, among those at which it was built; measuring is somebody else's."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from perfsvc import judge, units
from perfsvc.errors import CaseError
from perfsvc.judge import Comparison
from perfsvc.model import Bisection, Commit, SkippedCommit, Trial, Verdict
from perfsvc.report.turns import moved_word
from perfsvc.service.bisect.builds import Built, Code, Rebuilt, Unbuilt
from perfsvc.service.bisect.halving import Left, Standing, narrow
from perfsvc.service.confirm.pairs import Turns
from perfsvc.service.progress import Progress


class Measure(Protocol):
    """Measures two builds of a case in turn (``perfsvc.service.confirm.pairs``)."""

    def __call__(self, sides: tuple[Built, Built], *, threshold: float, enough: Callable[[Comparison], bool]) -> Turns:
        """Until a look is enough, a side has no right result, or there is no more time."""
        ...


class Search:
    """Finds the first commit at which a case is as at the bad one and not as at the good one.

    A commit is measured in turn with the good one; commits of one code are measured once, and not at all where it is
    the code of the good or the bad one.

    Args:
        asked: what is known beforehand.
        commits: from the good one to the bad one, parents before children; the case is built at both.
        rebuilt: the case at each of them.
        measure: two of them in turn.
        progress: is told how far it is.
    """

    def __init__(
        self, asked: Bisection, commits: Sequence[Commit], rebuilt: Rebuilt, measure: Measure, progress: Progress
    ) -> None:
        self._asked = asked
        self._commits = {commit.hash: commit for commit in commits}
        self._built = {name: one for name, one in rebuilt.at.items() if isinstance(one, Built)}
        self._reasons = {name: one.reason for name, one in rebuilt.at.items() if isinstance(one, Unbuilt)}
        self._measure = measure
        self._progress = progress
        self._trials: dict[tuple[Code, Code], Trial] = {}
        self._standings: dict[Code, Standing] = {}

    def answer(self) -> Bisection:
        """Measures until the commit is known.

        Raises:
            CaseError: the case has no right result at the good or the bad commit.
            NoDeviceError: the device cannot be opened.
        """
        good, bad = self._asked.good, self._asked.bad
        if self._code(good) == self._code(bad):
            return self._concluded(Verdict.UNCHANGED, "both commits have the same code: there is nothing to measure")
        self._progress.say(f"measuring {bad} and {good} in turn")
        total = self._trial(good, bad, self._asked.threshold, _is_told)
        if total.verdict is None:
            raise CaseError(total.reason, cure="name commits at which the case has a right result")
        if total.verdict not in judge.MOVES or total.ratio is None:
            return self._concluded(total.verdict, _unmoved(total))
        limit = judge.midpoint(total.ratio)
        relevant = min(self._asked.threshold, math.expm1(abs(math.log(limit))))
        self._asked = replace(self._asked, verdict=total.verdict, boundary=limit)
        return self._named(self._halved(limit, relevant), relevant, total)

    def _halved(self, limit: float, relevant: float) -> Left:
        """Asks one commit after the other, until there is none left to ask."""
        self._standings = {self._code(self._asked.good): Standing.GOOD, self._code(self._asked.bad): Standing.BAD}
        history = {name: one.parents for name, one in self._commits.items() if name != self._asked.good.hash}
        unchanged = {name for name, parents in history.items() if any(self._same(name, parent) for parent in parents)}
        while (left := narrow(history, self._known(), unchanged)).ask is not None:
            asked, suspects = self._commits[left.ask], units.count(len(left.suspects), "suspect")
            self._progress.say(f"{suspects} left: measuring {asked} and the good commit in turn")
            self._ask(asked, limit, relevant)
        return left

    def _ask(self, commit: Commit, limit: float, relevant: float) -> None:
        """Measures a commit in turn with the good one.

        What lies neither beyond the boundary nor short of it may be a level in between, of a change in two steps: if it
        is not the good one's, it moved.
        """
        trial = self._trial(
            self._asked.good, commit, relevant, lambda found: judge.is_beyond(found.low, found.high, limit) is not None
        )
        moved, code = judge.is_beyond(trial.low, trial.high, limit), self._code(commit)
        if moved is None and trial.verdict is self._asked.verdict:
            moved = True
        self._standings[code] = {True: Standing.BAD, False: Standing.GOOD, None: Standing.SKIPPED}[moved]
        if moved is None:
            self._reasons |= {name: trial.reason for name, one in self._built.items() if one.code == code}

    def _known(self) -> dict[str, Standing]:
        """Where each commit stands of which that is known."""
        built = {name: self._standings[one.code] for name, one in self._built.items() if one.code in self._standings}
        return dict.fromkeys(self._commits.keys() - self._built.keys(), Standing.SKIPPED) | built

    def _same(self, name: str, other: str) -> bool:
        one, another = self._built.get(name), self._built.get(other)
        return one is not None and another is not None and one.code == another.code

    def _code(self, commit: Commit) -> Code:
        return self._built[commit.hash].code

    def _trial(self, before: Commit, after: Commit, threshold: float, enough: Callable[[Comparison], bool]) -> Trial:
        """Measures two commits in turn, unless their codes were measured so before."""
        codes = self._code(before), self._code(after)
        if codes not in self._trials:
            sides = self._built[before.hash], self._built[after.hash]
            turns = self._measure(sides, threshold=threshold, enough=enough)
            self._trials[codes] = _trial(before, after, turns, self._asked.metric)
            self._progress.step(after.short)
        return self._trials[codes]

    def _named(self, left: Left, relevant: float, total: Trial) -> Bisection:
        """The answer: what is left, and what that does beside the good commit below it."""
        first = self._commits[left.first]
        below = self._asked.good if left.below is None else self._commits[left.below]
        proof = self._trial(below, first, relevant, _is_told)
        proof = replace(proof, before=below, after=first)  # of the same codes, maybe measured at other commits
        return replace(
            self._concluded(self._asked.verdict, _reason(proof, total, len(left.suspects), self._asked.metric)),
            culprits=tuple(self._commits[name] for name in left.suspects),
            proof=proof,
            changed=_changed(self._code(below), self._code(first)),
        )

    def _concluded(self, verdict: Verdict, reason: str) -> Bisection:
        skipped = [
            SkippedCommit(one, self._reasons[name]) for name, one in self._commits.items() if name in self._reasons
        ]
        codes = len({one.code for one in self._built.values()})
        return replace(
            self._asked,
            verdict=verdict,
            reason=reason,
            codes=codes,
            trials=tuple(self._trials.values()),
            skipped=tuple(skipped),
        )


def _is_told(found: Comparison) -> bool:
    return found.verdict is not Verdict.INCONCLUSIVE


def _trial(before: Commit, after: Commit, turns: Turns, metric: str) -> Trial:
    measured = Trial(before, after, looks=turns.looks, baseline=tuple(turns.baseline), candidate=tuple(turns.candidate))
    side, why = turns.fault
    if side:
        commit = {"baseline": before, "candidate": after}[side]
        return replace(measured, reason=f"at {commit.short} it has no right result: {why}")
    for commit, measurements in ((before, turns.baseline), (after, turns.candidate)):
        if not all(one.values_of(metric) for one in measurements):
            return replace(measured, reason=f"at {commit.short} it has no {metric}")
    found = turns.found
    if found is None:
        few = f"the budget ended after {turns.pairs} pairs, too few to tell"
        return replace(measured, verdict=Verdict.INCONCLUSIVE, reason=few)
    return replace(
        measured, verdict=found.verdict, reason=found.reason, ratio=found.ratio, low=found.low, high=found.high
    )


def _changed(before: Code, after: Code) -> tuple[str, ...]:
    """What is different between two codes of a case."""
    (old, old_modules), (new, new_modules) = before, after
    parts = {
        "binary": old_modules != new_modules,
        "launch": replace(old, bench="") != replace(new, bench=""),
        "benchmark file": old.bench != new.bench,
    }
    return tuple(part for part, differs in parts.items() if differs)


def _unmoved(total: Trial) -> str:
    if total.verdict is Verdict.UNCHANGED and total.ratio is not None:
        return f"the case did not move between the two commits: {units.percent(total.ratio)}, {total.reason}"
    return f"it cannot be told whether the case moved between the two commits: {total.reason}"


def _reason(proof: Trial, total: Trial, suspects: int, metric: str) -> str:
    """What the commits that are left do, beside the good one below them."""
    if suspects > 1:
        return f"one of {suspects} commits, which cannot be told apart: all but the last were skipped"
    if proof.verdict is None or proof.ratio is None:
        return f"like the bad commit, but beside {proof.before.short} nothing is known: {proof.reason}"
    if proof.verdict is not total.verdict:
        alone = f"beside {proof.before.short} below it, it moves the case by {units.percent(proof.ratio)} alone"
        return f"the first that is like the bad commit, but {alone}: the change may have come in several small ones"
    change = f"{units.change(abs(proof.ratio - 1))} {moved_word(metric, proof.ratio)}"
    told = f"beside the commit below it, {proof.before.short}, it is {change}"
    return f"{told}; there is more to the change: look for the rest from here on" if _is_part(proof, total) else told


def _is_part(proof: Trial, total: Trial) -> bool:
    """Whether a commit moved the case by less than it moved in all, as far as intervals tell."""
    if None in {proof.low, proof.high, total.low, total.high} or proof.ratio is None:
        return False
    return proof.high < total.low if proof.ratio > 1 else proof.low > total.high  # type: ignore[operator] # none is None
