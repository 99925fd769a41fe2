"""A static check for people: what changed and what is worth a look, or all there is."""

from collections.abc import Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfsvc import units
from perfsvc.model import CheckedKernel, CheckVerdict, StaticFacts, Verdict
from perfsvc.report.checks import (
    SHOWN,
    CheckShown,
    Line,
    limiter_of,
    lines,
    names_of,
    number_of,
    remarkable,
    skipped,
    variant_of,
)
from perfsvc.report.tables.layout import DASH, Responsive, counts, grid, some, verdict_word

LAYOUTS = (
    ("registers", "spills", "stack", "shared", "dynamic", "barriers", "threads", "occupancy", "instructions"),
    ("registers", "spills", "stack", "shared", "dynamic", "occupancy", "instructions"),
    ("registers", "spills", "shared", "occupancy"),
    ("registers", "spills"),
)
"""The columns of all facts, for ever narrower terminals; sizes are bytes."""
WIDEST = 20
"""Characters of a row for its architectures; more of them go to the next line."""
INDENT = 2


def check_table(shown: CheckShown, *, everything: bool = False) -> RenderableType:
    """A static check: a heading, what changed, what uses local memory, what was skipped, and how many there are.

    Args:
        shown: the check.
        everything: show every kernel for every architecture with all its facts.
    """
    found = [
        line for line in lines(shown.verdicts, tuple(Verdict) if everything and shown.against else SHOWN) if _says(line)
    ]
    parts: list[RenderableType] = [Text(heading(shown), "bold"), Text()]
    if everything:
        parts += [_facts(shown), Text()]
    if found:
        parts += [_changes(found, shown), Text()]
    notes = [*_remarkable(shown), *_skipped(shown), *_failures(shown), *_moved_within(shown, everything=everything)]
    parts += [*notes, *([Text()] if notes else []), Text(counts_of(shown))]
    return Group(*parts)


def heading(shown: CheckShown) -> str:
    """What was looked at, by which compiler, and what it was compared with."""
    number = "" if shown.check is None else f"check {shown.check}: "
    what = f"{units.count(shown.variants, 'variant')} for {', '.join(shown.architectures)}"
    against = f"against {shown.against}" if shown.against else "with nothing to compare with yet"
    return f"{number}{what}\nmade by {shown.toolkit}, {against}"


def counts_of(shown: CheckShown) -> str:
    """``1 regression, 0 improvements, 503 unchanged``."""
    return counts(shown.verdicts) + (f"; accepted: {shown.accepted}" if shown.accepted else "")


def on(architectures: Sequence[str], shown: CheckShown) -> str:
    """Architectures, or ``all`` where it is all of several."""
    return "all" if 1 < len(shown.architectures) == len(architectures) else ", ".join(architectures)


def _changes(found: Sequence[Line], shown: CheckShown) -> RenderableType:
    """Each variant with its verdict, and below it what changed, a row for the architectures where that is the same."""
    where = {id(line): on(line.architectures, shown) for line in found}
    width = min(max(map(len, where.values())), WIDEST)
    parts: list[RenderableType] = []
    for (verdict, cause, what), group in groupby(found, lambda line: (line.verdict, line.cause, line.what)):
        parts.append(Text.assemble(verdict_word(verdict), (f" {cause}" if cause else "", "dim"), " ", (what, "bold")))
        rows = Table.grid(padding=(0, 2, 0, 0))
        rows.add_column(width=INDENT)
        rows.add_column(width=width)
        rows.add_column(overflow="fold")
        for line in group:
            rows.add_row("", Text(where[id(line)]), Text(line.text))
        parts.append(rows)
    return Group(*parts)


def _says(line: Line) -> bool:
    """What is unchanged in every fact needs no line."""
    return line.verdict is not Verdict.UNCHANGED or bool(line.text)


def _facts(shown: CheckShown) -> RenderableType:
    names = names_of(shown.checked)
    kernels = {_key(one, names[one.case, one.kernel]): one for one in shown.checked if one.facts}
    return Responsive(*(_facts_table(list(kernels.items()), columns) for columns in LAYOUTS))


def _key(checked: CheckedKernel, name: str) -> tuple[object, ...]:
    """Equal for the points of a variant that have the same facts."""
    where = name, checked.architecture
    return (*where, checked.facts, checked.occupancy, checked.threads, checked.dynamic_shared_bytes)


def _facts_table(kernels: Sequence[tuple[tuple[object, ...], CheckedKernel]], columns: Sequence[str]) -> Table:
    table = grid()
    table.add_column("variant", overflow="fold", min_width=16)
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    before = ""
    for (name, architecture, *_), one in sorted(
        kernels, key=lambda pair: (str(pair[0][0]), number_of(str(pair[0][1])))
    ):
        cells = (Text(_written(one, one.facts, column)) for column in columns if one.facts)
        table.add_row(Text("" if name == before else str(name)), Text(str(architecture)), *cells)
        before = str(name)
    return table


def _written(checked: CheckedKernel, facts: StaticFacts, column: str) -> str:
    occupancy = checked.occupancy
    number = None if facts.instructions is None else sum(counted for _, counted in facts.instructions)
    cells = {
        "registers": facts.registers,
        "spills": facts.spill_bytes,
        "stack": facts.stack_bytes,
        "shared": facts.shared_bytes,
        "dynamic": checked.dynamic_shared_bytes,
        "barriers": facts.barriers,
        "threads": checked.threads or DASH,
        "occupancy": f"{100 * occupancy.share:.0f} %{limiter_of(occupancy)}" if occupancy else DASH,
        "instructions": DASH if number is None else number,
    }
    return str(cells[column])


def _remarkable(shown: CheckShown) -> list[Text]:
    return [
        Text.assemble(("local memory", "yellow"), " ", (what, "bold"), f" ({on(architectures, shown)}): {text}")
        for what, architectures, text in remarkable(shown)
    ]


def _skipped(shown: CheckShown) -> list[Text]:
    return [
        Text.assemble(("skipped", "dim"), " ", (some(variants), "bold"), f" ({on(architectures, shown)}): {reason}")
        for reason, variants, architectures in skipped(shown.checked)
    ]


def _failures(shown: CheckShown) -> list[Text]:
    return [
        *(Text.assemble(("broken", "bold red"), f" {problem}") for problem in shown.problems),
        *(
            Text.assemble((one.status.value, "bold red"), " ", (one.case.id, "bold"), f" on the CPU: {one.reason}")
            for one in shown.wrong
        ),
    ]


def _moved_within(shown: CheckShown, *, everything: bool) -> list[Text]:
    """How many changes there are that no launch feels."""
    moved = [one for one in shown.verdicts if _is_within(one)]
    if not moved or everything:
        return []
    variants = {variant_of(one.checked.case) for one in moved}
    return [
        Text(f"{units.count(len(variants), 'variant')} changed within what no launch feels: --all shows them", "dim")
    ]


def _is_within(verdict: CheckVerdict) -> bool:
    return verdict.verdict is Verdict.UNCHANGED and bool(verdict.changes)
