"""The place of a variant on its benchmark's ladder, and the anchor that it is held against."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Earlier rows get NULL and no anchor, since nobody knows any more.
    with op.batch_alter_table("measurements") as table:
        table.add_column(sa.Column("rung", sa.Integer(), nullable=True))
        table.add_column(sa.Column("anchor", sa.Text(), nullable=False, server_default=""))
