"""Random nights of one case: its findings are those that a naive reading of the rules page expects.

The times are exact and far apart, so that every change is large. A/B pairs are off.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log

import pytest

from perfsvc.model import Direction, Status
from perfsvc.service.findings.update import update_findings

NIGHTS = 12

EVENTS = ["quiet"] * 6 + ["other code", "slower code", "slower code", "good code", "wrong code"]
EVENTS += ["other driver", "slower driver", "good driver"]


@dataclass
class Night:
    """A night by its code, its driver and the time of the case; the time is None if the result is wrong."""

    code: int
    driver: int
    level: float | None


@dataclass
class Step:
    """A slowdown by nights: the level before, the newest that shows it, and the level that the next step exceeds."""

    old: int
    new: int
    level: int
    cause: str
    number: int = 1


def drawn(seed: int) -> list[Night]:
    """Return nights in which the code or the driver may change."""
    rng = random.Random(seed)
    nights: list[Night] = []
    number = {"code": 0, "driver": 0}
    factor = {"code": 1.0, "driver": 1.0}
    wrong = False
    for _ in range(NIGHTS):
        how, _, what = rng.choice(EVENTS).partition(" ")
        if what:
            number[what] += 1
            factor[what] *= {"slower": 1.6, "good": 1 / factor[what]}.get(how, 1.0)
        if what == "code":
            wrong = how == "wrong"
        nights.append(Night(**number, level=None if wrong else factor["code"] * factor["driver"]))
    return nights


class RulesPage:
    """The findings of one case by docs/explanation/findings.md."""

    def __init__(self) -> None:
        self.nights: list[Night] = []
        self.steps: list[Step] = []
        self.against: dict[int, int] = {}
        self.accepted = 0

    def level(self, night: int) -> float:
        level = self.nights[night].level
        assert level is not None
        return level

    def slower(self, night: int, than: int) -> bool:
        return self.level(night) > 1.01 * self.level(than)

    def cause(self, night: int, than: int) -> str:
        new, old = self.nights[night], self.nights[than]
        return "code" if new.code != old.code else "driver" if new.driver != old.driver else ""

    def add(self, night: Night) -> None:
        tonight = len(self.nights)
        self.nights.append(night)
        correct = [number for number in range(tonight) if self.nights[number].level is not None]
        if night.level is None:
            return
        if not correct:
            self.accepted = tonight
            return
        before = correct[-1]
        baseline = self.against[tonight] = self.baseline(tonight, correct)
        self.steps = [step for step in self.steps if not self.has_recovered(step, tonight)]
        last = self.steps[-1] if self.steps else None
        old = self.old_of_two_nights(before, tonight)
        if last and self.slower(tonight, last.level):
            if before > last.level and self.slower(before, last.level):
                last.new = min(last.new, last.level)
                self.steps.append(Step(last.level, tonight, tonight, self.cause(tonight, last.level), last.number + 1))
        elif old is not None and last:
            last.new = tonight
            last.level = tonight if self.slower(last.level, tonight) else last.level
        elif old is not None:
            self.steps.append(Step(old, tonight, tonight, self.cause(tonight, old)))
        if self.slower(baseline, tonight) and self.cause(tonight, baseline) == "code":
            self.accepted = tonight

    def baseline(self, tonight: int, correct: Sequence[int]) -> int:
        """The last accepted level, or the first one since the driver changed if that is newer."""
        others = [number for number in range(tonight) if self.nights[number].driver != self.nights[tonight].driver]
        changed = max(others, default=-1)
        if self.accepted > changed:
            return self.accepted
        return next((number for number in correct if number > changed), self.accepted)

    def old_of_two_nights(self, before: int, tonight: int) -> int | None:
        """The baseline of the night before, if both nights are slower by one cause; else None."""
        old = self.against.get(before)
        if old is None or not self.slower(before, old) or not self.slower(tonight, old):
            return None
        then, now = self.cause(before, old), self.cause(tonight, old)
        also_slows_new_code = then == "driver" and not self.slower(tonight, self.against[tonight])
        return old if also_slows_new_code or (then == "code") == (now == "code") else None

    def has_recovered(self, step: Step, tonight: int) -> bool:
        now, old, new = (self.level(night) for night in (tonight, step.old, step.new))
        if abs(log(now / old)) >= abs(log(now / new)):
            return False
        compared = self.against[tonight] if step.number == 1 else step.old
        if self.slower(tonight, compared):
            return self.cause(tonight, compared) not in {"code", step.cause}
        return compared == step.old or now / old < 1.08

    @property
    def shown(self) -> tuple[set[tuple[str, str]], bool]:
        """The levels before and after each slowdown, and whether the case is without a correct result."""
        levels = {(f"{self.level(step.old):.3g}", f"{self.level(step.new):.3g}") for step in self.steps}
        return levels, self.nights[-1].level is None


def found(story, nights: Sequence[Night]) -> Iterator[tuple[set[tuple[str, str]], bool]]:
    """Live the nights; yield after each what perfsvc has found, as ``RulesPage.shown``."""
    for night in nights:
        here = replace(story, environment=replace(story.environment, driver=f"{500 + night.driver}.1"))
        run = story.begin(scope="all", commit=f"{night.code:09d}")
        code = f"code {night.code}".encode()
        wrong = {"status": Status.WRONG, "reason": "wrong result"} if night.level is None else {}
        here.put_replicas(run, story.tiled, 1e-4 * (night.level or 1), binary=story.binary(story.tiled, code), **wrong)
        story.end_and_judge(run)
        update_findings(story.store, run)
        standing = [moved for finding in story.store.findings.active() for moved in finding.standing]
        slower = [moved for moved in standing if moved.direction is Direction.SLOWER]
        levels = {(f"{1e4 * moved.baseline_s:.3g}", f"{1e4 * moved.candidate_s:.3g}") for moved in slower}
        yield levels, len(slower) < len(standing)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_the_findings_of_random_nights_are_those_of_the_rules_page(story, seed):
    page, nights = RulesPage(), drawn(seed)
    for count, (night, shown) in enumerate(zip(nights, found(story, nights), strict=True), start=1):
        page.add(night)
        assert shown == page.shown, nights[:count]
