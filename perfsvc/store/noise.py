"""What a run found out about its own times: the noise of its cases and the roofs of its boards."""

from collections.abc import Mapping

from sqlalchemy import Connection, delete, func, insert, select

from perfsvc.model import Noise, Roof
from perfsvc.store.columntypes import number
from perfsvc.store.interning import device_id, insert_into
from perfsvc.store.known import Known
from perfsvc.store.naming import Place, of_cases, present_cases
from perfsvc.store.tables import Devices, Measurements, NoiseOfCases, Roofs


def put_noise(connection: Connection, run: int, found: Mapping[Place, Noise], known: Known) -> None:
    """Stores the noise of a run's cases in place of what was stored before, with the replicas it was seen in."""
    connection.execute(delete(NoiseOfCases).where(NoiseOfCases.run_id == run))
    replicas = _timed_replicas(connection, run)
    cases = known.cases(connection, (case for _, case, _ in found))
    devices = {uuid: device_id(connection, uuid) for uuid in {uuid for uuid, _, _ in found}}
    rows = []
    for (device, case, mode), noise in found.items():
        place = cases[case, case.formerly], devices[device], mode
        row = dict(zip(("case_id", "device_id", "mode"), place, strict=True))
        levels = {"noise_within": number(noise.within), "noise_between": number(noise.between)}
        rows.append({"run_id": run, **row, **levels, "replicas": replicas.get(place, 0)})
    if rows:
        connection.execute(insert_into(NoiseOfCases), rows)


def _timed_replicas(connection: Connection, run: int) -> dict[tuple[int, int, str], int]:
    of_place = (Measurements.case_id, Measurements.device_id, Measurements.mode)
    query = (
        select(*of_place, func.count())
        .where(Measurements.run_id == run, Measurements.sample_count > 0)
        .group_by(*of_place)
    )
    return {(case, device, mode): count for case, device, mode, count in connection.execute(query)}


def noise(connection: Connection, run: int) -> dict[Place, Noise]:
    """The noise of a run's cases under their present names."""
    levels = NoiseOfCases.noise_within, NoiseOfCases.noise_between
    rows = connection.execute(of_cases(NoiseOfCases, *levels).where(NoiseOfCases.run_id == run)).all()
    cases = present_cases(rows)
    return {(row.uuid, cases[row.case_id], row.mode): Noise(row.noise_within, row.noise_between) for row in rows}


def put_roofs(connection: Connection, run: int, found: Mapping[str, Roof]) -> None:
    """Stores the roofs of a run's boards in place of what was stored before."""
    connection.execute(delete(Roofs).where(Roofs.run_id == run))
    rows = [
        {
            "run_id": run,
            "device_id": device_id(connection, uuid),
            "copy_bytes_per_s": roof.copy_bytes_per_s,
            "read_bytes_per_s": roof.read_bytes_per_s,
        }
        for uuid, roof in found.items()
    ]
    if rows:
        connection.execute(insert(Roofs), rows)


def roofs(connection: Connection, run: int) -> dict[str, Roof]:
    """The roofs of a run's boards by UUID."""
    query = (
        select(Devices.uuid, Roofs.copy_bytes_per_s, Roofs.read_bytes_per_s)
        .join(Devices, Devices.id == Roofs.device_id)
        .where(Roofs.run_id == run)
        .order_by(Devices.id)
    )
    return {uuid: Roof(copied, read) for uuid, copied, read in connection.execute(query)}
