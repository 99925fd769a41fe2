"""The store: everything perfsvc remembers. Only this package knows SQLAlchemy and Alembic."""

from perfsvc.model import NightRow, Pin, RunRow, RunState, StageRow, StageState
from perfsvc.store.rows import (
    BinaryRow,
    CaseBinary,
    CaseCode,
    CaseKey,
    CaseQuantities,
    CasesInRun,
    DeliveryRow,
    DeviceInRun,
    GpuRun,
    ImportedRun,
    MeasurementEntry,
    SchemaState,
    SeriesHistory,
    StoredSamples,
    Upgrade,
    UsedCode,
    VerdictEvent,
)
from perfsvc.store.store import Store
