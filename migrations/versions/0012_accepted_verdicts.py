"""An index for what every night seeks among all verdicts: those that took a level as the one to compare with."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

ACCEPTED = sa.text("verdict IN ('new', 'improvement')")


def upgrade() -> None:
    op.create_index("ix_verdicts_accepted", "verdicts", ["case_id"], sqlite_where=ACCEPTED, postgresql_where=ACCEPTED)
