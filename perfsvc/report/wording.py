"""The words of verdicts, series and levels, shared by tables, exports, pages and messages."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import inf, log, log1p
from typing import Protocol

from rich.text import Text

from perfsvc import units
from perfsvc.model import (
    TIME,
    CacheState,
    Cause,
    Direction,
    Exclusion,
    Finding,
    Judgement,
    MovedSeries,
    RunDetails,
    Series,
    Verdict,
)
from perfsvc.report import peaks
from perfsvc.report.rows import Key
from perfsvc.text import cut

DASH = "–"

NAMED = units.NAMED

HOW_TO_CONFIRM = "measure what is unconfirmed again in A/B pairs:"
"""The line before the commands that do so."""
MOST_COMMANDS = 5
"""How many of these commands are shown."""

GROUPED = 1000
"""Numbers from here on have their digits grouped by thousands."""

Outcome = Verdict | Cause
"""A verdict; or ``noise`` or ``environment``, if these moved a series and no code is to blame (``outcome``)."""

OUTCOME_STYLES: Mapping[Outcome, str] = {
    Verdict.REGRESSION: "bold red",
    Verdict.BROKEN: "bold red",
    Verdict.MISSING: "yellow",
    Verdict.IMPROVEMENT: "green",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.NEW: "cyan",
    Verdict.UNCHANGED: "dim",
    Cause.NOISE: "dim",
    Cause.ENVIRONMENT: "magenta",
}

NEW_NOUNS: Mapping[Outcome, tuple[str, str]] = {
    Verdict.REGRESSION: ("new regression", "new regressions"),
    Verdict.IMPROVEMENT: ("new improvement", "new improvements"),
}
"""Singular and plural where known changes are counted apart."""

OUTCOME_NOUNS: Mapping[Outcome, tuple[str, str]] = {
    Verdict.REGRESSION: ("regression", "regressions"),
    Cause.NOISE: ("moved by noise", "moved by noise"),
    Cause.ENVIRONMENT: ("moved by the environment", "moved by the environment"),
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
VERDICT_OF: Mapping[Direction, Verdict] = {
    Direction.BROKEN: Verdict.BROKEN,
    Direction.SLOWER: Verdict.REGRESSION,
    Direction.FASTER: Verdict.IMPROVEMENT,
}

NO_FINDING = "the run has uncommitted changes, so it does not count: no finding, no new baseline; commit and run again"

SEEMS_CHANGED = 0.01
"""From this change on, an unchanged series shows its reason, because the change seems to contradict the verdict."""

TWICE = 1.995
"""The smallest ratio that rounds to twice as much; from here on a bound is a multiple, not a percentage."""

METRIC_UNITS: Mapping[str, Callable[[float], str]] = {
    "_j": lambda value: f"{value:.4g} J",
    "_bytes_per_s": units.rate,
    "_flops_per_s": units.flop_rate,
    "_s": units.seconds,
    "_hz": units.frequency,
    "_bytes": lambda value: units.size(round(value)),
}
"""How a metric is written, by the end of its name."""


# --- values ----------------------------------------------------------------------------------------------------------


def or_dash(value: float | None, write: Callable[[float], str]) -> str:
    """Return the number as ``write`` writes it, or a dash for None."""
    return DASH if value is None else write(value)


def metric_value(name: str, value: float) -> str:
    """Return a metric's value with the unit that its name ends with: ``energy_j`` in J; without unit as ``12 345``."""
    write = next((write for ending, write in METRIC_UNITS.items() if name.endswith(ending)), None)
    if write:
        return write(value)
    return f"{value:,.0f}".replace(",", " ") if abs(value) >= GROUPED - 0.5 else f"{value:.4g}"


def level(value: float | None, metric: str) -> str:
    """Return a level of a metric with its unit, or a dash for None."""
    return DASH if value is None else units.seconds(value) if metric == TIME else metric_value(metric, value)


def interval(low: float | None, high: float | None) -> str:
    """Return the interval of a ratio, ``+3.0 % to +7.0 %``, or nothing if an end is unknown."""
    return "" if low is None or high is None else f"{units.percent(low)} to {units.percent(high)}"


def change_and_interval(ratio: float | None, low: float | None, high: float | None) -> str:
    """Return a change with its interval: ``+5.3 % (+4.9 % to +5.6 %)``.

    The text has no interval if an end is unknown, and is empty if the ratio is unknown.
    """
    if ratio is None:
        return ""
    span = interval(low, high)
    return f"{units.percent(ratio)} ({span})" if span else units.percent(ratio)


def spread(center: float | None, low: float | None, high: float | None) -> str:
    """Return half the interval as a share of ``center``, ``±0.4 %``; an empty text if one of the numbers is unknown."""
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
    return when.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "minutes")  # a fifth of the time of strftime


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
    return ((commit[:9] or "unknown") + "+" if dirty else commit[:9]) or DASH


def details(known: RunDetails) -> list[tuple[str, str]]:
    """Return the name and the value of each known detail of a case in a run."""
    shares = (known.noise_within, known.noise_between, known.noise_places, known.noise_between_nights)
    sources = ("within replicas", "between them", "between places of the arrays", "between nights")
    noise = zip(sources, shares, strict=True)
    named_values = {
        "stopped": known.stopped,
        "noise": ", ".join(f"{100 * share:.2g} % {name}" for name, share in noise if share is not None),
        "bandwidth": known.bandwidth_bytes_per_s and units.rate(known.bandwidth_bytes_per_s),
        "% of peak": peaks.share(known.peak, known.peak_share),
        f"vs {known.relative_to or 'reference'}": known.relative_speed and speed(known.relative_speed),
        "FLOP/s": known.flops_per_s and units.flop_rate(known.flops_per_s),
        "bus bandwidth": known.bus_bytes_per_s and units.rate(known.bus_bytes_per_s),
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


some = units.some


def exclusion_sentence(exclusion: Exclusion) -> str:
    """Return what is excluded from judging, by whom and why."""
    what = f"{exclusion.case} in run {exclusion.run}" if exclusion.case else f"run {exclusion.run}"
    return f"{what} is excluded from judging, by {exclusion.by} on {exclusion.at:%Y-%m-%d}: {exclusion.reason}"


def cache_words(keys: Iterable[Key]) -> dict[Key, str]:
    """Return the word for the cache state to show with each case.

    The word is empty for a case that has only cold results on its device, because cold is the usual state.
    """
    states: dict[tuple[str, str], set[CacheState]] = defaultdict(set)
    every_key = tuple(keys)
    for device, case, cache in every_key:
        states[device, case].add(cache)
    return {key: "" if states[key[:2]] == {CacheState.COLD} else key[2].value for key in every_key}


def series_names(every_series: Sequence[Series]) -> list[str]:
    """Return the name of each series: case, cache state (unless the case has only cold), metric (unless it is time)."""
    keys = [(series.device, series.case.id, series.cache) for series in every_series]
    words = cache_words(keys)
    return [_name(key[1], words[key], series.metric) for series, key in zip(every_series, keys, strict=True)]


def names_on_devices(every_series: Sequence[Series]) -> list[str]:
    """Return the name of each series in a list, with its device if the list has several devices."""
    several = len({series.device for series in every_series}) > 1
    names = zip(series_names(every_series), every_series, strict=True)
    return [name + (f" on {series.device}" if several else "") for name, series in names]


def series_name(series: Series, case: str = "") -> str:
    """Return the name of a single series: the case, a cache state other than cold, and a metric other than time.

    ``case`` is the id of the case, if the caller has it.
    """
    return _name(case or series.case.id, "" if series.cache is CacheState.COLD else series.cache.value, series.metric)


def _name(case: str, cache: str, metric: str) -> str:
    return " ".join(filter(None, (case, cache, "" if metric == TIME else metric)))


def series_cells(every_series: Sequence[Series]) -> list[Text]:
    """Return the name of each series in a table, with its device on a second line if the table has several devices."""
    cells = [Text(name) for name in series_names(every_series)]
    if len({series.device for series in every_series}) > 1:
        for cell, series in zip(cells, every_series, strict=True):
            cell.append(f"\non {series.device_model} ({series.device})", "dim")
    return cells


# --- verdicts --------------------------------------------------------------------------------------------------------


class Judged(Protocol):
    """Anything with a verdict and, if it moved, a cause."""

    @property
    def verdict(self) -> Verdict:
        """The verdict."""

    @property
    def cause(self) -> Cause | None:
        """Why it moved; None if it did not."""


def outcome(judged: Judged) -> Outcome:
    """Return the verdict; if the series moved and no code is to blame, return the cause (noise or environment)."""
    return outcome_of(judged.verdict, judged.cause)


def outcome_of(verdict: Verdict, cause: Cause | None) -> Outcome:
    """Return the verdict; but return the cause if the series moved and no code is to blame."""
    return cause if cause and cause.blameless and verdict in CHANGED else verdict


def outcome_word(word: Outcome) -> Text:
    """Return an outcome's word in its colour."""
    return Text(word.value, OUTCOME_STYLES[word])


def why_unchanged(judgement: Judgement) -> str:
    """Return the reason of an unchanged series whose level changed visibly: ``within the threshold of 50 %``.

    The reason is empty for any other series. It has no numbers of its own, so that series can share it.
    """
    if judgement.verdict is not Verdict.UNCHANGED or not judgement.ratio:
        return ""
    if abs(log(judgement.ratio)) < log1p(SEEMS_CHANGED):
        return ""
    return judgement.reason.partition("; ")[0]


def verdict_words(judgement: Judgement, *, cause: bool = True) -> Text:
    """Return the verdict in its colour; beside it the cause, or ``same code`` where a large change is no verdict.

    Args:
        judgement: the verdict on a series.
        cause: whether to add the cause.
    """
    word = outcome(judgement)
    if judgement.is_same_code:
        beside = "same code"
    else:
        beside = judgement.cause.value if cause and judgement.cause and judgement.cause is not word else ""
    return outcome_word(word).append(f" {beside}" if beside else "", "dim")


def tally(judgements: Iterable[Judged]) -> dict[Outcome, int]:
    """Return how often each outcome occurs, in the order of a summary; an outcome that does not occur has 0."""
    numbers = Counter(map(outcome, judgements))
    return {word: numbers[word] for word in OUTCOME_NOUNS}


def counts(judgements: Iterable[Judged], nouns: Mapping[Outcome, tuple[str, str]] | None = None) -> str:
    """Return ``1 regression, 2 moved by noise, 0 improvements, 8 unchanged``, then the other verdicts that occur.

    ``nouns`` replaces some of the words; each has a singular and a plural.
    """
    words = {**OUTCOME_NOUNS, **(nouns or {})}
    return ", ".join(
        units.count(number, *words[word])
        for word, number in tally(judgements).items()
        if number or word in ALWAYS_COUNTED
    )


def missing_sentences(new: str, judgements: Sequence[Judgement], over_budget: Sequence[Series] = ()) -> list[str]:
    """Return a sentence about the series over budget in ``new``, and one about missing series, if there are any.

    ``new`` is the run that was judged in words: ``run 7``.
    """
    missing = [judgement.series for judgement in judgements if judgement.verdict is Verdict.MISSING]
    of_both = sum(judgement.verdict is not Verdict.NEW for judgement in judgements)
    verb = "is" if len(missing) == 1 else "are"
    skipped = f"over budget in {new}, and not missing: {some(names_on_devices(over_budget))}" if over_budget else ""
    absent = (
        f"{len(missing)} of {units.count(of_both, 'series', 'series')} {verb} missing in {new}: "
        f"{some(names_on_devices(missing))}"
        if missing
        else ""
    )
    return [sentence for sentence in (skipped, absent) if sentence]


def comparison_value(judgement: Judgement, column: str) -> str:
    """Return the text of a judgement in a column of a comparison, or a dash if the judgement has no such value."""
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
    """Return the number of replicas of the baseline and the candidate, ``3 / 5``; empty if a number is unknown."""
    counted = judgement.baseline_replicas, judgement.candidate_replicas
    return "" if None in counted else "{} / {}".format(*counted)


def verdict_sentence(judgement: Judgement) -> str:
    """Return the verdict on a series as a sentence without its full stop.

    ``regression dot/tree[n=64]: +5.0 % (+4.0 % to +6.0 %), 3 / 5 replicas, cause: kernel; beyond the threshold of 1 %``
    """
    return _sentence(outcome(judgement), [series_name(judgement.series)], predicate(judgement)).plain


def moved_sentence(finding: Finding, moved: MovedSeries, *, explained: bool = True) -> str:
    """Return a sentence that says how a series of a finding moved, and with ``explained`` why, if this is known."""
    broken = moved.direction is Direction.BROKEN
    judgement = Judgement(
        moved.series,
        VERDICT_OF[moved.direction],
        str(finding.cause) if broken else moved.why if explained else "",
        ratio=moved.ratio,
        low=moved.low,
        high=moved.high,
        cause=finding.cause if finding.cause.blameless else None,
    )
    name = series_name(moved.series) + (f" on {moved.series.device}" if len(finding.devices) > 1 else "")
    return _sentence(outcome(judgement), [name], predicate(judgement)).plain


def verdict_lines(judgements: Sequence[Judgement], *, figures: bool = True) -> list[Text]:
    """Return the sentences of the verdicts; equal sentences share a line.

    An unchanged series has a sentence only if its level changed visibly. Inconclusive series with a known interval
    share one line. This line names each series with the change that it may have, the largest possible change first.

    Args:
        judgements: the verdicts.
        figures: write the change and its evidence too; False below a table that shows both.
    """
    names = names_on_devices([judgement.series for judgement in judgements])
    sharing: dict[tuple[Outcome, str], list[str]] = defaultdict(list)
    bounds: list[tuple[float, str]] = []
    unchanged: dict[str, list[str]] = defaultdict(list)
    for name, judgement in zip(names, judgements, strict=True):
        if bound := possible_change(judgement):
            bounds.append((_width(judgement), f"{name} ({bound})"))
        elif why := why_unchanged(judgement):
            unchanged[why].append(name)
        elif judgement.verdict is not Verdict.UNCHANGED:
            sharing[outcome(judgement), cut(predicate(judgement, figures=figures))].append(name)
    lines = [_sentence(word, cases, text) for (word, text), cases in sharing.items()]
    if bounds:
        widest_first = [text for _, text in sorted(bounds, key=lambda bound: bound[0], reverse=True)]
        word = outcome_word(Verdict.INCONCLUSIVE)
        lines.append(Text.assemble(word, f", {TOO_NOISY}: ", (some(widest_first), "bold")))
    return lines + [_sentence(Verdict.UNCHANGED, cases, why) for why, cases in unchanged.items()]


def possible_change(judgement: Judgement) -> str:
    """Return how much an inconclusive series may have changed, or nothing without a finite interval.

    ``up to 3 % slower or 1 % faster``; ``up to 19 times as long`` if the time may have at least doubled.
    """
    low, high = judgement.low, judgement.high
    if judgement.verdict is not Verdict.INCONCLUSIVE or not low or high is None or high == inf:
        return ""
    is_time = judgement.series.metric == TIME
    more, less, multiple = ("slower", "faster", "long") if is_time else ("higher", "lower", "high")
    parts = [
        f"{units.factor(high)} times as {multiple}"
        if high >= TWICE
        else f"{_percent(high - 1)} {more}"
        if high > 1
        else "",
        f"{_percent(1 - low)} {less}" if low < 1 else "",
    ]
    return f"up to {' or '.join(filter(None, parts))}" if any(parts) else ""


TOO_NOISY = "too noisy to tell"

ALL = 0.995
"""The smallest fraction that rounds to 100 %: no level falls by that much."""


def _sentence(word: Outcome, cases: Sequence[str], predicate_text: str) -> Text:
    return Text.assemble(outcome_word(word), " ", (some(cases), "bold"), f": {predicate_text}")


def predicate(judgement: Judgement, *, figures: bool = True) -> str:
    """Return what a sentence states about a series: its change with the evidence, and the reason."""
    if bound := possible_change(judgement):
        return f"{bound}, {TOO_NOISY}"
    word, moved = outcome(judgement), judgement.verdict in CHANGED
    counted, smallest = (replicas(judgement), judgement.smallest) if moved else ("", None)
    levels = [level(value, judgement.series.metric) for value in (judgement.baseline_s, judgement.candidate_s) if value]
    facts = (
        change_and_interval(judgement.ratio, judgement.low, judgement.high),
        " → ".join(levels) if moved and len(levels) > 1 else "",
        f"{counted} replicas" if counted else "",
        f"against {judgement.against}" if moved and judgement.baseline_runs > 1 else "",
        f"a change of {units.change(smallest)} or more would have been found" if smallest is not None else "",
        f"cause: {judgement.cause}" if judgement.cause and judgement.cause is not word else "",
    )
    evidence = ", ".join(filter(None, facts)) if figures else ""
    return "; ".join(filter(None, [evidence, judgement.reason])) or word.value


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.2g} %" if fraction < ALL else "more than 99 %"


def _width(judgement: Judgement) -> float:
    """Return how far an inconclusive series may have changed either way, as a factor of at least 1."""
    return max(judgement.high or 1.0, 1 / (judgement.low or 1.0))
