"""The smallest change that matters, by case, metric and kind of device."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from types import MappingProxyType

from perfsvc.model import MAX_ERROR, Case

THRESHOLDS: Mapping[str, float] = MappingProxyType(
    {
        # Medians of kernels over 50 µs differ by about 0.1 % from process to process. Shorter kernels differ by more,
        # and are then inconclusive: alpha limits false changes, whatever the threshold.
        "cuda": 0.01,
        # The CPU device's times are rough: other processes share its cores and caches.
        "cpu": 0.50,
        # A program on a host, which another tool timed: the times of its processes often differ by some per cent.
        "host": 0.05,
        # The fake device stands in for a GPU.
        "fake": 0.01,
    }
)
"""The threshold by kind of device, as a fraction of the baseline."""

ERROR_THRESHOLD = 1.0
"""The threshold of errors on every device: twice the error is one bit of accuracy lost. Smaller changes come from the
order of a sum, and beyond the tolerance the result is wrong in any case."""


@dataclass(frozen=True, slots=True)
class ThresholdRule:
    """The smallest relevant change of some cases and metrics.

    Attributes:
        takes: returns whether the rule applies to a case.
        metric: a glob of metrics; ``*`` is all but the maximum error, which has to be named.
        change: the change, as a fraction of the baseline.
    """

    takes: Callable[[Case], bool]
    metric: str
    change: float

    def applies_to(self, case: Case, metric: str) -> bool:
        """Return True if the rule applies to a metric of a case."""
        named = fnmatchcase(metric, self.metric) and (metric != MAX_ERROR or self.metric != "*")
        return named and self.takes(case)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """The configured rules and a command's own threshold. Of the rules that apply to a metric, the last one decides.

    Attributes:
        rules: in their order.
        override: a command's own threshold for all that it judges, as a fraction; it comes before the rules.
    """

    rules: tuple[ThresholdRule, ...] = ()
    override: float | None = None

    def configured(self, case: Case, metric: str) -> float | None:
        """Return the smallest relevant change that the rules set for a metric of a case; None if no rule applies."""
        return next((rule.change for rule in reversed(self.rules) if rule.applies_to(case, metric)), None)


ThresholdOption = Thresholds | float | None
"""What a user chose: the rules and perhaps a command's threshold; that threshold alone; or None for the defaults."""


def without_override(option: ThresholdOption) -> Thresholds:
    """Return the configured rules alone, without the threshold of the current command."""
    return Thresholds(option.rules) if isinstance(option, Thresholds) else Thresholds()


def threshold_of(case: Case, metric: str, device_kind: str, option: ThresholdOption) -> float:
    """Return the smallest relevant change of a case's metric on a kind of device, as a fraction.

    The command's own threshold comes first, then the rules, then the default of the kind of device. A command's
    threshold does not apply to errors. For an error, only a rule that names the error counts, else ``ERROR_THRESHOLD``.
    """
    thresholds = option if isinstance(option, Thresholds) else Thresholds(override=option)
    if thresholds.override is not None and metric != MAX_ERROR:
        return thresholds.override
    configured = thresholds.configured(case, metric)
    if configured is not None:
        return configured
    return ERROR_THRESHOLD if metric == MAX_ERROR else THRESHOLDS[device_kind]
