"""The options of a run, from the command line or from a night's settings."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from perfsvc import judge
from perfsvc.measure.plan.order import Spread
from perfsvc.service.revisions import BASELINE
from perfsvc.suite import Selection


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The options of a run.

    Attributes:
        points: which points; None for the full points on a GPU and the smoke points elsewhere.
        precision: the target half-width of a median's interval, relative to the median. None for the default of the
            kind of device; likewise ``samples`` and ``seconds``, the caps on sampling.
        energy: also measure the energy of a launch.
        spread: whether every GPU measures each case, or one GPU of each model.
        budget_s: seconds that the run may take on each device; None for no limit.
        limit_s: seconds that a case may take in a replica before its worker is killed.
        confirm: measure suspects again, the baseline's binary and this run's in A/B pairs.
        profile: profile both binaries of each confirmed regression.
        threshold: the smallest relevant change as a fraction, or rules; None for the default of the kind of device.
        against: the run that series without a pin are compared with, or ``@baseline``.
    """

    database: str
    suite: Path
    devices: tuple[str, ...] = ("auto",)
    selection: Selection = field(default_factory=Selection)
    points: Literal["smoke", "full"] | None = None
    replicas: int = 3
    precision: float | None = None
    samples: int | None = None
    seconds: float | None = None
    energy: bool = False
    spread: Spread = "each-device"
    budget_s: float | None = None
    limit_s: float = 60.0
    seed: int | None = None
    label: str = ""
    confirm: bool = False
    profile: bool = False
    threshold: judge.ThresholdOption = None
    against: str = BASELINE
    command_line: str = ""


def seed_of(requested: int | None) -> int:
    """Return the requested seed, or a random one."""
    return int.from_bytes(os.urandom(4)) if requested is None else requested
