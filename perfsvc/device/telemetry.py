"""What the driver's management library (NVML) knows of a board. The only importer of ``pynvml``."""

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_WATTS_PER_MILLIWATT = 1e-3


def driver_version() -> str:
    """The driver's version as nvidia-smi prints it (``580.159.04``); empty where NVML cannot say."""
    return _ask(lambda nvml: str(nvml.nvmlSystemGetDriverVersion()), otherwise="")


def power_limit_w(uuid: str) -> float:
    """The power limit that is set on a board, in watts; zero where NVML cannot say."""

    def limit(nvml: Any) -> float:
        board = nvml.nvmlDeviceGetHandleByUUID(uuid)
        return float(nvml.nvmlDeviceGetPowerManagementLimit(board)) * _WATTS_PER_MILLIWATT

    return _ask(limit, otherwise=0.0)


def _ask(question: Callable[[Any], T], *, otherwise: T) -> T:
    """The answer of NVML, or ``otherwise`` where its package, its library or the answer is not to be had."""
    try:
        import pynvml
    except ImportError:
        return otherwise
    try:
        pynvml.nvmlInit()
        try:
            return question(pynvml)
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return otherwise
