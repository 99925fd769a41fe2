"""Runs that other tools measured: stored from their result files, all at once, and each part of a file only once."""

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime

from sqlalchemy import Connection, func, insert, select, update

from perfsvc.keys import Keys
from perfsvc.model import RunState
from perfsvc.store.devices import put_device
from perfsvc.store.levels import write_levels
from perfsvc.store.measurements import put_measurements
from perfsvc.store.rows import ImportedRun
from perfsvc.store.runs import run_row
from perfsvc.store.schema.engine import Database, among, new_id
from perfsvc.store.schema.tables import Imports, Runs


class ImportStore:
    """Imported runs; each method is one transaction."""

    def __init__(self, database: Database, keys: Keys) -> None:
        self._database = database
        self._keys = keys

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
