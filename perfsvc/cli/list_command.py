"""``perfsvc list``."""

from pathlib import Path
from typing import Literal

import click

from perfsvc.cli import options, output


@click.command("list")
@options.suite
@options.select
@options.exclude
@options.points
@options.formats
def command(
    suite: Path,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    points: Literal["smoke", "full"] | None,
    output_format: str,
) -> None:
    """List the cases of the suite.

    Without --points, the list has the full points, which a run on a GPU measures.
    """
    from perfsvc.process import fork_servers

    fork_servers.shared(fork_servers.SUITE)  # start the server: it imports while this process imports too
    from perfsvc.model import Kind
    from perfsvc.report.tables.lists import cases_table
    from perfsvc.selection import Selection
    from perfsvc.suite import discover

    options.announce_suite(suite)
    benchmarks, selection = discover(suite), Selection(select, exclude)
    rows = [
        {
            "case": listed.case.id,
            "benchmark": listed.case.benchmark,
            "variant": listed.case.variant,
            "point": dict(listed.case.point),
            "kind": listed.kind,
            "graph": listed.graph,
            "caches": [] if listed.kind is Kind.PROGRAM else list(listed.caches),
            "requires": list(listed.requires),
        }
        for listed in benchmarks.select(selection, points or "full")
    ]
    if output_format == "json":
        output.show_json(rows)
    else:
        output.show(cases_table(rows))
    problems, warnings = benchmarks.split_problems(selection)
    output.warn(warnings)
    for problem in problems:
        click.echo(f"error: {problem}", err=True)
    if problems:
        raise SystemExit(problems[0].exit_code)
