"""``perfsvc confirm``."""

import sys
from pathlib import Path

import click

from perfsvc.cli import configuration, options, output


@click.command("confirm")
@click.argument("case")
@click.option(
    "--run",
    "run",
    default="latest",
    show_default=True,
    help="The run with the suspect: its number, label or revision.",
)
@click.option(
    "--metric",
    default="time",
    show_default=True,
    help="The metric to measure again: time, energy_j, max_error or a metric of the case.",
)
@options.devices
@click.option(
    "--budget",
    type=options.Duration(),
    default="10m",
    show_default=True,
    help="The most time on each device: 90s, 20m, 1h30m.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=None, show_default="random", help="Decides which binary starts."
)
@options.suite
@options.threshold
@options.database
@options.formats
def command(
    case: str,
    run: str,
    metric: str,
    devices: tuple[str, ...],
    budget: float,
    seed: int | None,
    suite: Path,
    threshold: float | None,
    database: str,
    output_format: str,
) -> None:
    """Measure CASE again in A/B pairs: its baseline's stored binary and the run's binary.

    Each side runs in a fresh process. Measuring ends as soon as the answer is known: either the code is the cause, or
    the GPU is, or the change does not last.
    """
    from perfsvc.report.export.objects import confirmation_json
    from perfsvc.report.tables.comparison import confirmations_table
    from perfsvc.service.confirm.confirm_case import ConfirmRequest, confirm_case, exit_code
    from perfsvc.service.results import why_no_finding
    from perfsvc.store import Store

    request = ConfirmRequest(
        database,
        case,
        run,
        suite,
        devices,
        budget_s=budget,
        threshold=configuration.thresholds(threshold),
        seed=seed,
        metric=metric,
    )
    with output.progress() as progress:
        confirmations, unmeasured = confirm_case(request, progress)
    if output_format == "json":
        output.show_json([confirmation_json(confirmation) for confirmation in confirmations])
    else:
        with Store.open(database, create=False) as store:
            runs = {confirmation.suspect.judgement.candidate_run for confirmation in confirmations}
            no_finding = next((why_no_finding(store, number, confirmations) for number in runs if number), "")
        output.show(confirmations_table(confirmations, no_finding))
    sys.exit(exit_code(confirmations, unmeasured))
