"""How much slower a case may get before it matters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType

from perfsvc.model import MAX_ERROR, Case

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


@dataclass(frozen=True, slots=True)
class Rule:
    """The smallest relevant change of some cases and metrics.

    Attributes:
        takes: whether a case is meant.
        metric: a glob of metrics; ``*`` is all but the maximum error, which has to be named.
        change: the change, as a fraction of the baseline.
    """

    takes: Callable[[Case], bool]
    metric: str
    change: float

    def is_of(self, case: Case, metric: str) -> bool:
        """Whether it tells of a case's metric."""
        meant = fnmatchcase(metric, self.metric) and (metric != MAX_ERROR or self.metric != "*")
        return meant and self.takes(case)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The rules that hold from night to night, of which the last one that tells decides; and what a command asks for.

    Attributes:
        rules: in their order.
        asked: a command's own threshold for all that it judges, as a fraction, which goes before the rules.
    """

    rules: tuple[Rule, ...] = ()
    asked: float | None = None

    def laid_down(self, case: Case, metric: str) -> float | None:
        """The change that matters of a case's metric from night to night; None where no rule tells."""
        return next((rule.change for rule in reversed(self.rules) if rule.is_of(case, metric)), None)


Asked = Thresholds | float | None
"""What a person asked for: with rules, or a number alone, or nothing."""


def lasting(asked: Asked) -> Thresholds:
    """What of it holds whatever one command was asked for."""
    return Thresholds(asked.rules) if isinstance(asked, Thresholds) else Thresholds()


def threshold_of(case: Case, metric: str, device_kind: str, asked: Asked) -> float:
    """The relative change of a case's metric that matters on a kind of device.

    It is what the command was asked for, else what a rule lays down, else what suits the kind of device. For errors,
    which no command's threshold reaches, it is what a rule that names them says, else a bit.
    """
    thresholds = asked if isinstance(asked, Thresholds) else Thresholds(asked=asked)
    if thresholds.asked is not None and metric != MAX_ERROR:
        return thresholds.asked
    rule = thresholds.laid_down(case, metric)
    if rule is not None:
        return rule
    return ERROR_THRESHOLD if metric == MAX_ERROR else default_threshold(device_kind)


def default_threshold(device_kind: str) -> float:
    """The relative change that matters on a kind of device (``DeviceInfo.kind``) unless a person says otherwise.

    Raises:
        ValueError: perfsvc has no device of this kind.
    """
    if device_kind not in THRESHOLDS:
        raise ValueError(f"no device is of kind {device_kind!r}: the kinds are {', '.join(sorted(THRESHOLDS))}")
    return THRESHOLDS[device_kind]
