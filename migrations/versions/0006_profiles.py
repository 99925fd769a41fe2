"""What a profiler counted of stored binaries, and why a case takes longer by it."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    profiles()
    metrics_and_rules()
    explanations()


def foreign(table: str, column: str, referred: str, ondelete: str) -> sa.ForeignKeyConstraint:
    name, _, _ = referred.partition(".")
    return sa.ForeignKeyConstraint([column], [referred], name=f"fk_{table}_{column}_{name}", ondelete=ondelete)


def profiles() -> None:
    op.create_table(
        "profiles",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("binary_id", sa.Integer(), nullable=True),
        sa.Column("profiler", sa.Text(), nullable=False),
        sa.Column("sections", sa.Text(), nullable=False),
        sa.Column("kernel", sa.Text(), nullable=False),
        sa.Column("launch", sa.Integer(), nullable=True),
        sa.Column("chip", sa.Text(), nullable=False),
        sa.Column("profiler_version", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("cure", sa.Text(), nullable=False),
        sa.Column("report_sha256", sa.Text(), nullable=True),
        sa.Column("wall_s", sa.Double(), nullable=False),
        sa.Column("profiled_at", sa.DateTime(timezone=True), nullable=False),
        foreign("profiles", "run_id", "runs.id", "CASCADE"),
        foreign("profiles", "case_id", "cases.id", "RESTRICT"),
        foreign("profiles", "device_id", "devices.id", "RESTRICT"),
        foreign("profiles", "binary_id", "binaries.id", "SET NULL"),
        foreign("profiles", "report_sha256", "artifacts.sha256", "RESTRICT"),
        sa.PrimaryKeyConstraint("id", name="pk_profiles"),
    )
    with op.batch_alter_table("profiles") as table:
        table.create_index("ix_profiles_case_id_device_id_run_id", ["case_id", "device_id", "run_id"])
        for column in ("run_id", "binary_id", "report_sha256"):
            table.create_index(f"ix_profiles_{column}", [column])


def metrics_and_rules() -> None:
    op.create_table(
        "profile_metrics",
        sa.Column("profile_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        foreign("profile_metrics", "profile_id", "profiles.id", "CASCADE"),
        sa.PrimaryKeyConstraint("profile_id", "name", name="pk_profile_metrics"),
    )
    op.create_table(
        "profile_rules",
        sa.Column("profile_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("speedup", sa.Double(), nullable=True),
        foreign("profile_rules", "profile_id", "profiles.id", "CASCADE"),
        sa.PrimaryKeyConstraint("profile_id", "number", name="pk_profile_rules"),
    )


def explanations() -> None:
    op.create_table(
        "explanations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("baseline_run_id", sa.Integer(), nullable=True),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("baseline_profile_id", sa.Integer(), nullable=True),
        sa.Column("candidate_profile_id", sa.Integer(), nullable=True),
        sa.Column("sentence", sa.Text(), nullable=False),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("factor", sa.Double(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("explained_at", sa.DateTime(timezone=True), nullable=False),
        foreign("explanations", "run_id", "runs.id", "CASCADE"),
        foreign("explanations", "baseline_run_id", "runs.id", "SET NULL"),
        foreign("explanations", "case_id", "cases.id", "RESTRICT"),
        foreign("explanations", "device_id", "devices.id", "RESTRICT"),
        foreign("explanations", "baseline_profile_id", "profiles.id", "SET NULL"),
        foreign("explanations", "candidate_profile_id", "profiles.id", "SET NULL"),
        sa.PrimaryKeyConstraint("id", name="pk_explanations"),
    )
    with op.batch_alter_table("explanations") as table:
        table.create_index("ix_explanations_case_id_device_id_run_id", ["case_id", "device_id", "run_id"])
        for column in ("run_id", "baseline_run_id", "baseline_profile_id", "candidate_profile_id"):
            table.create_index(f"ix_explanations_{column}", [column])
