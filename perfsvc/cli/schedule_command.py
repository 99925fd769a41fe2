"""``perfsvc schedule``."""

from datetime import datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, available_timezones

import click

from perfsvc.cli import configuration, ending, options

if TYPE_CHECKING:
    _ToTime = click.ParamType[time]
    _ToZone = click.ParamType[ZoneInfo]
else:
    _ToTime = _ToZone = click.ParamType  # no generics before click 8.4

LIMIT_S = 12 * 3600.0
LATE_S = 6 * 3600.0


class WallTime(_ToTime):
    """Parameter type: a time of day, written ``02:00``."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> time:
        """Return the time of day that ``HH:MM`` names."""
        try:
            return value if isinstance(value, time) else datetime.strptime(value, "%H:%M").time()  # noqa: DTZ007 - no day, no zone
        except ValueError:
            self.fail(f"{value!r} is no time of day; write hours and minutes, such as 02:00", param, ctx)


class Zone(_ToZone):
    """Parameter type: a time zone, written ``Europe/Berlin``."""

    name = "zone"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> ZoneInfo:
        """Return the time zone with this name."""
        if isinstance(value, ZoneInfo):
            return value
        if value not in available_timezones():
            self.fail(f"{value!r} is no time zone; write a zone such as Europe/Berlin or Etc/UTC", param, ctx)
        return ZoneInfo(value)


at = click.option("--at", type=WallTime(), required=True, metavar="HH:MM", help="The time of day when a night starts.")
limit = click.option(
    "--limit",
    type=options.Duration(),
    default=LIMIT_S,
    show_default="12h",
    help="The time after which a night is stopped.",
)


def _zone(default: str) -> options.Decorator:
    """Return the option ``--timezone``; ``default`` is what the help shows as the default."""
    return click.option(
        "--timezone",
        type=Zone(),
        default=None,
        show_default=default,
        metavar="ZONE",
        help="The time zone of --at, for example Europe/Berlin.",
    )


@click.group("schedule")
def command() -> None:
    """Start nights automatically."""


@command.command("print")
@at
@click.option(
    "--as",
    "kind",
    type=click.Choice(["cron", "systemd", "kubernetes", "slurm"]),
    required=True,
    help="The scheduler.",
)
@_zone("the scheduler's own; UTC in Kubernetes")
@limit
@click.option(
    "--gpus",
    type=click.IntRange(0),
    default=None,
    show_default="the number in run.devices",
    help="How many GPUs to request from Kubernetes or Slurm.",
)
@click.option("--image", default="perfsvc:latest", show_default=True, help="The image with perfsvc, for Kubernetes.")
@click.option("--claim", default="perfsvc", show_default=True, help="The volume claim of the folder, for Kubernetes.")
@click.option(
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    show_default="standard output",
    help="Write files into this folder; perfsvc makes it if it is missing.",
)
def print_(
    at: time,
    kind: str,
    timezone: ZoneInfo | None,
    limit: float,
    gpus: int | None,
    image: str,
    claim: str,
    folder: Path | None,
) -> None:
    """Print the configuration that makes a scheduler start nights, with the settings in force here.

    The configuration names the environment variables that the settings need, without their values.
    """
    from perfsvc.files import Folder, reporting
    from perfsvc.service.findings.actions import user_name
    from perfsvc.service.schedule.printed import printed
    from perfsvc.service.schedule.scheduled_night import for_owner, scheduled_night

    loaded = configuration.current().loaded
    night = scheduled_night(loaded, at=at, zone=timezone, gpus=gpus, limit_s=limit, user=user_name())
    night = for_owner(night)
    files = printed(kind, night, image=image, claim=claim)
    for name, text in files.items():
        if folder:
            with reporting(folder / name), Folder.open(folder, make=True) as opened:
                opened.write(name, text)
            click.echo(f"{folder / name} is written", err=True)
        else:
            click.echo((f"# {name}\n" if len(files) > 1 else "") + text, nl=len(files) > 1)
    if night.secret and kind != "kubernetes" and not night.variables_file.exists():
        secret = ", ".join(night.secret)
        missing = f"there is no {night.variables_file} yet, and no night begins without it: it must set {secret}"
        click.echo(missing, err=True)


@command.command("run")
@at
@_zone("this machine's own")
@limit
@click.option(
    "--late",
    type=options.Duration(),
    default=LATE_S,
    show_default="6h",
    help="How long after its time a missed night may still start.",
)
@options.database
def run(at: time, timezone: ZoneInfo | None, limit: float, late: float, database: str) -> None:
    """Run a night every day, until you stop it.

    Each night is a process of its own: `perfsvc nightly`. After SIGTERM, the current night finishes its case and exits;
    a second SIGTERM ends the night at once.
    """
    import platform
    from functools import partial

    from perfsvc.service.findings.actions import user_name
    from perfsvc.service.nightly.night import patiently
    from perfsvc.service.schedule.daemon import CatchUp, NightRunner, missed, serve
    from perfsvc.service.schedule.scheduled_night import scheduled_night

    loaded = configuration.current().loaded
    night = scheduled_night(loaded, at=at, zone=timezone, gpus=None, limit_s=limit, user=user_name())
    nights = NightRunner(night.command, night.folder, limit, _report)
    with ending.gently() as stopping:

        def look_back(due: datetime, now: datetime) -> CatchUp:
            """Look back as soon as the database answers, which may start later than this daemon."""
            return patiently(_report, stopping, partial(missed, database, platform.node(), due, now, late_s=late))

        serve(nights, at, timezone, look_back=look_back, late_s=late, stopping=stopping, report=_report)


def _report(line: str) -> None:
    click.echo(f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S} {line}", err=True)
