"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    runs()
    devices()
    environments()
    lineages()
    cases()
    artifacts()
    binaries()
    binary_files()
    measurements()
    metrics()
    verdicts()
    pins()


def runs() -> None:
    op.create_table(
        "runs",
        sa.Column("id", sa.Integer(), nullable=False),
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
        sa.PrimaryKeyConstraint("id", name="pk_runs"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_runs_git_commit", "runs", ["git_commit"])
    op.create_index("ix_runs_label", "runs", ["label"])
    op.create_index("ix_runs_scope", "runs", ["scope"])


def devices() -> None:
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
        sa.PrimaryKeyConstraint("id", name="pk_devices"),
        sa.UniqueConstraint("uuid", name="uq_devices_uuid"),
    )


def environments() -> None:
    op.create_table(
        "environments",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("driver", sa.Text(), nullable=False),
        sa.Column("toolkit", sa.Text(), nullable=False),
        sa.Column("power_limit_w", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_environments"),
        sa.UniqueConstraint("driver", "toolkit", "power_limit_w", name="uq_environments_driver_toolkit_power_limit_w"),
    )


def lineages() -> None:
    op.create_table(
        "lineages",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_lineages"),
    )


def cases() -> None:
    op.create_table(
        "cases",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("lineage_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("benchmark", sa.Text(), nullable=False),
        sa.Column("variant", sa.Text(), nullable=False),
        sa.Column("point", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("former", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["lineage_id"], ["lineages.id"], name="fk_cases_lineage_id_lineages", ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_cases"),
        sa.UniqueConstraint(
            "benchmark", "variant", "point", "version", name="uq_cases_benchmark_variant_point_version"
        ),
    )
    op.create_index("ix_cases_lineage_id_id", "cases", ["lineage_id", "id"])
    op.create_index("ix_cases_name", "cases", ["name"])
    op.create_index(
        "uq_cases_present_of_lineage",
        "cases",
        ["lineage_id"],
        unique=True,
        sqlite_where=sa.text("NOT former"),
        postgresql_where=sa.text("NOT former"),
    )


def artifacts() -> None:
    op.create_table(
        "artifacts",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_artifacts"),
    )


def binaries() -> None:
    op.create_table(
        "binaries",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_binaries"),
        sa.UniqueConstraint("digest", name="uq_binaries_digest"),
    )


def binary_files() -> None:
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
    )
    op.create_index("ix_binary_files_sha256", "binary_files", ["sha256"])


def measurements() -> None:
    op.create_table(
        "measurements",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("environment_id", sa.Integer(), nullable=False),
        sa.Column("binary_id", sa.Integer(), nullable=True),
        sa.Column("replica", sa.Integer(), nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("cure", sa.Text(), nullable=False),
        sa.Column("samples", sa.LargeBinary(), nullable=True),
        sa.Column("sample_count", sa.Integer(), nullable=False),
        sa.Column("median_s", sa.Double(), nullable=True),
        sa.Column("low_s", sa.Double(), nullable=True),
        sa.Column("high_s", sa.Double(), nullable=True),
        sa.Column("max_error", sa.Double(), nullable=True),
        sa.Column("mean_error", sa.Double(), nullable=True),
        sa.Column("read_bytes", sa.BigInteger(), nullable=False),
        sa.Column("written_bytes", sa.BigInteger(), nullable=False),
        sa.Column("flops", sa.BigInteger(), nullable=False),
        sa.Column("stopped", sa.Text(), nullable=False),
        sa.Column("wall_s", sa.Double(), nullable=False),
        sa.Column("measured_at", sa.DateTime(timezone=True), nullable=False),
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
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_measurements_run_id_runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name="pk_measurements"),
        sa.UniqueConstraint(
            "run_id",
            "case_id",
            "device_id",
            "replica",
            "mode",
            name="uq_measurements_run_id_case_id_device_id_replica_mode",
        ),
    )
    op.create_index("ix_measurements_binary_id", "measurements", ["binary_id"])
    op.create_index("ix_measurements_case_id_device_id_run_id", "measurements", ["case_id", "device_id", "run_id"])
    op.create_index("ix_measurements_device_id", "measurements", ["device_id"])
    op.create_index("ix_measurements_environment_id", "measurements", ["environment_id"])


def metrics() -> None:
    op.create_table(
        "metrics",
        sa.Column("measurement_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["measurement_id"], ["measurements.id"], name="fk_metrics_measurement_id_measurements", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("measurement_id", "name", name="pk_metrics"),
    )


def verdicts() -> None:
    op.create_table(
        "verdicts",
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("case_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("verdict", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("ratio", sa.Double(), nullable=True),
        sa.Column("low", sa.Double(), nullable=True),
        sa.Column("high", sa.Double(), nullable=True),
        sa.Column("baseline_run_id", sa.Integer(), nullable=True),
        sa.Column("baseline_s", sa.Double(), nullable=True),
        sa.Column("candidate_s", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["baseline_run_id"], ["runs.id"], name="fk_verdicts_baseline_run_id_runs", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(["case_id"], ["cases.id"], name="fk_verdicts_case_id_cases", ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["device_id"], ["devices.id"], name="fk_verdicts_device_id_devices", ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_verdicts_run_id_runs", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "case_id", "device_id", "metric", "mode", name="pk_verdicts"),
    )
    op.create_index("ix_verdicts_baseline_run_id", "verdicts", ["baseline_run_id"])
    op.create_index(
        "ix_verdicts_case_id_device_id_metric_mode_run_id",
        "verdicts",
        ["case_id", "device_id", "metric", "mode", "run_id"],
    )


def pins() -> None:
    op.create_table(
        "pins",
        sa.Column("lineage_id", sa.Integer(), nullable=False),
        sa.Column("device_id", sa.Integer(), nullable=False),
        sa.Column("metric", sa.Text(), nullable=False),
        sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("run_id", sa.Integer(), nullable=False),
        sa.Column("set_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("set_by", sa.Text(), nullable=False),
        sa.Column("comment", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["device_id"], ["devices.id"], name="fk_pins_device_id_devices", ondelete="RESTRICT"),
        sa.ForeignKeyConstraint(
            ["lineage_id"], ["lineages.id"], name="fk_pins_lineage_id_lineages", ondelete="RESTRICT"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name="fk_pins_run_id_runs", ondelete="RESTRICT"),
        sa.PrimaryKeyConstraint("lineage_id", "device_id", "metric", "mode", name="pk_pins"),
    )
    op.create_index("ix_pins_run_id", "pins", ["run_id"])
