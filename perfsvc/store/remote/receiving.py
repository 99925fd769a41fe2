"""Runs that another host has sent, and runs from files of other tools: store them, each only once."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import Connection, func, insert, select, update

from perfsvc.errors import UsageError
from perfsvc.model import TIME, Case, DeviceInfo, RunState, Series
from perfsvc.store.cases import case_ids, device_ids, put_series
from perfsvc.store.devices import put_device
from perfsvc.store.levels import write_levels
from perfsvc.store.measurements import put_measurements
from perfsvc.store.remote.rows import SentMeasurement, SentRun
from perfsvc.store.rows import ImportedRun, MeasurementEntry
from perfsvc.store.runs import run_row
from perfsvc.store.schema.engine import POSTGRESQL, Database, among, insert_new, new_id
from perfsvc.store.schema.environments import put_full
from perfsvc.store.schema.night_tables import ReceivedRuns
from perfsvc.store.schema.tables import Devices, GpuPeaks, Imports, OverBudgetCases, Peaks, RemovedUids, Runs


class ImportStore:
    """Imported runs; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._keys = database.keys

    def known(self, digests: Collection[str]) -> dict[str, int]:
        """Return the newest run of each part of a file that was imported before, by the digest of the part."""
        with self._database.reading() as connection:
            wanted = among(Imports.digest, set(digests))
            query = select(Imports.digest, func.max(Imports.run_id)).where(wanted).group_by(Imports.digest)
            return dict(connection.execute(query).all())

    def later(self, scope: str, started: datetime) -> int | None:
        """Return the newest run of a scope (suite and selection) that began after a moment; None without such a run."""
        query = select(func.max(Runs.id)).where(Runs.scope == scope, Runs.started_at > started)
        with self._database.reading() as connection:
            return connection.scalar(query)

    def put(self, runs: Iterable[ImportedRun], stored: Callable[[ImportedRun], object]) -> list[int]:
        """Store finished runs, and return their numbers. If an error is raised, nothing of any run is stored.

        Args:
            runs: the runs; the number of their replicas is counted, and ``provenance.replicas`` is ignored.
            stored: called after each run.
        """
        numbers = []
        with self._database.writing() as connection:
            for run in runs:
                numbers.append(self._put(connection, run))
                stored(run)
        return numbers

    def _put(self, connection: Connection, run: ImportedRun) -> int:
        """Store a run with its measurements, its levels, and the digests of its files."""
        for device in run.devices:
            put_device(connection, device)
        now = datetime.now(UTC)
        row = run_row(run.provenance, RunState.FINISHED) | {"finished_at": now}
        number = new_id(connection, Runs, row)
        replicas = put_measurements(connection, number, run.entries, self._keys)
        connection.execute(update(Runs).where(Runs.id == number).values(replicas=replicas))
        write_levels(connection, number)
        parts = [
            {"digest": digest, "run_id": number, "format": run.format, "path": path, "imported_at": now}
            for digest, path in run.parts.items()
        ]
        connection.execute(insert(Imports), parts)
        return number


@dataclass(frozen=True, slots=True)
class Received:
    """Which run a host has sent: ``new`` is False if it was stored before, ``run`` is None if it was deleted since."""

    run: int | None
    new: bool


class ReceivedStore:
    """Runs that other hosts have sent; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._keys = database.keys

    def of_digest(self, digest: str) -> int | None:
        """Return the run that was stored from a body with this SHA-256; None if there is none."""
        with self._database.reading() as connection:
            return connection.scalar(select(ReceivedRuns.run_id).where(ReceivedRuns.digest == digest))

    def is_judged(self, run: int) -> bool:
        """Return whether a run needs no judging: its judging has ended, or no host sent it."""
        waiting = select(ReceivedRuns.run_id).where(ReceivedRuns.run_id == run, ReceivedRuns.judged_at.is_(None))
        with self._database.reading() as connection:
            return connection.scalar(waiting) is None

    def note_judged(self, run: int) -> None:
        """Store that the verdicts of a run and the findings are complete."""
        judged = update(ReceivedRuns).where(ReceivedRuns.run_id == run).values(judged_at=datetime.now(UTC))
        with self._database.writing() as connection:
            connection.execute(judged)

    def put(
        self,
        sent: SentRun,
        measurements: Iterable[SentMeasurement],
        cases: Collection[Case],
        *,
        digest: str,
        token: int,
        key: str,
    ) -> Received:
        """Store a run that another host has sent, in one transaction.

        A run that was stored before is not stored again, whether a host sent it or ``perfsvc sync`` copied it. A run
        that was deleted does not come back.

        Args:
            sent: the run.
            measurements: its measurements, without duplicates; they are read while they are stored.
            cases: all of its cases. They are stored together, so that a new variant with the former name of another one
                is no renamed case.
            digest: the SHA-256 of what the host sent.
            token: the id of the host's token.
            key: names the attempt; a host that is not sure whether its run has arrived sends the same key again.

        Raises:
            ReusedKeyError: the key was used with another body.
            UsageError: a device is another one than the device that the database has under this UUID.
        """
        with self._database.writing() as connection:
            if connection.dialect.name == POSTGRESQL:  # SQLite has one writer at a time
                connection.exec_driver_sql("LOCK TABLE received_runs IN SHARE ROW EXCLUSIVE MODE")
            stored = connection.scalar(select(ReceivedRuns.run_id).where(ReceivedRuns.digest == digest))
            if stored is not None:
                return Received(stored, new=False)
            _require_unused(connection, token, key)
            if connection.scalar(select(RemovedUids.uid).where(RemovedUids.uid == sent.uid)) is not None:
                return Received(None, new=False)
            known = connection.scalar(select(Runs.id).where(Runs.uid == sent.uid))
            if known is not None:
                return Received(known, new=False)
            _put_devices(connection, sent.devices)
            case_ids(connection, cases)
            run = self._put_run(connection, sent, measurements)
            write_levels(connection, run)
            _put_peaks(connection, run, sent)
            row = {"digest": digest, "run_id": run, "token_id": token, "key": key, "received_at": datetime.now(UTC)}
            connection.execute(insert(ReceivedRuns), row)
            return Received(run, new=True)

    def _put_run(self, connection: Connection, sent: SentRun, measurements: Iterable[SentMeasurement]) -> int:
        """Store a run with its measurements, its environment and the cases that were over budget."""
        row = run_row(sent.provenance, sent.state) | {"uid": sent.uid, "finished_at": sent.finished}
        number = new_id(connection, Runs, row)
        replicas = put_measurements(connection, number, map(_entry, measurements), self._keys)
        connection.execute(update(Runs).where(Runs.id == number).values(replicas=replicas))
        if sent.environment is not None:
            put_full(connection, number, sent.environment)
        times = [Series(case, uuid, "", TIME, cache) for uuid, case, cache in sent.over_budget]
        over_budget = [{"run_id": number, "series_id": of} for of in put_series(connection, times).values()]
        if over_budget:
            connection.execute(insert(OverBudgetCases), over_budget)
        return number


class ReusedKeyError(UsageError):
    """An idempotency key was used before, with another body."""


def _require_unused(connection: Connection, token: int, key: str) -> None:
    """Raise ``ReusedKeyError`` if a token has used a key."""
    used = select(ReceivedRuns.run_id).where(ReceivedRuns.token_id == token, ReceivedRuns.key == key)
    run = connection.scalar(used)
    if run is not None:
        raise ReusedKeyError(
            f"the Idempotency-Key was used for run {run}, which had another content",
            cure="use a new key for each run",
        )


def _put_devices(connection: Connection, devices: Iterable[DeviceInfo]) -> None:
    """Store devices; raise ``UsageError`` if one is another device than the database has under its UUID.

    A GPU never changes its model. A host that sends another model would change all times of this GPU.
    """
    for device in devices:
        query = select(Devices.kind, Devices.model).where(Devices.uuid == device.uuid)
        stored = connection.execute(query).first()
        if stored and (stored.kind, stored.model) != (device.kind, device.model):
            raise UsageError(
                f"the device {device.uuid} is a {stored.model} here, and not a {device.model}",
                cure="send runs of devices that have a UUID of their own",
            )
        put_device(connection, device)


def _put_peaks(connection: Connection, run: int, sent: SentRun) -> None:
    """Store the measured peaks of a run; a peak of a GPU that the database has stays as it is."""
    ids = device_ids(connection, {*sent.peaks, *(peak.device for peak in sent.gpu_peaks)})
    rows = [
        {
            "run_id": run,
            "device_id": ids[uuid],
            "copy_bytes_per_s": peak.copy_bytes_per_s,
            "read_bytes_per_s": peak.read_bytes_per_s,
        }
        for uuid, peak in sent.peaks.items()
    ]
    if rows:
        connection.execute(insert(Peaks), rows)
    for peak in sent.gpu_peaks:
        row = {
            "device_id": ids[peak.device],
            "driver": peak.driver,
            "power_limit_w": peak.power_limit_w,
            "name": peak.name,
            "rate": peak.rate,
            "version": peak.kernels,
            "measured_at": peak.measured_at,
        }
        insert_new(connection, GpuPeaks, row)


def _entry(sent: SentMeasurement) -> MeasurementEntry:
    return MeasurementEntry(
        sent.measurement,
        sent.environment,
        sent.work,
        sent.estimate,
        variant_index=sent.variant_index,
        relative_to=sent.relative_to,
        measured_at=sent.measured_at,
    )
