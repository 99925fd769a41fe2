"""The words of verdicts, series, levels and findings, shared by tables, exports, pages and messages."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import inf

from rich.text import Text

from perfsvc import units
from perfsvc.model import TIME, CacheState, CheckVerdict, Finding, Judgement, MovedSeries, Series, Verdict
from perfsvc.report.rows import Key, RunDetails

DASH = "–"

NAMED = 3
"""How many names a list shows before it says how many more there are."""

GROUPED = 1000
"""Numbers from here on have their digits grouped by thousands."""

VERDICT_STYLES: Mapping[Verdict, str] = {
    Verdict.REGRESSION: "bold red",
    Verdict.BROKEN: "bold red",
    Verdict.MISSING: "yellow",
    Verdict.IMPROVEMENT: "green",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NEW: "cyan",
    Verdict.UNCHANGED: "dim",
}

VERDICT_NOUNS: Mapping[Verdict, tuple[str, str]] = {
    Verdict.REGRESSION: ("regression", "regressions"),
    Verdict.IMPROVEMENT: ("improvement", "improvements"),
    Verdict.UNCHANGED: ("unchanged", "unchanged"),
    Verdict.INCONCLUSIVE: ("inconclusive", "inconclusive"),
    Verdict.BROKEN: ("broken", "broken"),
    Verdict.NEW: ("new", "new"),
    Verdict.MISSING: ("missing", "missing"),
}
"""Singular and plural, in the order of a summary."""
ALWAYS_COUNTED = {Verdict.REGRESSION, Verdict.IMPROVEMENT, Verdict.UNCHANGED}

CHANGED = (Verdict.REGRESSION, Verdict.IMPROVEMENT)

METRIC_UNITS: Mapping[str, Callable[[float], str]] = {
    "_bytes_per_s": units.rate,
    "_flops_per_s": units.flop_rate,
    "_s": units.seconds,
    "_hz": units.frequency,
    "_bytes": lambda value: units.size(round(value)),
    "_j": lambda value: f"{value:.4g} J",
}
"""How a metric is written, by the end of its name."""


# --- values ----------------------------------------------------------------------------------------------------------


def or_dash(value: float | None, write: Callable[[float], str]) -> str:
    """Return the number as ``write`` writes it, or a dash for None."""
    return DASH if value is None else write(value)


def metric_value(name: str, value: float) -> str:
    """Return a metric's value in the unit that its name ends with: ``energy_j`` in joules, ``sm_cycles`` grouped."""
    write = next((write for ending, write in METRIC_UNITS.items() if name.endswith(ending)), None)
    if write:
        return write(value)
    return f"{value:,.0f}".replace(",", " ") if round(abs(value)) >= GROUPED else f"{value:.4g}"


def level(value: float | None, metric: str) -> str:
    """Return a level of a metric with its unit, or a dash for None."""
    return or_dash(value, units.seconds if metric == TIME else lambda number: metric_value(metric, number))


def interval(low: float | None, high: float | None) -> str:
    """Return the interval of a ratio, ``+3.0 % to +7.0 %``, or nothing if an end is unknown."""
    return "" if low is None or high is None else f"{units.percent(low)} to {units.percent(high)}"


def change_and_interval(ratio: float | None, low: float | None, high: float | None) -> str:
    """Return ``+5.3 % (+4.9 % to +5.6 %)``; only the ratio if the interval is unknown, nothing if the ratio is."""
    span = interval(low, high)
    return "" if ratio is None else f"{units.percent(ratio)} ({span})" if span else units.percent(ratio)


def spread(center: float | None, low: float | None, high: float | None) -> str:
    """Return half the interval as a share of its center, ``±0.4 %``, or nothing if there is no interval."""
    if not center or low is None or high is None:
        return ""
    return f"±{50 * (high - low) / abs(center):.1f} %"


def speed(relative_speed: float) -> str:
    """Return a speed relative to a reference variant: ``0.97×``."""
    return f"{relative_speed:.2f}×"


def direction_word(metric: str, ratio: float) -> str:
    """Return ``slower`` or ``faster`` for the time, ``higher`` or ``lower`` for any other metric."""
    more, less = ("slower", "faster") if metric == TIME else ("higher", "lower")
    return more if ratio > 1 else less


def moment(when: datetime) -> str:
    """Return a moment in UTC, to the minute."""
    return f"{when.astimezone(UTC):%Y-%m-%d %H:%M}"


def wall_time(seconds: float | None) -> str:
    """Return a duration: ``4.2 s``, ``12 min``, ``3 h 05 min``; a dash for None."""
    if seconds is None:
        return DASH
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"  # noqa: PLR2004 - two digits are enough
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"  # noqa: PLR2004 - an hour


def commit_text(commit: str, *, dirty: bool) -> str:
    """Return the first nine digits of a commit, with ``+`` for uncommitted changes; a dash without a commit."""
    return (commit[:9] + ("+" if dirty else "")) or DASH


def details(known: RunDetails) -> list[tuple[str, str]]:
    """Return the name and the value of each known detail of a case in a run."""
    noise = (("within replicas", known.noise_within), ("between them", known.noise_between))
    named_values = {
        "stopped": known.stopped,
        "noise": ", ".join(f"{100 * share:.2g} % {name}" for name, share in noise if share is not None),
        "bandwidth": known.bandwidth_bytes_per_s and units.rate(known.bandwidth_bytes_per_s),
        "% of peak": known.peak_share and units.share(known.peak_share),
        f"vs {known.relative_to or 'reference'}": known.relative_speed and speed(known.relative_speed),
        "FLOP/s": known.flops_per_s and units.flop_rate(known.flops_per_s),
        "SM clock": known.sm_clock_hz and units.frequency(known.sm_clock_hz),
        "temperature": known.temperature_c and f"{known.temperature_c:.0f} °C",
        "power": known.power_w and f"{known.power_w:.0f} W",
        "slowdowns": known.slowdowns,
        "rejected": known.rejected_batches and units.count(known.rejected_batches, "batch", "batches"),
        **{name: metric_value(name, value) for name, value in sorted(known.metrics.items())},
        "note": known.note,
    }
    return [(name, str(value)) for name, value in named_values.items() if value]


# --- names -----------------------------------------------------------------------------------------------------------


def some(names: Sequence[str]) -> str:
    """Return the names, or the first three and how many more there are."""
    return ", ".join(names) if len(names) <= NAMED else f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more"


def cache_words(keys: Iterable[Key]) -> dict[Key, str]:
    """Return the cache state to show with each case: none for cold, unless the case has both cold and warm."""
    states: dict[tuple[str, str], set[CacheState]] = defaultdict(set)
    every_key = tuple(keys)
    for device, case, cache in every_key:
        states[device, case].add(cache)
    return {key: "" if states[key[:2]] == {CacheState.COLD} else key[2].value for key in every_key}


def series_names(every_series: Sequence[Series]) -> list[str]:
    """Return the name of each series in a list: the case, a cache state that matters, and a metric other than time."""
    keys = [(series.device, series.case.id, series.cache) for series in every_series]
    words = cache_words(keys)
    return [_name(series, words[key]) for series, key in zip(every_series, keys, strict=True)]


def series_name(series: Series) -> str:
    """Return the name of a single series: the case, a cache state other than cold, and a metric other than time."""
    return _name(series, "" if series.cache is CacheState.COLD else series.cache.value)


def _name(series: Series, cache: str) -> str:
    return " ".join(filter(None, (series.case.id, cache, "" if series.metric == TIME else series.metric)))


def series_cells(every_series: Sequence[Series]) -> list[Text]:
    """Return the name of each series in a table, with its device on a second line if the table has several devices."""
    cells = [Text(name) for name in series_names(every_series)]
    if len({series.device for series in every_series}) > 1:
        for cell, series in zip(cells, every_series, strict=True):
            cell.append(f"\non {series.device_model} ({series.device})", "dim")
    return cells


# --- verdicts --------------------------------------------------------------------------------------------------------


def verdict_word(verdict: Verdict) -> Text:
    """Return the verdict's word in its colour."""
    return Text(verdict.value, VERDICT_STYLES[verdict])


def counts(judgements: Iterable[Judgement | CheckVerdict]) -> str:
    """Return ``1 regression, 0 improvements, 8 unchanged``, then the other verdicts that occur."""
    found = Counter(judgement.verdict for judgement in judgements)
    return ", ".join(
        units.count(found[verdict], *nouns)
        for verdict, nouns in VERDICT_NOUNS.items()
        if found[verdict] or verdict in ALWAYS_COUNTED
    )


def comparison_value(judgement: Judgement, column: str) -> str:
    """Return the text of a judgement in a column of a comparison, or a dash if there is none."""
    match column:
        case "baseline":
            return level(judgement.baseline_s, judgement.series.metric)
        case "candidate":
            return level(judgement.candidate_s, judgement.series.metric)
        case "change":
            return or_dash(judgement.ratio, units.percent)
        case "interval":
            return interval(judgement.low, judgement.high) or DASH
        case "replicas":
            return replicas(judgement) or DASH
        case _:
            return or_dash(judgement.smallest, units.change)


def replicas(judgement: Judgement) -> str:
    """Return the number of replicas of both sides, ``3 / 5``, or nothing if they were not counted."""
    counted = judgement.baseline_replicas, judgement.candidate_replicas
    return "" if None in counted else "{} / {}".format(*counted)


def reason_lines(judgements: Sequence[Judgement]) -> list[Text]:
    """Return a line for each reason with the series that share it; unchanged series have none.

    Inconclusive series with a known bound share one line that gives the bound.
    """
    return [*_reasons(judgements, lambda judgement: judgement.reason), *_bounds(judgements)]


def changed_lines(judgements: Sequence[Judgement]) -> list[Text]:
    """Return the full evidence of each series that changed, and one line for bounded inconclusive series."""
    changed = [judgement for judgement in judgements if judgement.verdict in CHANGED]
    return [*_reasons(changed, _evidence), *_bounds(judgements)]


def _reasons(judgements: Sequence[Judgement], reason: Callable[[Judgement], str]) -> list[Text]:
    names = series_names([judgement.series for judgement in judgements])
    sharing: dict[tuple[Verdict, str], list[str]] = defaultdict(list)
    for name, judgement in zip(names, judgements, strict=True):
        if judgement.verdict is not Verdict.UNCHANGED and _bound(judgement) is None:
            sharing[judgement.verdict, reason(judgement)].append(name)
    return [
        Text.assemble(verdict_word(verdict), " ", (some(cases), "bold"), f": {text}")
        for (verdict, text), cases in sharing.items()
    ]


def _evidence(judgement: Judgement) -> str:
    counted = replicas(judgement)
    facts = (
        change_and_interval(judgement.ratio, judgement.low, judgement.high),
        f"{counted} replicas" if counted else "",
        "" if judgement.smallest is None else f"{units.change(judgement.smallest)} would have shown",
        f"cause: {judgement.cause}" if judgement.cause else "",
    )
    return "; ".join(filter(None, [", ".join(filter(None, facts)), judgement.reason]))


def _bound(judgement: Judgement) -> float | None:
    """Return the largest change that an inconclusive series can have, as a fraction; None without a finite interval."""
    if judgement.verdict is not Verdict.INCONCLUSIVE or not judgement.low or judgement.high in {None, inf}:
        return None
    return max(judgement.high or 0.0, 1 / judgement.low) - 1


def _bounds(judgements: Sequence[Judgement]) -> list[Text]:
    names = series_names([judgement.series for judgement in judgements])
    pairs = zip(names, map(_bound, judgements), strict=True)
    bounds = {name: bound for name, bound in pairs if bound is not None}
    if not bounds:
        return []
    least, most = (units.change(end(bounds.values())) for end in (min, max))
    both_in_percent = most.endswith(" %")
    above = most if least == most else f"{least.removesuffix(' %') if both_in_percent else least} to {most}"
    return [
        Text.assemble(verdict_word(Verdict.INCONCLUSIVE), ", ", f"nothing above {above}: ", (some([*bounds]), "bold"))
    ]


# --- findings --------------------------------------------------------------------------------------------------------


def worst(finding: Finding) -> MovedSeries:
    """Return the series that moved furthest, preferring series that have not recovered."""
    return (finding.standing or finding.moved)[0]


def finding_title(finding: Finding) -> str:
    """Return the variant that moved furthest and how many other variants moved: ``dot/tree and 2 more``."""
    cases = [moved.series.case for moved in (*finding.standing, *finding.moved)]
    variants = list(dict.fromkeys(f"{case.benchmark}/{case.variant}" for case in cases))
    return variants[0] + (f" and {len(variants) - 1} more" if len(variants) > 1 else "")
