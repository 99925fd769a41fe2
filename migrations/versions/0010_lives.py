"""The life of findings: what befell each, who looks after it, and its cause, which may show on several boards."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

SERIES = ("finding_id", "case_id", "metric", "mode")
LEVELS = ("ratio", "low", "high", "baseline_run_id", "baseline_s", "candidate_s", "last_run_id", "recovered_run_id")
OLD = (*SERIES, *LEVELS)
OF_FINDING = ("shift", "direction", "device_id")


def upgrade() -> None:
    moved = moved_rows()
    op.drop_table("finding_cases")  # it has another key from now on, and must not be lost with its findings' old table
    findings()
    finding_cases()
    if moved:
        table = sa.table("finding_cases", *(sa.column(name) for name in (*OLD, *OF_FINDING)))
        op.bulk_insert(table, moved)
    finding_events()
    with op.batch_alter_table("confirmations") as table:
        # Earlier rows get NULL: their findings have these levels.
        table.add_column(sa.Column("judged_baseline_s", sa.Double(), nullable=True))
        table.add_column(sa.Column("judged_candidate_s", sa.Double(), nullable=True))


def moved_rows() -> Sequence[dict[str, Any]]:
    """What findings moved, each row with what its finding says of all of them until now."""
    cases = sa.table("finding_cases", *(sa.column(name) for name in OLD))
    found = sa.table("findings", *(sa.column(name) for name in ("id", *OF_FINDING)))
    query = sa.select(cases, *(found.c[name] for name in OF_FINDING)).join(found, found.c.id == cases.c.finding_id)
    return [dict(row) for row in op.get_bind().execute(query).mappings()]


def findings() -> None:
    # Of earlier findings nobody wrote down what their cause was: they have no origin, and nothing joins them.
    with op.batch_alter_table("findings", table_kwargs={"sqlite_autoincrement": True}) as table:
        table.drop_index("ix_findings_device_id")
        table.drop_constraint("fk_findings_device_id_devices", type_="foreignkey")
        for name in OF_FINDING:
            table.drop_column(name)
        table.add_column(sa.Column("origin", sa.Text(), nullable=False, server_default=""))
        table.add_column(sa.Column("owner", sa.Text(), nullable=False, server_default=""))
        table.add_column(sa.Column("ignored_until", sa.DateTime(timezone=True), nullable=True))


def foreign(table: str, column: str, referred: str, ondelete: str) -> sa.ForeignKeyConstraint:
    name, _, _ = referred.partition(".")
    return sa.ForeignKeyConstraint([column], [referred], name=f"fk_{table}_{column}_{name}", ondelete=ondelete)


def finding_cases() -> None:
    op.create_table(
        "finding_cases",
        sa.Column("finding_id", sa.Integer(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("shift", sa.String(16), nullable=False),
        sa.Column("direction", sa.String(16), nullable=False),
        sa.Column("ratio", sa.Double(), nullable=True),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("baseline_run_id", sa.Integer(), nullable=True),
        sa.Column("baseline_s", sa.Double(), nullable=True),
        sa.Column("candidate_s", sa.Double(), nullable=True),
        sa.Column("last_run_id", sa.Integer(), nullable=False),
        sa.Column("recovered_run_id", sa.Integer(), nullable=True),
        foreign("finding_cases", "finding_id", "findings.id", "CASCADE"),
        foreign("finding_cases", "case_id", "cases.id", "RESTRICT"),
        foreign("finding_cases", "device_id", "devices.id", "RESTRICT"),
        foreign("finding_cases", "baseline_run_id", "runs.id", "SET NULL"),
        foreign("finding_cases", "last_run_id", "runs.id", "RESTRICT"),
        foreign("finding_cases", "recovered_run_id", "runs.id", "SET NULL"),
        sa.PrimaryKeyConstraint("finding_id", "case_id", "device_id", "metric", "mode", name="pk_finding_cases"),
    )
    with op.batch_alter_table("finding_cases") as table:
        series = ["case_id", "device_id", "metric", "mode"]
        table.create_index("ix_finding_cases_case_id_device_id_metric_mode", series)
        for column in ("baseline_run_id", "last_run_id", "recovered_run_id"):
            table.create_index(f"ix_finding_cases_{column}", [column])


def finding_events() -> None:
    # What befell earlier findings nobody wrote down either.
    op.create_table(
        "finding_events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("finding_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=True),
        sa.Column("done_by", sa.Text(), nullable=False),
        sa.Column("done_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("said", sa.Text(), nullable=False),
        foreign("finding_events", "finding_id", "findings.id", "CASCADE"),
        foreign("finding_events", "run_id", "runs.id", "SET NULL"),
        sa.PrimaryKeyConstraint("id", name="pk_finding_events"),
    )
    with op.batch_alter_table("finding_events") as table:
        for column in ("finding_id", "run_id"):
            table.create_index(f"ix_finding_events_{column}", [column])
