"""Findings about GPUs that are slower than the other GPUs of their models; each GPU has one finding at most."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import Connection, select, update

from perfsvc.model import Cause, EventKind, FindingState, FindingUpdates, SlowGpu
from perfsvc.store.findings.read import ACTIVE, put_event, put_open_finding, set_state
from perfsvc.store.schema.judging_tables import Findings


def update_slow_gpus(
    connection: Connection, run: int, slow: Collection[SlowGpu], fast: Mapping[str, str], now: datetime
) -> FindingUpdates:
    """Raise, reopen and resolve the findings about slow GPUs; a repeated call changes nothing.

    Args:
        connection: a transaction that may change findings.
        run: the run.
        slow: the GPUs that are slower than their siblings.
        fast: the GPUs that are as fast as their siblings, by UUID, each with how that is known.
        now: the time of the update.
    """
    updates: dict[str, list[int]] = defaultdict(list)
    findings = connection.execute(select(Findings).where(Findings.cause == Cause.SLOW_GPU).order_by(Findings.id)).all()
    newest = {finding.root_cause.partition(" (")[0]: finding for finding in findings}
    for gpu in slow:
        finding = newest.get(gpu.device)
        if finding is None:
            updates["raised"].append(_raise(connection, run, gpu, now))
            continue
        values = {"root_cause": gpu.text, "last_run_id": max(run, finding.last_run_id or run)}
        connection.execute(update(Findings).where(Findings.id == finding.id).values(values))
        if finding.state is FindingState.RESOLVED and (finding.last_run_id or 0) < run:
            connection.execute(update(Findings).where(Findings.id == finding.id).values(evidence=gpu.evidence))
            set_state(connection, finding.id, FindingState.OPEN, gpu.evidence, run=run, at=now)
            updates["reopened"].append(finding.id)
        elif finding.state in ACTIVE:
            updates["seen"].append(finding.id)
    for device, reason in fast.items():
        finding = newest.get(device)
        if finding is not None and finding.state is not FindingState.RESOLVED:
            last = max(run, finding.last_run_id or run)
            connection.execute(update(Findings).where(Findings.id == finding.id).values(last_run_id=last))
            set_state(connection, finding.id, FindingState.RESOLVED, reason, run=run, at=now)
            updates["resolved"].append(finding.id)
    return FindingUpdates(**{kind: tuple(sorted(numbers)) for kind, numbers in updates.items()})


def _raise(connection: Connection, run: int, gpu: SlowGpu, now: datetime) -> int:
    number = put_open_finding(connection, Cause.SLOW_GPU, gpu.text, gpu.evidence, at=now, run=run)
    put_event(connection, number, EventKind.RAISED, gpu.evidence, run=run, at=now)
    return number
