"""Devices: what they are, their measured peaks, and their conditions during a run."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from statistics import geometric_mean
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, exists, func, insert, or_, select, update

from perfsvc.model import (
    MEMORY,
    PEAK_NAMES,
    CacheState,
    Case,
    DeviceInfo,
    Environment,
    FullEnvironment,
    Peak,
    Status,
    plausible,
)
from perfsvc.store.cases import device_ids, ids_of, judged
from perfsvc.store.rows import DeviceConditions, GpuRun
from perfsvc.store.runs import ENDED
from perfsvc.store.schema.engine import StorePart, among, insert_new
from perfsvc.store.schema.environments import ENVIRONMENT, environment_of, load_full, put_full
from perfsvc.store.schema.fields import to_row
from perfsvc.store.schema.tables import Cases, Devices, Environments, GpuPeaks, Measurements, Peaks, Runs

CaseTimes = Mapping[tuple[str, int], Mapping[tuple[int, CacheState, int], float]]
"""The time of each case in seconds, by GPU and run: of a case, in a cache state, with a binary."""

GpuState = tuple[str, str, float]
"""A GPU by its UUID, with the driver and the power limit (in watts) that it had."""


HAS_FAULT = or_(
    Measurements.slowdowns != "", Measurements.xids != "", Measurements.others != "", Measurements.ecc_errors != 0
)
"""Whether something disturbed the GPU during a measurement; few measurements are read for their texts."""


class DeviceStore(StorePart):
    """Devices; each method is one transaction."""

    def put(self, info: DeviceInfo) -> None:
        """Store a device, or update its description; the driver and the power limit are stored with measurements."""
        with self._database.writing() as connection:
            put_device(connection, info)

    def all(self) -> dict[str, DeviceInfo]:
        """Return every stored device by UUID, without driver and power limit."""
        with self._database.reading() as connection:
            rows = connection.execute(select(Devices).order_by(Devices.id)).mappings()
            return {row["uuid"]: DeviceInfo(**{name: row[name] for name in row if name != "id"}) for row in rows}

    def environments(self) -> dict[int, Environment]:
        """Return every stored environment by its id. The ``segment`` of a series in a run is such an id."""
        with self._database.reading() as connection:
            rows = connection.execute(select(Environments.id, *ENVIRONMENT))
            return {row.id: environment_of(row) for row in rows}

    def environments_in(self, runs: Collection[int]) -> dict[tuple[int, str], Environment]:
        """Return the environment of each device in each of some runs, by run and UUID.

        If a run measured on a device in several environments, such as those of two compilers, the newest is returned.
        """
        newest = (
            select(Measurements.run_id, Measurements.device_id, func.max(Measurements.environment_id).label("newest"))
            .where(among(Measurements.run_id, runs))
            .group_by(Measurements.run_id, Measurements.device_id)
            .subquery()
        )
        query = (
            select(newest.c.run_id, Devices.uuid, *ENVIRONMENT)
            .join(Devices, Devices.id == newest.c.device_id)
            .join(Environments, Environments.id == newest.c.newest)
        )
        with self._database.reading() as connection:
            return {(row.run_id, row.uuid): environment_of(row) for row in connection.execute(query)}

    def environment_before(self, run: int, device: str, cases: Iterable[Case]) -> tuple[int, Environment] | None:
        """Return the newest earlier run that measured any of the cases on a device, and its environment.

        Runs that have not ended, runs with uncommitted changes, and excluded data do not count.
        """
        earlier = Measurements.__table__.alias().c
        newest = (  # of each case, because sorting the measurements of all cases reads the whole history
            select(earlier.id)
            .join(Runs, Runs.id == earlier.run_id)
            .where(earlier.case_id == Cases.id, earlier.device_id == Devices.id, earlier.run_id < run)
            .where(Runs.git_dirty.is_(False), Runs.state.in_(ENDED), judged(earlier.run_id, earlier.case_id))
            .order_by(earlier.run_id.desc())
            .limit(1)
            .scalar_subquery()
        )
        with self._database.reading() as connection:
            ids = ids_of(connection, cases).values()
            row = connection.execute(
                select(Measurements.run_id, *ENVIRONMENT)
                .select_from(Cases)
                .join(Devices, Devices.uuid == device)
                .join(Measurements, Measurements.id == newest)
                .join(Environments, Environments.id == Measurements.environment_id)
                .where(among(Cases.id, ids))
                .order_by(Measurements.run_id.desc())
                .limit(1)
            ).first()
        return (row.run_id, environment_of(row)) if row else None

    def put_full_environment(self, run: int, full: FullEnvironment) -> None:
        """Store the full environment of a run; it replaces the one that the run had."""
        with self._database.writing() as connection:
            put_full(connection, run, full)

    def full_environments(self, runs: Collection[int]) -> dict[int, FullEnvironment]:
        """Return the full environments of runs by number; a run that recorded none is left out."""
        with self._database.reading() as connection:
            return load_full(connection, runs)

    def put_peaks(self, run: int, peaks: Mapping[str, Peak]) -> None:
        """Store the measured peaks of a run's devices by UUID; they replace the run's earlier peaks."""
        with self._database.writing() as connection:
            connection.execute(delete(Peaks).where(Peaks.run_id == run))
            ids = device_ids(connection, peaks)
            rows = [to_row(Peaks, peak) | {"run_id": run, "device_id": ids[uuid]} for uuid, peak in peaks.items()]
            if rows:
                connection.execute(insert(Peaks), rows)

    def peaks(self, run: int) -> dict[str, Peak]:
        """Return the measured peaks of a run's devices by UUID."""
        return {uuid: peaks[run] for uuid, peaks in self.peaks_of([run]).items()}

    def peaks_of(self, runs: Collection[int]) -> dict[str, dict[int, Peak]]:
        """Return the measured peaks of devices by UUID and run, oldest run first."""
        query = (
            select(Devices.uuid, Peaks.run_id, Peaks.copy_bytes_per_s, Peaks.read_bytes_per_s)
            .join(Devices, Devices.id == Peaks.device_id)
            .where(among(Peaks.run_id, runs))
            .order_by(Peaks.run_id, Devices.id)
        )
        peaks: dict[str, dict[int, Peak]] = defaultdict(dict)
        with self._database.reading() as connection:
            for uuid, run, copied, read in connection.execute(query):
                if plausible(copied) and plausible(read):
                    peaks[uuid][run] = Peak(copied, read)
        return dict(peaks)

    def put_gpu_peak(self, device: DeviceInfo, name: str, rate: float, *, version: int) -> None:
        """Store a measured peak of a GPU's arithmetic or L2 cache, for its driver and power limit.

        Args:
            device: a GPU that is in the database.
            name: the name of the peak, such as ``fp32``.
            rate: operations a second; bytes a second for ``l2``.
            version: of the kernels that measured it.
        """
        with self._database.writing() as connection:
            state = {
                "device_id": device_ids(connection, [device.uuid])[device.uuid],
                "driver": device.driver,
                "power_limit_w": device.power_limit_w,
                "name": name,
            }
            connection.execute(delete(GpuPeaks).filter_by(**state))
            measured = {"rate": rate, "version": version, "measured_at": datetime.now(UTC)}
            insert_new(connection, GpuPeaks, state | measured)  # another process may have measured the GPU just now

    def doubt_gpu_peaks(self, device: DeviceInfo, names: Collection[str]) -> None:
        """Give measured peaks of a GPU version 0: the next run measures them again, and this run still shows them."""
        with self._database.writing() as connection:
            of_state = self._of_state(connection, device)
            connection.execute(update(GpuPeaks).where(*of_state, GpuPeaks.name.in_(names)).values(version=0))

    def forget_gpu_peaks(self, device: DeviceInfo, *, except_version: int) -> None:
        """Delete the peaks of a GPU with its driver and power limit that kernels of other versions measured."""
        with self._database.writing() as connection:
            of_state = self._of_state(connection, device)
            connection.execute(delete(GpuPeaks).where(*of_state, GpuPeaks.version != except_version))

    @staticmethod
    def _of_state(connection: Connection, device: DeviceInfo) -> tuple[ColumnElement[bool], ...]:
        ids = device_ids(connection, [device.uuid])
        same_state = GpuPeaks.driver == device.driver, GpuPeaks.power_limit_w == device.power_limit_w
        return (GpuPeaks.device_id == ids[device.uuid], *same_state)

    def gpu_peaks(self, device: DeviceInfo, *, version: int) -> dict[str, float]:
        """Return the peaks of a GPU with its driver and power limit that kernels of a version measured, by name."""
        with self._database.reading() as connection:
            return gpu_peaks(connection, version).get((device.uuid, device.driver, device.power_limit_w), {})

    def gpu_peaks_of(self, run: int) -> dict[str, dict[str, float]]:
        """Return the measured peaks of arithmetic and L2 cache of a run's devices, by UUID and by name.

        They are those of the driver and the power limit with which the run measured. A device without any is missing,
        and so is a device that had several drivers or power limits, because the run was resumed.
        """
        states = (
            select(Devices.uuid, Environments.driver, Environments.power_limit_w)
            .join(Measurements, Measurements.device_id == Devices.id)
            .join(Environments, Environments.id == Measurements.environment_id)
            .where(Measurements.run_id == run)
            .distinct()
        )
        with self._database.reading() as connection:
            peaks = gpu_peaks(connection)
            every_state = [(uuid, driver, limit_w) for uuid, driver, limit_w in connection.execute(states)]
        count = Counter(uuid for uuid, _, _ in every_state)
        return {state[0]: peaks[state] for state in every_state if state in peaks and count[state[0]] == 1}

    def rates(self, run: int, device: str) -> dict[str, float]:
        """Return the measured peaks of a device (UUID) in a run by name, including the peak of its memory.

        Peaks that were not measured are missing.
        """
        memory = self.peaks(run).get(device)
        return self.gpu_peaks_of(run).get(device, {}) | ({MEMORY: memory.best_bytes_per_s} if memory else {})

    def all_gpu_peaks(self) -> dict[GpuState, dict[str, float]]:
        """Return the measured peaks of arithmetic and L2 caches of all GPUs, by the state of the GPU and by name."""
        with self._database.reading() as connection:
            return gpu_peaks(connection)

    def conditions(self, run: int) -> list[DeviceConditions]:
        """Return the conditions of each device during a run, in the order in which the devices were first stored."""
        return self.conditions_of([run]).get(run, [])

    def conditions_of(self, runs: Collection[int]) -> dict[int, list[DeviceConditions]]:
        """Return the conditions of each device during some runs, by run; a run that measured nothing is absent.

        The devices of a run are in the order in which they were first stored.
        """
        summaries = (
            select(
                Measurements.run_id,
                Measurements.device_id,
                func.count().filter(Measurements.status != Status.SKIPPED),
                func.count().filter(Measurements.status.in_((Status.WRONG, Status.FAILED))),
                func.sum(Measurements.rejected_batches),
                func.count().filter(HAS_FAULT),
                func.min(Measurements.sm_clock_hz),
                func.max(Measurements.temperature_c),
                func.max(Measurements.power_w),
            )
            .where(among(Measurements.run_id, runs))
            .group_by(Measurements.run_id, Measurements.device_id)
            .order_by(Measurements.run_id, Measurements.device_id)
        )
        group = (
            Measurements.run_id,
            Measurements.device_id,
            Measurements.slowdowns,
            Measurements.xids,
            Measurements.others,
        )
        with self._database.reading() as connection:
            rows = connection.execute(summaries).all()
            faulty = {run for run, _, _, _, _, faults, *_ in rows if faults}
            faults = (
                select(*group, func.sum(Measurements.ecc_errors).label("ecc_errors"))
                .where(among(Measurements.run_id, faulty), HAS_FAULT)
                .group_by(*group)
            )
            devices = {row.id: row for row in connection.execute(select(Devices.id, Devices.uuid, Devices.model))}
            faults_of: dict[tuple[int, int], list[Any]] = defaultdict(list)
            for fault in connection.execute(faults) if faulty else ():
                faults_of[fault.run_id, fault.device_id].append(fault)
        conditions: dict[int, list[DeviceConditions]] = defaultdict(list)
        for run, device, measured, failed, rejected, _, *worst in rows:
            of_device = faults_of[run, device]
            sm_clock_hz, temperature_c, power_w = worst
            conditions[run].append(
                DeviceConditions(
                    devices[device].uuid,
                    devices[device].model,
                    measured,
                    failed,
                    sm_clock_hz,
                    temperature_c,
                    power_w,
                    slowdowns=_items(fault.slowdowns for fault in of_device),
                    rejected_batches=rejected,
                    ecc_errors=sum(int(fault.ecc_errors) for fault in of_device),
                    xids=_items(fault.xids for fault in of_device),
                    others=_items(fault.others for fault in of_device),
                )
            )
        return dict(conditions)

    def runs_on(self, devices: Collection[str], most: int, *, until: int | None = None) -> list[GpuRun]:
        """Return which of the newest runs measured on which of some devices, the newest run first.

        Runs that have not ended, runs with uncommitted changes, and runs that are excluded as a whole do not count.

        Args:
            devices: the UUIDs of the devices.
            most: how many runs are looked at.
            until: the newest run that counts, even if it has not ended; None for any.
        """
        counts = or_(Runs.state.in_(ENDED), Runs.id == until), Runs.git_dirty.is_(False), judged(Runs.id)
        newest = select(Runs.id, Runs.started_at).where(*counts).order_by(Runs.id.desc()).limit(most)
        if until is not None:
            newest = newest.where(Runs.id <= until)
        of_run = newest.subquery()
        measured = exists().where(
            Measurements.run_id == of_run.c.id,
            Measurements.status == Status.OK,
            Measurements.device_id == Devices.id,
        )
        query = (
            select(Devices.uuid, of_run.c.id, of_run.c.started_at)
            .join_from(of_run, Devices, Devices.uuid.in_(devices))
            .where(measured)
            .order_by(of_run.c.id.desc(), Devices.id)
        )
        with self._database.reading() as connection:
            return [GpuRun(*row) for row in connection.execute(query)]

    def case_times(self, runs: Mapping[str, Collection[int]], *, newest: int, most: int) -> CaseTimes:
        """Return the time of each case with its binary in some runs of devices: the mean of the replicas' medians.

        The mean is geometric, as that of levels. Cases without a binary, and excluded cases, are left out.

        Args:
            runs: the runs of each device, by UUID.
            newest: the run whose cases are chosen.
            most: how many cases are chosen, evenly, if this run has more.
        """
        times: dict[tuple[str, int], dict[tuple[int, CacheState, int], list[float]]] = defaultdict(
            lambda: defaultdict(list)
        )
        with self._database.reading() as connection:
            measured = select(Measurements.case_id).where(Measurements.run_id == newest).distinct()
            cases = connection.scalars(measured.order_by(Measurements.case_id)).all()
            step = max(len(cases) / most, 1.0)
            chosen = {cases[int(place * step)] for place in range(min(len(cases), most))}
            query = (
                select(
                    Devices.uuid,
                    Measurements.run_id,
                    Measurements.case_id,
                    Measurements.cache,
                    Measurements.binary_id,
                    Measurements.median_s,
                )
                .join(Devices, Devices.id == Measurements.device_id)
                .where(among(Measurements.case_id, chosen), Devices.uuid.in_(runs))
                .where(among(Measurements.run_id, {run for of_device in runs.values() for run in of_device}))
                .where(Measurements.status == Status.OK, Measurements.median_s > 0)
                .where(judged(Measurements.run_id, Measurements.case_id))
            )
            for uuid, run, case, cache, binary, median_s in connection.execute(query):
                if run in runs[uuid] and binary is not None and median_s is not None:
                    times[uuid, run][case, cache, binary].append(median_s)
        return {at: {key: geometric_mean(values) for key, values in of_run.items()} for at, of_run in times.items()}


def gpu_peaks(connection: Connection, version: int | None = None) -> dict[GpuState, dict[str, float]]:
    """Return the measured peaks of arithmetic and L2 caches by name, of all GPUs.

    Args:
        connection: a connection of the store.
        version: of the kernels that measured them; None for any.
    """
    columns = Devices.uuid, GpuPeaks.driver, GpuPeaks.power_limit_w, GpuPeaks.name, GpuPeaks.rate
    query = select(*columns).join(Devices, Devices.id == GpuPeaks.device_id)
    if version is not None:
        query = query.where(GpuPeaks.version == version)
    peaks: dict[GpuState, dict[str, float]] = defaultdict(dict)
    for uuid, driver, power_limit_w, name, rate in connection.execute(query):
        if name in PEAK_NAMES and name != MEMORY and plausible(rate):
            peaks[uuid, driver, power_limit_w][name] = rate
    return dict(peaks)


def put_device(connection: Connection, info: DeviceInfo) -> None:
    """Store a device, or update its description."""
    row = {name: getattr(info, name) for name in Devices.__table__.columns.keys() if name != "id"}  # noqa: SIM118
    # Look first, because PostgreSQL uses up an id even if the insert finds the row there already.
    if connection.scalar(select(Devices.id).where(Devices.uuid == info.uuid)) is None:
        insert_new(connection, Devices, row)
    connection.execute(update(Devices).where(Devices.uuid == info.uuid).values(row))


def _items(lists: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct items of comma-separated lists, sorted."""
    return tuple(sorted({item for text in lists for item in text.split(", ") if item}))
