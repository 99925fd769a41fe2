"""Plain lists: cases, devices, runs, pins, doctor checks, settings, and the stages of a night."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from perfsvc import units
from perfsvc.model import (
    DeviceInfo,
    Exclusion,
    Expected,
    ExpectedKind,
    NightRow,
    Pin,
    RunRow,
    StageRow,
    StageState,
    Status,
)
from perfsvc.report import wording
from perfsvc.report.rows import CheckRow
from perfsvc.report.tables.layout import EXCLUDED, grid, properties
from perfsvc.report.wording import DASH, moment

CHECK_MARKS = {True: ("✓ ok", "green"), None: ("! optional", "yellow"), False: ("✗ missing", "bold red")}

STAGE_MARKS: Mapping[StageState, tuple[str, str]] = {
    StageState.DONE: ("✓", "green"),
    StageState.FAILED: ("✗", "bold red"),
    StageState.SKIPPED: (DASH, "dim"),
    StageState.RUNNING: ("…", "yellow"),
}
"""Mark and style of a stage's state. The state is also written as a word unless the mark is ✓."""

DEFAULT = "default"
"""The origin of a setting that is not set anywhere."""


def cases_table(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return the cases of a suite; each row has the keys ``case``, ``kind``, ``graph``, ``caches`` and ``requires``."""
    table = grid()
    table.add_column("case", overflow="fold")
    table.add_column("kind")
    table.add_column("cache")
    table.add_column("requires", overflow="fold")
    for row in rows:
        graph = {"": "", "replay": ", graph"}.get(row["graph"], f", graph ({row['graph']})")
        cells = (f"{row['kind']}{graph}", ", ".join(row["caches"]), ", ".join(row["requires"]))
        table.add_row(Text(row["case"]), *map(Text, cells))
    return Group(table, Text(), Text(units.count(len(rows), "case")))


def devices_table(
    devices: Sequence[DeviceInfo], toolkits: Mapping[str, str], links: Mapping[tuple[str, str], str]
) -> RenderableType:
    """Return the known properties of each device.

    Args:
        devices: the devices of this machine.
        toolkits: the version of the compiler for each device, by the device's UUID.
        links: what connects two GPUs, by the names for ``--device`` of both.
    """
    parts: list[RenderableType] = []
    for device in devices:
        table = properties(_known(device, toolkits.get(device.uuid, "")))
        parts += [Text.assemble((device.model, "bold"), f"  --device {device.spec}"), table, Text()]
    parts += [Text(f"{first} and {second} are connected by {link}") for (first, second), link in links.items()]
    return Group(*parts, *([Text()] if links else []), Text(units.count(len(devices), "device")))


def _known(device: DeviceInfo, toolkit: str) -> Iterable[tuple[str, str]]:
    """Return the name and the value of each known property of a device."""
    values = {
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
    return [(name, str(value)) for name, value in values.items() if value]


def runs_table(runs: Sequence[RunRow]) -> RenderableType:
    """Return a row for each run, in the given order."""
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
        provenance = run.provenance
        table.add_row(
            str(run.id),
            moment(provenance.started),
            Text(provenance.label or DASH),
            Text(wording.commit_text(provenance.commit, dirty=provenance.dirty)),
            Text(str(run.state) + (", excluded" if run.why_excluded else "")),
            str(run.cases),
            Text(", ".join(f"{run.counts[status]} {status.value}" for status in Status if run.counts.get(status))),
            str(len(run.devices)),
            style=EXCLUDED if run.why_excluded else "",
        )
    reasons = [Text(wording.exclusion_sentence(exclusion)) for run in runs for exclusion in run.excluded]
    return Group(table, Text(), *reasons, Text(units.count(len(runs), "run")))


def exclusions_table(exclusions: Sequence[Exclusion]) -> RenderableType:
    """Return a table with a row for each exclusion, inclusion and deletion of data, oldest first."""
    table = grid()
    table.add_column("when (UTC)", no_wrap=True)
    table.add_column("by", overflow="fold")
    table.add_column("what", overflow="fold")
    table.add_column("reason", overflow="fold")
    actions = [
        (exclusion.at, exclusion.by, "deleted" if exclusion.deleted else "excluded", exclusion)
        for exclusion in exclusions
    ]
    actions += [
        (exclusion.included_at, exclusion.included_by, "included", exclusion)
        for exclusion in exclusions
        if exclusion.included_at
    ]
    for at, by, word, exclusion in sorted(actions, key=lambda action: action[0]):
        what = f"{word} {exclusion.case} in run {exclusion.run}" if exclusion.case else f"{word} run {exclusion.run}"
        table.add_row(moment(at), Text(by), Text(what), Text("" if word == "included" else exclusion.reason))
    return table


def pins_table(pins: Sequence[Pin]) -> RenderableType:
    """Return a row for each pinned baseline."""
    table = grid()
    table.add_column("case", overflow="fold", min_width=16)
    table.add_column("device", overflow="fold")
    table.add_column("run", justify="right")
    table.add_column("pinned (UTC)", no_wrap=True)
    table.add_column("by", overflow="fold")
    table.add_column("comment")
    for pin, name in zip(pins, wording.series_names([pin.series for pin in pins]), strict=True):
        device, comment = Text(pin.series.device), Text(pin.comment)
        table.add_row(Text(name), device, str(pin.run), moment(pin.set_at), Text(pin.set_by), comment)
    return Group(table, Text(), Text(units.count(len(pins), "pin")))


def expected_table(expected: Sequence[Expected], *, every: bool = False) -> RenderableType:
    """Return a table with a row for each host, GPU and benchmark that is expected in later nights.

    Args:
        expected: the hosts, GPUs and cases.
        every: show a row for each case instead of each benchmark.
    """
    table = grid()
    table.add_column("expected", overflow="fold", min_width=16)
    table.add_column("on host", overflow="fold")
    table.add_column("night", justify="right")
    table.add_column("last seen (UTC)", no_wrap=True)
    table.add_column("")
    groups: dict[tuple[str, str, str], list[Expected]] = {}
    for item in expected:
        name = item.name.partition("/")[0] if item.kind is ExpectedKind.CASE and not every else item.name
        groups.setdefault((item.kind, item.host, name), []).append(item)
    for (kind, host, name), members in groups.items():
        last = max(members, key=lambda item: item.seen)
        missing = [item for item in members if item.finding is not None]
        findings = ", ".join(map(str, sorted({item.finding for item in missing if item.finding is not None})))
        benchmark = f"benchmark {name}, {units.count(len(members), 'case')}"
        words = {ExpectedKind.HOST: f"host {name}", ExpectedKind.GPU: f"{name} ({last.model})"}
        text = words.get(last.kind, name if every else benchmark)
        count = f"{units.count(len(missing), 'case')} " if last.kind is ExpectedKind.CASE and not every else ""
        finding = f"{count}missing: finding {findings}" if missing else ""
        on = "" if kind == ExpectedKind.HOST else host
        table.add_row(Text(text), Text(on), str(last.night), moment(last.seen), Text(finding, "yellow"))
    is_missing = any(item.finding is not None for item in expected)
    return Group(
        table, *([Text(), Text('gone on purpose? perfsvc expect forget NAME --reason "…"')] if is_missing else [])
    )


def doctor_table(rows: Sequence[CheckRow]) -> RenderableType:
    """Return the checks of ``perfsvc doctor``, then the cure of each check that is not ok."""
    table = grid()
    table.add_column("")
    table.add_column("check")
    table.add_column("found", overflow="fold")
    for row in rows:
        table.add_row(Text(*CHECK_MARKS[row.ok]), Text(row.check), Text(row.found))
    cures = [Text(f"{row.check}: {row.cure}") for row in rows if row.cure and not row.ok]
    return Group(table, Text(), *cures)


def settings_table(rows: Iterable[tuple[str, str, str]], path: str) -> RenderableType:
    """Return a table with a row for each setting, in the given order; defaults are dim.

    Args:
        rows: the key, the value and the origin of each setting.
        path: the configuration file that is in force; empty without a file.
    """
    table = grid()
    table.add_column("key", no_wrap=True)
    table.add_column("value", overflow="fold")
    table.add_column("from", overflow="fold")
    for row in rows:
        style = "dim" if row[-1] == DEFAULT else ""
        table.add_row(*(Text(cell or DASH, style) for cell in row))
    file = f"in force: {path}" if path else "there is no perfsvc.toml here or in a parent: perfsvc init writes one"
    return Group(table, Text(), Text(file))


def night_table(night: NightRow) -> RenderableType:
    """Return a night's number and state, then each stage with its state, duration and message."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("mark", no_wrap=True)
    table.add_column("stage", no_wrap=True)
    table.add_column("wall time", no_wrap=True, justify="right")
    table.add_column("text", overflow="fold")
    for stage in night.stages:
        mark, style = STAGE_MARKS[stage.state]
        wall_time = "" if stage.wall_s is None or stage.state is StageState.SKIPPED else f"{stage.wall_s:.1f} s"
        table.add_row(Text(mark, style), Text(stage.name), Text(wall_time, "dim"), _stage_text(stage, style))
    run = "" if night.run is None else f"  run {night.run}"
    return Group(Text.assemble((f"night {night.id}", "bold"), f"  {night.state}", (run, "dim")), table)


def _stage_text(stage: StageRow, style: str) -> Text:
    """Return the text of a stage: its state unless the stage is done, its message, and the cure of its failure."""
    done = stage.state is StageState.DONE
    text = Text(stage.message if done else ": ".join(filter(None, [stage.state, stage.message])), "" if done else style)
    return text.append(f"\ncure: {stage.cure}", "default") if stage.cure else text


def expected_lines(expected: Sequence[Expected]) -> list[str]:
    """Return a line for each expected host, GPU and benchmark; a benchmark's line names some of its cases."""
    groups: dict[tuple[str, str, str], list[Expected]] = {}
    for one in expected:
        name = one.name.partition("/")[0] if one.kind is ExpectedKind.CASE else one.name
        groups.setdefault((one.kind, one.host, name), []).append(one)
    return [
        _line(name, list(dict.fromkeys(one.text for one in members)), members[0])
        for (*_, name), members in groups.items()
    ]


def _line(name: str, texts: Sequence[str], first: Expected) -> str:
    """Return a line about a host; or about a GPU or cases of one benchmark, with the host that should have them.

    Args:
        name: the name of the benchmark, if the line is about cases.
        texts: what is expected: the host, the GPU, or the cases.
        first: the first expected thing that the line is about.
    """
    if first.kind is ExpectedKind.HOST:
        return first.text
    what = texts[0] if len(texts) == 1 else f"{units.count(len(texts), 'case')} of {name} ({units.some(texts)})"
    return f"{what} on host {first.host}"
