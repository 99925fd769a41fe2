"""What Nsight Compute counted of one launch."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Rule:
    """What a rule of Nsight Compute found wrong with a launch.

    Attributes:
        name: the rule's identifier (``SharedMemoryConflicts``).
        message: what it says, as one line of plain text.
        speedup: the share of the launch's time that it estimates could be saved, from 0 to 1; None where it does not.
    """

    name: str
    message: str
    speedup: float | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """A kernel's launch as Nsight Compute saw it.

    Attributes:
        kernel: the kernel's name.
        metrics: by our names, which end with their unit (``dram_read_bytes``); None where it was not counted.
        rules: those that found something.
        device: the model of the device (``NVIDIA H100 80GB HBM3``).
        chip: of the device (``GH100``).
        ncu_version: of the Nsight Compute that counted.
    """

    kernel: str
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()
    device: str = ""
    chip: str = ""
    ncu_version: str = ""
