"""The store: everything perfsvc remembers. Only this package knows SQLAlchemy and Alembic."""

from perfsvc.model import NightRow, Pin, RunRow, RunState, StageRow, StageState
from perfsvc.store.expectations import CasesInRun
from perfsvc.store.imports import ImportedRun
from perfsvc.store.remote.rows import AuditEntry, Scope, SentMeasurement, SentPeak, SentRun, TokenRow
from perfsvc.store.rows import (
    BinaryRow,
    CaseBinary,
    CaseCode,
    CaseCost,
    CaseInRun,
    CaseKey,
    CaseQuantities,
    DeliveryRow,
    DeviceConditions,
    GpuRun,
    MeasurementEntry,
    SchemaState,
    SeriesHistory,
    SeriesInRun,
    StoredSamples,
    Upgrade,
    UsedCode,
    VerdictEvent,
)
from perfsvc.store.store import Store

__all__ = [
    "AuditEntry",
    "BinaryRow",
    "CaseBinary",
    "CaseCode",
    "CaseCost",
    "CaseInRun",
    "CaseKey",
    "CaseQuantities",
    "CasesInRun",
    "DeliveryRow",
    "DeviceConditions",
    "GpuRun",
    "ImportedRun",
    "MeasurementEntry",
    "NightRow",
    "Pin",
    "RunRow",
    "RunState",
    "SchemaState",
    "Scope",
    "SentMeasurement",
    "SentPeak",
    "SentRun",
    "SeriesHistory",
    "SeriesInRun",
    "StageRow",
    "StageState",
    "Store",
    "StoredSamples",
    "TokenRow",
    "Upgrade",
    "UsedCode",
    "VerdictEvent",
]
