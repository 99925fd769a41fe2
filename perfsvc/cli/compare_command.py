"""``perfsvc compare``."""

import sys
from pathlib import Path

import click

from perfsvc.cli import options, output


@click.command("compare")
@click.argument("base")
@click.argument("new")
@options.suite
@options.threshold
@options.strict
@options.database
@options.formats()
def command(
    base: str, new: str, suite: Path, threshold: float | None, strict: bool, database: str, output_format: str
) -> None:
    """Judge the run NEW against the run BASE.

    Each is a run's number, a label, latest, latest~1, or a git revision of the suite's repository. BASE may be
    @baseline: each series is then compared with its own baseline.
    """
    from perfsvc.report import tables
    from perfsvc.service.judging.compare import compare
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        comparison = compare(store, base, new, folder=suite, threshold=threshold)
    if output_format == "json":
        output.show_json(tables.comparison_json(comparison.base, comparison.new, comparison.judgements))
    else:
        output.show(tables.comparison_table(comparison.base, comparison.new, comparison.judgements))
    sys.exit(comparison.exit_code(strict=strict))
