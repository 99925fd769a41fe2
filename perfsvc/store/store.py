"""The store: one database, and an object for each kind of data in it."""

import os
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sqlalchemy import Engine
from sqlalchemy.engine import URL

from perfsvc.errors import NoDatabaseError
from perfsvc.store.keeping import upgrades
from perfsvc.store.rows import SchemaState, Upgrade
from perfsvc.store.schema.engine import Database, connect, file_of, identity_of, resolve, shown

if TYPE_CHECKING:
    from perfsvc.keys import Keys
    from perfsvc.store.baselines.baselines import BaselineStore
    from perfsvc.store.binaries import BinaryStore
    from perfsvc.store.checks import CheckStore
    from perfsvc.store.devices import DeviceStore
    from perfsvc.store.exclusions import ExclusionStore
    from perfsvc.store.expectations import ExpectationStore
    from perfsvc.store.findings import FindingStore
    from perfsvc.store.measurements import MeasurementStore
    from perfsvc.store.messages import MessageStore
    from perfsvc.store.nights import NightStore
    from perfsvc.store.profiles import ProfileStore
    from perfsvc.store.remote.receiving import ReceivedStore
    from perfsvc.store.remote.sending import SendingStore
    from perfsvc.store.remote.tokens import AuditLog, TokenStore
    from perfsvc.store.retention import Retention
    from perfsvc.store.runs import RunStore
    from perfsvc.store.series import SeriesStore
    from perfsvc.store.verdicts import ConfirmationStore, VerdictStore


class Store:
    """Everything that perfsvc remembers, in SQLite or PostgreSQL, as one object for each kind of data.

    A context manager. Each method of the objects is one transaction, committed when the method returns; any error
    of the database is raised as a ``DatabaseError`` with a cure. Timestamps are UTC, times are seconds.

    An object is imported when it is first used: importing all of them took longer than a short command needs.

    Attributes:
        database: the engine and its transactions.
    """

    def __init__(self, engine: Engine) -> None:
        self.database = Database(engine)

    @cached_property
    def keys(self) -> "Keys":
        """The keys by which this user signs and trusts stored code."""
        from perfsvc.keys import Keys

        return Keys()

    @cached_property
    def runs(self) -> "RunStore":
        """The executions of a plan."""
        from perfsvc.store.runs import RunStore

        return RunStore(self.database)

    @cached_property
    def devices(self) -> "DeviceStore":
        """Devices, their measured peaks and their conditions during a run."""
        from perfsvc.store.devices import DeviceStore

        return DeviceStore(self.database)

    @cached_property
    def measurements(self) -> "MeasurementStore":
        """Measurements as rows, their noise and what they cost."""
        from perfsvc.store.measurements import MeasurementStore

        return MeasurementStore(self.database, self.keys)

    @cached_property
    def binaries(self) -> "BinaryStore":
        """The code that cases ran."""
        from perfsvc.store.binaries import BinaryStore

        return BinaryStore(self.database, self.keys)

    @cached_property
    def series(self) -> "SeriesStore":
        """Levels and histories of series."""
        from perfsvc.store.series import SeriesStore

        return SeriesStore(self.database)

    @cached_property
    def baselines(self) -> "BaselineStore":
        """The runs that series are compared with, and pins."""
        from perfsvc.store.baselines.baselines import BaselineStore

        return BaselineStore(self.database)

    @cached_property
    def verdicts(self) -> "VerdictStore":
        """The verdicts on the series of runs."""
        from perfsvc.store.verdicts import VerdictStore

        return VerdictStore(self.database)

    @cached_property
    def confirmations(self) -> "ConfirmationStore":
        """Suspects that were measured again."""
        from perfsvc.store.verdicts import ConfirmationStore

        return ConfirmationStore(self.database)

    @cached_property
    def exclusions(self) -> "ExclusionStore":
        """The data that people keep out of judging, and the runs that they deleted."""
        from perfsvc.store.exclusions import ExclusionStore

        return ExclusionStore(self.database)

    @cached_property
    def findings(self) -> "FindingStore":
        """What people should look at, and what they decided."""
        from perfsvc.store.findings import FindingStore

        return FindingStore(self.database)

    @cached_property
    def expectations(self) -> "ExpectationStore":
        """The hosts, GPUs and cases that nights are expected to have."""
        from perfsvc.store.expectations import ExpectationStore

        return ExpectationStore(self.database)

    @cached_property
    def profiles(self) -> "ProfileStore":
        """Profiles of binaries and explanations of changes."""
        from perfsvc.store.profiles import ProfileStore

        return ProfileStore(self.database)

    @cached_property
    def checks(self) -> "CheckStore":
        """Static checks of kernels."""
        from perfsvc.store.checks import CheckStore

        return CheckStore(self.database)

    @cached_property
    def nights(self) -> "NightStore":
        """Executions of ``perfsvc nightly``."""
        from perfsvc.store.nights import NightStore

        return NightStore(self.database, self.keys)

    @cached_property
    def messages(self) -> "MessageStore":
        """The messages about nights, and whether they arrived."""
        from perfsvc.store.messages import MessageStore

        return MessageStore(self.database)

    @cached_property
    def tokens(self) -> "TokenStore":
        """The tokens of the server."""
        from perfsvc.store.remote.tokens import TokenStore

        return TokenStore(self.database)

    @cached_property
    def sending(self) -> "SendingStore":
        """Whole runs, read to send them to another host."""
        from perfsvc.store.remote.sending import SendingStore

        return SendingStore(self.database)

    @cached_property
    def received(self) -> "ReceivedStore":
        """Runs that other hosts have sent, and runs that other tools measured."""
        from perfsvc.store.remote.receiving import ReceivedStore

        return ReceivedStore(self.database, self.keys)

    @cached_property
    def audit(self) -> "AuditLog":
        """What people and programs tried to change through the server."""
        from perfsvc.store.remote.tokens import AuditLog

        return AuditLog(self.database)

    @cached_property
    def retention(self) -> "Retention":
        """Removes what is old."""
        from perfsvc.store.retention import Retention

        return Retention(self.database)

    @property
    def location(self) -> str:
        """Return the path or the URL of the database for messages, without a password."""
        return shown(self.database.engine.url)

    @property
    def file(self) -> Path | None:
        """The file of a SQLite database; None for a server and for a database in memory."""
        return file_of(self.database.engine.url)

    @property
    def identity(self) -> str:
        """Return a name that is the same for every ``Store`` that has this database open."""
        return identity_of(self.database.engine.url)

    @classmethod
    def open(cls, location: str | Path, *, create: bool = True, read_only: bool = False) -> Self:
        """Open a database.

        Args:
            location: the path of a SQLite file (``perfsvc.db``) or an SQLAlchemy URL
                (``postgresql://user@host/database``).
            create: whether to make the file, and the tables in an empty database.
            read_only: whether the database refuses every change; needs ``create=False``.

        Raises:
            NoDatabaseError: the database does not exist or is empty, and may not be created.
            DatabaseError: the database cannot be reached or used, or has another schema revision.
            MissingPackageError: the driver for this kind of database is not installed.
        """
        url = resolve(str(location))
        if not create:
            _require_file(url)
        store = cls(connect(url, read_only=read_only))
        try:
            upgrades.open_at_head(store.database.engine, create=create, read_only=read_only)
        except BaseException:
            store.close()
            raise
        return store

    @staticmethod
    def named(location: str) -> str:
        """Return the absolute path of a SQLite file, or the URL of another database without its password."""
        url = resolve(location)
        path = file_of(url)
        return os.path.abspath(path) if path else shown(url)  # noqa: PTH100 - without the .. in a path

    @staticmethod
    def upgrade(location: str | Path) -> Upgrade:
        """Migrate a database to this perfsvc's schema revision; an older SQLite file is copied first."""
        engine = connect(resolve(str(location)))
        try:
            return upgrades.upgrade(engine)
        finally:
            engine.dispose()

    @staticmethod
    def check(location: str | Path) -> SchemaState:
        """Return the state of a database; change nothing. Raises ``DatabaseError`` if it does not exist."""
        url = resolve(str(location))
        _require_file(url)
        engine = connect(url)
        try:
            return upgrades.check(engine)
        finally:
            engine.dispose()

    def close(self) -> None:
        """Close all connections."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _require_file(url: URL) -> None:
    path = file_of(url)
    if path is not None and not path.exists():
        raise NoDatabaseError(f"there is no database {path}", cure="perfsvc run makes it, or name another with --db")
