"""A result that another tool wrote, in the words of perfsvc."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from perfsvc.model import CacheState, DeviceInfo, Status, Value

Point = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Result:
    """One case as one process of another tool timed it, or the reason why there is no time.

    Attributes:
        benchmark: the name of the benchmark; never empty.
        variant: the name of the variant; never empty.
        point: the axes and their values.
        samples_s: the samples of one process in seconds, each finite and above zero; one value if the tool stores only
            a summary. Empty unless the status is ``ok``.
        metrics: other numbers that the tool stored, by name, each finite. Names contain units (``bytes_per_s``).
        status: ``ok``, ``skipped`` or ``failed``.
        reason: why there are no samples, without a full stop; empty if there are samples.
        note: what a reader of the times has to know, without a full stop; empty if there is nothing to know.
        replica: the number of the process within the file, from 0. Only hyperfine stores the times of several processes.
        cache: the state of the L2 cache before each sample.
        device: the device that the file describes, with its number in the file as ``uuid`` and an empty ``spec``; None
            if the file describes none.
        commit: the commit that was measured; empty if the file does not contain it, like ``host``.
        host: the machine that measured.
        started: when the measurement began, in UTC; None if the file does not contain the time.
    """

    benchmark: str
    variant: str
    point: Point = ()
    samples_s: tuple[float, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    status: Status = Status.OK
    reason: str = ""
    note: str = ""
    replica: int = 0
    cache: CacheState = CacheState.WARM
    device: DeviceInfo | None = None
    commit: str = ""
    host: str = ""
    started: datetime | None = None

    def __post_init__(self) -> None:
        """Raise ``ValueError`` if a parser broke one of the promises above."""
        if not self.benchmark or not self.variant:
            raise ValueError("a result needs the names of its benchmark and variant")
        if (self.status is Status.OK) != bool(self.samples_s) or bool(self.samples_s) == bool(self.reason):
            raise ValueError(f"a result with status {self.status} has {len(self.samples_s)} samples")
        if not all(0 < sample < math.inf for sample in self.samples_s):
            raise ValueError("a sample is not a finite number above zero")
        if not all(map(math.isfinite, self.metrics.values())):
            raise ValueError("a metric is not a finite number")
