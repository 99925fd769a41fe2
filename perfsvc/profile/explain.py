"""Explain why one launch takes longer than another: how much each reason explains, ranked, and a sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import log

from perfsvc.errors import ReportError
from perfsvc.model import Evidence, Explanation, Profile, ProfilerRule, Reason
from perfsvc.model import ReasonKind as Kind
from perfsvc.model.profiles import MIN_NAMED
from perfsvc.profile.instructions import carriers, hot_lines
from perfsvc.profile.pair import ProfilePair
from perfsvc.profile.reasons import REASONS
from perfsvc.profile.sentence import SAME, sentence

MIN_LISTED = 0.05
"""The smallest share of the difference that is listed."""
RANK_STEPS = 20
"""Ranking rounds shares to this many steps. Equal shares are ranked by agreeing rules, then in order of ``REASONS``."""
NOISE = 0.1
"""Two launches of the same instructions may differ by this logarithm without a cause: a profile is of one launch."""
VARYING = frozenset(
    {
        Kind.ATOMICS,
        Kind.HIT_RATE,
        Kind.TAIL,
        Kind.BARRIERS,
        Kind.TENSOR_WAIT,
        Kind.INSTRUCTION_CACHE,
        Kind.STALLS,
    }
)
"""The reasons whose counts vary from launch to launch of the same instructions."""
MIN_RULE_GROWTH = 0.05
"""By how much a rule's estimated speedup has to grow for the rule to agree with a reason."""

BRINGS: Mapping[Kind, frozenset[Kind]] = {
    Kind.TENSOR: frozenset({Kind.INSTRUCTIONS, Kind.UNCOALESCED, Kind.HIT_RATE, Kind.TRAFFIC, Kind.DIVERGENCE}),
    Kind.SPILLS: frozenset({Kind.INSTRUCTIONS, Kind.HIT_RATE, Kind.TRAFFIC}),
    Kind.ATOMICS: frozenset(
        {
            Kind.BANK_CONFLICTS,
            Kind.UNCOALESCED,
            Kind.DIVERGENCE,
            Kind.HIT_RATE,
            Kind.TRAFFIC,
            Kind.INSTRUCTIONS,
            Kind.UNROLLING,
        }
    ),
    Kind.BANK_CONFLICTS: frozenset({Kind.TENSOR_WAIT}),
    Kind.UNCOALESCED: frozenset({Kind.HIT_RATE, Kind.TRAFFIC}),
    Kind.CONSTANTS: frozenset({Kind.INSTRUCTIONS}),
    Kind.FP64: frozenset({Kind.INSTRUCTIONS, Kind.SPECIAL}),
    Kind.SPECIAL: frozenset({Kind.INSTRUCTIONS}),
    Kind.UNROLLING: frozenset({Kind.INSTRUCTIONS}),
    Kind.SMALL_LAUNCH: frozenset({Kind.HIT_RATE}),
    Kind.DIVERGENCE: frozenset({Kind.INSTRUCTIONS}),
}
"""The reasons that follow from each reason. Longer stalls follow from every reason and are not listed here."""

RULES: Mapping[Kind, frozenset[str]] = {
    Kind.BANK_CONFLICTS: frozenset({"SharedMemoryConflicts", "UncoalescedSharedAccess"}),
    Kind.UNCOALESCED: frozenset({"UncoalescedGlobalAccess", "MemoryCacheAccessPattern"}),
    Kind.DIVERGENCE: frozenset({"ThreadDivergence"}),
    Kind.OCCUPANCY: frozenset({"TheoreticalOccupancy"}),
    Kind.SMALL_LAUNCH: frozenset({"LaunchConfiguration"}),
    Kind.BARRIERS: frozenset({"CPIStall"}),
    Kind.TAIL: frozenset({"AchievedOccupancy", "WorkloadImbalance", "LaunchConfiguration"}),
    Kind.STALLS: frozenset({"CPIStall"}),
}
"""The rules of Nsight Compute that support each reason."""


def explain(before: Profile, after: Profile) -> Explanation:
    """Explain why the candidate's launch was slower or faster than the baseline's launch.

    Exchanging the two profiles gives the same reasons with the same shares: the faster launch lacks what slows down the
    slower launch.

    Args:
        before: the profile of the baseline.
        after: the profile of the candidate.

    Raises:
        ReportError: a profile has no duration.
    """
    before_s, after_s = _duration(before), _duration(after)
    factor = after_s / before_s
    if abs(log(factor)) < SAME:
        return Explanation(factor, f"Both take equally long: {_seconds(before_s)} before, {_seconds(after_s)} after.")
    pair = ProfilePair(before, after) if factor > 1 else ProfilePair(after, before, slower=False)
    kinds = set(REASONS)
    if abs(log(factor)) < NOISE and _executed(before) == _executed(after) != []:
        kinds -= VARYING
    reasons = _ranked([reason for kind in REASONS if kind in kinds and (reason := _reason(kind, pair))])
    return Explanation(factor, sentence(factor, reasons), tuple(reasons))


def _executed(profile: Profile) -> list[tuple[str, float]]:
    """Return the opcode of each instruction, and how often warps executed it."""
    return [(instruction.opcode, instruction.counts.get("instructions", 0.0)) for instruction in profile.instructions]


def _duration(profile: Profile) -> float:
    """Return the duration of a profile's launch in seconds; raise ``ReportError`` if the profile has none."""
    duration = profile.metrics.get("duration_s")
    if not duration or duration < 0:
        raise ReportError(
            f"the profile of {profile.kernel} has no duration of the launch",
            cure="profile the launch with the section that has its duration: ncu --section SpeedOfLight",
        )
    return duration


def _reason(kind: Kind, pair: ProfilePair) -> Reason | None:
    """Return one reason with its share, evidence and agreeing rules; None if its share is below ``MIN_LISTED``."""
    contribution = REASONS[kind](pair)
    if contribution is None or contribution.share < MIN_LISTED:
        return None
    before, after = (pair.fast, pair.slow) if pair.slower else (pair.slow, pair.fast)
    metrics = [Evidence(name, before.metrics.get(name), after.metrics.get(name)) for name in contribution.evidence]
    evidence = tuple(metric for metric in metrics if metric.before is not None or metric.after is not None)
    rules = _agreeing_rules(RULES.get(kind, frozenset()), pair)
    reason = Reason(kind, contribution.share, contribution.detail, evidence, rules)
    if (found := carriers(kind, contribution.evidence)) is None:
        return reason
    counted, count = found
    return replace(reason, counted=counted, before=hot_lines(before, count), after=hot_lines(after, count))


def _agreeing_rules(names: frozenset[str], pair: ProfilePair) -> tuple[ProfilerRule, ...]:
    """Return the named rules that only the slower profile has, or has with a larger estimated speedup."""
    speedup_of_fast = {rule.name: rule.speedup or 0.0 for rule in reversed(pair.fast.rules)}
    agreeing = []
    for rule in pair.slow.rules:
        is_new = rule.name not in speedup_of_fast
        if rule.name in names and (is_new or (rule.speedup or 0.0) > speedup_of_fast[rule.name] + MIN_RULE_GROWTH):
            agreeing.append(rule)
    return tuple(agreeing)


def _ranked(reasons: Sequence[Reason]) -> list[Reason]:
    """Return the reasons by share, the largest first; reasons that follow from a listed reason come last."""
    order = list(REASONS)
    marked = [replace(reason, follows=_brought_by(reason, reasons)) for reason in reasons]
    return sorted(
        marked,
        key=lambda reason: (
            reason.follows is not None,
            -round(RANK_STEPS * reason.share),
            not reason.rules,
            order.index(reason.kind),
        ),
    )


def _brought_by(reason: Reason, reasons: Sequence[Reason]) -> Kind | None:
    """Return which of ``reasons`` brings ``reason`` about: if several do, the reason with the largest share; else None.

    The share of the returned reason is at least half the share of ``reason``, and at least ``MIN_NAMED``.
    """
    causes = [
        cause
        for cause in reasons
        if (reason.kind in BRINGS.get(cause.kind, ()) or _is_waiting(reason, cause))
        and cause.share >= max(MIN_NAMED, reason.share / 2)
    ]
    return max(causes, key=lambda cause: cause.share).kind if causes else None


def _is_waiting(reason: Reason, cause: Reason) -> bool:
    """Return True if ``reason`` is only that warps wait longer, and ``cause`` may be why."""
    waiting = (Kind.STALLS, Kind.BARRIERS)
    return (reason.kind in waiting and cause.kind not in waiting) or (reason.kind, cause.kind) == waiting


def _seconds(value: float) -> str:
    """Return seconds with four digits and a prefix: ``12.34 µs``."""
    for power, prefix in ((0, ""), (-3, "m"), (-6, "µ")):
        if value >= 10.0**power:
            return f"{value / 10.0**power:.4g} {prefix}s"
    return f"{value * 1e9:.4g} ns"
