"""What perfsvc remembers: the only room that knows SQLAlchemy and Alembic."""

from perfsvc.store.naming import Place
from perfsvc.store.rows import BinaryRow, Built, CaseInRun, Night, Past, Pin, RunRow, SchemaState, State, Upgrade
from perfsvc.store.store import Store

__all__ = [
    "BinaryRow",
    "Built",
    "CaseInRun",
    "Night",
    "Past",
    "Pin",
    "Place",
    "RunRow",
    "SchemaState",
    "State",
    "Store",
    "Upgrade",
]
