"""Runs that another host has sent, and runs from files of other tools: store them, each only once."""

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from perfsvc.errors import UsageError
from perfsvc.keys import Keys
from perfsvc.model import TIME, Case, DeviceInfo, RunState, Series
from perfsvc.store.cases import case_ids, device_ids, put_series
from perfsvc.store.devices import put_device
from perfsvc.store.levels import write_levels
from perfsvc.store.measurements import put_measurements
from perfsvc.store.remote.rows import SentMeasurement, SentRun
from perfsvc.store.rows import ImportedRun, MeasurementEntry
from perfsvc.store.run_devices import put_peaks
from perfsvc.store.runs import run_row
from perfsvc.store.schema.engine import POSTGRESQL, StorePart, among, insert_new, new_id
from perfsvc.store.schema.environments import put_full
from perfsvc.store.schema.night_tables import ReceivedRuns
from perfsvc.store.schema.tables import Devices, GpuPeaks, Imports, OverBudgetCases, RemovedUids, Runs


class ReceivedStore(StorePart):
    """Runs that other hosts have sent, and runs that other tools measured; each method is one transaction."""

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
    ) -> tuple[int | None, bool]:
        """Store a run that another host has sent, in one transaction; return it, and False if it was stored before.

        A run that was stored before is not stored again, whether a host sent it or ``perfsvc sync`` copied it. A run
        that was deleted does not come back; it is returned as None.

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
                return stored, False
            used = select(ReceivedRuns.run_id).where(ReceivedRuns.token_id == token, ReceivedRuns.key == key)
            if (run := connection.scalar(used)) is not None:
                raise ReusedKeyError(
                    f"the Idempotency-Key was used for run {run}, which had another content",
                    cure="use a new key for each run",
                )
            if connection.scalar(select(RemovedUids.uid).where(RemovedUids.uid == sent.uid)) is not None:
                return None, False
            known = connection.scalar(select(Runs.id).where(Runs.uid == sent.uid))
            if known is not None:
                return known, False
            _put_devices(connection, sent.devices)
            case_ids(connection, cases)
            row = run_row(sent.provenance, sent.state) | {"uid": sent.uid, "finished_at": sent.finished}
            run = _put_run(connection, row, map(_entry, measurements), self._keys)
            _put_state(connection, run, sent)
            row = {"digest": digest, "run_id": run, "token_id": token, "key": key, "received_at": datetime.now(UTC)}
            connection.execute(insert(ReceivedRuns), row)
            return run, True

    def imported(self, digests: Collection[str]) -> dict[str, int]:
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

    def put_imported(self, runs: Iterable[ImportedRun], stored: Callable[[ImportedRun], object]) -> list[int]:
        """Store finished runs, and return their numbers. If an error is raised, nothing of any run is stored.

        Args:
            runs: the runs; the number of their replicas is counted, and ``provenance.replicas`` is ignored.
            stored: called after each run.
        """
        numbers = []
        with self._database.writing() as connection:
            for run in runs:
                numbers.append(self._put_imported(connection, run))
                stored(run)
        return numbers

    def _put_imported(self, connection: Connection, run: ImportedRun) -> int:
        """Store a run with its measurements, its levels, and the digests of its files."""
        for device in run.devices:
            put_device(connection, device)
        now = datetime.now(UTC)
        row = run_row(run.provenance, RunState.FINISHED) | {"finished_at": now}
        number = _put_run(connection, row, run.entries, self._keys)
        parts = [
            {"digest": digest, "run_id": number, "format": run.format, "path": path, "imported_at": now}
            for digest, path in run.parts.items()
        ]
        connection.execute(insert(Imports), parts)
        return number


class ReusedKeyError(UsageError):
    """An idempotency key was used before, with another body."""


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


def _put_run(connection: Connection, row: dict[str, Any], entries: Iterable[MeasurementEntry], keys: Keys) -> int:
    """Store a run that has ended, with its measurements and levels; return its number."""
    number = new_id(connection, Runs, row)
    replicas = put_measurements(connection, number, entries, keys)
    connection.execute(update(Runs).where(Runs.id == number).values(replicas=replicas))
    write_levels(connection, number)
    return number


def _put_state(connection: Connection, run: int, sent: SentRun) -> None:
    """Store the environment of a run, the cases that were over budget, and the measured peaks.

    A peak of a GPU that the database has stays as it is.
    """
    if sent.environment is not None:
        put_full(connection, run, sent.environment)
    times = [Series(case, uuid, "", TIME, cache) for uuid, case, cache in sent.over_budget]
    over_budget = [{"run_id": run, "series_id": of} for of in put_series(connection, times).values()]
    if over_budget:
        connection.execute(insert(OverBudgetCases), over_budget)
    ids = device_ids(connection, {peak.device for peak in sent.gpu_peaks})
    put_peaks(connection, run, sent.peaks)
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
