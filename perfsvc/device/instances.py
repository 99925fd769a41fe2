"""MIG instances, and whatever else of NVIDIA's CUDA hides while there are any.

A process sees only one instance, and may see no whole GPU beside it; a process started with
``CUDA_VISIBLE_DEVICES`` naming a device sees that one. So NVML says which devices there are, and each that this
process does not see is asked by a process of its own: this module, run as a program.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence

from perfsvc.device import VISIBLE, telemetry
from perfsvc.device.telemetry import Installed
from perfsvc.model import DeviceInfo, codec

_LIMIT_S = 60.0  # for what takes a second, beside a driver that is just starting


def complete(shown: Sequence[DeviceInfo]) -> list[DeviceInfo]:
    """Every CUDA device that this process was given: in place of a GPU in MIG mode, its instances.

    They stand in the order of the GPUs on the bus, or in that of ``CUDA_VISIBLE_DEVICES`` where it is set; there a
    GPU's ordinal or UUID means all of its instances. One that not even a process of its own can see is left out.

    Args:
        shown: those that CUDA shows to this process.
    """
    given = os.environ.get(VISIBLE)
    if given == ",".join(info.uuid for info in shown):
        return list(shown)  # nothing is hidden, and NVML need not be waited for
    installed = telemetry.installed()
    if not any(device.instance for device in installed):
        return list(shown)
    wanted = [device.uuid for device in (installed if given is None else _chosen(installed, given.split(",")))]
    known = {info.uuid: info for info in shown}
    known |= {info.uuid: info for info in _asked_alone(uuid for uuid in wanted if uuid not in known)}
    return [known[uuid] for uuid in wanted if uuid in known]


def _chosen(installed: Sequence[Installed], entries: Iterable[str]) -> list[Installed]:
    """What the entries of ``CUDA_VISIBLE_DEVICES`` name; as for CUDA, the first that names nothing ends the list."""
    chosen: dict[str, Installed] = {}
    for entry in entries:
        named = [device for device in installed if _names(entry.strip(), device)]
        if not named:
            break
        chosen |= {device.uuid: device for device in named}
    return list(chosen.values())


def _names(entry: str, device: Installed) -> bool:
    if entry.isdecimal():
        return int(entry) == device.ordinal
    return bool(entry) and any(uuid.lower().startswith(entry.lower()) for uuid in (device.uuid, device.board))


def _asked_alone(uuids: Iterable[str]) -> Iterator[DeviceInfo]:
    """What devices say of themselves to processes that see nothing else, all started at once."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "perfsvc.device.instances"],
            env=os.environ | {VISIBLE: uuid},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for uuid in uuids
    ]
    for process in processes:
        with process, contextlib.suppress(subprocess.TimeoutExpired):
            try:
                said, _ = process.communicate(timeout=_LIMIT_S)
            finally:
                process.kill()
            if process.returncode == 0:
                yield codec.decode(DeviceInfo, said)


def main() -> int:
    """Prints the one device that this process sees, as JSON; returns the process's exit status."""
    from perfsvc.device.cuda.listing import devices

    (info,) = devices()
    sys.stdout.buffer.write(codec.encode(info))
    return 0


if __name__ == "__main__":
    sys.exit(main())
