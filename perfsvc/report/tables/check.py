"""The table of a static check: what changed and what deserves a look, or all facts."""

from collections.abc import Sequence
from functools import partial
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfsvc import units
from perfsvc.model import CheckedKernel, StaticFacts, Verdict
from perfsvc.report.checks import (
    REPORTED,
    CheckLine,
    StaticCheck,
    architecture_number,
    check_lines,
    kernel_names,
    limiter_text,
    local_memory,
    skipped,
    variant_of,
)
from perfsvc.report.tables.layout import Responsive, grid
from perfsvc.report.wording import DASH, outcome_word, some
from perfsvc.text import cut

LAYOUTS = (
    ("registers", "spills", "stack", "shared", "dynamic", "barriers", "threads", "occupancy", "instructions"),
    ("registers", "spills", "stack", "shared", "dynamic", "occupancy", "instructions"),
    ("registers", "spills", "shared", "occupancy"),
    ("registers", "spills"),
)
"""The columns of all facts, from the widest terminal to the narrowest; sizes are bytes."""
ARCHITECTURES_WIDTH = 20
"""Characters of a row for its architectures; longer lists wrap."""
INDENT = 2


def check_table(check: StaticCheck, *, everything: bool = False) -> RenderableType:
    """Return the heading, the changes, the notes on local memory and skipped kernels, and the verdict counts.

    Args:
        check: the check.
        everything: show every kernel for every architecture with all its facts.
    """
    reported = tuple(Verdict) if everything and check.against else REPORTED
    lines = [
        line
        for line in check_lines(check.verdicts, reported)
        if line.verdict is not Verdict.UNCHANGED or line.text  # an unchanged kernel without any change needs no line
    ]
    parts: list[RenderableType] = [Text(check.heading, "bold"), Text()]
    if everything:
        parts += [_all_facts(check), Text()]
    if lines:
        parts += [_changes(lines, check), Text()]
    notes = [*_notes(check), *([] if everything else _irrelevant_changes(check))]
    parts += [*notes, *([Text()] if notes else []), Text(check.counts)]
    return Group(*parts)


def _changes(lines: Sequence[CheckLine], check: StaticCheck) -> RenderableType:
    """Return each variant with its verdict, and below each variant its changes, each with the architectures."""
    where = {id(line): check.on(line.architectures) for line in lines}
    width = min(max(map(len, where.values())), ARCHITECTURES_WIDTH)
    parts: list[RenderableType] = []
    for (verdict, cause, subject), group in groupby(lines, lambda line: (line.verdict, line.cause, line.subject)):
        cause_text = f" {cause}" if cause else ""
        parts.append(Text.assemble(outcome_word(verdict), (cause_text, "dim"), " ", (subject, "bold")))
        rows = Table.grid(padding=(0, 2, 0, 0))
        rows.add_column(width=INDENT)
        rows.add_column(width=width)
        rows.add_column(overflow="fold")
        for line in group:
            rows.add_row("", Text(where[id(line)]), Text("\n".join(filter(None, [line.text, line.where]))))
        parts.append(rows)
    return Group(*parts)


def _all_facts(check: StaticCheck) -> RenderableType:
    """Return a table of all kernels with their facts; points of a kernel with the same facts share a row."""
    names = kernel_names(check.checked)
    distinct = {}
    for kernel in check.checked:
        if kernel.facts:
            facts = kernel.facts, kernel.occupancy, kernel.threads, kernel.dynamic_shared_bytes
            distinct[names[kernel.case, kernel.kernel], kernel.architecture, facts] = kernel
    rows = [(name, architecture, kernel) for (name, architecture, _), kernel in distinct.items()]
    rows.sort(key=lambda row: (row[0], architecture_number(row[1])))
    return Responsive(*(partial(_facts_table, rows, columns) for columns in LAYOUTS))


def _facts_table(rows: Sequence[tuple[str, str, CheckedKernel]], columns: Sequence[str]) -> Table:
    """Return a table with the given facts of kernels; a name is shown only in its first row.

    Args:
        rows: the name, the architecture and the kernel, sorted by name.
        columns: the facts to show.
    """
    table = grid()
    table.add_column("variant", overflow="fold", min_width=16)
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    name_above = ""
    for name, architecture, kernel in rows:
        cells = (Text(_cell(kernel, kernel.facts, column)) for column in columns if kernel.facts)
        table.add_row(Text("" if name == name_above else name), Text(architecture), *cells)
        name_above = name
    return table


def _cell(kernel: CheckedKernel, facts: StaticFacts, column: str) -> str:
    """Return the text of a kernel's cell in a column of ``LAYOUTS``."""
    occupancy = kernel.occupancy
    cells = {
        "registers": facts.registers,
        "spills": facts.spill_bytes,
        "stack": facts.stack_bytes,
        "shared": facts.shared_bytes,
        "dynamic": kernel.dynamic_shared_bytes,
        "barriers": facts.barriers,
        "threads": kernel.threads or DASH,
        "occupancy": f"{100 * occupancy.share:.0f} %{limiter_text(occupancy)}" if occupancy else DASH,
        "instructions": DASH if facts.instructions is None else sum(number for _, number in facts.instructions),
    }
    return str(cells[column])


def _notes(check: StaticCheck) -> list[Text]:
    """Return lines about kernels that use local memory, skipped kernels, broken benchmarks and wrong cases."""
    return [
        *(
            Text.assemble(("local memory", "yellow"), " ", (name, "bold"), f" ({check.on(architectures)}): {text}")
            for name, architectures, text in local_memory(check)
        ),
        *(
            Text.assemble(
                ("skipped", "dim"), " ", (some(variants), "bold"), f" ({check.on(architectures)}): {cut(reason)}"
            )
            for reason, variants, architectures in skipped(check.checked)
        ),
        *(Text.assemble(("broken", "bold red"), f" {problem}") for problem in check.problems),
        *(
            Text.assemble((run.status.value, "bold red"), " ", (run.case.id, "bold"), f" on the CPU: {cut(run.reason)}")
            for run in check.wrong
        ),
    ]


def _irrelevant_changes(check: StaticCheck) -> list[Text]:
    """Return a line with the number of variants whose facts changed too little to matter; no line if there are none."""
    changed = {
        variant_of(verdict.checked.case)
        for verdict in check.verdicts
        if verdict.verdict is Verdict.UNCHANGED and verdict.changes
    }
    if not changed:
        return []
    return [Text(f"{units.count(len(changed), 'variant')} changed too little to matter: --all shows them", "dim")]
