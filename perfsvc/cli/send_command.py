"""``perfsvc send``."""

import os

import click

from perfsvc.cli import options, output


@click.command("send")
@click.argument("runs", nargs=-1, metavar="RUN...")
@click.option("--to", "url", required=True, metavar="URL", help="The address of the server: https://perf.example.org/.")
@options.database
@options.formats
def command(runs: tuple[str, ...], url: str, database: str, output_format: str) -> None:
    """Send each RUN (default: latest) to a server, with all its measurements, but without its code.

    The environment variable PERFSVC_TOKEN must hold a token of the server with the scope write. A run that the server
    has already is not stored again, so the command can be repeated.
    """
    from pathlib import Path

    from perfsvc.report.export.objects import plain
    from perfsvc.service.revisions import resolve
    from perfsvc.service.transfer.send import VARIABLE, NotJudgedError, Sender
    from perfsvc.store import Store

    sender = Sender(url, os.environ.get(VARIABLE, "").strip())
    sent = []
    with Store.open(database, create=False, read_only=True) as store:
        numbers = dict.fromkeys(resolve(name, store, Path.cwd()).id for name in runs or ("latest",))
        for number in numbers:
            outcome = sender.send(store, number)
            sent.append(outcome)
            if output_format != "json":
                if outcome.there is None:
                    click.echo(f"run {outcome.run} was deleted there, and is not stored again")
                    continue
                click.echo(f"run {outcome.run} is run {outcome.there} there" + ("" if outcome.new else ", as before"))
                if outcome.later:
                    click.echo(
                        f"  run {outcome.later} there began later, and was sent earlier: send the oldest run first"
                    )
    if output_format == "json":
        output.show_json(plain(sent))
    unjudged = [str(outcome.run) for outcome in sent if not outcome.judged]
    if unjudged:
        raise NotJudgedError(
            f"the server stored run {', run '.join(unjudged)}, but failed to judge what it stored",
            cure=f"see the log of the server; then perfsvc send {' '.join(unjudged)} --to {url} has it judged",
        )
