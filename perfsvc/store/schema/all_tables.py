"""All tables of the database: a command imports only those that it uses, and this module imports the rest."""

from sqlalchemy import MetaData

from perfsvc.store.schema import code_tables, judging_tables, night_tables, tables  # noqa: F401
from perfsvc.store.schema.base import METADATA, Base


def all_tables() -> list[type[Base]]:
    """Return all tables, sorted by name."""
    return sorted(Base.__subclasses__(), key=lambda table: table.__tablename__)


def metadata() -> MetaData:
    """Return SQLAlchemy's description of all tables."""
    for index in (index for table in all_tables() for index in table.__table__.indexes if "where" in index.info):
        index.dialect_kwargs["sqlite_where"] = index.dialect_kwargs["postgresql_where"] = index.info["where"]
    return METADATA
