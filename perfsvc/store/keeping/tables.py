"""What a sync copies of each table, and by which columns it recognizes a row in another database.

A test requires that each table is named here, or is left out for a reason.
"""

from typing import Final

from perfsvc.store.schema.base import Base
from perfsvc.store.schema.code_tables import (
    CheckedKernels,
    Checks,
    Explanations,
    KernelFacts,
    ProfileMetrics,
    ProfileRules,
    Profiles,
)
from perfsvc.store.schema.judging_tables import (
    STEP,
    Bisections,
    ConfirmationRuns,
    Confirmations,
    Exclusions,
    FindingCases,
    FindingEvents,
    Findings,
    Sightings,
)
from perfsvc.store.schema.night_tables import Deliveries, Messages, Nights, Stages
from perfsvc.store.schema.tables import (
    Artifacts,
    Binaries,
    BinaryFiles,
    Devices,
    Environments,
    FullEnvironments,
    Imports,
    Levels,
    Measurements,
    Metrics,
    OverBudgetCases,
    PythonCodes,
    RunDevices,
    Runs,
    SeriesRows,
)

Table = type[Base]

IDENTITY: Final[dict[Table, tuple[str, ...]]] = {
    Runs: ("uid",),
    Nights: ("uid",),
    Checks: ("uid",),
    Findings: ("uid",),
    Devices: ("uuid",),
    FullEnvironments: ("digest",),
    Environments: ("driver", "toolkit", "power_limit_w", "places", "parts_digest"),
    Artifacts: ("sha256",),
    Binaries: ("digest",),
    PythonCodes: ("digest",),
    KernelFacts: ("digest",),
    SeriesRows: ("case_id", "device_id", "metric", "cache"),
    Measurements: ("run_id", "case_id", "device_id", "replica", "cache"),
    Confirmations: ("run_id", "series_id", "confirmed_at"),
    Profiles: ("run_id", "case_id", "device_id", "profiler", "sections", "kernel", "launch", "profiled_at"),
    Explanations: ("run_id", "case_id", "device_id", "explained_at"),
    Exclusions: ("run_id", "case_id", "excluded_at"),
    FindingCases: STEP,
    Bisections: ("finding_id", "stored_at"),
    FindingEvents: ("finding_id", "kind", "run_id", "done_by", "done_at", "text"),
    Messages: ("key",),
}
"""The columns by which a row is recognized in another database, for tables whose primary key is only a number."""

SHARED: Final = frozenset(
    {Devices, FullEnvironments, Environments, Artifacts, Binaries, PythonCodes, KernelFacts, SeriesRows}
)
"""Tables whose rows several runs share: a row is copied when the first row that refers to it is copied."""

PARTS: Final[dict[Table, dict[Table, str]]] = {
    Measurements: {Metrics: "measurement_id"},
    Confirmations: {ConfirmationRuns: "confirmation_id"},
    Profiles: {ProfileMetrics: "profile_id", ProfileRules: "profile_id"},
    Binaries: {BinaryFiles: "binary_id"},
    Nights: {Stages: "night_id"},
    Messages: {Deliveries: "message_id"},
    Checks: {CheckedKernels: "check_id"},
    Findings: {FindingCases: "finding_id", FindingEvents: "finding_id", Bisections: "finding_id"},
    FindingCases: {Sightings: "step_id"},
}
"""The tables whose rows belong to a row of another table, with the column that refers to this row."""

OF_RUN: Final = (Measurements, Imports, Confirmations, Profiles, Explanations, Exclusions)
"""The rows of a run that never change once they are stored, in the order of copying."""

OF_RUN_REPLACED: Final = (Levels, RunDevices, OverBudgetCases)
"""The rows of a run that a later command on the same run replaces."""

NOT_REFERRED: Final[dict[tuple[Table, str], Table]] = {
    (Exclusions, "run_id"): Runs,
    (Levels, "baseline_run_id"): Runs,
    (Levels, "binary_id"): Binaries,
    (Levels, "python_code_id"): PythonCodes,
    (FindingEvents, "night"): Nights,
}
"""Columns that hold the number of a row without a foreign key, with the table of this row."""
