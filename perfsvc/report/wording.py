"""Why a verdict is what it is, in lines below a table: once for all series that share it."""

from collections.abc import Callable, Sequence
from math import inf

from rich.text import Text

from perfsvc import units
from perfsvc.model import TIME, Judgement, Verdict
from perfsvc.report.rows import Key
from perfsvc.report.tables.layout import DASH, cache_words, known, some, verdict_word

MOVED = (Verdict.REGRESSION, Verdict.IMPROVEMENT)


def reason_lines(judgements: Sequence[Judgement]) -> list[Text]:
    """Each reason with the series that share it; what is unchanged needs none, and what is inconclusive a short one."""
    return [*_shared(judgements, lambda one: one.reason, lambda one: _bound(one) is None), *_bounds(judgements)]


def moved_lines(judgements: Sequence[Judgement]) -> list[Text]:
    """Each series that moved with all that its verdict rests on; and in short what is inconclusive."""
    moved = [judgement for judgement in judgements if judgement.verdict in MOVED]
    return [*_shared(moved, _in_full, lambda _: True), *_bounds(judgements)]


def named(judgements: Sequence[Judgement]) -> dict[int, str]:
    """What each series is called among the others, by its place: the case, the cache state if it needs one, the metric."""
    caches = cache_words(map(_key, judgements))
    return {place: _name(judgement, caches[_key(judgement)]) for place, judgement in enumerate(judgements)}


def interval(judgement: Judgement) -> str:
    """The interval of the ratio: ``+4.0 % to +6.0 %``; empty where there is none."""
    if judgement.low is None or judgement.high is None:
        return ""
    return f"{units.percent(judgement.low)} to {units.percent(judgement.high)}"


def replicas(judgement: Judgement) -> str:
    """How many replicas each side rests on: ``3 / 5``; empty where nobody counted them."""
    counted = judgement.baseline_replicas, judgement.candidate_replicas
    return "" if None in counted else "{} / {}".format(*counted)


def written(judgement: Judgement, column: str) -> str:
    """What a column of a comparison says of a verdict; a dash where it says nothing."""
    match column:
        case "baseline":
            return _level(judgement, judgement.baseline_s)
        case "candidate":
            return _level(judgement, judgement.candidate_s)
        case "change":
            return known(judgement.ratio, units.percent)
        case "interval":
            return interval(judgement) or DASH
        case "replicas":
            return replicas(judgement) or DASH
        case _:
            return known(judgement.smallest, units.change)


def _level(judgement: Judgement, level: float | None) -> str:
    return known(level, units.seconds if judgement.series.metric == TIME else "{:.4g}".format)


def _key(judgement: Judgement) -> Key:
    return judgement.series.device, judgement.series.case.id, judgement.series.cache


def _name(judgement: Judgement, cache: str) -> str:
    metric = "" if judgement.series.metric == TIME else judgement.series.metric
    return " ".join(filter(None, [judgement.series.case.id, cache, metric]))


def _shared(
    judgements: Sequence[Judgement], words: Callable[[Judgement], str], wanted: Callable[[Judgement], bool]
) -> list[Text]:
    names = named(judgements)
    sharing: dict[tuple[Verdict, str], list[str]] = {}
    for place, judgement in enumerate(judgements):
        if judgement.verdict is not Verdict.UNCHANGED and wanted(judgement):
            sharing.setdefault((judgement.verdict, words(judgement)), []).append(names[place])
    return [
        Text.assemble(verdict_word(verdict), " ", (some(of_words), "bold"), f": {said}")
        for (verdict, said), of_words in sharing.items()
    ]


def _in_full(judgement: Judgement) -> str:
    """What a verdict rests on, where no column tells it."""
    change = "" if judgement.ratio is None else units.percent(judgement.ratio)
    span = interval(judgement)
    facts = [f"{change} ({span})" if span else change]
    if counted := replicas(judgement):
        facts.append(f"{counted} replicas")
    if judgement.smallest is not None:
        facts.append(f"{units.change(judgement.smallest)} would have shown")
    if judgement.cause:
        facts.append(f"cause: {judgement.cause}")
    return "; ".join(filter(None, [", ".join(filter(None, facts)), judgement.reason]))


def _bound(judgement: Judgement) -> float | None:
    """How large the change of an inconclusive series is at most, as a fraction; None where nothing bounds it."""
    if judgement.verdict is not Verdict.INCONCLUSIVE or not judgement.low or judgement.high in {None, inf}:
        return None
    return max(judgement.high or 0.0, 1 / judgement.low) - 1


def _bounds(judgements: Sequence[Judgement]) -> list[Text]:
    """One line for all that is inconclusive within bounds."""
    names = named(judgements)
    bounds = {names[place]: bound for place, one in enumerate(judgements) if (bound := _bound(one)) is not None}
    if not bounds:
        return []
    least, most = (units.change(end(bounds.values())) for end in (min, max))
    both_in_percent = most.endswith(" %")
    above = most if least == most else f"{least.removesuffix(' %') if both_in_percent else least} to {most}"
    return [
        Text.assemble(verdict_word(Verdict.INCONCLUSIVE), ", ", f"nothing above {above}: ", (some([*bounds]), "bold"))
    ]
