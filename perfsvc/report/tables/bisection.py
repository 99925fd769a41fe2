"""The answer of a bisection: the commit that moved or broke a case."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfsvc import units
from perfsvc.model import TIME, Bisection, Commit, Verdict
from perfsvc.report import wording
from perfsvc.report.tables.layout import grid
from perfsvc.report.wording import DASH, or_dash
from perfsvc.text import cut

NAMED = 12
"""How many skipped commits are named."""


def bisection_text(bisection: Bisection) -> RenderableType:
    """Return the answer of a bisection, the table of its comparisons, the skipped commits, and the counts."""
    device = Text.assemble((bisection.device.model, "bold"), f"  {bisection.device.uuid}")
    parts: list[RenderableType] = [device, Text(), *_answer(bisection)]
    if bisection.trials:
        is_broken = bisection.verdict is Verdict.BROKEN
        parts += [Text(), _checks_table(bisection) if is_broken else _trials_table(bisection)]
    if bisection.skipped:
        parts += [Text(), *_skipped_lines(bisection)]
    return Group(*parts, Text(), Text(counts(bisection)))


def counts(bisection: Bisection) -> str:
    """Return the counts as text: ``11 commits: 4 built (2 compiled anew), 3 codes; 2 comparisons of 12 processes``."""
    processes = sum(len(trial.baseline) + len(trial.candidate) for trial in bisection.trials)
    comparisons = units.count(len(bisection.trials), "check" if bisection.verdict is Verdict.BROKEN else "comparison")
    measured = f"{comparisons} of {units.count(processes, 'process', 'processes')}"
    built = f"{bisection.builds} built ({bisection.compiled} compiled anew)"
    return f"{units.count(bisection.commits, 'commit')}: {built}, {units.count(bisection.codes, 'code')}; {measured}"


def _answer(bisection: Bisection) -> Iterator[Text]:
    """Yield the lines of the answer: the commit at fault, or several possible commits, or why there is none."""
    ratio = 0 if bisection.verdict is Verdict.IMPROVEMENT else 2  # only its side of 1 matters: slower or faster
    slower = wording.direction_word(bisection.metric, ratio)
    case = bisection.case.id
    subject = case if bisection.metric == TIME else f"{bisection.metric} of {case}"
    if bisection.verdict is Verdict.BROKEN:
        slower, subject = Verdict.BROKEN.value, case
    match bisection.culprits:
        case ():
            yield Text.assemble(wording.outcome_word(bisection.verdict), f": {cut(bisection.reason)}")
            return
        case (culprit,):
            style = wording.OUTCOME_STYLES[bisection.verdict] if bisection.proven else "yellow"
            first = f"is the first commit at which {subject} is {slower}"
            yield Text.assemble((culprit.short, style), " ", (first, "bold"))
        case several:
            yield Text(f"one of {len(several)} commits made {subject} {slower}", "bold")
    for culprit in bisection.culprits:
        yield Text()
        yield from _commit_lines(culprit)
    yield Text()
    yield Text(cut(bisection.reason))
    yield from _proof_lines(bisection)


def _commit_lines(commit: Commit) -> Iterator[Text]:
    """Yield the subject, the author with the date, and the hash of a commit."""
    merge = f", a merge of {len(commit.parents)}" if len(commit.parents) > 1 else ""
    yield Text(f"  {commit.subject}")
    yield Text(f"  {commit.author}, {wording.moment(commit.date)}", "dim")
    yield Text(f"  {commit.hash}{merge}", "dim")


def _proof_lines(bisection: Bisection) -> Iterator[Text]:
    """Yield the interval of a proven change, the whole change from good to bad, and what the commit changed.

    Yield nothing without a proof, and no interval for a broken case.
    """
    proof = bisection.proof
    if proof is None:
        return
    good_and_bad = (bisection.good, bisection.bad)
    total = next((trial.ratio for trial in bisection.trials if (trial.before, trial.after) == good_and_bad), None)
    if bisection.verdict is not Verdict.BROKEN:
        span = wording.interval(proof.low, proof.high) or DASH
        yield Text(f"interval {span}; from good to bad {or_dash(total, units.percent)}")
    files = wording.some(bisection.files)
    yield Text(f"changed: {', '.join(bisection.changed)}{f' ({files})' if bisection.changed and files else files}")
    if "benchmark file" in bisection.changed:
        yield Text(
            "its inputs may have changed too: each commit ran with the inputs of its own benchmark file", "yellow"
        )


def _trials_table(bisection: Bisection) -> Table:
    """Return a table with a row for each comparison of two commits."""
    table = grid()
    table.add_column("measured", no_wrap=True)
    table.add_column("against", no_wrap=True)
    table.add_column("subject", overflow="fold", min_width=12)
    table.add_column("change", justify="right", no_wrap=True)
    table.add_column("interval")
    table.add_column("pairs", justify="right")
    for trial in bisection.trials:
        table.add_row(
            trial.after.short,
            "good" if trial.before == bisection.good else trial.before.short,
            Text(trial.after.subject),
            Text(or_dash(trial.ratio, units.percent)),
            Text(wording.interval(trial.low, trial.high) or DASH),
            str(trial.pairs),
        )
    return table


def _checks_table(bisection: Bisection) -> Table:
    """Return a table with a row for each commit whose results one process checked."""
    table = grid()
    table.add_column("checked", no_wrap=True)
    table.add_column("subject", overflow="fold", min_width=12)
    table.add_column("result", overflow="fold")
    for trial in bisection.trials:
        table.add_row(trial.after.short, Text(trial.after.subject), Text(cut(trial.reason)))
    return table


def _skipped_lines(bisection: Bisection) -> Iterator[Text]:
    """Yield a line with the reason for each of the first ``NAMED`` skipped commits, then the number of all others."""
    for skipped in bisection.skipped[:NAMED]:
        first_lines = cut(" ".join(skipped.reason.splitlines()[:2]))
        yield Text.assemble(("skipped", "yellow"), f" {skipped.commit}: {first_lines}")
    if len(bisection.skipped) > NAMED:
        yield Text(f"and {len(bisection.skipped) - NAMED} more skipped", "yellow")
