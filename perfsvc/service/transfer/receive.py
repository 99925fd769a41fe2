"""Receive a run of another host: validate all of it, store it at once, and judge it like a run of our own."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO

import structlog

from perfsvc import judge
from perfsvc.errors import DatabaseError
from perfsvc.service.compare.compare import judge_run
from perfsvc.service.findings.update import update_findings
from perfsvc.service.transfer.body import read_measurements, read_run
from perfsvc.store import Store


@dataclass(frozen=True, slots=True)
class ReceivedRun:
    """What became of a sent run.

    Attributes:
        run: its number in this database; None if it was deleted here.
        new: False if it was stored before.
        judged: whether its verdicts are stored and the findings updated. If not, judging failed; the host sends the run
            again to have it judged.
        later: a run of the same suite and selection that is stored already, and began later; None if there is none.
    """

    run: int | None
    new: bool
    judged: bool
    later: int | None


def receive(
    store: Store, body: BinaryIO, *, digest: str, token: int, key: str, threshold: judge.ThresholdOption = None
) -> ReceivedRun:
    """Store a run that another host has sent, and judge it; store nothing if any of it is not valid.

    A run that was stored before is not stored again, and a run that was deleted does not come back. A stored run is
    judged now if judging it failed before, or if the server was stopped before it had judged the run. If judging
    fails, the run stays: its measurements are right, and the host may no longer have them later.

    Args:
        store: the database.
        body: the uncompressed body; it is read twice.
        digest: the SHA-256 of the uncompressed body.
        token: the id of the host's token.
        key: the ``Idempotency-Key``.
        threshold: the smallest relevant change as a fraction, or rules; None for the default of each kind of device.

    Raises:
        FormatError: the body is not valid.
        ReusedKeyError: the key was used with another body.
        UsageError: a device is another one than the device that the database has under its UUID.
    """
    now = datetime.now(UTC)
    known = store.received.of_digest(digest)
    if known is None:
        sent = read_run(body, now)
        measured = read_measurements(body, sent, now)
        cases = list(dict.fromkeys(each.measurement.case for each in measured))  # reads, and validates, all
        received = store.received.put(
            sent,
            read_measurements(body, sent, now),
            cases,
            digest=digest,
            token=token,
            key=key,
        )
        number, is_new = received.run, received.new
    else:
        number, is_new = known, False
    if number is None:
        return ReceivedRun(None, new=False, judged=True, later=None)
    provenance = store.runs.get(number).provenance
    judged = store.received.is_judged(number) or _judge(store, number, threshold)
    return ReceivedRun(number, is_new, judged, store.imports.later(provenance.scope, provenance.started))


def _judge(store: Store, run: int, threshold: judge.ThresholdOption) -> bool:
    """Judge a run and update the findings; log a fault, and return whether all of it worked.

    Raises:
        DatabaseError: the database is locked or does not answer now; the host tries again.
    """
    try:
        store.verdicts.put(run, judge_run(store, run, threshold=threshold))
        update_findings(store, run, threshold=threshold)
        store.received.note_judged(run)
    except Exception as error:  # whatever fails, the run is stored, and the host learns that it is not judged
        if isinstance(error, DatabaseError) and error.again:
            raise
        structlog.get_logger().exception("judging failed", run=run)
        return False
    return True
