"""The tables of profiles, explanations and static checks."""

from datetime import datetime

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from perfsvc.model import Cause, Limiter, Status, Verdict
from perfsvc.store.schema.tables import Base, Free, Key, Uid


class Profiles(Base):
    """A profile of a binary in a run; ``reason`` is why the profiler failed, empty if it did not.

    ``instructions`` is JSON, compressed with zlib: the instructions of the kernel with what was counted at each.
    ``kernels`` is in the same form: all kernels with their times, if several were profiled together.
    """

    __tablename__ = "profiles"
    __table_args__ = (Index(None, "case_id", "device_id", "run_id"),)

    id: Mapped[Key]
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    case_id: Mapped[int] = mapped_column(ForeignKey("cases.id", ondelete="RESTRICT"))
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id", ondelete="RESTRICT"))
    binary_id: Mapped[int | None] = mapped_column(ForeignKey("binaries.id", ondelete="SET NULL"), index=True)
    profiler: Mapped[str]
    sections: Mapped[str]
    kernel: Mapped[Free]
    launch: Mapped[int | None]
    chip: Mapped[str]
    profiler_version: Mapped[str]
    reason: Mapped[Free]
    cure: Mapped[Free]
    instructions: Mapped[bytes | None]
    kernels: Mapped[bytes | None]
    report_sha256: Mapped[str | None] = mapped_column(ForeignKey("artifacts.sha256", ondelete="RESTRICT"), index=True)
    wall_s: Mapped[float]
    profiled_at: Mapped[datetime]


class ProfileMetrics(Base):
    """A metric of a profile under perfsvc's own name; ``value`` is NULL if the profiler did not count it."""

    __tablename__ = "profile_metrics"

    profile_id: Mapped[int] = mapped_column(ForeignKey("profiles.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[float | None]


class ProfileRules(Base):
    """The result of a profiler rule; ``speedup`` is its estimate of the share of the time that could be saved."""

    __tablename__ = "profile_rules"

    profile_id: Mapped[int] = mapped_column(ForeignKey("profiles.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]
    message: Mapped[Free]
    speedup: Mapped[float | None]


class Explanations(Base):
    """Why a case takes longer in a run than in its baseline run; ``reasons`` is JSON: the reasons with their lines."""

    __tablename__ = "explanations"
    __table_args__ = (Index(None, "case_id", "device_id", "run_id"),)

    id: Mapped[Key]
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), index=True)
    baseline_run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id", ondelete="SET NULL"), index=True)
    case_id: Mapped[int] = mapped_column(ForeignKey("cases.id", ondelete="RESTRICT"))
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id", ondelete="RESTRICT"))
    baseline_profile_id: Mapped[int | None] = mapped_column(ForeignKey("profiles.id", ondelete="SET NULL"), index=True)
    candidate_profile_id: Mapped[int | None] = mapped_column(ForeignKey("profiles.id", ondelete="SET NULL"), index=True)
    sentence: Mapped[Free]
    reasons: Mapped[str]
    factor: Mapped[float | None]
    reason: Mapped[Free]
    explained_at: Mapped[datetime]


class Checks(Base):
    """One execution of ``perfsvc check``; ``accepted`` is why a person made this check the baseline, else empty."""

    __tablename__ = "checks"
    __table_args__ = ({"sqlite_autoincrement": True},)  # people write the numbers down: a number is never used again

    id: Mapped[Key]
    uid: Mapped[Uid]
    checked_at: Mapped[datetime]
    suite: Mapped[Free]
    scope: Mapped[Free] = mapped_column(index=True)
    command_line: Mapped[Free]
    git_commit: Mapped[str] = mapped_column(index=True)
    git_dirty: Mapped[bool]
    git_branch: Mapped[str]
    host: Mapped[str]
    perfsvc_version: Mapped[str]
    toolkit: Mapped[str]
    disassembler: Mapped[str]
    accepted: Mapped[Free]


class KernelFacts(Base):
    """The static facts of a kernel, stored once for all checks; ``digest`` is the SHA-256 of the facts."""

    __tablename__ = "facts"

    id: Mapped[Key]
    digest: Mapped[str] = mapped_column(unique=True)
    registers: Mapped[int]
    stack_bytes: Mapped[int]
    spill_store_bytes: Mapped[int]
    spill_load_bytes: Mapped[int]
    shared_bytes: Mapped[int]
    barriers: Mapped[int]
    instructions: Mapped[str | None]
    sass: Mapped[str]


class CheckedKernels(Base):
    """A kernel of a case for an architecture in a check, and its verdict.

    ``level`` is true if later checks are compared with this row. ``kernel`` is empty if the case has no kernel.
    """

    __tablename__ = "checked_kernels"
    __table_args__ = (Index(None, "case_id", "architecture", "check_id"),)

    check_id: Mapped[int] = mapped_column(ForeignKey("checks.id", ondelete="CASCADE"), primary_key=True)
    case_id: Mapped[int] = mapped_column(ForeignKey("cases.id", ondelete="RESTRICT"), primary_key=True)
    architecture: Mapped[str] = mapped_column(primary_key=True)
    kernel: Mapped[str] = mapped_column(primary_key=True)
    status: Mapped[Status]
    reason: Mapped[Free]
    facts_id: Mapped[int | None] = mapped_column(ForeignKey("facts.id", ondelete="RESTRICT"), index=True)
    threads: Mapped[int]
    dynamic_shared_bytes: Mapped[int]
    warps: Mapped[int | None]
    most_warps: Mapped[int | None]
    limiter: Mapped[Limiter | None]
    source: Mapped[str]
    verdict: Mapped[Verdict | None]
    verdict_reason: Mapped[Free]
    cause: Mapped[Cause | None]
    baseline_check_id: Mapped[int | None] = mapped_column(ForeignKey("checks.id", ondelete="SET NULL"), index=True)
    level: Mapped[bool]
