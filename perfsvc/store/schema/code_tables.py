"""The tables of profiles, explanations and static checks."""

from datetime import datetime

from sqlalchemy import ColumnElement, ForeignKey, Index

from perfsvc.model import Cause, Limiter, Status, Verdict
from perfsvc.store.schema.base import Base, Key, Uid, column


class Profiles(Base):
    """A profile of a binary in a run; ``reason`` is why the profiler failed, empty if it did not.

    ``instructions`` is JSON, compressed with zlib: the instructions of the kernel with what was counted at each.
    ``kernels`` is in the same form: all kernels with their times, if several were profiled together.
    """

    __tablename__ = "profiles"
    __table_args__ = (Index(None, "case_id", "device_id", "run_id"),)

    id: ColumnElement[Key]
    run_id: ColumnElement[int] = column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    case_id: ColumnElement[int] = column(ForeignKey("cases.id", ondelete="RESTRICT"))
    device_id: ColumnElement[int] = column(ForeignKey("devices.id", ondelete="RESTRICT"))
    binary_id: ColumnElement[int | None] = column(ForeignKey("binaries.id", ondelete="SET NULL"), index=True)
    profiler: ColumnElement[str]
    sections: ColumnElement[str]
    kernel: ColumnElement[str]
    launch: ColumnElement[int | None]
    chip: ColumnElement[str]
    profiler_version: ColumnElement[str]
    reason: ColumnElement[str]
    cure: ColumnElement[str]
    instructions: ColumnElement[bytes | None]
    kernels: ColumnElement[bytes | None]
    report_sha256: ColumnElement[str | None] = column(ForeignKey("artifacts.sha256", ondelete="RESTRICT"), index=True)
    wall_s: ColumnElement[float]
    profiled_at: ColumnElement[datetime]


class ProfileMetrics(Base):
    """A metric of a profile under perfsvc's own name; ``value`` is NULL if the profiler did not count it."""

    __tablename__ = "profile_metrics"

    profile_id: ColumnElement[int] = column(ForeignKey("profiles.id", ondelete="CASCADE"), primary_key=True)
    name: ColumnElement[str] = column(primary_key=True)
    value: ColumnElement[float | None]


class ProfileRules(Base):
    """The result of a profiler rule; ``speedup`` is its estimate of the share of the time that could be saved."""

    __tablename__ = "profile_rules"

    profile_id: ColumnElement[int] = column(ForeignKey("profiles.id", ondelete="CASCADE"), primary_key=True)
    number: ColumnElement[int] = column(primary_key=True)
    name: ColumnElement[str]
    message: ColumnElement[str]
    speedup: ColumnElement[float | None]


class Explanations(Base):
    """Why a case takes longer in a run than in its baseline run; ``reasons`` is JSON: the reasons with their lines."""

    __tablename__ = "explanations"
    __table_args__ = (Index(None, "case_id", "device_id", "run_id"),)

    id: ColumnElement[Key]
    run_id: ColumnElement[int] = column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    baseline_run_id: ColumnElement[int | None] = column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    case_id: ColumnElement[int] = column(ForeignKey("cases.id", ondelete="RESTRICT"))
    device_id: ColumnElement[int] = column(ForeignKey("devices.id", ondelete="RESTRICT"))
    baseline_profile_id: ColumnElement[int | None] = column(ForeignKey("profiles.id", ondelete="SET NULL"), index=True)
    candidate_profile_id: ColumnElement[int | None] = column(ForeignKey("profiles.id", ondelete="SET NULL"), index=True)
    sentence: ColumnElement[str]
    reasons: ColumnElement[str]
    factor: ColumnElement[float | None]
    reason: ColumnElement[str]
    explained_at: ColumnElement[datetime]


class Checks(Base):
    """One execution of ``perfsvc check``; ``accepted`` is why a person made this check the baseline, else empty."""

    __tablename__ = "checks"
    __table_args__ = ({"sqlite_autoincrement": True},)  # people write the numbers down: a number is never used again

    id: ColumnElement[Key]
    uid: ColumnElement[Uid]
    checked_at: ColumnElement[datetime]
    suite: ColumnElement[str]
    scope: ColumnElement[str] = column(index=True)
    command_line: ColumnElement[str]
    git_commit: ColumnElement[str] = column(index=True)
    git_dirty: ColumnElement[bool]
    git_branch: ColumnElement[str]
    host: ColumnElement[str]
    perfsvc_version: ColumnElement[str]
    toolkit: ColumnElement[str]
    disassembler: ColumnElement[str]
    accepted: ColumnElement[str]


class KernelFacts(Base):
    """The static facts of a kernel, stored once for all checks; ``digest`` is the SHA-256 of the facts."""

    __tablename__ = "facts"

    id: ColumnElement[Key]
    digest: ColumnElement[str] = column(unique=True)
    registers: ColumnElement[int]
    stack_bytes: ColumnElement[int]
    spill_store_bytes: ColumnElement[int]
    spill_load_bytes: ColumnElement[int]
    shared_bytes: ColumnElement[int]
    barriers: ColumnElement[int]
    instructions: ColumnElement[str | None]
    sass: ColumnElement[str]


class CheckedKernels(Base):
    """A kernel of a case for an architecture in a check, and its verdict.

    ``level`` is true if later checks are compared with this row. ``kernel`` is empty if the case has no kernel.
    """

    __tablename__ = "checked_kernels"
    __table_args__ = (Index(None, "case_id", "architecture", "check_id"),)

    check_id: ColumnElement[int] = column(ForeignKey("checks.id", ondelete="CASCADE"), primary_key=True)
    case_id: ColumnElement[int] = column(ForeignKey("cases.id", ondelete="RESTRICT"), primary_key=True)
    architecture: ColumnElement[str] = column(primary_key=True)
    kernel: ColumnElement[str] = column(primary_key=True)
    status: ColumnElement[Status]
    reason: ColumnElement[str]
    facts_id: ColumnElement[int | None] = column(ForeignKey("facts.id", ondelete="RESTRICT"), index=True)
    threads: ColumnElement[int]
    dynamic_shared_bytes: ColumnElement[int]
    warps: ColumnElement[int | None]
    most_warps: ColumnElement[int | None]
    limiter: ColumnElement[Limiter | None]
    source: ColumnElement[str]
    verdict: ColumnElement[Verdict | None]
    verdict_reason: ColumnElement[str]
    cause: ColumnElement[Cause | None]
    baseline_check_id: ColumnElement[int | None] = column(ForeignKey("checks.id", ondelete="SET NULL"), index=True)
    level: ColumnElement[bool]
