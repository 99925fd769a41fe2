"""Compare the findings with what was planted."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from simulated.planted import Plan, Planted
from workbench import Claim

from perfsvc.model import Finding, Series, Verdict
from perfsvc.store import Store

AFTERMATH = 14
"""For so many nights a planted thing that must have no finding may raise none: alerts of histories may be late."""


@dataclass(frozen=True)
class Outcome:
    """The findings of one planted thing.

    Attributes:
        findings: those that match it; if it must have none, the unplanted findings that have its cases soon after.
        missing: its cases that no finding has, or that no verdict called improved.
    """

    planted: Planted
    findings: tuple[Finding, ...]
    missing: frozenset[str] = frozenset()

    @property
    def cases(self) -> frozenset[str]:
        """The cases of its findings."""
        return frozenset().union(*map(cases_of, self.findings))

    @property
    def too_many(self) -> int | None:
        """How many findings it has too many; None if its finding is missing."""
        if self.planted.expected is None:
            return len(self.findings)
        return len(self.findings) - 1 if self.findings else None

    @property
    def back(self) -> tuple[int | None, ...]:
        """The nights on which its cases were back, None for cases that were not."""
        found = {moved.recovered_run for finding in self.findings for moved in finding.moved}
        return tuple(sorted(found, key=lambda night: night or 0))

    @property
    def wrong_nights(self) -> int:
        """On how many wrong nights its cases were back; None counts as one."""
        return len(set(self.back) - {self.planted.expected.back}) if self.planted.expected else 0

    @property
    def wrong_states(self) -> int:
        """How many of its findings did not end in the expected state."""
        expected = self.planted.expected
        return sum(finding.state is not expected.state for finding in self.findings) if expected else 0

    @property
    def exact(self) -> bool:
        """Whether exactly what was planted was found."""
        return self.too_many == 0 and not (self.missing or self.wrong_nights or self.wrong_states)


def read(store: Store, plan: Plan) -> tuple[list[Outcome], list[Finding]]:
    """Return the outcome of each planted thing, and the unplanted findings; a run's number is its night's."""
    found = store.findings.all()
    improved = {planted.night: improved_on(store, planted.night) for planted in plan.planted if planted.improves}
    return outcomes(plan, found, improved), unplanted(plan, found)


def outcomes(plan: Plan, found: Sequence[Finding], improved: Mapping[int, AbstractSet[str]]) -> list[Outcome]:
    """Return the outcome of each planted thing.

    Args:
        plan: the plan of the nights.
        found: all findings, whatever their state.
        improved: by night, the cases that its verdicts called improved.
    """
    unplanted_findings = unplanted(plan, found)
    results = []
    for planted in plan.planted:
        if planted.expected is None:
            later = tuple(finding for finding in unplanted_findings if _is_aftermath(planted, finding))
            missed = plan.moved(planted) - improved[planted.night] if planted.improves else set()
            results.append(Outcome(planted, later, frozenset(missed)))
        else:
            matching = tuple(finding for finding in found if answers(plan, planted, finding))
            missed = plan.moved(planted).difference(*map(cases_of, matching))
            results.append(Outcome(planted, matching, frozenset(missed)))
    return results


def unplanted(plan: Plan, found: Sequence[Finding]) -> list[Finding]:
    """Return the findings that match nothing that was planted."""
    return [finding for finding in found if not any(answers(plan, planted, finding) for planted in plan.planted)]


def answers(plan: Plan, planted: Planted, found: Finding) -> bool:
    """Return whether a finding matches a planted thing: cause, direction, cases and time."""
    expected = planted.expected
    if expected is None:
        return False
    directions = {moved.direction for moved in found.moved}
    return (
        (found.cause, directions) == (expected.cause, {expected.direction})
        and cases_of(found) <= plan.moved(planted)
        and planted.night <= found.first_run < planted.night + expected.delay
    )


def _is_aftermath(planted: Planted, found: Finding) -> bool:
    soon = planted.night <= found.first_run <= planted.night + AFTERMATH
    return soon and any(planted.touches(case) for case in cases_of(found))


def cases_of(found: Finding) -> frozenset[str]:
    """Return the cases of a finding, each by its benchmark and variant."""
    return frozenset(_case(moved.series) for moved in found.moved)


def improved_on(store: Store, night: int) -> frozenset[str]:
    """Return the cases that a night called improved."""
    return frozenset(
        _case(judgement.series)
        for judgement in store.verdicts.of_run(night)
        if judgement.verdict is Verdict.IMPROVEMENT
    )


def _case(series: Series) -> str:
    return f"{series.case.benchmark}/{series.case.variant}"


# --- tables and claims -----------------------------------------------------------------------------------------------


def claims_of(outcomes: Sequence[Outcome], unplanted_findings: Sequence[Finding]) -> list[Claim]:
    """Return the claims that exactly what was planted was found."""
    return [
        *(claim for outcome in outcomes for claim in _claims(outcome)),
        Claim("findings that were not planted", len(unplanted_findings), 0),
    ]


def _claims(outcome: Outcome) -> list[Claim]:
    planted, expected = outcome.planted, outcome.planted.expected
    if expected is None:
        missed = (
            [Claim(f"{planted.name}: cases that no verdict called improved", len(outcome.missing), 0)]
            if planted.improves
            else []
        )
        return [Claim(f"{planted.name}: findings although none may be", outcome.too_many, 0), *missed]
    claims = [
        Claim(f"{planted.name}: findings too many", outcome.too_many, 0),
        Claim(f"{planted.name}: cases that are missing", len(outcome.missing), 0),
        Claim(f"{planted.name}: findings that are not {expected.state}", outcome.wrong_states, 0),
    ]
    if expected.back:
        what = f"{planted.name}: other nights of recovery than {expected.back}"
        claims.append(Claim(what, outcome.wrong_nights if outcome.findings else None, 0))
    return claims


OUTCOMES = ("planted", "night", "cases", "finding", "raised", "found", "missing", "too many", "back", "state", "exact")
"""The headings of ``rows_of``."""


def rows_of(plan: Plan, outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Return a row for each planted thing, with its outcome."""
    return [_row(plan, outcome) for outcome in outcomes]


def _row(plan: Plan, outcome: Outcome) -> list[str]:
    planted = outcome.planted
    none = "improved" if planted.improves and not outcome.missing else "none"
    return [
        planted.name,
        str(planted.night),
        str(len(plan.moved(planted))),
        ", ".join(f"{finding.id} {finding.cause}" for finding in outcome.findings) or none,
        _listed(finding.first_run for finding in outcome.findings),
        str(len(outcome.cases)),
        str(len(outcome.missing)),
        "one missing" if outcome.too_many is None else str(outcome.too_many),
        _listed(night or "not" for night in outcome.back) if planted.expected and planted.expected.back else "-",
        _listed(finding.state for finding in outcome.findings),
        "yes" if outcome.exact else "NO",
    ]


def _listed(words: Iterable[object]) -> str:
    return ", ".join(map(str, words)) or "-"
