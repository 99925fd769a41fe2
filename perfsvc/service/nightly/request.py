"""The options of a night, and what its settings say about its run and its files."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfsvc.config import Settings
from perfsvc.errors import UsageError
from perfsvc.service.compare.compare import thresholds
from perfsvc.service.run.request import RunRequest
from perfsvc.suite import Selection


@dataclass(frozen=True, slots=True)
class NightRequest:
    """The options of a night.

    Attributes:
        settings: the settings in force; a resumed night keeps those that it began with.
        resume: resume the night that was stopped before its end.
        wait_s: seconds to wait for another night to end.
        command_line: the command as it was typed.
    """

    settings: Settings
    resume: bool = False
    wait_s: float = 0.0
    command_line: str = ""


def run_request(settings: Settings, command_line: str) -> RunRequest:
    """Return the request of a night's run."""
    run = settings.run
    return RunRequest(
        database=settings.database,
        suite=settings.suite,
        devices=run.devices,
        selection=Selection(run.select, run.exclude),
        points=run.points,
        replicas=run.replicas,
        precision=run.precision,
        samples=run.samples,
        seconds=run.seconds,
        energy=run.energy,
        spread=run.spread,
        budget_s=run.budget,
        limit_s=run.limit,
        label=settings.nightly.label,
        confirm=settings.confirm.enabled,
        profile=settings.profile.enabled,
        threshold=thresholds(settings),
        against=settings.baseline.against,
        command_line=command_line,
    )


def with_absolute_paths(settings: Settings) -> Settings:
    """Return the settings with absolute paths, so that the night can be resumed from any folder."""
    nightly = settings.nightly.model_copy(update={"folder": settings.nightly.folder.absolute()})
    dashboard = settings.dashboard.model_copy(update={"folder": settings.dashboard.folder.absolute()})
    return settings.model_copy(update={"suite": settings.suite.absolute(), "nightly": nightly, "dashboard": dashboard})


def restored(stored: Mapping[str, Any], database: str) -> Settings:
    """Return the settings that a night began with, with the database given here: the stored URL has no password.

    Raises:
        UsageError: another version of perfsvc, with other settings, stored them.
    """
    try:
        return Settings(**{**stored, "database": database})
    except ValueError as error:
        raise UsageError(
            "this perfsvc does not know the settings that the night began with: another version stored them",
            cure="resume with that version, or leave the night as it is and begin another: perfsvc nightly",
        ) from error


def folder_of(settings: Settings, night: int) -> Path:
    """Return the folder of a night's files."""
    return settings.nightly.folder / str(night)


def log_of(settings: Settings, night: int) -> Path:
    """Return the log file of a night: a JSON object a line."""
    return folder_of(settings, night) / "log.jsonl"
