"""What a night reads of each night before it: a row a metric, where it was one a measurement."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "summaries",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_summaries_run_id_runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "metric", name="pk_summaries"),
    )
    op.drop_index("ix_measurements_history", "measurements")  # which served that alone
