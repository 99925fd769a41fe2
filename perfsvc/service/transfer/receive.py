"""Receive a run of another host: validate all of it, store it at once, and judge it like a run of our own."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import BinaryIO

from perfsvc import judge
from perfsvc.model import RunState
from perfsvc.service.compare.compare import judge_run
from perfsvc.service.findings.update import update_findings
from perfsvc.service.run.record import noises
from perfsvc.service.transfer.body import read_measurements, read_run
from perfsvc.store import Store


@dataclass(frozen=True, slots=True)
class ReceivedRun:
    """What became of a sent run.

    Attributes:
        run: its number in this database.
        new: False if it was stored before.
        later: a run of the same suite and selection that is stored already, and began later; None if there is none.
    """

    run: int
    new: bool
    later: int | None


def receive(
    store: Store, body: BinaryIO, *, digest: str, token: int, key: str, threshold: judge.ThresholdOption = None
) -> ReceivedRun:
    """Store a run that another host has sent, and judge it; store nothing if any of it is not valid.

    A body that was stored before is not stored again. It is judged now if the server was stopped before it judged it.

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
        noise = noises(each.measurement for each in read_measurements(body, sent, now))  # reads, and validates, all
        received = store.received.put(
            sent,
            read_measurements(body, sent, now),
            noise if sent.state is RunState.FINISHED else {},
            digest=digest,
            token=token,
            key=key,
        )
        number, is_new = received.run, received.new
    else:
        number, is_new = known, False
    provenance = store.runs.get(number).provenance
    if not store.verdicts.of_run(number):
        store.verdicts.put(number, judge_run(store, number, threshold=threshold))
        update_findings(store, number, threshold=threshold)
    return ReceivedRun(number, is_new, store.imports.later(provenance.scope, provenance.started))
