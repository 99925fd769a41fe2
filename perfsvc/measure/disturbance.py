"""Which conditions spoil a batch, and waiting for the GPU to recover from them."""

from collections.abc import Sequence

from perfsvc.device.protocol import Device
from perfsvc.model import Conditions, Slowdown

FIRST_REST_S = 0.5
LONGEST_REST_S = 8.0


def disturbances(conditions: Conditions) -> tuple[str, ...]:
    """What spoiled the times taken under these conditions; nothing where they are good.

    A GPU at its power limit is not disturbed: the load that is measured took it there, and would again.
    """
    found = [str(slowdown) for slowdown in conditions.slowdowns if slowdown is not Slowdown.POWER_CAP]
    if conditions.others:
        found.append(f"other processes at work ({_listed(conditions.others)})")
    if conditions.xids:
        found.append(f"faults of the GPU (Xid {_listed(conditions.xids)})")
    if conditions.ecc_errors:
        found.append(f"memory errors that could not be corrected ({conditions.ecc_errors})")
    return tuple(found)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


class Recovery:
    """Lets a GPU rest until nothing disturbs it any more.

    Each rest is twice as long as the one before, over all waits of a case: a GPU that is well while it idles and
    too hot as soon as it works needs more than it was given.

    Args:
        device: whose GPU.
        limit_s: how long a case may wait in all.

    Attributes:
        waited_s: how long it has waited.
    """

    def __init__(self, device: Device, limit_s: float) -> None:
        self._device = device
        self._limit_s = limit_s
        self._rest_s = FIRST_REST_S
        self._causes: dict[str, str] = {}  # by what they are, whichever numbers they come with
        self.waited_s = 0.0

    def wait(self, causes: Sequence[str]) -> bool:
        """Waits for the GPU to recover from ``causes``; false where it has not by the end of all waiting."""
        self._causes |= {cause.partition(" (")[0]: cause for cause in causes}
        while self.waited_s < self._limit_s:
            rest_s = min(self._rest_s, self._limit_s - self.waited_s)
            self._device.rest(rest_s)
            self.waited_s += rest_s
            self._rest_s = min(2 * self._rest_s, LONGEST_REST_S)
            if not disturbances(self._device.conditions()):
                return True
        return False

    @property
    def failure(self) -> str:
        """That the GPU did not recover, as a sentence without its full stop."""
        return f"the GPU did not recover from {self._what_for} within {self._limit_s:g} s"

    @property
    def note(self) -> str:
        """How long it waited and what for; empty where it did not."""
        if not self.waited_s:
            return ""
        return f"waited {self.waited_s:.3g} s for the GPU to recover from {self._what_for}"

    @property
    def _what_for(self) -> str:
        return " and ".join(self._causes.values())
