"""What goes in: runs, binaries, measurements, verdicts. Each function works inside its caller's transaction."""

import platform
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select, update

from perfsvc.errors import NotMeasuredError
from perfsvc.model import Judgement, Provenance, digest
from perfsvc.model.codec import encode
from perfsvc.store import batches, processes, summaries
from perfsvc.store.columntypes import number
from perfsvc.store.interning import device_id, insert_into, insert_new, new_id
from perfsvc.store.known import Ids, Known
from perfsvc.store.rows import Code, Entry, State
from perfsvc.store.samples import pack
from perfsvc.store.tables import Artifacts, Binaries, BinaryFiles, Measurements, Metrics, Runs, Verdicts

_BINARIES = select(Binaries.digest, Binaries.id).where(Binaries.digest.in_(bindparam("digests", expanding=True)))
_TOLD_BY = ("case_id", "device_id", "replica", "cache")
"""By what a measurement is told from every other of its run."""
_NUMBERS = select(Measurements.id, *(getattr(Measurements, name) for name in _TOLD_BY)).where(
    Measurements.run_id == bindparam("run"), Measurements.case_id.in_(bindparam("cases", expanding=True))
)


def begin_run(connection: Connection, provenance: Provenance) -> int:
    """Stores a run as running and returns its id; ``host`` is this machine's name where provenance has none."""
    row = {
        "state": State.RUNNING,
        "started_at": provenance.started,
        "label": provenance.label,
        "suite": provenance.suite,
        "scope": provenance.scope,
        "command_line": provenance.command_line,
        "git_commit": provenance.commit,
        "git_dirty": provenance.dirty,
        "git_branch": provenance.branch,
        "host": provenance.host or platform.node(),
        "cpu": provenance.cpu,
        **processes.this_process(),
        "perfsvc_version": provenance.perfsvc_version,
        "python_version": provenance.python_version,
        "packages": dict(provenance.packages),
        "seed": provenance.seed,
        "replicas": provenance.replicas,
    }
    return new_id(connection, Runs, row)


def end_run(connection: Connection, run: int, state: State) -> None:
    """Stores how and when a run ended, and the summaries of what it measured."""
    ended = update(Runs).where(Runs.id == run).values(state=state, finished_at=datetime.now(UTC))
    if connection.execute(ended).rowcount == 0:
        raise NotMeasuredError(f"there is no run {run}", cure="perfsvc runs")
    summaries.put(connection, run)


def mark_interrupted(connection: Connection, host: str) -> list[int]:
    """Ends the runs of ``host`` (this machine) whose process died, and returns their ids."""
    running = select(Runs.id, Runs.pid, Runs.process_start).where(Runs.state == State.RUNNING, Runs.host == host)
    dead = [run for run, pid, start in connection.execute(running) if not processes.alive(pid, start)]
    for run in dead:
        end_run(connection, run, State.INTERRUPTED)
    return dead


def put_binaries(connection: Connection, codes: Sequence[Code]) -> list[int]:
    """Stores binaries, unless they are there, and returns their ids; see ``Store.put_binaries``."""
    texts = [encode(code.record) for code in codes]
    digests = [digest(text) for text in texts]
    stored = {name: int(number) for name, number in connection.execute(_BINARIES, {"digests": digests})}
    for name, text, code in zip(digests, texts, codes, strict=True):
        if name not in stored:
            stored[name] = _put_binary(connection, name, text, code)
    return [stored[name] for name in digests]


def _put_binary(connection: Connection, name: str, text: bytes, code: Code) -> int:
    """Stores a binary, unless another process does so at the same time, and returns its id."""
    record = code.record
    files = [("module", module, code.modules[module]) for module in dict.fromkeys(record.modules)]
    files += [("bench", record.bench, code.bench)]
    files += [("source", path, content) for path, content in code.sources.items()]
    for role, sha256, content in files:
        if role != "source" and digest(content) != sha256:
            raise ValueError(f"the {role} {sha256} of {record.case.id} has other bytes than its digest says")
    for sha256, role, content in sorted((digest(content), role, content) for role, _, content in files):
        put_artifact(connection, sha256, role, content)  # in one order everywhere, so that two writers cannot deadlock
    insert_new(connection, Binaries, {"digest": name, "record": text.decode()})
    binary = int(connection.execute(_BINARIES, {"digests": [name]}).one().id)
    for role, path, content in files:
        row = {"binary_id": binary, "role": role, "name": path, "sha256": digest(content)}
        insert_new(connection, BinaryFiles, row)
    return binary


def put_artifact(connection: Connection, sha256: str, kind: str, content: bytes) -> None:
    """Stores bytes by the digest of their content, unless they are there."""
    if connection.scalar(select(Artifacts.sha256).where(Artifacts.sha256 == sha256)) is None:
        row = {"sha256": sha256, "kind": kind, "size_bytes": len(content), "content": zlib.compress(content)}
        insert_new(connection, Artifacts, row)


def put_measurements(connection: Connection, run: int, entries: Sequence[Entry], ids: Sequence[Ids]) -> None:
    """Stores measurements with their batches and metrics, each under its ids; see ``Store.put_measurements``."""
    summaries.drop(connection, run)
    rows = [_row(run, entry, names) for entry, names in zip(entries, ids, strict=True)]
    stored = _insert(connection, run, rows)
    batches.put(connection, {measured: one.measurement.batches for measured, one in zip(stored, entries, strict=True)})
    metrics = [
        {"measurement_id": measured, "name": name, "value": number(value)}
        for measured, one in zip(stored, entries, strict=True)
        for name, value in one.measurement.metrics.items()
    ]
    if metrics:
        connection.execute(insert_into(Metrics), metrics)


def _insert(connection: Connection, run: int, rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Inserts measurements of a run and returns their ids, in their order.

    They are asked for afterwards: SQLite would tell them as it inserts, with a statement for each row. PostgreSQL pays
    a query for that.
    """
    if not rows:
        return []
    connection.execute(insert_into(Measurements), rows)
    found = connection.execute(_NUMBERS, {"run": run, "cases": list({row["case_id"] for row in rows})})
    stored = {tuple(place): int(number) for number, *place in found}
    return [stored[tuple(row[name] for name in _TOLD_BY)] for row in rows]


def _row(run: int, entry: Entry, ids: Ids) -> dict[str, Any]:
    measurement, work, estimate = entry.measurement, entry.work, entry.estimate
    return {
        "run_id": run,
        "case_id": ids.case,
        "device_id": ids.device,
        "environment_id": ids.environment,
        "binary_id": entry.binary,
        "replica": measurement.replica,
        "cache": measurement.cache,
        "status": measurement.status,
        "reason": measurement.reason,
        "cure": measurement.cure,
        "samples": pack(measurement.samples_s) if measurement.samples_s else None,
        "sample_count": len(measurement.samples_s),
        "median_s": number(estimate.median_s) if estimate else None,
        "low_s": number(estimate.low_s) if estimate else None,
        "high_s": number(estimate.high_s) if estimate else None,
        "max_error": number(measurement.max_error),
        "mean_error": number(measurement.mean_error),
        "read_bytes": work.read_bytes,
        "written_bytes": work.written_bytes,
        "flops": work.flops,
        "stopped": measurement.stopped,
        "wall_s": measurement.wall_s,
        "measured_at": datetime.now(UTC),
        "warmup": measurement.warmup,
        "note": measurement.note,
        "check_s": measurement.check_s,
        "sampling_s": measurement.sampling_s,
        "busy_s": measurement.busy_s,
        "variant_index": entry.variant_index,
        "relative_to": entry.relative_to,
        **batches.summary(measurement.batches),
    }


def put_verdicts(connection: Connection, run: int, judgements: Sequence[Judgement], known: Known) -> None:
    """Stores what was judged of a run, in place of what was stored of it before."""
    connection.execute(delete(Verdicts).where(Verdicts.run_id == run))
    cases = known.cases(connection, (judgement.series.case for judgement in judgements))
    devices = {uuid: device_id(connection, uuid) for uuid in {judgement.series.device for judgement in judgements}}
    rows = [
        {
            "run_id": run,
            "case_id": cases[judgement.series.case, judgement.series.case.formerly],
            "device_id": devices[judgement.series.device],
            "metric": judgement.series.metric,
            "cache": judgement.series.cache,
            "verdict": judgement.verdict,
            "reason": judgement.reason,
            "ratio": number(judgement.ratio),
            "low": number(judgement.low),
            "high": number(judgement.high),
            "baseline_run_id": judgement.baseline_run,
            "baseline_s": number(judgement.baseline_s),
            "candidate_s": number(judgement.candidate_s),
            "smallest": number(judgement.smallest),
            "baseline_replicas": judgement.baseline_replicas,
            "candidate_replicas": judgement.candidate_replicas,
            "cause": judgement.cause,
        }
        for judgement in judgements
    ]
    if rows:
        connection.execute(insert_into(Verdicts), rows)
