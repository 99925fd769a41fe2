"""Plot the rates of a stored run's variants: ``perfsvc plot``."""

from pathlib import Path
from typing import Any

from perfsvc.errors import NotMeasuredError, UsageError
from perfsvc.model import Case
from perfsvc.report.export import frames
from perfsvc.report.plots.figure import require_matplotlib
from perfsvc.report.plots.variants import panels, write
from perfsvc.report.wording import commit_text
from perfsvc.selection import Selection
from perfsvc.service.revisions import resolve
from perfsvc.store import Store


def draw(store: Store, run: str, destination: Path, *, selection: Selection, device: str | None, folder: Path) -> None:
    """Plot the rates of a run's selected cases on one device, and write the picture to a file.

    Args:
        store: holds the run.
        run: the run: its number, its label, a git revision or the like.
        destination: the file, which is replaced.
        selection: the cases; each is compared with its reference variant even if the reference variant is not selected.
        device: the UUID of the device; may be None if the run has one device.
        folder: where git revisions are looked up.

    Raises:
        UsageError: there is no such run or device, the run has nothing to plot, or the file cannot be written.
        InfrastructureError: the disk is full.
        MissingPackageError: Matplotlib is not installed.
    """
    require_matplotlib()
    number = resolve(run, store, folder).id
    summary = frames.summary(frames.frame(store.measurements.columns([number])))
    measured = list(dict.fromkeys(summary["device"]))
    if device is None and len(measured) > 1:
        raise UsageError(f"run {number} measured on several devices", cure=f"--device {' or --device '.join(measured)}")
    on_device = summary[summary["device"].isin(measured if device is None else [device])]
    records = on_device.to_dict("records")
    selected = selection.filter(map(_case, records))
    drawn = panels(on_device.loc[[_case(record) in selected for record in records]])
    if not drawn:
        where = f" on {device}" if device else ""
        raise NotMeasuredError(
            f"run {number} has no rate of a selected case{where}", cure=f"see what it has: perfsvc report {number}"
        )
    write(drawn, *_titles(records[0]), destination)


def _case(record: dict[Any, Any]) -> Case:
    point = tuple(frames.parse_point(record["point"]).items())
    return Case(record["benchmark"], record["variant"], point, record["version"])


def _titles(record: dict[Any, Any]) -> tuple[str, str]:
    """Return the plot's title (the GPU) and a line about the run."""
    facts = [
        f"run {record['run']}",
        record["label"],
        f"{record['started_at']:%Y-%m-%d}",
        commit_text(record["commit"], dirty=record["dirty"]) if record["commit"] else "",
        record["driver"] and f"driver {record['driver']}",
        record["toolkit"],
    ]
    return record["device_model"], " · ".join(filter(None, facts))
