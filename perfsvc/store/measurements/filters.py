"""Which measurements an analyst reads: some runs, cases and devices, or all."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, or_, select

from perfsvc.store.schema.engine import among
from perfsvc.store.schema.tables import Cases, Devices, Measurements


@dataclass(frozen=True, slots=True)
class RowFilter:
    """The measurements that meet all conditions; None means that a condition is not set.

    Attributes:
        runs: the numbers of runs.
        cases: the ids of cases, as they were in the run.
        devices: the UUIDs or models of devices.
        until: the id of the newest measurement; later ones are left out.
    """

    runs: Sequence[int] | None = None
    cases: Collection[str] | None = None
    devices: Collection[str] | None = None
    until: int | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return the conditions for a query of ``measurements``."""
        conditions = []
        if self.runs is not None:
            conditions.append(among(Measurements.run_id, self.runs))
        if self.cases is not None:
            cases = select(Cases.id).where(among(Cases.name, self.cases))
            conditions.append(Measurements.case_id.in_(cases))
        if self.devices is not None:
            named = or_(Devices.uuid.in_(self.devices), Devices.model.in_(self.devices))
            conditions.append(Measurements.device_id.in_(select(Devices.id).where(named)))
        if self.until is not None:
            conditions.append(Measurements.id <= self.until)
        return conditions
