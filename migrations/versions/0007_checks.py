"""Static checks: the facts of kernels for each architecture, and what was judged of them."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    checks()
    facts()
    kernels()


def checks() -> None:
    op.create_table(
        "checks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("checked_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("command_line", sa.Text(), nullable=False),
        sa.Column("git_commit", sa.Text(), nullable=False),
        sa.Column("git_dirty", sa.Boolean(), nullable=False),
        sa.Column("git_branch", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("perfsvc_version", sa.Text(), nullable=False),
        sa.Column("toolkit", sa.Text(), nullable=False),
        sa.Column("disassembler", sa.Text(), nullable=False),
        sa.Column("accepted", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_checks"),
        sqlite_autoincrement=True,
    )
    with op.batch_alter_table("checks") as table:
        for column in ("scope", "git_commit"):
            table.create_index(f"ix_checks_{column}", [column])


def facts() -> None:
    op.create_table(
        "facts",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("registers", sa.Integer(), nullable=False),
        sa.Column("stack_bytes", sa.Integer(), nullable=False),
        sa.Column("spill_store_bytes", sa.Integer(), nullable=False),
        sa.Column("spill_load_bytes", sa.Integer(), nullable=False),
        sa.Column("shared_bytes", sa.Integer(), nullable=False),
        sa.Column("barriers", sa.Integer(), nullable=False),
        sa.Column("instructions", sa.Text(), nullable=True),
        sa.Column("sass", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_facts"),
        sa.UniqueConstraint("digest", name="uq_facts_digest"),
    )


def foreign(column: str, referred: str, ondelete: str) -> sa.ForeignKeyConstraint:
    name, _, _ = referred.partition(".")
    return sa.ForeignKeyConstraint([column], [referred], name=f"fk_checked_kernels_{column}_{name}", ondelete=ondelete)


def kernels() -> None:
    key = ["check_id", "case_id", "architecture", "kernel"]
    op.create_table(
        "checked_kernels",
        sa.Column("check_id", sa.Integer(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("architecture", sa.Text(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("facts_id", sa.Integer(), nullable=True),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("dynamic_shared_bytes", sa.Integer(), nullable=False),
        sa.Column("warps", sa.Integer(), nullable=True),
        sa.Column("most_warps", sa.Integer(), nullable=True),
        sa.Column("limiter", sa.String(16), nullable=True),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("verdict", sa.String(16), nullable=True),
        sa.Column("verdict_reason", sa.Text(), nullable=False),
        sa.Column("cause", sa.String(16), nullable=True),
        sa.Column("baseline_check_id", sa.Integer(), nullable=True),
        sa.Column("level", sa.Boolean(), nullable=False),
        foreign("check_id", "checks.id", "CASCADE"),
        foreign("case_id", "cases.id", "RESTRICT"),
        foreign("facts_id", "facts.id", "RESTRICT"),
        foreign("baseline_check_id", "checks.id", "SET NULL"),
        sa.PrimaryKeyConstraint(*key, name="pk_checked_kernels"),
    )
    with op.batch_alter_table("checked_kernels") as table:
        place = ["case_id", "architecture", "check_id"]
        table.create_index(f"ix_checked_kernels_{'_'.join(place)}", place)
        for column in ("facts_id", "baseline_check_id"):
            table.create_index(f"ix_checked_kernels_{column}", [column])
