"""What reports are made of: plain rows without any layout."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perfsvc import units
from perfsvc.errors import SuiteError
from perfsvc.model import (
    CacheState,
    Case,
    CaseExplanation,
    Confirmation,
    Difference,
    FullEnvironment,
    Judgement,
    OverBudget,
    Peak,
    Rates,
    Status,
    Verdict,
)

SEPARATOR = "; "
"""Separates the sentences of a note, and the reasons why sampling stopped."""

FIRST = (Verdict.REGRESSION, Verdict.BROKEN, Verdict.MISSING, Verdict.IMPROVEMENT)
"""The verdicts that a reviewer sees without unfolding."""

Key = tuple[str, str, CacheState]
"""Device UUID, case id and cache state: they identify a result in a run."""


@dataclass(frozen=True, slots=True)
class MetricRow:
    """A named metric of a case over all replicas. Lower is better.

    Attributes:
        metric: its name.
        value: its level, in the metric's own unit; None if the run does not have it.
        low: the lower end of the level's interval; None for a single replica.
        high: the upper end.
        judgement: its verdict; None if it was not judged.
    """

    metric: str
    value: float | None
    low: float | None = None
    high: float | None = None
    judgement: Judgement | None = None


@dataclass(frozen=True, slots=True)
class ResultRow:
    """A case in one cache state on a device in one run, over all its replicas.

    Attributes:
        case: the case.
        device: UUID of the device.
        device_model: its model.
        device_kind: ``cuda``, ``cpu`` or ``fake``.
        interconnect: what connects the GPUs of a group, such as ``NVLink``; empty for a single device.
        status: of the worst replica; None for a missing case, which an earlier run has and this run has not.
        reason: why the case is not ok.
        cure: what to do about it.
        replicas: how many are ok.
        median_s: the level of its time, in seconds; None unless all replicas are ok.
        low_s: the lower end of the level's interval; None for a single sample.
        high_s: the upper end.
        bandwidth_bytes_per_s: the bytes of the work over the level; None if the work is unknown.
        flops_per_s: the floating-point operations of the work over the level; None if the work is unknown.
        bus_bytes_per_s: the bytes over the busiest link between two GPUs over the level; None on a single GPU.
        max_error: the largest maximum error of a replica.
        mean_error: the largest mean error of a replica.
        metrics: by name.
        judgement: the verdict on its time; None if it was not judged.
        cache: the state of the L2 cache before each sample.
        peak: the measured peak that the case comes nearest to, such as ``memory`` or ``fp32``; empty if none is known.
        peak_share: the rate of the case over this peak; None if it is unknown.
        relative_to: the reference variant; empty if there is none.
        relative_speed: the reference variant's level over the case's level; None if the run lacks one of them.
        noise_within: relative deviation of its samples around their replica's median.
        noise_between: deviation of the replicas' medians beyond what ``noise_within`` explains.
        noise_places: deviation of the medians at several places of the arrays beyond what ``noise_within`` explains.
        stopped: why sampling stopped, each reason once.
        notes: what a reader of its time has to know, each note once.
        excluded: why it is excluded from judging; empty if it is judged.
    """

    case: Case
    device: str
    device_model: str
    device_kind: str
    status: Status | None
    reason: str = ""
    cure: str = ""
    replicas: int = 0
    median_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    bandwidth_bytes_per_s: float | None = None
    flops_per_s: float | None = None
    bus_bytes_per_s: float | None = None
    max_error: float | None = None
    mean_error: float | None = None
    metrics: tuple[MetricRow, ...] = ()
    judgement: Judgement | None = None
    cache: CacheState = CacheState.COLD
    peak: str = ""
    peak_share: float | None = None
    relative_to: str = ""
    relative_speed: float | None = None
    noise_within: float | None = None
    noise_between: float | None = None
    noise_places: float | None = None
    stopped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    excluded: str = ""
    interconnect: str = ""

    @property
    def key(self) -> Key:
        """Device, case id and cache state."""
        return self.device, self.case.id, self.cache


@dataclass(frozen=True, slots=True)
class Doubt:
    """A case whose declared work is more than the GPU can do in the measured time.

    Attributes:
        peak: the measured peak that the work exceeds: ``memory``, or a precision such as ``fp32``.
        declared: bytes that a launch reads and writes, or its operations, according to the benchmark.
        rate: the bytes or operations a second that follow.
        peak_rate: the measured peak of the GPU.
    """

    case: Case
    device: str
    cache: CacheState
    peak: str
    declared: int
    rate: float
    peak_rate: float


@dataclass(frozen=True, slots=True)
class RunReport:
    """Everything that is shown about a run.

    Attributes:
        run: its number.
        rows: its results, by device.
        title: when and where it ran: start, label, commit, host.
        problems: benchmark files that cannot be used.
        peaks: the measured peaks of its GPUs' memory, by UUID.
        rates: their measured peaks of arithmetic and L2 cache by name, by UUID.
        over_budget: cases that the budget had no time for.
        doubts: declared work that cannot be right.
        confirmations: the suspects that were measured again in A/B pairs.
        explanations: why confirmed regressions are slower.
        no_finding: why a confirmed change raised no finding; empty if none is confirmed, or if it raised one.
        environment: the full environment of the run; None if it recorded none.
    """

    run: int
    rows: Sequence[ResultRow]
    title: str = ""
    problems: Sequence[SuiteError] = ()
    peaks: Mapping[str, Peak] = field(default_factory=dict)
    rates: Mapping[str, Rates] = field(default_factory=dict)
    over_budget: Sequence[OverBudget] = ()
    doubts: Sequence[Doubt] = ()
    confirmations: Sequence[Confirmation] = ()
    explanations: Sequence[CaseExplanation] = ()
    no_finding: str = ""
    environment: FullEnvironment | None = None


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A run or a revision in a comparison, and the name that the user gave it: ``main``, ``latest~1``, ``7``.

    Attributes:
        run: the run's number; None for a revision that was measured without a database.
        why: why it is this one of several runs of a revision; empty if there was no choice.
        part: the GPU or the variant that is compared; empty for the whole run.
    """

    asked: str
    run: int | None
    label: str = ""
    commit: str = ""
    dirty: bool = False
    why: str = ""
    part: str = ""

    @property
    def name(self) -> str:
        """The run in words, ``run 7`` or ``NVIDIA H200 in run 7``; for a revision, what the user typed."""
        if self.run is None:
            return self.asked
        return f"{self.part} in run {self.run}" if self.part else f"run {self.run}"

    @property
    def description(self) -> str:
        """What the user typed, and the run that this means: ``HEAD = run 7, 1a2b3c4d5 (the newest of its 2 runs)``."""
        label = f"“{self.label}”" if self.label not in {"", self.asked} else ""
        commit = f"{self.commit[:9]}{' with uncommitted changes' if self.dirty else ''}".lstrip()
        if self.run is None:
            return commit if self.commit.startswith(self.asked) else f"{self.asked} = {commit}"
        run = f"run {self.run}"
        name = run if self.asked == str(self.run) else f"{self.asked} = {run}"
        name = f"{self.part} in {name}" if self.part else name
        return ", ".join(filter(None, [name, label, commit])) + (f" ({self.why})" if self.why else "")


@dataclass(frozen=True, slots=True)
class EnvironmentDifferences:
    """In what the full environment of the run ``after`` differs from that of the run ``before``."""

    before: int
    after: int
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class CheckRow:
    """A check of ``perfsvc doctor``.

    Attributes:
        check: what was looked for.
        ok: whether it is present; None if it is absent and only some work needs it.
        found: what was found.
        cure: what to do if it is not ok.
    """

    check: str
    ok: bool | None
    found: str
    cure: str = ""


MOST_DIFFERENCES = 20
"""How many differences are shown beside other results."""


def heading(changes: EnvironmentDifferences) -> str:
    """Return the heading of a list of differences: ``2 differences of the environment since run 7``."""
    count = units.count(len(changes.differences), "difference")
    return f"{count} of the environment since run {changes.before}"


def difference_lines(changes: EnvironmentDifferences, most: int | None = MOST_DIFFERENCES) -> Iterator[str]:
    """Yield a line for each difference (``gpu.ecc on → off``), then how many more there are."""
    for difference in changes.differences[:most]:
        yield f"{difference.name} {value_change(difference)}"
    if most is not None and (omitted := len(changes.differences) - most) > 0:
        yield f"and {omitted} more: perfsvc runs environment {changes.before} {changes.after}"


def value_change(difference: Difference) -> str:
    """Return both values of a difference, and the GPUs that it concerns if they are known: ``on → off (GPU-1)``."""
    before, after = _value(difference.name, difference.before), _value(difference.name, difference.after)
    devices = f" ({', '.join(difference.devices)})" if difference.devices else ""
    return f"{before} → {after}{devices}"


def _value(name: str, value: str | None) -> str:
    if value is None:
        return "unset" if name.startswith("variable.") else "unknown"
    return value or "empty"
