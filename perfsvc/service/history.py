"""The history of a case, as ``perfsvc show`` prints it."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from operator import itemgetter
from typing import Any

import numpy as np

from perfsvc import judge
from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import HistoryRow, RunDetails, Status
from perfsvc.report.rows import SEPARATOR
from perfsvc.selection import Selection
from perfsvc.store import Store

MOST_CANDIDATES = 20
"""How many cases an error lists."""


def case_named(store: Store, text: str) -> str:
    """Return the id of the stored case that the user names by its id, by a glob, or by a part of its id.

    Raises:
        NotMeasuredError: no measured case matches.
        UsageError: several cases match; the cure lists them.
    """
    names = store.series.case_names()
    if text in names:
        return text
    cases = {case.id: case for case in names.values()}
    try:
        matches = sorted(case.id for case in Selection((text,)).filter(cases.values()))
    except UsageError:  # the text matches nothing as a glob, but may be a part of an id
        matches = []
    matches = matches or sorted(name for name in cases if text in name)
    if not matches:
        near = get_close_matches(text, [*cases, *{case.benchmark for case in cases.values()}], n=3)
        cure = f"did you mean {' or '.join(near)}?" if near else "see what was measured: perfsvc report --summary"
        if "*" in text and "/" not in text:
            cure = f"a glob without a slash names benchmarks; for variants, write '*/{text}'"
        raise NotMeasuredError(f"{text} was never measured", cure=cure)
    if len(matches) > 1:
        listed = "".join(f"\n    {name}" for name in matches[:MOST_CANDIDATES])
        more = f"\n    and {len(matches) - MOST_CANDIDATES} more" if len(matches) > MOST_CANDIDATES else ""
        raise UsageError(f"{text!r} stands for {len(matches)} cases", cure=f"name one of them:{listed}{more}")
    return matches[0]


def history(store: Store, case: str, device: str | None, last: int | None = None) -> list[HistoryRow]:
    """Return the results of a case in its runs, oldest first. Results under former names of the case are included.

    Args:
        store: the database.
        case: the id of the case.
        device: the UUID of a device; None for all devices.
        last: only the newest so many runs that measured the case; None for all.

    Raises:
        NotMeasuredError: the case is unknown, was never measured on the device, or has no results that can be read.
    """
    explanations = {
        (explanation.device, explanation.candidate_run): explanation.sentence
        for explanation in store.profiles.explanations_of(case)
    }
    rows = [
        replace(row, why=explanations.get((row.device, row.run), ""))
        for row in store.series.case_history(case, device, last)
    ]
    if not rows:
        measured_on = sorted({run.device for run in store.series.case_history(case)}) if device else []
        if not measured_on:
            raise NotMeasuredError(f"no run has results of {case}", cure="if there should be some: perfsvc db check")
        cure = f"name a device that has it: {', '.join(measured_on)}"
        raise NotMeasuredError(f"{case} was never measured on {device}", cure=cure)
    # The dict keeps the position of the last, and so newest, row of each device and cache state.
    newest = {(row.device, row.cache): position for position, row in enumerate(rows)}
    for position in newest.values():
        rows[position] = replace(rows[position], details=_details(store, rows[position]))
    return rows


def _center(values: Sequence[float]) -> float:
    """Return the level of a metric over the replicas of a run."""
    (center,), _, _ = judge.levels_of(np.array([values]))
    return float(center)


def _details(store: Store, row: HistoryRow) -> RunDetails | None:
    """Return the details of a row: what the store holds, besides the time, about the row's case in the row's run.

    They agree with ``frames.details`` of the run's summary. The rows of one case need no pandas, whose import takes
    longer than the command. Return None if damaged references keep the store from reading any row of the case.
    """
    rows = _measured(store, row, {row.case})
    if not rows:
        return None
    benchmark, variant, reference = (rows[0][name] for name in ("benchmark", "variant", "relative_to"))
    speed = None
    if reference:
        case = f"{benchmark}/{reference}{row.case.removeprefix(f'{benchmark}/{variant}')}"
        of_reference = [each for each in _measured(store, row, {case}) if each["version"] == rows[0]["version"]]
        level, level_of_reference = _level_of(rows, "median_s"), _level_of(of_reference, "median_s")
        speed = level_of_reference / level if level and level_of_reference else None
    peak = next((each["peak"] for each in rows if each["peak"] is not None), None)
    names = sorted({name for each in rows for name in each["metrics"]})
    metrics = {name: _level_of(rows, name, "metrics") for name in names}
    clocks = [each["sm_clock_hz"] for each in rows if each["sm_clock_hz"] is not None]
    return RunDetails(
        stopped=_each_once(rows, "stopped", SEPARATOR),
        note=_each_once(rows, "note", SEPARATOR),
        noise_within=_first(rows, "noise_within"),
        noise_between=_first(rows, "noise_between"),
        noise_places=_first(rows, "noise_places"),
        noise_between_nights=_first(rows, "noise_between_nights"),
        bandwidth_bytes_per_s=_level_of(rows, "bandwidth_bytes_per_s"),
        flops_per_s=_level_of(rows, "flops_per_s"),
        bus_bytes_per_s=_level_of(rows, "bus_bytes_per_s"),
        peak=peak or "",
        # replicas may come nearest to different peaks, if a case has about the same share of both
        peak_share=_level_of(
            [each | {"peak_share": each["peak_share"] if each["peak"] == peak else None} for each in rows], "peak_share"
        ),
        relative_to=reference,
        relative_speed=speed,
        sm_clock_hz=sum(clocks) / len(clocks) if clocks else None,
        temperature_c=max((each["temperature_c"] for each in rows if each["temperature_c"] is not None), default=None),
        power_w=max((each["power_w"] for each in rows if each["power_w"] is not None), default=None),
        slowdowns=_each_once(rows, "slowdowns", ", "),
        rejected_batches=sum(each["rejected_batches"] or 0 for each in rows),
        metrics={name: level for name, level in metrics.items() if level is not None},
    )


def _measured(store: Store, row: HistoryRow, cases: Collection[str]) -> list[dict[str, Any]]:
    """Return the replicas of some cases in a row's run, on the row's device and in its cache state, by replica."""
    columns = store.measurements.columns([row.run], cases, [row.device])
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return sorted((each for each in rows if each["cache"] == row.cache), key=itemgetter("replica"))


def _first(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    return next((each[name] for each in rows if each[name] is not None), None)


def _each_once(rows: Sequence[Mapping[str, Any]], name: str, separator: str) -> str:
    """Merge lists written as text, such as ``a; b`` and ``b; c``, into one: ``a; b; c``."""
    return separator.join(dict.fromkeys(item for each in rows for item in (each[name] or "").split(separator) if item))


def _level_of(rows: Sequence[Mapping[str, Any]], name: str, within: str = "") -> float | None:
    """Return the level of a column, or of a name in a column of dictionaries; None unless all replicas are ok."""
    if any(each["status"] != Status.OK for each in rows):
        return None
    values = [each[within].get(name) if within else each[name] for each in rows]
    known = [value for value in values if value is not None]
    return _center(known) if known else None
