"""What perfsvc remembers: the only room that knows SQLAlchemy and Alembic."""

from perfsvc.store.rows import CaseInRun, Past, Pin, RunRow, SchemaState, State, Upgrade
from perfsvc.store.store import Store

__all__ = ["CaseInRun", "Past", "Pin", "RunRow", "SchemaState", "State", "Store", "Upgrade"]
