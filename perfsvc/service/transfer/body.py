"""The body of a sent run: a line of JSON for the run and for each measurement, with gzip. A server receives it."""

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any, BinaryIO, TypeVar

import structlog
from pydantic import TypeAdapter, ValidationError

from perfsvc import judge
from perfsvc.errors import DatabaseError, FormatError
from perfsvc.model import Case, Measurement, Status, plausible
from perfsvc.model.codec import encode
from perfsvc.service.compare.compare import judge_run
from perfsvc.service.findings.update import update_findings
from perfsvc.store import Store
from perfsvc.store.remote.rows import SentMeasurement, SentRun
from perfsvc.store.remote.sending import FORMAT
from perfsvc.store.runs import ENDED
from perfsvc.text import printed

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes of a line: a measurement with two million samples."""
LONGEST_NAME = 500
"""Bytes of a name; PostgreSQL cannot have much longer ones in an index."""
LONGEST_TEXT = 100_000
"""Characters of a text, such as the message of a compiler."""
MOST_MEASUREMENTS = 1_000_000
LARGEST, LARGEST_SMALL = 2**63 - 1, 2**31 - 1
"""The largest integers of the columns of the database."""
BIG = frozenset({"read_bytes", "written_bytes", "flops", "link_bytes", "memory_bytes", "l2_bytes", "seed", "point"})
"""The fields that may be larger than ``LARGEST_SMALL``."""
SHORTEST_S, LONGEST_S = 1e-12, 1e7
"""Seconds: no launch takes less than a picosecond, or four months. A time of zero has no ratio to another time."""
EARLIEST = datetime(2000, 1, 1, tzinfo=UTC)
AHEAD = timedelta(days=1)
"""How far ahead of the server the clock of another host may be."""

Line = TypeVar("Line", SentRun, SentMeasurement)

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_UID = re.compile(r"[0-9a-f]{32}")
_run = TypeAdapter(SentRun)
_measurement = TypeAdapter(SentMeasurement)


def written(store: Store, run: int) -> Iterator[bytes]:
    """Yield the parts of the body of a run, compressed.

    Raises:
        NotMeasuredError: there is no such run.
        UsageError: the run has not ended, or its samples were removed.
    """
    compressor = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    yield compressor.compress(encode(store.sending.run(run)) + b"\n")
    for measurement in store.sending.measurements(run):
        yield compressor.compress(encode(measurement) + b"\n")
    yield compressor.flush()


def read_run(file: BinaryIO, now: datetime) -> SentRun:
    """Return the run at the beginning of an uncompressed body, validated.

    Raises ``FormatError`` if it is not valid.
    """
    file.seek(0)
    sent: SentRun = _decoded(_run, _line(file, 1), 1)
    if sent.perfsvc_run != FORMAT:
        raise FormatError(
            f"line 1: the format of the run is {sent.perfsvc_run}, and this server reads {FORMAT}",
            cure="install the same version of perfsvc on both hosts",
        )
    _require_values(sent, "", now, 1)
    if not _UID.fullmatch(sent.uid):
        raise _wrong(1, "uid", "it is not 32 hexadecimal digits")
    if sent.state not in ENDED:
        raise _wrong(1, "state", "the run has not ended")
    if not 1 <= sent.measurements <= MOST_MEASUREMENTS:
        raise _wrong(1, "measurements", f"a run has 1 to {MOST_MEASUREMENTS} measurements")
    for name in ("host", "label", "suite", "scope", "commit", "branch"):
        _require_name(getattr(sent.provenance, name), name, 1)
    if not sent.provenance.host:
        raise _wrong(1, "host", "it is empty")
    _require_devices(sent)
    _require_peaks(sent, {device.uuid for device in sent.devices})
    return sent


def _require_devices(sent: SentRun) -> None:
    """Raise ``FormatError`` if a device is not valid or there twice, or a case over budget has another device."""
    known = {device.uuid for device in sent.devices}
    if len(known) < len(sent.devices) or "" in known:
        raise _wrong(1, "devices", "a device is there twice, or has no UUID")
    for device in sent.devices:
        _require_name(device.uuid, "uuid", 1)
        _require_name(device.model, "model", 1)
    for uuid, case, _ in sent.over_budget:
        _require_case(case, 1)
        _require_known(uuid, known, 1)
    if len(set(sent.over_budget)) < len(sent.over_budget):
        raise _wrong(1, "over_budget", "a case is there twice")


def _require_peaks(sent: SentRun, known: set[str]) -> None:
    """Raise ``FormatError`` if a measured peak is of no device of the run, or not plausible."""
    for uuid in (*sent.peaks, *(peak.device for peak in sent.gpu_peaks)):
        _require_known(uuid, known, 1)
    rates = [rate for peak in sent.peaks.values() for rate in (peak.copy_bytes_per_s, peak.read_bytes_per_s)]
    if not all(plausible(rate) for rate in (*rates, *(peak.rate for peak in sent.gpu_peaks))):
        raise _wrong(1, "peaks", "a rate is not plausible")
    for peak in sent.gpu_peaks:
        _require_name(peak.driver, "driver", 1)
        _require_name(peak.name, "name", 1)


def read_measurements(file: BinaryIO, sent: SentRun, now: datetime) -> Iterator[SentMeasurement]:
    """Yield the measurements of an uncompressed body, each validated.

    Raises ``FormatError`` if a measurement is not valid, is there twice, is missing or is too many.
    """
    file.seek(0)
    _line(file, 1)
    known, seen = {device.uuid for device in sent.devices}, set()
    for number in range(2, sent.measurements + 2):
        each: SentMeasurement = _decoded(_measurement, _line(file, number), number)
        measurement = each.measurement
        _require_values(each, "", now, number)
        _require_case(measurement.case, number)
        _require_known(measurement.device, known, number)
        _require_name(each.environment.driver, "driver", number)
        _require_name(each.environment.toolkit, "toolkit", number)
        _require_numbers(each, number)
        key = measurement.case, measurement.device, measurement.cache, measurement.replica
        if key in seen:
            raise _wrong(number, "measurement", "the run has this measurement twice")
        seen.add(key)
        yield each
    if file.read(1):
        raise FormatError(
            f"the body has more than the {sent.measurements} measurements that its first line announces", cure=CURE
        )


CURE = "send the run with perfsvc send of the same version as the server"


# --- lines -----------------------------------------------------------------------------------------------------------


def _line(file: BinaryIO, number: int) -> bytes:
    """Return the next line; raise ``FormatError`` if there is none, or if it is too long."""
    line = file.readline(LONGEST_LINE + 1)
    if len(line) > LONGEST_LINE:
        raise FormatError(f"line {number} is longer than {LONGEST_LINE} bytes", cure=CURE)
    if not line.strip():
        raise FormatError(f"line {number} is missing or empty", cure="send the whole run again")
    return line


def _decoded(adapter: TypeAdapter[Any], line: bytes, number: int) -> Any:
    """Return what a line encodes; raise ``FormatError`` with the first wrong field if it encodes nothing valid."""
    try:
        return adapter.validate_json(line, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise FormatError(
            f"line {number}: {printed(f'{where}: ' if where else '')[:200]}{first['msg'][:200]}", cure=CURE
        ) from None


# --- values ----------------------------------------------------------------------------------------------------------


def _require_values(value: Any, name: str, now: datetime, line: int) -> None:
    """Raise ``FormatError`` if a value, or any value in it, cannot be stored."""
    if is_dataclass(value):
        for field in fields(value):
            _require_values(getattr(value, field.name), field.name, now, line)
    elif isinstance(value, dict):
        for key, item in value.items():
            _require_name(key, name, line)
            _require_values(item, name, now, line)
    elif isinstance(value, tuple):
        for item in value:
            _require_values(item, name, now, line)
    elif wrong := _why_wrong(value, name, now):
        raise _wrong(line, name, wrong)


def _why_wrong(value: Any, name: str, now: datetime) -> str:
    """Return why a value cannot be stored; empty if it can."""
    if isinstance(value, float):
        return "" if isfinite(value) else "the number is not finite"
    if isinstance(value, int):
        return "" if abs(value) <= (LARGEST if name in BIG else LARGEST_SMALL) else "the number is too large"
    if isinstance(value, str):
        return "" if len(value) <= LONGEST_TEXT else f"the text is longer than {LONGEST_TEXT} characters"
    if isinstance(value, datetime) and (value.tzinfo is None or not EARLIEST <= value <= now + AHEAD):
        return "the time has no offset, is before 2000, or lies in the future"
    return ""


def _require_name(text: str, name: str, line: int) -> None:
    """Raise ``FormatError`` if a name is too long, or has control characters, with which it could pose as another."""
    if len(text.encode(errors="replace")) > LONGEST_NAME:
        raise _wrong(line, name, f"the name is longer than {LONGEST_NAME} bytes")
    if _CONTROL.search(text):
        raise _wrong(line, name, "the name has control characters")


def _require_case(case: Case, line: int) -> None:
    if not case.benchmark or not case.variant or case.version < 0:
        raise _wrong(line, "case", "it has no benchmark or no variant")
    if len(dict(case.point)) < len(case.point):
        raise _wrong(line, "case", "an axis is there twice")
    _require_name(case.id, "case", line)
    for former in case.formerly:
        _require_name(former, "formerly", line)


def _require_known(uuid: str, known: set[str], line: int) -> None:
    if uuid not in known:
        raise _wrong(line, "device", "the first line does not describe this device")


def _require_numbers(sent: SentMeasurement, line: int) -> None:
    """Raise ``FormatError`` if the numbers of a measurement contradict each other, or if it has code."""
    measurement, estimate = sent.measurement, sent.estimate
    if measurement.python is not None or measurement.files:
        raise _wrong(line, "python", "the server takes no code of other hosts")
    _require_counts(measurement, line)
    judged = (*measurement.samples_s, *measurement.places_s)
    of_batches = (time_s for batch in measurement.batches for time_s in batch.samples_s)  # also of rejected batches
    if not all(SHORTEST_S <= time_s <= LONGEST_S for time_s in judged):
        raise _wrong(line, "samples_s", "a time is zero, negative or too long")
    if not all(0 <= time_s <= LONGEST_S for time_s in of_batches):
        raise _wrong(line, "batches", "a time is negative or too long")
    if measurement.status is not Status.OK and measurement.samples_s:
        raise _wrong(line, "samples_s", f"a measurement that is {measurement.status} has no times")
    if bool(measurement.samples_s) != (estimate is not None):
        raise _wrong(line, "estimate", "a measurement has either samples and an estimate, or neither")
    if estimate and not (
        min(measurement.samples_s) * 0.999
        <= estimate.low_s
        <= estimate.median_s
        <= estimate.high_s
        <= max(measurement.samples_s) * 1.001
    ):
        raise _wrong(line, "estimate", "it does not fit the samples")


def _require_counts(measurement: Measurement, line: int) -> None:
    if measurement.replica < 0 or measurement.warmup < 0:
        raise _wrong(line, "replica", "a number is negative")
    for name in ("wall_s", "check_s", "sampling_s", "busy_s"):
        if not 0 <= getattr(measurement, name) <= LONGEST_S:
            raise _wrong(line, name, "the time is negative or too long")


def _wrong(line: int, name: str, what: str) -> FormatError:
    return FormatError(f"line {line}: {name}: {what}", cure=CURE)


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
    number, is_new = store.received.of_digest(digest), False
    if number is None:
        sent = read_run(body, now)
        measured = read_measurements(body, sent, now)
        cases = list(dict.fromkeys(each.measurement.case for each in measured))  # reads, and validates, all
        number, is_new = store.received.put(
            sent,
            read_measurements(body, sent, now),
            cases,
            digest=digest,
            token=token,
            key=key,
        )
    if number is None:
        return ReceivedRun(None, new=False, judged=True, later=None)
    provenance = store.runs.get(number).provenance
    judged = store.received.is_judged(number) or _judge(store, number, threshold)
    return ReceivedRun(number, is_new, judged, store.received.later(provenance.scope, provenance.started))


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
