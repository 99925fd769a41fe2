"""Profiles of stored binaries, and what they say of a change; the profiler's reports lie among the artifacts."""

import zlib
from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, insert, select

from perfsvc.errors import NotMeasuredError
from perfsvc.model import CaseExplanation, Profile, ProfileResult, ProfilerRule, digest
from perfsvc.store.binaries import put_artifact
from perfsvc.store.cases import case_id, case_of, device_id, lineage_of
from perfsvc.store.schema.code_tables import Explanations, ProfileMetrics, ProfileRules, Profiles
from perfsvc.store.schema.column_types import number
from perfsvc.store.schema.engine import Database, new_id
from perfsvc.store.schema.tables import Artifacts, Cases, Devices

REPORT = "report"
"""The kind of the artifact that a profiler's report is."""


class ProfileStore:
    """Profiles of binaries and explanations of changes; each method is one transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, profiled: ProfileResult, report: bytes | None = None) -> int:
        """Stores what came of a profile, and the profiler's own report of it; returns its number.

        Its run and device must be there.
        """
        with self._database.writing() as connection:
            return _put(connection, profiled, report)

    def of_run(self, run: int) -> list[ProfileResult]:
        """What profilers saw of a run's binaries, in the order in which they looked, failures included."""
        with self._database.reading() as connection:
            return _profiles(connection, Profiles.run_id == run)

    def of_binary(self, binary: int) -> list[ProfileResult]:
        """What profilers counted of a binary, whatever run it was asked for, newest first."""
        with self._database.reading() as connection:
            return _profiles(connection, Profiles.binary_id == binary, Profiles.reason == "")[::-1]

    def report(self, number: int) -> bytes:
        """The report of a profile as the profiler wrote it; raises ``NotMeasuredError`` where there is none."""
        with self._database.reading() as connection:
            return _report(connection, number)

    def put_explanation(self, explained: CaseExplanation) -> None:
        """Stores why a case takes longer, beside what was stored of it before; runs and device must be there."""
        with self._database.writing() as connection:
            _put_explained(connection, explained)

    def explanations(self, run: int) -> list[CaseExplanation]:
        """Why cases of a run take longer, in the order in which that was found out."""
        with self._database.reading() as connection:
            return _explained(connection, Explanations.run_id == run)

    def explanations_of(self, case: str) -> list[CaseExplanation]:
        """The same of a case by any of its names, of all runs, oldest run first.

        Raises ``NotMeasuredError`` where the case is unknown.
        """
        with self._database.reading() as connection:
            return _explained(connection, Cases.lineage_id == lineage_of(connection, case))


def _put(connection: Connection, profiled: ProfileResult, report: bytes | None) -> int:
    profile = profiled.profile
    if report is not None:
        put_artifact(connection, digest(report), REPORT, report)
    row = {
        "run_id": profiled.run,
        "case_id": case_id(connection, profiled.case),
        "device_id": device_id(connection, profiled.device),
        "binary_id": profiled.binary,
        "profiler": profiled.profiler,
        "sections": profiled.sections,
        "kernel": profile.kernel if profile else "",
        "launch": profiled.launch,
        "chip": profile.chip if profile else "",
        "profiler_version": profile.ncu_version if profile else "",
        "reason": profiled.reason,
        "cure": profiled.cure,
        "report_sha256": None if report is None else digest(report),
        "wall_s": profiled.wall_s,
        "profiled_at": datetime.now(UTC),
    }
    stored = new_id(connection, Profiles, row)
    if profile and profile.metrics:
        rows = [{"profile_id": stored, "name": name, "value": number(one)} for name, one in profile.metrics.items()]
        connection.execute(insert(ProfileMetrics), rows)
    if profile and profile.rules:
        connection.execute(insert(ProfileRules), [_rule_row(stored, *rule) for rule in enumerate(profile.rules)])
    return stored


def _rule_row(profile: int, place: int, rule: ProfilerRule) -> dict[str, Any]:
    return {
        "profile_id": profile,
        "number": place,
        "name": rule.name,
        "message": rule.message,
        "speedup": number(rule.speedup),
    }


def _placed(of: Any) -> Select[Any]:
    """A query of rows with their case and device."""
    return (
        select(of, Cases.benchmark, Cases.variant, Cases.point, Cases.version, Devices.uuid, Devices.model)
        .join(Cases, Cases.id == of.case_id)
        .join(Devices, Devices.id == of.device_id)
    )


def _profiles(connection: Connection, *where: ColumnElement[bool]) -> list[ProfileResult]:
    rows = connection.execute(_placed(Profiles).where(*where).order_by(Profiles.id)).all()
    numbers = [row.id for row in rows]
    metrics, rules = _metrics(connection, numbers), _rules(connection, numbers)
    return [_profiled(row, metrics[row.id], tuple(rules[row.id])) for row in rows]


def _metrics(connection: Connection, numbers: Collection[int]) -> Mapping[int, dict[str, float | None]]:
    found: dict[int, dict[str, float | None]] = defaultdict(dict)
    query = select(ProfileMetrics.profile_id, ProfileMetrics.name, ProfileMetrics.value)
    for profile, name, value in connection.execute(query.where(ProfileMetrics.profile_id.in_(numbers))):
        found[profile][name] = value
    return found


def _rules(connection: Connection, numbers: Collection[int]) -> Mapping[int, list[ProfilerRule]]:
    found: dict[int, list[ProfilerRule]] = defaultdict(list)
    query = select(ProfileRules).where(ProfileRules.profile_id.in_(numbers)).order_by(ProfileRules.number)
    for row in connection.execute(query):
        found[row.profile_id].append(ProfilerRule(row.name, row.message, row.speedup))
    return found


def _profiled(row: Any, metrics: Mapping[str, float | None], rules: tuple[ProfilerRule, ...]) -> ProfileResult:
    seen = Profile(row.kernel, metrics, rules, row.model, row.chip, row.profiler_version)
    return ProfileResult(
        case_of(row.benchmark, row.variant, row.point, row.version),
        run=row.run_id,
        binary=row.binary_id,
        device=row.uuid,
        device_model=row.model,
        profiler=row.profiler,
        sections=row.sections,
        profile=None if row.reason else seen,
        launch=row.launch,
        reason=row.reason,
        cure=row.cure,
        wall_s=row.wall_s,
        id=row.id,
    )


def _report(connection: Connection, profile: int) -> bytes:
    query = select(Artifacts.content).join(Profiles, Profiles.report_sha256 == Artifacts.sha256)
    content = connection.scalar(query.where(Profiles.id == profile))
    if content is None:
        raise NotMeasuredError(f"there is no report of a profile {profile}", cure="perfsvc profile makes one")
    return zlib.decompress(content)


def _put_explained(connection: Connection, explained: CaseExplanation) -> None:
    baseline, candidate = explained.profiles
    row = {
        "run_id": explained.candidate_run,
        "baseline_run_id": explained.baseline_run,
        "case_id": case_id(connection, explained.case),
        "device_id": device_id(connection, explained.device),
        "baseline_profile_id": baseline,
        "candidate_profile_id": candidate,
        "sentence": explained.sentence,
        "evidence": "\n".join(explained.evidence),
        "factor": number(explained.factor),
        "reason": explained.reason,
        "explained_at": datetime.now(UTC),
    }
    new_id(connection, Explanations, row)


def _explained(connection: Connection, *where: ColumnElement[bool]) -> list[CaseExplanation]:
    query = _placed(Explanations).where(*where).order_by(Explanations.run_id, Explanations.id)
    return [
        CaseExplanation(
            case_of(row.benchmark, row.variant, row.point, row.version),
            device=row.uuid,
            device_model=row.model,
            baseline_run=row.baseline_run_id,
            candidate_run=row.run_id,
            sentence=row.sentence,
            evidence=tuple(row.evidence.split("\n")) if row.evidence else (),
            factor=row.factor,
            reason=row.reason,
            profiles=(row.baseline_profile_id, row.candidate_profile_id),
        )
        for row in connection.execute(query)
    ]
