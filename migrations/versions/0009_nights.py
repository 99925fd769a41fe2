"""Nights with their stages, and the messages that tell people of them."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    nights()
    messages()


def foreign(table: str, column: str, referred: str, ondelete: str) -> sa.ForeignKeyConstraint:
    name, _, _ = referred.partition(".")
    return sa.ForeignKeyConstraint([column], [referred], name=f"fk_{table}_{column}_{name}", ondelete=ondelete)


def nights() -> None:
    op.create_table(
        "nights",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("process_start", sa.Text(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("git_commit", sa.Text(), nullable=False),
        sa.Column("git_dirty", sa.Boolean(), nullable=False),
        sa.Column("suite_digest", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=True),
        sa.Column("command_line", sa.Text(), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        foreign("nights", "run_id", "runs.id", "SET NULL"),
        sa.PrimaryKeyConstraint("id", name="pk_nights"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("nights") as table:
        for column in ("host", "run_id"):
            table.create_index(f"ix_nights_{column}", [column])
    op.create_table(
        "stages",
        sa.Column("night_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("wall_s", sa.Double(), nullable=True),
        sa.Column("said", sa.Text(), nullable=False),
        sa.Column("cure", sa.Text(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=False),
        foreign("stages", "night_id", "nights.id", "CASCADE"),
        sa.PrimaryKeyConstraint("night_id", "name", name="pk_stages"),
    )


def messages() -> None:
    op.create_table(
        "messages",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("night_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        foreign("messages", "night_id", "nights.id", "CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_messages"),
        sa.UniqueConstraint("night_id", name="uq_messages_night_id"),
        sa.UniqueConstraint("key", name="uq_messages_key"),
    )
    op.create_table(
        "deliveries",
        sa.Column("message_id", sa.Integer(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        foreign("deliveries", "message_id", "messages.id", "CASCADE"),
        sa.PrimaryKeyConstraint("message_id", "target", name="pk_deliveries"),
    )
