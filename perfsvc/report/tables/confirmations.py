"""What came of suspects that were measured again: a table for people, objects for programs."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from perfsvc import units
from perfsvc.model import TIME, Confirmation, Verdict
from perfsvc.report.export.objects import plain
from perfsvc.report.tables.layout import VERDICT_STYLES, cache_words, grid, known
from perfsvc.report.turns import interval_text, turn_json

DECIDED = (
    "cause",
    "reason",
    "verdict",
    "ratio",
    "low",
    "high",
    "pairs",
    "looks",
    "drift",
    "same_code",
    "threshold",
    "seed",
    "budget_s",
    "wall_s",
)
"""What programs are told of a decision."""


def confirmations_table(confirmations: Sequence[Confirmation]) -> RenderableType:
    """A line a suspect, how each decision is known, and how many were confirmed and cleared."""
    caches = cache_words(map(_key, confirmations))
    names = [" ".join(filter(None, (_key(one)[1], caches[_key(one)], _metric(one)))) for one in confirmations]
    several = len({one.suspect.series.device for one in confirmations}) > 1
    table = grid()
    table.add_column("cause", no_wrap=True)
    table.add_column("case", overflow="fold", min_width=16)
    table.add_column("in the run", justify="right", no_wrap=True)
    table.add_column("in turn", justify="right", no_wrap=True)
    table.add_column("interval")
    table.add_column("pairs", justify="right")
    for one, name in zip(confirmations, names, strict=True):
        table.add_row(
            _cause_word(one),
            _case_cell(one, name, device=several),
            Text(known(one.suspect.judgement.ratio, units.percent)),
            Text(known(one.ratio, units.percent)),
            Text(interval_text(one.low, one.high)),
            str(one.pairs),
        )
    reasons = [
        Text.assemble(_cause_word(one), " ", (name, "bold"), f": {one.reason}")
        for one, name in zip(confirmations, names, strict=True)
    ]
    return Group(table, Text(), *reasons, Text(), Text(counts(confirmations)))


def counts(confirmations: Sequence[Confirmation]) -> str:
    """``measured again: 1 confirmed, 2 cleared, 0 unconfirmed; 3 stand as an earlier night had them measured``."""
    before = sum(one.carried_over for one in confirmations)
    confirmed = sum(one.confirmed for one in confirmations) - before
    cleared = sum(one.cleared for one in confirmations)
    rest = len(confirmations) - before - confirmed - cleared
    again = f"measured again: {confirmed} confirmed, {cleared} cleared, {rest} unconfirmed"
    stands = "stands as an earlier night had it" if before == 1 else "stand as an earlier night had them"
    return f"{again}; {before} {stands} measured" if before else again


def confirmation_json(one: Confirmation) -> dict[str, Any]:
    """A suspect for ``--format json``: what its run said, what came of it, and what each process measured."""
    judged = plain(one.suspect.judgement)
    series = ("case", "benchmark", "variant", "point", "device", "device_model", "metric", "cache")
    return {
        **{name: judged[name] for name in (*series, "baseline_run", "candidate_run")},
        "judged": judged["verdict"],
        "judged_ratio": judged["ratio"],
        "change": plain(one.suspect.change),
        "direction": plain(one.suspect.direction),
        **{name: plain(getattr(one, name)) for name in DECIDED},
        "baseline": [turn_json(turn, one.suspect.series.metric) for turn in one.baseline],
        "candidate": [turn_json(turn, one.suspect.series.metric) for turn in one.candidate],
    }


def _key(one: Confirmation) -> tuple[str, str, Any]:
    series = one.suspect.series
    return series.device, series.case.id, series.cache


def _metric(one: Confirmation) -> str:
    """The metric that was measured again; empty of the time."""
    metric = one.suspect.series.metric
    return "" if metric == TIME else metric


def _case_cell(one: Confirmation, name: str, *, device: bool) -> Text:
    series, cell = one.suspect.series, Text(name)
    return cell.append(f"\non {series.device_model} ({series.device})", "dim") if device else cell


def _cause_word(one: Confirmation) -> Text:
    if one.confirmed:
        return Text(one.cause.value, VERDICT_STYLES[one.verdict or Verdict.REGRESSION])
    return Text(one.cause.value, "dim" if one.cleared else "yellow")
