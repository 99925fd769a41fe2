"""The store: one database, and an object for each kind of data in it."""

import os
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import Engine
from sqlalchemy.engine import URL

from perfsvc.errors import NoDatabaseError
from perfsvc.store.keeping import upgrades
from perfsvc.store.rows import SchemaState, Upgrade
from perfsvc.store.schema.engine import Database, StorePart, connect, file_of, identity_of, resolve, shown

if TYPE_CHECKING:
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


def _part(module: str, name: str) -> Any:
    """Return an attribute of ``Store``: a part that is imported when it is first used.

    Importing all parts took longer than a short command needs.
    """

    def part(store: "Store") -> StorePart:
        kind: type[StorePart] = getattr(import_module(f"perfsvc.store.{module}"), name)
        return kind(store.database)

    return cached_property(part)


class Store:
    """Everything that perfsvc remembers, in SQLite or PostgreSQL, as one object for each kind of data.

    A context manager. Each method of the objects is one transaction, committed when the method returns; any error
    of the database is raised as a ``DatabaseError`` with a cure. Timestamps are UTC, times are seconds.

    Attributes:
        database: the engine and its transactions, and the keys by which this user signs and trusts stored code.
        runs: the executions of a plan.
        devices: devices, their measured peaks and their conditions during a run.
        measurements: measurements as rows, their noise and what they cost.
        binaries: the code that cases ran.
        series: levels and histories of series.
        baselines: the runs that series are compared with, and pins.
        verdicts: the verdicts on the series of runs.
        confirmations: suspects that were measured again.
        exclusions: the data that people keep out of judging, and the runs that they deleted.
        findings: what people should look at, and what they decided.
        expectations: the hosts, GPUs and cases that nights are expected to have.
        profiles: profiles of binaries and explanations of changes.
        checks: static checks of kernels.
        nights: executions of ``perfsvc nightly``.
        messages: the messages about nights, and whether they arrived.
        tokens: the tokens of the server.
        sending: whole runs, read to send them to another host.
        received: runs that other hosts have sent, and runs that other tools measured.
        audit: what people and programs tried to change through the server.
        retention: removes what is old.
    """

    runs: "RunStore" = _part("runs", "RunStore")
    devices: "DeviceStore" = _part("devices", "DeviceStore")
    measurements: "MeasurementStore" = _part("measurements", "MeasurementStore")
    binaries: "BinaryStore" = _part("binaries", "BinaryStore")
    series: "SeriesStore" = _part("series", "SeriesStore")
    baselines: "BaselineStore" = _part("baselines.baselines", "BaselineStore")
    verdicts: "VerdictStore" = _part("verdicts", "VerdictStore")
    confirmations: "ConfirmationStore" = _part("verdicts", "ConfirmationStore")
    exclusions: "ExclusionStore" = _part("exclusions", "ExclusionStore")
    findings: "FindingStore" = _part("findings", "FindingStore")
    expectations: "ExpectationStore" = _part("expectations", "ExpectationStore")
    profiles: "ProfileStore" = _part("profiles", "ProfileStore")
    checks: "CheckStore" = _part("checks", "CheckStore")
    nights: "NightStore" = _part("nights", "NightStore")
    messages: "MessageStore" = _part("messages", "MessageStore")
    tokens: "TokenStore" = _part("remote.tokens", "TokenStore")
    sending: "SendingStore" = _part("remote.sending", "SendingStore")
    received: "ReceivedStore" = _part("remote.receiving", "ReceivedStore")
    audit: "AuditLog" = _part("remote.tokens", "AuditLog")
    retention: "Retention" = _part("retention", "Retention")

    def __init__(self, engine: Engine) -> None:
        self.database = Database(engine)

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
