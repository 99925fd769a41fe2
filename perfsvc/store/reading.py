"""What comes out of measurements: levels, histories, verdicts, binaries and the analyst's columns.

Each function reads in bulk: a handful of statements, however many rows there are.
"""

import zlib
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, select, tuple_

from perfsvc.errors import DatabaseError, NotMeasuredError, UsageError
from perfsvc.model import MAX_ERROR, TIME, Case, Estimate, Judgement, Level, ReplayRecord, Series, Status, digest
from perfsvc.model.codec import decode
from perfsvc.store.interning import case_of, namesakes_of
from perfsvc.store.lookup import lineage_of, run
from perfsvc.store.naming import of_cases, present_cases
from perfsvc.store.rows import CaseInRun
from perfsvc.store.samples import unpack
from perfsvc.store.tables import Artifacts, Binaries, BinaryFiles, Cases, Devices, Measurements, Metrics, Runs, Verdicts

Record = Any
"""A row of the query at hand, its columns by name."""


def levels(connection: Connection, number: int) -> dict[Series, Level]:
    """All series of a run under the present names of their cases; see ``Store.levels``."""
    of_run = {"run": number}
    rows = connection.execute(_measured(OF_RUN), of_run).all()
    if not rows:
        run(connection, number)  # one that does not exist is an error, an empty one is not
    return _levels(rows, _metrics(connection, OF_RUN, of_run))


def levels_of(connection: Connection, runs: Mapping[Series, int]) -> dict[Series, Level]:
    """Each of some series in a run of its own; see ``Store.levels_of``."""
    places = places_of(connection, {(number, one.case) for one, number in runs.items()})
    if not places:
        return {}
    rows = connection.execute(_measured(OF_PLACES), places).all()
    values = _metrics(connection, OF_PLACES, places)
    wanted: dict[int, set[Series]] = defaultdict(set)
    for one, number in runs.items():
        wanted[number].add(one)
    found = {number: _levels(of_run, values, wanted[number]) for number, of_run in by_run(rows)}
    return {one: found[number][one] for one, number in runs.items() if one in found.get(number, ())}


OF_RUN = Measurements.run_id == bindparam("run")
"""The measurements of a run."""


def _among(name: str) -> Any:
    """Ids as they are: parameters may be no more than some ten thousand."""
    return bindparam(name, expanding=True, literal_execute=True)


OF_PLACES = and_(
    tuple_(Measurements.run_id, Measurements.case_id).in_(_among("places")),
    # SQLite seeks no pairs by an index, but what either of them may be.
    Measurements.run_id.in_(_among("runs")),
    Measurements.case_id.in_(_among("cases")),
)
"""The measurements of some cases, each in a run of its own: of ``places_of``."""


def places_of(connection: Connection, wanted: Collection[tuple[int, Case]]) -> dict[str, Any]:
    """What ``OF_PLACES`` is asked with: some cases, each in a run, by all their names; empty where none is stored."""
    names = namesakes_of(connection, {case for _, case in wanted}) if wanted else {}
    places = {(number, name) for number, case in wanted for name in names.get(case, ())}
    if not places:
        return {}
    runs, cases = zip(*places, strict=True)
    return {"places": list(places), "runs": list(set(runs)), "cases": list(set(cases))}


def by_run(rows: Iterable[Record]) -> Iterator[tuple[int, list[Record]]]:
    """The rows of each run, in their order."""
    run_of = attrgetter("run_id")
    return ((number, list(of_run)) for number, of_run in groupby(sorted(rows, key=run_of), run_of))


@cache
def _measured(which: ColumnElement[bool]) -> Any:
    """Some measurements; as the other queries of what every night reads, built once."""
    return (
        of_cases(
            Measurements,
            Measurements.id,
            Measurements.run_id,
            Measurements.status,
            Measurements.reason,
            Measurements.samples,
            Measurements.median_s,
            Measurements.max_error,
        )
        .where(which)
        .order_by(Measurements.replica)
    )


@cache
def _named_values(which: ColumnElement[bool]) -> Any:
    """The metrics of some measurements."""
    return (
        select(Metrics.measurement_id, Metrics.name, Metrics.value)
        .join(Measurements, Measurements.id == Metrics.measurement_id)
        .where(which)
        .order_by(Metrics.measurement_id, Metrics.name)
    )


@cache
def _judged() -> Any:
    """The verdicts on a run."""
    return (
        select(Verdicts, Cases.benchmark, Cases.variant, Cases.point, Cases.version, Devices.uuid, Devices.model)
        .join(Cases, Cases.id == Verdicts.case_id)
        .join(Devices, Devices.id == Verdicts.device_id)
        .where(Verdicts.run_id == bindparam("run"))
        .order_by(Verdicts.case_id, Verdicts.device_id, Verdicts.metric, Verdicts.cache)
    )


def _metrics(
    connection: Connection, which: ColumnElement[bool], asked: Mapping[str, Any]
) -> dict[int, dict[str, float]]:
    """The named values of some measurements; what was not a number is left out."""
    values: dict[int, dict[str, float]] = defaultdict(dict)
    for measurement, name, value in connection.execute(_named_values(which), asked):
        if value is not None:
            values[measurement][name] = value
    return values


def _levels(
    rows: Sequence[Record], values: Mapping[int, Mapping[str, float]], wanted: Container[Series] | None = None
) -> dict[Series, Level]:
    """The levels of one run's series, or of those that are wanted, by the rows of all names of their cases."""
    cases = present_cases(rows)
    found: dict[Series, Level] = {}
    for (case, uuid, cache_state), group in groupby(rows, attrgetter("case_id", "uuid", "cache")):
        replicas = list(group)
        worst = max(replicas, key=lambda row: row.status.severity)
        held = _held(replicas, values) if worst.status is Status.OK else {TIME: []}
        for metric, of_metric in held.items():
            series = Series(cases[case], uuid, worst.model, metric, cache_state)
            if wanted is None or series in wanted:
                told = tuple(samples_of(one, series.case) if isinstance(one, bytes) else (one,) for one in of_metric)
                reason = "" if worst.status is Status.OK else worst.reason
                found[series] = Level(worst.run_id, worst.status, reason, told)
    return found


def _held(replicas: Sequence[Record], values: Mapping[int, Mapping[str, float]]) -> dict[str, list[bytes | float]]:
    """What each metric of a case has of each replica: a value, or a blob of samples."""
    held: dict[str, list[bytes | float]] = defaultdict(list)
    for row in replicas:
        time = row.median_s if row.samples is None else row.samples  # its samples may have been pruned
        if time is not None:
            held[TIME].append(time)
        if row.max_error is not None:
            held[MAX_ERROR].append(row.max_error)
        for metric, value in values.get(row.id, {}).items():
            held[metric].append(value)
    return held


def samples_of(blob: bytes, case: Case) -> tuple[float, ...]:
    """A case's samples; raises ``DatabaseError`` where the blob is damaged."""
    try:
        return unpack(blob)
    except (zlib.error, ValueError) as error:
        raise damaged(f"a blob of samples of {case.id}") from error


def history(connection: Connection, case_id: str, device: str | None) -> list[CaseInRun]:
    """A case's runs, oldest first, through all names of its lineage."""
    query = (
        select(
            Measurements.run_id,
            Measurements.cache,
            Measurements.status,
            Measurements.reason,
            Measurements.median_s,
            Measurements.low_s,
            Measurements.high_s,
            Measurements.sample_count,
            Cases.name,
            Devices.uuid,
            Devices.model,
            Runs.started_at,
            Runs.git_commit,
            Runs.git_dirty,
            Runs.label,
        )
        .join(Cases, Cases.id == Measurements.case_id)
        .join(Devices, Devices.id == Measurements.device_id)
        .join(Runs, Runs.id == Measurements.run_id)
        .where(Cases.lineage_id == lineage_of(connection, case_id))
        .order_by(Measurements.run_id, Devices.uuid, Measurements.cache, Cases.id, Measurements.replica)
    )
    rows = connection.execute(query if device is None else query.where(Devices.uuid == device))
    groups = groupby(rows, lambda row: (row.run_id, row.uuid, row.cache, row.name))
    return [_case_in_run(list(group)) for _, group in groups]


def _case_in_run(replicas: Sequence[Record]) -> CaseInRun:
    first = replicas[0]
    worst = max(replicas, key=lambda row: row.status.severity)
    timed = [row for row in replicas if row.median_s is not None] if worst.status is Status.OK else []
    return CaseInRun(
        run=first.run_id,
        started=first.started_at,
        commit=first.git_commit,
        dirty=first.git_dirty,
        label=first.label,
        case=first.name,
        device=first.uuid,
        device_model=first.model,
        cache=first.cache,
        status=worst.status,
        reason="" if worst.status is Status.OK else worst.reason,
        replicas=sum(row.status is Status.OK for row in replicas),
        times=tuple(Estimate(row.median_s, row.low_s, row.high_s, row.sample_count) for row in timed),
    )


def verdicts(connection: Connection, number: int) -> list[Judgement]:
    """What was judged of a run when it ended."""
    return [
        Judgement(
            Series(
                case_of(row.benchmark, row.variant, row.point, row.version), row.uuid, row.model, row.metric, row.cache
            ),
            row.verdict,
            reason=row.reason,
            ratio=row.ratio,
            low=row.low,
            high=row.high,
            baseline_run=row.baseline_run_id,
            candidate_run=number,
            baseline_s=row.baseline_s,
            candidate_s=row.candidate_s,
            smallest=row.smallest,
            baseline_replicas=row.baseline_replicas,
            candidate_replicas=row.candidate_replicas,
            cause=row.cause,
        )
        for row in connection.execute(_judged(), {"run": number})
    ]


def replay(
    connection: Connection, case_id: str, number: int, device: str | None
) -> tuple[ReplayRecord, dict[str, bytes], bytes]:
    """The binary of a case as it ran in a run; see ``Store.replay``."""
    query = (
        select(Binaries.id, Binaries.record, Devices.uuid)
        .join(Measurements, Measurements.binary_id == Binaries.id)
        .join(Cases, Cases.id == Measurements.case_id)
        .join(Devices, Devices.id == Measurements.device_id)
        .where(Measurements.run_id == number, Cases.lineage_id == lineage_of(connection, case_id))
        .order_by(Cases.name != case_id, Measurements.id)
    )
    rows = connection.execute(query if device is None else query.where(Devices.uuid == device)).all()
    if not rows:
        where = f" on {device}" if device else ""
        raise NotMeasuredError(f"run {number} holds no binary of {case_id}{where}", cure=f"perfsvc show '{case_id}'")
    devices = {row.uuid: row.id for row in rows}
    if len(set(devices.values())) > 1 and device is None:
        raise UsageError(
            f"run {number} holds several binaries of {case_id}", cure=f"name one device of {list(devices)}"
        )
    try:
        record = decode(ReplayRecord, rows[0].record)
    except ValueError as error:
        raise damaged(f"the replay record of {case_id} in run {number}") from error
    files = _files(connection, rows[0].id)
    return record, {name: files[name] for name in record.modules}, files[record.bench]


def modules(connection: Connection, digests: Collection[str]) -> dict[str, bytes]:
    """The bytes of compiled modules by their digests; see ``Store.modules``."""
    query = select(Artifacts.sha256, Artifacts.content).where(Artifacts.sha256.in_(digests))
    return {sha256: _whole(sha256, content) for sha256, content in connection.execute(query)}


def _files(connection: Connection, binary: int) -> dict[str, bytes]:
    """A binary's modules and benchmark file by digest, each checked against it."""
    query = (
        select(Artifacts.sha256, Artifacts.content)
        .join(BinaryFiles, BinaryFiles.sha256 == Artifacts.sha256)
        .where(BinaryFiles.binary_id == binary, BinaryFiles.role != "source")
    )
    return {sha256: _whole(sha256, content) for sha256, content in connection.execute(query)}


def _whole(sha256: str, compressed: bytes) -> bytes:
    try:
        content = zlib.decompress(compressed)
    except zlib.error as error:
        raise damaged(f"the artifact {sha256}") from error
    if digest(content) != sha256:
        raise damaged(f"the artifact {sha256}")
    return content


def damaged(what: str) -> DatabaseError:
    """The error for what the database holds and cannot be read."""
    return DatabaseError(f"{what} is damaged in the database", cure="restore a backup (docs/reference/database.md)")
