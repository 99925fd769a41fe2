"""Begin a night from its options and settings, or resume the one that was stopped, with the same suite."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfsvc.config import Settings
from perfsvc.errors import UsageError
from perfsvc.selection import Selection
from perfsvc.service.compare.compare import thresholds
from perfsvc.service.expect.memory import Place
from perfsvc.service.run.request import RunRequest
from perfsvc.store import NightRow, StageState, Store

LAST_WITH_SUITE = "run"
"""The last stage that needs the suite unchanged."""


@dataclass(frozen=True, slots=True)
class NightRequest:
    """The options of a night.

    Attributes:
        settings: the settings in force; a resumed night keeps the settings that it began with.
        resume: resume the night that was stopped before its end.
        wait_s: seconds to wait for another night to end.
        command_line: the command as it was typed.
        place: where the night begins and what it uses, to notice if that is gone; None to notice nothing.
        new: begin anew on purpose, though what earlier nights used is gone.
    """

    settings: Settings
    resume: bool = False
    wait_s: float = 0.0
    command_line: str = ""
    place: Place | None = None
    new: bool = False


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
        places=run.places,
        energy=run.energy,
        spread=run.spread,
        budget_s=run.budget,
        limit_s=run.limit,
        label=settings.nightly.label,
        confirm=settings.confirm.enabled,
        confirm_budget_s=settings.confirm.budget,
        profile=settings.profile.enabled,
        profile_budget_s=settings.profile.budget,
        threshold=thresholds(settings),
        against=settings.baseline.against,
        segment_parts=settings.segments.parts,
        command_line=command_line,
    )


def with_absolute_paths(settings: Settings) -> Settings:
    """Return the settings with absolute paths, so that the night can be resumed from any folder."""
    nightly = settings.nightly.model_copy(update={"folder": settings.nightly.folder.absolute()})
    dashboard = settings.dashboard.model_copy(update={"folder": settings.dashboard.folder.absolute()})
    return settings.model_copy(update={"suite": settings.suite.absolute(), "nightly": nightly, "dashboard": dashboard})


def restored(stored: Mapping[str, Any], database: str) -> Settings:
    """Return the settings that a night began with. ``database`` replaces the stored URL, which lacks the password.

    Raises:
        UsageError: another version of perfsvc, which has other settings, stored the settings.
    """
    try:
        return Settings(**{**stored, "database": database})
    except ValueError as error:
        raise UsageError(
            "this perfsvc does not know the settings that the night began with: another version stored them",
            cure="resume with that version, or leave the night as it is and begin another: perfsvc nightly",
        ) from error


# --- begin or resume -------------------------------------------------------------------------------------------------


def begin(store: Store, host: str, request: NightRequest, report: Callable[[str], object]) -> NightRow:
    """Store a new night and return its row. Report an earlier night that was stopped and not resumed."""
    stopped = store.nights.unfinished(host)
    if stopped:
        report(f"night {stopped.id} was stopped after {last_stage(stopped)} and was not resumed: it stays interrupted")
    settings = with_absolute_paths(request.settings)
    number = store.nights.begin(
        host=host,
        started=datetime.now(UTC),
        suite=str(settings.suite),
        command_line=request.command_line,
        settings=settings.public(),
    )
    return store.nights.get(number)


def resume(store: Store, host: str, request: NightRequest) -> NightRow:
    """Resume the newest night of this host.

    Raises:
        UsageError: this host has no stopped night, the suite changed before the night had measured it, or another
            version of perfsvc stored the settings.
        UntrustedError: no trusted key has signed the night's suite and settings, or they were changed in the database.
    """
    night = store.nights.unfinished(host)
    if night is None:
        newest = store.nights.last(host)
        if newest is None:
            what = "no night was begun on this host"
        else:
            what = f"night {newest.id} is the newest of this host, and was not stopped before its end"
        raise UsageError(f"{what}: there is none to resume", cure="begin one: perfsvc nightly")
    restored(night.settings, request.settings.database)  # raises before the night is changed
    store.nights.require_signed(night)
    if LAST_WITH_SUITE not in _ended_stages(night):
        require_same_suite(night, Path(night.suite))
    store.nights.resume(night.id)
    return night


def last_stage(night: NightRow) -> str:
    """Return the last stage that a night has ended, in words: ``its stage run``."""
    ended = _ended_stages(night)
    return f"its stage {ended[-1]}" if ended else "its first moment"


def _ended_stages(night: NightRow) -> list[str]:
    return [stage.name for stage in night.stages if stage.state is not StageState.RUNNING]


def require_same_suite(night: NightRow, suite: Path) -> None:
    """Raise ``UsageError`` if the files of a suite have changed since the night began."""
    if not night.suite_digest or suite_digest(suite) == night.suite_digest:
        return
    clean = night.commit and not night.dirty
    back = f"bring it back (git checkout {night.commit[:10]})" if clean else "bring its files back"
    raise UsageError(
        f"{suite} has changed since night {night.id} began",
        cure=f"{back} and perfsvc nightly --resume, or leave that night as it is and begin another: perfsvc nightly",
    )


def suite_digest(suite: Path) -> str:
    """Return one SHA-256 of the names and contents of a suite's files, without hidden files and ``__pycache__``.

    Raises:
        UsageError: a file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for file in sorted(_files(suite)):
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"{content} {file.relative_to(suite).as_posix()}\n".encode(errors="surrogateescape"))
    except OSError as error:
        what = f"{error.filename or suite} cannot be read: {error.strerror}"
        raise UsageError(what, cure="name the folder of benchmarks: suite in perfsvc.toml") from error
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, without hidden files and ``__pycache__``; links to folders are not followed."""
    for entry in folder.iterdir():
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        if entry.is_dir() and not entry.is_symlink():
            yield from _files(entry)
        elif entry.is_file():
            yield entry
