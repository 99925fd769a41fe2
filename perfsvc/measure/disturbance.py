"""Which conditions spoil a batch, and waiting until they have passed."""

from collections.abc import Iterator
from dataclasses import dataclass

from perfsvc.device.protocol import Device
from perfsvc.model import Conditions, Slowdown

FIRST_REST_S = 0.25
LONGEST_REST_S = 4.0


def disturbance(conditions: Conditions) -> str:
    """What spoiled the times taken under these conditions; empty where nothing did.

    A board at its power limit is not disturbed: the load that it measures took it there, and would again.
    """
    return ", ".join(_disturbances(conditions))


def _disturbances(conditions: Conditions) -> Iterator[str]:
    yield from (str(slowdown) for slowdown in conditions.slowdowns if slowdown is not Slowdown.POWER_CAP)
    if conditions.others:
        yield f"other processes on the board ({_listed(conditions.others)})"
    if conditions.xids:
        yield f"faults that the driver reported (Xid {_listed(conditions.xids)})"
    if conditions.ecc_errors:
        yield f"memory errors that could not be corrected ({conditions.ecc_errors})"


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers))


@dataclass
class Patience:
    """How long a case goes on waiting for its board to recover.

    Attributes:
        left_s: seconds that it may still wait.
        waited_s: seconds that it has waited.
        causes: what for.
    """

    left_s: float
    waited_s: float = 0.0
    causes: tuple[str, ...] = ()

    def wait(self, device: Device, cause: str) -> bool:
        """Rests, ever longer, until nothing disturbs the board; false where patience ends before that."""
        self.causes = tuple(dict.fromkeys((*self.causes, cause)))
        rest_s = FIRST_REST_S
        while self.left_s > 0:
            rest_s = min(rest_s, self.left_s)
            device.rest(rest_s)
            self.left_s -= rest_s
            self.waited_s += rest_s
            if not disturbance(device.conditions()):
                return True
            rest_s = min(2 * rest_s, LONGEST_REST_S)
        return False

    @property
    def note(self) -> str:
        """That it waited, and what for; empty where it did not."""
        if not self.waited_s:
            return ""
        return f"waited {self.waited_s:.3g} s for the board to recover from {'; '.join(self.causes)}"
