"""``perfsvc findings``."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from perfsvc.cli import options, output

if TYPE_CHECKING:
    from perfsvc.model import Finding
    from perfsvc.store import Store
    from perfsvc.suite import Selection

    _ToMoment = click.ParamType[datetime]
else:
    _ToMoment = click.ParamType  # no generic before click 8.4

_DAYS = {"d": 1, "w": 7}


class Listing(click.Group):
    """A group that lists where no command is named: ``perfsvc findings --all`` is ``perfsvc findings list --all``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts the command in front of options."""
        named = not args or args[0] in {*ctx.help_option_names, *self.commands} or not args[0].startswith("-")
        return super().parse_args(ctx, args if args and named else ["list", *args])

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of a finding's life."""
        return list(self.commands)


class Until(_ToMoment):
    """A day to come (``2026-12-24``), or how long from now (``14d``, ``2w``)."""

    name = "date"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """The moment, in UTC."""
        text, now = str(value), datetime.now(UTC)
        if long := re.fullmatch(r"(\d{1,4})([dw])", text):
            return now + timedelta(days=int(long[1]) * _DAYS[long[2]])
        try:
            moment = datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
        except ValueError:
            self.fail(f"{text!r} is no day; write {now + timedelta(days=14):%Y-%m-%d}, 14d or 2w", param, ctx)
        if moment <= now:
            self.fail(f"{text} is not a day to come", param, ctx)
        return moment


number = click.argument("number", type=int, metavar="ID")
only = click.option(
    "--select",
    multiple=True,
    metavar="GLOB",
    help="Only these of its cases: they are split off into a finding of their own. May be repeated.",
)


def why(what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """``--comment``."""
    return click.option("--comment", "reason", default="", metavar="TEXT", help=what)


@click.group("findings", cls=Listing, invoke_without_command=True)
def command() -> None:
    """List what someone should look at, and say what became of it: each cause with the cases it moved.

    A finding is open, acknowledged, accepted, resolved or ignored. One whose cases are back at their old levels is
    resolved by the run that sees it.
    """


@command.command("list")
@click.option("--all", "every", is_flag=True, help="Also those that are accepted or resolved.")
@options.database
@options.formats()
def list_(every: bool, database: str, output_format: str) -> None:
    """List the findings that stand, newest first."""
    from perfsvc.report.export.objects import plain
    from perfsvc.report.tables.findings import findings_table
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        found = store.findings.all() if every else store.findings.active()
    if output_format == "json":
        output.show_json(plain(found))
    elif found:
        output.show(findings_table(found))
    else:
        click.echo("nothing was ever found" if every else "nothing stands: no finding is open, acknowledged or ignored")


@command.command("show")
@number
@options.database
@options.formats()
def show(number: int, database: str, output_format: str) -> None:
    """Show finding ID: all cases that it moved, and who did what when."""
    from perfsvc.report.export.objects import finding_json
    from perfsvc.report.tables.findings import finding_table
    from perfsvc.store import Store

    with Store.open(database, create=False) as store:
        found, events = store.findings.get(number), store.findings.events(finding=number)
    if output_format == "json":
        output.show_json(finding_json(found, events))
    else:
        output.show(finding_table(found, events))


@command.command("ack")
@number
@only
@why("What you know of it.")
@options.database
@options.formats()
def ack(number: int, select: tuple[str, ...], reason: str, database: str, output_format: str) -> None:
    """Acknowledge finding ID: somebody looks at it."""
    found = _put(database, number, "acknowledged", select, reason=reason)
    _tell(found, number, "acknowledged: it stands until its cases are back", output_format)


@command.command("accept", short_help="Make where the cases of finding ID are now their level.")
@number
@click.option("--reason", required=True, metavar="TEXT", help="Why the new level is right.")
@only
@options.database
@options.formats()
def accept(number: int, reason: str, select: tuple[str, ...], database: str, output_format: str) -> None:
    """Make where the cases of finding ID are now their level: what later runs are compared with.

    A pin goes before every level: a pinned case is still compared with its pin.
    """
    from perfsvc import units

    found = _put(database, number, "accepted", select, reason=reason)
    runs = sorted({one.last_run for one in found.standing})
    series = units.count(len(found.standing), "series", "series")
    level = f"run {runs[0]} is" if len(runs) == 1 else f"the newest of runs {', '.join(map(str, runs))} is"
    _tell(found, number, f"accepted: {level} the level of {series}", output_format)


@command.command("resolve", short_help="Say that finding ID is over.")
@number
@only
@why("What cured it.")
@options.database
@options.formats()
def resolve(number: int, select: tuple[str, ...], reason: str, database: str, output_format: str) -> None:
    """Say that finding ID is over; the next run that still shows it opens it again."""
    found = _put(database, number, "resolved", select, reason=reason)
    _tell(found, number, "resolved: a run that still shows it opens it again", output_format)


@command.command("ignore", short_help="Hear no more of finding ID, for good or for a while.")
@number
@click.option("--until", type=Until(), help="When it is open again by itself: 2026-12-24, 14d or 2w. Without, never.")
@only
@why("Why.")
@options.database
@options.formats()
def ignore(
    number: int, until: datetime | None, select: tuple[str, ...], reason: str, database: str, output_format: str
) -> None:
    """Hear no more of finding ID: its cases are not measured again, and nobody is told of them."""
    found = _put(database, number, "ignored", select, reason=reason, until=until)
    _tell(found, number, f"ignored {f'until {until:%Y-%m-%d}' if until else 'until somebody opens it'}", output_format)


@command.command("reopen")
@number
@only
@why("Why.")
@options.database
@options.formats()
def reopen(number: int, select: tuple[str, ...], reason: str, database: str, output_format: str) -> None:
    """Open finding ID again; an accepted level is none any more."""
    found = _put(database, number, "open", select, reason=reason)
    _tell(found, number, "open again", output_format)


@command.command("assign", short_help="Give finding ID to OWNER.")
@number
@click.argument("owner", required=False)
@only
@options.database
@options.formats()
def assign(number: int, owner: str | None, select: tuple[str, ...], database: str, output_format: str) -> None:
    """Give finding ID to OWNER: to yourself where none is named, with '' to nobody."""
    from perfsvc.service.findings import actions

    found = _do(database, select, lambda store, only: actions.assign(store, number, owner, selection=only))
    _tell(found, number, f"{found.owner}'s" if found.owner else "nobody's", output_format)


@command.command("comment")
@number
@click.argument("text")
@only
@options.database
@options.formats()
def comment(number: int, text: str, select: tuple[str, ...], database: str, output_format: str) -> None:
    """Add TEXT to the history of finding ID."""
    from perfsvc.service.findings import actions

    found = _do(database, select, lambda store, only: actions.comment(store, number, text, selection=only))
    _tell(found, number, "commented", output_format)


def _put(database: str, number: int, state: str, select: tuple[str, ...], **how: Any) -> "Finding":
    from perfsvc.model import FindingState
    from perfsvc.service.findings import actions

    return _do(
        database,
        select,
        lambda store, only: actions.set_state(store, number, FindingState(state), selection=only, **how),
    )


def _do(database: str, select: tuple[str, ...], deed: "Callable[[Store, Selection | None], Finding]") -> "Finding":
    """Does something to a finding, or to its selected cases."""
    from perfsvc.store import Store
    from perfsvc.suite import Selection

    with Store.open(database, create=False) as store:
        return deed(store, Selection(select))


def _tell(found: "Finding", number: int, what: str, output_format: str) -> None:
    """Says what became of it, and under which number where it was split off."""
    from perfsvc import units
    from perfsvc.report.export.objects import plain

    if output_format == "json":
        output.show_json(plain(found))
        return
    split = "" if found.id == number else f" ({units.count(len(found.moved), 'series', 'series')} of finding {number})"
    click.echo(f"finding {found.id}{split} is {what}")
