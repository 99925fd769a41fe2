"""What the nights of this user used, kept on this host outside the database, so that a night notices what is gone.

The memory is a folder in the user's data folder, with a small file for each place where nights begin.
"""

import contextlib
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import platformdirs

from perfsvc import files
from perfsvc.config import Loaded
from perfsvc.errors import DatabaseError, NoDatabaseError, UsageError
from perfsvc.model import codec
from perfsvc.store import Store
from perfsvc.text import url_without_password

ANEW = "begin anew on purpose: perfsvc nightly --new"


@dataclass(frozen=True, slots=True)
class Place:
    """What nights use that continue each other, each as an absolute path; empty for nothing.

    Attributes:
        folder: the folder in which the command was typed.
        config: the settings file.
        database: the path of the database, or its URL without a password.
        suite: the folder of benchmarks; empty for ``perfsvc watchdog``, which needs none.
    """

    folder: str
    config: str
    database: str
    suite: str = ""

    @classmethod
    def of(cls, loaded: Loaded, database: str, suite: Path | None = None) -> "Place":
        """Return the place of a command that is typed here with these settings."""
        config, suite_folder = (os.path.abspath(path) if path else "" for path in (loaded.path, suite))  # noqa: PTH100
        named = url_without_password(database)
        with contextlib.suppress(DatabaseError):  # opening the database reports it
            named = Store.named(database)
        return cls(str(Path.cwd()), config, named, suite_folder)


@dataclass(frozen=True, slots=True)
class RememberedNight:
    """The last night of a place.

    Attributes:
        began: when the night began; no other night of a database began at the same microsecond.
        targets: whom it notified: by name, the variable with the address.
    """

    place: Place
    host: str
    night: int
    began: datetime
    targets: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The night in words."""
        return f"night {self.night} of {self.began:%Y-%m-%d %H:%M} UTC"


class NightMemory:
    """Remembers the last night of each place; without a place, it remembers nothing.

    Args:
        place: the place of this command.
        new: whether a person begins anew, because what the last night used is gone on purpose.
        nights: the folder of the nights' logs, which show that there were nights; None to ignore them.
        report: receives a warning if the memory cannot be used, which is no fault of the night.
    """

    def __init__(
        self,
        place: Place | None,
        report: Callable[[str], object],
        *,
        new: bool = False,
        nights: Path | None = None,
    ) -> None:
        self._place, self._report, self._new, self._nights = place, report, new, nights
        self._known = self._read() if place else []

    @property
    def targets(self) -> Mapping[str, str]:
        """Whom the last night of this place notified."""
        return self._known[0].targets if self._known else {}

    def dropped(self, targets: Mapping[str, str]) -> dict[str, str]:
        """Return whom the last night with this settings file notified and this night, with ``targets``, does not."""
        last = next((night for night in self._known if self._place and night.place.config == self._place.config), None)
        return {name: variable for name, variable in (last.targets if last else {}).items() if name not in targets}

    def require_settings(self) -> None:
        """Raise ``UsageError`` if the settings file of the last night is gone, and another one or none is in force."""
        if not self._place or not self._known or self._new:
            return
        last = self._known[0]
        if last.place.config != self._place.config and not _exists(last.place.config):
            what = f"{last.place.config} is gone, and {last.text}, the last one here, used it"
            raise UsageError(what, cure=f"bring the settings back, or {ANEW}")

    def open(self, database: str, *, create: bool = True) -> tuple[Store, str]:
        """Open the database and return it, and which night it lacks because it was replaced, in words.

        A database is made only if ``create`` is true and there was no night here, or if a person begins anew.

        Raises:
            UsageError: the suite is not that of the last night, or a person begins anew though nothing is gone.
            DatabaseError: the database does not hold the last night, or cannot be used.
        """
        had_nights = self._known or _has_logs(self._nights)
        if not self._place or not had_nights:
            return Store.open(database, create=create), ""
        try:
            store, lacking = self._continued(database, self._place)
        except (UsageError, DatabaseError) as error:
            if not self._new or (isinstance(error, DatabaseError) and error.again):
                raise
            return Store.open(database), ""
        if self._new and not lacking and all(_exists(night.place.config) for night in self._known):
            store.close()
            raise UsageError(
                f"{store.location} holds the last night here: there is nothing to begin anew",
                cure="leave out --new, with which a night would not notice a lost database",
            )
        return store, "" if self._new else lacking

    def _continued(self, database: str, place: Place) -> tuple[Store, str]:
        """Return what ``open`` does; raise an error if the database does not continue the nights of this place."""
        same = [night for night in self._known if night.place.database == place.database]
        last = next(iter(same or self._known), None)
        try:
            store = Store.open(database, create=False)
        except NoDatabaseError as error:
            raise self._gone(error.what, last) from error
        try:
            return store, self._lacking(store, place, same)
        except BaseException:
            store.close()
            raise

    def _lacking(self, store: Store, place: Place, same: Sequence[RememberedNight]) -> str:
        """Return which night a database lacks; ``same`` are the nights in a database of this name, the newest first."""
        if not self._known:
            if not store.nights.list(1):
                raise self._gone(f"{store.location} holds no night", None)
            return ""
        last = (same or self._known)[0]
        held = [night for night in same or self._known if store.nights.has(night.began)]
        if not held and not (same and store.nights.last(last.host)):
            raise self._gone(f"{store.location} does not hold {last.text}", last)
        suites = {night.place.suite for night in held or same} - {""}
        if place.suite and suites and place.suite not in suites:
            raise UsageError(
                f"the suite is {place.suite} now, and was {last.place.suite} in {last.text}, the last one here",
                cure=f"bring the suite back, or name it in perfsvc.toml; if it moved, {ANEW}",
            )
        return "" if last in held else f"{store.location} lacks {last.text}: it was replaced, perhaps by an older copy"

    def _gone(self, what: str, last: RememberedNight | None) -> DatabaseError:
        was = (
            f"{last.text}, the last one here, was in {last.place.database}" if last else f"{self._nights} has old logs"
        )
        return DatabaseError(
            f"{what}; {was}",
            cure=f"name the right database, restore a backup (docs/how-to/keep-the-database.md), or {ANEW}",
        )

    def remember(self, host: str, night: int, began: datetime, targets: Mapping[str, str]) -> None:
        """Remember a night as the last one of this place."""
        if self._place is None:
            return
        try:
            folder = _folder()
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for outdated in self._known:
                if self._new and not _exists(outdated.place.config):
                    _file(folder, outdated.place).unlink(missing_ok=True)
            known = RememberedNight(self._place, host, night, began, dict(targets))
            files.write(_file(folder, self._place), codec.encode(known), mode=0o600)
        except (OSError, RuntimeError) as error:
            self._report(f"warning: this host cannot remember its nights ({error}): it will not notice a lost database")

    def _read(self) -> list[RememberedNight]:
        """Return the nights of the same folder or settings file, the newest first."""
        place, nights = self._place, []
        try:
            for file in _folder().glob("*.json"):
                try:
                    night = codec.decode(RememberedNight, file.read_bytes())
                except ValueError:
                    self._report(f"warning: {file} is damaged, and not used; remove it")
                    continue
                if place and (night.place.folder == place.folder or place.config == night.place.config != ""):
                    nights.append(night)
        except (OSError, RuntimeError) as error:
            self._report(f"warning: this host cannot read what it remembers of its nights: {error}")
        return sorted(nights, key=lambda night: night.began, reverse=True)


def _exists(config: str) -> bool:
    return not config or os.path.lexists(config)


def _has_logs(nights: Path | None) -> bool:
    """Return whether a folder has the logs of nights."""
    try:
        return nights is not None and any(entry.name.isdecimal() for entry in nights.iterdir())
    except OSError:
        return False


def _folder() -> Path:
    return platformdirs.user_data_path("perfsvc") / "nights"


def _file(folder: Path, place: Place) -> Path:
    return folder / f"{hashlib.sha256(codec.encode(place)).hexdigest()[:16]}.json"
