"""Findings and the cases that they moved; of a verdict its cause, and how much the night could have seen."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    verdicts()
    findings()
    finding_cases()


def verdicts() -> None:
    # Earlier verdicts get NULL, since nobody knows any more.
    with op.batch_alter_table("verdicts") as table:
        table.add_column(sa.Column("smallest", sa.Double(), nullable=True))
        table.add_column(sa.Column("baseline_replicas", sa.Integer(), nullable=True))
        table.add_column(sa.Column("candidate_replicas", sa.Integer(), nullable=True))
        table.add_column(sa.Column("cause", sa.String(16), nullable=True))


def findings() -> None:
    op.create_table(
        "findings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("cause", sa.String(16), nullable=False),
        sa.Column("shift", sa.String(16), nullable=False),
        sa.Column("direction", sa.String(16), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("first_run_id", sa.Integer(), nullable=False),
        sa.Column("last_run_id", sa.Integer(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.id"], name="fk_findings_device_id_devices", ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["first_run_id"], ["runs.id"], name="fk_findings_first_run_id_runs", ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["last_run_id"], ["runs.id"], name="fk_findings_last_run_id_runs", ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("id", name="pk_findings"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("findings") as table:
        table.create_index("ix_findings_device_id", ["device_id"])
        table.create_index("ix_findings_first_run_id", ["first_run_id"])
        table.create_index("ix_findings_last_run_id", ["last_run_id"])


def finding_cases() -> None:
    op.create_table(
        "finding_cases",
        sa.Column("finding_id", sa.Integer(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("ratio", sa.Double(), nullable=True),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("baseline_run_id", sa.Integer(), nullable=True),
        sa.Column("baseline_s", sa.Double(), nullable=True),
        sa.Column("candidate_s", sa.Double(), nullable=True),
        sa.Column("last_run_id", sa.Integer(), nullable=False),
        sa.Column("recovered_run_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["baseline_run_id"], ["runs.id"], name="fk_finding_cases_baseline_run_id_runs", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name="fk_finding_cases_case_id_cases", ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["finding_id"], ["findings.id"], name="fk_finding_cases_finding_id_findings", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["last_run_id"], ["runs.id"], name="fk_finding_cases_last_run_id_runs", ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["recovered_run_id"], ["runs.id"], name="fk_finding_cases_recovered_run_id_runs", ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("finding_id", "case_id", "metric", "mode", name="pk_finding_cases"),
    )
    with op.batch_alter_table("finding_cases") as table:
        table.create_index("ix_finding_cases_baseline_run_id", ["baseline_run_id"])
        table.create_index("ix_finding_cases_case_id_metric_mode", ["case_id", "metric", "mode"])
        table.create_index("ix_finding_cases_last_run_id", ["last_run_id"])
        table.create_index("ix_finding_cases_recovered_run_id", ["recovered_run_id"])
