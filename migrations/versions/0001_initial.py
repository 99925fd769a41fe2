"""The initial schema."""

import sqlite3

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

STRICT = {"sqlite_strict": sqlite3.sqlite_version_info >= (3, 37)}
"""SQLite then refuses values of another type than the column's; older versions of SQLite cannot."""


def upgrade() -> None:
    op.create_table(
        "artifacts",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_artifacts"),
        **STRICT,
    )
    op.create_table(
        "binaries",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("signatures", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_binaries"),
        sa.UniqueConstraint("digest", name="uq_binaries_digest"),
        **STRICT,
    )
    op.create_table(
        "python_codes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("signatures", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_python_codes"),
        sa.UniqueConstraint("digest", name="uq_python_codes_digest"),
        **STRICT,
    )
    op.create_table(
        "checks",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
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
        sa.UniqueConstraint("uid", name="uq_checks_uid"),
        sqlite_autoincrement=True,
        **STRICT,
    )
    op.create_index("ix_checks_git_commit", "checks", ["git_commit"], unique=False)
    op.create_index("ix_checks_scope", "checks", ["scope"], unique=False)
    op.create_table(
        "devices",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("compute_capability", sa.Text(), nullable=False),
        sa.Column("multiprocessors", sa.Integer(), nullable=False),
        sa.Column("clock_hz", sa.Double(), nullable=False),
        sa.Column("memory_clock_hz", sa.Double(), nullable=False),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=False),
        sa.Column("l2_bytes", sa.BigInteger(), nullable=False),
        sa.Column("shared_bytes_per_block", sa.Integer(), nullable=False),
        sa.Column("registers_per_block", sa.Integer(), nullable=False),
        sa.Column("warp_size", sa.Integer(), nullable=False),
        sa.Column("interconnect", sa.Text(), server_default="", nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_devices"),
        sa.UniqueConstraint("uuid", name="uq_devices_uuid"),
        **STRICT,
    )
    op.create_table(
        "environments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("driver", sa.Text(), nullable=False),
        sa.Column("toolkit", sa.Text(), nullable=False),
        sa.Column("power_limit_w", sa.Double(), nullable=False),
        sa.Column("places", sa.Integer(), nullable=False),
        sa.Column("parts", sa.Text(), nullable=False),
        sa.Column("parts_digest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_environments"),
        sa.UniqueConstraint("driver", "toolkit", "power_limit_w", "places", "parts_digest", name="uq_environments"),
        **STRICT,
    )
    op.create_table(
        "full_environments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("parts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_full_environments"),
        sa.UniqueConstraint("digest", name="uq_full_environments_digest"),
        **STRICT,
    )
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
        **STRICT,
    )
    op.create_table(
        "removed_uids",
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("removed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("uid", name="pk_removed_uids"),
        **STRICT,
    )
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("suite", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("command_line", sa.Text(), nullable=False),
        sa.Column("git_commit", sa.Text(), nullable=False),
        sa.Column("git_dirty", sa.Boolean(), nullable=False),
        sa.Column("git_branch", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("cpu", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("process_start", sa.Text(), nullable=False),
        sa.Column("perfsvc_version", sa.Text(), nullable=False),
        sa.Column("python_version", sa.Text(), nullable=False),
        sa.Column("packages", sa.JSON(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("replicas", sa.Integer(), nullable=False),
        sa.Column("cases", sa.Integer(), nullable=True),
        sa.Column("full_environment_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["full_environment_id"],
            ["full_environments.id"],
            name="fk_runs_full_environment_id_full_environments",
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sa.UniqueConstraint("uid", name="uq_runs_uid"),
        sqlite_autoincrement=True,
        **STRICT,
    )
    op.create_index("ix_runs_full_environment_id", "runs", ["full_environment_id"], unique=False)
    op.create_index("ix_runs_git_commit", "runs", ["git_commit"], unique=False)
    op.create_index("ix_runs_label", "runs", ["label"], unique=False)
    op.create_index("ix_runs_scope", "runs", ["scope"], unique=False)
    op.create_table(
        "binary_files",
        sa.Column("binary_id", sa.Integer(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["binary_id"], ["binaries.id"], name="fk_binary_files_binary_id_binaries", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["sha256"], ["artifacts.sha256"], name="fk_binary_files_sha256_artifacts", ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("binary_id", "role", "name", name="pk_binary_files"),
        **STRICT,
    )
    op.create_index("ix_binary_files_sha256", "binary_files", ["sha256"], unique=False)
    op.create_table(
        "cases",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("benchmark", sa.Text(), nullable=False),
        sa.Column("variant", sa.Text(), nullable=False),
        sa.Column("point", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_cases"),
        sa.UniqueConstraint(
            "benchmark", "variant", "point", "version", name="uq_cases_benchmark_variant_point_version"
        ),
        **STRICT,
    )
    op.create_index("ix_cases_name", "cases", ["name"], unique=False)
    op.create_table(
        "former_names",
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("variant", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("until_run", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name="fk_former_names_case_id_cases", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("case_id", "variant", name="pk_former_names"),
        **STRICT,
    )
    op.create_index("ix_former_names_name", "former_names", ["name"], unique=False)
    op.create_table(
        "findings",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
        sa.Column("cause", sa.String(16), nullable=False),
        sa.Column("root_cause", sa.Text(), server_default="", nullable=False),
        sa.Column("first_run_id", sa.Integer(), nullable=True),
        sa.Column("last_run_id", sa.Integer(), nullable=True),
        sa.Column("evidence", sa.Text(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("decided", sa.Boolean(), nullable=False),
        sa.Column("owner", sa.Text(), server_default="", nullable=False),
        sa.Column("ignored_until", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["first_run_id"], ["runs.id"], name="fk_findings_first_run_id_runs", ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["last_run_id"], ["runs.id"], name="fk_findings_last_run_id_runs", ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("id", name="pk_findings"),
        sa.UniqueConstraint("uid", name="uq_findings_uid"),
        sqlite_autoincrement=True,
        **STRICT,
    )
    op.create_index("ix_findings_first_run_id", "findings", ["first_run_id"], unique=False)
    op.create_index("ix_findings_last_run_id", "findings", ["last_run_id"], unique=False)
    op.create_table(
        "nights",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("uid", sa.Text(), nullable=False),
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
        sa.Column("signatures", sa.Text(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_nights_run_id_runs", ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name="pk_nights"),
        sa.UniqueConstraint("uid", name="uq_nights_uid"),
        sqlite_autoincrement=True,
        **STRICT,
    )
    op.create_index("ix_nights_host", "nights", ["host"], unique=False)
    op.create_index("ix_nights_run_id", "nights", ["run_id"], unique=False)
    op.create_table(
        "gpu_peaks",
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("driver", sa.Text(), nullable=False),
        sa.Column("power_limit_w", sa.Double(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("rate", sa.Double(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.id"], name="fk_gpu_peaks_device_id_devices", ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("device_id", "driver", "power_limit_w", "name", name="pk_gpu_peaks"),
        **STRICT,
    )
    op.create_table(
        "run_devices",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("copy_bytes_per_s", sa.Double(), nullable=True),
        sa.Column("read_bytes_per_s", sa.Double(), nullable=True),
        sa.Column("environment_id", sa.Integer(), nullable=True),
        sa.Column("statuses", sa.JSON(), nullable=True),
        sa.Column("rejected_batches", sa.Integer(), nullable=True),
        sa.Column("ecc_errors", sa.Integer(), nullable=True),
        sa.Column("sm_clock_hz", sa.Double(), nullable=True),
        sa.Column("temperature_c", sa.Double(), nullable=True),
        sa.Column("power_w", sa.Double(), nullable=True),
        sa.Column("slowdowns", sa.Text(), nullable=True),
        sa.Column("xids", sa.Text(), nullable=True),
        sa.Column("others", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.id"], name="fk_run_devices_device_id_devices", ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["environment_id"],
            ["environments.id"],
            name="fk_run_devices_environment_id_environments",
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_run_devices_run_id_runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "device_id", name="pk_run_devices"),
        **STRICT,
    )
    op.create_table(
        "exclusions",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("excluded_by", sa.Text(), nullable=False),
        sa.Column("excluded_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("included_by", sa.Text(), server_default="", nullable=False),
        sa.Column("included_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deleted", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name="fk_exclusions_case_id_cases", ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("id", name="pk_exclusions"),
        **STRICT,
    )
    op.create_index("ix_exclusions_case_id", "exclusions", ["case_id"], unique=False)
    op.create_index("ix_exclusions_run_id_case_id", "exclusions", ["run_id", "case_id"], unique=False)
    op.create_table(
        "series",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("cache", sa.String(16), nullable=False),
        sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name="fk_series_case_id_cases", ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], name="fk_series_device_id_devices", ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("id", name="pk_series"),
        sa.UniqueConstraint("case_id", "device_id", "metric", "cache", name="uq_series_case_id_device_id_metric_cache"),
        **STRICT,
    )
    op.create_table(
        "pins",
        sa.Column("series_id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name="fk_pins_series_id_series", ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_pins_run_id_runs", ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("series_id", name="pk_pins"),
        **STRICT,
    )
    op.create_index("ix_pins_run_id", "pins", ["run_id"], unique=False)
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
        sa.ForeignKeyConstraint(
            ["baseline_check_id"],
            ["checks.id"],
            name="fk_checked_kernels_baseline_check_id_checks",
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(
            ["case_id"], ["cases.id"], name="fk_checked_kernels_case_id_cases", ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["check_id"], ["checks.id"], name="fk_checked_kernels_check_id_checks", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["facts_id"], ["facts.id"], name="fk_checked_kernels_facts_id_facts", ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("check_id", "case_id", "architecture", "kernel", name="pk_checked_kernels"),
        **STRICT,
    )
    op.create_index("ix_checked_kernels_baseline_check_id", "checked_kernels", ["baseline_check_id"], unique=False)
    op.create_index(
        "ix_checked_kernels_case_id_architecture_check_id",
        "checked_kernels",
        ["case_id", "architecture", "check_id"],
        unique=False,
    )
    op.create_index("ix_checked_kernels_facts_id", "checked_kernels", ["facts_id"], unique=False)
    op.create_table(
        "confirmations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("series_id", sa.Integer(), nullable=False),
        sa.Column("baseline_run_id", sa.Integer(), nullable=True),
        sa.Column("judged", sa.String(16), nullable=False),
        sa.Column("judged_ratio", sa.Double(), nullable=True),
        sa.Column("judged_baseline_s", sa.Double(), nullable=True),
        sa.Column("judged_candidate_s", sa.Double(), nullable=True),
        sa.Column("change", sa.String(16), nullable=False),
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
            ["baseline_run_id"], ["runs.id"], name="fk_confirmations_baseline_run_id_runs", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["series_id"], ["series.id"], name="fk_confirmations_series_id_series", ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_confirmations_run_id_runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_confirmations"),
        **STRICT,
    )
    op.create_index("ix_confirmations_baseline_run_id", "confirmations", ["baseline_run_id"], unique=False)
    op.create_index("ix_confirmations_series_id_run_id", "confirmations", ["series_id", "run_id"], unique=False)
    op.create_index("ix_confirmations_run_id", "confirmations", ["run_id"], unique=False)
    op.create_table(
        "bisections",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("finding_id", sa.Integer(), nullable=False),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["finding_id"], ["findings.id"], name="fk_bisections_finding_id_findings", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_bisections"),
        **STRICT,
    )
    op.create_index("ix_bisections_finding_id", "bisections", ["finding_id"], unique=False)
    op.create_table(
        "expectations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("devices", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("night", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=True),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finding_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["finding_id"], ["findings.id"], name="fk_expectations_finding_id_findings", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_expectations_run_id_runs", ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name="pk_expectations"),
        sa.UniqueConstraint(
            "host", "scope", "kind", "name", "devices", name="uq_expectations_host_scope_kind_name_devices"
        ),
        **STRICT,
    )
    op.create_index("ix_expectations_finding_id", "expectations", ["finding_id"], unique=False)
    op.create_index("ix_expectations_run_id", "expectations", ["run_id"], unique=False)
    op.create_table(
        "finding_cases",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("finding_id", sa.Integer(), nullable=False),
        sa.Column("series_id", sa.Integer(), nullable=False),
        sa.Column("step", sa.Integer(), nullable=False),
        sa.Column("root_cause", sa.Text(), server_default="", nullable=False),
        sa.Column("change", sa.String(16), nullable=False),
        sa.Column("direction", sa.String(16), nullable=False),
        sa.Column("ratio", sa.Double(), nullable=True),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("baseline_run_id", sa.Integer(), nullable=True),
        sa.Column("baseline_s", sa.Double(), nullable=True),
        sa.Column("candidate_s", sa.Double(), nullable=True),
        sa.Column("first_run_id", sa.Integer(), nullable=True),
        sa.Column("level_run_id", sa.Integer(), nullable=True),
        sa.Column("last_run_id", sa.Integer(), nullable=False),
        sa.Column("recovered_run_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["baseline_run_id"], ["runs.id"], name="fk_finding_cases_baseline_run_id_runs", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["series_id"], ["series.id"], name="fk_finding_cases_series_id_series", ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["finding_id"], ["findings.id"], name="fk_finding_cases_finding_id_findings", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["first_run_id"], ["runs.id"], name="fk_finding_cases_first_run_id_runs", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["last_run_id"], ["runs.id"], name="fk_finding_cases_last_run_id_runs", ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["level_run_id"], ["runs.id"], name="fk_finding_cases_level_run_id_runs", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["recovered_run_id"], ["runs.id"], name="fk_finding_cases_recovered_run_id_runs", ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_finding_cases"),
        sa.UniqueConstraint("finding_id", "series_id", "step", name="uq_finding_cases_finding_id_series_id_step"),
        **STRICT,
    )
    op.create_index("ix_finding_cases_baseline_run_id", "finding_cases", ["baseline_run_id"], unique=False)
    op.create_index("ix_finding_cases_series_id", "finding_cases", ["series_id"], unique=False)
    op.create_index("ix_finding_cases_first_run_id", "finding_cases", ["first_run_id"], unique=False)
    op.create_index("ix_finding_cases_last_run_id", "finding_cases", ["last_run_id"], unique=False)
    op.create_index("ix_finding_cases_level_run_id", "finding_cases", ["level_run_id"], unique=False)
    op.create_index("ix_finding_cases_recovered_run_id", "finding_cases", ["recovered_run_id"], unique=False)
    op.create_table(
        "sightings",
        sa.Column("step_id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("back", sa.Boolean(), nullable=False),
        sa.Column("new_level", sa.Boolean(), nullable=False),
        sa.Column("baseline_run_id", sa.Integer(), nullable=True),
        sa.Column("baseline_s", sa.Double(), nullable=True),
        sa.Column("candidate_s", sa.Double(), nullable=True),
        sa.Column("ratio", sa.Double(), nullable=True),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["baseline_run_id"], ["runs.id"], name="fk_sightings_baseline_run_id_runs", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_sightings_run_id_runs", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["step_id"], ["finding_cases.id"], name="fk_sightings_step_id_finding_cases", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("step_id", "run_id", name="pk_sightings"),
        **STRICT,
    )
    op.create_index("ix_sightings_baseline_run_id", "sightings", ["baseline_run_id"], unique=False)
    op.create_index("ix_sightings_run_id", "sightings", ["run_id"], unique=False)
    op.create_table(
        "finding_events",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("finding_id", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=True),
        sa.Column("night", sa.Integer(), nullable=True),
        sa.Column("done_by", sa.Text(), nullable=False),
        sa.Column("done_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["finding_id"], ["findings.id"], name="fk_finding_events_finding_id_findings", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_finding_events_run_id_runs", ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name="pk_finding_events"),
        **STRICT,
    )
    op.create_index("ix_finding_events_finding_id", "finding_events", ["finding_id"], unique=False)
    op.create_index("ix_finding_events_run_id", "finding_events", ["run_id"], unique=False)
    op.create_table(
        "imports",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("format", sa.Text(), nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("imported_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_imports_run_id_runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("digest", "run_id", name="pk_imports"),
        **STRICT,
    )
    op.create_index("ix_imports_run_id", "imports", ["run_id"], unique=False)
    op.create_table(
        "measurements",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("binary_id", sa.Integer(), nullable=True),
        sa.Column("python_code_id", sa.Integer(), nullable=True),
        sa.Column("replica", sa.Integer(), nullable=False),
        sa.Column("cache", sa.String(16), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("cure", sa.Text(), nullable=False),
        sa.Column("sample_count", sa.Integer(), nullable=False),
        sa.Column("median_s", sa.Double(), nullable=True),
        sa.Column("low_s", sa.Double(), nullable=True),
        sa.Column("high_s", sa.Double(), nullable=True),
        sa.Column("max_error", sa.Double(), nullable=True),
        sa.Column("mean_error", sa.Double(), nullable=True),
        sa.Column("read_bytes", sa.BigInteger(), nullable=False),
        sa.Column("written_bytes", sa.BigInteger(), nullable=False),
        sa.Column("flops", sa.BigInteger(), nullable=False),
        sa.Column("precision", sa.Text(), server_default="", nullable=False),
        sa.Column("link_bytes", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("stopped", sa.Text(), nullable=False),
        sa.Column("wall_s", sa.Double(), nullable=False),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("warmup", sa.Integer(), nullable=True),
        sa.Column("note", sa.Text(), server_default="", nullable=False),
        sa.Column("check_s", sa.Double(), nullable=True),
        sa.Column("sampling_s", sa.Double(), nullable=True),
        sa.Column("busy_s", sa.Double(), nullable=True),
        sa.Column("sm_clock_hz", sa.Double(), nullable=True),
        sa.Column("temperature_c", sa.Double(), nullable=True),
        sa.Column("power_w", sa.Double(), nullable=True),
        sa.Column("slowdowns", sa.Text(), server_default="", nullable=False),
        sa.Column("rejected_batches", sa.Integer(), server_default="0", nullable=False),
        sa.Column("ecc_errors", sa.Integer(), server_default="0", nullable=False),
        sa.Column("xids", sa.Text(), server_default="", nullable=False),
        sa.Column("others", sa.Text(), server_default="", nullable=False),
        sa.Column("variant_index", sa.Integer(), nullable=True),
        sa.Column("relative_to", sa.Text(), server_default="", nullable=False),
        sa.Column("samples", sa.LargeBinary(), nullable=True),
        sa.Column("place_medians", sa.LargeBinary(), nullable=True),
        sa.Column("batches", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["binary_id"], ["binaries.id"], name="fk_measurements_binary_id_binaries", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name="fk_measurements_case_id_cases", ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.id"], name="fk_measurements_device_id_devices", ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["environment_id"],
            ["environments.id"],
            name="fk_measurements_environment_id_environments",
            ondelete="RESTRICT",
        ),
        sa.ForeignKeyConstraint(
            ["python_code_id"],
            ["python_codes.id"],
            name="fk_measurements_python_code_id_python_codes",
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_measurements_run_id_runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_measurements"),
        sa.UniqueConstraint(
            "run_id",
            "case_id",
            "device_id",
            "replica",
            "cache",
            name="uq_measurements_run_id_case_id_device_id_replica_cache",
        ),
        **STRICT,
    )
    op.create_index("ix_measurements_binary_id", "measurements", ["binary_id"], unique=False)
    op.create_index(
        "ix_measurements_case_id_device_id_run_id", "measurements", ["case_id", "device_id", "run_id"], unique=False
    )
    op.create_index(
        "ix_measurements_environment_id_run_id_device_id",
        "measurements",
        ["environment_id", "run_id", "device_id"],
        unique=False,
    )
    op.create_index("ix_measurements_python_code_id", "measurements", ["python_code_id"], unique=False)
    op.create_index(
        "ix_measurements_with_samples",
        "measurements",
        ["run_id", "case_id"],
        unique=False,
        sqlite_where=sa.text("samples IS NOT NULL"),
        postgresql_where=sa.text("samples IS NOT NULL"),
    )
    op.create_table(
        "messages",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("night_id", sa.Integer(), nullable=True),
        sa.Column("event_id", sa.Integer(), nullable=True),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(["night_id"], ["nights.id"], name="fk_messages_night_id_nights", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_messages"),
        sa.UniqueConstraint("key", name="uq_messages_key"),
        **STRICT,
    )
    op.create_index("ix_messages_night_id", "messages", ["night_id"], unique=False)
    op.create_table(
        "levels",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("series_id", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(16), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=True),
        sa.Column("binary_id", sa.Integer(), nullable=True),
        sa.Column("python_code_id", sa.Integer(), nullable=True),
        sa.Column("medians", sa.LargeBinary(), nullable=True),
        sa.Column("level", sa.Double(), nullable=True),
        sa.Column("level_low", sa.Double(), nullable=True),
        sa.Column("level_high", sa.Double(), nullable=True),
        sa.Column("spread", sa.Double(), nullable=True),
        sa.Column("step_s", sa.Double(), nullable=True),
        sa.Column("noise_within", sa.Double(), nullable=True),
        sa.Column("noise_between", sa.Double(), nullable=True),
        sa.Column("noise_places", sa.Double(), nullable=True),
        sa.Column("lowest_place_s", sa.Double(), nullable=True),
        sa.Column("highest_place_s", sa.Double(), nullable=True),
        sa.Column("excluded", sa.Text(), nullable=True),
        sa.Column("verdict", sa.String(16), nullable=True),
        sa.Column("verdict_reason", sa.Text(), nullable=True),
        sa.Column("ratio", sa.Double(), nullable=True),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("baseline_run_id", sa.Integer(), nullable=True),
        sa.Column("baseline_s", sa.Double(), nullable=True),
        sa.Column("smallest", sa.Double(), nullable=True),
        sa.Column("baseline_replicas", sa.Integer(), nullable=True),
        sa.Column("baseline_runs", sa.Integer(), nullable=True),
        sa.Column("between_nights", sa.Double(), nullable=True),
        sa.Column("cause", sa.String(16), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_levels_run_id_runs", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name="fk_levels_series_id_series", ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["environment_id"], ["environments.id"], name="fk_levels_environment_id_environments", ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("run_id", "series_id", name="pk_levels"),
        sqlite_with_rowid=False,
        **STRICT,
    )
    op.create_index(
        "ix_levels_accepted",
        "levels",
        ["series_id"],
        unique=False,
        sqlite_where=sa.text("verdict IN ('new', 'improvement')"),
        postgresql_where=sa.text("verdict IN ('new', 'improvement')"),
    )
    op.create_index(
        "ix_levels_events",
        "levels",
        ["run_id"],
        unique=False,
        sqlite_where=sa.text("verdict IN ('regression', 'improvement', 'broken', 'missing')"),
        postgresql_where=sa.text("verdict IN ('regression', 'improvement', 'broken', 'missing')"),
    )
    op.create_index("ix_levels_series_id_run_id", "levels", ["series_id", "run_id"], unique=False)
    op.create_table(
        "over_budget",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("series_id", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_over_budget_run_id_runs", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["series_id"], ["series.id"], name="fk_over_budget_series_id_series", ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("run_id", "series_id", name="pk_over_budget"),
        **STRICT,
    )
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
        sa.Column("instructions", sa.LargeBinary(), nullable=True),
        sa.Column("kernels", sa.LargeBinary(), nullable=True),
        sa.Column("report_sha256", sa.Text(), nullable=True),
        sa.Column("wall_s", sa.Double(), nullable=False),
        sa.Column("profiled_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["binary_id"], ["binaries.id"], name="fk_profiles_binary_id_binaries", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name="fk_profiles_case_id_cases", ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.id"], name="fk_profiles_device_id_devices", ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(
            ["report_sha256"], ["artifacts.sha256"], name="fk_profiles_report_sha256_artifacts", ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_profiles_run_id_runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_profiles"),
        **STRICT,
    )
    op.create_index("ix_profiles_binary_id", "profiles", ["binary_id"], unique=False)
    op.create_index(
        "ix_profiles_case_id_device_id_run_id", "profiles", ["case_id", "device_id", "run_id"], unique=False
    )
    op.create_index("ix_profiles_report_sha256", "profiles", ["report_sha256"], unique=False)
    op.create_index("ix_profiles_run_id", "profiles", ["run_id"], unique=False)
    op.create_table(
        "stages",
        sa.Column("night_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("wall_s", sa.Double(), nullable=True),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("cure", sa.Text(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["night_id"], ["nights.id"], name="fk_stages_night_id_nights", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("night_id", "name", name="pk_stages"),
        **STRICT,
    )
    op.create_table(
        "confirmation_runs",
        sa.Column("confirmation_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("side", sa.Text(), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("samples", sa.LargeBinary(), nullable=True),
        sa.Column("sample_count", sa.Integer(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.Column("wall_s", sa.Double(), nullable=False),
        sa.Column("sm_clock_hz", sa.Double(), nullable=True),
        sa.Column("temperature_c", sa.Double(), nullable=True),
        sa.Column("power_w", sa.Double(), nullable=True),
        sa.Column("slowdowns", sa.Text(), nullable=False),
        sa.Column("rejected_batches", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["confirmation_id"],
            ["confirmations.id"],
            name="fk_confirmation_runs_confirmation_id_confirmations",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("confirmation_id", "number", name="pk_confirmation_runs"),
        **STRICT,
    )
    op.create_table(
        "deliveries",
        sa.Column("message_id", sa.Integer(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.Column("tried_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["message_id"], ["messages.id"], name="fk_deliveries_message_id_messages", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("message_id", "target", name="pk_deliveries"),
        **STRICT,
    )
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
        sa.Column("reasons", sa.Text(), nullable=False),
        sa.Column("factor", sa.Double(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("explained_at", sa.DateTime(timezone=True), nullable=False),
        sa.ForeignKeyConstraint(
            ["baseline_profile_id"],
            ["profiles.id"],
            name="fk_explanations_baseline_profile_id_profiles",
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(
            ["baseline_run_id"], ["runs.id"], name="fk_explanations_baseline_run_id_runs", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["candidate_profile_id"],
            ["profiles.id"],
            name="fk_explanations_candidate_profile_id_profiles",
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name="fk_explanations_case_id_cases", ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.id"], name="fk_explanations_device_id_devices", ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_explanations_run_id_runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_explanations"),
        **STRICT,
    )
    op.create_index("ix_explanations_baseline_profile_id", "explanations", ["baseline_profile_id"], unique=False)
    op.create_index("ix_explanations_baseline_run_id", "explanations", ["baseline_run_id"], unique=False)
    op.create_index("ix_explanations_candidate_profile_id", "explanations", ["candidate_profile_id"], unique=False)
    op.create_index(
        "ix_explanations_case_id_device_id_run_id", "explanations", ["case_id", "device_id", "run_id"], unique=False
    )
    op.create_index("ix_explanations_run_id", "explanations", ["run_id"], unique=False)
    op.create_table(
        "metrics",
        sa.Column("measurement_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["measurement_id"], ["measurements.id"], name="fk_metrics_measurement_id_measurements", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("measurement_id", "name", name="pk_metrics"),
        sqlite_with_rowid=False,
        **STRICT,
    )
    op.create_table(
        "profile_metrics",
        sa.Column("profile_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["profile_id"], ["profiles.id"], name="fk_profile_metrics_profile_id_profiles", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("profile_id", "name", name="pk_profile_metrics"),
        **STRICT,
    )
    op.create_table(
        "profile_rules",
        sa.Column("profile_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("speedup", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["profile_id"], ["profiles.id"], name="fk_profile_rules_profile_id_profiles", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("profile_id", "number", name="pk_profile_rules"),
        **STRICT,
    )
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("scopes", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("made_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("made_by", sa.Text(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("revoked_by", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("name", name="uq_tokens_name"),
        sa.UniqueConstraint("sha256", name="uq_tokens_sha256"),
        sqlite_autoincrement=True,
        **STRICT,
    )
    op.create_table(
        "received_runs",
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("token_id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("received_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("judged_at", sa.DateTime(timezone=True), nullable=True),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_received_runs_run_id_runs", ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["token_id"], ["tokens.id"], name="fk_received_runs_token_id_tokens", ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("digest", name="pk_received_runs"),
        sa.UniqueConstraint("token_id", "key", name="uq_received_runs_token_id_key"),
        **STRICT,
    )
    op.create_index("ix_received_runs_run_id", "received_runs", ["run_id"], unique=False)
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("who", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        **STRICT,
    )
    op.create_index("ix_audit_at", "audit", ["at"], unique=False)
