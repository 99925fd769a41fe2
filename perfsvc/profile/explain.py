"""Why one launch takes longer than another: every reason's share of the difference, ranked, and one sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log

from perfsvc.errors import ReportError
from perfsvc.model import Evidence, Explanation, Profile, ProfilerRule, Reason
from perfsvc.model import ReasonKind as Kind
from perfsvc.profile.pair import Pair
from perfsvc.profile.reasons import REASONS

SAME = 0.02
"""Of the logarithm of two times: what Nsight Compute's replay may differ by between two profiles of one binary."""
LISTED = 0.05
"""The smallest share of the difference that is worth a line."""
NAMED = 0.25
"""The smallest share that explains anything; with less in hand, nothing does."""
WHOLE = 0.95
STEP = 20
"""Shares that round to the same of so many steps are told apart by rules and by what brings what."""
GAINED = 0.05
"""By how much a rule's estimate has to grow to say the same as a reason."""

WORDS: Mapping[Kind, tuple[str, str]] = {
    Kind.TENSOR: ("the tensor pipe no longer used", "the tensor pipe used"),
    Kind.SPILLS: ("register spills", "fewer register spills"),
    Kind.BANK_CONFLICTS: ("shared-memory bank conflicts", "fewer shared-memory bank conflicts"),
    Kind.UNCOALESCED: ("uncoalesced global access", "better coalesced global access"),
    Kind.DIVERGENCE: ("divergent branches", "fewer divergent branches"),
    Kind.OCCUPANCY: ("lower occupancy", "higher occupancy"),
    Kind.TAIL: ("a tail of blocks", "no such tail of blocks"),
    Kind.HIT_RATE: ("a lower hit rate", "a higher hit rate"),
    Kind.TRAFFIC: ("more memory traffic", "less memory traffic"),
    Kind.INSTRUCTIONS: ("more instructions", "fewer instructions"),
    Kind.CLOCKS: ("lower clocks", "higher clocks"),
    Kind.STALLS: ("longer stalls", "shorter stalls"),
}
"""What a reason is called where a launch became slower, and where it became faster."""

BRINGS: Mapping[Kind, frozenset[Kind]] = {
    Kind.TENSOR: frozenset({Kind.INSTRUCTIONS, Kind.UNCOALESCED, Kind.HIT_RATE, Kind.TRAFFIC, Kind.DIVERGENCE}),
    Kind.SPILLS: frozenset({Kind.INSTRUCTIONS, Kind.HIT_RATE, Kind.TRAFFIC}),
    Kind.UNCOALESCED: frozenset({Kind.HIT_RATE, Kind.TRAFFIC}),
    Kind.DIVERGENCE: frozenset({Kind.INSTRUCTIONS}),
}
"""What one reason brings about; longer stalls come of every one."""

RULES: Mapping[Kind, frozenset[str]] = {
    Kind.BANK_CONFLICTS: frozenset({"SharedMemoryConflicts", "UncoalescedSharedAccess"}),
    Kind.UNCOALESCED: frozenset({"UncoalescedGlobalAccess", "MemoryCacheAccessPattern"}),
    Kind.DIVERGENCE: frozenset({"ThreadDivergence"}),
    Kind.OCCUPANCY: frozenset({"TheoreticalOccupancy"}),
    Kind.TAIL: frozenset({"AchievedOccupancy", "WorkloadImbalance", "LaunchConfiguration"}),
    Kind.STALLS: frozenset({"CPIStall"}),
}
"""The rules of Nsight Compute that speak of a reason."""


def explain(before: Profile, after: Profile) -> Explanation:
    """Why the launch after took longer than the one before, or less long.

    Both directions have the same reasons with the same shares: a launch is faster for what the other suffers from.

    Args:
        before: the baseline's.
        after: the candidate's.

    Raises:
        ReportError: one of them has no duration.
    """
    first, second = (_duration(profile) for profile in (before, after))
    factor = second / first
    if abs(log(factor)) < SAME:
        return Explanation(factor, f"Both take as long: {_seconds(first)} before, {_seconds(second)} after.")
    slower = factor > 1
    pair = Pair(before, after) if slower else Pair(after, before, slower=False)
    reasons = _ranked([reason for kind in REASONS if (reason := _reason(kind, pair))])
    return Explanation(factor, _sentence(factor, reasons), tuple(reasons))


def _duration(profile: Profile) -> float:
    duration = profile.metrics.get("duration_s")
    if not duration or duration < 0:
        raise ReportError(
            f"the profile of {profile.kernel} does not say how long it took",
            cure="profile it with the section that does: ncu --section SpeedOfLight",
        )
    return duration


def _reason(kind: Kind, pair: Pair) -> Reason | None:
    found = REASONS[kind](pair)
    if found is None or found.share < LISTED:
        return None
    before, after = (pair.fast, pair.slow) if pair.slower else (pair.slow, pair.fast)
    evidence = (Evidence(name, before.metrics.get(name), after.metrics.get(name)) for name in found.evidence)
    known = tuple(each for each in evidence if each.before is not None or each.after is not None)
    return Reason(kind, found.share, found.detail, known, _agreeing(RULES.get(kind, frozenset()), pair))


def _agreeing(names: frozenset[str], pair: Pair) -> tuple[ProfilerRule, ...]:
    """The slower profile's rules of some names that found more than the faster one's did."""
    known = {rule.name: rule.speedup or 0.0 for rule in reversed(pair.fast.rules)}
    return tuple(
        rule
        for rule in pair.slow.rules
        if rule.name in names and (rule.name not in known or (rule.speedup or 0.0) > known[rule.name] + GAINED)
    )


def _ranked(reasons: Sequence[Reason]) -> list[Reason]:
    """The largest share first; what follows from another reason after all that does not."""
    order = list(REASONS)
    marked = [replace(reason, follows=_brought(reason, reasons)) for reason in reasons]
    return sorted(
        marked,
        key=lambda reason: (
            reason.follows is not None,
            -round(STEP * reason.share),
            not reason.rules,
            order.index(reason.kind),
        ),
    )


def _brought(reason: Reason, reasons: Sequence[Reason]) -> Kind | None:
    """The reason that brings a reason about: it has to account for half as much at least."""
    brings = [
        other
        for other in reasons
        if (reason.kind in BRINGS.get(other.kind, ()) or reason.kind is Kind.STALLS is not other.kind)
        and other.share >= max(NAMED, reason.share / 2)
    ]
    return max(brings, key=lambda other: other.share).kind if brings else None


def _sentence(factor: float, reasons: Sequence[Reason]) -> str:
    slower = factor > 1
    size = max(factor, 1 / factor)
    by = f"{size:.1f} ×" if size >= 1.095 else f"{100 * (size - 1):.1f} %"  # noqa: PLR2004 - what rounds to 1.1
    much = f"{by} {'slower' if slower else 'faster'}"
    named = [reason for reason in reasons if reason.share >= NAMED and reason.follows is None][:2]
    if not named:
        return f"{much}, and nothing that was counted can account for it."
    words = [f"{WORDS[reason.kind][0 if slower else 1]} ({reason.detail})" for reason in named]
    text = f"{much}: {words[0]} can account for {_part(named[0].share)}"
    return text + (f", {words[1]} for {_part(named[1].share)}." if named[1:] else ".")


def _part(share: float) -> str:
    return "all of it" if share >= WHOLE else f"{100 * share:.0f} % of it"


def _seconds(value: float) -> str:
    for power, prefix in ((0, ""), (-3, "m"), (-6, "µ")):
        if value >= 10.0**power:
            return f"{value / 10.0**power:.4g} {prefix}s"
    return f"{value * 1e9:.4g} ns"
