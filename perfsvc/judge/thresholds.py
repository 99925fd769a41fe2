"""How much slower a case may get before it matters."""

from collections.abc import Mapping
from types import MappingProxyType

from perfsvc.model import MAX_ERROR

THRESHOLDS: Mapping[str, float] = MappingProxyType(
    {
        # Medians of kernels over 50 µs differ by some 0.1 % from process to process. What is shorter differs by more,
        # and is inconclusive then: false changes are held down by alpha, at whatever threshold.
        "cuda": 0.01,
        # The CPU device's times are rough: other processes share its cores and caches.
        "cpu": 0.50,
        # The fake stands in for a GPU.
        "fake": 0.01,
    }
)
"""The threshold by kind of device, as a fraction of the baseline."""

ERROR_THRESHOLD = 1.0
"""The threshold of errors, whatever the device: twice the error is one bit of accuracy lost. Below that it changes with
the order of a sum, and beyond the tolerance the result is wrong in any case."""


def threshold_of(metric: str, device_kind: str, asked: float | None) -> float:
    """The relative change of a metric that matters on a kind of device: what a person asked for; of errors a bit."""
    if metric == MAX_ERROR:
        return ERROR_THRESHOLD
    return default_threshold(device_kind) if asked is None else asked


def default_threshold(device_kind: str) -> float:
    """The relative change that matters on a kind of device (``DeviceInfo.kind``) unless a person says otherwise.

    Raises:
        ValueError: perfsvc has no device of this kind.
    """
    if device_kind not in THRESHOLDS:
        raise ValueError(f"no device is of kind {device_kind!r}: the kinds are {', '.join(sorted(THRESHOLDS))}")
    return THRESHOLDS[device_kind]
