"""The store: one object, one transaction a method."""

import platform
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Engine
from sqlalchemy.engine import URL

from perfsvc.errors import DatabaseError
from perfsvc.model import (
    CacheState,
    Case,
    DeviceInfo,
    Level,
    Noise,
    Peak,
    Provenance,
    ReplayRecord,
    Series,
)
from perfsvc.store import (
    budget,
    codes,
    columns,
    expected,
    interning,
    lookup,
    nightly,
    nights,
    noise,
    reading,
    schema,
    writing,
)
from perfsvc.store.checks import StaticallyChecked
from perfsvc.store.confirmations import Confirmed
from perfsvc.store.engine import connect, file_of, resolve, shown, transaction
from perfsvc.store.found import Found
from perfsvc.store.histories import Historied
from perfsvc.store.judged import Judged
from perfsvc.store.known import Known
from perfsvc.store.messages import Outbox
from perfsvc.store.naming import Place
from perfsvc.store.nightly import Nightly
from perfsvc.store.profiles import Looked
from perfsvc.store.pruning import Prunes
from perfsvc.store.rows import (
    BinaryRow,
    Built,
    CaseInRun,
    Code,
    Entry,
    Nights,
    Past,
    RunRow,
    SchemaState,
    State,
    Upgrade,
)


class Store(Judged, Found, Historied, Confirmed, Looked, StaticallyChecked, Nightly, Outbox, Prunes):
    """Everything perfsvc remembers, in SQLite or PostgreSQL.

    A context manager. Each method is one transaction, committed when it returns; any trouble with the database is a
    ``DatabaseError`` with its cure. Timestamps are UTC, times are seconds.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known = Known()

    @property
    def place(self) -> str:
        """What ``open`` was given, as messages name it: a URL without its password."""
        return shown(self._engine.url)

    @property
    def identity(self) -> str:
        """What it is, whatever ``open`` was given and by whom: two stores of one database have the same."""
        url = self._engine.url
        path = file_of(url)
        return str(path.resolve()) if path else f"{url.host}:{url.port}/{url.database} {sorted(url.query.items())}"

    # --- opening ---------------------------------------------------------------------------------------------------

    @classmethod
    def open(cls, place: str | Path, *, create: bool = True) -> Self:
        """Opens a database.

        Args:
            place: a path to a SQLite file (``perfsvc.db``) or an SQLAlchemy URL (``postgresql://user@host/database``).
            create: whether to make the file, and the tables in an empty database.

        Raises:
            DatabaseError: it cannot be reached or used, has another schema revision, or is not there and may not be
                made.
            MissingPackageError: the driver of its kind of database is not installed.
        """
        url = resolve(str(place))
        if not create:
            _require_file(url)
        store = cls(connect(url))
        try:
            schema.open_at_head(store._engine, create=create)
        except BaseException:
            store.close()
            raise
        return store

    @staticmethod
    def upgrade(place: str | Path) -> Upgrade:
        """Brings a database to this perfsvc's schema revision; a SQLite file is copied beside itself first."""
        engine = connect(resolve(str(place)))
        try:
            return schema.upgrade(engine)
        finally:
            engine.dispose()

    @staticmethod
    def check(place: str | Path) -> SchemaState:
        """How a database stands; changes nothing. Raises ``DatabaseError`` where there is none."""
        url = resolve(str(place))
        _require_file(url)
        engine = connect(url)
        try:
            return schema.check(engine)
        finally:
            engine.dispose()

    def close(self) -> None:
        """Closes all connections that are not in use; another store of the database opens its own again."""
        self._engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # --- writing ---------------------------------------------------------------------------------------------------

    def begin_run(self, provenance: Provenance, *, night: int | None = None) -> int:
        """Stores a run as running, as a night's where it is one, and returns its id.

        First it ends the runs whose process died on the same host.
        """
        with transaction(self._engine, writes=True) as connection:
            writing.mark_interrupted(connection, provenance.host or platform.node())
            run = writing.begin_run(connection, provenance)
            if night is not None:
                nightly.belongs_to(connection, night, run)
            return run

    def end_run(self, run: int, state: State) -> None:
        """Stores how a run ended, and that it did so now."""
        with transaction(self._engine, writes=True) as connection:
            writing.end_run(connection, run, state)

    def mark_interrupted(self, host: str) -> list[int]:
        """Ends the runs of ``host``, which must be this machine, whose process died; returns their ids."""
        with transaction(self._engine, writes=True) as connection:
            return writing.mark_interrupted(connection, host)

    def put_device(self, info: DeviceInfo) -> None:
        """Stores a device, or what it says of itself by now; driver and power limit belong to measurements."""
        with transaction(self._engine, writes=True) as connection:
            interning.put_device(connection, info)

    def put_binaries(self, codes: Sequence[Code]) -> list[int]:
        """Stores the code of cases as it ran and returns the binaries' ids; of equal records one is stored.

        Raises:
            KeyError: a module of a record is not among its modules.
            ValueError: bytes do not have the digest that a record says.
        """
        with transaction(self._engine, writes=True) as connection:
            return writing.put_binaries(connection, codes)

    def put_measurements(self, run: int, entries: Sequence[Entry]) -> None:
        """Stores measurements of a run for good: once this returns, no crash of ours loses any."""
        with transaction(self._engine, writes=True) as connection:
            ids = self._known.look_up(connection, entries)
            writing.put_measurements(connection, run, entries, ids)
        self._known.keep(entries, ids)

    def put_noise(self, run: int, found: Mapping[Place, Noise]) -> None:
        """Stores the noise of each device (UUID), case and cache state of a run, in place of what was stored of it before."""
        with transaction(self._engine, writes=True) as connection:
            noise.put_noise(connection, run, found, self._known)

    def put_peaks(self, run: int, found: Mapping[str, Peak]) -> None:
        """Stores the measured peaks of a run's GPUs by UUID, in place of what was stored of it before."""
        with transaction(self._engine, writes=True) as connection:
            noise.put_peaks(connection, run, found)

    def put_over_budget(self, run: int, places: Iterable[Place]) -> None:
        """Stores each device (UUID), case and cache state that a run over budget, in place of those before."""
        with transaction(self._engine, writes=True) as connection:
            budget.put_over_budget(connection, run, places)

    # --- runs and cases --------------------------------------------------------------------------------------------

    def runs(self, limit: int | None = None) -> list[RunRow]:
        """All runs, or the last ``limit``, newest first."""
        with transaction(self._engine, writes=False) as connection:
            return lookup.runs(connection, limit)

    def run(self, number: int) -> RunRow:
        """One run; raises ``NotMeasuredError`` where there is none."""
        with transaction(self._engine, writes=False) as connection:
            return lookup.run(connection, number)

    def newest(self, n: int = 0, *, before: int | None = None) -> RunRow | None:
        """The latest run that has ended and measured anything, or the ``n``-th before it.

        A run that was interrupted or failed is as good as a finished one for what it holds.

        Args:
            n: 0 for the latest.
            before: only runs with a smaller id.
        """
        with transaction(self._engine, writes=False) as connection:
            return lookup.newest(connection, n, before)

    def labelled(self, label: str) -> RunRow | None:
        """The newest such run with that label."""
        with transaction(self._engine, writes=False) as connection:
            return lookup.labelled(connection, label)

    def of_commit(self, prefix: str) -> RunRow | None:
        """The newest such run of the commit that starts with ``prefix``, one without further changes if there is any.

        Raises ``UsageError`` where the prefix stands for several commits.
        """
        with transaction(self._engine, writes=False) as connection:
            return lookup.of_commit(connection, prefix)

    def over_budget(self, run: int) -> list[Place]:
        """The device (UUID), case and cache state of all that a run over budget."""
        with transaction(self._engine, writes=False) as connection:
            return budget.over_budget(connection, run)

    def past(self, cases: Iterable[Case], *, before: int | None = None) -> dict[tuple[str, str, CacheState], Past]:
        """What runs, or those ``before`` one, tell of some cases, by device (UUID), case id and cache state, through renames.

        A case that never came to a device is absent there.
        """
        with transaction(self._engine, writes=False) as connection:
            return budget.past(connection, cases, before)

    def devices(self) -> dict[str, DeviceInfo]:
        """Every stored device by UUID, without driver and power limit, which belong to measurements."""
        with transaction(self._engine, writes=False) as connection:
            return lookup.devices(connection)

    def case_ids(self, run: int | None = None) -> list[str]:
        """The ids of all measured cases, or of one run's, as they were measured."""
        with transaction(self._engine, writes=False) as connection:
            return lookup.case_ids(connection, run)

    # --- measurements ----------------------------------------------------------------------------------------------

    def levels(self, run: int) -> dict[Series, Level]:
        """All series of a run, under the present names of their cases.

        Metric ``time`` holds the samples of each replica in seconds (rounded to float32); every named metric one value
        a replica. A case of which any replica was wrong or failed, or that was skipped, has a ``time`` level alone,
        with that status and reason and no replicas.
        """
        with transaction(self._engine, writes=False) as connection:
            return reading.levels(connection, run)

    def levels_of(self, runs: Mapping[Series, int]) -> dict[Series, Level]:
        """Each of some series in the run that is named with it, as ``levels`` has it there; absent where it has none.

        Nothing else of those runs is read.
        """
        with transaction(self._engine, writes=False) as connection:
            return reading.levels_of(connection, runs)

    def expected(self, run: int) -> dict[Series, int]:
        """What a run should have measured on its devices: all that the run before has a right result of.

        Each comes with the run that has it.

        The run before is the newest earlier one of the same scope that finished and measured on the device: one without
        uncommitted changes, unless all have some. What that one over budget comes from the run before
        it that measured it; what ``run`` itself left out is not expected of it. Nothing is where the scope is unknown.
        """
        with transaction(self._engine, writes=False) as connection:
            return expected.expected(connection, run)

    def noise(self, run: int) -> dict[Place, Noise]:
        """The noise of a run's times by device (UUID), case and cache state."""
        with transaction(self._engine, writes=False) as connection:
            return noise.noise(connection, run)

    def peaks(self, run: int) -> dict[str, Peak]:
        """The measured peaks of a run's GPUs by UUID."""
        with transaction(self._engine, writes=False) as connection:
            return noise.peaks(connection, run)

    def history(self, case_id: str, device: str | None = None) -> list[CaseInRun]:
        """A case in every run, oldest first, by its present or a former name, across renames, on one or all devices.

        Each run has the medians of its replicas; their level is the judge's to say.
        Raises ``NotMeasuredError`` where the id is unknown.
        """
        with transaction(self._engine, writes=False) as connection:
            return reading.history(connection, case_id, device)

    def columns(self, runs: Sequence[int] | None = None) -> dict[str, list[Any]]:
        """One row a measurement of some runs, or of all, as equally long lists by column name.

        Beside the tables' own columns (docs/reference/database.md): ``axes`` (a dict), ``metrics`` (a dict of named values),
        ``bandwidth_bytes_per_s`` and ``flops_per_s`` (None where the work or the time is unknown), ``peak_share`` (the
        bandwidth over the better of the GPU's measured peaks in that run).
        """
        with transaction(self._engine, writes=False) as connection:
            return columns.columns(connection, runs)

    def replay(
        self, case_id: str, run: int, *, device: str | None = None
    ) -> tuple[ReplayRecord, dict[str, bytes], bytes]:
        """The binary of a case as it ran: its replay record, its modules by digest, its benchmark file.

        Raises:
            NotMeasuredError: the run holds none.
            UsageError: it ran as several binaries, on several devices, and ``device`` does not say which.
        """
        with transaction(self._engine, writes=False) as connection:
            return reading.replay(connection, case_id, run, device)

    def nights(self, run: int, last: int) -> dict[tuple[Place, str], Nights]:
        """What the nights up to a run, itself included, say of all that it measured and that is judged, oldest first.

        Nights are the newest ``last`` runs of its scope that have ended, those with uncommitted changes left out, from
        the first on that measured anything in an environment of tonight. Each case is followed through its renames; a
        night that did not measure it is absent. Beside the place stands the metric: ``time``, ``max_error`` and the
        named ones.
        """
        with transaction(self._engine, writes=False) as connection:
            return nights.nights(connection, run, last)

    def built(self, run: int) -> dict[Place, Built]:
        """What each device (UUID), case and cache state of a run was made of, and where it ran."""
        with transaction(self._engine, writes=False) as connection:
            return codes.built(connection, run)

    def built_of(self, places: Collection[tuple[int, Place]]) -> dict[tuple[int, Place], Built]:
        """What ``built`` has of each of some places in the run that is named with it; absent where it has none.

        Nothing else of those runs is read.
        """
        with transaction(self._engine, writes=False) as connection:
            return codes.built_of(connection, places)

    def ran(self, place: Place, runs: Collection[int]) -> dict[int, int]:
        """The id of the binary that a case ran in each of some runs; absent is where it ran none, or not one alone."""
        with transaction(self._engine, writes=False) as connection:
            return codes.ran(connection, place, runs)

    def binaries(self, numbers: Collection[int]) -> dict[int, BinaryRow]:
        """Binaries by the ids that ``built`` tells, without their bytes."""
        with transaction(self._engine, writes=False) as connection:
            return codes.binaries(connection, numbers)

    def modules(self, digests: Collection[str]) -> dict[str, bytes]:
        """The bytes of compiled modules by the digests that replay records name."""
        with transaction(self._engine, writes=False) as connection:
            return reading.modules(connection, digests)


def _require_file(url: URL) -> None:
    path = file_of(url)
    if path is not None and not path.exists():
        raise DatabaseError(f"there is no database {path}", cure="perfsvc run makes it, or name another with --db")
