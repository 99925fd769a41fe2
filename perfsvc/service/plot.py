"""A stored run's ladders as a picture."""

from pathlib import Path
from typing import Any

from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import Case
from perfsvc.report.export import frames
from perfsvc.report.plots import variants
from perfsvc.report.plots.variants import ladders
from perfsvc.report.tables.layout import commit_text
from perfsvc.service.revisions import run_of
from perfsvc.store import Store
from perfsvc.suite import Selection


def draw(store: Store, run: str, destination: Path, *, selection: Selection, device: str | None, folder: Path) -> None:
    """Draws the ladders of a run's selected cases on one device into a file.

    Args:
        store: where the run is.
        run: what a person calls it.
        destination: the file, which is replaced.
        selection: the cases; they are held against their reference variant even where it is not among them.
        device: UUID; may be None where the run has but one.
        folder: where git revisions are looked up.

    Raises:
        UsageError: there is no such run or device, nothing of it can be drawn, or the file cannot be written.
        MissingPackageError: Matplotlib is not installed.
    """
    variants.require_matplotlib()
    number = run_of(run, store, folder)
    summary = frames.summary(frames.frame(store.measurements.columns([number])))
    measured = list(dict.fromkeys(summary["device"]))
    if device is None and len(measured) > 1:
        raise UsageError(f"run {number} measured on several devices", cure=f"--device {' or --device '.join(measured)}")
    here = summary[summary["device"].isin(measured if device is None else [device])]
    records = here.to_dict("records")
    selected = selection.filter(map(_case, records))
    found = ladders(here.loc[[_case(one) in selected for one in records]])
    if not found:
        where = f" on {device}" if device else ""
        raise NotMeasuredError(
            f"run {number} has no rate of a selected case{where}", cure=f"see what it has: perfsvc report {number}"
        )
    variants.write(found, *_titles(records[0]), destination)


def _case(record: dict[Any, Any]) -> Case:
    point = tuple(frames.parse_point(record["point"]).items())
    return Case(record["benchmark"], record["variant"], point, record["version"])


def _titles(first: dict[Any, Any]) -> tuple[str, str]:
    """The GPU, and what there is to know of the run, in a line each."""
    facts = [
        f"run {first['run']}",
        first["label"],
        f"{first['started_at']:%Y-%m-%d}",
        commit_text(first["commit"], dirty=first["dirty"]) if first["commit"] else "",
        first["driver"] and f"driver {first['driver']}",
        first["toolkit"],
    ]
    return first["device_model"], "  ·  ".join(filter(None, facts))
