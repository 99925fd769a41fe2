"""What connects two GPUs, by NVML."""

import contextlib
from typing import Any

from perfsvc.device.groups import HOST_MEMORY, NVLINK, PCIE
from perfsvc.device.telemetry import ask, handles


def interconnect(first: str, second: str) -> str:
    """Return what connects two GPUs (``perfsvc.device.groups.INTERCONNECTS``); empty if NVML does not report it.

    NVML reports for each pair of GPUs whether one can read the memory of the other, and whether by NVLink, with or
    without a switch.
    """

    def connection(nvml: Any) -> str:
        gpus = [handles(nvml, uuid)[1] for uuid in (first, second)]

        def is_ok(capability: int) -> bool:
            return int(nvml.nvmlDeviceGetP2PStatus(*gpus, capability)) == int(nvml.NVML_P2P_STATUS_OK)

        with contextlib.suppress(nvml.NVMLError):  # a GPU without NVLink
            if is_ok(nvml.NVML_P2P_CAPS_INDEX_NVLINK):
                return NVLINK
        return PCIE if is_ok(nvml.NVML_P2P_CAPS_INDEX_READ) else HOST_MEMORY

    return ask(connection, otherwise="")
