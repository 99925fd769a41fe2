"""The page of a comparison: what it shows, and the data that its script filters and draws."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from markupsafe import Markup

from perfsvc import units
from perfsvc.model import Judgement, Series, Verdict
from perfsvc.report import wording
from perfsvc.report.pages.details import rounded
from perfsvc.report.rows import FIRST, ComparedRun, EnvironmentDifferences
from perfsvc.text import LONGEST_LABEL, cut, json_of_numbers, shortened, visible

LIMITS = (0.1, 0.2, 0.5, 1.0, 3.0, 9.0, 99.0)
"""The changes at which the common axis may end; an arrow stands for a change beyond the last one."""

LEAST_LIMIT = 5
"""The axis reaches at least to this many times the usual threshold."""

ROOM = 1.2
"""The axis reaches further than the largest change by this factor, to leave room for its interval."""

LONGEST_NAME = 2 * LONGEST_LABEL
LONGEST_REASON = 300
"""Characters on the page; CSV has the whole text."""

MOST_OPEN = 20
"""How many benchmarks the summary shows without scrolling."""


@dataclass(frozen=True, slots=True)
class BenchmarkSummary:
    """A benchmark on one GPU model: the geometric mean of the ratios of its times, and its verdicts.

    Attributes:
        benchmark: its name; empty for all benchmarks.
        device_model: empty for all GPUs.
        judgements: the verdicts on its times.
        compared: the number of ratios behind the mean.
        ratio: the mean; None if no time has a ratio.
        low: the low end of its interval; None if it is unknown.
        high: the high end.
        threshold: the largest threshold of its cases, as a fraction.
    """

    benchmark: str
    device_model: str
    judgements: tuple[Judgement, ...]
    compared: int
    ratio: float | None
    low: float | None
    high: float | None
    threshold: float

    @property
    def counts(self) -> Mapping[wording.Outcome, int]:
        """How often each outcome occurs."""
        return wording.tally(self.judgements)


@dataclass(frozen=True, slots=True)
class ComparedSides:
    """Everything that the page of a comparison shows.

    Attributes:
        base: the run compared with; None if each series has its own baseline.
        new: the run that is judged.
        judgements: the verdicts, in any order.
        thresholds: the smallest relevant change of each series, as a fraction.
        summaries: a summary for each benchmark and GPU model, then that of all.
        over_budget: the series that the new run did not measure because its budget was used up.
        environment: in what the environments of both runs differ; None if that is unknown.
        confirm: the commands that measure unconfirmed changes again.
        older: the run before ``new``; None without one.
        newer: the run after ``new``; None without one.
    """

    base: ComparedRun | None
    new: ComparedRun
    judgements: tuple[Judgement, ...]
    thresholds: Mapping[Series, float]
    summaries: tuple[BenchmarkSummary, ...] = ()
    over_budget: tuple[Series, ...] = ()
    environment: EnvironmentDifferences | None = None
    confirm: tuple[str, ...] = ()
    older: int | None = None
    newer: int | None = None

    @property
    def heading(self) -> str:
        """What is compared with what."""
        against = shortened(self.base.name, LONGEST_LABEL) if self.base else "its baseline"
        name = shortened(self.new.name, LONGEST_LABEL)
        is_a_run = self.new.run is not None and not self.new.part  # the names of others keep their spelling
        return f"{name.capitalize() if is_a_run else name} against {against}"

    @property
    def missing(self) -> list[str]:
        """A sentence about the series over budget, and one about missing series, if there are any."""
        return wording.missing_sentences(self.new.name, self.judgements, self.over_budget)

    def neighbour(self, run: int) -> str:
        """Return the command that writes the page of a neighbouring run."""
        base = self.base.run if self.base else "@baseline"
        return f"perfsvc compare {base} {run} --output compare.html"

    @property
    def counts(self) -> list[tuple[wording.Outcome, str, int]]:
        """Each outcome that occurs with its noun and number, the most important first."""
        numbers, nouns = wording.tally(self.judgements), wording.OUTCOME_NOUNS
        return [(word, nouns[word][number != 1], number) for word, number in numbers.items() if number]

    @property
    def has_devices(self) -> bool:
        """True if the rows need a column for the GPU."""
        return len({judgement.series.device for judgement in self.judgements}) > 1

    @property
    def smallest(self) -> str:
        """The smallest changes that the comparison could have found, as a sentence; empty if none is known."""
        known = sorted(row.smallest for row in self.judgements if row.smallest is not None)
        if not known:
            return ""
        middle, largest = known[len(known) // 2], known[-1]
        return (
            f"A change of {units.change(middle)} or more would have been found in half of the series, "
            f"and a change of {units.change(largest)} or more in all of them."
        )


def significance(judgement: Judgement) -> float:
    """Return how many half widths of its interval a change lies from no change; 0 if that is unknown."""
    ratio, low, high = judgement.ratio, judgement.low, judgement.high
    if ratio is None or low is None or high is None or not 0 < low <= ratio <= high < math.inf:
        return 0.0
    half = math.log(high / low) / 2
    distance = abs(math.log(ratio))
    return distance / half if half else (math.inf if distance else 0.0)


def by_significance(judgements: Sequence[Judgement]) -> list[Judgement]:
    """Return the judgements, the most significant first: broken and missing series, those that moved, then the rest."""

    def rank(judgement: Judgement) -> tuple[int, float, str, str]:
        series = judgement.series
        group = 0 if judgement.verdict in {Verdict.BROKEN, Verdict.MISSING} else 2 - (judgement.verdict in FIRST)
        return group, -significance(judgement), series.case.id, series.device

    return sorted(judgements, key=rank)


@dataclass(frozen=True, slots=True)
class Axis:
    """The common axis of all intervals of a page: linear near no change, and logarithmic further out.

    A ratio lies at asinh(log(ratio) / log(1 + scale)). So a threshold can be seen beside a change that is a hundred
    times as large, and swapping the sides mirrors the picture.

    Attributes:
        scale: the usual threshold, as a fraction.
        limit: the change at which the axis ends, as a fraction.
    """

    scale: float
    limit: float

    @classmethod
    def of(cls, sides: ComparedSides) -> "Axis":
        """Return the axis on which the changes of all series lie that moved."""
        moved = (row.ratio for row in sides.judgements if row.verdict in wording.CHANGED)
        largest = max(
            (math.exp(abs(math.log(ratio))) - 1 for ratio in moved if ratio and ratio < math.inf), default=0.0
        )
        usual = sorted(filter(None, sides.thresholds.values())) or [LIMITS[0] / LEAST_LIMIT]
        scale = usual[len(usual) // 2]
        needed = max(ROOM * largest, LEAST_LIMIT * scale)
        return cls(scale, next((limit for limit in LIMITS if limit >= needed), LIMITS[-1]))

    def __str__(self) -> str:
        """The ends of the axis: ``-50 % to +100 %``."""
        return f"{1 / (1 + self.limit) - 1:+.0%} to {self.limit:+.0%}".replace("%", " %")


@dataclass(slots=True)
class _Texts:
    """Distinct texts in the order in which they first occur; rows hold their indices, so each is written once.

    Attributes:
        write: returns the text of a value.
        texts: the index of each text.
        known: the index of the text of each value: a page has ten thousands of rows, and few different values.
    """

    write: Callable[[Any], str]
    texts: dict[str, int] = field(default_factory=dict)
    known: dict[Any, int] = field(default_factory=dict)

    def index(self, value: Any) -> int:
        at = self.known.get(value)
        if at is None:
            at = self.known[value] = self.texts.setdefault(self.write(value), len(self.texts))
        return at


def data(sides: ComparedSides, link: Mapping[Series, str]) -> Markup:
    """Return the rows of the table as JSON for a ``script`` element.

    Args:
        sides: the comparison.
        link: the paths of the pages of some series.
    """
    ordered = by_significance(sides.judgements)
    names = map(_shown_name, wording.series_names([judgement.series for judgement in ordered]))
    devices = _device_names(sides.judgements)
    outcomes, benchmarks = _Texts(lambda word: word.value), _Texts(lambda name: cut(visible(name), LONGEST_NAME))
    gpus, causes = _Texts(devices.__getitem__), _Texts(lambda cause: cause.value if cause else "")
    reasons = _Texts(lambda reason: cut(visible(reason), LONGEST_REASON))
    thresholds = _Texts(lambda threshold: str(_number(threshold) or 0))
    ratios, lows, highs = (_numbers([getattr(row, name) for row in ordered]) for name in ("ratio", "low", "high"))
    rows = [
        [
            outcomes.index(word),
            name,
            benchmarks.index(row.series.case.benchmark),
            gpus.index(row.series.device),
            wording.level(row.baseline_s, row.series.metric),
            wording.level(row.candidate_s, row.series.metric),
            ratio,
            low,
            high,
            units.change(row.smallest) if row.smallest is not None else "",
            causes.index(None if row.cause == word else row.cause),
            # What is drawn shows why a series is unchanged, except if its code decided.
            reasons.index(
                row.reason
                if row.verdict is not Verdict.UNCHANGED
                else wording.why_unchanged(row)
                if row.is_same_code
                else ""
            ),
            thresholds.index(sides.thresholds.get(row.series)),
            link.get(row.series, ""),
        ]
        for row, name, ratio, low, high in zip(ordered, names, ratios, lows, highs, strict=True)
        for word in [wording.outcome(row)]
    ]
    lists = {
        "outcomes": outcomes,
        "benchmarks": benchmarks,
        "devices": gpus,
        "causes": causes,
        "reasons": reasons,
        "thresholds": thresholds,
    }
    texts = {name: list(known.texts) for name, known in lists.items()} if rows else {}
    axis = Axis.of(sides)
    shared = {"scale": axis.scale, "limit": axis.limit, "relevant": [word.value for word in FIRST]}
    written = json_of_numbers({**texts, "rows": rows, **shared})
    # In a script element only these characters could end the text early, and JSON holds them only within texts.
    return Markup(written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))  # noqa: S704 - ours


def _device_names(judgements: Sequence[Judgement]) -> dict[str, str]:
    """Return the model of each device by UUID, with the UUID if several devices are of one model."""
    models = {row.series.device: row.series.device_model for row in judgements}
    all_models = list(models.values())
    return {
        uuid: cut(visible(model if all_models.count(model) == 1 else f"{model} ({uuid})"), LONGEST_NAME)
        for uuid, model in models.items()
    }


@lru_cache(maxsize=1 << 15)
def _shown_name(name: str) -> str:
    """Return a name as a row shows it; the comparisons of a site have the same names."""
    return cut(visible(name), LONGEST_NAME)


def _numbers(values: Sequence[float | None]) -> list[float | None]:
    """Return what ``_number`` returns for each of some values."""
    digits = rounded(np.array([math.nan if value is None else value for value in values]), 1.0)
    return [None if math.isnan(value) else value for value in digits.tolist()]


def _number(value: float | None) -> float | None:
    return float(f"{value:.6g}") if value is not None and math.isfinite(value) else None
