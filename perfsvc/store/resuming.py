"""Going on with a run that was cut short: whose it is now, and what it holds already."""

from sqlalchemy import Connection, select, update

from perfsvc.errors import NotMeasuredError
from perfsvc.model import Measurement
from perfsvc.store import processes
from perfsvc.store.interning import case_of
from perfsvc.store.rows import State
from perfsvc.store.samples import unpack
from perfsvc.store.tables import Cases, Devices, Measurements, Runs


def resume_run(connection: Connection, run: int) -> None:
    """Has this process go on with a run; see ``Store.resume_run``."""
    going_on = update(Runs).where(Runs.id == run)
    mine = {"state": State.RUNNING, "finished_at": None, **processes.this_process()}
    if connection.execute(going_on.values(mine)).rowcount == 0:
        raise NotMeasuredError(f"there is no run {run}", cure="perfsvc runs")


def measured(connection: Connection, run: int) -> list[Measurement]:
    """What a run holds; see ``Store.measured``."""
    query = (
        select(
            Cases.benchmark,
            Cases.variant,
            Cases.point,
            Cases.version,
            Devices.uuid,
            Measurements.replica,
            Measurements.cache,
            Measurements.status,
            Measurements.reason,
            Measurements.samples,
            Measurements.wall_s,
        )
        .join(Cases, Cases.id == Measurements.case_id)
        .join(Devices, Devices.id == Measurements.device_id)
        .where(Measurements.run_id == run)
        .order_by(Measurements.id)
    )
    return [
        Measurement(
            case_of(row.benchmark, row.variant, row.point, row.version),
            row.uuid,
            row.replica,
            row.status,
            cache=row.cache,
            reason=row.reason,
            samples_s=unpack(row.samples) if row.samples else (),
            wall_s=row.wall_s,
        )
        for row in connection.execute(query)
    ]
