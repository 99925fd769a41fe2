"""What a person or cron asks a run for."""

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
        points: at which points; None for the full ones on a GPU and the smoke points elsewhere.
        precision: how narrow the interval of a median is to be, relative to it. None, like ``samples`` and
            ``seconds``, the caps on getting there, for what suits the kind of device.
        energy: measure the energy of a launch as well.
        spread: whether every GPU measures a case, or one GPU of each model does.
        budget_s: seconds that the run may take on each device; None for as many as it needs.
        limit_s: seconds that a case may take in a replica before its worker is killed.
        confirm: measure suspects again, the baseline's binary and this run's in turn.
        profile: have a profiler look at both binaries of what is confirmed to be slower.
        threshold: the smallest relevant change as a fraction, or rules; None for what suits the kind of device.
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


def seed_of(asked: int | None) -> int:
    """The seed that somebody asked for, or any."""
    return int.from_bytes(os.urandom(4)) if asked is None else asked
