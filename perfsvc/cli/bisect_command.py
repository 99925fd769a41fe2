"""``perfsvc bisect``."""

import sys
from pathlib import Path

import click

from perfsvc.cli import configuration, options, output


@click.command("bisect")
@click.argument("case")
@click.option("--good", required=True, metavar="REV", help="A git revision at which the case is good.")
@click.option(
    "--bad", default="HEAD", show_default=True, metavar="REV", help="A later revision at which the case is bad."
)
@options.devices
@click.option(
    "--cache",
    type=click.Choice(["cold", "warm"]),
    default=None,
    show_default="the case's first cache state",
    help="The cache state to measure.",
)
@click.option(
    "--metric",
    default="time",
    show_default=True,
    metavar="NAME",
    help="The metric to compare: time, energy_j, max_error or a metric of the case.",
)
@click.option(
    "--budget",
    type=options.Duration(),
    default="60s",
    show_default=True,
    help="The time for each comparison of two commits: 90s, 20m, 1h30m.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=None, show_default="random", help="Decides which commit starts."
)
@click.option(
    "--finding",
    type=int,
    default=None,
    metavar="ID",
    help="Store the answer with this finding, whose page then shows it.",
)
@options.suite
@options.database
@options.threshold
@options.formats
def command(
    case: str,
    good: str,
    bad: str,
    devices: tuple[str, ...],
    cache: str | None,
    metric: str,
    budget: float,
    seed: int | None,
    finding: int | None,
    suite: Path,
    database: str,
    threshold: float | None,
    output_format: str,
) -> None:
    """Find the commit that made CASE slower or faster, or broke it, between a good and a bad commit.

    The case is built at every commit between them, in temporary worktrees: your checkout is not touched. Each
    commit that changed the code of the case may be measured in A/B pairs with the good commit, in fresh processes.
    If CASE has no correct result at the bad commit, each such commit is checked in one process.
    """
    from perfsvc.model import CacheState
    from perfsvc.report.export.objects import bisection_json
    from perfsvc.report.tables.bisection import bisection_text
    from perfsvc.service.bisect.bisect import BisectRequest, bisect, exit_code, require_case, store_answer

    request = BisectRequest(
        case,
        good,
        bad,
        suite,
        devices,
        cache=CacheState(cache) if cache else None,
        metric=metric,
        budget_s=budget,
        threshold=configuration.thresholds(threshold),
        seed=seed,
    )
    if finding is not None:
        require_case(database, finding, request)
    options.announce_suite(suite)
    with output.progress() as progress:
        bisection = bisect(request, progress)
    if finding is not None:
        store_answer(database, finding, bisection)
    if output_format == "json":
        output.show_json(bisection_json(bisection))
    else:
        output.show(bisection_text(bisection))
    sys.exit(exit_code(bisection))
