"""The GPUs that a night measures on, and the GPUs that it misses."""

import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from perfsvc import units
from perfsvc.device.find import find
from perfsvc.errors import NoDeviceError, UsageError
from perfsvc.model import (
    Absence,
    DeviceInfo,
    Expected,
    ExpectedKind,
)
from perfsvc.service.expect.cases import Inventory, last_seen
from perfsvc.store import NightRow, Store

CPU = "cpu"

NO_GPU = "there is no GPU to use"
"""How the message of a stage begins that failed only because the GPUs of earlier nights are missing."""


@dataclass(frozen=True, slots=True)
class DevicesHere:
    """The devices that a night measures on.

    Attributes:
        devices: the devices that the settings name, without GPUs that were lost.
        specs: the specifications that name exactly these devices.
    """

    devices: tuple[DeviceInfo, ...]
    specs: tuple[str, ...]


def devices_here(store: Store, host: str, scope: str, specs: Sequence[str]) -> DevicesHere:
    """Return the devices that a night measures on.

    A device that earlier nights had and that is gone now is left out.

    Args:
        store: the database.
        host: this machine.
        scope: the scope of the night's run.
        specs: the devices that the settings name.

    Raises:
        NoDeviceError: none of the devices is here, or ``auto`` finds only the CPU where a GPU was measured before.
        UsageError: a specification is wrong.
    """
    try:
        devices = find(specs)
    except (NoDeviceError, UsageError) as error:
        devices = list(_found_singly(specs))
        asked, here = " ".join(specs), {info.uuid for info in devices}
        lost = {
            row.name: row.text
            for row in store.expectations.of_host(host)
            if row.kind is ExpectedKind.GPU and (row.scope == scope or row.devices == asked) and row.name not in here
        }
        if not lost:
            raise
        if not devices:
            what = f"{NO_GPU}, but earlier nights of this host measured on {', '.join(lost.values())}: {error.what}"
            raise NoDeviceError(what, cure=error.cure) from error
        specs = tuple(info.spec for info in devices)
    require_gpu(store, host, specs, devices)
    return DevicesHere(tuple(devices), tuple(specs))


def require_gpu(store: Store, host: str, specs: Collection[str], devices: Iterable[DeviceInfo]) -> None:
    """Raise ``NoDeviceError`` if ``auto`` found only the CPU device on a host that has measured on a GPU before."""
    if "auto" not in specs or any(info.kind != CPU for info in devices):
        return
    if gpus := store.expectations.gpus_of(host):
        names = ", ".join(f"{uuid} ({model})" for uuid, model in gpus.items())
        raise NoDeviceError(
            f"{NO_GPU}, but earlier runs of this host measured on {names}",
            cure="see whether nvidia-smi lists these GPUs; to measure on the CPU device all the same, name this device "
            'instead of auto: devices = ["cpu"], or --device cpu',
        )


def _found_singly(specs: Iterable[str]) -> Iterator[DeviceInfo]:
    """Yield each device of this machine that any specification names; specifications without a device are skipped."""
    found: dict[str, DeviceInfo] = {}
    for spec in specs:
        kind, colon, names = spec.partition(":")
        for single in [f"cuda:{name}" for name in names.split(",")] if kind == "cuda" and colon else [spec]:
            with contextlib.suppress(NoDeviceError, UsageError):
                found |= {info.uuid: info for info in find([single])}
    yield from found.values()


def _present_gpus(specs: Sequence[str]) -> dict[str, DeviceInfo]:
    """Return the GPUs of this machine that the settings name, by UUID.

    If a specification fails and any specification names CUDA devices, return all GPUs of this machine.
    """
    try:
        devices = find(specs)
    except (NoDeviceError, UsageError):
        devices = list(_found_singly(specs))
        if any(spec.startswith("cuda") for spec in specs):
            devices += _found_singly(["cuda"])
    return {info.uuid: info for info in devices if info.kind != CPU}


def compare_gpus(
    everything: Sequence[Expected], night: NightRow, scope: str, specs: Sequence[str], now: datetime
) -> Inventory:
    """Compare the GPUs that are here with the GPUs of earlier nights that asked for the same devices.

    If no earlier night asked for these devices, the settings have changed, and the GPUs of all earlier nights count.
    If a host has a new selection of cases, the GPUs of all its nights that asked for the same devices are expected.
    GPUs that go missing together are reported in one finding.
    """
    asked, present = " ".join(specs), _present_gpus(specs)
    here = [row for row in everything if row.host == night.host and row.kind is ExpectedKind.GPU]
    of_scope = [row for row in here if row.scope == scope]
    known = [row for row in of_scope if row.devices == asked] or of_scope
    carried = []
    if not known:
        newest: dict[str, Expected] = {}
        for row in sorted((row for row in here if row.devices == asked), key=lambda row: row.night):
            newest[row.name] = row
        known = carried = [replace(row, scope=scope) for row in newest.values() if row.name not in present]
    missing = [row for row in known if row.name not in present]
    groups: dict[int | None, list[Expected]] = defaultdict(list)
    for row in missing:
        groups[row.finding].append(row)
    seen = [
        Expected(ExpectedKind.GPU, info.uuid, night.host, night.id, now, scope, asked, info.model, night.run)
        for info in present.values()
    ]
    back = [
        replace(row, night=night.id, run=night.run, seen=now)
        for row in here
        if row.finding is not None and row.name in present
    ]
    text = units.count(len(present), "GPU") if present or known else ""
    elsewhere = [row for row in everything if row.host != night.host and row.kind is ExpectedKind.GPU]
    absences = [gpus_gone(rows, asked, elsewhere) for rows in groups.values()]
    return Inventory([*back, *carried, *seen], absences, text)


def gpus_gone(rows: Sequence[Expected], asked: str, elsewhere: Iterable[Expected] = ()) -> Absence:
    """Return the absence of GPUs that went missing together; the evidence names other hosts that have them now.

    ``asked`` are the specifications of devices in today's settings.
    """
    newest = max(rows, key=lambda row: row.night)
    last = {row.text: row for row in sorted(rows, key=lambda row: row.night)}
    names = list(dict.fromkeys(row.text for row in rows))
    if len({last_seen(row) for row in last.values()}) > 1:
        evidence = "; ".join(f"{name} {last_seen(last[name])}" for name in names)
    elif len(names) > 1:
        evidence = f"{', '.join(names)}; {last_seen(newest)}"
    else:
        evidence = last_seen(newest)
    moved = {row.text: row for row in elsewhere if row.text in last and row.finding is None}
    for name, row in moved.items():
        if row.seen > last[name].seen:
            evidence += f"; host {row.host} has {name}, in night {row.night}"
    if newest.devices != asked:
        evidence += f"; the settings name {asked} now, and named {newest.devices} then"
    subject = names[0] if len(names) == 1 else f"{len(names)} GPUs"
    return Absence(f"{subject} on host {newest.host}", evidence, tuple(rows))
