"""What goes in: runs, binaries, measurements, verdicts. Each function works inside its caller's transaction."""

import platform
import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from sqlalchemy import Connection, delete, select, update

from perfsvc.codec import encode
from perfsvc.errors import NotMeasuredError
from perfsvc.model import Estimate, Judgement, Measurement, Provenance, ReplayRecord, Work, digest
from perfsvc.store import batches, processes
from perfsvc.store.columntypes import number
from perfsvc.store.interning import case_id, device_id, insert_into, insert_new, new_id
from perfsvc.store.known import Ids
from perfsvc.store.rows import State
from perfsvc.store.samples import pack
from perfsvc.store.tables import Artifacts, Binaries, BinaryFiles, Measurements, Metrics, Runs, Verdicts


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
    """Stores how and when a run ended."""
    ended = update(Runs).where(Runs.id == run).values(state=state, finished_at=datetime.now(UTC))
    if connection.execute(ended).rowcount == 0:
        raise NotMeasuredError(f"there is no run {run}", cure="perfsvc runs")


def mark_interrupted(connection: Connection, host: str) -> list[int]:
    """Ends the runs of ``host`` (this machine) whose process died, and returns their ids."""
    running = select(Runs.id, Runs.pid, Runs.process_start).where(Runs.state == State.RUNNING, Runs.host == host)
    dead = [run for run, pid, start in connection.execute(running) if not processes.alive(pid, start)]
    for run in dead:
        end_run(connection, run, State.INTERRUPTED)
    return dead


def put_binary(
    connection: Connection,
    record: ReplayRecord,
    modules: Mapping[str, bytes],
    bench: bytes,
    sources: Mapping[str, bytes],
) -> int:
    """Stores a binary, unless it is there, and returns its id; see ``Store.put_binary``."""
    text = encode(record)
    known = select(Binaries.id).where(Binaries.digest == digest(text))
    binary = connection.scalar(known)
    if binary is not None:
        return binary
    files = [("module", name, modules[name]) for name in dict.fromkeys(record.modules)]
    files += [("bench", record.bench, bench)]
    files += [("source", name, content) for name, content in sources.items()]
    for role, name, content in files:
        if role != "source" and digest(content) != name:
            raise ValueError(f"the {role} {name} of {record.case.id} has other bytes than its digest says")
    for sha256, role, content in sorted((digest(content), role, content) for role, _, content in files):
        put_artifact(connection, sha256, role, content)  # in one order everywhere, so that two writers cannot deadlock
    insert_new(connection, Binaries, {"digest": digest(text), "record": text.decode()})
    binary = connection.execute(known).scalar_one()
    for role, name, content in files:
        row = {"binary_id": binary, "role": role, "name": name, "sha256": digest(content)}
        insert_new(connection, BinaryFiles, row)
    return binary


def put_artifact(connection: Connection, sha256: str, kind: str, content: bytes) -> None:
    """Stores bytes by the digest of their content, unless they are there."""
    if connection.scalar(select(Artifacts.sha256).where(Artifacts.sha256 == sha256)) is None:
        row = {"sha256": sha256, "kind": kind, "size_bytes": len(content), "content": zlib.compress(content)}
        insert_new(connection, Artifacts, row)


def put_measurement(
    connection: Connection,
    run: int,
    measurement: Measurement,
    *,
    ids: Ids,
    work: Work,
    estimate: Estimate | None,
    binary: int | None,
    rung: int | None,
    anchor: str,
) -> None:
    """Stores one measurement with its batches and metrics; see ``Store.put_measurement``."""
    row = {
        "run_id": run,
        "case_id": ids.case,
        "device_id": ids.device,
        "environment_id": ids.environment,
        "binary_id": binary,
        "replica": measurement.replica,
        "mode": measurement.mode,
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
        "rung": rung,
        "anchor": anchor,
        **batches.summary(measurement.batches),
    }
    stored = new_id(connection, Measurements, row)
    batches.put(connection, stored, measurement.batches)
    metrics = [
        {"measurement_id": stored, "name": name, "value": number(value)} for name, value in measurement.metrics.items()
    ]
    if metrics:
        connection.execute(insert_into(Metrics), metrics)


def put_verdicts(connection: Connection, run: int, judgements: Sequence[Judgement]) -> None:
    """Stores what was judged of a run, in place of what was stored of it before."""
    connection.execute(delete(Verdicts).where(Verdicts.run_id == run))
    devices = {uuid: device_id(connection, uuid) for uuid in {judgement.series.device for judgement in judgements}}
    cases = {
        case: case_id(connection, case) for case in dict.fromkeys(judgement.series.case for judgement in judgements)
    }
    rows = [
        {
            "run_id": run,
            "case_id": cases[judgement.series.case],
            "device_id": devices[judgement.series.device],
            "metric": judgement.series.metric,
            "mode": judgement.series.mode,
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
