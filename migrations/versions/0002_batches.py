"""Batches with the conditions they ran in, noise, roofs, and what a run left out."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    measurements()
    batches()
    noise()
    roofs()
    left_out()


def measurements() -> None:
    # Rows of 0001 get NULL for what their perfsvc did not store, and 0 for the rejected batches that it could not have.
    with op.batch_alter_table("measurements") as table:
        table.add_column(sa.Column("warmup", sa.Integer(), nullable=True))
        table.add_column(sa.Column("note", sa.Text(), nullable=False, server_default=""))
        table.add_column(sa.Column("check_s", sa.Double(), nullable=True))
        table.add_column(sa.Column("sampling_s", sa.Double(), nullable=True))
        table.add_column(sa.Column("busy_s", sa.Double(), nullable=True))
        table.add_column(sa.Column("sm_clock_hz", sa.Double(), nullable=True))
        table.add_column(sa.Column("temperature_c", sa.Double(), nullable=True))
        table.add_column(sa.Column("power_w", sa.Double(), nullable=True))
        table.add_column(sa.Column("slowdowns", sa.Text(), nullable=True))
        table.add_column(sa.Column("rejected_batches", sa.Integer(), nullable=False, server_default="0"))


def batches() -> None:
    op.create_table(
        "batches",
        sa.Column("measurement_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("gated", sa.Boolean(), nullable=False),
        sa.Column("kept_ahead", sa.Boolean(), nullable=True),
        sa.Column("busy_s", sa.Double(), nullable=False),
        sa.Column("rejected", sa.Text(), nullable=False),
        sa.Column("sample_count", sa.Integer(), nullable=False),
        sa.Column("samples", sa.LargeBinary(), nullable=True),
        sa.Column("sm_clock_hz", sa.Double(), nullable=True),
        sa.Column("memory_clock_hz", sa.Double(), nullable=True),
        sa.Column("temperature_c", sa.Double(), nullable=True),
        sa.Column("power_w", sa.Double(), nullable=True),
        sa.Column("slowdowns", sa.Text(), nullable=False),
        sa.Column("ecc_errors", sa.Integer(), nullable=False),
        sa.Column("xids", sa.Text(), nullable=False),
        sa.Column("others", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["measurement_id"], ["measurements.id"], name="fk_batches_measurement_id_measurements", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("measurement_id", "number", name="pk_batches"),
    )


def noise() -> None:
    op.create_table(
        "noise",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("noise_within", sa.Double(), nullable=True),
        sa.Column("noise_between", sa.Double(), nullable=True),
        sa.Column("replicas", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name="fk_noise_case_id_cases", ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], name="fk_noise_device_id_devices", ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_noise_run_id_runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "case_id", "device_id", "mode", name="pk_noise"),
    )
    op.create_index("ix_noise_case_id_device_id_mode_run_id", "noise", ["case_id", "device_id", "mode", "run_id"])


def roofs() -> None:
    op.create_table(
        "roofs",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("copy_bytes_per_s", sa.Double(), nullable=False),
        sa.Column("read_bytes_per_s", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], name="fk_roofs_device_id_devices", ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_roofs_run_id_runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "device_id", name="pk_roofs"),
    )


def left_out() -> None:
    op.create_table(
        "left_out",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name="fk_left_out_case_id_cases", ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.id"], name="fk_left_out_device_id_devices", ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_left_out_run_id_runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "case_id", "device_id", "mode", name="pk_left_out"),
    )
