"""What a run found out about its own times: the noise of its cases and the measured peaks of its GPUs."""

from collections.abc import Mapping

from sqlalchemy import Connection, delete, func, insert, select

from perfsvc.model import Noise, Peak
from perfsvc.store.columntypes import number
from perfsvc.store.interning import device_id, insert_into
from perfsvc.store.known import Known
from perfsvc.store.naming import Place, of_cases, present_cases
from perfsvc.store.tables import Devices, Measurements, NoiseOfCases, Peaks


def put_noise(connection: Connection, run: int, found: Mapping[Place, Noise], known: Known) -> None:
    """Stores the noise of a run's cases in place of what was stored before, with the replicas it was seen in."""
    connection.execute(delete(NoiseOfCases).where(NoiseOfCases.run_id == run))
    replicas = _timed_replicas(connection, run)
    cases = known.cases(connection, (case for _, case, _ in found))
    devices = {uuid: device_id(connection, uuid) for uuid in {uuid for uuid, _, _ in found}}
    rows = []
    for (device, case, cache), noise in found.items():
        place = cases[case, case.formerly], devices[device], cache
        row = dict(zip(("case_id", "device_id", "cache"), place, strict=True))
        levels = {"noise_within": number(noise.within), "noise_between": number(noise.between)}
        rows.append({"run_id": run, **row, **levels, "replicas": replicas.get(place, 0)})
    if rows:
        connection.execute(insert_into(NoiseOfCases), rows)


def _timed_replicas(connection: Connection, run: int) -> dict[tuple[int, int, str], int]:
    of_place = (Measurements.case_id, Measurements.device_id, Measurements.cache)
    query = (
        select(*of_place, func.count())
        .where(Measurements.run_id == run, Measurements.sample_count > 0)
        .group_by(*of_place)
    )
    return {(case, device, cache): count for case, device, cache, count in connection.execute(query)}


def noise(connection: Connection, run: int) -> dict[Place, Noise]:
    """The noise of a run's cases under their present names."""
    levels = NoiseOfCases.noise_within, NoiseOfCases.noise_between
    rows = connection.execute(of_cases(NoiseOfCases, *levels).where(NoiseOfCases.run_id == run)).all()
    cases = present_cases(rows)
    return {(row.uuid, cases[row.case_id], row.cache): Noise(row.noise_within, row.noise_between) for row in rows}


def put_peaks(connection: Connection, run: int, found: Mapping[str, Peak]) -> None:
    """Stores the measured peaks of a run's GPUs in place of what was stored before."""
    connection.execute(delete(Peaks).where(Peaks.run_id == run))
    rows = [
        {
            "run_id": run,
            "device_id": device_id(connection, uuid),
            "copy_bytes_per_s": peak.copy_bytes_per_s,
            "read_bytes_per_s": peak.read_bytes_per_s,
        }
        for uuid, peak in found.items()
    ]
    if rows:
        connection.execute(insert(Peaks), rows)


def peaks(connection: Connection, run: int) -> dict[str, Peak]:
    """The measured peaks of a run's GPUs by UUID."""
    query = (
        select(Devices.uuid, Peaks.copy_bytes_per_s, Peaks.read_bytes_per_s)
        .join(Devices, Devices.id == Peaks.device_id)
        .where(Peaks.run_id == run)
        .order_by(Devices.id)
    )
    return {uuid: Peak(copied, read) for uuid, copied, read in connection.execute(query)}
