"""Indexes for what every night reads of the nights before it: their levels, and where their environment changed."""

from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

HISTORY = ["run_id", "case_id", "device_id", "mode", "status", "median_s", "max_error", "environment_id"]


def upgrade() -> None:
    op.create_index("ix_measurements_history", "measurements", HISTORY)
    op.create_index("ix_measurements_environment_id_run_id", "measurements", ["environment_id", "run_id"])
    op.drop_index("ix_measurements_environment_id", "measurements")  # the one before begins with it
