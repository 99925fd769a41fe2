"""What perfsvc remembers: the only room that knows SQLAlchemy and Alembic."""

from perfsvc.store.naming import Place
from perfsvc.store.rows import (
    BinaryRow,
    BoardInRun,
    Built,
    CaseInRun,
    Code,
    DeliveryRow,
    Entry,
    InRun,
    NightRow,
    Nights,
    Past,
    Pin,
    RunRow,
    SchemaState,
    StageRow,
    StageState,
    State,
    Told,
    Upgrade,
)
from perfsvc.store.store import Store

__all__ = [
    "BinaryRow",
    "BoardInRun",
    "Built",
    "CaseInRun",
    "Code",
    "DeliveryRow",
    "Entry",
    "InRun",
    "NightRow",
    "Nights",
    "Past",
    "Pin",
    "Place",
    "RunRow",
    "SchemaState",
    "StageRow",
    "StageState",
    "State",
    "Store",
    "Told",
    "Upgrade",
]
