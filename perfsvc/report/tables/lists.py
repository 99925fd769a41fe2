"""Plain lists: cases, devices, runs, pins, doctor checks, settings, and the stages of a night."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfsvc import units
from perfsvc.model import TIME, DeviceInfo, Status
from perfsvc.report.rows import CheckRow, PinLike, RunLike
from perfsvc.report.tables.layout import DASH, cache_words, commit_text, grid, moment

CHECK_MARKS = {True: ("✓ ok", "green"), None: ("! optional", "yellow"), False: ("✗ missing", "bold red")}


def cases_table(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """The cases of a suite, from objects with ``case``, ``kind``, ``caches`` and ``requires``."""
    table = grid()
    table.add_column("case", overflow="fold")
    table.add_column("kind")
    table.add_column("caches")
    table.add_column("requires", overflow="fold")
    for row in rows:
        words = (str(row["kind"]), ", ".join(row["caches"]), ", ".join(row["requires"]))
        table.add_row(Text(row["case"]), *map(Text, words))
    return Group(table, Text(), Text(units.count(len(rows), "case")))


def devices_table(devices: Sequence[DeviceInfo], toolkits: Mapping[str, str]) -> RenderableType:
    """What each device says of itself, one below the other; what it cannot say is left out.

    Args:
        devices: those of this machine.
        toolkits: the versions of what binaries are built with, by device UUID.
    """
    parts: list[RenderableType] = []
    for device in devices:
        table = Table.grid(padding=(0, 2))
        for name, value in _properties(device, toolkits.get(device.uuid, "")):
            table.add_row(Text(f"  {name}", "dim"), Text(value, overflow="fold"))
        parts += [Text.assemble((device.model, "bold"), f"  --device {device.spec}"), table, Text()]
    return Group(*parts, Text(units.count(len(devices), "device")))


def _properties(device: DeviceInfo, toolkit: str) -> Iterable[tuple[str, str]]:
    written = {
        "uuid": device.uuid,
        "compute capability": device.compute_capability,
        "target": device.target,
        "multiprocessors": device.multiprocessors or "",
        "clock": device.clock_hz and units.frequency(device.clock_hz),
        "memory clock": device.memory_clock_hz and units.frequency(device.memory_clock_hz),
        "memory": device.memory_bytes and units.size(device.memory_bytes),
        "L2 cache": device.l2_bytes and units.size(device.l2_bytes),
        "shared memory per block": device.shared_bytes_per_block and units.size(device.shared_bytes_per_block),
        "registers per block": device.registers_per_block or "",
        "warp size": device.warp_size or "",
        "power limit": device.power_limit_w and f"{device.power_limit_w:g} W",
        "driver": device.driver,
        "toolkit": toolkit,
    }
    return [(name, str(value)) for name, value in written.items() if value]


def runs_table(runs: Sequence[RunLike]) -> RenderableType:
    """The runs as they are given, a line each."""
    table = grid()
    table.add_column("run", justify="right")
    table.add_column("started (UTC)", no_wrap=True)
    table.add_column("label", overflow="fold")
    table.add_column("commit", no_wrap=True)
    table.add_column("state")
    table.add_column("cases", justify="right")
    table.add_column("measurements")
    table.add_column("devices", justify="right")
    for run in runs:
        root_cause = run.provenance
        table.add_row(
            str(run.id),
            moment(root_cause.started),
            Text(root_cause.label or DASH),
            Text(commit_text(root_cause.commit, dirty=root_cause.dirty)),
            Text(str(run.state)),
            str(run.cases),
            Text(", ".join(f"{run.counts[status]} {status.value}" for status in Status if run.counts.get(status))),
            str(len(run.devices)),
        )
    return Group(table, Text(), Text(units.count(len(runs), "run")))


def pins_table(pins: Sequence[PinLike]) -> RenderableType:
    """The baselines that people fixed, a line each."""
    table = grid()
    table.add_column("case", overflow="fold", min_width=16)
    table.add_column("device", overflow="fold")
    table.add_column("run", justify="right")
    table.add_column("pinned (UTC)", no_wrap=True)
    table.add_column("by", overflow="fold")
    table.add_column("comment")
    caches = cache_words((pin.series.device, pin.series.case.id, pin.series.cache) for pin in pins)
    for pin in pins:
        of = pin.series
        words = [of.case.id, caches[of.device, of.case.id, of.cache], "" if of.metric == TIME else of.metric]
        name = " ".join(filter(None, words))
        device = Text(pin.series.device)
        table.add_row(Text(name), device, str(pin.run), moment(pin.set_at), Text(pin.set_by), Text(pin.comment))
    return Group(table, Text(), Text(units.count(len(pins), "pin")))


def doctor_table(rows: Sequence[CheckRow]) -> RenderableType:
    """The doctor's checks, and below them the cure of each that is not ok."""
    table = grid()
    table.add_column("")
    table.add_column("check")
    table.add_column("found", overflow="fold")
    for row in rows:
        table.add_row(Text(*CHECK_MARKS[row.ok]), Text(row.check), Text(row.found))
    cures = [Text(f"{row.check}: {row.cure}") for row in rows if row.cure and not row.ok]
    return Group(table, Text(), *cures)


DEFAULT = "default"


def settings_table(settings: Iterable[tuple[str, str, str]], path: str) -> RenderableType:
    """Return all settings in the order of the file; those that are not set are dim.

    Args:
        settings: key, value and origin of each.
        path: the file in force; empty without a file.
    """
    table = grid()
    table.add_column("key", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("from", overflow="fold")
    for key, value, origin in settings:
        style = "dim" if origin == DEFAULT else ""
        table.add_row(*(Text(cell or DASH, style) for cell in (key, value, origin)))
    file = f"in force: {path}" if path else "there is no perfsvc.toml here or in a parent: perfsvc init writes one"
    return Group(table, Text(), Text(file))


MARKS: Mapping[str, tuple[str, str]] = {
    "done": ("✓", "green"),
    "failed": ("✗", "bold red"),
    "skipped": ("–", "dim"),
    "running": ("…", "yellow"),
}
"""Mark and style of a stage's state; the word stands beside it wherever the mark is not ✓."""


@dataclass(frozen=True, slots=True)
class StageLine:
    """A stage as it is shown; ``wall_s`` is None where it was not done to its end."""

    name: str
    state: str
    wall_s: float | None
    said: str
    cure: str = ""


def night_table(number: int, state: str, run: int | None, stages: Iterable[StageLine]) -> RenderableType:
    """The stages of a night below its number and state."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("mark", "stage", "took"):
        table.add_column(column, no_wrap=True, justify="right" if column == "took" else "left")
    table.add_column("said", overflow="fold")
    for stage in stages:
        mark, style = MARKS[stage.state]
        took = "" if stage.wall_s is None or stage.state == "skipped" else f"{stage.wall_s:.1f} s"
        table.add_row(Text(mark, style), Text(stage.name), Text(took, "dim"), _said(stage, style))
    heading = Text.assemble((f"night {number}", "bold"), f"  {state}", ("" if run is None else f"  run {run}", "dim"))
    return Group(heading, table)


def _said(stage: StageLine, style: str) -> Text:
    words = stage.said if stage.state == "done" else ": ".join(filter(None, [stage.state, stage.said]))
    text = Text(words, "" if stage.state == "done" else style)
    if stage.cure:
        text.append(f"\ncure: {stage.cure}", "default")
    return text
