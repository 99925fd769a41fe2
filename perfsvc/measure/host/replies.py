"""Check that what a worker sends answers what it was asked.

A worker runs kernels and Python functions in its own memory, so any of them can make it send anything. What it sends
is stored and judged, so a reply has to answer the case, the replica, the cache state and the device that were asked,
and its values have to be possible. A reply that is none costs its case, and the worker is replaced.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace

from perfsvc.measure.protocol.messages import (
    LONGEST_S,
    SHORTEST_S,
    CheckedResult,
    Measured,
    Ready,
    Refused,
    problem_of_metric,
)
from perfsvc.model import MAX_ERROR, TIME, CacheState, Case, DeviceInfo, Kind, Measurement, PythonCode, Status

MOST_COUNTED = 1 << 31
"""Counts are below this number, the limit of a column of the database."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The case that a worker was asked to measure, and at how many places of its arrays."""

    case: Case
    kind: Kind
    device: str  # UUID
    replica: int
    cache: CacheState
    places: int


def problem(reply: Ready | Refused | Measured, files: Collection[str], asked: DeviceInfo | Asked | None) -> str:
    """Return why a reply does not answer what a worker was asked; empty if it does.

    Args:
        reply: the reply.
        files: the digests of the files that came with the reply.
        asked: the device to open, the case to measure, or None if the worker was asked nothing.
    """
    if isinstance(reply, Measured) and isinstance(asked, Asked):
        return _problem_of_measurement(reply, set(files), asked)
    if files:
        return f"{len(files)} files came with it"
    if isinstance(reply, Refused) and isinstance(asked, DeviceInfo):
        return ""
    if isinstance(reply, Ready) and isinstance(asked, DeviceInfo):
        return "" if reply.device.uuid == asked.uuid else f"it opened {reply.device.uuid!r}, not {asked.uuid!r}"
    return f"{reply.message!r} was not asked"


def _problem_of_measurement(reply: Measured, files: set[str], asked: Asked) -> str:
    """Return why a measurement answers another request, or cannot be right; empty if there is no problem."""
    measurement = reply.measurement
    answered = (measurement.case, measurement.device, measurement.replica, measurement.cache)
    if answered != (asked.case, asked.device, asked.replica, asked.cache):
        return (
            f"it answers {measurement.case.id!r} ({measurement.cache}, replica {measurement.replica}, "
            f"{measurement.device!r}), not {asked.case.id!r} ({asked.cache}, replica {asked.replica}, {asked.device!r})"
        )
    return (
        _problem_of_status(measurement, asked.kind, reply.checked)
        or _problem_of_places(measurement, asked.places)
        or _problem_of_numbers(measurement, reply.checked)
        or next(filter(None, (problem_of_metric(name, {TIME, MAX_ERROR}) for name in measurement.metrics)), "")
        or _problem_of_files(measurement.python, files)
    )


def _problem_of_status(measurement: Measurement, kind: Kind, checked: CheckedResult | None) -> str:
    """Return what contradicts the status of a measurement, such as times of a failed case; empty if nothing does."""
    if measurement.status is not Status.OK:
        if measurement.samples_s or measurement.metrics or measurement.python or checked:
            return f"it has results, but is {measurement.status}"
        return "" if measurement.reason else f"it is {measurement.status} without a reason"
    if measurement.reason:
        return "it has a reason why it failed, but is ok"
    if kind is Kind.HOST:
        return "" if measurement.metrics and not measurement.samples_s else "a host variant has metrics and no times"
    return "" if measurement.samples_s else "it has no times, but is ok"


def _problem_of_places(measurement: Measurement, places: int) -> str:
    """Return that a measurement has more medians of places than places or samples; empty if it has not."""
    count = len(measurement.places_s)
    if count <= min(places, len(measurement.samples_s)):
        return ""
    return f"{count} medians of places, which are more than the places or the samples"


def _problem_of_numbers(measurement: Measurement, checked: CheckedResult | None) -> str:
    """Return the first impossible number of a measurement; empty if all numbers are possible."""
    in_batches = (seconds for batch in measurement.batches for seconds in batch.samples_s)
    for seconds in (*measurement.samples_s, *measurement.places_s, *in_batches):
        if not SHORTEST_S <= seconds <= LONGEST_S:
            return f"a sample of {seconds} s"
    for name in ("wall_s", "check_s", "sampling_s", "busy_s"):
        if not 0.0 <= getattr(measurement, name) <= LONGEST_S:
            return f"a {name} of {getattr(measurement, name)}"
    for error in (measurement.max_error, measurement.mean_error):
        if error is not None and error < 0:
            return f"an error of {error}"
    for number in _numbers((replace(measurement, case=Case("", "")), checked)):
        if isinstance(number, int) and not 0 <= number < MOST_COUNTED:
            return f"a count of {number:.3g}" if abs(number) < 1 << 1000 else "a count without bounds"
        if not math.isfinite(number):
            return f"a number that is {number}"
    return ""


def _numbers(value: object) -> Iterator[float]:
    """Yield all numbers in a value, however deep."""
    if isinstance(value, int | float):
        yield value
    elif is_dataclass(value):
        for field in fields(value):
            yield from _numbers(getattr(value, field.name))
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from _numbers(entry)
    elif isinstance(value, tuple):
        for entry in value:
            yield from _numbers(entry)


def _problem_of_files(python: PythonCode | None, files: set[str]) -> str:
    """Return how the files that came with a measurement differ from the files that it names; empty if they are equal.

    Args:
        python: the part of the measurement that names files by digest.
        files: the digests of the files that came.
    """
    named: set[str] = set()
    if python:
        named = {sha256 for _, sha256 in python.modules} | {kernel.cubin for kernel in python.kernels} - {""}
    if named == files:
        return ""
    return (
        f"{len(files - named)} files that it does not name came with it, and {len(named - files)} that it names did not"
    )
