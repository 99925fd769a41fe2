"""Which commit moved a case: an answer for people, an object for programs."""

from collections.abc import Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfsvc import units
from perfsvc.model import TIME, Bisection, Commit, Trial, Verdict
from perfsvc.report.export.objects import plain
from perfsvc.report.tables.layout import VERDICT_STYLES, grid, known, moment, some, verdict_word
from perfsvc.report.turns import interval_text, moved_word, turn_json

NAMED = 12
"""How many commits are named of those that were skipped."""


def bisection_text(found: Bisection) -> RenderableType:
    """The commit with all that is known of it, what was measured, what was skipped, and what it took."""
    device = Text.assemble((found.device.model, "bold"), f"  {found.device.uuid}")
    parts: list[RenderableType] = [device, Text(), *_answer(found)]
    if found.trials:
        parts += [Text(), _trials_table(found)]
    if found.skipped:
        parts += [Text(), *_skipped_lines(found)]
    return Group(*parts, Text(), Text(counts(found)))


def counts(found: Bisection) -> str:
    """``11 commits: 4 built, 3 codes; 2 comparisons of 12 processes``."""
    processes = sum(len(trial.baseline) + len(trial.candidate) for trial in found.trials)
    measured = f"{units.count(len(found.trials), 'comparison')} of {units.count(processes, 'process', 'processes')}"
    built = f"{found.builds} built ({found.compiled} compiled anew)"
    return f"{units.count(found.commits, 'commit')}: {built}, {units.count(found.codes, 'code')}; {measured}"


def bisection_json(found: Bisection) -> dict[str, Any]:
    """The answer for ``--format json``: the commits, the proof, and what each process measured."""
    facts = ("cache", "metric", "threshold", "boundary", "seed", "verdict", "reason", "proven", "changed", "files")
    costs = ("commits", "builds", "compiled", "codes", "wall_s")
    return {
        "case": found.case.id,
        "device": found.device.uuid,
        "device_model": found.device.model,
        **{name: plain(getattr(found, name)) for name in facts},
        "good": plain(found.good),
        "bad": plain(found.bad),
        "culprits": plain(found.culprits),
        "proof": found.proof and _trial_json(found.proof, found.metric),
        "trials": [_trial_json(trial, found.metric) for trial in found.trials],
        "skipped": [{**plain(one.commit), "reason": one.reason} for one in found.skipped],
        **{name: plain(getattr(found, name)) for name in costs},
    }


def _answer(found: Bisection) -> Iterator[Text]:
    """The commit, or those that cannot be told apart, or why there is none."""
    slower = moved_word(found.metric, 0 if found.verdict is Verdict.IMPROVEMENT else 2)
    subject = found.case.id if found.metric == TIME else f"{found.metric} of {found.case.id}"
    match found.culprits:
        case ():
            yield Text.assemble(verdict_word(found.verdict), f": {found.reason}")
            return
        case (culprit,):
            style = VERDICT_STYLES[found.verdict] if found.proven else "yellow"
            first = f"is the first commit at which {subject} is {slower}"
            yield Text.assemble((culprit.short, style), " ", (first, "bold"))
        case several:
            yield Text(f"one of {len(several)} commits made {subject} {slower}", "bold")
    for culprit in found.culprits:
        yield Text()
        yield from _commit_lines(culprit)
    yield Text()
    yield Text(found.reason)
    yield from _proof_lines(found)


def _commit_lines(commit: Commit) -> Iterator[Text]:
    merge = f", a merge of {len(commit.parents)}" if len(commit.parents) > 1 else ""
    yield Text(f"  {commit.subject}")
    yield Text(f"  {commit.author}, {moment(commit.date)}", "dim")
    yield Text(f"  {commit.hash}{merge}", "dim")


def _proof_lines(found: Bisection) -> Iterator[Text]:
    proof = found.proof
    if proof is None:
        return
    ends = (found.good, found.bad)
    total = next((one.ratio for one in found.trials if (one.before, one.after) == ends), None)
    yield Text(f"interval {interval_text(proof.low, proof.high)}; from good to bad {known(total, units.percent)}")
    files = f" ({some(found.files)})" if found.files else ""
    yield Text(f"changed: {', '.join(found.changed)}{files}")
    if "benchmark file" in found.changed:
        yield Text("its inputs may have changed too: each commit ran with those of its own benchmark file", "yellow")


def _trials_table(found: Bisection) -> Table:
    table = grid()
    table.add_column("measured", no_wrap=True)
    table.add_column("against", no_wrap=True)
    table.add_column("subject", overflow="fold", min_width=12)
    table.add_column("change", justify="right", no_wrap=True)
    table.add_column("interval")
    table.add_column("pairs", justify="right")
    for trial in found.trials:
        table.add_row(
            trial.after.short,
            "good" if trial.before == found.good else trial.before.short,
            Text(trial.after.subject),
            Text(known(trial.ratio, units.percent)),
            Text(interval_text(trial.low, trial.high)),
            str(trial.pairs),
        )
    return table


def _skipped_lines(found: Bisection) -> Iterator[Text]:
    for one in found.skipped[:NAMED]:
        first_lines = " ".join(one.reason.splitlines()[:2])
        yield Text.assemble(("skipped", "yellow"), f" {one.commit}: {first_lines}")
    if len(found.skipped) > NAMED:
        yield Text(f"and {len(found.skipped) - NAMED} more skipped", "yellow")


def _trial_json(trial: Trial, metric: str) -> dict[str, Any]:
    facts = ("verdict", "reason", "ratio", "low", "high", "pairs", "looks")
    return {
        "before": trial.before.hash,
        "after": trial.after.hash,
        **{name: plain(getattr(trial, name)) for name in facts},
        "baseline": [turn_json(turn, metric) for turn in trial.baseline],
        "candidate": [turn_json(turn, metric) for turn in trial.candidate],
    }
