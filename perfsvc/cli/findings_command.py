"""``perfsvc findings``."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from perfsvc.cli import options, output

if TYPE_CHECKING:
    from perfsvc.model import Finding, Series
    from perfsvc.selection import Selection
    from perfsvc.store import Store

    _ToMoment = click.ParamType[datetime]
else:
    _ToMoment = click.ParamType  # no generic before click 8.4

_DAYS = {"d": 1, "w": 7}


class Until(_ToMoment):
    """A future day (``2026-12-24``), or a time from now (``14d``, ``2w``)."""

    name = "date"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Return a moment in UTC: the start of a day such as ``2026-12-24``, or now plus a duration such as ``14d``."""
        text, now = str(value), datetime.now(UTC)
        if duration := re.fullmatch(r"(\d{1,4})([dw])", text):
            return now + timedelta(days=int(duration[1]) * _DAYS[duration[2]])
        try:
            moment = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
        except ValueError:
            self.fail(f"{text!r} is no date; write {now + timedelta(days=14):%Y-%m-%d}, 14d or 2w", param, ctx)
        if moment <= now:
            self.fail(f"{text} is not in the future", param, ctx)
        return moment


number = click.argument("number", type=int, metavar="ID")
only = click.option(
    "--select",
    multiple=True,
    metavar="GLOB",
    help="Only these cases of the finding; they become a finding of their own. May be repeated.",
)


def why(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the option ``--comment`` with this help text."""
    return click.option("--comment", "reason", default="", metavar="TEXT", help=what)


@click.group("findings", cls=options.ListByDefault, invoke_without_command=True)
def command() -> None:
    """List the findings, each with its root cause and its cases, and accept, resolve or ignore them.

    A finding is open, acknowledged, accepted, resolved or ignored. perfsvc resolves a finding when a run shows the
    finding's cases at their old levels again.
    """


@command.command("list")
@click.option("--all", "every", is_flag=True, help="Also accepted and resolved findings.")
@options.database
@options.formats
def list_(every: bool, database: str, output_format: str) -> None:
    """List the findings that need attention, newest first."""
    from perfsvc.report.export.objects import plain
    from perfsvc.report.tables.findings import findings_table
    from perfsvc.service.findings.actions import on_other_models
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        findings = store.findings.all() if every else store.findings.active()
        other_models = on_other_models(store, findings) if output_format != "json" else {}
    if output_format == "json":
        output.show_json(plain(findings))
    elif findings:
        output.show(findings_table(findings, other_models))
    else:
        click.echo("there are no findings" if every else "no finding is open, acknowledged or ignored")


@command.command("show")
@number
@options.database
@options.formats
def show(number: int, database: str, output_format: str) -> None:
    """Show finding ID: its root cause, its cases, and its history."""
    from perfsvc.report.export.objects import finding_json
    from perfsvc.report.tables.findings import finding_table
    from perfsvc.service.environment import of_findings
    from perfsvc.service.findings.actions import on_other_models
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        finding, events = store.findings.get(number), store.findings.events(finding=number)
        environment = of_findings(store, [finding]).get(number)
        other_models = on_other_models(store, [finding]).get(number, "")
    if output_format == "json":
        output.show_json(finding_json(finding, events, environment, other_models))
    else:
        output.show(finding_table(finding, events, environment, other_models))


@command.command("ack")
@number
@only
@why("What you know about it.")
@options.database
@options.formats
def ack(number: int, select: tuple[str, ...], reason: str, database: str, output_format: str) -> None:
    """Acknowledge finding ID: you are looking at it."""
    finding = _set_state(database, number, "acknowledged", select, reason=reason)
    _report(finding, number, "acknowledged until its cases are back at their old levels", output_format)


@command.command("accept", short_help="Accept the new levels of finding ID.")
@number
@click.option("--reason", required=True, metavar="TEXT", help="Why the new level is right.")
@click.option(
    "--step",
    type=click.IntRange(min=1),
    metavar="N",
    help="Only the steps up to N (default: all); they become a finding of their own, and later steps stay open.",
)
@only
@options.database
@options.formats
def accept(
    number: int, reason: str, step: int | None, select: tuple[str, ...], database: str, output_format: str
) -> None:
    """Accept finding ID: its cases' present levels become the levels that later runs are compared with.

    A pinned case is still compared with its pin. With --step 1, the level between the first and the second step is
    accepted instead of the present level. What the finding reports as missing is no longer expected.
    """
    from perfsvc.report.wording import names_on_devices, some

    finding = _set_state(database, number, "accepted", select, reason=reason, step=step)
    if not finding.moved:
        is_known = "no longer expected" if finding.cause == "missing" else "known to be slower than others of its model"
        _report(finding, number, f"accepted: {finding.root_cause} is {is_known}", output_format)
        return
    newest: dict[Series, int] = {}
    for moved in finding.standing:
        newest[moved.series] = max(moved.last_run, newest.get(moved.series, 0))
    runs = sorted(set(newest.values()))
    level = f"run {runs[0]}" if len(runs) == 1 else f"the newest of runs {', '.join(map(str, runs))} that has it"
    names = some(names_on_devices(list(newest)))
    what = f"accepted: later runs are compared with {names} in {level}"
    _report(finding, number, what, output_format, up_to_step=step)


@command.command("resolve", short_help="Resolve finding ID.")
@number
@only
@why("What fixed it.")
@options.database
@options.formats
def resolve(number: int, select: tuple[str, ...], reason: str, database: str, output_format: str) -> None:
    """Resolve finding ID; the next run that still shows its change reopens the finding."""
    finding = _set_state(database, number, "resolved", select, reason=reason)
    _report(finding, number, "resolved; a run that still shows its change reopens it", output_format)


@command.command("ignore", short_help="Ignore finding ID, for good or for a while.")
@number
@click.option("--until", type=Until(), help="When it opens again: 2026-12-24, 14d or 2w (default: never).")
@only
@why("Why you ignore it.")
@options.database
@options.formats
def ignore(
    number: int, until: datetime | None, select: tuple[str, ...], reason: str, database: str, output_format: str
) -> None:
    """Ignore finding ID: its changes are neither confirmed in A/B pairs nor reported."""
    finding = _set_state(database, number, "ignored", select, reason=reason, until=until)
    _report(finding, number, f"ignored {f'until {until:%Y-%m-%d}' if until else 'until you reopen it'}", output_format)


@command.command("reopen")
@number
@only
@why("Why you reopen it.")
@options.database
@options.formats
def reopen(number: int, select: tuple[str, ...], reason: str, database: str, output_format: str) -> None:
    """Reopen finding ID; later runs are no longer compared with a level that was accepted with it."""
    finding = _set_state(database, number, "open", select, reason=reason)
    _report(finding, number, "open again", output_format)


@command.command("assign", short_help="Give finding ID to OWNER.")
@number
@click.argument("owner", required=False)
@only
@options.database
@options.formats
def assign(number: int, owner: str | None, select: tuple[str, ...], database: str, output_format: str) -> None:
    """Give finding ID to OWNER (default: yourself); '' removes the owner."""
    from perfsvc.service.findings import actions

    finding = _apply(database, select, lambda store, only: actions.assign(store, number, owner, selection=only))
    _report(finding, number, f"assigned to {finding.owner}" if finding.owner else "assigned to no owner", output_format)


@command.command("comment")
@number
@click.argument("text")
@only
@options.database
@options.formats
def comment(number: int, text: str, select: tuple[str, ...], database: str, output_format: str) -> None:
    """Add TEXT to the history of finding ID."""
    from perfsvc.service.findings import actions

    finding = _apply(database, select, lambda store, only: actions.comment(store, number, text, selection=only))
    _report(finding, number, "commented", output_format)


def _set_state(database: str, number: int, state: str, select: tuple[str, ...], **how: Any) -> "Finding":
    """Set the state of a finding, or of its selected cases; return the finding that now has this state."""
    from perfsvc.model import FindingState
    from perfsvc.service.findings import actions

    return _apply(
        database,
        select,
        lambda store, only: actions.set_state(store, number, FindingState(state), selection=only, **how),
    )


def _apply(database: str, select: tuple[str, ...], action: "Callable[[Store, Selection], Finding]") -> "Finding":
    """Call the action with the opened store and the selected cases, and return the finding that it returns."""
    from perfsvc.selection import Selection
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        return action(store, Selection(select))


def _report(finding: "Finding", number: int, what: str, output_format: str, *, up_to_step: int | None = None) -> None:
    """Print the new state of a finding; if it was split off from another finding, first print its number and series.

    Args:
        finding: the changed finding; a new one if the user selected only some cases of the finding ``number``.
        number: the finding that the user named.
        what: the new state, in words.
        output_format: ``table`` or ``json``.
        up_to_step: the last step that the new finding takes; None for all.
    """
    from perfsvc.report.export.objects import plain
    from perfsvc.report.wording import names_on_devices, some

    if output_format == "json":
        output.show_json(plain(finding))
        return
    if finding.id != number:
        names = some(names_on_devices(list(dict.fromkeys(moved.series for moved in finding.moved))))
        steps = f" up to step {up_to_step}" if up_to_step is not None else ""
        click.echo(f"finding {finding.id} is new: it takes {names}{steps} out of finding {number}")
    click.echo(f"finding {finding.id} is {what}")
