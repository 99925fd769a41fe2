"""Suspects that were measured again, the baseline's binary and the candidate's in turn."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "confirmations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("baseline_run_id", sa.Integer(), nullable=True),
        sa.Column("judged", sa.String(16), nullable=False),
        sa.Column("judged_ratio", sa.Double(), nullable=True),
        sa.Column("shift", sa.String(16), nullable=False),
        sa.Column("direction", sa.String(16), nullable=False),
        sa.Column("cause", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("verdict", sa.String(16), nullable=True),
        sa.Column("ratio", sa.Double(), nullable=True),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("looks", sa.Integer(), nullable=False),
        sa.Column("drift", sa.Double(), nullable=True),
        sa.Column("same_code", sa.Boolean(), nullable=True),
        sa.Column("threshold", sa.Double(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("budget_s", sa.Double(), nullable=False),
        sa.Column("wall_s", sa.Double(), nullable=False),
        sa.Column("confirmed_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["baseline_run_id"], ["runs.id"], name=op.f("fk_confirmations_baseline_run_id_runs"), ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["case_id"], ["cases.id"], name=op.f("fk_confirmations_case_id_cases"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.id"], name=op.f("fk_confirmations_device_id_devices"), ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_confirmations_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_confirmations")),
    )
    series = ["case_id", "device_id", "metric", "mode", "run_id"]
    with op.batch_alter_table("confirmations") as table:
        table.create_index(op.f(f"ix_confirmations_{'_'.join(series)}"), series)
        table.create_index(op.f("ix_confirmations_run_id"), ["run_id"])
        table.create_index(op.f("ix_confirmations_baseline_run_id"), ["baseline_run_id"])

    op.create_table(
        "confirmation_turns",
        sa.Column("confirmation_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("side", sa.Text(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("samples", sa.LargeBinary(), nullable=True),
        sa.Column("sample_count", sa.Integer(), nullable=False),
        sa.Column("wall_s", sa.Double(), nullable=False),
        sa.Column("sm_clock_hz", sa.Double(), nullable=True),
        sa.Column("temperature_c", sa.Double(), nullable=True),
        sa.Column("power_w", sa.Double(), nullable=True),
        sa.Column("slowdowns", sa.Text(), nullable=False),
        sa.Column("rejected_batches", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["confirmation_id"],
            ["confirmations.id"],
            name=op.f("fk_confirmation_turns_confirmation_id_confirmations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("confirmation_id", "number", name=op.f("pk_confirmation_turns")),
    )
