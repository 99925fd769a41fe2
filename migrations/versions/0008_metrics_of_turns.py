"""What each process of a confirmation had of the metric that was in doubt, where that was not its time."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Earlier rows get NULL: only times were measured again.
    with op.batch_alter_table("confirmation_turns") as table:
        table.add_column(sa.Column("value", sa.Double(), nullable=True))
