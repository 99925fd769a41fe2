"""Tables for people: of a run, of a comparison, and the lists."""

from collections.abc import Iterable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfsvc.model import TIME, Judgement, Verdict
from perfsvc.report import units
from perfsvc.report.history_table import history_table
from perfsvc.report.layout import DASH, Responsive, counts, grid, known, mode_words, some, verdict_word
from perfsvc.report.listings import cases_table, devices_table, doctor_table, pins_table, runs_table
from perfsvc.report.plain import comparison_json, plain, run_json
from perfsvc.report.rows import ComparedRun, Key
from perfsvc.report.run_table import doubt_text, run_table

__all__ = [
    "cases_table",
    "comparison_json",
    "comparison_table",
    "counts",
    "devices_table",
    "doctor_table",
    "doubt_text",
    "history_table",
    "pins_table",
    "plain",
    "run_json",
    "run_table",
    "runs_table",
]


def comparison_table(base: ComparedRun | None, new: ComparedRun, judgements: Sequence[Judgement]) -> RenderableType:
    """The verdicts between two runs in the judge's order, why where it is not plain, and how many there are of each.

    Args:
        base: the run compared with; None where each series has its own baseline.
        new: the run that is judged.
        judgements: as ``judge.verdicts`` made them.
    """
    against = _resolved(base) if base else "the baseline of each series"
    heading = Text(f"{_resolved(new)}\nagainst {against}", "bold")
    table = Responsive(_comparison(judgements), _comparison(judgements, compact=True))
    reasons = _reasons(judgements)
    return Group(heading, table, Text(), *reasons, *([Text()] if reasons else []), Text(counts(judgements)))


def _resolved(compared: ComparedRun) -> str:
    """What was asked for and what it is: ``HEAD = run 7, 1a2b3c4d5 with uncommitted changes``."""
    run = f"run {compared.run}"
    named = run if compared.asked == str(compared.run) else f"{compared.asked} = {run}"
    label = f"“{compared.label}”" if compared.label not in {"", compared.asked} else ""
    commit = compared.commit[:9] + (" with uncommitted changes" if compared.dirty else "")
    return ", ".join(filter(None, [named, label, commit]))


def _reasons(judgements: Sequence[Judgement]) -> list[Text]:
    """Why, once for all series that share a verdict and its reason; what is unchanged needs none."""
    cases: dict[tuple[Verdict, str], list[str]] = {}
    modes = _modes(judgements)
    for judgement in judgements:
        if judgement.verdict is not Verdict.UNCHANGED:
            name = f"{judgement.series.case.id} {modes[_key(judgement)]}".rstrip()
            cases.setdefault((judgement.verdict, judgement.reason), []).append(name)
    return [
        Text.assemble(verdict_word(verdict), " ", (some(names), "bold"), f": {reason}")
        for (verdict, reason), names in cases.items()
    ]


def _comparison(judgements: Sequence[Judgement], *, compact: bool = False) -> Table:
    several, modes = len({judgement.series.device for judgement in judgements}) > 1, _modes(judgements)
    table = grid()
    table.add_column("verdict", no_wrap=True)
    table.add_column("case", overflow="fold", min_width=16)
    if not compact:
        table.add_column("baseline", justify="right", no_wrap=True)
        table.add_column("candidate", justify="right", no_wrap=True)
    table.add_column("change", justify="right", no_wrap=True)
    table.add_column("interval", no_wrap=not compact)
    for judgement in judgements:
        levels = [] if compact else [_level(judgement, judgement.baseline_s), _level(judgement, judgement.candidate_s)]
        table.add_row(
            verdict_word(judgement.verdict),
            _judged_cell(judgement, modes[_key(judgement)], device=several),
            *levels,
            Text(known(judgement.ratio, units.percent)),
            Text(_interval(judgement)),
        )
    return table


def _judged_cell(judgement: Judgement, mode: str, *, device: bool) -> Text:
    series = judgement.series
    cell = Text(" ".join(filter(None, [series.case.id, mode, "" if series.metric == TIME else series.metric])))
    if device:
        cell.append(f"\non {series.device_model} ({series.device})", "dim")
    return cell


def _modes(judgements: Iterable[Judgement]) -> Mapping[Key, str]:
    return mode_words(map(_key, judgements))


def _key(judgement: Judgement) -> Key:
    return judgement.series.device, judgement.series.case.id, judgement.series.mode


def _level(judgement: Judgement, level: float | None) -> Text:
    return Text(known(level, units.seconds if judgement.series.metric == TIME else "{:.4g}".format))


def _interval(judgement: Judgement) -> str:
    if judgement.low is None or judgement.high is None:
        return DASH
    return f"{units.percent(judgement.low)} to {units.percent(judgement.high)}"
