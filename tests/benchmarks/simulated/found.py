"""What was found of all that was planted, and what of nothing."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from simulated.planted import Plan, Planted
from workbench import Claim

from perfsvc.model import Finding, Series, Verdict
from perfsvc.store import Store

AFTERMATH = 14
"""Nights for which something that is to have no finding is watched: a history may raise an alert that late."""


@dataclass(frozen=True)
class Outcome:
    """What was found of one thing that was planted.

    Attributes:
        findings: those that answer it; of what is to have none, those of nothing that tell of its cases soon after.
        missing: cases that none of them tells of, or that no verdict took for improved.
    """

    planted: Planted
    findings: tuple[Finding, ...]
    missing: frozenset[str] = frozenset()

    @property
    def cases(self) -> frozenset[str]:
        """The cases that its findings tell of."""
        return frozenset().union(*map(cases_of, self.findings))

    @property
    def beside(self) -> int | None:
        """How many findings it has beside the one that it is to have, if any; None where that one is missing."""
        if self.planted.expected is None:
            return len(self.findings)
        return len(self.findings) - 1 if self.findings else None

    @property
    def back(self) -> tuple[int | None, ...]:
        """The nights on which its cases were back, None for those that were not."""
        found = {each.recovered_run for one in self.findings for each in one.moved}
        return tuple(sorted(found, key=lambda night: night or 0))

    @property
    def otherwise(self) -> int:
        """How many nights its cases were back on that none of them was to be; None counts as one."""
        return len(set(self.back) - {self.planted.expected.back}) if self.planted.expected else 0

    @property
    def unended(self) -> int:
        """How many of its findings did not end as they were to."""
        expected = self.planted.expected
        return sum(one.state is not expected.state for one in self.findings) if expected else 0

    @property
    def exact(self) -> bool:
        """Whether just what was planted was found."""
        return self.beside == 0 and not (self.missing or self.otherwise or self.unended)


def read(store: Store, plan: Plan) -> tuple[list[Outcome], list[Finding]]:
    """What was found of each thing planted, and what of nothing; a run's number is its night's."""
    found = store.findings.all()
    improved = {one.night: improved_on(store, one.night) for one in plan.planted if one.improves}
    return outcomes(plan, found, improved), unplanted(plan, found)


def outcomes(plan: Plan, found: Sequence[Finding], improved: Mapping[int, AbstractSet[str]]) -> list[Outcome]:
    """What was found of each thing planted.

    Args:
        plan: all that was.
        found: all findings, whatever became of them.
        improved: by night, the cases that its verdicts took for improved.
    """
    of_nothing = unplanted(plan, found)
    told = []
    for planted in plan.planted:
        if planted.expected is None:
            later = tuple(one for one in of_nothing if _is_aftermath(planted, one))
            missed = plan.moved(planted) - improved[planted.night] if planted.improves else set()
            told.append(Outcome(planted, later, frozenset(missed)))
        else:
            of_it = tuple(one for one in found if answers(plan, planted, one))
            missed = plan.moved(planted).difference(*map(cases_of, of_it))
            told.append(Outcome(planted, of_it, frozenset(missed)))
    return told


def unplanted(plan: Plan, found: Sequence[Finding]) -> list[Finding]:
    """The findings that answer nothing that was planted."""
    return [one for one in found if not any(answers(plan, planted, one) for planted in plan.planted)]


def answers(plan: Plan, planted: Planted, found: Finding) -> bool:
    """Whether a finding is a planted one: cause, direction and cases, at its time."""
    expected = planted.expected
    if expected is None:
        return False
    directions = {one.direction for one in found.moved}
    return (
        (found.cause, directions) == (expected.cause, {expected.direction})
        and cases_of(found) <= plan.moved(planted)
        and planted.night <= found.first_run < planted.night + expected.delay
    )


def _is_aftermath(planted: Planted, found: Finding) -> bool:
    soon = planted.night <= found.first_run <= planted.night + AFTERMATH
    return soon and any(planted.touches(case) for case in cases_of(found))


def cases_of(found: Finding) -> frozenset[str]:
    """The cases that a finding moved, each by its benchmark and variant."""
    return frozenset(_case(one.series) for one in found.moved)


def improved_on(store: Store, night: int) -> frozenset[str]:
    """The cases that a night called improved."""
    return frozenset(_case(one.series) for one in store.verdicts.of_run(night) if one.verdict is Verdict.IMPROVEMENT)


def _case(series: Series) -> str:
    return f"{series.case.benchmark}/{series.case.variant}"


# --- what is said of it ----------------------------------------------------------------------------------------------


def claims_of(told: Sequence[Outcome], of_nothing: Sequence[Finding]) -> list[Claim]:
    """That just what was planted was found."""
    return [*(claim for one in told for claim in _claims(one)), Claim("findings of nothing", len(of_nothing), 0)]


def _claims(one: Outcome) -> list[Claim]:
    planted, expected = one.planted, one.planted.expected
    if expected is None:
        missed = [Claim(f"{planted.name}: cases that no verdict took", len(one.missing), 0)] if planted.improves else []
        return [Claim(f"{planted.name}: findings raised of it", one.beside, 0), *missed]
    claims = [
        Claim(f"{planted.name}: findings beside the one", one.beside, 0),
        Claim(f"{planted.name}: cases that are missing", len(one.missing), 0),
        Claim(f"{planted.name}: findings that are not {expected.state}", one.unended, 0),
    ]
    if expected.back:
        what = f"{planted.name}: other nights of recovery than {expected.back}"
        claims.append(Claim(what, one.otherwise if one.findings else None, 0))
    return claims


OUTCOMES = ("planted", "night", "cases", "finding", "raised", "told", "missing", "beside", "back", "state", "exact")
"""The headings of ``rows_of``."""


def rows_of(plan: Plan, told: Sequence[Outcome]) -> list[list[str]]:
    """A row for each thing planted, with what was found of it."""
    return [_row(plan, one) for one in told]


def _row(plan: Plan, one: Outcome) -> list[str]:
    planted = one.planted
    none = "improved" if planted.improves and not one.missing else "none"
    return [
        planted.name,
        str(planted.night),
        str(len(plan.moved(planted))),
        ", ".join(f"{each.id} {each.cause}" for each in one.findings) or none,
        _listed(each.first_run for each in one.findings),
        str(len(one.cases)),
        str(len(one.missing)),
        "one missing" if one.beside is None else str(one.beside),
        _listed(night or "not" for night in one.back) if planted.expected and planted.expected.back else "-",
        _listed(each.state for each in one.findings),
        "yes" if one.exact else "NO",
    ]


def _listed(words: Iterable[object]) -> str:
    return ", ".join(map(str, words)) or "-"
