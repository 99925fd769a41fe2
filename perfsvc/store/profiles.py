"""Profiles of stored binaries, and the explanations derived from them.

Profiler reports are stored as artifacts. A report has all launches of a profiling session, so it is shared by the
profiles of this session, and stays as long as one of them needs it.
"""

import zlib
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, insert, select

from perfsvc.errors import NotMeasuredError
from perfsvc.model import (
    Case,
    CaseExplanation,
    Instruction,
    Profile,
    ProfiledKernel,
    ProfileResult,
    ProfilerRule,
    Reason,
    codec,
    digest,
)
from perfsvc.store.binaries import put_artifact
from perfsvc.store.cases import case_id, case_of, device_id, id_of_name, with_case
from perfsvc.store.schema.base import from_row, to_row
from perfsvc.store.schema.code_tables import Explanations, ProfileMetrics, ProfileRules, Profiles
from perfsvc.store.schema.column_types import number, stored
from perfsvc.store.schema.engine import StorePart, among, new_id
from perfsvc.store.schema.tables import Artifacts, Devices

REPORT = "report"
"""The kind of artifact under which a profiler's report is stored."""


class ProfileStore(StorePart):
    """Profiles; each method is one transaction."""

    def put(self, results: Sequence[ProfileResult], report: bytes | None = None) -> list[int]:
        """Store the results of profiling binaries in one session, with the session's report, and return their numbers.

        The runs and the devices of the results are in the database already.
        """
        with self._database.writing() as connection:
            if report is not None and results:
                put_artifact(connection, digest(report), REPORT, report)
            sha256 = None if report is None else digest(report)
            return [_put(connection, result, sha256) for result in results]

    def of_binary(self, binary: int) -> list[ProfileResult]:
        """Return the successful profiles of a binary, from any run, newest first."""
        with self._database.reading() as connection:
            return _profiles(connection, Profiles.binary_id == binary)

    def get(self, numbers: Collection[int]) -> dict[int, ProfileResult]:
        """Return successful profiles by their numbers; profiles that are no longer stored are absent."""
        with self._database.reading() as connection:
            found = _profiles(connection, among(Profiles.id, numbers)) if numbers else []
        return {result.id: result for result in found if result.id is not None}

    def failed(self, device: str) -> set[int]:
        """Return the binaries that could not be profiled when they were last profiled on a device."""
        newest = (
            select(func.max(Profiles.id))
            .join(Devices, Devices.id == Profiles.device_id)
            .where(Devices.uuid == device, Profiles.binary_id.is_not(None))
            .group_by(Profiles.binary_id)
        )
        query = select(Profiles.binary_id).where(Profiles.id.in_(newest), Profiles.reason != "")
        with self._database.reading() as connection:
            return {binary for binary in connection.scalars(query) if binary is not None}

    def report(self, profile: int) -> bytes:
        """Return the profiler's report of a profile; raises ``NotMeasuredError`` if none is stored."""
        query = select(Artifacts.content).join(Profiles, Profiles.report_sha256 == Artifacts.sha256)
        with self._database.reading() as connection:
            content = connection.scalar(query.where(Profiles.id == profile))
        if content is None:
            raise NotMeasuredError(f"there is no report of profile {profile}", cure="perfsvc profile makes one")
        return zlib.decompress(content)

    def put_explanation(self, explanation: CaseExplanation) -> None:
        """Add an explanation of a slower case; earlier explanations of the case stay."""
        baseline, candidate = explanation.profiles
        with self._database.writing() as connection:
            row = to_row(Explanations, explanation) | {
                "run_id": explanation.candidate_run,
                "case_id": case_id(connection, explanation.case),
                "device_id": device_id(connection, explanation.device),
                "baseline_profile_id": baseline,
                "candidate_profile_id": candidate,
                "reasons": codec.encode(explanation.reasons).decode(),
                "explained_at": datetime.now(UTC),
            }
            new_id(connection, Explanations, row)

    def explanations(self, run: int) -> list[CaseExplanation]:
        """Return the explanations of a run's slower cases, oldest first."""
        of_run = with_case(Explanations).where(Explanations.run_id == run)
        with self._database.reading() as connection:
            return _explanations(connection, of_run)

    def explanations_of(self, case: str) -> list[CaseExplanation]:
        """Return the explanations of a case, by its present or a former name, oldest run first.

        Raises ``NotMeasuredError`` if the case is unknown.
        """
        with self._database.reading() as connection:
            of_case = with_case(Explanations).where(Explanations.case_id == id_of_name(connection, case))
            return _explanations(connection, of_case)


def _put(connection: Connection, result: ProfileResult, report_sha256: str | None) -> int:
    """Store the result of profiling a binary, and return the number of the profile."""
    profile = result.profile
    row = to_row(Profiles, result) | {
        "case_id": case_id(connection, result.case),
        "device_id": device_id(connection, result.device),
        "kernel": profile.kernel if profile else "",
        "chip": profile.chip if profile else "",
        "profiler_version": profile.ncu_version if profile else "",
        "instructions": _compressed(profile.instructions) if profile else None,
        "kernels": _compressed(profile.kernels) if profile else None,
        "report_sha256": report_sha256,
        "profiled_at": datetime.now(UTC),
    }
    profile_id = new_id(connection, Profiles, row)
    metrics = profile.metrics if profile else {}
    rows = [{"profile_id": profile_id, "name": name, "value": number(value)} for name, value in metrics.items()]
    if rows:
        connection.execute(insert(ProfileMetrics), rows)
    rules = [
        to_row(ProfileRules, rule) | {"profile_id": profile_id, "number": index}
        for index, rule in enumerate(profile.rules if profile else ())
    ]
    if rules:
        connection.execute(insert(ProfileRules), rules)
    return profile_id


def _profiles(connection: Connection, where: ColumnElement[bool]) -> list[ProfileResult]:
    """Return the successful profiles that meet a condition, with their metrics and rules, newest first."""
    successful = with_case(Profiles).where(where, Profiles.reason == "")
    rows = connection.execute(successful.order_by(Profiles.id.desc())).all()
    numbers = [row.id for row in rows]
    metrics: dict[int, dict[str, float | None]] = defaultdict(dict)
    query_metrics = select(ProfileMetrics).where(among(ProfileMetrics.profile_id, numbers))
    for metric in connection.execute(query_metrics):
        metrics[metric.profile_id][metric.name] = metric.value
    rules: dict[int, list[ProfilerRule]] = defaultdict(list)
    query = select(ProfileRules).where(among(ProfileRules.profile_id, numbers)).order_by(ProfileRules.number)
    for rule in connection.execute(query):
        rules[rule.profile_id].append(ProfilerRule(rule.name, rule.message, rule.speedup))
    return [
        from_row(
            ProfileResult,
            row,
            case=case_of(row.benchmark, row.variant, row.point, row.version),
            device=row.uuid,
            device_model=row.model,
            profile=Profile(
                row.kernel,
                metrics[row.id],
                tuple(rules[row.id]),
                row.model,
                row.chip,
                row.profiler_version,
                stored(
                    tuple[Instruction, ...],
                    "[]" if row.instructions is None else row.instructions,
                    f"the instructions of profile {row.id}",
                ),
                stored(
                    tuple[ProfiledKernel, ...],
                    "[]" if row.kernels is None else row.kernels,
                    f"the kernels of profile {row.id}",
                ),
            ),
        )
        for row in rows
    ]


def _compressed(items: tuple[Instruction, ...] | tuple[ProfiledKernel, ...]) -> bytes | None:
    """Return instructions or kernels as the database stores them; None if there are none."""
    return zlib.compress(codec.encode(items)) if items else None


def _explanations(connection: Connection, query: Select[Any]) -> list[CaseExplanation]:
    """Return the explanations that a query with the columns of their cases selects, oldest run first."""
    return [
        explanation_of(row, case_of(row.benchmark, row.variant, row.point, row.version), row.uuid, row.model)
        for row in connection.execute(query.order_by(Explanations.run_id, Explanations.id))
    ]


def explanation_of(row: Any, case: Case, device: str, device_model: str) -> CaseExplanation:
    """Return the explanation in a row of ``explanations``."""
    return from_row(
        CaseExplanation,
        row,
        case=case,
        device=device,
        device_model=device_model,
        candidate_run=row.run_id,
        reasons=stored(tuple[Reason, ...], row.reasons, f"the list of reasons of explanation {row.id}"),
        profiles=(row.baseline_profile_id, row.candidate_profile_id),
    )
