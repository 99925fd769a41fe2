"""``perfsvc runs``."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfsvc.cli import configuration, options, output
from perfsvc.errors import UsageError

if TYPE_CHECKING:
    from perfsvc.service.exclusions import Changed
    from perfsvc.store import Store

any_run = click.argument("run", metavar="RUN")
number = click.argument("run", type=int, metavar="RUN")
cases = click.argument("cases", nargs=-1, metavar="[CASE]...")


@click.group("runs", cls=options.ListByDefault, invoke_without_command=True)
def command() -> None:
    """List the runs in the database, keep bad data out of judging, and delete runs.

    Excluded data stays in the database and is shown struck through. No later run is compared with it.
    """


@command.command("list")
@click.option("--last", type=options.RUN_COUNT, default=20, show_default=True, help="How many, newest first.")
@options.database
@options.formats
def list_(last: int, database: str, output_format: str) -> None:
    """List the runs, newest first."""
    from perfsvc.report.tables.lists import runs_table
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        rows = store.runs.list(last)
    if output_format == "json":
        from perfsvc.report.export.objects import plain

        output.show_json(plain(rows))
    else:
        output.show(runs_table(rows))


@command.command("environment", short_help="Show the environment of RUN, or what changed from RUN to LATER.")
@any_run
@click.argument("later", required=False, metavar="[LATER]")
@options.suite
@options.database
@options.formats
def environment(run: str, later: str | None, suite: Path, database: str, output_format: str) -> None:
    """Show the full environment of RUN: settings of its GPUs, its host and its software.

    With LATER, show only in what the environments of both runs differ. RUN and LATER are each a run's number, a label,
    latest, latest~1, or a git revision of the suite's repository.
    """
    from perfsvc.model import differences
    from perfsvc.report.export.objects import plain
    from perfsvc.report.rows import EnvironmentDifferences
    from perfsvc.report.tables.history import differences_table, environment_table
    from perfsvc.service.environment import environment_of_run
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        numbers = [_chosen(store, name, suite)[0] for name in (run, later) if name is not None]
        recorded = [environment_of_run(store, number) for number in numbers]
    if later is None:
        shown, table = {"run": numbers[0], **plain(recorded[0])}, environment_table(numbers[0], recorded[0])
    else:
        changes = EnvironmentDifferences(numbers[0], numbers[1], differences(recorded[0], recorded[1]))
        shown, table = plain(changes), differences_table(changes)
    if output_format == "json":
        output.show_json(shown)
    else:
        output.show(table)


@command.command("exclude", short_help="Keep RUN, or CASEs of it, out of judging.")
@any_run
@cases
@click.option("--reason", required=True, metavar="TEXT", help="Why the data is bad.")
@options.suite
@options.database
@options.formats
def exclude(run: str, cases: tuple[str, ...], reason: str, suite: Path, database: str, output_format: str) -> None:
    """Keep RUN out of judging, or only its CASEs: ids or globs such as 'transpose/tiled*'.

    RUN is a run's number, a label, latest, latest~1, or a git revision of the suite's repository.

    The data stays. Later runs that were compared with it are judged again. A finding that only this data shows is
    resolved.
    """
    from perfsvc.service import exclusions
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        chosen, named = _chosen(store, run, suite)
        changed = exclusions.exclude(store, chosen, cases, reason=reason, threshold=configuration.thresholds(None))
    _report(changed, "excluded from judging", output_format, named)


@command.command("include", short_help="Judge RUN, or CASEs of it, again.")
@number
@cases
@options.database
@options.formats
def include(run: int, cases: tuple[str, ...], database: str, output_format: str) -> None:
    """Judge the excluded cases of RUN again, or only CASEs. Findings that the exclusion resolved are reopened.

    RUN is a number: latest, a label and a revision never mean an excluded run.
    """
    from perfsvc.service import exclusions
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        changed = exclusions.include(store, run, cases, threshold=configuration.thresholds(None))
    _report(changed, "judged again", output_format)


@command.command("delete", short_help="Delete RUN with everything that belongs to it.")
@number
@click.option("--reason", default="", metavar="TEXT", help="Why you delete it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.database
@options.formats
def delete(run: int, reason: str, yes: bool, database: str, output_format: str) -> None:
    """Delete RUN, a number, with everything that it measured. Who deleted it, when and why stays on record.

    A run that a pin or a finding needs is not deleted; the error names the cure.
    """
    from perfsvc.report.wording import moment
    from perfsvc.service import exclusions
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        row = store.runs.get(run)
        if not yes:
            measured = f"{sum(row.counts.values())} measurements of {row.cases} cases"
            began = moment(row.provenance.started)
            _require_consent(run, f"delete run {run} of {began} UTC with {measured} for good?")
        changed = exclusions.delete(store, run, reason=reason, threshold=configuration.thresholds(None))
    _report(changed, "deleted", output_format)


@command.command("history", short_help="List what people excluded, included and deleted.")
@options.database
@options.formats
def history(database: str, output_format: str) -> None:
    """List what people excluded from judging, included again and deleted: who, when and why. Oldest first."""
    from perfsvc.report.tables.lists import exclusions_table
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        rows = store.exclusions.all()
    if output_format == "json":
        from perfsvc.report.export.objects import plain

        output.show_json(plain(rows))
    elif rows:
        output.show(exclusions_table(rows))
    else:
        click.echo("no run was excluded or deleted")


def _require_consent(run: int, question: str) -> None:
    """Ask the question, and raise ``UsageError`` unless the answer is yes; without a terminal it is no."""
    try:
        if click.confirm(question, err=True):
            return
    except click.Abort:
        click.echo(err=True)
    raise UsageError(f"run {run} is not deleted", cure="answer y, or give --yes")


def _chosen(store: "Store", text: str, suite: Path) -> tuple[int, str]:
    """Return the number of the run that the user names, and the user's name for it; empty if that is the number."""
    from perfsvc.service.revisions import choose

    run, why = choose(text, store, suite)
    return run.id, "" if text == str(run.id) else ", ".join(filter(None, [text, why]))


def _report(changed: "Changed", what: str, output_format: str, named: str = "") -> None:
    """Print the cases that were excluded, included or deleted, the changed findings, and the runs judged again.

    Args:
        changed: the result of the command.
        what: what happened to the cases, in words, such as ``excluded from judging``.
        output_format: ``table`` or ``json``.
        named: the user's name for the run, such as ``latest``; empty if the user gave the number.
    """
    from perfsvc import units

    if output_format == "json":
        from perfsvc.report.export.objects import plain

        output.show_json(plain(changed))
        return
    cases = f"{units.count(len(changed.cases), 'case')} of " if changed.cases else ""
    run = f"run {changed.run}{f' ({named})' if named else ''}"
    click.echo(f"{cases}{run} {'are' if len(changed.cases) > 1 else 'is'} {what}")
    findings = (
        ("resolved", changed.findings.resolved),
        ("reopened", changed.findings.reopened),
        ("deleted", changed.deleted_findings),
    )
    for word, numbers in findings:
        for finding in numbers:
            click.echo(f"finding {finding} is {word}")
    if changed.judged_again:
        runs = units.count(len(changed.judged_again), "later run")
        click.echo(f"{runs} judged again: {', '.join(map(str, changed.judged_again))}")
