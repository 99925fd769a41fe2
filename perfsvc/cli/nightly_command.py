"""``perfsvc nightly``."""

import sys

import click

from perfsvc.cli import configuration, ending, options, output
from perfsvc.installation import data_folder


@click.command("nightly")
@click.option("--resume", is_flag=True, help="Resume the night that was stopped before its end.")
@click.option(
    "--wait",
    "wait_s",
    type=options.Duration(),
    default=None,
    show_default="nightly.wait of perfsvc.toml, else not at all",
    help="How long to wait for another night on this host to end: 20m, 2h.",
)
@click.option("--new", is_flag=True, help="Begin anew, though what earlier nights used here is gone.")
@options.formats
def command(*, resume: bool, wait_s: float | None, new: bool, output_format: str) -> None:
    """Run one unattended night: check, measure, judge, confirm, and notify people of news.

    perfsvc.toml configures the night. Each night has a folder of its own with its log and its report. A stage that
    fails does not stop the other stages.
    """
    from perfsvc.measure.host.pool import worker_servers
    from perfsvc.process import fork_servers

    loaded = configuration.current().loaded
    settings = loaded.settings
    fork_servers.shared(fork_servers.SUITE)  # start the server: it imports while this process imports too
    with worker_servers() as servers, ending.gently() as stopping:
        from perfsvc.report.export.objects import plain
        from perfsvc.report.tables.lists import night_table
        from perfsvc.service.expect.memory import Place
        from perfsvc.service.nightly.begin import NightRequest
        from perfsvc.service.nightly.night import nightly

        waiting_s = settings.nightly.wait if wait_s is None else wait_s
        suite_is_named = settings.suite != data_folder("kernels") or loaded.given("suite")
        place = Place.of(loaded, settings.database, settings.suite if suite_is_named else None)
        request = NightRequest(settings, resume, waiting_s, configuration.typed(), place, new)
        with output.progress() as progress:
            night = nightly(request, progress, servers, stopping)
        if output_format == "json":
            output.show_json(plain(night))
        else:
            output.show(night_table(night))
    sys.exit(night.exit_code)
