"""Whether the driver lets this process read the GPU's counters, before anybody tries."""

import re
from pathlib import Path

PARAMETERS, STATUS = Path("/proc/driver/nvidia/params"), Path("/proc/self/status")
CAPABLE = (1 << 21) | (1 << 38)
"""The capabilities that open them to anybody: CAP_SYS_ADMIN, and CAP_PERFMON from driver 565 on."""


def readable() -> bool | None:
    """Whether this process may read them; None where that cannot be told.

    Source: https://developer.nvidia.com/ERR_NVGPUCTRPERM.
    """
    restricted = _number(PARAMETERS, r"^RmProfilingAdminOnly:\s*(\d+)", 10)
    capabilities = _number(STATUS, r"^CapEff:\s*([0-9a-fA-F]+)", 16)
    if restricted is None:
        return None
    if not restricted:
        return True
    return None if capabilities is None else bool(capabilities & CAPABLE)


def _number(path: Path, pattern: str, base: int) -> int | None:
    try:
        found = re.search(pattern, path.read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    except OSError:
        return None
    return int(found[1], base) if found else None
