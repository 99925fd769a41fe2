"""Alembic's entry: perfsvc passes an open connection; ``alembic -x db=perfsvc.db``, for developers, opens one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlalchemy import Connection

from perfsvc.store.schema.all_tables import metadata
from perfsvc.store.schema.column_types import FreeText, Utc, Word
from perfsvc.store.schema.engine import connect, resolve, transaction


def as_plain_sql(kind: str, item: Any, _autogen: AutogenContext) -> str | Literal[False]:
    """Write our column types as SQLAlchemy's: a migration must not depend on later changes of our code."""
    if kind != "type":
        return False
    if isinstance(item, Word):
        return "sa.String(16)"
    if isinstance(item, Utc):
        return "sa.DateTime(timezone=True)"
    return "sa.Text()" if isinstance(item, FreeText) else False


@contextmanager
def connection() -> Iterator[Connection]:
    given = context.config.attributes.get("connection")
    if given is not None:
        yield given
        return
    engine = connect(resolve(context.get_x_argument(as_dictionary=True).get("db", "perfsvc.db")))
    with transaction(engine, writes=True) as opened:
        yield opened
    engine.dispose()


with connection() as opened:
    context.configure(connection=opened, target_metadata=metadata(), render_as_batch=True, render_item=as_plain_sql)
    with context.begin_transaction():
        context.run_migrations()
