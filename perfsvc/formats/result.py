"""A result that another tool wrote, in the words of perfsvc."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from perfsvc.model import CacheState, DeviceInfo, Status, Value

Point = tuple[tuple[str, Value], ...]


@dataclass(frozen=True, slots=True)
class Result:
    """One case as one process of another tool measured it, or the reason why there is no number.

    Attributes:
        benchmark: the name of the benchmark, without ``/`` and brackets; never empty.
        variant: the name of the variant; never empty.
        point: the axes and their values.
        samples_s: the samples of one process in seconds, each finite and above zero; one value if the tool stored only
            a summary. Empty unless the status is ``ok``.
        metrics: further numbers by name, each finite. For each of them, lower is better, or perfsvc never judges it.
        counters: numbers whose better direction is unknown, under the names that the tool gave them, each finite.
        status: ``ok``, ``skipped``, ``failed`` or ``wrong``.
        reason: why there is no number, without a full stop; empty if there is one.
        note: what a reader of the times has to know, without a full stop; empty if there is nothing to know.
        replica: the number of the process within the file, from 0. Only hyperfine and CSV have several.
        cache: the state of the caches before each sample; None if there is no time and the file does not say it.
        moved_bytes: the bytes that one execution reads and writes; 0 if unknown.
        clock_hz: the clock of the GPU's multiprocessors while it was measured; None if unknown.
        device: the device that the file describes, with an empty ``spec``, and with its number in the file as ``uuid``;
            None if the file describes none.
        program: the program that measured, as the file names it; empty if the file does not, like the next three.
        commit: the commit that was measured.
        dirty: whether files differed from the commit.
        host: the machine that measured.
        started: when the measurement began, in UTC; None if unknown.
        digest: identifies the part of the file that holds this result, if other parts may be added to the file later;
            empty if the file is never changed.
    """

    benchmark: str
    variant: str
    point: Point = ()
    samples_s: tuple[float, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)
    status: Status = Status.OK
    reason: str = ""
    note: str = ""
    replica: int = 0
    cache: CacheState | None = CacheState.WARM
    moved_bytes: int = 0
    clock_hz: float | None = None
    device: DeviceInfo | None = None
    program: str = ""
    commit: str = ""
    dirty: bool = False
    host: str = ""
    started: datetime | None = None
    digest: str = ""

    def __post_init__(self) -> None:
        """Raise ``ValueError`` if a parser broke one of the promises above."""
        numbers = (*self.samples_s, *self.metrics.values(), *self.counters.values())
        if not self.benchmark or not self.variant:
            raise ValueError("a result needs the names of its benchmark and variant")
        if (self.status is Status.OK) != bool(numbers) or bool(numbers) == bool(self.reason):
            raise ValueError(f"a result with status {self.status} has {len(numbers)} numbers")
        if not all(map(math.isfinite, numbers)) or (self.samples_s and min(self.samples_s) <= 0):
            raise ValueError("a number of a result is not finite, or a sample is not above zero")
